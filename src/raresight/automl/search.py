"""Search in rounds of candidates, evaluated fold by fold, in a folder that survives any kill.

Optuna proposes candidates and prunes hopeless ones, an engine runs the fits, and the journal keeps every
result at once. A round holds `ROUND` candidates whatever the number of jobs. They are proposed together from
the rounds before, and compared with those only. So the outcome for a seed and a number of trials is the same
on one core and on many, and after any number of interruptions.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.atomic_files import hold_folder
from ..common.journal import DamagedFileWarning
from ..engines import Interrupts, LocalEngine, SharedArrays
from ..model.families import FAMILIES, Candidate
from .fold_evaluation import FoldEvaluator, FoldStep, arrays_of
from .oof_predictions import is_whole, join_parts, part_path, remove_parts, score_folder, trial_path
from .records import FoldResult, Limits, Progress, SearchResult, SearchTask, StoppedBy, Trial, best_of
from .run_identity import check_identity, identity
from .sampling import need_optuna, propose, quiet_optuna, should_prune, study_of
from .space import CROSS_ENTROPY, Space, planned_trials
from .trial_journal import TrialJournal

if TYPE_CHECKING:
    from optuna import Study

__all__ = ["Limits", "Progress", "SearchResult", "SearchTask", "Trial", "search"]

# A smaller round would leave cores idle, a larger one would learn later from its results. The number is
# fixed: if it followed the number of cores, so would the outcome.
ROUND = 8

Listener = Callable[[Progress], None]


def search(
    task: SearchTask,
    space: Space,
    limits: Limits,
    *,
    folder: Path,
    engine: LocalEngine | None = None,
    listener: Listener | None = None,
) -> SearchResult:
    """Search for the candidate with the largest cross-validated partial AUC.

    Called again with the same folder, it continues where it was stopped or killed; `limits` may then be
    larger. Ctrl-C ends it with the best candidate so far, a second Ctrl-C kills it.

    Args:
        task: Rows, folds and aim.
        space: Families and losses to choose from (`make_space`).
        limits: Trials or seconds. Cross entropy with defaults is always evaluated.
        folder: Folder of the search: `trials.jsonl`, `search.json`, `scores/`.
        engine: Engine that runs the fits. Default: this process.
        listener: Function called with a `Progress` after every result.

    Returns:
        The trials and the best of them.

    >>> import numpy as np, tempfile
    >>> from raresight.tables.splits import make_folds
    >>> from raresight.automl.fold_evaluation import Aim
    >>> from raresight.automl.records import Limits, SearchTask
    >>> from raresight.automl.space import make_space
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = (rng.random(2000) < 0.03 * np.exp(X[:, 0])).astype(np.int8)
    >>> aim = Aim(max_fpr=0.1, fpr=0.05, seed=0)
    >>> task = SearchTask(X, y, (), (), make_folds(y, 3, seed=0), None, aim)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = search(task, make_space("linear", "focal"), Limits(trials=2), folder=Path(folder))
    >>> [trial.candidate.text for trial in found.trials]
    ['linear, crossentropy', 'linear, focal(gamma=2.0)']
    """
    need_optuna()
    folder = Path(folder)
    with hold_folder(folder, "searching"), quiet_optuna(), Interrupts() as interrupts:
        check_identity(folder, identity(task, space))
        journal = TrialJournal(folder)
        _tidy(folder, journal)
        engine = engine or LocalEngine(1, folder)
        with engine.share(arrays_of(task)) as shared:
            fits = _Fits(engine, task, folder, shared, interrupts)
            run = _SearchRun(task, space, limits, folder, journal, fits, listener)
            try:
                stopped_by = run.all_rounds(interrupts)
            except KeyboardInterrupt:
                stopped_by = "interrupted"
            finally:
                journal.close(run.seconds)
        return run.found(stopped_by)


def _tidy(folder: Path, journal: TrialJournal) -> None:
    """Remove files that a killed process left unfinished, and see which scores must be made again."""
    scores = score_folder(folder)
    scores.mkdir(exist_ok=True)
    for path in scores.glob(".*"):
        path.unlink(missing_ok=True)
    for trial in journal.trials:
        if trial.state == "running":
            for fold, result in trial.folds.items():
                part = part_path(folder, trial.number, fold)
                if result.message or is_whole(part, result.scores_sha256):
                    continue
                if part.exists():  # a missing one is what a kill or a power cut leaves
                    _warn(part, "changed or cut", f"fold {fold} of candidate {trial.number}")
                journal.forget(trial.number, fold)
            continue
        remove_parts(folder, trial.number)
        path = trial_path(folder, trial.number)
        if trial.state == "complete" and not is_whole(path, trial.scores_sha256):
            _warn(path, "changed or cut" if path.exists() else "removed", f"candidate {trial.number}")
            journal.repeat(trial.number)


def _warn(path: Path, what: str, work: str) -> None:
    warnings.warn(f"{path} was {what} since it was written: {work} is evaluated again", DamagedFileWarning, 4)


@dataclass(frozen=True)
class Round:
    """Trial numbers that are proposed together, and the folds that are evaluated together.

    Planned candidates are never stopped early, so all their folds are one stage; others are compared after
    each fold.
    """

    start: int
    stop: int
    stages: tuple[tuple[int, ...], ...]


def rounds(planned: Sequence[Trial], n_folds: int) -> Iterator[Round]:
    """Yield all rounds: cross entropy, the other losses, the grids of losses, then the search's."""
    at_once = (tuple(range(n_folds)),)
    baselines = sum(trial.candidate.loss == CROSS_ENTROPY for trial in planned)
    defaults = sum(trial.origin == "default" for trial in planned)
    # Cross entropy has a round of its own, the first one, which no time limit ends. A grid is one round
    # whatever its size: its linear candidates share their passes over the rows.
    ends = [baselines, *range(baselines + ROUND, defaults, ROUND), defaults, len(planned)]
    start = 0
    for stop in ends:
        if stop > start:
            yield Round(start, stop, at_once)
            start = stop
    while True:
        yield Round(start, start + ROUND, tuple((fold,) for fold in range(n_folds)))
        start += ROUND


