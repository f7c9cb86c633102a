"""Records of a search: its task and limits, its trials, its progress and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..model.families import Candidate
from .oof_predictions import read_scores

if TYPE_CHECKING:
    from ..metrics import Comparison
    from ..tables.splits import Data, Split
    from .fold_evaluation import Aim

__all__ = [
    "Limits",
    "Origin",
    "Progress",
    "SearchResult",
    "SearchTask",
    "State",
    "StoppedBy",
    "Trial",
    "TrialResult",
    "best_of",
]

State = Literal["running", "complete", "failed"]
StoppedBy = Literal["trials", "budget", "interrupted"]
Origin = Literal["default", "spread", "map", "random"]


@dataclass(frozen=True, eq=False)
class SearchTask:
    """Rows, folds and aim of a search.

    Attributes:
        X: Coded matrix of `Schema.matrix`; NaN is missing, categories are codes.
        y: Labels 0 and 1.
        categorical: Positions of the columns that hold codes.
        n_categories: Number of codes of each of them.
        folds: Rows to train on and to validate on, for each fold.
        weights: Weights of the rows, for fits and for figures, or None.
        aim: The options that steer its fits.
        rows: Which of the training rows these are. Default: all.
        of_all_rows: How many times as many rows there are to fit to after the search.
        times, groups: What tells which rows depend on each other, if anything.
        n_counts: How many columns, the last ones, are counts of values. The search tells whether they help.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    categorical: Sequence[int]
    n_categories: Sequence[int]
    folds: Sequence[Split]
    weights: NDArray[Any] | None
    aim: Aim
    rows: NDArray[np.intp] | None = None
    of_all_rows: float = 1.0
    times: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    n_counts: int = 0

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or self.y.shape != (len(self.X),):
            raise ValueError(f"X must be (n, d) and y (n,), got {self.X.shape} and {self.y.shape}")
        if self.weights is not None and self.weights.shape != self.y.shape:
            raise ValueError(f"weights must be one per row, got the shape {self.weights.shape}")
        if not self.folds:
            raise ValueError("a search needs at least one fold")

    @classmethod
    def of(cls, data: Data, aim: Aim) -> SearchTask:
        """Make the task of a table's training rows, or of the sample of them that `Data` chose."""
        chosen = data.search
        everything = chosen.weights is None
        return cls(
            X=data.X if everything else data.X[chosen.rows],
            y=data.y if everything else data.y[chosen.rows],
            categorical=data.schema.categorical,
            n_categories=data.schema.n_categories,
            folds=chosen.folds,
            weights=chosen.weights,
            aim=aim,
            rows=chosen.rows,
            of_all_rows=len(data.y) / len(chosen.rows),
            times=None if data.times is None else data.times[chosen.rows],
            groups=None if data.groups is None else data.groups[chosen.rows],
            n_counts=len(data.schema.count_names),
        )

    @property
    def class_counts(self) -> tuple[int, int]:
        """Negatives and positives; with weights, how many rows they stand for."""
        counts = np.bincount(np.asarray(self.y, dtype=np.int64), self.weights, minlength=2)
        return round(float(counts[0])), round(float(counts[1]))


@dataclass(frozen=True)
class Limits:
    """Limits of a search: a number of trials, seconds, or both. The first one reached ends it.

    >>> Limits(trials=40)
    Limits(trials=40, seconds=None)
    """

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials is None and self.seconds is None:
            raise ValueError("a search needs a limit: trials, seconds or both")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"trials must be at least 1, got {self.trials}")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"seconds must be above 0, got {self.seconds}")


