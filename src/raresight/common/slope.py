"""Slope and level of log-odds, by rows that training did not see.

A model that overfits is surer of its rows than it may be, one that stopped early less. Both are mended by

    l' = a l + c,    a > 0

with the largest

    mean over rows of log p_y(a l + c)  -  (log a)^2 / (2 N)

with weighted means: logistic regression on the log-odds (Cox 1958, Platt 1999). N times this is, but for a
constant, the logarithm of the density of a, given N rows and log a ~ N(0, 1), so that a few rows move it
little. For every a the best c makes the mean probability the share of positives. Ranks stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from .level import level_shift
from .posterior import two_columns

__all__ = ["Calibration", "calibration_of", "evidence"]

Array = np.ndarray[Any, Any]

# Tried for log a, and how near to the best is near enough.
_TRIED = np.linspace(-3.0, 3.0, 13)
_NEAR = 1e-4
# Links may call an event impossible: one such row is not to outweigh all others.
_LARGEST = 700.0


@dataclass(frozen=True)
class Calibration:
    """l' = slope l + level."""

    slope: float = 1.0
    level: float = 0.0


def calibration_of(log_odds: Array, codes: Array, weights: Array | None = None) -> Calibration:
    """The slope and the level of rows with class numbers 0 and 1 and weights above 0, or None for equal ones.

    The slope is between 1/33 and 33. Rows of one class alone tell nothing: they get the slope 1 and the
    level 0.

    >>> z = np.random.default_rng(0).normal(size=4000) * 2 - 2
    >>> y = (np.random.default_rng(1).random(4000) < 1 / (1 + np.exp(-z))).astype(int)
    >>> found = calibration_of(4 * z - 3, y)
    >>> round(found.slope, 2), round(found.level, 2)
    (0.25, 0.79)
    """
    sums = np.bincount(codes, weights, minlength=2)
    if sums.min() == 0:
        return Calibration()
    odds = np.clip(log_odds.astype(np.float64), -_LARGEST, _LARGEST)
    shares, worth = sums / sums.sum(), evidence(codes, weights)

    def level(slope: float) -> float:
        return float(level_shift(two_columns(slope * odds), shares, weights, tell=False)[1])

    def cost(log_slope: float) -> float:
        slope = float(np.exp(log_slope))
        moved = slope * odds + level(slope)
        unlikely = np.logaddexp(0.0, np.where(codes == 1, -moved, moved))
        return float(np.average(unlikely, weights=weights) + log_slope**2 / (2 * worth))

    near = _TRIED[int(np.argmin([cost(log_slope) for log_slope in _TRIED]))]
    step = _TRIED[1] - _TRIED[0]
    found = minimize_scalar(
        cost, bounds=(near - step, near + step), method="bounded", options={"xatol": _NEAR}
    )
    slope = float(np.exp(found.x))
    return Calibration(slope, level(slope))


def evidence(codes: Array, weights: Array | None) -> float:
    """The number of rows that weighted rows are worth together, where a slope is to be found.

    Of rows without weights it is their number. Of weights only the proportions count:

        N = n_k W / W_k,    n_k = (sum of w)^2 / (sum of w^2)  over the rows of class k

    with W the sum of all weights, W_k that of class k, and k the class with the least n_k (Kish's effective
    number of rows): as much as that class can tell, because the rarest class decides how well a slope is
    known.

    >>> evidence(np.array([0, 0, 0, 0, 1, 1]), np.array([4.0, 4, 4, 4, 2, 2]))
    10.0
    """
    if weights is None:
        return float(len(codes))
    found = []
    for k in np.unique(codes):
        own = weights[codes == k]
        part = own / own.max()  # the squares of tiny weights are zero
        number, share = part.sum() ** 2 / (part**2).sum(), own.sum() / weights.sum()
        with np.errstate(divide="ignore", over="ignore"):
            found.append((number, number / share))
    return float(min(found)[1])
