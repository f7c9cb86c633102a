"""What the journal of an experiment holds: sizes, complete cells, and the metrics of their trainings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..estimates import Estimate, estimate, paired, standard_errors_apart
from ..paper_numbers import PAPER_NAMES, PAPER_TRIALS, Key, Printed
from ..training_records import Record
from .methods import METHODS, Chosen, choose
from .metrics import is_better
from .settings import SIZES, NetTrial, Setup, Size
from .trials import Cell, NetExperiment, cell_trials, lacking_words

# ---- Sizes -------------------------------------------------------------------------------------------------


def trials_at(
    experiment: NetExperiment, cell: Cell, setup: Setup, size: Size, finished: Mapping[str, Record]
) -> dict[str, list[NetTrial]]:
    """The trials of a cell by role at another size of the setup, as `cell_trials` has them."""
    return cell_trials(experiment, cell, setup.at(size), finished)


def sizes_in(experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record]) -> list[Size]:
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
    experiment: NetExperiment,
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


def _lengths(experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record]) -> dict[str, set[int]]:
    """The lengths of the journal's trainings of this net by role, as a size has them."""
    found: dict[str, set[int]] = {}
    for record in finished.values():
        trial = record["trial"]
        if setup.has(trial):
            found.setdefault(trial["role"], set()).add(trial["epochs"])
    return {role: {experiment.unstretched(length) for length in own} for role, own in found.items()}


def _roles_at(
    experiment: NetExperiment, setup: Setup, size: Size, finished: Mapping[str, Record]
) -> dict[str, str]:
    """The roles of the trials at a size, as far as they are known, by their keys."""
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
    """The trainings of one cell at one length, all of them there.

    Attributes:
        experiment: Which.
        setup: Set, net and the size at which the cell is complete.
        cell: Which imbalance.
        role: "final" (settings chosen on validation rows), "paper", "beyond" or "ablation".
        records: Of each method.
    """

    experiment: NetExperiment
    setup: Setup
    cell: Cell
    role: str
    records: Mapping[str, Sequence[Record]]

    @property
    def epochs(self) -> int:
        return int(next(iter(self.records.values()))[0]["trial"]["epochs"])

    def setting(self, method: str) -> str:
        """Parameters and learning rate in words."""
        trial = NetTrial.from_dict(self.records[method][0]["trial"])
        return f"{trial.setting} lr={trial.lr:g}".strip()

    def rate(self, method: str) -> float:
        """The learning rate."""
        return float(self.records[method][0]["trial"]["lr"])

    def failed(self, method: str) -> int:
        """Trainings of a method that ended early because they were not finite."""
        return sum(record["frozen"] is not None for record in self.records[method])

    def values(self, method: str, metric: str, when: str) -> dict[tuple[int, int], float]:
        """The metric of each training by draw and seed, without those that have none."""
        found = {}
        for record in self.records[method]:
            value = value_at(record, metric, when, self.experiment.choose_by)
            if value is not None:
                found[record["trial"]["draw"], record["trial"]["seed"]] = value
        return found

    def mean(self, method: str, metric: str, when: str) -> Estimate:
        return estimate(self.values(method, metric, when))

    def difference(self, method: str, other: str, metric: str, when: str) -> Estimate:
        """The paired difference of two methods."""
        return paired(self.values(method, metric, when), self.values(other, metric, when))

    def printed(self, table: Table, method: str, metric: str) -> Printed | None:
        """The paper's number, if it has one."""
        name = PAPER_NAMES.get(method, "")
        return table.get((self.setup.dataset, self.cell.task, self.cell.rho, metric, name))


def apart(ours: Estimate, printed: Printed) -> float:
    """Standard errors between ours and the paper's."""
    return standard_errors_apart(ours, printed.mean, printed.deviation, PAPER_TRIALS)


def value_at(record: Record, metric: str, when: str, choose_by: str) -> float | None:
    """A metric on the test set at an epoch of `WHEN`; None where it is not defined.

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
    """How good a training was on validation rows in the epoch that they choose; None if never defined.

    >>> on_validation({"curve": {"validation_roc_auc": [0.8, None, 0.7]}}, "roc_auc")
    0.8
    """
    values = [value for value in record["curve"][f"validation_{choose_by}"] if value is not None]
    best: float | None = max(values, default=None)
    return best


def find_results(
    experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record], role: str
) -> list[Result]:
    """For each cell every length at which all trainings of the role are finished, the longest first.

    Of several sizes with that length the one of `setup` is shown, or else the first of `sizes_in`.
    """
    found: list[Result] = []
    sizes = sorted(sizes_in(experiment, setup, finished), key=lambda size: -size.final_epochs)
    for cell in experiment.cells:
        for size in sizes:
            trials = trials_at(experiment, cell, setup, size, finished).get(role, [])
            # Other sizes may come to the same length, as some experiments are stretched.
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
    """What the search chose by "validation" rows, or would have chosen by "test" rows."""
    return choose(search_records(result, finished), f"{rows}_{result.experiment.choose_by}")


def search_records(result: Result, finished: Mapping[str, Record]) -> list[Record]:
    """The search that the settings of a result were chosen from."""
    trials = cell_trials(result.experiment, result.cell, result.setup, finished)["search"]
    return [finished[trial.key] for trial in trials]


def missing_lines(
    experiment: NetExperiment,
    setup: Setup,
    finished: Mapping[str, Record],
    rhos: Sequence[float] | None = None,
) -> list[str]:
    """What the size of `setup` still lacks, a line for each cell and role; empty if nothing.

    Of these imbalances alone if they are given.
    """
    lines = []
    for cell in experiment.cells:
        if rhos is not None and cell.rho not in rhos:
            continue
        known = cell_trials(experiment, cell, setup, finished)
        for trials in known.values():
            if line := lacking_words(cell, trials, finished):
                lines.append(line)
        if "search" in known and "final" not in known:
            lines.append(f"{cell}: all final trainings, whose settings the search has to choose")
    return lines


def begun_lines(experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record]) -> list[str]:
    """What sizes lack that are begun: without it they are not shown.

    Final trainings of a named size are begun once the search has chosen their settings; of another size it is
    not known how long they were to be before there is one.
    """
    lines: dict[str, None] = {}
    seen: set[str] = set()
    for size in sizes_in(experiment, setup, finished):
        is_known = size == setup.size or size in SIZES.values()
        for cell in experiment.cells:
            for role, trials in trials_at(experiment, cell, setup, size, finished).items():
                own = {trial.key for trial in trials if trial.key in finished}
                # Sizes have trials in common: what is of one that is known is no beginning of another.
                has_begun = bool(own) or role == "final" if is_known else not own <= seen
                seen |= own
                if has_begun and (line := lacking_words(cell, trials, finished)):
                    lines[line] = None
    return list(lines)


def is_begun(experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record]) -> bool:
    """Whether any training of that very size is finished."""
    known = [cell_trials(experiment, cell, setup, finished).values() for cell in experiment.cells]
    return any(trial.key in finished for cell in known for trials in cell for trial in trials)
