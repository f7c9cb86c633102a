"""Linear scores of many rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .design import Floats, row_blocks

__all__ = ["linear_scores"]


def linear_scores(X: Any, coef: Floats, intercept: Floats) -> NDArray[Any]:
    """X coef' + intercept, of shape (n, K): computed in float64 a block at a time, in the type of X.

    Coefficients of features far from zero cancel against the intercept, which float32 would not survive.
    """
    is_sparse: bool = sparse.issparse(X)
    if is_sparse:
        return np.asarray(X @ coef.T + intercept).astype(X.dtype, copy=False)
    result = np.empty((X.shape[0], len(coef)), dtype=X.dtype)
    for rows in row_blocks(*X.shape):
        result[rows] = X[rows].astype(np.float64, copy=False) @ coef.T + intercept
    return result