class _Fits:
    """The fits of a task on an engine."""

    def __init__(
        self,
        engine: LocalEngine,
        task: SearchTask,
        folder: Path,
        shared: SharedArrays,
        interrupts: Interrupts,
    ) -> None:
        self.jobs = engine.jobs
        categorical = tuple(int(column) for column in task.categorical)
        n_categories = tuple(int(count) for count in task.n_categories)
        evaluator = FoldEvaluator(task.aim, categorical, n_categories, folder)
        self._run = partial(engine.run, evaluator, shared=shared, interrupts=interrupts)

    def of(self, steps: Sequence[FoldStep]) -> Iterator[tuple[FoldStep, list[FoldResult]]]:
        """Yield the results of steps when they are ready; KeyboardInterrupt after a Ctrl-C."""
        for index, results in self._run(tasks=steps):
            yield steps[index], results


class _SearchRun:
    """A search in progress."""

    def __init__(
        self,
        task: SearchTask,
        space: Space,
        limits: Limits,
        folder: Path,
        journal: TrialJournal,
        fits: _Fits,
        listener: Listener | None,
    ) -> None:
        self._task, self._space, self._limits, self._folder = task, space, limits, folder
        self._journal, self._fits, self._listener = journal, fits, listener
        self._planned = planned_trials(space, task.class_counts)
        self._clock = SearchClock(journal.seconds)
        self._spent_before = journal.seconds
        self._done_before = len(self._trials())
        self._rates = Rates()
        for trial in journal.trials:
            for result in trial.folds.values():
                self._rates.note(trial.candidate, result.seconds)

    @property
    def seconds(self) -> float:
        """Time spent, that of earlier runs included."""
        return self._clock.seconds

    def all_rounds(self, interrupts: Interrupts) -> StoppedBy:
        """Evaluate round after round up to the limits."""
        for turn in rounds(self._planned, len(self._task.folds)):
            if self._limits.trials is not None and turn.start >= self._limits.trials:
                return "trials"
            if turn.start == len(self._planned) and best_of(self._trials()) is None:
                return "trials"  # nothing works: found() says why
            if not self._is_over(turn):
                if turn.start and self._seconds_left() <= 0 and not self._repeats(turn):
                    return "budget"
                if not self._evaluate(turn):
                    return "budget"
            with interrupts.raised_here():
                pass
        raise AssertionError("rounds never end")

    def found(self, stopped_by: StoppedBy) -> SearchResult:
        """Return the result; KeyboardInterrupt or RuntimeError if no trial is complete."""
        trials = self._trials()
        best = best_of(trials)
        if best is None and stopped_by == "interrupted":
            raise KeyboardInterrupt
        if best is None:
            reasons = [trial.message for trial in trials if trial.message]
            raise RuntimeError(f"no candidate could be evaluated; the first failed so: {reasons[0]}")
        return SearchResult(trials, best, stopped_by, self._clock.seconds, self._folder)

    def _is_over(self, turn: Round) -> bool:
        held = self._journal.trials
        stop = self._within_limit(turn.stop)
        return len(held) >= stop and all(trial.is_over for trial in held[turn.start : stop])

    def _repeats(self, turn: Round) -> bool:
        """Return whether a trial of the round lost its scores: time was spent on it before."""
        return any(number in self._journal.repeated for number in range(turn.start, turn.stop))

    def _within_limit(self, number: int) -> int:
        return number if self._limits.trials is None else min(number, self._limits.trials)

    def _evaluate(self, turn: Round) -> bool:
        """Propose a round and evaluate it; return False if time ran out before its end."""
        earlier = study_of(self._journal.trials[: turn.start], self._space)
        if len(self._journal.trials) == turn.start:
            self._journal.propose(self._proposed(turn, earlier))
        in_time = True
        for stage in turn.stages:
            steps = self._steps(turn, stage)
            chosen = self._in_time(steps, turn, len(self._task.folds) - stage[0], len(stage))
            in_time &= len(chosen) == len(steps)
            waiting = list(chosen)
            self._tell(waiting)
            for step, results in self._fits.of(chosen):
                for number, candidate, result in zip(step.numbers, step.candidates, results):
                    self._journal.record(number, step.fold, result, self._clock.seconds)
                    self._rates.note(candidate, result.seconds)
                waiting.remove(step)
                # At once, and not at the end of the stage, so that a kill costs one step at most.
                self._settle(step.numbers, earlier, stage)
                self._tell(waiting)
            self._settle(range(turn.start, turn.stop), earlier, stage)
        self._tell([])
        return in_time

    def _proposed(self, turn: Round, earlier: Study) -> list[Trial]:
        """Return the trials of a round: planned ones, or after them those of the sampler."""
        planned = self._planned[turn.start : turn.stop]
        numbers = range(turn.start, turn.stop)
        counts, seed = self._task.class_counts, self._task.aim.seed
        return planned or propose(earlier, self._space, counts, numbers, len(self._planned), seed)

    def _steps(self, turn: Round, stage: tuple[int, ...]) -> list[FoldStep]:
        """Return the steps of a stage that are still to do.

        Candidates of a round are fitted together if their family shares passes over the rows. Fits
        found together may differ in the last digits from fits found alone. So a group stays whole, even
        if some of its trials have ended or are beyond the limit.
        """
        members = [trial for trial in self._journal.trials[turn.start : turn.stop] if _reaches(trial, stage)]
        within = self._within_limit(turn.stop)
        together: dict[str, list[Trial]] = {}
        alone: list[list[Trial]] = []
        for trial in members:
            family = FAMILIES[trial.candidate.family]
            if family.fits_together:
                together.setdefault(family.name, []).append(trial)
            elif trial.number < within:
                alone.append([trial])
        groups = [*(group for group in together.values() if group[0].number < within), *alone]
        return [
            FoldStep(fold, tuple(t.number for t in group), tuple(t.candidate for t in group))
            for group in groups
            for fold in stage
            if any(not trial.is_over and fold not in trial.folds for trial in group)
        ]

    def _in_time(
        self, steps: list[FoldStep], turn: Round, folds_left: int, folds_here: int
    ) -> list[FoldStep]:
        """Return the steps of the first candidates whose remaining folds fit into the time left."""
        if self._limits.seconds is None or turn.start == 0 or self._repeats(turn):
            return steps
        # All folds of a candidate count, not this stage alone: a trial that time leaves without its last
        # folds is worth nothing.
        costs: dict[int, float] = {}
        for step in steps:
            costs[step.numbers[0]] = costs.get(step.numbers[0], 0.0) + self._rates.cost(step.candidates)
        later = (folds_left - folds_here) / folds_here
        costs = {key: cost * (1 + later) for key, cost in costs.items()}
        chosen = affordable(costs, self._fits.jobs, self._seconds_left())
        return [step for step in steps if step.numbers[0] in chosen]

    def _settle(self, numbers: Sequence[int], earlier: Study, stage: tuple[int, ...]) -> None:
        """End the trials that failed, are complete, or are pruned."""
        for number in numbers:
            trial = self._journal.trials[number]
            if trial.is_over or list(trial.folds) != list(range(stage[-1] + 1)):
                continue  # not yet, or in a later stage
            if trial.message:
                self._journal.end(number, "failed")
            elif len(trial.folds) == len(self._task.folds):
                # The scores first: a trial that the journal calls complete has them.
                tests = [fold.test for fold in self._task.folds]
                parts = {fold: result.scores_sha256 for fold, result in trial.folds.items()}
                scores = join_parts(self._folder, number, len(self._task.y), tests, parts)
                self._journal.end(number, "complete", scores)
            elif should_prune(earlier, trial, self._space):
                self._journal.end(number, "pruned")
            else:
                continue
            remove_parts(self._folder, number)

    def _trials(self) -> tuple[Trial, ...]:
        """Return the finished trials within the limit."""
        held = self._journal.trials
        return tuple(trial for trial in held[: self._within_limit(len(held))] if trial.is_over)

    def _seconds_left(self) -> float:
        seconds = self._limits.seconds
        return float("inf") if seconds is None else seconds - self._clock.seconds

    def _tell(self, waiting: Sequence[FoldStep]) -> None:
        if self._listener is None:
            return
        trials, seconds = self._trials(), self._clock.seconds
        running = dict.fromkeys(candidate for step in waiting for candidate in step.candidates)
        left = self._seconds_left()
        done_here = len(trials) - self._done_before
        if self._limits.trials is not None and done_here:
            pace = (seconds - self._spent_before) / done_here
            left = min(left, pace * (self._limits.trials - len(trials)))
        self._listener(
            Progress(
                trials=trials,
                total=self._limits.trials,
                best=best_of(trials),
                running=tuple(running),
                seconds=seconds,
                seconds_left=None if left == float("inf") else max(0.0, left),
            )
        )


