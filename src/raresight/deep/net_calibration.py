"""Calibration of nets: the slope by rows that training did not see, the level by the rows of `fit`.

Calibrated log-odds are slope * log-odds + level. The level is the intercept: one number for two classes, one
for each class but the first for more. See `raresight.common.calibration`.

The slope matters more for nets than for other families. The best epoch is chosen by a ranking, which is often
right long before the scores are large enough. A net that stops after its first epoch may rank well and give
every row nearly the same probability.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..common.calibration import Calibrator, held_out_calibrator, level_calibrator
from ..losses import Loss

__all__ = [
    "NetScores",
    "calibrated_likelihood",
    "held_out_slope",
    "mean_log_probability",
    "net_calibrator",
    "slope_after_refit",
]

Floats = NDArray[np.float64]

# The most rows of a class for the calibration after an epoch, which is repeated for every loss and epoch.
_MOST_ROWS = 10_000
# The logarithm of the smallest normal float, for events that a link calls impossible.
_LEAST = float(np.log(np.finfo(np.float64).tiny))


@dataclass(frozen=True, eq=False)
class NetScores:
    """Raw scores, (n,) or (n, K), with class numbers, and weights above 0 or None for equal ones."""

    scores: NDArray[Any]
    codes: NDArray[np.int64]
    weights: Floats | None

    @property
    def is_finite(self) -> bool:
        """Whether every score is finite."""
        return bool(np.isfinite(self.scores).all())

    def at(self, places: NDArray[np.intp]) -> NetScores:
        """Return the rows at some places."""
        weights = None if self.weights is None else self.weights[places]
        return NetScores(self.scores[places], self.codes[places], weights)


def held_out_slope(loss: Loss, held: NetScores) -> float:
    """Return the slope under which held-out rows are most probable; 1 where a score is not finite.

    >>> from raresight.losses import parse
    >>> z = np.random.default_rng(0).normal(size=4000) * 2 - 2
    >>> y = (np.random.default_rng(1).random(4000) < 1 / (1 + np.exp(-z))).astype(np.int64)
    >>> round(held_out_slope(parse("crossentropy"), NetScores(z / 8, y, None)))
    8
    """
    if not held.is_finite:
        return 1.0
    return held_out_calibrator(loss.log_posterior(held.scores), held.codes, held.weights).slope


def slope_after_refit(loss: Loss, slope: float, before: NetScores, after: NetScores) -> float:
    """Return the slope of refitted nets, from the slope of the nets before them.

    The calibrated log-odds of the rows that both trainings saw get the same spread. `before` and `after` are
    these rows with the scores of both trainings.

    >>> from raresight.losses import parse
    >>> z, y = np.array([-1.0, 0.0, 2.0]), np.array([0, 0, 1])
    >>> before, after = NetScores(z, y, None), NetScores(3 * z + 5, y, None)
    >>> round(slope_after_refit(parse("crossentropy"), 6.0, before, after), 6)
    2.0
    """
    # The refit saw all rows, so that none is left to find its slope by. Its scores may still be larger: more
    # rows mean more steps. Matching the spread corrects for that.
    if not (before.is_finite and after.is_finite):
        return slope
    spreads = _spread(loss, before), _spread(loss, after)
    if not (np.isfinite(spreads).all() and min(spreads) > 0):
        return slope
    return slope * spreads[0] / spreads[1]


def net_calibrator(loss: Loss, rows: NetScores, shares: Floats, slope: float) -> Calibrator:
    """Return the calibrator with this slope, and the level that makes mean probabilities the class shares.

    Warns with a ConvergenceWarning where no such level exists.
    """
    steeper = Calibrator(slope, (0.0,) * (len(shares) - 1))
    if not rows.is_finite:
        warnings.warn(
            "some scores of the nets are not finite, so that probabilities cannot be calibrated: lower "
            "learning_rate",
            ConvergenceWarning,
            stacklevel=4,
        )
        return steeper
    log_posterior = steeper.log_posterior(loss.log_posterior(rows.scores))
    return steeper.then(level_calibrator(log_posterior, shares, rows.weights))


def calibrated_likelihood(loss: Loss, rows: NetScores, shares: Floats, *, with_slope: bool) -> float:
    """Return the weighted mean log-probability of the true class after calibration on the same rows.

    NaN where a score is not finite. Without `with_slope` only the level is calibrated.

    >>> from raresight.losses import parse
    >>> z, y = np.repeat([[-1.0, -0.5, 0.5, 1.0], [0, 0, 0, 1]], 100, axis=1)
    >>> rows = NetScores(z / 100, y.astype(np.int64), None)
    >>> loss, shares = parse("crossentropy"), np.array([0.75, 0.25])
    >>> [round(calibrated_likelihood(loss, rows, shares, with_slope=s), 2) for s in (False, True)]
    [-0.56, -0.0]
    """
    if not rows.is_finite:
        return float("nan")
    some = _subsample(rows, len(shares))
    log_posterior = loss.log_posterior(some.scores)
    if with_slope:
        calibrator = held_out_calibrator(log_posterior, some.codes, some.weights)
    else:
        calibrator = level_calibrator(log_posterior, shares, some.weights, warn=False)
    return mean_log_probability(calibrator.log_posterior(loss.log_posterior(rows.scores)), rows)


def mean_log_probability(log_posterior: Floats, rows: NetScores) -> float:
    """Return the weighted mean log-probability of the true class."""
    # Some links call an event impossible. A single such row must not outweigh all others.
    log_p = log_posterior[np.arange(len(rows.codes)), rows.codes]
    return float(np.average(np.maximum(log_p, _LEAST), weights=rows.weights))


def _spread(loss: Loss, rows: NetScores) -> float:
    """Return the standard deviation of the log-posteriors around each row's mean."""
    log_posterior = loss.log_posterior(rows.scores)
    relative = log_posterior - log_posterior.mean(axis=1, keepdims=True)
    centred = relative - np.average(relative, axis=0, weights=rows.weights)
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.average(centred**2, axis=0, weights=rows.weights).mean()))


