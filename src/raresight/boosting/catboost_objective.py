"""A loss as CatBoost's custom objective."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..losses import Loss

_FLOOR = 1e-16


class CatBoostObjective:
    """`calc_ders_range` for a binary score and `calc_ders_multi` for class logits.

    CatBoost climbs: it wants the derivatives of minus the loss, and calls for pieces of the data.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def __repr__(self) -> str:
        return f"objective({str(self.loss)!r}, 'catboost')"

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> list[tuple[float, float]]:
        """(first, second) derivative of minus the weighted loss, a pair a row."""
        n = len(targets)
        scores = np.fromiter(approxes, dtype=np.float64, count=n)
        labels = np.fromiter(targets, dtype=np.float64, count=n)
        _, slope, bend = self.loss.derivatives(scores, labels)
        bend = np.maximum(bend, _FLOOR)
        if weights is not None and len(weights) > 0:
            weight = np.fromiter(weights, dtype=np.float64, count=n)
            slope, bend = slope * weight, bend * weight
        return list(zip((-slope).tolist(), (-bend).tolist()))

    def calc_ders_multi(self, approxes: Any, target: float, weight: float) -> tuple[list[float], Any]:
        """Gradient and Hessian matrix of minus the weighted loss of one row of class logits."""
        scores = np.array(list(approxes), dtype=np.float64)[None, :]
        label = np.array([int(target)])
        slope = self.loss.gradient(scores, label)[0]
        matrix = self.loss.hessian_matrix(scores, label)[0]
        return (-weight * slope).tolist(), (-weight * matrix).tolist()
