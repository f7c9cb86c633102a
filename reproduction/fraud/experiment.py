"""The paper's Table 3 on public data: losses against each other on the ULB card-fraud table.

The paper's two fraud tables are private and its model is TabNet. Here every loss runs in several families on
one public table. It is tested on four disjoint folds (each row once), drawn several times, and separately on
the last quarter in time. Parameters are chosen inside the training rows: by cross-validation, or for the deep
families (`deep` stands for TabNet and TabM) on held-out rows. Differences to cross entropy are paired: both
methods score the same rows.

Families and methods that are not asked for keep the results that the folder has. These must be of the same
table and seed. A run that was killed resumes after the families and splits that it had finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
from numpy.typing import NDArray

from raresight.common.atomic_files import write_files
from raresight.common.versions import versions_of
from raresight.engines.local import LocalEngine

from .. import UnfinishedError
from ..output import PICTURES, rows_text
from ..training_records import add_records, key_text, need_writable, read_keyed
from .methods import (
    DEEP_FAMILIES,
    EPOCHS,
    FAMILIES,
    METHODS,
    REFERENCE,
    SETTINGS,
    Record,
    Scores,
    SharedFit,
    against,
    families_of,
    judged,
    run_shared,
    summarised,
)
from .report import draw, in_order, made_with, read_results, table_text
from .table import (
    ABOUT,
    REPEATS,
    About,
    CardFraud,
    Key,
    Rows,
    about_of,
    about_text,
    check_same_run,
    fit_seed,
    read_about,
    read_card_fraud,
    split_keys,
    splits,
)

# ---- Families without nets ---------------------------------------------------------------------------------

UNFINISHED_FITS = "deep/unfinished_fraud_fits.jsonl.xz"
"""The journal in the folder of results. It is removed once the results are written."""

Group = tuple[Key, str]
"""A split and a family: its methods are compared with each other, and are finished together."""


def fit_families(
    table: CardFraud,
    families: Sequence[str],
    methods: Sequence[str],
    rows_of: dict[Key, Rows],
    about: About,
    journal: Path,
    jobs: int | None,
    tell: Callable[[str], None],
) -> tuple[list[Record], list[Record]]:
    """The metrics of every method on every split, and the differences to cross entropy.

    Args:
        table: The fraud table.
        families: Without nets.
        methods: Cross entropy first.
        rows_of: The splits.
        about: The table and the seed.
        journal: Where finished groups are kept, and found.
        jobs: Fits at once. Default: one per core.
        tell: Called with each line of progress.
    """
    groups = [(key, family) for key in rows_of for family in families]
    names = {group: key_text(_fit_of(group, methods, about)) for group in groups}
    finished = read_keyed(journal, lambda row: key_text(row["fit"]))
    missing = [group for group in groups if names[group] not in finished]
    total, kept = len(groups) * len(methods), (len(groups) - len(missing)) * len(methods)
    if kept:
        tell(f"{kept} of {total} fits are there from a run that was ended")
    fits = [(group, method) for group in missing for method in methods]
    found: dict[Group, dict[str, Scores]] = {group: {} for group in missing}
    scores_of_fits = _fits(table, fits, rows_of, about.seed, jobs, journal.parent)
    for done, (place, scores) in enumerate(scores_of_fits, start=kept + 1):
        group, method = fits[place]
        (kind, repeat, fold), family = group
        tell(f"{done} of {total}: {family}, {method}, {kind} {repeat}.{fold}")
        found[group][method] = scores
        if len(found[group]) == len(methods):
            # With several processes the methods of a group end in any order.
            in_order = {method: found[group][method] for method in methods}
            record = {"fit": _fit_of(group, methods, about), **_measured(table, group, rows_of, in_order)}
            need_writable(journal)
            add_records(journal, [record])
            finished[names[group]] = record
            del found[group]
    lines = [finished[names[group]] for group in groups]
    return [row for line in lines for row in line["each"]], [row for line in lines for row in line["pairs"]]


def _measured(
    table: CardFraud, group: Group, rows_of: dict[Key, Rows], found: dict[str, Scores]
) -> dict[str, list[Record]]:
    """The rows of a group: each method's metrics, and their differences to cross entropy."""
    (kind, repeat, fold), family = group
    y = table.y[rows_of[group[0]][1]]
    made = made_with(_versions(family))
    each: list[Record] = []
    pairs: list[Record] = []
    for method, scores in found.items():
        name = {"split": kind, "repeat": repeat, "fold": fold, "family": family, "method": method}
        no_net = dict.fromkeys(EPOCHS, "")
        each.append({**name, **judged(y, scores), "device": "CPU", "seeds": 1, **no_net, **made})
        pairs += [{**name, **row} for row in against(y, scores, found[REFERENCE])]
    return {"each": each, "pairs": pairs}


