"""The sizes at which a journal has trainings: that asked for, the named ones, and others that were trained.

A journal says how long its trainings are, not what the size was called that they were trained at: a size such
as "8,16" is found by the lengths of its search and of its results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .experiments import Cell, Experiment, cell_trials
from .journal import Record
from .settings import SIZES, Setup, Size, Trial

__all__ = ["sizes_in", "trials_at"]


def trials_at(
    experiment: Experiment, cell: Cell, setup: Setup, size: Size, finished: Mapping[str, Record]
) -> dict[str, list[Trial]]:
    """The trials of a cell by role at another size of the setup, as `cell_trials` has them."""
    return cell_trials(experiment, cell, setup.at(size), finished)


def sizes_in(experiment: Experiment, setup: Setup, finished: Mapping[str, Record]) -> list[Size]:
    """The size of `setup`, the named ones, and those that have trainings which none before them has.

    Of searches that have led to no result yet it is not known how long that was to be, nor of results without
    a search how long one was: their size has the same length for both.
    """
    found = list(dict.fromkeys((setup.size, *SIZES.values())))
    lengths = _lengths(experiment, setup, finished)
    searches = sorted(lengths.pop("search", ()), reverse=True)
    ends = sorted({length for own in lengths.values() for length in own}, reverse=True)
    seen = {key for size in found for key in _finished_at(experiment, setup, size, finished)}
    pairs = [(search, end, False) for end in ends for search in searches or [end]]
    for search, end, is_search in [*pairs, *((search, search, True) for search in searches)]:
        size = Size(f"{search},{end}", search, end)
        new = {
            key: role
            for key, role in _finished_at(experiment, setup, size, finished).items()
            if key not in seen
        }
        # A search alone does not say which of the lengths it is of.
        if any(is_search or role != "search" for role in new.values()):
            found.append(size)
            seen.update(new)
    return found


def _lengths(experiment: Experiment, setup: Setup, finished: Mapping[str, Record]) -> dict[str, set[int]]:
    """The lengths of the journal's trainings of this net by role, as a size has them."""
    found: dict[str, set[int]] = {}
    for record in finished.values():
        trial = record["trial"]
        if setup.has(trial):
            found.setdefault(trial["role"], set()).add(trial["epochs"])
    return {role: {experiment.unstretched(length) for length in own} for role, own in found.items()}


def _finished_at(
    experiment: Experiment, setup: Setup, size: Size, finished: Mapping[str, Record]
) -> dict[str, str]:
    """The roles of the trials at a size that are finished, by their keys."""
    known: Sequence[list[Trial]] = [
        trials
        for cell in experiment.cells
        for trials in trials_at(experiment, cell, setup, size, finished).values()
    ]
    return {trial.key: trial.role for trials in known for trial in trials if trial.key in finished}
