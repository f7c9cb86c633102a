"""The scale of the nets' scores: a factor under which rows that training did not see are most probable.

The best epoch is chosen by a ranking, which is often right long before the scores are large enough: a net
that stops after its first epoch may rank well and hold every row for nearly as probable as any other. A
constant on its scores (`raresight.deep.level`) cannot mend that. A factor before it can:

    z' = a z + c(a),    a > 0,  one for all classes

where c(a) puts the fitted rows at the class shares. So the ranking stays, and score, decision and probability
remain one thing. The factor has the largest

    mean over held-out rows of log p_y(a z + c(a))  -  (log a)^2 / (2 N)

with weighted means: N times this is, but for a constant, the logarithm of the density of a, given N rows and
log a ~ N(0, 1). So a few rows move it little. What weighted rows are worth says `raresight.common.slope`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from ..common.posterior import log_posterior
from ..common.slope import evidence
from ..losses import Loss
from .level import at_level, find_shift, level_gap

__all__ = [
    "ScoredRows",
    "calibrated_log_probability",
    "carried_over",
    "log_probability",
    "score_scale",
]

Floats = NDArray[np.float64]

# Rows times classes that are taken for a factor that is tried: 20,000 fitted rows of two classes, for which
# the constant is searched in a dozen steps, and ten times as many held-out ones, which are scored once.
_MOST_FITTED = 40_000
_MOST_HELD = 400_000
# Of each class, whatever the number of classes.
_FEWEST_ROWS = 4
# In log a: steps towards the maximum, how many at most, and how near to it is near enough.
_STEP = 0.5
_MOST_STEPS = 20
_NEAR = 1e-3
# A level that is off by more of a class share counts as not found, and its factor as the worst there is: a
# number, with which a search by parabolas can still reckon.
_OPEN = 1e-6
_NOWHERE = -1e30
# The logarithm of the smallest normal float: as unlikely as what is impossible may be.
_LEAST = float(np.log(np.finfo(np.float64).tiny))


@dataclass(frozen=True, eq=False)
class ScoredRows:
    """Raw scores, (n,) or (n, K), with class numbers, and weights above 0 or None for equal ones."""

    scores: NDArray[Any]
    codes: NDArray[np.int64]
    weights: Floats | None

    def at(self, places: NDArray[np.intp]) -> ScoredRows:
        """Those rows alone."""
        weights = None if self.weights is None else self.weights[places]
        return ScoredRows(self.scores[places], self.codes[places], weights)


def score_scale(loss: Loss, fitted: ScoredRows, held: ScoredRows, shares: Floats) -> float:
    """The factor a, from the rows of `fit`, which have the level, and the held-out ones.

    >>> from raresight.losses import parse
    >>> z = np.random.default_rng(0).normal(size=4000) * 2 - 2
    >>> y = (np.random.default_rng(1).random(4000) < 1 / (1 + np.exp(-z))).astype(np.int64)
    >>> rows = ScoredRows(z / 8, y, None)
    >>> round(score_scale(parse("crossentropy"), rows, rows, np.array([1 - y.mean(), y.mean()])))
    8
    """
    if not (np.isfinite(fitted.scores).all() and np.isfinite(held.scores).all()):
        # Nothing can be likely then; the level, which cannot be found either, says so.
        return 1.0
    some, others = _thinned(fitted, len(shares), _MOST_FITTED), _thinned(held, len(shares), _MOST_HELD)
    rows, counted = _normalised(some), _normalised(others)
    worth = evidence(held.codes, held.weights)

    def gap(scale: float, shift: Floats) -> float:
        return level_gap(loss, at_level(some.scores, shift, scale), shares, rows)

    last_scale, last_shift = 1.0, find_shift(loss, some.scores, shares, rows)
    if not gap(last_scale, last_shift) <= _OPEN:
        return 1.0  # likewise

    def gain(log_scale: float) -> float:
        nonlocal last_scale, last_shift
        scale = float(np.exp(log_scale))
        # The constant grows with the factor where scores are large, and hardly changes where they are small.
        guesses = (last_shift, last_shift * scale / last_scale)
        near = min(guesses, key=lambda shift: gap(scale, shift))
        shift = find_shift(loss, scale * some.scores, shares, rows, near)
        if not gap(scale, shift) <= _OPEN:
            return _NOWHERE
        last_scale, last_shift = scale, shift
        log_p = log_probability(loss, at_level(others.scores, shift, scale), others.codes)
        return float(counted @ log_p - log_scale**2 / (2 * worth))

    # Where scores are tiny the prior makes a hill of its own around a = 1: so also from where they have the
    # spread of the log-odds that tables have.
    spread = _spread(others)
    starts = [0.0] if spread == 0 else [0.0, -float(np.log(spread))]
    return float(np.exp(_peak(gain, starts)))


def carried_over(scale: float, before: ScoredRows, after: ScoredRows) -> float:
    """The factor for nets that were trained again, from that of the nets before them.

    Rows that both were trained on get the same spread: longer training makes scores larger. No row is left
    that the new nets have not seen, by which their factor could be chosen.

    >>> z, y = np.array([-1.0, 0.0, 2.0]), np.array([0, 0, 1])
    >>> round(carried_over(6.0, ScoredRows(z, y, None), ScoredRows(3 * z + 5, y, None)), 6)
    2.0
    """
    spreads = _spread(before), _spread(after)
    if not (np.isfinite(spreads).all() and min(spreads) > 0):
        return scale
    return scale * spreads[0] / spreads[1]


def _spread(rows: ScoredRows) -> float:
    """The standard deviation of the scores; of several classes that of the logits around each row's mean."""
    scores = rows.scores.astype(np.float64)
    if scores.ndim == 2:
        scores = scores - scores.mean(axis=1, keepdims=True)
    weights = rows.weights
    centred = scores - np.average(scores, axis=0, weights=weights)
    squares = np.average(centred**2, axis=0, weights=weights)
    return float(np.sqrt(squares.mean()))


