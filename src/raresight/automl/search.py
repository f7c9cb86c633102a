"""Search: one queue of candidates, evaluated in processes, in a folder that survives any kill.

The list of candidates is fixed by space, class counts and seed (`space.candidates`). An engine evaluates them
in that order, and the journal keeps every result at once. So the outcome for a number of trials is the same
on one core and on many, and after any number of interruptions. With a time limit the next candidate is
started only if it is likely to end in time, with the fits to all rows that follow the search.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..common.atomic_files import hold_folder
from ..common.journal import DamagedFileWarning
from ..engines import Interrupts, LocalEngine
from ..model.families import FAMILIES, Candidate
from .choice import out_of_fold_comparison
from .fold_evaluation import FoldEvaluator, Job, arrays_of
from .oof_predictions import is_whole, score_folder, score_path
from .records import Limits, Progress, SearchResult, SearchTask, StoppedBy, Trial, TrialResult, best_of
from .run_identity import check_identity, identity
from .space import Space, candidates
from .trial_journal import TrialJournal

__all__ = ["Limits", "Progress", "SearchResult", "SearchTask", "Trial", "search"]

# How many candidates that would take too long are passed over before the search ends.
LOOK_AHEAD = 12
# Models that are fitted to all rows after the search, the baseline among them: as many as a blend has.
REFITS = 6

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
        limits: Trials or seconds. Cross entropy with the first family's defaults is always evaluated.
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
    ['linear, crossentropy', 'linear, crossentropy, knots=5']
    """
    folder = Path(folder)
    with hold_folder(folder, "searching"), Interrupts() as interrupts:
        check_identity(folder, identity(task, space))
        journal = TrialJournal(folder)
        _tidy(folder, journal)
        engine = engine or LocalEngine(1, folder)
        with engine.share(arrays_of(task)) as shared:
            run = _SearchRun(task, space, limits, folder, journal, engine.jobs, listener)
            categorical = tuple(int(column) for column in task.categorical)
            n_categories = tuple(int(count) for count in task.n_categories)
            evaluator = FoldEvaluator(task.aim, categorical, n_categories, folder)
            try:
                # Whether counts of values help is decided before everything else.
                for jobs in (run.jobs_of_counts, run.jobs):
                    before = run.issued
                    for index, results in engine.run(evaluator, jobs(), shared, interrupts):
                        run.record(before + index, results)
                stopped_by = run.stopped_by
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
    for number, trial in list(journal.trials.items()):
        path = score_path(folder, number)
        assert trial.result is not None
        if trial.state == "complete" and not is_whole(path, trial.result.scores_sha256):
            what = "changed or cut" if path.exists() else "removed"
            warnings.warn(
                f"{path} was {what} since it was written: candidate {number} is evaluated again",
                DamagedFileWarning,
                stacklevel=3,
            )
            journal.repeat(number)


