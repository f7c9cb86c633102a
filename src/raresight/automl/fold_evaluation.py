"""Fit candidates of one family to the training rows of a fold and evaluate them on its validation rows.

The evaluation is a pure function of its arguments, so that this process and a worker give the same result.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import partial_auc, recall_at_fpr
from ..model.families import Candidate, Fitted, fit_candidates
from .oof_predictions import part_path, write_array
from .records import FoldResult, SearchTask

__all__ = ["Aim", "FoldEvaluator", "FoldStep", "arrays_of"]


@dataclass(frozen=True, kw_only=True)
class Aim:
    """The options that steer fits on folds, named as the fields of `Options` from which they are taken.

    A field added here reaches every fit on a fold and is part of the identity of the search.

    Attributes:
        max_fpr: The partial AUC that is maximised ends at this false-positive rate.
        fpr: The recall at this false-positive rate decides between equal partial AUCs.
        seed: Seed of the search and of the models.
    """

    max_fpr: float
    fpr: float
    seed: int


def arrays_of(task: SearchTask) -> dict[str, NDArray[Any]]:
    """Return the arrays that the evaluations of a task read."""
    arrays = {"X": np.ascontiguousarray(task.X), "y": np.asarray(task.y)}
    if task.weights is not None:
        arrays["weights"] = np.asarray(task.weights)
    for number, fold in enumerate(task.folds):
        arrays |= {f"train-{number}": np.asarray(fold.train), f"test-{number}": np.asarray(fold.test)}
    return arrays


@dataclass(frozen=True)
class FoldStep:
    """Candidates of one family, by trial number, to be fitted together on one fold."""

    fold: int
    numbers: tuple[int, ...]
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class FoldEvaluator:
    """Evaluate steps: what all steps of a search share, apart from arrays."""

    aim: Aim
    categorical: tuple[int, ...]
    n_categories: tuple[int, ...]
    folder: Path

    def __call__(self, arrays: Mapping[str, NDArray[Any]], step: FoldStep) -> list[FoldResult]:
        """Fit, keep the validation log-odds in the folder, and return one result per candidate."""
        start = time.perf_counter()
        train = arrays[f"train-{step.fold}"]
        weights = arrays.get("weights")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fits = fit_candidates(
                    step.candidates,
                    arrays["X"][train],
                    arrays["y"][train],
                    self.categorical,
                    self.n_categories,
                    weights=None if weights is None else weights[train],
                    seed=self.aim.seed,
                    # Candidates run side by side, and sums in another order would change the last digits.
                    threads=1,
                )
        except Exception as error:
            if len(step.candidates) == 1:
                return [_failure(error, start)]
            # One candidate breaks the fit that all share. Fit each alone, so that only this one fails.
            alone = (
                FoldStep(step.fold, (number,), (candidate,))
                for number, candidate in zip(step.numbers, step.candidates)
            )
            return [result for one in alone for result in self(arrays, one)]
        # The time of a shared fit has no parts: each candidate gets an equal share.
        shared = (time.perf_counter() - start) / len(step.candidates)
        uncaught = tuple(str(warning.message) for warning in caught)
        test = arrays[f"test-{step.fold}"]
        X, y = arrays["X"][test], arrays["y"][test]
        weights = None if weights is None else weights[test]
        return [
            self._validate(part_path(self.folder, number, step.fold), fitted, X, y, weights, shared, uncaught)
            for number, fitted in zip(step.numbers, fits)
        ]

    def _validate(
        self,
        part: Path,
        fitted: Fitted,
        X: NDArray[Any],
        y: NDArray[Any],
        weights: NDArray[Any] | None,
        seconds: float,
        uncaught: Sequence[str],
    ) -> FoldResult:
        """Evaluate one fit on the validation rows and keep its log-odds in the file `part`."""
        start = time.perf_counter() - seconds
        try:
            # In the precision that is kept, so that the figures can be computed again from the files.
            log_odds = fitted.log_odds(X).astype(np.float32)
            if not np.isfinite(log_odds).all():
                raise ValueError("its scores are not finite")
            area = partial_auc(y, log_odds, self.aim.max_fpr, kind="mcclish", sample_weight=weights)
            recall = recall_at_fpr(y, log_odds, self.aim.fpr, sample_weight=weights)
        except Exception as error:
            return _failure(error, start)
        digest = write_array(part, log_odds)
        messages = tuple(dict.fromkeys(_one_line(text) for text in (*fitted.warnings, *uncaught)))
        return FoldResult(area, recall, time.perf_counter() - start, "", messages, digest)


def _failure(error: Exception, start: float) -> FoldResult:
    message = _one_line(str(error)) or type(error).__name__
    return FoldResult(float("nan"), float("nan"), time.perf_counter() - start, message=message)


def _one_line(text: str) -> str:
    return " ".join(text.split())
