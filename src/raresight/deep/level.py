"""The level of the nets' probabilities: a constant on their scores after which the mean is the class share.

Nets that stop early, or were trained with a loss that weighs rows by more than their probability, leave a gap
between the mean predicted probability and the share of positives (see `raresight.common.level`). Here it is
closed in the score, as by another bias of the nets:

    z' = z + c,    log-odds = lambda(z'),    c such that the mean of sigmoid(lambda(z + c)) is the share

on the rows of `fit` with their weights, and likewise one constant a class for K logits. So score, decision
and probability stay one thing: z' > 0 is the decision of the loss, and where its link has p(0) = 1/2 that is
p > 1/2. Where rows were held out the scores have a factor first, see `raresight.deep.scale`. The boosted
classifiers shift the log-odds after the link instead, because their score is what the library itself predicts
from the model's file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, least_squares
from scipy.special import logsumexp

from ..common.level import level_shift, tell_gap
from ..common.posterior import log_posterior
from ..losses import Loss

__all__ = ["at_level", "find_shift", "level_gap", "score_shift"]

Floats = NDArray[np.float64]

# From a first step of one, so many doublings pass every float32 number.
_MOST_DOUBLINGS = 130
_MOST_STEPS = 500
_MOST_SWEEPS = 20
_MOST_HALVINGS = 8
_DIFFERENCE = 1e-7
_STRETCHES = (1.0, 0.5, 0.75, 1.5, 2.0, 3.0)
_CLOSE = 1e-13
# Of the class share, as in `raresight.common.level`.
_NEAR = 1e-9
_TINY = 1e-15


def at_level(scores: NDArray[Any], shift: Floats, scale: float = 1.0) -> Floats:
    """scale * scores + shift in float64, so that what differs in float32 differs still.

    >>> at_level(np.array([0.5, 2.0**99], np.float32), np.array([0.25])) == [0.75, 2.0**99]
    array([ True,  True])
    """
    return scale * scores.astype(np.float64) + (shift[0] if scores.ndim == 1 else shift)


def score_shift(loss: Loss, scores: NDArray[Any], shares: Floats, weights: Floats | None) -> Floats:
    """The constant for (n,) scores, as an array of one number, or K of them for (n, K), the first one zero.

    A ConvergenceWarning says so where the gap could not be closed.

    >>> from raresight.losses import parse
    >>> loss, scores = parse("tbl"), np.array([-3.0, -2.0, -1.0])
    >>> shift = score_shift(loss, scores, np.array([0.9, 0.1]), None)
    >>> float(loss.probability(at_level(scores, shift)).mean().round(9))
    0.1
    """
    rows = np.full(len(scores), 1.0 / len(scores)) if weights is None else weights / weights.sum()
    double = scores.astype(np.float64)
    shift = find_shift(loss, double, shares, rows)
    tell_gap(level_gap(loss, at_level(double, shift), shares, rows))
    return shift


def level_gap(loss: Loss, scores: Floats, shares: Floats, rows: Floats) -> float:
    """The largest |mean probability / share - 1| of a class, for row weights that sum to one."""
    log_means = logsumexp(log_posterior(loss, scores), axis=0, b=rows[:, None])
    return float(np.max(np.abs(np.expm1(log_means - np.log(shares)))))


def find_shift(
    loss: Loss, scores: Floats, shares: Floats, rows: Floats, near: Floats | None = None
) -> Floats:
    """The same for row weights that sum to one, without a warning; zeros for scores that are not finite.

    From one that is near it is sooner found, or for several classes sooner given up.
    """
    if not np.isfinite(scores).all():
        return np.zeros(1 if scores.ndim == 1 else scores.shape[1])
    search = _one if scores.ndim == 1 else _several
    return search(loss, scores, shares, rows, near)


def _one(loss: Loss, scores: Floats, shares: Floats, rows: Floats, near: Floats | None) -> Floats:
    def excess(shift: float) -> float:
        return _log_odds_of_mean(log_posterior(loss, scores + shift), rows, 1) - goal

    goal = float(np.log(shares[1]) - np.log(shares[0]))
    return np.array([_root(excess, 0.0 if near is None else float(near[0]))])


def _several(loss: Loss, scores: Floats, shares: Floats, rows: Floats, near: Floats | None) -> Floats:
    """Broyden's method from a near start; where it ends elsewhere, Newton's, and class by class and Newton's.

    They differ in time alone: a call of the link costs n K, and Newton's slopes take K calls a step.
    """

    def posterior(shift: Floats) -> Floats:
        return log_posterior(loss, scores + np.append(0.0, shift))

    def excess(shift: Floats) -> Floats:
        return np.asarray(logsumexp(posterior(shift), axis=0, b=rows[:, None]) - np.log(shares))

    def newton(shift: Floats) -> Floats:
        found = least_squares(excess, shift, ftol=_TINY, xtol=_TINY, gtol=_TINY, max_nfev=_MOST_STEPS)
        return np.asarray(found.x)

    def is_open(shift: Floats) -> bool:
        return not np.max(np.abs(np.expm1(excess(shift)))) <= _NEAR

    def distance(shift: Floats) -> float:
        return float(np.nan_to_num(np.linalg.norm(excess(shift)), nan=np.inf))

    if near is not None:
        shift = _broyden(excess, near[1:], _softmax_slopes(posterior(near[1:]), rows))
        if not is_open(shift):
            return np.append(0.0, shift)
    # Right at once for a loss whose posterior is the softmax; others stretch or shrink the scores on the way.
    shift = level_shift(log_posterior(loss, scores), shares, rows, tell=False)[1:]
    start = min((times * shift for times in _STRETCHES), key=distance)
    shift = _broyden(excess, start, _softmax_slopes(posterior(start), rows))
    if is_open(shift):
        shift = _broyden(excess, start, _slopes(excess, start))
    if near is not None:
        return np.append(0.0, shift)
    if is_open(shift):
        shift = newton(start)
    for _ in range(_MOST_SWEEPS):
        if not is_open(shift):
            break
        shift = newton(_swept(loss, scores, shares, rows, np.append(0.0, shift))[1:])
    return np.append(0.0, shift)


def _softmax_slopes(log_p: Floats, rows: Floats) -> Floats:
    """Slopes of log mean p_k in the constants c_j, k and j from 1 on, if the posterior were softmax(z + c):

    1[j = k] - mean(p_k p_j) / mean(p_k).
    """
    p = np.exp(log_p[:, 1:])
    with np.errstate(all="ignore"):
        return np.asarray(np.eye(p.shape[1]) - (p * rows[:, None]).T @ p / (rows @ p)[:, None])


def _slopes(excess: Callable[[Floats], Floats], here: Floats) -> Floats:
    """Slopes by differences, a call a class."""
    value = excess(here)
    moved = [excess(here + step) - value for step in _DIFFERENCE * np.eye(len(here))]
    return np.stack(moved, axis=1)[1:] / _DIFFERENCE


def _broyden(excess: Callable[[Floats], Floats], start: Floats, slopes: Floats) -> Floats:
    """A zero near `start` of the classes from 1 on by Broyden's good method, or as near to one as it came.

    A step takes one call. One that does not lessen the excess is halved.
    """
    here, value = start, excess(start)[1:]
    with np.errstate(all="ignore"):
        try:
            inverse = np.linalg.inv(slopes)
        except np.linalg.LinAlgError:
            return start
        for _ in range(_MOST_STEPS):
            if np.max(np.abs(value)) <= _CLOSE:
                break
            step = -inverse @ value
            for _ in range(_MOST_HALVINGS):
                after = excess(here + step)[1:]
                if np.linalg.norm(after) < np.linalg.norm(value):
                    break
                step = step / 2
            else:
                break
            turned = inverse @ (after - value)
            inverse = inverse + np.outer((step - turned) / (step @ turned), step @ inverse)
            here, value = here + step, after
    return here


def _swept(loss: Loss, scores: Floats, shares: Floats, rows: Floats, shift: Floats) -> Floats:
    """Every class but the first put at its share in turn; the mean of a class grows with its constant."""
    swept = shift.copy()
    for k in range(1, len(shares)):
        goal = float(np.log(shares[k]) - np.log1p(-shares[k]))

        def excess(step: float, k: int = k, goal: float = goal) -> float:
            moved = scores + swept
            moved[:, k] += step
            return _log_odds_of_mean(log_posterior(loss, moved), rows, k) - goal

        swept[k] += _root(excess)
    return swept


def _log_odds_of_mean(log_p: Floats, rows: Floats, k: int) -> float:
    """Of the mean probability of class k; nearly straight in a shift even where that is tiny."""
    means = logsumexp(log_p, axis=0, b=rows[:, None])
    return float(means[k] - logsumexp(np.delete(means, k)))


def _root(excess: Callable[[float], float], start: float = 0.0) -> float:
    """Where an increasing function is zero; the far end of the search where it is nowhere."""
    before, here = start, start
    value = excess(here)
    step = -float(np.sign(value))
    for _ in range(_MOST_DOUBLINGS):
        if value == 0:
            return here
        before, here = here, here + step
        if excess(here) * value <= 0:
            low, high = min(before, here), max(before, here)
            return float(brentq(excess, low, high, xtol=_CLOSE, maxiter=_MOST_STEPS))
        step *= 2
    return here
