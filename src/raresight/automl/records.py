"""What goes into a search and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..model.families import Candidate

if TYPE_CHECKING:
    from ..tables.splits import Split

__all__ = ["Limits", "Origin", "Progress", "SearchResult", "State", "StoppedBy", "Task", "Trial"]

State = Literal["complete", "pruned", "failed"]
StoppedBy = Literal["trials", "budget", "interrupted"]
Origin = Literal["default", "map", "search"]


@dataclass(frozen=True, eq=False)
class Task:
    """The data of a search and its aim.

    Attributes:
        X: Coded matrix of `Schema.matrix`; NaN is missing, categories are codes.
        y: Labels 0 and 1.
        categorical: Positions of the columns that hold codes.
        n_categories: How many codes each of them has.
        folds: Rows to train on and to validate on, for each fold.
        weights: Weights of the rows, for fits and for figures, or None.
        max_fpr: The partial AUC that is maximised ends at this false-positive rate.
        fpr: The recall at this false-positive rate decides between equal partial AUCs.
        seed: Of the search and of the models.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    categorical: Sequence[int]
    n_categories: Sequence[int]
    folds: Sequence[Split]
    weights: NDArray[Any] | None
    max_fpr: float
    fpr: float
    seed: int

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or self.y.shape != (len(self.X),):
            raise ValueError(f"X must be (n, d) and y (n,), got {self.X.shape} and {self.y.shape}")
        if self.weights is not None and self.weights.shape != self.y.shape:
            raise ValueError(f"weights must be one a row, got the shape {self.weights.shape}")
        if not self.folds:
            raise ValueError("a search needs at least one fold")

    @property
    def class_counts(self) -> tuple[int, int]:
        """Negatives and positives; with weights, how many rows they stand for."""
        counts = np.bincount(np.asarray(self.y, dtype=np.int64), self.weights, minlength=2)
        return round(float(counts[0])), round(float(counts[1]))


@dataclass(frozen=True)
class Limits:
    """When a search ends: after so many trials or seconds, whichever comes first.

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
class Trial:
    """One candidate and what became of it.

    Attributes:
        number: Position in the search.
        candidate: What was tried.
        state: "complete" on all folds, "pruned" after some, or "failed".
        partial_auc: Mean over the folds (McClish); None unless complete.
        recall: Mean recall at the false-positive rate of the task; None unless complete.
        fold_values: Partial AUC of each fold that was evaluated.
        fold_recalls: Recall of each of those folds.
        seconds: Time of its fits.
        message: Why it failed, in one line.
        warnings: What its fits warned of.
        origin: "default" (planned), "map" (planned, of the map of TBL) or "search".
    """

    number: int
    candidate: Candidate
    state: State
    partial_auc: float | None
    recall: float | None
    fold_values: tuple[float, ...]
    fold_recalls: tuple[float, ...]
    seconds: float
    message: str
    warnings: tuple[str, ...]
    origin: Origin


@dataclass(frozen=True, eq=False)
class Progress:
    """Where a search stands.

    Attributes:
        trials: The finished ones.
        total: How many it will be, or None where only time limits them.
        best: The best of them, or None.
        running: Candidates that are at work or next.
        seconds: Time spent, that of interrupted runs included.
        seconds_left: An estimate, or None while there is nothing to go by.
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
    """The outcome of a search.

    Attributes:
        trials: The finished trials, by number.
        best: The complete trial with the largest partial AUC; then recall; then the lower number.
        stopped_by: What ended the search.
        seconds: Time spent, that of interrupted runs included.
        folder: Where the search is kept.
        rows: Rows of the task.
    """

    trials: tuple[Trial, ...]
    best: Trial
    stopped_by: StoppedBy
    seconds: float
    folder: Path
    rows: int

    def out_of_fold(self, number: int) -> NDArray[np.float32]:
        """Calibrated log-odds of the validation rows of a complete trial, NaN for rows never validated."""
        if not any(trial.number == number and trial.state == "complete" for trial in self.trials):
            raise ValueError(f"trial {number} is not complete, so it has no log-odds of every fold")
        from .oof_predictions import read_scores

        return read_scores(self.folder, number)


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The best complete trial, if there is one."""
    complete = [trial for trial in trials if trial.state == "complete"]
    return max(complete, key=_merit, default=None)


def _merit(trial: Trial) -> tuple[float, float, int]:
    assert trial.partial_auc is not None
    assert trial.recall is not None
    return trial.partial_auc, trial.recall, -trial.number
