"""Calibration of nets: the slope by rows that training did not see, the levels by the rows of `fit`.

The best epoch is chosen by a ranking, which is often right long before the scores are large enough: a net
that stops after its first epoch may rank well and give every row nearly the same probability. So the slope of
`raresight.common.calibration` matters more for nets than for other families.
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
    "carried_over",
    "held_out_slope",
    "mean_log_probability",
    "net_calibrator",
]

Floats = NDArray[np.float64]

# Rows of a class by which the calibration of an epoch is found: it is found anew after each epoch.
_MOST_ROWS = 10_000
# The logarithm of the smallest normal float: as unlikely as what is impossible may be.
_LEAST = float(np.log(np.finfo(np.float64).tiny))


@dataclass(frozen=True, eq=False)
class NetScores:
    """Raw scores, (n,) or (n, K), with class numbers, and weights above 0 or None for equal ones."""

    scores: NDArray[Any]
    codes: NDArray[np.int64]
    weights: Floats | None

    @property
    def is_finite(self) -> bool:
        """Whether every score is a finite number."""
        return bool(np.isfinite(self.scores).all())

    def at(self, places: NDArray[np.intp]) -> NetScores:
        """Those rows alone."""
        weights = None if self.weights is None else self.weights[places]
        return NetScores(self.scores[places], self.codes[places], weights)


def held_out_slope(loss: Loss, held: NetScores) -> float:
    """The slope under which held-out rows are most probable; 1 where a score is not finite.

    >>> from raresight.losses import parse
    >>> z = np.random.default_rng(0).normal(size=4000) * 2 - 2
    >>> y = (np.random.default_rng(1).random(4000) < 1 / (1 + np.exp(-z))).astype(np.int64)
    >>> round(held_out_slope(parse("crossentropy"), NetScores(z / 8, y, None)))
    8
    """
    if not held.is_finite:
        return 1.0
    return held_out_calibrator(loss.log_posterior(held.scores), held.codes, held.weights).slope


def carried_over(loss: Loss, slope: float, before: NetScores, after: NetScores) -> float:
    """The slope for nets that were trained again, from that of the nets before them.

    Longer training makes scores larger, so that rows that both were trained on get the same spread. No row is
    left that the new nets have not seen, by which their slope could be found.

    >>> from raresight.losses import parse
    >>> z, y = np.array([-1.0, 0.0, 2.0]), np.array([0, 0, 1])
    >>> before, after = NetScores(z, y, None), NetScores(3 * z + 5, y, None)
    >>> round(carried_over(parse("crossentropy"), 6.0, before, after), 6)
    2.0
    """
    if not (before.is_finite and after.is_finite):
        return slope
    spreads = _spread(loss, before), _spread(loss, after)
    if not (np.isfinite(spreads).all() and min(spreads) > 0):
        return slope
    return slope * spreads[0] / spreads[1]


def net_calibrator(loss: Loss, rows: NetScores, shares: Floats, slope: float) -> Calibrator:
    """The calibrator with this slope that makes the mean probabilities of rows the class shares.

    Warns with a ConvergenceWarning where there is none.
    """
    steeper = Calibrator(slope, (0.0,) * (len(shares) - 1))
    if not rows.is_finite:
        warnings.warn(
            "the nets score some rows with numbers that are not finite, so that their probabilities cannot "
            "be calibrated: lower learning_rate",
            ConvergenceWarning,
            stacklevel=4,
        )
        return steeper
    log_posterior = steeper.log_posterior(loss.log_posterior(rows.scores))
    return steeper.then(level_calibrator(log_posterior, shares, rows.weights))


def calibrated_likelihood(loss: Loss, rows: NetScores, shares: Floats, *, with_slope: bool) -> float:
    """The mean log-probability of the true class under the calibrator of the rows themselves.

    Weighted; NaN where a score is not finite. With the level alone unless `with_slope`.

    >>> from raresight.losses import parse
    >>> z, y = np.repeat([[-1.0, -0.5, 0.5, 1.0], [0, 0, 0, 1]], 100, axis=1)
    >>> rows = NetScores(z / 100, y.astype(np.int64), None)
    >>> loss, shares = parse("crossentropy"), np.array([0.75, 0.25])
    >>> [round(calibrated_likelihood(loss, rows, shares, with_slope=s), 2) for s in (False, True)]
    [-0.56, -0.0]
    """
    if not rows.is_finite:
        return float("nan")
    some = _thinned(rows, len(shares))
    log_posterior = loss.log_posterior(some.scores)
    if with_slope:
        calibrator = held_out_calibrator(log_posterior, some.codes, some.weights)
    else:
        calibrator = level_calibrator(log_posterior, shares, some.weights, warn=False)
    return mean_log_probability(calibrator.log_posterior(loss.log_posterior(rows.scores)), rows)


def mean_log_probability(log_posterior: Floats, rows: NetScores) -> float:
    """Of the true class of each row, but at least that of the smallest float.

    There are links that call an event impossible: one such row is not to outweigh all others.
    """
    log_p = log_posterior[np.arange(len(rows.codes)), rows.codes]
    return float(np.average(np.maximum(log_p, _LEAST), weights=rows.weights))


def _spread(loss: Loss, rows: NetScores) -> float:
    """The standard deviation of the log-posteriors around each row's mean."""
    log_posterior = loss.log_posterior(rows.scores)
    relative = log_posterior - log_posterior.mean(axis=1, keepdims=True)
    centred = relative - np.average(relative, axis=0, weights=rows.weights)
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.average(centred**2, axis=0, weights=rows.weights).mean()))


def _thinned(rows: NetScores, n_classes: int) -> NetScores:
    """Fewer rows of each class in its place where there are many, with the weights of those left out.

    So the sums of weights stay, and of two classes nearly all sums over rows of what is smooth in the score.
    """
    if len(rows.codes) <= n_classes * _MOST_ROWS:
        return rows
    weights = np.ones(len(rows.codes)) if rows.weights is None else rows.weights
    parts = [_stand_ins(rows, weights, k) for k in np.unique(rows.codes)]
    chosen = np.concatenate([places for places, _ in parts])
    return NetScores(rows.scores[chosen], rows.codes[chosen], np.concatenate([sums for _, sums in parts]))


def _stand_ins(rows: NetScores, weights: Floats, k: int) -> tuple[NDArray[np.intp], Floats]:
    """Rows of class k in the order of the score, and the weights of those that each stands for.

    A quarter of them are the lowest, each for itself, and a quarter the highest, because the few rows at the
    ends may have most of a rare class's probability. The others are the middle ones of groups of equal
    length.
    """
    places = np.flatnonzero(rows.codes == k)
    if len(places) <= _MOST_ROWS:
        return places, weights[places]
    own = rows.scores[places] if rows.scores.ndim == 1 else rows.scores[places, k]
    order = places[np.argsort(own, kind="stable")]
    n, end = len(order), _MOST_ROWS // 4
    middle = np.linspace(end, n - end, _MOST_ROWS - 2 * end, endpoint=False).astype(np.intp)
    starts = np.concatenate([np.arange(end), middle, np.arange(n - end, n)])
    lengths = np.diff(np.append(starts, n))
    return order[starts + (lengths - 1) // 2], np.add.reduceat(weights[order], starts)
