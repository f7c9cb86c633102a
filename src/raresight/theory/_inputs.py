"""Shared checks of the theory's functions, and the checked branches of a loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..losses import Loss
from ..losses._numpy_ops import NumpyOps
from ..losses.start import refuse_nan

Array = np.ndarray[Any, np.dtype[np.float64]]

_FAR = np.array([500.0, 1e6, 1e12])


def check_loss(loss: Loss, what: str) -> None:
    """Refuse a loss that has no binary score or no unique minimiser; the error names `what`."""
    if not isinstance(loss, Loss):
        raise TypeError(f"{what}: loss must be a loss of raresight.losses, got {loss!r}")
    if not loss.takes_score:
        raise ValueError(
            f"{what}: {loss} is for {loss.n_classes} class logits; the theory is of a binary score"
        )
    if not loss.has_unique_minimiser:
        raise ValueError(
            f"{what}: {loss} has no unique minimiser: its link log l'(0, z) - log(-l'(1, z)) does not "
            "increase strictly with the score, so the best score of a point is not determined"
        )


def check_risk_loss(loss: Loss, what: str) -> None:
    """Check the loss, and that its least value is zero, from which information is measured."""
    check_loss(loss, what)
    # A constant added to the loss of either label would be counted as risk. Most losses have reached their
    # infimum at 500 to the last digit, one with a flat score (a small scale) far beyond.
    least = [loss.value(_FAR if label else -_FAR, np.full(_FAR.size, label)) for label in (0, 1)]
    low = max((float(np.nanmin(values)) for values in least), key=abs)
    if loss.is_monotone and not abs(low) < 1e-9:
        raise ValueError(
            f"{what}: the least value of {loss} must be zero, it seems to be {low:.6g}; subtract it"
        )


def branch(loss: Loss, z: Array, label: int) -> tuple[Array, Array, Array]:
    """Value and two derivatives of l(label, z), refusing what is not a number."""
    with NumpyOps.guard():
        value, slope, bend = loss._branch(NumpyOps, z, label, 2)
        refuse_nan(loss, z, np.full(z.shape, label), value + slope + bend)
    return value, slope, bend


def log_odds_of(probability: Array) -> Array:
    return np.asarray(np.log(probability) - np.log1p(-probability))


def as_given(result: Array) -> Any:
    """Return a number for a number, an array for an array."""
    return result[()]
