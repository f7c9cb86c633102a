"""The level of the probabilities: a shift of the log-odds after which their mean is the prior.

A booster that has not converged, or has too few rows to, leaves a gap between the mean predicted probability
and the share of positives. Cross entropy closes it in every leaf, because its gradients are p - y; for
another loss the gradients weigh rows by v(z) = l'(0, z) - l'(1, z), and what is balanced is the weighted gap:
TBL's mean was found as low as half the prior at 1e-5. The raw scores and their ranking are the loss's
business; the probabilities get

    log-odds = lambda(z) + delta,    delta such that the weighted mean of the probabilities is the prior

on the training rows, and likewise K shifts for K classes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp
from sklearn.exceptions import ConvergenceWarning

Array = np.ndarray[Any, Any]

_MOST_STEPS = 200
# Both are relative to the class share: where the search ends, and beyond which it is said aloud.
_CLOSE = 1e-9
_OPEN = 1e-6


def level_shift(log_posterior: Array, shares: Array, weights: Array | None, *, tell: bool = True) -> Array:
    """K shifts of the log-posteriors (n, K), the first one zero, that make their mean the class shares.

    Where none were found a ConvergenceWarning says so, unless `tell` is False.

    >>> log_odds = np.array([-3.0, -2.0, -1.0])
    >>> log_posterior = -np.logaddexp(0, np.stack([log_odds, -log_odds], axis=1))
    >>> shift = level_shift(log_posterior, np.array([0.9, 0.1]), None)
    >>> float((1 / (1 + np.exp(-log_odds - shift[1]))).mean().round(6))
    0.1
    """
    if log_posterior.shape[1] == 2:
        delta, gap = _binary_shift(log_posterior[:, 1] - log_posterior[:, 0], shares, weights)
        shift = np.array([0.0, delta])
    else:
        shift, gap = _class_shift(log_posterior, shares, weights)
    if tell:
        tell_gap(gap)
    return shift


def tell_gap(gap: float) -> None:
    """Warn of a mean probability that is off the class share by more than a millionth of it."""
    if not gap <= _OPEN:
        warnings.warn(
            f"the mean probability of a class is off its share by {gap:.1e} of it on the training rows: no "
            "shift was found that closes the gap",
            ConvergenceWarning,
            stacklevel=4,
        )


def _binary_shift(log_odds: Array, shares: Array, weights: Array | None) -> tuple[float, float]:
    """Newton's method for the log-odds of the mean, inside a bracket that bisection halves where it fails."""
    goal = float(np.log(shares[1]) - np.log(shares[0]))
    # With these every probability is at most, and at least, the prior.
    low, high = goal - float(log_odds.max()), goal - float(log_odds.min())
    delta = min(max(0.0, low), high)
    best, best_gap = delta, np.inf
    for _ in range(_MOST_STEPS):
        p = expit(log_odds + delta)
        mean = float(np.average(p, weights=weights))
        gap = abs(mean - float(shares[1])) / float(shares.min())
        if gap < best_gap:
            best, best_gap = delta, gap
        if gap <= _CLOSE or not low < high:
            break
        low, high = (delta, high) if mean < shares[1] else (low, delta)
        bend = float(np.average(p * (1 - p), weights=weights))
        new = np.nan
        if 0 < mean < 1 and bend > 0:
            # d/d delta of log(mean/(1 - mean)): nearly straight even where the mean itself is tiny.
            new = delta + (goal - np.log(mean) + np.log1p(-mean)) * mean * (1 - mean) / bend
        middle = low + (high - low) / 2
        # At an end of the bracket Newton's step has stalled in rounding.
        delta, before = (float(new) if low < new < high else middle), delta
        if delta == before:
            break
    return best, best_gap


def _class_shift(log_posterior: Array, shares: Array, weights: Array | None) -> tuple[Array, float]:
    """Newton's method on a convex function, with a step that always descends where Newton's does not.

    The shifts minimise F(s) = mean logsumexp(log-posterior + s) - shares . s, whose gradient is the mean
    probabilities less the shares.
    """
    n_rows, n_classes = log_posterior.shape
    row_weights = np.full(n_rows, 1.0 / n_rows) if weights is None else weights / weights.sum()

    def height(s: Array) -> float:
        return float(row_weights @ logsumexp(log_posterior + s, axis=1) - shares @ s)

    shift = np.zeros(n_classes)
    best, best_gap = shift, np.inf
    for _ in range(_MOST_STEPS):
        log_p = shifted(log_posterior, shift)
        log_mean = logsumexp(log_p, axis=0, b=row_weights[:, None])
        gap = float(np.max(np.abs(np.expm1(log_mean - np.log(shares)))))
        if gap < best_gap:
            best, best_gap = shift, gap
        if gap <= _CLOSE:
            break
        # Descends always, but slowly where the probabilities are near 0 and 1.
        plain = np.log(shares) - log_mean
        candidate = shift + plain - plain[0]
        p = np.exp(log_p)
        bend = np.diag(np.exp(log_mean)) - (p * row_weights[:, None]).T @ p
        step = np.linalg.lstsq(bend[1:, 1:], (shares - np.exp(log_mean))[1:], rcond=None)[0]
        newton = shift + np.append(0.0, step)
        if np.all(np.isfinite(newton)) and height(newton) < height(candidate):
            candidate = newton
        shift = candidate
    return best, best_gap


def shifted(log_posterior: Array, shift: Array) -> Array:
    """Log-posteriors after the shift, normalised again."""
    moved = log_posterior + shift
    largest = moved.max(axis=1, keepdims=True)
    moved -= largest
    moved -= np.log(np.exp(moved).sum(axis=1, keepdims=True))
    return moved