def _fits(
    table: CardFraud,
    fits: Sequence[tuple[Group, str]],
    rows_of: Mapping[Key, Rows],
    seed: int,
    jobs: int | None,
    folder: Path,
) -> Iterator[tuple[int, Scores]]:
    """Yield the position and the scores of each fit, in the order in which they end."""
    names = {key: "-".join(map(str, key)) for key in rows_of}
    arrays: dict[str, NDArray[Any]] = {"X": table.X, "y": table.y}
    for key in dict.fromkeys(key for (key, _), _ in fits):
        arrays[f"train-{names[key]}"], arrays[f"test-{names[key]}"] = rows_of[key]
    tasks = [SharedFit(family, method, names[key], fit_seed(seed, key)) for (key, family), method in fits]
    with LocalEngine(jobs or int(joblib.cpu_count()), folder) as engine, engine.share(arrays) as shared:
        yield from engine.run(run_shared, tasks, shared)


def _fit_of(group: Group, methods: Sequence[str], about: About) -> Record:
    """All that decides the results of a group."""
    (kind, repeat, fold), family = group
    return {
        "family": family,
        "split": kind,
        "repeat": repeat,
        "fold": fold,
        "seed": about.seed,
        "methods": list(methods),
        "settings": {method: list(losses) for method, losses in SETTINGS.items()},
        "table": about.table,
        "versions": dict(_versions(family)),
    }


def _versions(family: str) -> dict[str, str]:
    libraries = {"xgboost": ("xgboost", "xgboost-cpu"), "deep": ("torch", "safetensors")}
    return versions_of(["numpy", "scipy", "scikit-learn", *libraries.get(family, (family,))])


# ---- The command -------------------------------------------------------------------------------------------


def run(
    out: Path,
    seed: int = 0,
    tell: Callable[[str], None] = lambda message: None,
    data: Path | None = None,
    families: Sequence[str] | None = None,
    methods: Sequence[str] = METHODS,
    jobs: int | None = None,
    repeats: int = REPEATS,
    device: str = "auto",
    net_seeds: int | None = None,
    net_epochs: int | None = None,
    minutes: float | None = None,
    results_only: bool = False,
    figures: bool = True,
) -> list[Path]:
    """Fit every method on every split, write `fraud_splits.csv`, `fraud.csv`, `fraud.md` and a figure.

    `fraud_about.json` says of which table and seed they are; those of others are refused.

    With deep families also `fraud_rivals.csv` and `fraud_rivals.md`, TBL against each rival beside the
    paper's numbers.

    Args:
        out: Folder of the results.
        seed: Of splits and fits.
        tell: Called with each line of progress.
        data: The fraud table; with `results_only` it may be left out, else its results are checked to be
            those in the folder.
        families: Which run; `deep` is all nets, None those without nets. Others keep the results that the
            folder has.
        methods: Which; cross entropy always. Others keep the results that the folder has. Nets are trained
            with all losses at once, whichever are shown.
        jobs: So many methods run at once, each in one thread; None for as many as there are cores. Nets
            run alone.
        repeats: How often the stratified folds are drawn.
        device: Where nets are trained; "auto" is a GPU if there is one.
        net_seeds: Nets of each loss setting; None for the family's own number.
        net_epochs: The most that they are trained; None for the family's own number.
        minutes: Stop the training of nets before so many have passed; called again, it goes on.
        results_only: Fit and train nothing: show what the folder has, of nets what their journal has
            (`deep/fraud.jsonl.xz` in the folder).
        figures: Draw the figure; without it tables are written alone.
    """
    if data is None and not results_only:
        raise ValueError(
            "fraud needs the card-fraud table: python -m reproduction fraud --data creditcard.csv (published "
            "by the Machine Learning Group of ULB as 'Credit Card Fraud Detection')"
        )
    chosen = families_of(FAMILIES if families is None else families)
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    unknown = [method for method in methods if method not in METHODS]
    if unknown:
        raise ValueError(f"unknown method {unknown[0]!r}; known are {', '.join(METHODS)}")
    plain = [family for family in chosen if family in FAMILIES]
    nets = [family for family in chosen if family in DEEP_FAMILIES]
    if minutes is not None and plain:
        raise ValueError(f"minutes are of the nets, not of {plain[0]}: give --families deep, or no --minutes")
    # All that can be wrong with the nets is said before the fits of other families, which may take an hour.
    where = None if results_only else device
    _check_of_nets(nets, plain, net_seeds=net_seeds, net_epochs=net_epochs, device=where)
    table = None if data is None else read_card_fraud(data)
    about = read_about(out) if table is None else about_of(table, seed)
    keys = split_keys(repeats)
    at_hand = read_results(out / "fraud_splits.csv")
    check_same_run(out, at_hand, replace(about, seed=seed))
    shown = [REFERENCE, *(method for method in methods if method != REFERENCE)]
    if results_only:
        _check_at_hand(out, at_hand, plain, is_any_enough=families is None)
        plain = []
    replaced = {(family, method) for family in plain for method in shown}
    # The journal has all methods of a net, so that none is kept that was trained in another way.
    replaced |= {(family, method) for family in nets for method in METHODS}
    kept = [row for row in at_hand if (row["family"], row["method"]) not in replaced]
    _check_same_splits(kept, plain, keys)
    each: list[Record] = []
    pairs: list[Record] = []
    if table is not None and plain:
        # Before the fits, which are of no use where they cannot be written.
        out.mkdir(parents=True, exist_ok=True)
        fits = splits(table, seed, repeats), about, out / UNFINISHED_FITS
        each, pairs = fit_families(table, plain, shown, *fits, jobs, tell)
    rivals: dict[Path, str] = {}
    if nets:
        from .net_training import JOURNAL, cells_of_others, finished_cells, net_setups, train_cells
        from .report import net_rivals, net_rows

        journal, setups = out / "deep" / JOURNAL, net_setups(nets, net_seeds, net_epochs)
        left = 0
        if table is not None and not results_only:
            left = train_cells(
                table, journal, setups, seed=seed, repeats=repeats, device=device, minutes=minutes, tell=tell
            )
        found = finished_cells(journal, setups, keys, about, all_families=not left)
        if left and not found:
            raise UnfinishedError(
                f"out of time: no split of {' or '.join(nets)} was finished; --minutes must be enough for one"
            )
        if left:
            # Of what time did not reach at all, the results that were there before stay.
            nets = [net for net in nets if any(cell.setup.net == net for cell in found)]
            replaced = {(f, m) for f, m in replaced if f not in DEEP_FAMILIES or f in nets}
            kept = [row for row in at_hand if (row["family"], row["method"]) not in replaced]
        shown_before = {(row["family"], row["method"]) for row in at_hand}
        net_each, net_pairs = net_rows(
            found, {*shown_before, *((family, method) for family in nets for method in shown)}
        )
        each, pairs = each + net_each, pairs + net_pairs
        rivals = net_rivals(out, {**found, **cells_of_others(journal, nets, about)})
    all_each = in_order([*each, *kept])
    kept_summary = [
        row for row in read_results(out / "fraud.csv") if (row["family"], row["method"]) not in replaced
    ]
    summary = in_order([*summarised(each, pairs), *kept_summary])
    # First of which table they are: killed in between, no results stand there of which it is not known.
    source, *results = write_files(
        {
            out / ABOUT: about_text(about),
            out / "fraud_splits.csv": rows_text(all_each),
            out / "fraud.csv": rows_text(summary),
            out / "fraud.md": table_text(summary, about),
            **(draw(out / "fraud", summary) if figures else {}),
            **rivals,
        },
        # A figure that is not drawn now is of other results than the page.
        obsolete=[] if figures else [out / f"fraud{ending}" for ending in PICTURES],
    )
    if plain:
        (out / UNFINISHED_FITS).unlink(missing_ok=True)
    return [*results, source]


