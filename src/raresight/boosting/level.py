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

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_MOST_STEPS = 100
_CLOSE = 1e-7


def level_shift(log_posterior: Array, shares: Array, weights: Array | None) -> Array:
    """K shifts of the log-posteriors (n, K), the first one zero, that make their mean the class shares.

    >>> log_odds = np.array([-3.0, -2.0, -1.0])
    >>> log_posterior = -np.logaddexp(0, np.stack([log_odds, -log_odds], axis=1))
    >>> shift = level_shift(log_posterior, np.array([0.9, 0.1]), None)
    >>> float((1 / (1 + np.exp(-log_odds - shift[1]))).mean().round(6))
    0.1
    """
    shift = np.zeros(log_posterior.shape[1])
    for _ in range(_MOST_STEPS):
        mean = np.average(np.exp(shifted(log_posterior, shift)), axis=0, weights=weights)
        if np.any(mean <= 0):
            raise FloatingPointError(f"the predicted probabilities of a class are all zero: {mean}")
        # For two classes this is the difference of log-odds, which the shift moves one for one at first.
        step = np.log(shares) - np.log(mean)
        shift += step - step[0]
        if np.max(np.abs(step - step[0])) < _CLOSE:
            break
    return shift


def shifted(log_posterior: Array, shift: Array) -> Array:
    """Log-posteriors after the shift, normalised again."""
    moved = log_posterior + shift
    largest = moved.max(axis=1, keepdims=True)
    moved -= largest
    moved -= np.log(np.exp(moved).sum(axis=1, keepdims=True))
    return moved
