"""Accuracy of decisions by class."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import as_vector, check_lengths, check_weights


def class_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> dict[Any, float]:
    """Return the share of each class's rows that are predicted as that class (its recall), by label.

    Args:
        y_true: Labels of two or more classes: integers, booleans or strings.
        y_pred: The predicted label of each row.
        sample_weight: A weight for each row, or None.

    Example:
        >>> class_accuracy(["ok", "ok", "ok", "fraud"], ["ok", "ok", "fraud", "fraud"])
        {'fraud': 1.0, 'ok': 0.6666666666666666}
    """
    classes, weights, right = _tally(y_true, y_pred, sample_weight)
    return {label: float(share) for label, share in zip(classes.tolist(), right / weights, strict=True)}


def minority_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Return the accuracy of the rarest class of `y_true`.

    If several classes are equally rare, it is the mean of their accuracies.

    Example:
        >>> minority_accuracy([0, 0, 0, 1, 1], [0, 0, 1, 1, 0])
        0.5
    """
    _, weights, right = _tally(y_true, y_pred, sample_weight)
    rarest = weights == weights.min()
    return float(np.mean(right[rarest] / weights[rarest]))


def balanced_accuracy(y_true: Any, y_pred: Any, *, sample_weight: Any = None) -> float:
    """Return the mean of the classes' accuracies, equal to scikit-learn's `balanced_accuracy_score`.

    Example:
        >>> balanced_accuracy([0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 0])
        0.625
    """
    _, weights, right = _tally(y_true, y_pred, sample_weight)
    return float(np.mean(right / weights))


def _tally(
    y_true: Any, y_pred: Any, sample_weight: Any
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.float64]]:
    """Return the classes of `y_true`, their weights, and the weights that are predicted right."""
    truth, guess = _label_array(y_true, "y_true"), _label_array(y_pred, "y_pred")
    if len(truth) == 0:
        raise ValueError("y_true is empty: an accuracy needs at least one row.")
    check_lengths(len(truth), len(guess), "y_pred")
    if (truth.dtype.kind in "biuf") != (guess.dtype.kind in "biuf"):
        raise TypeError(
            f"y_true holds {truth.dtype} and y_pred {guess.dtype}: labels of different kinds are never equal."
        )
    weights = check_weights(sample_weight, len(truth))
    # Only classes of y_true: a class that is only predicted has no accuracy.
    classes, index = np.unique(truth, return_inverse=True)
    total = np.bincount(index, weights=weights, minlength=len(classes)).astype(np.float64)
    hit = truth == guess
    right = np.bincount(index[hit], weights=None if weights is None else weights[hit], minlength=len(classes))
    present = total > 0
    if not present.any():
        raise ValueError("All weights are zero, so no accuracy is defined.")
    return classes[present], total[present], right[present].astype(np.float64)


def _label_array(values: Any, name: str) -> NDArray[Any]:
    labels = as_vector(values, name)
    if labels.dtype.kind == "f":
        if np.isnan(labels).any():
            raise ValueError(f"{name} has a missing label (NaN) at row {int(np.argmax(np.isnan(labels)))}.")
        if (labels != np.floor(labels)).any():
            row = int(np.argmax(labels != np.floor(labels)))
            raise ValueError(
                f"{name} must hold labels, not scores, but row {row} holds {labels[row]}; "
                "compare the score with a threshold first."
            )
    elif labels.dtype.kind not in "biuUSOT":
        raise TypeError(f"{name} must hold labels, but its type is {labels.dtype}.")
    return labels
