"""Groups of rows that may depend on each other: the rows of a customer, or of a stretch of time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import as_vector, check_lengths, check_whole

Codes = NDArray[np.intp]

__all__ = ["effective_units", "group_codes", "group_units", "time_blocks"]


def group_codes(groups: Any, rows: int) -> Codes | None:
    """Return groups as numbers from 0 on, or None for None: every row is then a group of its own.

    Raises:
        ValueError: If there is not one group per row, one is missing, or all rows are of one group.
    """
    if groups is None:
        return None
    values = as_vector(groups, "groups")
    check_lengths(rows, len(values), "groups")
    if values.dtype.kind in "fcmM" and (missing := values != values).any():
        raise ValueError(f"groups has a missing value ({values[missing][0]}) at row {np.argmax(missing)}")
    if values.dtype.kind == "O":
        # Objects of several types have no order; their equality is all that is needed.
        numbers = {value: code for code, value in enumerate(dict.fromkeys(values.tolist()))}
        codes = np.fromiter((numbers[value] for value in values.tolist()), np.intp, rows)
    else:
        codes = np.unique(values, return_inverse=True)[1]
    if rows and codes.max() == 0:
        raise ValueError("groups has one value alone; the variance between groups needs at least two.")
    return np.asarray(codes, dtype=np.intp)


def effective_units(codes: Codes) -> float:
    """Return how many groups of equal size would be worth as much (Kish 1965)."""
    sizes = np.bincount(codes)
    return float(len(codes)) ** 2 / float(sizes @ sizes)


def group_units(labels: NDArray[np.bool_], codes: Codes) -> float:
    """Return the effective number of groups of the smaller class.

    Raises:
        ValueError: If one group has all rows of a class.
    """
    classes = [codes[kind] for kind in (labels, ~labels)]
    if min(len(np.unique(one)) for one in classes) < 2:
        raise ValueError(
            "An interval by groups needs rows of each class in at least two groups; one shows no variance."
        )
    # Two groups of unequal size are worth less than two, which has no degrees of freedom.
    return max(2.0, min(effective_units(one) for one in classes))


def time_blocks(times: Any, blocks: int = 30) -> Codes:
    """Return which of so many stretches of time each row is in, for `groups`.

    The stretches hold about equally many rows; rows of one time stay together. Rows are then taken to be
    independent if they are in different stretches, so a stretch should be longer than what makes neighbours
    alike. Fewer stretches make wider intervals.

    Args:
        times: A number, date or text that sorts, for each row.
        blocks: Number of stretches. Default: 30.

    Example:
        >>> time_blocks([1, 1, 2, 3, 4, 4], blocks=3).tolist()
        [0, 0, 1, 1, 2, 2]
    """
    check_whole(blocks, "blocks", least=2)
    values = as_vector(times, "times")
    if values.dtype.kind in "fmM" and (missing := values != values).any():
        raise ValueError(f"times has a missing value ({values[missing][0]}) at row {np.argmax(missing)}")
    _, ranks, counts = np.unique(values, return_inverse=True, return_counts=True)
    # The middle of a time's rows decides, so that a time with many rows pulls no neighbour along.
    middle = np.cumsum(counts) - counts / 2
    stretch = np.floor(middle / max(1, len(values)) * blocks).astype(np.intp)
    return np.unique(stretch[ranks], return_inverse=True)[1].astype(np.intp)