class _SearchRun:
    """A search in progress."""

    def __init__(
        self,
        task: SearchTask,
        space: Space,
        limits: Limits,
        folder: Path,
        journal: TrialJournal,
        processes: int,
        listener: Listener | None,
    ) -> None:
        self._task, self._limits, self._folder, self._journal = task, limits, folder, journal
        self._processes, self._listener = processes, listener
        self._groups = candidates(space, task.class_counts, task.aim.seed)
        self._with_counts = False
        self._offset = 0
        self._spent_before, self._start = journal.seconds, time.monotonic()
        self._done_before = len(journal.trials)
        self._issued: list[tuple[Trial, ...]] = []
        self._running: set[int] = set()
        self.stopped_by: StoppedBy = "trials"

    @property
    def seconds(self) -> float:
        """Time spent, that of earlier runs included."""
        return self._spent_before + time.monotonic() - self._start

    # ---- the queue -----------------------------------------------------------------------

    def jobs_of_counts(self) -> Iterator[Job]:
        """Yield the first candidate without counts of values and with them, if there are any."""
        if self._task.n_counts:
            (first,) = next(self._groups)
            self._offset = 1
            for trial in (first, replace(first, number=1, with_counts=True)):
                if not self._is_done(trial):
                    yield self._begun((trial,))

    def _counts_help(self) -> bool:
        """Return whether the first candidate gains by counts more than a standard error.

        They are tried on every table that has values to count, and on most the difference is chance.
        """
        held = self._journal.trials
        if any(number not in held or held[number].state != "complete" for number in (0, 1)):
            return False
        gain = out_of_fold_comparison(self.found("trials"), self._task, 1, 0)
        return gain.difference > gain.standard_error

    def jobs(self) -> Iterator[Job]:
        """Yield jobs while the limits allow; each is decided when a process is free for it."""
        passed_over = 0
        if self._task.n_counts:
            self._with_counts = self._counts_help()
        for listed in self._groups:
            group = tuple(
                replace(trial, number=trial.number + self._offset, with_counts=self._with_counts)
                for trial in listed
            )
            if self._limits.trials is not None and group[0].number >= self._limits.trials:
                return
            if group[0].origin == "random" and best_of(self._trials()) is None and not self._running:
                return  # nothing works: found() says why
            if all(self._is_done(trial) for trial in group):
                continue
            # A group stays whole, even if some of its trials are done or beyond the limit: fits found
            # together may differ in the last digits from fits found alone.
            expected = self._expected(group)
            if not self._fits(group, expected):
                self.stopped_by = "budget"
                passed_over += 1
                if passed_over > LOOK_AHEAD or self._left() <= 0:
                    return
                continue
            passed_over = 0
            yield self._begun(group)

    def _begun(self, group: tuple[Trial, ...]) -> Job:
        """Note that a group is being evaluated, and return its job."""
        self._running.add(len(self._issued))
        self._issued.append(group)
        self._tell()
        # What grows past half of the time that is left would leave none for the fit to all rows.
        seconds = self._limits.seconds
        deadline = None if seconds is None else max(self._left() / 2, seconds / 4)
        columns = None if group[0].with_counts else self._task.X.shape[1] - self._task.n_counts
        numbers = tuple(trial.number for trial in group)
        return Job(numbers, tuple(trial.candidate for trial in group), deadline, columns)

    @property
    def issued(self) -> int:
        """Number of jobs so far."""
        return len(self._issued)

    def record(self, index: int, results: Sequence[TrialResult]) -> None:
        """Keep the results of a job, by its position among all."""
        self._running.discard(index)
        for trial, result in zip(self._issued[index], results):
            if not self._is_done(trial):
                self._journal.record(_with_rounds(replace(trial, result=result)), self.seconds)
        self._tell()

    def _is_done(self, trial: Trial) -> bool:
        return trial.number in self._journal.trials or (
            self._limits.trials is not None and trial.number >= self._limits.trials
        )

    def _fits(self, group: Sequence[Trial], expected: float) -> bool:
        """Return whether a group is likely to end in time. The first one always runs."""
        if self._limits.seconds is None or group[0].number == 0:
            return True
        if any(trial.number in self._journal.repeated for trial in group):
            return True  # time was spent on it before
        return expected < self._left() and self._left() > 0

    def _left(self) -> float:
        """Seconds left for the search, less what the fits to all rows will take."""
        if self._limits.seconds is None:
            return float("inf")
        return self._limits.seconds - self.seconds - self._refit_seconds()

    def _refit_seconds(self) -> float:
        """Estimate the fits to all rows that follow: the best few, on all processes."""
        complete = sorted(
            (trial for trial in self._journal.trials.values() if trial.state == "complete"),
            key=lambda trial: -(trial.partial_auc or 0.0),
        )
        costs = [trial.result.refit_seconds for trial in complete[:REFITS] if trial.result is not None]
        share = max(1.0, self._task.of_all_rows) if costs else 0.0
        return share * max(sum(costs) / self._processes, max(costs, default=0.0))

    def _expected(self, group: Sequence[Trial]) -> float:
        """Estimate the seconds of a group by those of its family; 0 for a family that never ran."""
        family = group[0].candidate.family
        seen = [trial for trial in self._journal.trials.values() if trial.candidate.family == family]
        if not seen:
            return 0.0
        seconds = sum(trial.seconds for trial in seen) / len(seen)
        return seconds * (len(group) if FAMILIES[family].fits_together else 1)

    # ---- results -------------------------------------------------------------------------

    def found(self, stopped_by: StoppedBy) -> SearchResult:
        """Return the result; KeyboardInterrupt or RuntimeError if no trial is complete."""
        trials = self._trials()
        best = best_of(trials)
        if best is None and stopped_by == "interrupted":
            raise KeyboardInterrupt
        if best is None:
            reasons = [trial.message for trial in trials if trial.message]
            raise RuntimeError(f"no candidate could be evaluated; the first failed so: {reasons[0]}")
        return SearchResult(trials, best, stopped_by, self.seconds, self._folder)

    def _trials(self) -> tuple[Trial, ...]:
        """Return the finished trials within the limit, in the order of their numbers."""
        most = self._limits.trials
        held = sorted(self._journal.trials.items())
        return tuple(trial for number, trial in held if most is None or number < most)

    def _tell(self) -> None:
        if self._listener is None:
            return
        trials, seconds = self._trials(), self.seconds
        running: dict[Candidate, None] = {}
        for index in sorted(self._running):
            running |= dict.fromkeys(trial.candidate for trial in self._issued[index])
        left = self._left()
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


def _with_rounds(trial: Trial) -> Trial:
    """Write the rounds that the folds chose into the candidate."""
    candidate, result = trial.candidate, trial.result
    name = FAMILIES[candidate.family].rounds
    if not name or result is None or not result.rounds:
        return trial
    return replace(trial, candidate=candidate.having(**{name: result.rounds}))
