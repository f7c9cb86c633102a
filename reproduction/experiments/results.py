"""Find in the journal of an experiment its sizes, its complete cells, and the metrics of their trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..estimates import Estimate, estimate, paired, standard_errors_apart
from ..paper_numbers import PAPER_NAMES, PAPER_TRIALS, Key, Printed
from ..training_records import Record
from .balanced_metrics import is_better
from .methods import METHODS, Chosen, choose
from .net_trial import SIZES, NetTrial, Setup, Size
from .trials import Cell, NetExperiment, cell_trials, format_missing

# ---- Sizes -------------------------------------------------------------------------------------------------


def trials_at(
    experiment: NetExperiment, cell: Cell, setup: Setup, size: Size, finished: Mapping[str, Record]
) -> dict[str, list[NetTrial]]:
    """Return the trials of a cell by role at another size of the setup; see `cell_trials`."""
    return cell_trials(experiment, cell, setup.at(size), finished)


def sizes_in(experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record]) -> list[Size]:
    """List the sizes that have trainings: that of `setup`, the named ones, and others found in the journal.

    A journal does not name the size of a training. Other sizes are inferred from the lengths of searches and
    results:

    * A search without results, and results without a search, get a size with this length for both.
    * If several searches could have chosen the settings of results, which are often equal, the search counts
      that explains most of the results.
    """
    found = list(dict.fromkeys((setup.size, *SIZES.values())))
    lengths = _lengths(experiment, setup, finished)
    searches = sorted(lengths.pop("search", ()), reverse=True)
    ends = sorted({length for own in lengths.values() for length in own}, reverse=True)
    seen = {key for size in found for key in _roles_at(experiment, setup, size, finished) if key in finished}
    for end in ends:
        for size, roles in _possible_sizes(experiment, setup, searches or [end], end, finished):
            new = {key: role for key, role in roles.items() if key in finished and key not in seen}
            is_result = any(role != "search" for role in new.values())
            if is_result and not _belongs_to_another_size(roles, seen, finished):
                found.append(size)
                seen.update(new)
    for search in searches:
        # The length of the results that this search was meant for is unknown.
        size = Size(f"{search},{search}", search, search)
        alone = {key for key in _roles_at(experiment, setup, size, finished) if key in finished} - seen
        if alone:
            found.append(size)
            seen |= alone
    return found


def _possible_sizes(
    experiment: NetExperiment,
    setup: Setup,
    searches: Sequence[int],
    end: int,
    finished: Mapping[str, Record],
) -> list[tuple[Size, dict[str, str]]]:
    """Return sizes with results of a length, and their trials; first the one that explains most results."""
    sizes = [Size(f"{search},{end}", search, end) for search in searches]
    known = [(size, _roles_at(experiment, setup, size, finished)) for size in sizes]
    return sorted(
        known, key=lambda one: -sum(role == "final" and key in finished for key, role in one[1].items())
    )


def _belongs_to_another_size(
    roles: Mapping[str, str], seen: set[str], finished: Mapping[str, Record]
) -> bool:
    """Return whether the final trainings of a size are probably those of another size.

    They are if this size is incomplete, and the same cell and length has final trainings that are not part
    of it.
    """
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


def _lengths(experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record]) -> dict[str, set[int]]:
    """Return the lengths of the trainings of this net by role, divided by the stretch of the experiment."""
    found: dict[str, set[int]] = {}
    for record in finished.values():
        trial = record["trial"]
        if setup.has(trial):
            found.setdefault(trial["role"], set()).add(trial["epochs"])
    return {role: {experiment.unstretched(length) for length in own} for role, own in found.items()}


def _roles_at(
    experiment: NetExperiment, setup: Setup, size: Size, finished: Mapping[str, Record]
) -> dict[str, str]:
    """Return the roles of all known trials at a size, by their keys."""
    known = [
        trials
        for cell in experiment.cells
        for trials in trials_at(experiment, cell, setup, size, finished).values()
    ]
    return {trial.key: trial.role for trials in known for trial in trials}


# ---- Results -----------------------------------------------------------------------------------------------

WHEN = {
    "last": "last epoch",
    "validation": "epoch chosen on validation rows",
    "test": "best epoch on the test set",
    "best accuracy": "epoch with the best accuracy on the test set",
}


Table = Mapping[Key, Printed]
"""Numbers of the paper."""


@dataclass(frozen=True)
class Result:
    """The complete trainings of one cell at one length.

    Attributes:
        experiment: The experiment.
        setup: Set, net and the size at which the cell is complete.
        cell: The task and its imbalance.
        role: "final" (settings chosen on validation rows), "paper", "beyond" or "ablation".
        records: Records by method.
    """

    experiment: NetExperiment
    setup: Setup
    cell: Cell
    role: str
    records: Mapping[str, Sequence[Record]]

    @property
    def epochs(self) -> int:
        """Length of the trainings."""
        return int(next(iter(self.records.values()))[0]["trial"]["epochs"])

    def setting(self, method: str) -> str:
        """Format the parameters and the learning rate of a method."""
        trial = NetTrial.from_dict(self.records[method][0]["trial"])
        return f"{trial.setting} lr={trial.lr:g}".strip()

    def rate(self, method: str) -> float:
        """Return the learning rate of a method."""
        return float(self.records[method][0]["trial"]["lr"])

    def failed(self, method: str) -> int:
        """Count the trainings of a method that ended early because they were not finite."""
        return sum(record["frozen"] is not None for record in self.records[method])

    def values(self, method: str, metric: str, when: str) -> dict[tuple[int, int], float]:
        """Return the metric of each training by draw and seed, without undefined ones."""
        found = {}
        for record in self.records[method]:
            value = value_at(record, metric, when, self.experiment.choose_by)
            if value is not None:
                found[record["trial"]["draw"], record["trial"]["seed"]] = value
        return found

    def mean(self, method: str, metric: str, when: str) -> Estimate:
        """Estimate the mean over trainings."""
        return estimate(self.values(method, metric, when))

    def difference(self, method: str, other: str, metric: str, when: str) -> Estimate:
        """Estimate the paired difference of two methods."""
        return paired(self.values(method, metric, when), self.values(other, metric, when))

    def printed(self, table: Table, method: str, metric: str) -> Printed | None:
        """Return the paper's number, or None if it prints none."""
        name = PAPER_NAMES.get(method, "")
        return table.get((self.setup.dataset, self.cell.task, self.cell.rho, metric, name))


