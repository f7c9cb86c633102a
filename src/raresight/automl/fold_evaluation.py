"""Fit candidates to the training rows of all folds and evaluate them on the validation rows.

Boosters train their folds side by side. Every few rounds the out-of-fold scores of all folds together are
looked at, and the best number of rounds is kept. So one training answers for every number of rounds.

The evaluation is a pure function of its arguments, so that this process and a worker give the same result.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import partial_auc, recall_at_fpr
from ..model.families import FAMILIES, Candidate, begin_candidate, fit_candidates
from .oof_predictions import write_scores
from .records import SearchTask, TrialResult

__all__ = ["Aim", "FoldEvaluator", "Job", "arrays_of"]

Arrays = Mapping[str, NDArray[Any]]
Floats = NDArray[np.float64]

MOST_ROUNDS = 3000
# A third of it stopped curves that still rose: one table's at 275 rounds of 1,400.
LEAST_PATIENCE = 100
# In units of 1/sqrt(positives): partial AUCs of fewer positives jump more from one look to the next.
_LEAST_GAIN = 0.02
# Rounds for all rows, where folds by time train on about half of them. In proportion would be twice as many.
_MORE_BY_TIME = 1.15


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
class Job:
    """Candidates of one family, by trial number, to be fitted together on all folds.

    Attributes:
        numbers, candidates: Numbers of the trials and their candidates.
        seconds: Time after which boosters stop growing. Default: none.
        columns: The first columns of the matrix, which the candidates see. Default: all.
    """

    numbers: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    seconds: float | None = None
    columns: int | None = None


@dataclass(frozen=True)
class FoldEvaluator:
    """Evaluate jobs: what all jobs of a search share, apart from arrays."""

    aim: Aim
    categorical: tuple[int, ...]
    n_categories: tuple[int, ...]
    folder: Path

    def __call__(self, arrays: Arrays, job: Job) -> list[TrialResult]:
        """Fit, keep the out-of-fold log-odds in the folder, and return one result per candidate."""
        start = time.perf_counter()
        arrays = {**arrays, "X": arrays["X"][:, : job.columns]}
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                if FAMILIES[job.candidates[0].family].rounds:
                    found = [self._grow(arrays, candidate, job.seconds) for candidate in job.candidates]
                else:
                    found = self._fit(arrays, job.candidates)
        except Exception as error:
            if len(job.candidates) == 1:
                return [_failure(error, start)]
            # One candidate breaks the fit that all share. Fit each alone, so that only this one fails.
            pairs = zip(job.numbers, job.candidates)
            return [
                result
                for number, one in pairs
                for result in self(arrays, Job((number,), (one,), job.seconds))
            ]
        # The time of a shared fit has no parts: each candidate gets an equal share.
        seconds = (time.perf_counter() - start) / len(job.candidates)
        texts = [str(warning.message) for warning in caught]
        return [
            self._evaluate(arrays, number, one, seconds, texts) for number, one in zip(job.numbers, found)
        ]

    def _fit(self, arrays: Arrays, candidates: Sequence[Candidate]) -> list[_Found]:
        """Fit candidates fold by fold."""
        start = time.perf_counter()
        pools = [_Pool(arrays) for _ in candidates]
        texts: list[list[str]] = [[] for _ in candidates]
        for fold in range(pools[0].n_folds):
            X, y, weights = _rows(arrays, f"train-{fold}")
            fits = fit_candidates(
                candidates,
                X,
                y,
                self.categorical,
                self.n_categories,
                weights=weights,
                seed=self.aim.seed,
                # Candidates run side by side, and sums in another order would change the last digits.
                threads=1,
            )
            held_out = arrays["X"][arrays[f"test-{fold}"]]
            for fitted, pool, said in zip(fits, pools, texts):
                # The link alone: slope and level come from all folds together.
                pool.add(fold, fitted.link(fitted.scores(held_out)))
                said += fitted.warnings
        refit = pools[0].of_all(time.perf_counter() - start) / len(candidates)
        return [_Found(pool.mean(), 0, refit, tuple(said)) for pool, said in zip(pools, texts)]

    def _grow(self, arrays: Arrays, candidate: Candidate, seconds: float | None) -> _Found:
        """Train the folds of a candidate side by side, and keep the best number of rounds."""
        start = time.perf_counter()
        pool = _Pool(arrays)
        growing = []
        for fold in range(pool.n_folds):
            X, y, weights = _rows(arrays, f"train-{fold}")
            held_out = _rows(arrays, f"test-{fold}")[:2]
            growing.append(
                begin_candidate(
                    candidate,
                    X,
                    y,
                    self.categorical,
                    self.n_categories,
                    watched=held_out,
                    weights=weights,
                    seed=self.aim.seed,
                    threads=1,
                )
            )
        prepared = time.perf_counter() - start
        least_gain = _LEAST_GAIN / math.sqrt(max(1, int(np.count_nonzero(arrays["y"]))))
        best: _Found | None = None
        area, rounds, is_cut = -math.inf, 0, False
        while rounds < MOST_ROUNDS:
            step = _step(rounds)
            for one in growing:
                one.grow(step)
            rounds += step
            for fold, one in enumerate(growing):
                pool.add(fold, one.log_odds())
            log_odds = pool.mean()
            value = self._area(arrays, log_odds)
            if best is None or value > area + least_gain:
                area, best = value, _Found(log_odds, rounds)
            elif rounds - best.rounds >= max(LEAST_PATIENCE, best.rounds):
                break
            pool.clear()
            is_cut = seconds is not None and time.perf_counter() - start > seconds
            if is_cut:
                break
        assert best is not None
        grown = time.perf_counter() - start - prepared
        # More rows carry more rounds. By time a fold trains on less and less of the past.
        more = 1 / pool.trained_share if pool.is_complete else _MORE_BY_TIME
        seconds_of_folds = prepared + grown * best.rounds * more / rounds
        refit = pool.of_all(seconds_of_folds)
        return replace(best, rounds=round(best.rounds * more), refit_seconds=refit, is_cut=is_cut)

    def _area(self, arrays: Arrays, log_odds: NDArray[np.floating]) -> float:
        y, scores, weights = _known(arrays, log_odds)
        return float(partial_auc(y, scores, self.aim.max_fpr, kind="mcclish", sample_weight=weights))

    def _evaluate(
        self, arrays: Arrays, number: int, found: _Found, seconds: float, uncaught: Sequence[str]
    ) -> TrialResult:
        """Evaluate out-of-fold log-odds and keep them."""
        start = time.perf_counter() - seconds
        try:
            # In the precision that is kept, so that the figures can be computed again from the file.
            log_odds = found.log_odds.astype(np.float32)
            if not np.isfinite(log_odds[~_unseen(arrays)]).all():
                raise ValueError("its scores are not finite")
            y, scores, weights = _known(arrays, log_odds)
            area = self._area(arrays, log_odds)
            recall = recall_at_fpr(y, scores, self.aim.fpr, sample_weight=weights)
        except Exception as error:
            return _failure(error, start)
        digest = write_scores(self.folder, number, log_odds)
        messages = tuple(dict.fromkeys(_one_line(text) for text in (*found.warnings, *uncaught)))
        total = time.perf_counter() - start
        return TrialResult(
            area,
            float(recall),
            total,
            found.rounds,
            found.refit_seconds,
            "",
            messages,
            digest,
            found.is_cut,
        )


@dataclass(frozen=True, eq=False)
class _Found:
    log_odds: Floats
    rounds: int
    refit_seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    is_cut: bool = False


class _Pool:
    """Out-of-fold log-odds of all folds together; the mean where several folds hold a row out."""

    def __init__(self, arrays: Arrays) -> None:
        self._tests = [arrays[f"test-{fold}"] for fold in _folds(arrays)]
        self._sum = np.zeros(len(arrays["y"]))
        self._count = np.zeros(len(arrays["y"]))
        for test in self._tests:
            self._count[test] += 1
        trained = sum(len(arrays[f"train-{fold}"]) for fold in _folds(arrays))
        self.n_folds = len(self._tests)
        self.trained_share = trained / self.n_folds / len(self._sum)
        self.is_complete = bool(self._count.min() > 0)

    def add(self, fold: int, log_odds: Floats) -> None:
        self._sum[self._tests[fold]] += log_odds

    def clear(self) -> None:
        self._sum[:] = 0.0

    def mean(self) -> Floats:
        """Return the log-odds; rows of no fold, such as the earliest ones of a split by time, are NaN."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self._count > 0, self._sum / self._count, np.nan)

    def of_all(self, seconds: float) -> float:
        """Estimate the seconds of a fit to all rows from those of all folds."""
        return seconds / self.n_folds / self.trained_share


