"""Rows that training does not see, by which the best epoch and the best loss are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..common.row_groups import row_groups
from ..losses import Loss
from ..metrics import partial_auc
from ..nn import Replicas
from .encoding import numbers_and_codes
from .net_calibration import NetScores, mean_log_probability
from .scoring import score_rows

__all__ = ["MIN_VALIDATION_ROWS", "Validation", "hold_out", "split_groups"]

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

# Rows are held out by default where that gives so many of each class. With fewer the largest of some tens of
# partial AUCs is the luckiest one. By benchmarks/measure_early_stopping.py parts that take turns are better
# with 20 held-out positives and as good with 80, where they take three times as long.
MIN_VALIDATION_ROWS = 80


@dataclass(frozen=True, eq=False)
class Validation:
    """Coded rows with labels, and how scores of them are judged.

    Two classes: the partial AUC up to `max_fpr` (McClish's) of the class `event`. More: the mean logarithm of
    the probability of the true class, which is comparable between losses as the losses themselves are not.
    """

    inputs: NDArray[np.float32]
    codes: Codes
    weights: Floats | None
    max_fpr: float
    event: int = 1

    def judge(self, replicas: Replicas, frozen: NDArray[np.bool_]) -> Floats:
        """The merit of each replica, NaN where a score is not finite and for those that are frozen."""
        scores = score_rows(replicas, torch.from_numpy(self.inputs))
        merits = np.full(len(replicas), np.nan)
        for k in np.flatnonzero(~frozen):
            merits[k] = self.merit(replicas.losses[k], scores[k])
        return merits

    def merit(self, loss: Loss, scores: NDArray[Any]) -> float:
        """The larger the better."""
        if not np.isfinite(scores).all():
            return float("nan")
        if scores.ndim == 1:
            signed = scores if self.event == 1 else -scores
            return partial_auc(self.codes == self.event, signed, self.max_fpr, sample_weight=self.weights)
        rows = NetScores(scores, self.codes, self.weights)
        return mean_log_probability(loss.log_posterior(scores), rows)

    def scored(self, scores: NDArray[Any]) -> NetScores:
        """The rows that count, with their scores."""
        if self.weights is None:
            return NetScores(scores, self.codes, None)
        kept = self.weights > 0
        return NetScores(scores[kept], self.codes[kept], self.weights[kept])


def split_groups(table: Any, codes: Codes, categorical: Sequence[int]) -> Codes | None:
    """Numbers by which copies of a row stay on one side of a split; None where rows are split one by one.

    Otherwise a copy would judge a net that was trained on it. Nor is a copy evidence of its own.

    In a table of counts, however, with a few columns of categories, equal rows are independent draws. Such a
    table is known by rows that are the same in different classes, which neither records that were entered
    twice nor resampling make: of the class with the fewest distinct rows at least half are rows of another
    class, too, and those of the class with the most come twice and more on average.

    >>> X, y = np.array([[1.0], [2.0], [1.0], [3.0]]), np.array([0, 0, 0, 1])
    >>> groups = split_groups(X, y, [])
    >>> bool(groups[0] == groups[2]), split_groups(X[1:], y[1:], [])
    (True, None)
    """
    X = numbers_and_codes(table, categorical)
    groups = row_groups(X, codes)
    _, first, copies = np.unique(groups, return_index=True, return_counts=True)
    if len(first) == len(codes) or _are_draws(row_groups(X)[first], codes[first], copies):
        return None
    return groups


def _are_draws(contents: Codes, codes: Codes, copies: Codes) -> bool:
    """Whether distinct rows are so few that classes share them; `contents` are numbers without the class."""
    sizes = np.bincount(codes)
    rarest, commonest = codes == np.argmin(sizes), codes == np.argmax(sizes)
    is_shared = np.isin(contents[rarest], contents[~rarest])
    return bool(is_shared.mean() >= 0.5 and copies[commonest].mean() >= 2)


def hold_out(
    codes: Codes,
    early_stopping: Any,
    fraction: float,
    random: np.random.RandomState,
    groups: Codes | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Rows for training and for validation, class by class at random; None where nothing is held out.

    Rows with the same number in `groups` are of one class and stay on one side, at least one group on each.
    Groups are then what is counted, also against `MIN_VALIDATION_ROWS`.
    """
    if early_stopping != "auto" and not early_stopping:
        return None
    units = codes if groups is None else codes[np.unique(groups, return_index=True)[1]]
    counts = np.bincount(units)
    held = np.floor(fraction * counts).astype(np.int64)
    if early_stopping == "auto" and held.min() < MIN_VALIDATION_ROWS:
        return None
    held = np.maximum(held, 1)
    if (counts - held).min() < 1:
        copies = "" if groups is None else ", copies aside"
        raise ValueError(
            f"early_stopping holds out rows of every class, but one has {counts.min()} of them{copies}: pass "
            "eval_set=(X, y) to fit, or early_stopping=False"
        )
    inside = np.zeros(len(codes), dtype=bool)
    for k, n in enumerate(held):
        own = np.flatnonzero(codes == k)
        if groups is None:
            inside[random.permutation(own)[:n]] = True
        else:
            inside[own] = _some_groups(groups[own], int(n), fraction, random)
    return np.flatnonzero(~inside), np.flatnonzero(inside)


def _some_groups(
    groups: Codes, number: int, fraction: float, random: np.random.RandomState
) -> NDArray[np.bool_]:
    """Which rows are of so many groups, drawn at random with about the fraction of the rows.

    By size, one of every few neighbours. Groups with more rows than the fraction of all are not drawn: one
    heavy row would be most of what judges. Where there are no others it is the smallest.
    """
    _, places, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = random.permutation(len(sizes))
    order = order[np.argsort(sizes[order], kind="stable")]
    light = order[sizes[order] <= fraction * len(groups)]
    if not len(light):
        light = order[:1]
    count = min(number, len(light))
    drawn = light[((np.arange(count) + random.random_sample()) * (len(light) / count)).astype(np.intp)]
    return np.isin(places.ravel(), drawn)