def calibrated_log_probability(loss: Loss, rows: ScoredRows, shares: Floats, *, scaled: bool) -> float:
    """The mean log-probability of the true class once scores of two classes have their factor and constant.

    Both are chosen on the same rows, the factor only if `scaled`. Weighted; NaN where a score is not finite.

    >>> from raresight.losses import parse
    >>> z, y = np.repeat([[-1.0, -0.5, 0.5, 1.0], [0, 0, 0, 1]], 100, axis=1)
    >>> rows = ScoredRows(z / 100, y.astype(np.int64), None)
    >>> loss, shares = parse("crossentropy"), np.array([0.75, 0.25])
    >>> [round(calibrated_log_probability(loss, rows, shares, scaled=s), 2) for s in (False, True)]
    [-0.56, -0.0]
    """
    if not np.isfinite(rows.scores).all():
        return float("nan")
    scale = score_scale(loss, rows, rows, shares) if scaled else 1.0
    weights = np.ones(len(rows.codes)) if rows.weights is None else rows.weights
    counted = weights / weights.sum()
    shift = find_shift(loss, scale * rows.scores, shares, counted)
    return float(counted @ log_probability(loss, at_level(rows.scores, shift, scale), rows.codes))


def log_probability(loss: Loss, scores: NDArray[Any], codes: NDArray[np.int64]) -> Floats:
    """Of the true class of each row through the link of the loss, but at least that of the smallest float.

    There are links that call an event impossible: one such row is not to outweigh all others.

    >>> from raresight.losses import parse
    >>> log_probability(parse("crossentropy"), np.array([-9999.0, 0.0]), np.array([1, 1])).round()
    array([-708.,   -1.])
    """
    log_p = log_posterior(loss, scores)[np.arange(len(codes)), codes]
    return np.maximum(log_p, _LEAST)


def _peak(gain: Callable[[float], float], starts: Sequence[float]) -> float:
    """Where a function is largest, uphill from the best of some starts."""
    value, here = max((gain(start), -abs(start), start) for start in starts)[::2]
    first = here
    for step in (_STEP, -_STEP):
        for _ in range(_MOST_STEPS):
            ahead = gain(here + step)
            if not ahead > value:
                break
            here, value = here + step, ahead
        if here != first:
            break
    found = minimize_scalar(
        lambda x: -gain(x), bounds=(here - _STEP, here + _STEP), method="bounded", options={"xatol": _NEAR}
    )
    return float(found.x) if -found.fun > value else here


def _thinned(rows: ScoredRows, n_classes: int, numbers: int) -> ScoredRows:
    """Fewer rows of each class in its place where there are many, with the weights of those left out.

    So the sums of weights stay, and of two classes nearly all sums over rows of what is smooth in the score.
    """
    weights = np.ones(len(rows.codes)) if rows.weights is None else rows.weights
    most = max(_FEWEST_ROWS, numbers // n_classes**2)
    parts = [_stand_ins(rows, weights, k, most) for k in np.unique(rows.codes)]
    chosen = np.concatenate([places for places, _ in parts])
    scores = rows.scores[chosen].astype(np.float64)
    return ScoredRows(scores, rows.codes[chosen], np.concatenate([sums for _, sums in parts]))


def _stand_ins(rows: ScoredRows, weights: Floats, k: int, most: int) -> tuple[NDArray[np.intp], Floats]:
    """At most so many rows of class k, and the weights of those that each stands for.

    In the order of the score of the class: a quarter of them are the lowest, each for itself, a quarter the
    highest, for the few rows at the ends may have most of a rare class's probability; and the others are the
    middle ones of groups of equal length.
    """
    places = np.flatnonzero(rows.codes == k)
    if len(places) <= most:
        return places, weights[places]
    own = rows.scores[places] if rows.scores.ndim == 1 else rows.scores[places, k]
    order = places[np.argsort(own, kind="stable")]
    n, end = len(order), most // 4
    middle = np.linspace(end, n - end, most - 2 * end, endpoint=False).astype(np.intp)
    starts = np.concatenate([np.arange(end), middle, np.arange(n - end, n)])
    lengths = np.diff(np.append(starts, n))
    return order[starts + (lengths - 1) // 2], np.add.reduceat(weights[order], starts)


def _normalised(rows: ScoredRows) -> Floats:
    assert rows.weights is not None
    return np.asarray(rows.weights / rows.weights.sum())