def _folds(arrays: Arrays) -> range:
    return range(sum(name.startswith("test-") for name in arrays))


def _rows(arrays: Arrays, name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return matrix, labels and weights of the rows that an array names."""
    rows, weights = arrays[name], arrays.get("weights")
    return arrays["X"][rows], arrays["y"][rows], None if weights is None else weights[rows]


def _known(
    arrays: Arrays, log_odds: NDArray[np.floating]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return labels, log-odds and weights of the rows that a fold held out."""
    known = ~np.isnan(log_odds)
    weights = arrays.get("weights")
    # One weight per class leaves both rates unchanged, and partial AUC is faster without.
    if weights is not None and all(np.ptp(weights[arrays["y"] == label]) == 0 for label in (0, 1)):
        weights = None
    return arrays["y"][known], log_odds[known], None if weights is None else weights[known]


def _unseen(arrays: Arrays) -> NDArray[np.bool_]:
    """Return which rows no fold holds out."""
    unseen = np.ones(len(arrays["y"]), dtype=bool)
    for fold in _folds(arrays):
        unseen[arrays[f"test-{fold}"]] = False
    return unseen


def _step(rounds: int) -> int:
    """Return the rounds to the next look: a look costs about as much as a round or two.

    >>> [_step(rounds) for rounds in (0, 100, 600)]
    [10, 20, 50]
    """
    return 10 if rounds < 100 else 20 if rounds < 500 else 50


def _failure(error: Exception, start: float) -> TrialResult:
    message = _one_line(str(error)) or type(error).__name__
    return TrialResult(float("nan"), float("nan"), time.perf_counter() - start, message=message)


def _one_line(text: str) -> str:
    return " ".join(text.split())