def _subsample(rows: NetScores, n_classes: int) -> NetScores:
    """Return at most `_MOST_ROWS` rows of each class, weighted for those that are left out.

    The sums of weights stay the same. For two classes nearly all weighted sums of smooth functions of the
    score do, too.
    """
    if len(rows.codes) <= n_classes * _MOST_ROWS:
        return rows
    weights = np.ones(len(rows.codes)) if rows.weights is None else rows.weights
    parts = [_representatives(rows, weights, k) for k in np.unique(rows.codes)]
    chosen = np.concatenate([places for places, _ in parts])
    return NetScores(rows.scores[chosen], rows.codes[chosen], np.concatenate([sums for _, sums in parts]))


def _representatives(rows: NetScores, weights: Floats, k: int) -> tuple[NDArray[np.intp], Floats]:
    """Choose rows of class k in the order of the score, with the total weight that each represents."""
    places = np.flatnonzero(rows.codes == k)
    if len(places) <= _MOST_ROWS:
        return places, weights[places]
    own = rows.scores[places] if rows.scores.ndim == 1 else rows.scores[places, k]
    order = places[np.argsort(own, kind="stable")]
    n, end = len(order), _MOST_ROWS // 4
    # A quarter of the rows are those with the lowest scores and a quarter those with the highest, because a
    # few rows at the ends may hold most of the probability of a rare class. The others are the middles of
    # groups of equal length.
    middle = np.linspace(end, n - end, _MOST_ROWS - 2 * end, endpoint=False).astype(np.intp)
    starts = np.concatenate([np.arange(end), middle, np.arange(n - end, n)])
    lengths = np.diff(np.append(starts, n))
    return order[starts + (lengths - 1) // 2], np.add.reduceat(weights[order], starts)
