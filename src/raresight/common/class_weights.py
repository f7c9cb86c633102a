"""Class weights: read from what the user gives, and put on a loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..losses import ClassWeighted, Loss

Floats = NDArray[np.float64]

__all__ = ["class_weights", "weighted_loss"]


def class_weights(
    class_weight: Mapping[Any, float] | str | None, classes: NDArray[Any], counts: Floats
) -> tuple[float, ...] | None:
    """One weight a class: n / (K n_k) for "balanced", 1 for a class that the mapping leaves out."""
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f"class_weight must be a mapping, 'balanced' or None, got {class_weight!r}")
        return tuple(float(counts.sum() / (len(counts) * n)) for n in counts)
    if not isinstance(class_weight, Mapping):
        raise TypeError(f"class_weight must be a mapping, 'balanced' or None, got {class_weight!r}")
    known = classes.tolist()
    unknown = [label for label in class_weight if label not in known]
    if unknown:
        raise ValueError(
            f"class_weight names {unknown[0]!r}, which is not a class of y; they are {known[:9]}"
        )
    weights = tuple(float(class_weight.get(label, 1.0)) for label in known)
    if not (np.isfinite(weights).all() and min(weights) > 0):
        raise ValueError(f"class_weight must be positive and finite, got {dict(class_weight)}")
    return weights


def weighted_loss(loss: Loss, weights: tuple[float, ...] | None) -> Loss:
    """The loss with class weights; its link takes them out of the probabilities again."""
    return loss if weights is None else ClassWeighted(loss, weights)
