"""Rows that hold the same, found by a hash: copies belong to one side of a split, and count as duplicates.

Otherwise a copy would evaluate a model that was trained on it. Equal rows are not always copies: in a table
of counts, with a few columns of categories, they are independent draws (`copies_of`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FOLDS", "assign_folds", "canonical", "copies_of", "row_groups", "row_hashes"]

FOLDS = 5

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


def copies_of(X: NDArray[Any], codes: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the same number for all copies of a row; None where rows can be split one by one.

    Equal rows of one class are copies, except in a table of counts (see `_are_independent_draws`).
    """
    groups = row_groups(X, codes)
    _, first, copies = np.unique(groups, return_index=True, return_counts=True)
    if len(first) == len(codes) or _are_independent_draws(row_groups(X)[first], codes[first], copies):
        return None
    return groups


def _are_independent_draws(
    contents: NDArray[np.int64], codes: NDArray[np.int64], copies: NDArray[np.int64]
) -> bool:
    """Return whether equal rows come from a table of counts, one entry for each distinct row and class.

    Two signs together, because neither duplicated records nor resampling makes both:

    - At least half of the distinct rows of the smallest class also occur in another class.
    - A distinct row of the largest class comes at least twice on average.

    `contents` are group numbers that ignore the class.
    """
    sizes = np.bincount(codes)
    rarest, commonest = codes == np.argmin(sizes), codes == np.argmax(sizes)
    is_shared = np.isin(contents[rarest], contents[~rarest])
    return bool(is_shared.mean() >= 0.5 and copies[commonest].mean() >= 2)


def assign_folds(
    codes: NDArray[np.int64], random: np.random.RandomState, groups: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """Return the fold of each row, stratified by class: five folds, or as many as the rarest class has rows.

    Rows with the same number in `groups` are of one class and share a fold. They count as one row.

    Returns:
        (n,) fold numbers from 0. None where a class has a single row.

    >>> codes = np.array([0] * 7 + [1] * 2)
    >>> folds = assign_folds(codes, np.random.RandomState(0))
    >>> np.bincount(folds[codes == 1]).tolist(), np.bincount(folds[codes == 0]).tolist()
    ([1, 1], [4, 3])
    >>> codes, groups = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 2, 2, 3])
    >>> assign_folds(codes, np.random.RandomState(0), groups).tolist()
    [0, 0, 1, 0, 0, 1]
    """
    sizes, places = np.ones(len(codes), np.int64), np.arange(len(codes))
    units = codes
    if groups is not None:
        _, first, places, sizes = np.unique(
            groups, return_index=True, return_inverse=True, return_counts=True
        )
        units = codes[first]
    counts = np.bincount(units)
    number = min(FOLDS, int(counts.min()))
    if number < 2:
        return None
    folds = np.empty(len(units), dtype=np.int64)
    for k, count in enumerate(counts):
        # Dealt out in turn, the largest group first: folds differ by no more rows than the largest group of
        # the class has. Groups of equal size, as rows without copies are, remain in random order.
        drawn = random.permutation(np.flatnonzero(units == k))
        largest_first = drawn[np.argsort(-sizes[drawn], kind="stable")]
        folds[largest_first] = np.arange(count) % number
    return folds[places.ravel()]
