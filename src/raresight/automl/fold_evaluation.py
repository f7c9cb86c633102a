"""One step of a search: candidates of one family fitted to one fold and evaluated on its validation rows.

A step is a pure function of its arguments, so that this process and a worker give the same.
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
from .records import FoldResult, Task

__all__ = ["Aim", "Step", "arrays_of", "evaluate"]


@dataclass(frozen=True)
class Aim:
    """What all steps of a search share, apart from arrays."""

    categorical: tuple[int, ...]
    n_categories: tuple[int, ...]
    max_fpr: float
    fpr: float
    seed: int
    folder: Path


@dataclass(frozen=True, eq=False)
class FoldRows:
    """The rows of one fold."""

    X: NDArray[Any]
    y: NDArray[Any]
    weights: NDArray[Any] | None
    train: NDArray[np.intp]
    test: NDArray[np.intp]


def arrays_of(task: Task) -> dict[str, NDArray[Any]]:
    """The arrays that the steps of a task read."""
    arrays = {"X": np.ascontiguousarray(task.X), "y": np.asarray(task.y)}
    if task.weights is not None:
        arrays["weights"] = np.asarray(task.weights)
    for number, fold in enumerate(task.folds):
        arrays |= {f"train-{number}": np.asarray(fold.train), f"test-{number}": np.asarray(fold.test)}
    return arrays


@dataclass(frozen=True)
class Step:
    """Candidates of one family to be fitted together, by trial number, on one fold."""

    fold: int
    numbers: tuple[int, ...]
    candidates: tuple[Candidate, ...]


def evaluate(aim: Aim, arrays: Mapping[str, NDArray[Any]], step: Step) -> list[FoldResult]:
    """Fit, keep the validation log-odds in the folder, and return one result per candidate."""
    rows = FoldRows(
        X=arrays["X"],
        y=arrays["y"],
        weights=arrays.get("weights"),
        train=arrays[f"train-{step.fold}"],
        test=arrays[f"test-{step.fold}"],
    )
    return _evaluate(step.numbers, step.candidates, step.fold, rows, aim)


def _evaluate(
    numbers: Sequence[int], candidates: Sequence[Candidate], fold: int, rows: FoldRows, aim: Aim
) -> list[FoldResult]:
    start = time.perf_counter()
    weights = None if rows.weights is None else rows.weights[rows.train]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fits = fit_candidates(
                candidates,
                rows.X[rows.train],
                rows.y[rows.train],
                aim.categorical,
                aim.n_categories,
                weights=weights,
                seed=aim.seed,
                threads=1,
            )
    except Exception as error:
        if len(candidates) == 1:
            return [_failure(error, start)]
        # One of them breaks the shared fit: fit each alone.
        return [
            result
            for number, candidate in zip(numbers, candidates)
            for result in _evaluate([number], [candidate], fold, rows, aim)
        ]
    shared = (time.perf_counter() - start) / len(candidates)
    uncaught = tuple(str(warning.message) for warning in caught)
    X_test = rows.X[rows.test]
    return [
        _evaluate_fit(number, fitted, X_test, fold, rows, aim, shared, uncaught)
        for number, fitted in zip(numbers, fits)
    ]


def _evaluate_fit(
    number: int,
    fitted: Fitted,
    X_test: NDArray[Any],
    fold: int,
    rows: FoldRows,
    aim: Aim,
    seconds: float,
    uncaught: tuple[str, ...],
) -> FoldResult:
    start = time.perf_counter() - seconds
    y = rows.y[rows.test]
    weights = None if rows.weights is None else rows.weights[rows.test]
    try:
        # In the precision that is kept, so that the figures can be computed again from the files.
        log_odds = fitted.log_odds(X_test).astype(np.float32)
        if not np.isfinite(log_odds).all():
            raise ValueError("its scores are not finite")
        area = partial_auc(y, log_odds, aim.max_fpr, kind="mcclish", sample_weight=weights)
        recall = recall_at_fpr(y, log_odds, aim.fpr, sample_weight=weights)
    except Exception as error:
        return _failure(error, start)
    write_array(part_path(aim.folder, number, fold), log_odds)
    said = tuple(dict.fromkeys(_one_line(text) for text in (*fitted.warnings, *uncaught)))
    return FoldResult(area, recall, time.perf_counter() - start, warnings=said)


def _failure(error: Exception, start: float) -> FoldResult:
    message = _one_line(str(error)) or type(error).__name__
    return FoldResult(float("nan"), float("nan"), time.perf_counter() - start, message=message)


def _one_line(text: str) -> str:
    return " ".join(text.split())
