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
    evaluate_scores,
    families_of,
    paired_differences,
    run_shared,
    summarise,
)
from .report import draw, in_order, made_with, read_results, table_text
from .table import (
    ORIGIN_FILE,
    REPEATS,
    CardFraud,
    Key,
    ResultsOrigin,
    Rows,
    check_same_origin,
    fit_seed,
    origin_of,
    origin_text,
    read_card_fraud,
    read_origin,
    split_keys,
    splits,
)

# ---- Families without nets ---------------------------------------------------------------------------------

UNFINISHED_FITS = "deep/unfinished_fraud_fits.jsonl.xz"
"""The journal in the folder of results. It is removed once the results are written."""

Group = tuple[Key, str]
"""A split and a family. Its methods are compared with each other, so they are recorded together."""


def fit_families(
    table: CardFraud,
    families: Sequence[str],
    methods: Sequence[str],
    rows_of: dict[Key, Rows],
    origin: ResultsOrigin,
    journal: Path,
    jobs: int | None,
    tell: Callable[[str], None],
) -> tuple[list[Record], list[Record]]:
    """Fit every method on every split; return their metrics and their differences to cross entropy.

    Args:
        table: The fraud table.
        families: Families without nets.
        methods: Methods, cross entropy first.
        rows_of: Training and test rows of each split.
        origin: The table and the seed.
        journal: File to which finished groups are added. Groups that it already has are not fitted.
        jobs: Fits at a time. Default: one per core.
        tell: Called with each line of progress.
    """
    groups = [(key, family) for key in rows_of for family in families]
    names = {group: key_text(_fit_of(group, methods, origin)) for group in groups}
    finished = read_keyed(journal, lambda row: key_text(row["fit"]))
    missing = [group for group in groups if names[group] not in finished]
    total, kept = len(groups) * len(methods), (len(groups) - len(missing)) * len(methods)
    if kept:
        tell(f"{kept} of {total} fits are in the journal of an earlier run")
    fits = [(group, method) for group in missing for method in methods]
    found: dict[Group, dict[str, Scores]] = {group: {} for group in missing}
    scores_of_fits = _fits(table, fits, rows_of, origin.seed, jobs, journal.parent)
    for done, (place, scores) in enumerate(scores_of_fits, start=kept + 1):
        group, method = fits[place]
        (kind, repeat, fold), family = group
        tell(f"{done} of {total}: {family}, {method}, {kind} {repeat}.{fold}")
        found[group][method] = scores
        if len(found[group]) == len(methods):
            # With several processes the methods of a group end in any order.
            in_order = {method: found[group][method] for method in methods}
            record = {"fit": _fit_of(group, methods, origin), **_measured(table, group, rows_of, in_order)}
            need_writable(journal)
            add_records(journal, [record])
            finished[names[group]] = record
            del found[group]
    lines = [finished[names[group]] for group in groups]
    return [row for line in lines for row in line["each"]], [row for line in lines for row in line["pairs"]]


def _measured(
    table: CardFraud, group: Group, rows_of: dict[Key, Rows], found: dict[str, Scores]
) -> dict[str, list[Record]]:
    """Return the rows of a group: the metrics of each method, and the differences to cross entropy."""
    (kind, repeat, fold), family = group
    y = table.y[rows_of[group[0]][1]]
    made = made_with(_versions(family))
    each: list[Record] = []
    pairs: list[Record] = []
    for method, scores in found.items():
        name = {"split": kind, "repeat": repeat, "fold": fold, "family": family, "method": method}
        no_net = dict.fromkeys(EPOCHS, "")
        each.append({**name, **evaluate_scores(y, scores), "device": "CPU", "seeds": 1, **no_net, **made})
        pairs += [{**name, **row} for row in paired_differences(y, scores, found[REFERENCE])]
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