def distance_to_printed(ours: Estimate, printed: Printed) -> float:
    """Return the difference of our mean to the paper's, in standard errors."""
    return standard_errors_apart(ours, printed.mean, printed.deviation, PAPER_TRIALS)


def value_at(record: Record, metric: str, when: str, choose_by: str) -> float | None:
    """Return a metric on the test set at an epoch of `WHEN`; None if undefined.

    Example:
        >>> curve = {"validation_roc_auc": [0.8, 0.7], "test_roc_auc": [0.6, 0.9]}
        >>> [value_at({"curve": curve}, "roc_auc", when, "roc_auc") for when in ("last", "validation")]
        [0.9, 0.6]
    """
    curve = record["curve"]
    values = curve[f"test_{metric}"]
    if when == "last":
        last: float | None = values[-1]
        return last
    if when == "validation":
        by, name = curve.get(f"validation_{choose_by}"), choose_by
    elif when == "test":
        by, name = values, metric
    else:
        by, name = curve["test_accuracy"], "accuracy"
    if by is None:
        return None
    best: int | None = None
    for place, value in enumerate(by):
        if value is not None and (best is None or is_better(name, value, by[best])):
            best = place
    found: float | None = None if best is None else values[best]
    return found


def on_validation(record: Record, choose_by: str) -> float | None:
    """Return the best value on validation rows over the epochs of a training; None if never defined.

    >>> on_validation({"curve": {"validation_roc_auc": [0.8, None, 0.7]}}, "roc_auc")
    0.8
    """
    values = [value for value in record["curve"][f"validation_{choose_by}"] if value is not None]
    best: float | None = max(values, default=None)
    return best


def find_results(
    experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record], role: str
) -> list[Result]:
    """Find for each cell every length at which all trainings of a role are finished, the longest first.

    If several sizes have that length, take that of `setup` or else the first of `sizes_in`.
    """
    found: list[Result] = []
    sizes = sorted(sizes_in(experiment, setup, finished), key=lambda size: -size.final_epochs)
    for cell in experiment.cells:
        for size in sizes:
            trials = trials_at(experiment, cell, setup, size, finished).get(role, [])
            # Two sizes can have equal lengths after `stretch`, which rounds and ends at the paper's length.
            if any(other.cell == cell and other.epochs == trials[0].epochs for other in found if trials):
                continue
            if trials and all(trial.key in finished for trial in trials):
                methods = [method for method in METHODS if any(trial.method == method for trial in trials)]
                records = {
                    method: [finished[trial.key] for trial in trials if trial.method == method]
                    for method in methods
                }
                found.append(Result(experiment, setup.at(size), cell, role, records))
    return found


def chosen_settings(result: Result, finished: Mapping[str, Record], rows: str) -> dict[str, Chosen]:
    """Return the settings that the search chose on "validation" rows, or would have chosen on "test" rows."""
    return choose(search_records(result, finished), f"{rows}_{result.experiment.choose_by}")


def search_records(result: Result, finished: Mapping[str, Record]) -> list[Record]:
    """Return the records of the search that chose the settings of a result."""
    trials = cell_trials(result.experiment, result.cell, result.setup, finished)["search"]
    return [finished[trial.key] for trial in trials]


def missing_lines(
    experiment: NetExperiment,
    setup: Setup,
    finished: Mapping[str, Record],
    rhos: Sequence[float] | None = None,
) -> list[str]:
    """List what is missing at the size of `setup`, a line for each cell and role.

    If `rhos` is given, only these imbalances count.
    """
    lines = []
    for cell in experiment.cells:
        if rhos is not None and cell.rho not in rhos:
            continue
        known = cell_trials(experiment, cell, setup, finished)
        for trials in known.values():
            if line := format_missing(cell, trials, finished):
                lines.append(line)
        if "search" in known and "final" not in known:
            lines.append(f"{cell}: all final trainings, whose settings the search has to choose")
    return lines


def incomplete_lines(experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record]) -> list[str]:
    """List what is missing at sizes with some trainings: cells are shown only when complete.

    At a named size, final trainings count as started once the search has chosen their settings. At other
    sizes their length is unknown until there is one.
    """
    lines: dict[str, None] = {}
    seen: set[str] = set()
    for size in sizes_in(experiment, setup, finished):
        is_known = size == setup.size or size in SIZES.values()
        for cell in experiment.cells:
            for role, trials in trials_at(experiment, cell, setup, size, finished).items():
                own = {trial.key for trial in trials if trial.key in finished}
                # Sizes have trials in common: those of a known size do not count as the start of another.
                has_started = bool(own) or role == "final" if is_known else not own <= seen
                seen |= own
                if has_started and (line := format_missing(cell, trials, finished)):
                    lines[line] = None
    return list(lines)


def is_started(experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record]) -> bool:
    """Return whether any training of the size of `setup` is finished."""
    known = [cell_trials(experiment, cell, setup, finished).values() for cell in experiment.cells]
    return any(trial.key in finished for cell in known for trials in cell for trial in trials)
