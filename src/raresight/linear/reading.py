"""What a user passes, as a sample that can be fitted."""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _check_sample_weight, validate_data

from ..common.labels import refuse_masked
from ..common.tables import known_table
from .design import Floats, make_design
from .labels import encode_labels, need_every_class
from .sums import Sample

__all__ = [
    "Reading",
    "check_penalty",
    "read_features",
    "read_rows",
    "read_training",
    "read_weights",
    "unchanged_on_failure",
]


@dataclass(frozen=True, eq=False)
class Reading:
    """Training data: the sample, its classes and their sums of weights."""

    sample: Sample
    classes: NDArray[Any]
    counts: Floats


@contextmanager
def unchanged_on_failure(model: Any) -> Iterator[None]:
    """A fit that fails leaves the model as it was, though scikit-learn notes the columns first."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


def read_training(owner: Any, X: Any, y: Any, sample_weight: Any, intercept: bool) -> Reading:
    """Check everything that `owner.fit` was given; float32 stays float32, sparse stays sparse."""
    X, y = read_rows(owner, X, y)
    classes, codes = encode_labels(y)
    weights = read_weights(sample_weight, X)
    counts = np.bincount(codes, weights, minlength=len(classes)).astype(np.float64)
    need_every_class(classes, counts)
    return Reading(make_sample(X, codes, weights, len(classes), intercept), classes, counts)


def read_rows(owner: Any, X: Any, y: Any, *, reset: bool = True) -> tuple[Any, Any]:
    """Features and labels as arrays; with `reset` these are the features that `owner` has from now on."""
    refuse_masked(y, "y")
    checked: tuple[Any, Any] = validate_data(
        owner, known_table(X), y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset
    )
    return checked


def make_sample(
    X: Any, codes: NDArray[np.int64], weights: Floats | None, n_classes: int, intercept: bool
) -> Sample:
    n_scores = 1 if n_classes == 2 else n_classes
    kind = np.float32 if X.dtype == np.float32 else np.float64
    labels = codes.astype(kind) if n_scores == 1 else codes
    return Sample(make_design(X, weights, intercept), labels, weights, n_scores)


def read_features(owner: Any, X: Any) -> Any:
    return validate_data(
        owner, known_table(X), accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
    )


def read_weights(sample_weight: Any, X: Any) -> Floats | None:
    """Weights in float64, or None where all rows count alike."""
    if sample_weight is None:
        return None
    refuse_masked(sample_weight, "sample_weight")
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    if not float(weights.sum()) > 0:
        raise ValueError("sample_weight is zero for every row; there is nothing to fit")
    return np.asarray(weights, dtype=np.float64)


def check_penalty(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be at least 0 and finite, got {value}")
    return float(value)