def _fit_of(group: Group, methods: Sequence[str], origin: ResultsOrigin) -> Record:
    """Return all that determines the results of a group. Groups with equal values are not fitted again."""
    (kind, repeat, fold), family = group
    return {
        "family": family,
        "split": kind,
        "repeat": repeat,
        "fold": fold,
        "seed": origin.seed,
        "methods": list(methods),
        "settings": {method: list(losses) for method, losses in SETTINGS.items()},
        "table": origin.table,
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

    `fraud_about.json` names the table and the seed. Results of another table or seed are refused.

    With deep families, also write `fraud_rivals.csv` and `fraud_rivals.md`: TBL against each rival, beside
    the paper's numbers.

    Args:
        out: Folder of the results.
        seed: Seed of splits and fits.
        tell: Called with each line of progress.
        data: The fraud table. Optional with `results_only`; if given, the folder must be of this table.
        families: Families to fit; `deep` is all nets. Default: those without nets. The results of other
            families are kept.
        methods: Methods to show; cross entropy is always one of them. The results of other methods are kept.
            Nets are trained with all losses at once, whichever are shown.
        jobs: Methods fitted at a time, each in one thread. Default: one per core. Nets are trained alone.
        repeats: How often the stratified folds are drawn.
        device: Where nets are trained; "auto" is a GPU if there is one.
        net_seeds: Nets per loss setting. Default: the family's own number.
        net_epochs: Upper limit of the epochs of a net. Default: the family's own number.
        minutes: Stop the training of nets before this time. The same call resumes it.
        results_only: Fit nothing. Show the results in the folder, those of nets from their journal
            (`deep/fraud.jsonl.xz`).
        figures: Draw the figure, too. If false, write the tables only, and remove an earlier figure.
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
        raise ValueError(
            f"--minutes limits the training of nets, but {plain[0]} has none: give --families deep, or "
            "no --minutes"
        )
    # Check the options of nets before the fits of other families, which may take an hour.
    where = None if results_only else device
    _check_net_options(nets, plain, net_seeds=net_seeds, net_epochs=net_epochs, device=where)
    table = None if data is None else read_card_fraud(data)
    origin = read_origin(out) if table is None else origin_of(table, seed)
    keys = split_keys(repeats)
    existing = read_results(out / "fraud_splits.csv")
    check_same_origin(out, existing, replace(origin, seed=seed))
    shown = [REFERENCE, *(method for method in methods if method != REFERENCE)]
    if results_only:
        _check_existing(out, existing, plain, is_any_enough=families is None)
        plain = []
    replaced = {(family, method) for family in plain for method in shown}
    # Replace all methods of a net: the journal has all of them, and they were trained together.
    replaced |= {(family, method) for family in nets for method in METHODS}
    kept = [row for row in existing if (row["family"], row["method"]) not in replaced]
    _check_same_splits(kept, plain, keys)
    each: list[Record] = []
    pairs: list[Record] = []
    if table is not None and plain:
        # Before the fits: a folder that cannot be written should fail at once, not after an hour.
        out.mkdir(parents=True, exist_ok=True)
        fits = splits(table, seed, repeats), origin, out / UNFINISHED_FITS
        each, pairs = fit_families(table, plain, shown, *fits, jobs, tell)
    rivals: dict[Path, str] = {}
    if nets:
        from .net_training import JOURNAL, finished_cells, net_setups, other_family_cells, train_cells
        from .report import net_rivals, net_rows

        journal, setups = out / "deep" / JOURNAL, net_setups(nets, net_seeds, net_epochs)
        left = 0
        if table is not None and not results_only:
            left = train_cells(
                table, journal, setups, seed=seed, repeats=repeats, device=device, minutes=minutes, tell=tell
            )
        found = finished_cells(journal, setups, keys, origin, all_families=not left)
        if left and not found:
            raise UnfinishedError(
                f"out of time: no split of {' or '.join(nets)} was finished; --minutes must be enough for one"
            )
        if left:
            # A family for which there was no time keeps its earlier results.
            nets = [net for net in nets if any(cell.setup.net == net for cell in found)]
            replaced = {(f, m) for f, m in replaced if f not in DEEP_FAMILIES or f in nets}
            kept = [row for row in existing if (row["family"], row["method"]) not in replaced]
        shown_before = {(row["family"], row["method"]) for row in existing}
        net_each, net_pairs = net_rows(
            found, {*shown_before, *((family, method) for family in nets for method in shown)}
        )
        each, pairs = each + net_each, pairs + net_pairs
        rivals = net_rivals(out, {**found, **other_family_cells(journal, nets, origin)})
    all_each = in_order([*each, *kept])
    kept_summary = [
        row for row in read_results(out / "fraud.csv") if (row["family"], row["method"]) not in replaced
    ]
    summary = in_order([*summarise(each, pairs), *kept_summary])
    # Write the origin first, so that a crash cannot leave results of unknown origin.
    source, *results = write_files(
        {
            out / ORIGIN_FILE: origin_text(origin),
            out / "fraud_splits.csv": rows_text(all_each),
            out / "fraud.csv": rows_text(summary),
            out / "fraud.md": table_text(summary, origin),
            **(draw(out / "fraud", summary) if figures else {}),
            **rivals,
        },
        # An earlier figure would show other results than the page.
        obsolete=[] if figures else [out / f"fraud{ending}" for ending in PICTURES],
    )
    if plain:
        (out / UNFINISHED_FITS).unlink(missing_ok=True)
    return [*results, source]


def _check_net_options(
    nets: Sequence[str],
    plain: Sequence[str],
    *,
    net_seeds: int | None,
    net_epochs: int | None,
    device: str | None,
) -> None:
    """Raise an error for impossible options of nets, and for options of nets where no net is asked for."""
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
            raise ValueError(
                f"{option} applies to nets only, but {plain[0]} has none: give --families deep, too"
            )


def _check_existing(
    out: Path, existing: Sequence[Record], plain: Sequence[str], *, is_any_enough: bool
) -> None:
    """Raise an error if a family that is to be shown, not fitted, has no results."""
    families = {row["family"] for row in existing}
    absent = [family for family in plain if family not in families]
    if absent and not (is_any_enough and families):
        raise ValueError(f"{out} has no result of {absent[0]}: fit it, without --results-only")


def _check_same_splits(kept: Sequence[Record], families: Sequence[str], keys: Sequence[Key]) -> None:
    """Raise an error if kept methods were tested on other splits than those fitted now."""
    found: dict[tuple[str, str], set[Key]] = {}
    for row in kept:
        if row["family"] in families:
            found.setdefault((row["family"], row["method"]), set()).add(_key(row))
    for (family, method), places in found.items():
        if places != set(keys):
            repeats = len({repeat for _, repeat, _ in places})
            raise ValueError(
                f"the existing results of {family} with {method} have {repeats} repetitions, unlike this "
                "run: give the same --repeats, all methods, or another folder by --out"
            )


def _key(name: Record) -> Key:
    return name["split"], name["repeat"], name["fold"]
