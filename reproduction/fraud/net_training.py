"""Training the deep families of the fraud comparison, split by split, into a journal.

The journal has one entry for each finished family and split. Its `fit` says what was trained: family, split,
`setup`, sizes of the net, loss settings, seed and table. What has an entry that agrees in all of that is not
trained again. An entry also has the metrics of each method with the paired differences to cross entropy and
to TBL, the chosen settings, the held-out rows' partial AUC after each epoch, seconds, device, versions, date.
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
    against,
    families_of,
    judged,
    losses_of,
)
from .net_stack import NetSetup, StackOutcome, fit_methods
from .table import (
    REPEATS,
    About,
    CardFraud,
    Key,
    Rows,
    described,
    fit_seed,
    read_card_fraud,
    split_keys,
    splits,
)

JOURNAL = "fraud.jsonl.xz"
# The paper's own method, against which its Table 3 has every other.
RIVAL = "TBL"

# TabM is an ensemble of 8 nets already; a TabNet alone depends much on its first weights. The paper's batches
# of 128 make 41,000 steps of the 15 epochs in which its learning rate rises. Here are at most 5,000 steps of
# 1,024 rows, hence TabNet's larger learning rate: with cross entropy on the first fold's training rows, the
# best partial AUC of the held-out ones within 20 epochs was 0.962 at 1e-3, 0.969 at 5e-3 and 0.967 at 2e-2.
# (These rows are test rows of other folds; the choice is the same for all losses.)
SETUPS = {
    "tabnet": NetSetup("tabnet", seeds=3, learning_rate=5e-3),
    "tabm": NetSetup("tabm", seeds=1),
}

# Seconds that an H200 takes for one split, for each seed and besides: 46 with 3 TabNets, 63 with one TabM a
# setting were measured, how they divide is a guess. Where the journal has a time of the same device, that is
# taken.
_PLANNED = {"tabnet": (9.0, 19.0), "tabm": (51.0, 12.0)}

NO_GPU = (
    "no GPU: how long this takes is not known beforehand (one epoch of TabM took six minutes on the "
    "sample of 49,135 rows)"
)


@dataclass(frozen=True)
class FamilySplit:
    """One family on one split: what is trained as one stack."""

    setup: NetSetup
    key: Key

    def __str__(self) -> str:
        return f"{self.setup.net}, {self.key[0]} {self.key[1]}.{self.key[2]}"


class _OutOfTimeError(Exception):
    """Raised inside a training to end it."""


def net_setups(
    nets: Sequence[str] = DEEP_FAMILIES, seeds: int | None = None, epochs: int | None = None
) -> list[NetSetup]:
    """How each family is trained; seeds and epochs other than its own if given.

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
    about: About,
    *,
    all_families: bool = True,
) -> dict[FamilySplit, Record]:
    """The cells of these families and splits that the journal has.

    An error where a family has none, unless `all_families` is false.
    """
    found = _at_hand(_lines(journal), _cells(setups, keys), about.table, about.seed)
    absent = [setup for setup in setups if not any(cell.setup == setup for cell in found)]
    if absent and all_families:
        net, seeds, epochs = absent[0].net, absent[0].seeds, absent[0].epochs
        raise ValueError(
            f"{journal} has no result of {net} with {seeds} nets a setting and at most {epochs} epochs on "
            f"this table with seed {about.seed}: train it, without --results-only"
        )
    return found


def _cells(setups: Sequence[NetSetup], keys: Sequence[Key]) -> list[FamilySplit]:
    """All cells, split by split: stopped early, all families have the same splits."""
    return [FamilySplit(setup, key) for key in keys for setup in setups]


def cells_of_others(journal: Path, nets: Sequence[str], about: About) -> dict[FamilySplit, Record]:
    """The cells in the journal of the families that are not among `nets`, on this table with this seed.

    Of a family that was trained in several ways, those of `SETUPS` if there are any, else the latest.
    """
    lines = _lines(journal)
    others = [net for net in DEEP_FAMILIES if net not in nets]
    cells = [cell for row in lines.values() if (cell := _cell_of(row["fit"])) and cell.setup.net in others]
    found = _at_hand(lines, cells, about.table, about.seed)
    setups = {cell.setup.net: cell.setup for cell in found}
    setups |= {cell.setup.net: cell.setup for cell in found if cell.setup == SETUPS[cell.setup.net]}
    return {cell: record for cell, record in found.items() if cell.setup == setups[cell.setup.net]}


def cells_in(journal: Path, seed: int, table: CardFraud | None = None) -> set[FamilySplit]:
    """All cells that the journal has with this seed, of this table or, where none is given, of any."""
    about = None if table is None else dict(described(table))
    fits = [
        fit
        for row in _lines(journal).values()
        if (fit := row["fit"]).get("seed") == seed and (about is None or fit.get("table") == about)
    ]
    return {cell for fit in fits if (cell := _cell_of(fit))}


def _cell_of(fit: Mapping[str, Any]) -> FamilySplit | None:
    """The cell that a line is of; None where it was trained with settings that there no longer are."""
    try:
        return FamilySplit(NetSetup(**fit["setup"]), (fit["split"], fit["repeat"], fit["fold"]))
    except (KeyError, TypeError):
        return None


def _lines(journal: Path) -> dict[str, Record]:
    """The finished cells by what was trained, none where there is no file; a torn end is ignored."""
    return read_keyed(journal, _key)


