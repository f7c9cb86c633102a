"""Rows that hold the same, found by a hash: copies belong to one side of a split, and count as duplicates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["canonical", "row_groups", "row_hashes"]

# Of splitmix64: products carry a change to higher bits, shifts bring it down again.
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
# Rows at a time, whose columns then come from the cache.
_BLOCK = 1 << 14


def row_groups(X: NDArray[Any], y: NDArray[Any] | None = None) -> NDArray[np.intp]:
    """Return the number of its group for each row: rows of one group are equal in all columns and the label.

    A missing value equals a missing one, and -0 equals 0. Rows are compared by hashes of 64 bits: two
    different rows of a million share a group once in 37 million tables.

    Args:
        X: (n, d) floats, such as codes of categories; NaN is missing.
        y: n whole numbers. Default: columns alone count.

    >>> first, other, copy, relabelled = row_groups(
    ...     np.array([[1.0, np.nan], [2.0, 0.0], [1.0, np.nan], [2.0, -0.0]]), np.array([0, 1, 0, 0])
    ... )
    >>> bool(first == copy), bool(other == relabelled)
    (True, False)
    """
    return np.unique(row_hashes(X, y), return_inverse=True)[1].ravel()


def row_hashes(X: NDArray[Any], y: NDArray[Any] | None = None) -> NDArray[np.uint64]:
    """64 bits for each row: the same for equal rows, and hardly ever for others."""
    found = np.zeros(len(X), np.uint64)
    if y is not None:
        _stir(found, np.asarray(y).astype(np.uint64))
    for start in range(0, len(X), _BLOCK):
        block, hashes = X[start : start + _BLOCK], found[start : start + _BLOCK]
        for position in range(X.shape[1]):
            # As float64, so that the type of the table does not matter.
            _stir(hashes, canonical(block[:, position].astype(np.float64)).view(np.uint64))
    return found


def _stir(hashes: NDArray[np.uint64], keys: NDArray[np.uint64]) -> None:
    hashes ^= keys
    for factor in _FACTORS:
        hashes *= factor
        hashes ^= hashes >> _HALF


def canonical(column: NDArray[Any]) -> NDArray[Any]:
    """Give each value one bit pattern: no negative zero, one NaN."""
    values = column + column.dtype.type(0)
    values[np.isnan(values)] = np.nan
    return np.ascontiguousarray(values)
