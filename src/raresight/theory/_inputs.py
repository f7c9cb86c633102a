"""Checks that the theory's functions share."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..losses import Loss

Array = np.ndarray[Any, np.dtype[np.float64]]

_FAR = np.array([-500.0, 0.0, 500.0])


def need_binary_link(loss: Loss, what: str) -> None:
    """A loss of a binary score, every risk of which has one minimiser."""
    if not isinstance(loss, Loss):
        raise TypeError(f"{what} needs a loss of raresight.losses, got {loss!r}")
    if not loss.takes_score:
        raise ValueError(
            f"{what}: {loss} is for {loss.n_classes} class logits; the theory is of a binary score"
        )
    if not loss.has_unique_minimiser:
        raise ValueError(
            f"{what}: {loss} has no unique minimiser of its pointwise risk (its link does not rise "
            "everywhere), so Bayes scores are not defined"
        )
    low = min(float(np.min(loss.value(_FAR, np.full(3, label)))) for label in (0, 1))
    if loss.is_monotone and not abs(low) < 1e-9:
        raise ValueError(
            f"{what}: the least value of {loss} must be zero, it seems to be {low:.6g}; subtract it"
        )


def numbers(values: Any, name: str) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if np.isnan(array).any():
        raise ValueError(f"{name} has a missing value")
    return array


def probabilities(values: Any, name: str) -> Array:
    """Numbers strictly between 0 and 1."""
    array = numbers(values, name)
    wrong = ~((array > 0) & (array < 1))
    if wrong.any():
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {array[wrong].flat[0]}")
    return array


def log_odds_of(probability: Array) -> Array:
    return np.asarray(np.log(probability) - np.log1p(-probability))


def as_given(result: Array) -> Any:
    """A number for a number, an array for an array."""
    return result[()]
