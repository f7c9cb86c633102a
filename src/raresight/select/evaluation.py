"""One step of a search: candidates of one family fitted to one fold and judged on its validation rows.

A step is a pure function of what it is given, on one thread, so that it comes out the same in this process
and in a worker, whatever else runs.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..metrics import partial_auc, recall_at_fpr
from ..model.candidate import Candidate
from ..model.families import Fitted, fit_candidates
from .scores import part_path, write_array

__all__ = ["FoldResult", "FoldRows", "Step", "evaluate"]


@dataclass(frozen=True, eq=False)
class FoldRows:
    """The rows of one fold and what to judge its scores by."""

    X: NDArray[Any]
    y: NDArray[Any]
    weights: NDArray[Any] | None
    train: NDArray[np.intp]
    test: NDArray[np.intp]
    categorical: tuple[int, ...]
    n_categories: tuple[int, ...]
    max_fpr: float
    fpr: float
    seed: int


@dataclass(frozen=True)
class Step:
    """Candidates of one family to be fitted together, by trial number, on one fold."""

    fold: int
    numbers: tuple[int, ...]
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class FoldResult:
    """What came out for one candidate: two figures, or the message of its failure."""

    partial_auc: float
    recall: float
    seconds: float
    message: str = ""
    warnings: tuple[str, ...] = ()


def evaluate(step: Step, rows: FoldRows, folder: Path) -> list[FoldResult]:
    """Fit, keep the validation log-odds in the folder, and return one result a candidate."""
    with _one_thread():
        return _evaluate(step.numbers, step.candidates, step.fold, rows, folder)


def _evaluate(
    numbers: Sequence[int], candidates: Sequence[Candidate], fold: int, rows: FoldRows, folder: Path
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
                rows.categorical,
                rows.n_categories,
                weights=weights,
                seed=rows.seed,
                threads=1,
            )
    except Exception as error:
        if len(candidates) == 1:
            return [_failure(error, start)]
        # One of them spoils the fit for all: each alone.
        return [
            result
            for number, candidate in zip(numbers, candidates)
            for result in _evaluate([number], [candidate], fold, rows, folder)
        ]
    shared = (time.perf_counter() - start) / len(candidates)
    stray = tuple(str(warning.message) for warning in caught)
    X_test = rows.X[rows.test]
    return [
        _judge(number, fitted, X_test, fold, rows, folder, shared, stray)
        for number, fitted in zip(numbers, fits)
    ]


def _judge(
    number: int,
    fitted: Fitted,
    X_test: NDArray[Any],
    fold: int,
    rows: FoldRows,
    folder: Path,
    seconds: float,
    stray: tuple[str, ...],
) -> FoldResult:
    start = time.perf_counter() - seconds
    y = rows.y[rows.test]
    weights = None if rows.weights is None else rows.weights[rows.test]
    try:
        # The figures are those of the scores that are kept, to the last digit.
        log_odds = fitted.log_odds(X_test).astype(np.float32)
        if not np.isfinite(log_odds).all():
            raise ValueError("its scores are not finite")
        area = partial_auc(y, log_odds, rows.max_fpr, kind="mcclish", sample_weight=weights)
        recall = recall_at_fpr(y, log_odds, rows.fpr, sample_weight=weights)
    except Exception as error:
        return _failure(error, start)
    write_array(part_path(folder, number, fold), log_odds, at_once=False)
    said = tuple(dict.fromkeys(_one_line(text) for text in (*fitted.warnings, *stray)))
    return FoldResult(area, recall, time.perf_counter() - start, warnings=said)


def _failure(error: Exception, start: float) -> FoldResult:
    message = _one_line(str(error)) or type(error).__name__
    return FoldResult(float("nan"), float("nan"), time.perf_counter() - start, message=message)


def _one_line(text: str) -> str:
    return " ".join(text.split())


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread for BLAS, OpenMP and ours: sums come out the same however many cores there are."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
