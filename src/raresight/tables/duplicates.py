"""Rows that are there more than once: in a table, or in the rows that train and those that judge."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.row_groups import canonical, row_hashes


def count_repeated(X: NDArray[Any], y: NDArray[Any]) -> int:
    """How many rows equal an earlier one in all features and the label; missing equals missing.

    Rows are brought together by a hash and then compared, so that the number is exact.

    Example:
        >>> count_repeated(np.array([[1.0, np.nan], [1.0, np.nan], [1.0, np.nan]]), np.array([0, 0, 1]))
        1
    """
    labels = np.asarray(y)
    hashes = row_hashes(X, labels)
    order = np.argsort(hashes, kind="stable")
    same_hash = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    earlier, later = order[same_hash], order[same_hash + 1]
    if not _equal(X, labels, earlier, X, labels, later).all():
        # Two different rows have one hash: then by sorting whole rows.
        return len(labels) - len(np.unique(whole_rows(X, labels)))
    return len(same_hash)


def count_shared(X: NDArray[Any], y: NDArray[Any], others: NDArray[Any], other_labels: NDArray[Any]) -> int:
    """How many of the other rows equal one of the first in all features and the label.

    Example:
        >>> rows, labels = np.array([[1.0], [2.0]]), np.array([0, 1])
        >>> count_shared(rows, labels, np.array([[2.0], [2.0], [1.0]]), np.array([1, 1, 1]))
        2
    """
    first, second = np.asarray(y), np.asarray(other_labels)
    if len(first) == 0 or len(second) == 0:
        return 0
    hashes, wanted = row_hashes(X, first), row_hashes(others, second)
    order = np.argsort(hashes, kind="stable")
    place = np.minimum(np.searchsorted(hashes, wanted, sorter=order), len(hashes) - 1)
    found = np.flatnonzero(hashes[order[place]] == wanted)
    if not _equal(X, first, order[place[found]], others, second, found).all():
        return int(np.isin(whole_rows(others, second), whole_rows(X, first)).sum())
    return len(found)


def whole_rows(X: NDArray[Any], labels: NDArray[Any]) -> NDArray[Any]:
    """Each row as one value of bytes, its label included."""
    columns = [canonical(X[:, position]) for position in range(X.shape[1])]
    rows = np.ascontiguousarray(np.column_stack([*columns, labels.astype(X.dtype)]))
    whole: NDArray[Any] = rows.view(f"V{rows.shape[1] * rows.itemsize}")[:, 0]
    return whole


def _equal(
    X: NDArray[Any],
    y: NDArray[Any],
    rows: NDArray[np.intp],
    others: NDArray[Any],
    other_labels: NDArray[Any],
    other_rows: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """Where pairs of rows are equal."""
    equal: NDArray[np.bool_] = y[rows] == other_labels[other_rows]
    for position in range(X.shape[1]):
        left, right = X[rows, position], others[other_rows, position]
        equal &= (left == right) | (np.isnan(left) & np.isnan(right))
    return equal
