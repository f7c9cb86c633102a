"""The sizes at which a journal has trainings: that asked for, the named ones, and others that were trained.

A journal says how long its trainings are, not what the size was called that they were trained at: a size such
as "8,16" is found by the lengths of its search and of its results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    a search how long one was: their size has the same length for both. Of several searches that may have
    chosen the settings of results, which often are the same, the one that explains the most of them has.
    """
    found = list(dict.fromkeys((setup.size, *SIZES.values())))
    lengths = _lengths(experiment, setup, finished)
    searches = sorted(lengths.pop("search", ()), reverse=True)
    ends = sorted({length for own in lengths.values() for length in own}, reverse=True)
    seen = {key for size in found for key in _roles_at(experiment, setup, size, finished) if key in finished}
    for end in ends:
        for size, roles in _likely(experiment, setup, searches or [end], end, finished):
            new = {key: role for key, role in roles.items() if key in finished and key not in seen}
            is_result = any(role != "search" for role in new.values())
            if is_result and not _is_of_another(roles, seen, finished):
                found.append(size)
                seen.update(new)
    for search in searches:
        # Without a result it is not known of which of the lengths it is.
        size = Size(f"{search},{search}", search, search)
        alone = {key for key in _roles_at(experiment, setup, size, finished) if key in finished} - seen
        if alone:
            found.append(size)
            seen |= alone
    return found


def _likely(
    experiment: Experiment,
    setup: Setup,
    searches: Sequence[int],
    end: int,
    finished: Mapping[str, Record],
) -> list[tuple[Size, dict[str, str]]]:
    """Sizes with results of a length, and their trials; first the one whose search explains most of them."""
    sizes = [Size(f"{search},{end}", search, end) for search in searches]
    known = [(size, _roles_at(experiment, setup, size, finished)) for size in sizes]
    return sorted(
        known, key=lambda one: -sum(role == "final" and key in finished for key, role in one[1].items())
    )


def _is_of_another(roles: Mapping[str, str], seen: set[str], finished: Mapping[str, Record]) -> bool:
    """Whether a size has final trainings by chance: it is not complete, and others beside are not its own."""
    own = [key for key, role in roles.items() if role == "final"]
    done = [finished[key]["trial"] for key in own if key in finished]
    if not done or len(done) == len(own):
        return False
    alike = {_cell_and_length(trial) for trial in done}
    return any(
        _cell_and_length(record["trial"]) in alike
        for key, record in finished.items()
        if record["trial"]["role"] == "final" and key not in seen and key not in roles
    )


def _cell_and_length(trial: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(trial[name] for name in ("task", "rho", "epochs", "depth", "width"))


def _lengths(experiment: Experiment, setup: Setup, finished: Mapping[str, Record]) -> dict[str, set[int]]:
    """The lengths of the journal's trainings of this net by role, as a size has them."""
    found: dict[str, set[int]] = {}
    for record in finished.values():
        trial = record["trial"]
        if setup.has(trial):
            found.setdefault(trial["role"], set()).add(trial["epochs"])
    return {role: {experiment.unstretched(length) for length in own} for role, own in found.items()}


def _roles_at(
    experiment: Experiment, setup: Setup, size: Size, finished: Mapping[str, Record]
) -> dict[str, str]:
    """The roles of the trials at a size, as far as they are known, by their keys."""
    known = [
        trials
        for cell in experiment.cells
        for trials in trials_at(experiment, cell, setup, size, finished).values()
    ]
    return {trial.key: trial.role for trials in known for trial in trials}
