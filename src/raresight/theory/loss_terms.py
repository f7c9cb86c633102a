"""A loss as the minimisers of linear rules read it: its branches, and its best constant score."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from ..losses._numpy_ops import NumpyOps
from .linear_rule import Floats


def check_loss(loss: Loss) -> None:
    """A risk of a linear score needs a loss of a binary score with one best score a point."""
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a loss of raresight.losses, got {loss!r}")
    if not loss.takes_score:
        raise ValueError(f"{loss} is for {loss.n_classes} class logits; a linear rule has a binary score")
    if not loss.has_unique_minimiser:
        raise ValueError(
            f"{loss} has no unique minimiser: its link log l'(0, z) - log(-l'(1, z)) does not increase "
            "strictly with the score, so the best score of a point is not determined"
        )


def branch(loss: Loss, z: Floats, label: int) -> tuple[Floats, Floats, Floats]:
    """Value and two derivatives of l(label, z), refusing what is not a number."""
    with NumpyOps.guard():
        value, slope, bend = loss._branch(NumpyOps, z, label, 2)
        refuse_nan(loss, z, np.full(z.shape, label), value + slope + bend)
    return value, slope, bend


def refuse_nan(loss: Loss, z: Floats, labels: NDArray[Any], total: Floats) -> None:
    missing = np.isnan(total)
    if missing.any():
        where = int(np.argmax(missing))
        raise ValueError(
            f"{loss} or a derivative of it is NaN at z = {z[where]:.6g}, y = {int(labels[where])}; write it "
            "so that large scores do not overflow (softplus or logsigmoid, not the log of a probability)"
        )


def constant_score(loss: Loss, log_rho: float) -> float:
    """The best score that ignores x: rho l'(1, b) + l'(0, b) = 0."""
    try:
        score = float(loss.score(log_rho))
    except RuntimeError:  # the link of a loss that is not monotone exists on an interval only
        score = math.nan
    if math.isfinite(score):
        negative, positive = _constant_slopes(loss, score, log_rho)
        if abs(negative + positive) <= 1e-6 * (abs(negative) + abs(positive)):
            return score
    return _bisect_constant(loss, log_rho)


def _constant_slopes(loss: Loss, score: float, log_rho: float) -> tuple[float, float]:
    z = np.array([score])
    return float(branch(loss, z, 0)[1][0]), math.exp(log_rho) * float(branch(loss, z, 1)[1][0])


def _bisect_constant(loss: Loss, log_rho: float) -> float:
    def slope(score: float) -> float:
        return sum(_constant_slopes(loss, score, log_rho))

    reach = 1.0
    while not (slope(-reach) < 0 < slope(reach)):
        reach *= 2
        if reach > 1e4:
            raise RuntimeError(
                f"{loss}: no constant score balances the two classes at log-odds {log_rho:.6g}"
            )
    low, high = -reach, reach
    for _ in range(200):
        middle = (low + high) / 2
        if slope(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
