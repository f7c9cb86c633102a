"""Reading labels, weights and the loss of an estimator, with errors that say what is wrong."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

Array = np.ndarray[Any, Any]


def refuse_masked(values: Any, name: str) -> None:
    """An error for masked values: what NumPy hides behind a mask is neither a label nor a weight.

    >>> refuse_masked(np.ma.masked_array([0, 1], mask=[False, True]), "y")
    Traceback (most recent call last):
    ValueError: y is masked at row 1; leave masked rows out first
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        row = int(np.ma.getmaskarray(values).ravel().argmax())
        raise ValueError(f"{name} is masked at row {row}; leave masked rows out first")


def read_targets(y: Any, owner: str, name: str = "y") -> Array:
    """y as a vector without missing values that holds classes; `name` is how warnings call it."""
    if y is None:
        raise ValueError(f"This {owner} estimator requires y to be passed, but the target y is None.")
    refuse_masked(y, "y")
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    labels = column_or_1d(y)
    if np.asarray(y).ndim == 2:
        warnings.warn(
            f"A column-vector {name} was passed when a 1d array was expected. Please change its shape to "
            "(n_samples, ), for example using ravel().",
            DataConversionWarning,
            stacklevel=2,
        )
    missing = _missing(labels)
    if missing.any():
        row = int(missing.argmax())
        raise ValueError(f"y has a missing label: y[{row}] is {labels[row]} (Input y contains NaN)")
    if labels.dtype.kind == "f" and np.isinf(labels).any():
        raise ValueError("y has an infinite label (Input y contains infinity)")
    if labels.dtype.kind == "O":
        text = np.array([isinstance(label, str) for label in labels])
        if text.any() and not text.all():
            some = labels[text.argmax()], labels[text.argmin()]
            raise ValueError(f"y mixes text and other values, such as {some[0]!r} and {some[1]!r}")
        if not text.any():
            labels = plain_numbers(labels)
    check_classification_targets(labels)
    return np.asarray(labels)


def plain_numbers(labels: Array) -> Array:
    """Labels of a column of objects, such as whole numbers or bools, as what they are."""
    found = np.array(labels.tolist())
    if found.ndim != 1 or found.dtype.kind not in "biuf":
        kind = type(labels[0]).__name__
        raise ValueError(f"y holds objects of type {kind}: labels must be numbers, bools or text")
    return found


def encode(labels: Array) -> tuple[Array, Array]:
    """The sorted classes, and the number of its class for each label."""
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only, {_plain(classes[0])}: a classifier needs at least 2 classes"
        )
    return classes, codes.ravel()


def encode_known(labels: Array, classes: Array, name: str) -> Array:
    """The same with the classes of training; another label is an error."""
    codes = np.searchsorted(classes, labels)
    wrong = classes[np.minimum(codes, len(classes) - 1)] != labels
    if np.any(wrong):
        raise ValueError(
            f"{name} holds the label {_plain(labels[np.argmax(wrong)])}, which training did not see"
        )
    return np.asarray(codes)


def shares_of(codes: Array, weights: Array | None, classes: Array) -> Array:
    """The weighted share of each class.

    >>> shares_of(np.array([0, 0, 0, 1]), np.full(4, 1e308), np.array(["good", "bad"])).tolist()
    [0.75, 0.25]
    """
    counted = codes if weights is None else codes[weights > 0]
    rows = np.bincount(counted, minlength=len(classes))
    if np.any(rows == 0):
        empty = _plain(classes[int(np.argmin(rows))])
        raise ValueError(f"every row of class {empty} has weight zero: one class is missing")
    scaled = None if weights is None else below_one(weights)
    total = np.bincount(codes, scaled, minlength=len(classes)).astype(np.float64)
    shares = total / total.sum()
    if not (shares.min() > 0 and shares.max() < 1):
        rare = int(np.argmin(shares))
        raise ValueError(
            f"sample_weight leaves class {_plain(classes[rare])} a share of {shares[rare]:.3g} of the total, "
            "which makes the others 1 in float64: give weights that differ less"
        )
    return np.asarray(shares)


def below_one(weights: Array) -> Array:
    """Weights by the power of two that makes the largest less than 1, so that no sum of them is infinite.

    Such a power changes no digit.

    >>> below_one(np.array([3.0, 0.0, 1e308 / 3e307])).tolist()
    [0.75, 0.0, 0.8333333333333334]
    """
    return np.asarray(np.ldexp(weights, -np.frexp(weights.max())[1]))


def _plain(label: Any) -> str:
    """`1` and `'bad'`, not NumPy's names for them."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def _missing(labels: Array) -> Array:
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind == "O":
        return np.array([v is None or str(v) == "<NA>" or v != v for v in labels], dtype=bool)
    return np.zeros(labels.shape, dtype=bool)