def _key(row: Record) -> str:
    missing = [name for name in ("fit", "methods", "device", "seconds") if name not in row]
    if missing:
        raise ValueError(f"it has no {missing[0]!r}")
    return key_text(row["fit"])


def _at_hand(
    lines: Mapping[str, Record], cells: Sequence[FamilySplit], about: Mapping[str, Any], seed: int
) -> dict[FamilySplit, Record]:
    names = {cell: key_text(_fit_of(cell, about, seed)) for cell in cells}
    return {cell: lines[name] for cell, name in names.items() if name in lines}


def planned_seconds(setup: NetSetup, device: str, known: Sequence[Record] = ()) -> float | None:
    """How long a split takes on a device, by name: as in the journal, else as planned; None if unknown.

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
    """Train what the journal lacks, and append it split by split; returns how many cells are left.

    Args:
        table: The fraud table.
        journal: The file.
        setups: The families, and how each is trained.
        seed: Of splits and trainings.
        repeats: How often the stratified folds are drawn.
        device: "auto" is a GPU if there is one.
        minutes: No cell is begun that would not end before so many have passed; where it is not known how
            long a cell takes, as long as the family's longest of this run is expected. One that is under way
            is given up after the last epoch that ends in time. Then no more of its family are begun, but
            those of a faster one. None for no limit.
        tell: Called with each line of progress.
    """
    begun = time.monotonic()
    end = float("inf") if minutes is None else begun + 60 * minutes
    where = device_for(device)
    rows_of = splits(table, seed, repeats)
    cells, about = _cells(setups, list(rows_of)), described(table)
    done = _at_hand(_lines(journal), cells, about, seed)
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
            tell(f"{cell}: not begun, {max(left, 0.0):.0f} s are left")
            too_slow.add(cell.setup)
            continue
        need_writable(journal)
        title = f"{len(known) + 1} of {len(cells)}: {cell}"
        tell(title if needed is not None or where != "cpu" else f"{title}; {NO_GPU}")
        try:
            record = _trained(cell, table, rows_of[cell.key], about, seed, where, end, title, tell)
        except _OutOfTimeError:
            tell(f"{title}: given up, out of time")
            too_slow.add(cell.setup)
            continue
        add_records(journal, [record])
        trained += 1
        known.append(record)
        longest[cell.setup] = max(longest.get(cell.setup, 0.0), record["seconds"])
        tell(f"{title}: {record['nets']} nets, {record['epochs']} epochs, {record['seconds']:.0f} s")
        # The graph of a stack holds its memory until it is collected.
        gc.collect()
    return len(missing) - trained


def _trained(
    cell: FamilySplit,
    table: CardFraud,
    rows: Rows,
    about: Mapping[str, Any],
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
        # As long as those before: an epoch that would end too late is not begun.
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
        "fit": _fit_of(cell, about, seed),
        "methods": _measured(outcome, table.y[test], seconds),
        "training_rows": len(train),
        "nets": outcome.nets,
        "epochs": outcome.epochs,
        "history": {loss: _numbers(merits) for loss, merits in outcome.history.items()},
        "failures": list(outcome.failures),
        "clip": cell.setup.recipe().clip,
        "precision": cell.setup.recipe().precision,
        "seconds": round(time.monotonic() - begun, 2),
        **provenance(device),
    }


def _measured(outcome: StackOutcome, y: NDArray[Any], seconds: float) -> dict[str, Record]:
    """The metrics of each method, its differences to the references, and how it was chosen."""
    settings = sum(len(found.validation_scores) for found in outcome.methods.values())
    scores = {
        # The time of the stack, by settings.
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
            **judged(y, scores[method]),
            "validation_scores": {loss: round(m, 6) for loss, m in found.validation_scores.items()},
            "best_epochs": list(found.best_epochs),
            "differences": {
                other: list(against(y, scores[method], scores[other])) for other in (REFERENCE, RIVAL)
            },
        }
        for method, found in outcome.methods.items()
    }


def _fit_of(cell: FamilySplit, about: Mapping[str, Any], seed: int) -> Record:
    """All that decides the result of a cell but the device."""
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
        "table": dict(about),
    }


def _numbers(merits: NDArray[np.float64]) -> list[list[float | None]]:
    return [[None if np.isnan(one) else round(float(one), 5) for one in net] for net in merits]


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
    """Train the nets and write no table; returns how many splits are left."""
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
    """How many stacks there are, how large, how many are left, and how long one H200 takes for these.

    Args:
        nets: Families, `deep` for all nets; others are fitted on the CPU and have no plan.
        seeds: Nets of each loss setting; None for the family's own number.
        repeats: How often the stratified folds are drawn; None for the usual number.
        epochs: At most; None for the family's own number.
        journal: What it has with this seed is not left to train.
        seed: Of splits and trainings.
        data: The table, of which alone results count; None for any.
    """
    from .table import read_card_fraud

    losses = len(LOSS_METHODS) - len(SETTINGS) + sum(len(settings) for settings in SETTINGS.values())
    drawn = REPEATS if repeats is None else repeats
    chosen = families_of(nets)
    plain = [family for family in chosen if family not in DEEP_FAMILIES]
    if plain:
        raise ValueError(f"only the nets {', '.join(DEEP_FAMILIES)} of fraud have a plan, not {plain[0]}")
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
    return "\n".join(
        [*lines, f"all: {total:.1f} min of one H200, as planned; shorter where patience ends it"]
    )