def _check_of_nets(
    nets: Sequence[str],
    plain: Sequence[str],
    *,
    net_seeds: int | None,
    net_epochs: int | None,
    device: str | None,
) -> None:
    """An error where nets cannot be trained as asked for, or where there are none of which it is asked."""
    if nets:
        from raresight.deep.parameters import device_for

        from .net_training import net_setups

        net_setups(nets, net_seeds, net_epochs)
        if device is not None:
            device_for(device)
        return
    given = {
        "--net-seeds": net_seeds,
        "--net-epochs": net_epochs,
        "--device": None if device == "auto" else device,
    }
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"{option} is of the nets, not of {plain[0]}: give --families deep, too")


def _check_at_hand(
    out: Path, at_hand: Sequence[Record], plain: Sequence[str], *, is_any_enough: bool
) -> None:
    """An error where there is nothing to show of a family that is not fitted."""
    families = {row["family"] for row in at_hand}
    absent = [family for family in plain if family not in families]
    if absent and not (is_any_enough and families):
        raise ValueError(f"{out} has no result of {absent[0]}: fit it, without --results-only")


def _check_same_splits(kept: Sequence[Record], families: Sequence[str], keys: Sequence[Key]) -> None:
    """An error where methods that are kept were tested on other splits than those fitted beside them."""
    found: dict[tuple[str, str], set[Key]] = {}
    for row in kept:
        if row["family"] in families:
            found.setdefault((row["family"], row["method"]), set()).add(_key(row))
    for (family, method), places in found.items():
        if places != set(keys):
            repeats = len({repeat for _, repeat, _ in places})
            raise ValueError(
                f"the results of {family} with {method} at hand are of {repeats} repetitions, which are not "
                "those of this run: give the same --repeats, all methods, or another folder by --out"
            )


def _key(name: Record) -> Key:
    return name["split"], name["repeat"], name["fold"]
