"""Records of a search: its task and limits, its trials, its progress and its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    "FoldResult",
    "Limits",
    "Origin",
    "Progress",
    "SearchResult",
    "SearchTask",
    "State",
    "StoppedBy",
    "Trial",
    "best_of",
]

State = Literal["running", "complete", "pruned", "failed"]
StoppedBy = Literal["trials", "budget", "interrupted"]
Origin = Literal["default", "map", "search"]


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
    """

    X: NDArray[Any]
    y: NDArray[Any]
    categorical: Sequence[int]
    n_categories: Sequence[int]
    folds: Sequence[Split]
    weights: NDArray[Any] | None
    aim: Aim
    rows: NDArray[np.intp] | None = None

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
class FoldResult:
    """Result of a candidate on a fold: partial AUC and recall, or the message of a failure.

    `scores_sha256` is the digest of the file that holds its validation log-odds.
    """

    partial_auc: float
    recall: float
    seconds: float
    message: str = ""
    warnings: tuple[str, ...] = ()
    scores_sha256: str = ""


@dataclass(frozen=True)
class Trial:
    """A candidate with its results: the one record of a trial, from proposal to report.

    Attributes:
        number: Position in the search.
        candidate: Family, loss and parameters.
        origin: "default" (planned), "map" (planned, of the grid of a loss) or "search".
        values: The candidate as parameters of the search, from which the sampler learns.
        folds: Results by fold, in the order of the folds.
        state: "running", "complete" on all folds, "pruned" after some, or "failed".
        comparison: The partial AUC of the pooled out-of-fold log-odds less that of cross entropy with
            defaults, with a paired interval; None where it was not computed.
        scores_sha256: Digest of the file of its out-of-fold log-odds; empty unless complete.
    """

    number: int
    candidate: Candidate
    origin: Origin
    values: Mapping[str, float | int | str]
    folds: Mapping[int, FoldResult] = field(default_factory=dict)
    state: State = "running"
    comparison: Comparison | None = None
    scores_sha256: str = ""

    @property
    def is_over(self) -> bool:
        return self.state != "running"

    @property
    def partial_auc(self) -> float | None:
        """Mean over the folds (McClish); None unless complete."""
        return _mean(self.fold_values) if self.state == "complete" else None

    @property
    def recall(self) -> float | None:
        """Mean recall at the false-positive rate of the task; None unless complete."""
        return _mean(self.fold_recalls) if self.state == "complete" else None

    @property
    def fold_values(self) -> tuple[float, ...]:
        """Partial AUC of each fold that was evaluated."""
        return tuple(result.partial_auc for result in self.folds.values() if not result.message)

    @property
    def fold_recalls(self) -> tuple[float, ...]:
        """Recall of each of those folds."""
        return tuple(result.recall for result in self.folds.values() if not result.message)

    @property
    def seconds(self) -> float:
        """Time of its fits."""
        return sum(result.seconds for result in self.folds.values())

    @property
    def message(self) -> str:
        """Message of its failure, in one line; empty without one."""
        return next((result.message for result in self.folds.values() if result.message), "")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Distinct warnings of its fits."""
        return tuple(dict.fromkeys(text for result in self.folds.values() for text in result.warnings))

    def with_fold(self, fold: int, result: FoldResult) -> Trial:
        """Return the trial with the result of one more fold."""
        return replace(self, folds=dict(sorted({**self.folds, fold: result}.items())))


def _mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


@dataclass(frozen=True, eq=False)
class Progress:
    """Progress of a search.

    Attributes:
        trials: Finished trials.
        total: Number of trials at the end, or None if time alone limits them.
        best: The best finished trial, or None.
        running: Candidates that are being fitted or are next.
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
            if trial.number == number and trial.state == "complete":
                return read_scores(self.folder, number, trial.scores_sha256)
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
