"""Labels of any kind as class numbers, and class shares and weights, with errors that say what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from .checks import is_missing, plain_objects, refuse_masked

Array = np.ndarray[Any, Any]

_WIDEST = 1000  # from the lowest to the highest of whole numbers that are counted


def read_targets(y: Any, owner: str, name: str = "y") -> Array:
    """Read y as a vector of classes without missing values; warnings call it `name`."""
    if y is None:
        raise ValueError(f"This {owner} estimator requires y to be passed, but the target y is None.")
    refuse_masked(y, "y")
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    # A table of one column is a common mistake: it is taken, with the warning that scikit-learn gives.
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
            labels = plain_objects(labels, "y")
            if labels.dtype.kind not in "biuf":
                kind = type(labels[0]).__name__
                raise ValueError(f"y holds objects of type {kind}: labels must be numbers, bools or text")
    if labels.dtype.kind not in "biu":  # which are classes in any case; the check would sort them
        check_classification_targets(labels)
    return np.asarray(labels)


def encode(labels: Array) -> tuple[Array, Array]:
    """Return the sorted classes and the class number of each label.

    >>> encode(np.array(["ok", "fraud", "ok"]))[1].tolist()
    [1, 0, 1]
    """
    classes, codes = _counted(labels) if _has_few_values(labels) else _sorted(labels)
    if len(classes) < 2:
        raise ValueError(
            f"y holds one class only, {_plain(classes[0])}: a classifier needs at least 2 classes"
        )
    return classes, codes


def _sorted(labels: Array) -> tuple[Array, Array]:
    classes, codes = np.unique(labels, return_inverse=True)
    return classes, codes.ravel()


def _has_few_values(labels: Array) -> bool:
    if labels.dtype.kind not in "biu" or not labels.size:
        return False
    return int(labels.max()) - int(labels.min()) < _WIDEST


def _counted(labels: Array) -> tuple[Array, Array]:
    """Encode by counting: sorting a million labels takes longer than a step of a linear fit."""
    lowest = int(labels.min())
    # Unsigned numbers may lie above int64 and are shifted first; a signed difference may overflow.
    if labels.dtype.kind == "u":
        places = (labels - labels.min()).astype(np.int64)
    else:
        places = labels.astype(np.int64) - lowest
    present = np.flatnonzero(np.bincount(places))
    if labels.dtype.kind == "u":
        classes = present.astype(labels.dtype) + labels.min()
    else:
        classes = (present + lowest).astype(labels.dtype)
    if len(present) == present[-1] + 1:
        return classes, places
    codes = np.zeros(present[-1] + 1, dtype=np.int64)
    codes[present] = np.arange(len(present))
    return classes, codes[places]


def encode_known(labels: Array, classes: Array, name: str) -> Array:
    """Return class numbers for the classes of training; another label is an error."""
    codes = np.searchsorted(classes, labels)
    # searchsorted gives a place to every label; only one that is found there is known.
    wrong = classes[np.minimum(codes, len(classes) - 1)] != labels
    if np.any(wrong):
        raise ValueError(
            f"{name} holds the label {_plain(labels[np.argmax(wrong)])}, which training did not see"
        )
    return np.asarray(codes)


def shares_of(codes: Array, weights: Array | None, classes: Array) -> Array:
    """Return the weighted share of each class.

    >>> shares_of(np.array([0, 0, 0, 1]), np.full(4, 1e308), np.array(["good", "bad"])).tolist()
    [0.75, 0.25]
    """
    counted = codes if weights is None else codes[weights > 0]
    rows = np.bincount(counted, minlength=len(classes))
    if np.any(rows == 0):
        empty = _plain(classes[int(np.argmin(rows))])
        raise ValueError(f"every row of class {empty} has weight zero: one class is missing")
    # Weights of 1e308 would sum to infinity; only their proportions count.
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
    """Scale weights by a power of two to below 1, so that their sum is finite.

    Such a power changes no digit.

    >>> below_one(np.array([3.0, 0.0, 1e308 / 3e307])).tolist()
    [0.75, 0.0, 0.8333333333333334]
    """
    return np.asarray(np.ldexp(weights, -np.frexp(weights.max())[1]))


def class_weights(
    class_weight: Mapping[Any, float] | str | None, classes: Array, counts: Array
) -> tuple[float, ...] | None:
    """Return one weight per class: n / (K n_k) for "balanced", 1 for a class that the mapping leaves out."""
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


def _plain(label: Any) -> str:
    """Write labels as `1` and `'bad'`, without NumPy's types."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def _missing(labels: Array) -> Array:
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind == "O":
        return np.array([is_missing(label) for label in labels], dtype=bool)
    return np.zeros(labels.shape, dtype=bool)