def _reaches(trial: Trial, stage: tuple[int, ...]) -> bool:
    """Return whether a trial takes part in a stage: no earlier fold failed and it was not pruned."""
    before = [fold for fold in range(stage[0]) if fold in trial.folds and not trial.folds[fold].message]
    if len(before) < stage[0]:
        return False
    return not (trial.state == "pruned" and len(trial.folds) == stage[0])


class SearchClock:
    """Seconds of a search, those of earlier runs included."""

    def __init__(self, before: float) -> None:
        self._before, self._start = before, time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._start


class Rates:
    """Mean seconds of a unit of work, for each family: a linear fit, one round of boosting, or one epoch."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._work: dict[str, float] = {}

    def note(self, candidate: Candidate, seconds: float) -> None:
        """Learn from one candidate on one fold."""
        family = candidate.family
        self._seconds[family] = self._seconds.get(family, 0.0) + seconds
        self._work[family] = self._work.get(family, 0.0) + work_of(candidate)

    def cost(self, candidates: Sequence[Candidate]) -> float:
        """Estimate the seconds of candidates on one fold; 0 for a family that was never fitted."""
        return sum(work_of(candidate) * self._rate(candidate.family) for candidate in candidates)

    def _rate(self, family: str) -> float:
        return self._seconds[family] / self._work[family] if family in self._work else 0.0


def work_of(candidate: Candidate) -> float:
    """Return the work of a candidate in units of its family, such as rounds of boosting."""
    work = FAMILIES[candidate.family].work
    return float(candidate.settings()[work]) if work else 1.0


def affordable(costs: Mapping[int, float], jobs: int, seconds: float) -> list[int]:
    """Return the first keys whose work fits into the seconds on a number of jobs.

    >>> affordable({0: 4.0, 1: 4.0, 2: 4.0, 3: 4.0}, jobs=2, seconds=6.5)
    [0, 1, 2]
    """
    chosen: list[int] = []
    total, longest = 0.0, 0.0
    for key, cost in costs.items():
        total, longest = total + cost, max(longest, cost)
        if max(total / jobs, longest) > seconds:
            break
        chosen.append(key)
    return chosen
