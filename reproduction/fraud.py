"""The paper's Table 3 on public data: losses against each other on the ULB card-fraud table.

The paper's two fraud tables are private and its model is TabNet. Here every loss runs in several families on
one public table: tested on four disjoint folds (each row once), drawn several times anew, and, apart from
that, on the last quarter in time. Parameters are chosen inside the training rows, never on test rows: by
cross-validation, or for the deep families (`deep` stands for TabNet and TabM) by rows that are held out.
Differences to cross entropy are paired: both methods score the same rows.

What is not asked for keeps its place: its earlier results are read from the folder. These must be of the same
table and seed. A run that is killed goes on from the families and splits that it had finished.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from raresight.common.atomic_files import write_files

from . import UnfinishedError
from .card_fraud import read_card_fraud
from .fraud_about import ABOUT, about_of, about_text, check_same_run, read_about
from .fraud_fits import UNFINISHED_FITS, fit_families
from .fraud_measures import REFERENCE, Record, summarised
from .fraud_methods import DEEP_FAMILIES, FAMILIES, METHODS, families_of
from .fraud_report import draw, in_order, read_results, table_text
from .fraud_splits import REPEATS, Key, split_keys, splits
from .output import rows_text

__all__ = ["run"]


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
) -> list[Path]:
    """Fit every method on every split, write `fraud_splits.csv`, `fraud.csv`, `fraud.md` and a figure.

    `fraud_about.json` says of which table and seed they are; those of others are refused.

    With deep families also `fraud_rivals.csv` and `fraud_rivals.md`, TBL against each rival beside the
    paper's numbers.

    Args:
        out: Folder of the results.
        seed: Of splits and fits.
        tell: Hears how far it is.
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
            (`deep/fraud.jsonl.gz` in the folder).
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
    at_hand = read_results(out / "fraud_splits.csv", {"versions": "", "date": ""})
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
        from .fraud_nets import JOURNAL, cells_of_others, finished_cells, net_setups, train_cells
        from .fraud_nets_report import net_rivals, net_rows

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
            **draw(out / "fraud", summary),
            **rivals,
        }
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
        from raresight.deep.settings import device_for

        from .fraud_nets import net_setups

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
