"""Count duplicate rows: within a table, and between training and held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.row_groups import canonical, row_hashes


def count_repeated(X: NDArray[Any], y: NDArray[Any]) -> int:
    """Count the rows that equal an earlier one in all features and the label; missing equals missing.

    Rows with equal hashes are compared, so that the count is exact.

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
        # Two different rows have one hash. This is so rare that the slow sort of whole rows is good enough.
        return len(labels) - len(np.unique(whole_rows(X, labels)))
    return len(same_hash)


def count_shared(X: NDArray[Any], y: NDArray[Any], others: NDArray[Any], other_labels: NDArray[Any]) -> int:
    """Count the rows of `others` that equal a row of `X` in all features and the label.

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
    """Return each row with its label as one value of bytes."""
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
    """Tell for each pair of rows whether they are equal."""
    equal: NDArray[np.bool_] = y[rows] == other_labels[other_rows]
    for position in range(X.shape[1]):
        left, right = X[rows, position], others[other_rows, position]
        equal &= (left == right) | (np.isnan(left) & np.isnan(right))
    return equal
