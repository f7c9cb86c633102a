r"""Variance and skewness of the AUC by placements (DeLong, DeLong and Clarke-Pearson 1988).

Let :math:`V_i` be the share of negatives below positive i, and :math:`W_j` the share of positives above
negative j; ties count one half. The AUC is the mean of either, and its variance is
:math:`s^2_V / n_1 + s^2_W / n_0`. All negatives between two positives have the same :math:`W`. So the steps
are enough, and no array of the size of the data is sorted or stored.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from raresight.metrics._roc_steps import RocSteps

Floats = NDArray[np.float64]


class Spread(NamedTuple):
    """Variance and skewness of an estimate."""

    variance: float
    skewness: float


def auc_spread(steps: RocSteps) -> Spread:
    """Return the spread of the AUC of unweighted rows."""
    below = 1 - (steps.above + steps.through) / (2 * steps.negatives)
    before = steps.caught - steps.gain
    # Negatives with equally many positives above them: runs between steps, groups tied with a step, the rest.
    tied = steps.through - steps.above
    runs = np.diff(np.concatenate([[0.0], steps.through])) - tied
    counts = np.concatenate([runs, tied, [steps.negatives - steps.through[-1]]])
    above = np.concatenate([before, before + steps.gain / 2, [steps.positives]]) / steps.positives
    # W enters as its complement, because a positive that is not above a negative lowers the AUC.
    # The two means are independent, so their variances and third moments add.
    parts = [_moments_of_mean(below, steps.gain), _moments_of_mean(1 - above, counts)]
    variance = sum(part[0] for part in parts)
    # Skewness is the third moment over the variance to 3/2.
    third = sum(part[1] for part in parts)
    return Spread(variance, third / variance**1.5 if variance > 0 else 0.0)


def _moments_of_mean(values: Floats, counts: Floats) -> tuple[float, float]:
    """Return variance and third central moment of the mean of at least two values with counts."""
    total = float(np.sum(counts))
    apart = values - float(np.sum(values * counts)) / total
    variance = float(np.sum(counts * np.square(apart))) / (total - 1)
    third = float(np.sum(counts * apart**3)) / total
    return variance / total, third / total**2


def end_with_unseen(estimate: float, spread: Spread, positives: float, level: float) -> float:
    """Return the lower end if a twentieth of an unseen positive ranks below everything.

    An AUC near 1 depends on the few positives that rank low. A sample may contain none of them, and then
    shows nothing of how low the AUC may be. The unseen share is Beta(1/20, n_1) and the rest is normal. The
    quantile is taken over a grid of both. The twentieth is the smallest of five shares tried, from 1/20 to
    1/2. All five kept the coverage on simulated normal classes with a hundred positives.
    """
    from scipy.special import betaincinv, ndtri

    # Each distribution is replaced by its quantiles at the midpoints of 400 equal shares.
    grid = (np.arange(400) + 0.5) / 400
    unseen = betaincinv(0.05, positives, grid)
    seen = estimate + np.sqrt(spread.variance) * ndtri(grid)
    return float(np.quantile(np.outer(1 - unseen, seen), (1 - level) / 2))


def skewed_interval(estimate: float, spread: Spread, quantile: float) -> tuple[float, float]:
    r"""Return the two-sided interval of a mean, corrected for skewness (Hall 1992).

    :math:`T = (\hat\theta - \theta)/s` is far from normal if most terms are equal and a few are not. Its
    cubic :math:`g(T) = T + \tfrac{\gamma}{3}T^2 + \tfrac{\gamma^2}{27}T^3 + \tfrac{\gamma}{6}` is monotone,
    and it is normal to the next order. The ends are :math:`\hat\theta - s\,g^{-1}(\pm z)`.
    """
    slope = spread.skewness / 3
    targets = np.array([quantile, -quantile])
    # Without skewness the inverse of the cubic would be 0/0.
    if abs(slope) < 1e-9:
        deviations = targets
    else:
        deviations = (np.cbrt(1 + 3 * slope * (targets - spread.skewness / 6)) - 1) / slope
    low, high = estimate - np.sqrt(spread.variance) * deviations
    return float(low), float(high)


def skewed_p_value(estimate: float, spread: Spread) -> float:
    """Return the two-sided p-value of an estimate against zero.

    It uses the transformation of `skewed_interval`, so it is below 1 - level where the interval excludes
    zero. Far out in the tail the cubic is too optimistic. Below 0.01 the plain normal p-value is therefore a
    lower limit, up to 0.01.
    """
    from scipy.special import ndtr

    if spread.variance <= 0:
        return 1.0 if estimate == 0 else 0.0
    t, gamma = estimate / np.sqrt(spread.variance), spread.skewness
    corrected = 2 * ndtr(-abs(t + gamma / 3 * t**2 + gamma**2 / 27 * t**3 + gamma / 6))
    plain = 2 * ndtr(-abs(t))
    return float(corrected if corrected > 0.01 else max(corrected, min(plain, 0.01)))
