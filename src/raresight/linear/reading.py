"""What a user passes, as a sample that can be fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import validate_data

from ..common.estimators import read_weights
from ..common.labels import encode, read_targets, shares_of
from ..common.tables import known_table
from .design import Floats, make_design
from .sums import Sample

__all__ = ["Reading", "make_sample", "read_features", "read_rows", "read_training"]


@dataclass(frozen=True, eq=False)
class Reading:
    """Training data: the rows as they were read, the sample, its classes and their sums of weights."""

    X: Any
    sample: Sample
    classes: NDArray[Any]
    counts: Floats


def read_training(owner: Any, X: Any, y: Any, sample_weight: Any, intercept: bool) -> Reading:
    """Check everything that `owner.fit` was given; float32 stays float32, sparse stays sparse."""
    X, y = read_rows(owner, X, y)
    classes, codes = encode(y)
    weights = read_weights(sample_weight, X)
    shares_of(codes, weights, classes)  # an error where a class has no weight
    counts = np.bincount(codes, weights, minlength=len(classes)).astype(np.float64)
    return Reading(X, make_sample(X, codes, weights, len(classes), intercept), classes, counts)


def read_rows(owner: Any, X: Any, y: Any, *, reset: bool = True) -> tuple[Any, NDArray[Any]]:
    """Read features and labels as arrays; `reset` sets the features of `owner`."""
    labels = read_targets(y, type(owner).__name__)
    table = read_features(owner, X, reset=reset)
    check_consistent_length(table, labels)
    return table, labels


def make_sample(
    X: Any, codes: NDArray[np.int64], weights: Floats | None, n_classes: int, intercept: bool
) -> Sample:
    n_scores = 1 if n_classes == 2 else n_classes
    kind = np.float32 if X.dtype == np.float32 else np.float64
    labels = codes.astype(kind) if n_scores == 1 else codes
    return Sample(make_design(X, weights, intercept), labels, weights, n_scores)


def read_features(owner: Any, X: Any, *, reset: bool = False) -> Any:
    """Rows as float64 or float32, dense or sparse by rows, all finite."""
    return validate_data(
        owner, known_table(X), accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset
    )
