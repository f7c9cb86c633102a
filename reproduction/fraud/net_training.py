"""Train the deep families of the fraud comparison, split by split, into a journal.

The journal has one entry for each finished family and split. Its `fit` says what was trained: family, split,
`setup`, sizes of the net, loss settings, seed and table. A family and split with an entry of equal `fit` is
not trained again. An entry also has:

* the metrics of each method, with the paired differences to cross entropy and to TBL;
* the chosen settings, and the partial AUC of the held-out rows after each epoch;
* seconds, device, versions and date.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.deep.net_plans import NET_SIZES
from raresight.deep.parameters import device_for

from ..training_records import add_records, device_name, key_text, need_writable, provenance, read_keyed
from .methods import (
    DEEP_FAMILIES,
    LOSS_METHODS,
    REFERENCE,
    SETTINGS,
    Record,
    Scores,
    evaluate_scores,
    families_of,
    losses_of,
    paired_differences,
)
from .net_stack import NetSetup, StackOutcome, fit_methods
from .table import (
    REPEATS,
    CardFraud,
    Key,
    ResultsOrigin,
    Rows,
    describe_table,
    fit_seed,
    read_card_fraud,
    split_keys,
    splits,
)

JOURNAL = "fraud.jsonl.xz"
# The paper's own method: its Table 3 compares every other with it.
RIVAL = "TBL"

# TabM is an ensemble of 8 nets already; a single TabNet depends strongly on its initial weights.
#
# TabNet has a larger learning rate than in the paper, because it takes fewer steps. The paper's batches of
# 128 rows make 41,000 steps in the 15 epochs of its warm-up; here are at most 5,000 steps of 1,024 rows. With
# cross entropy on the training rows of the first fold, the best partial AUC of held-out rows within 20 epochs
# was 0.962 at 1e-3, 0.969 at 5e-3 and 0.967 at 2e-2. (These rows are test rows of other folds, but the choice
# is the same for all losses.)
SETUPS = {
    "tabnet": NetSetup("tabnet", seeds=3, learning_rate=5e-3),
    "tabm": NetSetup("tabm", seeds=1),
}

# Seconds per split on an H200: per seed, and once. The sums were measured (46 with 3 TabNets per setting, 63
# with one TabM), their division is a guess. A time in the journal, of the same device, is used instead.
_PLANNED = {"tabnet": (9.0, 19.0), "tabm": (51.0, 12.0)}

NO_GPU = (
    "no GPU: the time cannot be estimated (one epoch of TabM took six minutes on the sample of 49,135 rows)"
)


@dataclass(frozen=True)
class FamilySplit:
    """One family on one split. Its nets are trained as one stack."""

    setup: NetSetup
    key: Key

    def __str__(self) -> str:
        return f"{self.setup.net}, {self.key[0]} {self.key[1]}.{self.key[2]}"


class _OutOfTimeError(Exception):
    """Raised by a callback to end a training."""


def net_setups(
    nets: Sequence[str] = DEEP_FAMILIES, seeds: int | None = None, epochs: int | None = None
) -> list[NetSetup]:
    """Return how each family is trained.

    `seeds` and `epochs` replace the family's own numbers if they are given.

    >>> [(setup.seeds, setup.epochs) for setup in net_setups(["tabm"], seeds=2)]
    [(2, 30)]
    """
    unknown = [net for net in nets if net not in SETUPS]
    if unknown:
        raise ValueError(f"unknown net {unknown[0]!r}; known are {', '.join(SETUPS)}")
    for name, value in (("seeds", seeds), ("epochs", epochs)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    own = [SETUPS[net] for net in nets]
    return [replace(setup, seeds=seeds or setup.seeds, epochs=epochs or setup.epochs) for setup in own]


def finished_cells(
    journal: Path,
    setups: Sequence[NetSetup],
    keys: Sequence[Key],
    origin: ResultsOrigin,
    *,
    all_families: bool = True,
) -> dict[FamilySplit, Record]:
    """Return the entries of the journal for these families and splits.

    Raises:
        ValueError: A family has no entry, and `all_families` is true.
    """
    found = _finished_among(_read_cells(journal), _cells(setups, keys), origin.table, origin.seed)
    absent = [setup for setup in setups if not any(cell.setup == setup for cell in found)]
    if absent and all_families:
        net, seeds, epochs = absent[0].net, absent[0].seeds, absent[0].epochs
        raise ValueError(
            f"{journal} has no result of {net} with {seeds} nets per setting and at most {epochs} epochs on "
            f"this table with seed {origin.seed}: train it, without --results-only"
        )
    return found


def _cells(setups: Sequence[NetSetup], keys: Sequence[Key]) -> list[FamilySplit]:
    """Return all cells, split by split, so that a run out of time has the same splits of all families."""
    return [FamilySplit(setup, key) for key in keys for setup in setups]


def other_family_cells(
    journal: Path, nets: Sequence[str], origin: ResultsOrigin
) -> dict[FamilySplit, Record]:
    """Return the entries of families that are not in `nets`, of the same table and seed.

    For a family that was trained with several setups, return those of `SETUPS` or else the latest.
    """
    lines = _read_cells(journal)
    others = [net for net in DEEP_FAMILIES if net not in nets]
    cells = [cell for row in lines.values() if (cell := _cell_of(row["fit"])) and cell.setup.net in others]
    found = _finished_among(lines, cells, origin.table, origin.seed)
    setups = {cell.setup.net: cell.setup for cell in found}
    setups |= {cell.setup.net: cell.setup for cell in found if cell.setup == SETUPS[cell.setup.net]}
    return {cell: record for cell, record in found.items() if cell.setup == setups[cell.setup.net]}


def cells_in(journal: Path, seed: int, table: CardFraud | None = None) -> set[FamilySplit]:
    """Return all cells in the journal with this seed; if a table is given, only those of this table."""
    described = None if table is None else dict(describe_table(table))
    fits = [
        fit
        for row in _read_cells(journal).values()
        if (fit := row["fit"]).get("seed") == seed and (described is None or fit.get("table") == described)
    ]
    return {cell for fit in fits if (cell := _cell_of(fit))}


def _cell_of(fit: Mapping[str, Any]) -> FamilySplit | None:
    """Return the cell of an entry, or None if its setup has fields that no longer exist."""
    try:
        return FamilySplit(NetSetup(**fit["setup"]), (fit["split"], fit["repeat"], fit["fold"]))
    except (KeyError, TypeError):
        return None


def _read_cells(journal: Path) -> dict[str, Record]:
    """Return the entries of the journal by what was trained. A torn last line is ignored."""
    return read_keyed(journal, _key)


def _key(row: Record) -> str:
    missing = [name for name in ("fit", "methods", "device", "seconds") if name not in row]
    if missing:
        raise ValueError(f"it has no {missing[0]!r}")
    return key_text(row["fit"])


def _finished_among(
    lines: Mapping[str, Record], cells: Sequence[FamilySplit], described: Mapping[str, Any], seed: int
) -> dict[FamilySplit, Record]:
    names = {cell: key_text(_fit_of(cell, described, seed)) for cell in cells}
    return {cell: lines[name] for cell, name in names.items() if name in lines}


def planned_seconds(setup: NetSetup, device: str, known: Sequence[Record] = ()) -> float | None:
    """Estimate the seconds of a split on a device, given by name; None if unknown.

    A time of the same setup and device in `known` comes first, then the measured times of an H200.

    >>> planned_seconds(SETUPS["tabm"], "NVIDIA H200"), planned_seconds(SETUPS["tabm"], "x86_64")
    (63.0, None)
    """
    took = [
        row["seconds"] for row in known if row["device"] == device and row["fit"]["setup"] == asdict(setup)
    ]
    if took:
        return float(max(took))
    if "H200" not in device and "H100" not in device:
        return None
    each, besides = _PLANNED[setup.net]
    return (setup.seeds * each + besides) * setup.epochs / SETUPS[setup.net].epochs


def train_cells(
    table: CardFraud,
    journal: Path,
    setups: Sequence[NetSetup],
    *,
    seed: int = 0,
    repeats: int,
    device: str = "auto",
    minutes: float | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> int:
    """Train the cells that are not in the journal, add each to it, and return how many are left.

    A cell starts only if its expected time is left: that of the journal or plan, else the longest cell of
    its family in this run. A cell that runs longer is dropped after the last epoch that ends in time. After
    either, no more cells of this family start, but those of faster families do.

    Args:
        table: The fraud table.
        journal: File to read and to append to.
        setups: The families, and how each is trained.
        seed: Seed of splits and trainings.
        repeats: How often the stratified folds are drawn.
        device: "auto" is a GPU if there is one.
        minutes: Time limit. Default: none.
        tell: Called with each line of progress.
    """
    begun = time.monotonic()
    end = float("inf") if minutes is None else begun + 60 * minutes
    where = device_for(device)
    rows_of = splits(table, seed, repeats)
    cells, described = _cells(setups, list(rows_of)), describe_table(table)
    done = _finished_among(_read_cells(journal), cells, described, seed)
    missing = [cell for cell in cells if cell not in done]
    known = list(done.values())
    longest: dict[NetSetup, float] = {}
    too_slow: set[NetSetup] = set()
    trained = 0
    for cell in missing:
        if cell.setup in too_slow:
            continue
        needed = planned_seconds(cell.setup, device_name(where), known)
        left = end - time.monotonic()
        if left <= (longest.get(cell.setup, 0.0) if needed is None else needed):
            tell(f"{cell}: not started, {max(left, 0.0):.0f} s left")
            too_slow.add(cell.setup)
            continue
        need_writable(journal)
        title = f"{len(known) + 1} of {len(cells)}: {cell}"
        tell(title if needed is not None or where != "cpu" else f"{title}; {NO_GPU}")
        try:
            record = _trained(cell, table, rows_of[cell.key], described, seed, where, end, title, tell)
        except _OutOfTimeError:
            tell(f"{title}: stopped, out of time")
            too_slow.add(cell.setup)
            continue
        add_records(journal, [record])
        trained += 1
        known.append(record)
        longest[cell.setup] = max(longest.get(cell.setup, 0.0), record["seconds"])
        tell(f"{title}: {record['nets']} nets, {record['epochs']} epochs, {record['seconds']:.0f} s")
        # The graph of a stack has reference cycles, which hold its memory until they are collected.
        gc.collect()
    return len(missing) - trained


def _trained(
    cell: FamilySplit,
    table: CardFraud,
    rows: Rows,
    described: Mapping[str, Any],
    seed: int,
    device: str,
    end: float,
    title: str,
    tell: Callable[[str], None],
) -> Record:
    train, test = rows
    X, y = table.X[train], table.y[train]
    begun = time.monotonic()

    def after_epoch(epoch: int) -> None:
        took = time.monotonic() - begun
        # Expect the next epoch to take the mean time so far; do not start one that would end too late.
        if time.monotonic() + (took / epoch if epoch < cell.setup.epochs else 0.0) > end:
            raise _OutOfTimeError
        tell(f"{title}: epoch {epoch} of {cell.setup.epochs}, {took:.0f} s")

    outcome = fit_methods(
        cell.setup,
        {method: losses_of(method, y) for method in LOSS_METHODS},
        X,
        y,
        table.X[test],
        seed=fit_seed(seed, cell.key),
        device=device,
        after_epoch=after_epoch,
    )
    seconds = time.monotonic() - begun
    return {
        "fit": _fit_of(cell, described, seed),
        "methods": _measured(outcome, table.y[test], seconds),
        "training_rows": len(train),
        "nets": outcome.nets,
        "epochs": outcome.epochs,
        "history": {loss: _numbers(metrics) for loss, metrics in outcome.history.items()},
        "failures": list(outcome.failures),
        "clip": cell.setup.recipe().clip,
        "precision": cell.setup.recipe().precision,
        "seconds": round(time.monotonic() - begun, 2),
        **provenance(device),
    }


def _measured(outcome: StackOutcome, y: NDArray[Any], seconds: float) -> dict[str, Record]:
    """Return the metrics of each method, its differences to the references, and how it was chosen."""
    settings = sum(len(found.validation_scores) for found in outcome.methods.values())
    scores = {
        # A method gets a share of the time of the stack, in proportion to its settings.
        method: Scores(
            found.score,
            found.probability,
            found.chosen,
            seconds * len(found.validation_scores) / settings,
        )
        for method, found in outcome.methods.items()
    }
    return {
        method: {
            **evaluate_scores(y, scores[method]),
            "validation_scores": {loss: round(m, 6) for loss, m in found.validation_scores.items()},
            "best_epochs": list(found.best_epochs),
            "differences": {
                other: list(paired_differences(y, scores[method], scores[other]))
                for other in (REFERENCE, RIVAL)
            },
        }
        for method, found in outcome.methods.items()
    }


def _fit_of(cell: FamilySplit, described: Mapping[str, Any], seed: int) -> Record:
    """Return all that determines the result of a cell except the device."""
    split, repeat, fold = cell.key
    return {
        "family": cell.setup.net,
        "split": split,
        "repeat": repeat,
        "fold": fold,
        "seed": seed,
        "setup": asdict(cell.setup),
        "sizes": dict(NET_SIZES[cell.setup.net]),
        "settings": {method: list(losses) for method, losses in SETTINGS.items()},
        "table": dict(described),
    }


def _numbers(metrics: NDArray[np.float64]) -> list[list[float | None]]:
    return [[None if np.isnan(one) else round(float(one), 5) for one in net] for net in metrics]


def train_only(
    out: Path,
    seed: int,
    tell: Callable[[str], None],
    *,
    data: Path,
    families: Sequence[str] = DEEP_FAMILIES,
    net_seeds: int | None = None,
    net_epochs: int | None = None,
    repeats: int = REPEATS,
    device: str = "auto",
    minutes: float | None = None,
) -> int:
    """Train the nets without writing tables; return how many splits are left."""
    setups = net_setups(families_of(families), net_seeds, net_epochs)
    left = train_cells(
        read_card_fraud(data),
        out / "deep" / JOURNAL,
        setups,
        seed=seed,
        repeats=repeats,
        device=device,
        minutes=minutes,
        tell=tell,
    )
    tell(f"{left} left" if left else "nothing left")
    return left


def plan_text(
    nets: Sequence[str] = DEEP_FAMILIES,
    seeds: int | None = None,
    repeats: int | None = None,
    epochs: int | None = None,
    journal: Path | None = None,
    seed: int = 0,
    data: Path | None = None,
) -> str:
    """Format the plan: number and size of stacks, how many are left, and the time of one H200 for these.

    Args:
        nets: Families, `deep` for all nets; others are fitted on the CPU and have no plan.
        seeds: Nets per loss setting. Default: the family's own number.
        repeats: How often the stratified folds are drawn. Default: 3.
        epochs: Upper limit of epochs. Default: the family's own number.
        journal: File whose entries with this seed count as trained.
        seed: Seed of splits and trainings.
        data: The table. If given, only entries of this table count.
    """
    from .table import read_card_fraud

    losses = len(LOSS_METHODS) - len(SETTINGS) + sum(len(settings) for settings in SETTINGS.values())
    drawn = REPEATS if repeats is None else repeats
    chosen = families_of(nets)
    plain = [family for family in chosen if family not in DEEP_FAMILIES]
    if plain:
        raise ValueError(f"only nets have a plan ({', '.join(DEEP_FAMILIES)}), not {plain[0]}")
    keys = split_keys(drawn)
    table = None if data is None else read_card_fraud(data)
    done = set() if journal is None else cells_in(journal, seed, table)
    lines, total = [], 0.0
    for setup in net_setups(chosen, seeds, epochs):
        seconds = planned_seconds(setup, "NVIDIA H200") or 0.0
        left = sum(FamilySplit(setup, key) not in done for key in keys)
        total += left * seconds / 60
        lines.append(
            f"{setup.net}: {len(keys)} splits, {left} left, {losses} losses x {setup.seeds} seeds in one "
            f"stack, at most {setup.epochs} epochs of batches of {setup.batch}: about {seconds:.0f} s a "
            f"split, {left * seconds / 60:.1f} min"
        )
    return "\n".join([*lines, f"all: {total:.1f} min of one H200, less where early stopping ends it"])
