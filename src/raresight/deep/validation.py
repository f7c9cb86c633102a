"""Validation rows: which rows are held out of training, and how the scores of nets on them are evaluated.

Copies of a row stay on one side of every split, or a copy would validate a net that was trained on it. The
row hash of `raresight.common.row_groups` finds the copies. Which copies are held out is decided here: groups
differ in size. Drawn blindly, one group with thousands of copies would be most of the validation rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..common.row_groups import copies_of
from ..losses import Loss
from ..metrics import partial_auc
from ..nn import Replicas
from .encoding import numbers_and_codes
from .ensemble_scores import score_rows
from .net_calibration import NetScores, mean_log_probability

__all__ = ["MIN_VALIDATION_ROWS", "Validation", "hold_out", "split_groups"]

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

# By default rows are held out where that gives this many rows of each class. With fewer, the largest of some
# tens of partial AUCs is mostly luck. In benchmarks/measure_early_stopping.py cross-validation is better with
# 20 held-out positives. With 80 it is as good, but takes three times as long.
MIN_VALIDATION_ROWS = 80


@dataclass(frozen=True, eq=False)
class Validation:
    """Coded rows with labels, and the metric by which nets are compared on them.

    - Two classes: the standardised partial AUC (McClish) up to `max_fpr` of the class `event`.
    - More classes: the mean log-probability of the true class. The losses themselves cannot be compared with
      each other.
    """

    inputs: NDArray[np.float32]
    codes: Codes
    weights: Floats | None
    max_fpr: float
    event: int = 1

    def evaluate(self, replicas: Replicas, frozen: NDArray[np.bool_]) -> Floats:
        """Return the metric of each replica; NaN for frozen ones and where a score is not finite."""
        scores = score_rows(replicas, torch.from_numpy(self.inputs))
        metrics = np.full(len(replicas), np.nan)
        for k in np.flatnonzero(~frozen):
            metrics[k] = self.metric(replicas.losses[k], scores[k])
        return metrics

    def metric(self, loss: Loss, scores: NDArray[Any]) -> float:
        """Return the metric of raw scores, larger is better."""
        if not np.isfinite(scores).all():
            return float("nan")
        if scores.ndim == 1:
            signed = scores if self.event == 1 else -scores
            return partial_auc(self.codes == self.event, signed, self.max_fpr, sample_weight=self.weights)
        rows = NetScores(scores, self.codes, self.weights)
        return mean_log_probability(loss.log_posterior(scores), rows)

    def scored(self, scores: NDArray[Any]) -> NetScores:
        """Return the rows of positive weight, with their scores."""
        if self.weights is None:
            return NetScores(scores, self.codes, None)
        kept = self.weights > 0
        return NetScores(scores[kept], self.codes[kept], self.weights[kept])


def split_groups(table: Any, codes: Codes, categorical: Sequence[int]) -> Codes | None:
    """Return the same number for all copies of a row; None where rows can be split one by one.

    See `raresight.common.row_groups.copies_of`.

    >>> X, y = np.array([[1.0], [2.0], [1.0], [3.0]]), np.array([0, 0, 0, 1])
    >>> groups = split_groups(X, y, [])
    >>> bool(groups[0] == groups[2]), split_groups(X[1:], y[1:], [])
    (True, None)
    """
    return copies_of(numbers_and_codes(table, categorical), codes)


def hold_out(
    codes: Codes,
    early_stopping: Any,
    fraction: float,
    random: np.random.RandomState,
    groups: Codes | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Split rows into training and validation at random, class by class; None where nothing is held out.

    Rows with the same number in `groups` are of one class and stay on one side. Groups are then counted
    instead of rows, also against `MIN_VALIDATION_ROWS`. Each side gets at least one group of each class.
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
        copies = "" if groups is None else ", copies counted once"
        raise ValueError(
            f"early_stopping holds out rows of every class, but one class has {counts.min()} of "
            f"them{copies}: pass eval_set=(X, y) to fit, or early_stopping=False"
        )
    inside = np.zeros(len(codes), dtype=bool)
    for k, n in enumerate(held):
        own = np.flatnonzero(codes == k)
        if groups is None:
            inside[random.permutation(own)[:n]] = True
        else:
            inside[own] = _draw_groups(groups[own], int(n), fraction, random)
    return np.flatnonzero(~inside), np.flatnonzero(inside)


def _draw_groups(
    groups: Codes, number: int, fraction: float, random: np.random.RandomState
) -> NDArray[np.bool_]:
    """Mark the rows of `number` groups drawn at random, with about the given fraction of the rows."""
    _, places, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = random.permutation(len(sizes))
    order = order[np.argsort(sizes[order], kind="stable")]
    # A group with more rows than the fraction of all would be most of the validation rows.
    light = order[sizes[order] <= fraction * len(groups)]
    if not len(light):
        light = order[:1]
    # Systematic sampling in the order of size draws small and large groups in their shares. So the number of
    # rows is right as well as the number of groups.
    count = min(number, len(light))
    drawn = light[((np.arange(count) + random.random_sample()) * (len(light) / count)).astype(np.intp)]
    return np.isin(places.ravel(), drawn)