@dataclass(frozen=True)
class TrialResult:
    """Result of a candidate on all folds, or the message of its failure.

    Attributes:
        partial_auc: Of the out-of-fold log-odds of all folds together (McClish).
        recall: Of the same, at the false-positive rate of the task.
        seconds: Time of the fits.
        rounds: Rounds of boosting that the folds chose; 0 for a family without.
        refit_seconds: Estimate of a fit to all rows of the search.
        message: What failed, in one line.
        warnings: Distinct warnings of the fits.
        scores_sha256: Digest of the file of the out-of-fold log-odds.
        is_cut: Whether time ended it before its rounds were enough.
    """

    partial_auc: float
    recall: float
    seconds: float
    rounds: int = 0
    refit_seconds: float = 0.0
    message: str = ""
    warnings: tuple[str, ...] = ()
    scores_sha256: str = ""
    is_cut: bool = False


@dataclass(frozen=True)
class Trial:
    """A candidate with its result: the one record of a trial, from proposal to report.

    Attributes:
        number: Position in the list of candidates.
        candidate: Family, loss and parameters; where the folds chose its rounds, with their number for a fit
            to all rows.
        origin: "default" (the family's defaults), "spread" (planned, with other parameters), "map" (planned,
            of the grid of a loss) or "random".
        result: Its result; None while it runs.
        comparison: The partial AUC of its out-of-fold log-odds less that of cross entropy with defaults, with
            a paired interval; None where it was not computed.
        with_counts: Whether it sees the columns that are counts of values.
    """

    number: int
    candidate: Candidate
    origin: Origin
    result: TrialResult | None = None
    comparison: Comparison | None = None
    with_counts: bool = False

    @property
    def state(self) -> State:
        if self.result is None:
            return "running"
        return "failed" if self.result.message else "complete"

    @property
    def partial_auc(self) -> float | None:
        """Partial AUC of its out-of-fold log-odds; None unless complete."""
        return self.result.partial_auc if self.result and not self.result.message else None

    @property
    def recall(self) -> float | None:
        """Recall at the false-positive rate of the task; None unless complete."""
        return self.result.recall if self.result and not self.result.message else None

    @property
    def seconds(self) -> float:
        """Time of its fits."""
        return self.result.seconds if self.result else 0.0

    @property
    def message(self) -> str:
        """Message of its failure, in one line; empty without one."""
        return self.result.message if self.result else ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Distinct warnings of its fits."""
        return self.result.warnings if self.result else ()


@dataclass(frozen=True, eq=False)
class Progress:
    """Progress of a search.

    Attributes:
        trials: Finished trials.
        total: Number of trials at the end, or None if time alone limits them.
        best: The best finished trial, or None.
        running: Candidates that are being fitted.
        seconds: Time spent, that of interrupted runs included.
        seconds_left: Estimate of the time left, or None before the first result.
    """

    trials: tuple[Trial, ...]
    total: int | None
    best: Trial | None
    running: tuple[Candidate, ...]
    seconds: float
    seconds_left: float | None

    @property
    def done(self) -> int:
        """Finished trials."""
        return len(self.trials)


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Result of a search.

    Attributes:
        trials: The finished trials, in the order of their numbers.
        best: The complete trial with the largest partial AUC; then recall; then the lower number.
        stopped_by: Reason of the end.
        seconds: Time spent, that of interrupted runs included.
        folder: Folder of the search.
    """

    trials: tuple[Trial, ...]
    best: Trial
    stopped_by: StoppedBy
    seconds: float
    folder: Path

    def out_of_fold(self, number: int) -> NDArray[np.float32]:
        """Read the log-odds of a complete trial's validation rows, NaN for rows of no fold."""
        for trial in self.trials:
            if trial.number == number and trial.result is not None and trial.state == "complete":
                return read_scores(self.folder, number, trial.result.scores_sha256)
        raise ValueError(f"trial {number} is not complete, so it has no log-odds of every fold")


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Return the best complete trial, if there is one."""
    complete = [trial for trial in trials if trial.state == "complete"]
    return max(complete, key=_merit, default=None)


def _merit(trial: Trial) -> tuple[float, float, int]:
    assert trial.partial_auc is not None
    assert trial.recall is not None
    # Ties happen with few positives. The lower number decides last: a repeated run must choose the same.
    return trial.partial_auc, trial.recall, -trial.number
