"""Log-probabilities of raw scores through the link of a loss."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["log_posterior", "two_columns"]

Array = np.ndarray[Any, Any]


def log_posterior(loss: Any, scores: Array) -> Array:
    """What the loss's link makes of raw scores, (n,) or (n, K): the logarithms of (n, K) probabilities.

    >>> from raresight.losses import parse
    >>> np.exp(log_posterior(parse("crossentropy"), np.zeros(1))).round(6).tolist()
    [[0.5, 0.5]]
    """
    return np.asarray(loss.log_posterior(scores))


def two_columns(log_odds: Array) -> Array:
    """log(1 - p) and log(p)."""
    return np.asarray(-np.logaddexp(0.0, np.stack([log_odds, -log_odds], axis=1)))
