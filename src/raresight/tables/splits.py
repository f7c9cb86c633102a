"""Which rows train and which judge: at random within each class, by time, or by group.

- At random: each class is dealt out separately, so that the share of positives is the same on both sides.
- By time: the model learns from the past and is judged on what came later. Rows of one time stay together.
- By group: all rows of a group (a customer, a machine) are on the same side, with positives and negatives
  dealt out as evenly as whole groups allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Split:
    """Positions of the rows that train and of those that judge, each in ascending order."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]


def split_rows(
    y: ArrayLike,
    *,
    test_size: float,
    seed: int,
    times: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Split:
    """Hold back a share of the rows for one final judgement.

    Args:
        y: Labels, 0 or 1.
        test_size: Share of the rows to hold back, in (0, 1). By time and by group it is met as nearly as
            equal times and whole groups allow.
        seed: Decides the draw. A split by time does not depend on it.
        times: If given, the latest rows are held back.
        groups: If given, whole groups are held back.

    Raises:
        ValueError: If one of the sides would have no positive or no negative row.

    Example:
        >>> split = split_rows([0, 0, 0, 1, 0, 0, 0, 1], test_size=0.5, seed=0)
        >>> len(split.train), len(split.test)
        (4, 4)
        >>> split_rows([0, 1, 0, 1], test_size=0.5, seed=0, times=[1, 2, 3, 4]).test
        array([2, 3])
    """
    labels = _checked_labels(y)
    if not 0 < test_size < 1:
        raise ValueError(f"test_size must be between 0 and 1, but is {test_size:g}")
    when, who = _checked_order(labels, times, groups)
    if when is not None:
        return _latest(labels, when, test_size)
    rng = np.random.default_rng(seed)
    if who is not None:
        side = _deal_groups(labels, who, (1 - test_size, test_size), rng)
        split = _by_side(side == 1)
        lacking = _lacking(labels, split)
        if lacking:
            raise ValueError(
                f"the groups cannot be split so that both sides have both classes: {lacking} "
                "(are all positives in one group?)"
            )
        return split
    held = np.zeros(len(labels), dtype=bool)
    for value in (0, 1):
        rows = np.flatnonzero(labels == value)
        if len(rows) < 2:
            raise ValueError(
                f"a split needs at least 2 {_class_name(value)} rows, one for each side; seen: {len(rows)}"
            )
        count = min(max(round(test_size * len(rows)), 1), len(rows) - 1)
        held[rng.permutation(rows)[:count]] = True
    return _by_side(held)


def make_folds(
    y: ArrayLike,
    n_folds: int,
    *,
    seed: int,
    times: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> list[Split]:
    """Splits for cross-validation inside the training rows.

    At random and by group every row is judged once. By time the window expands: the rows are cut into
    `n_folds` + 1 stretches of about equal length, and each fold learns from all stretches before the one it
    is judged on.

    Each side of each fold has positives and negatives. If `n_folds` folds cannot have them there are fewer,
    at least two: see the length of the list.

    Raises:
        ValueError: If not even two folds can be made.

    Example:
        >>> folds = make_folds([0, 1] * 6, 3, seed=0)
        >>> [len(fold.test) for fold in folds]
        [4, 4, 4]
        >>> [fold.test.tolist() for fold in make_folds([0, 1] * 4, 3, seed=0, times=range(8))]
        [[2, 3], [4, 5], [6, 7]]
        >>> len(make_folds([0] * 10 + [1] * 2, 5, seed=0))
        2
    """
    labels = _checked_labels(y)
    if n_folds < 2:
        raise ValueError(f"n_folds must be at least 2, but is {n_folds}")
    when, who = _checked_order(labels, times, groups)
    reason = ""
    for count in range(n_folds, 1, -1):
        if when is not None:
            folds = _expanding(when, count)
        elif who is not None:
            fold = _deal_groups(labels, who, (1 / count,) * count, np.random.default_rng(seed))
            folds = [_by_side(fold == number) for number in range(count)]
        else:
            folds = _dealt(labels, count, np.random.default_rng(seed))
        reasons = [_lacking(labels, split) for split in folds]
        if len(folds) == count and not any(reasons):
            return folds
        reason = next((text for text in reasons if text), "too few different times")
    raise ValueError(f"no two folds with both classes on both sides can be made: {reason}")


def _checked_labels(y: ArrayLike) -> NDArray[np.int8]:
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"labels must have one dimension, but have the shape {labels.shape}")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")
    return labels.astype(np.int8)


def _checked_order(
    labels: NDArray[np.int8], times: ArrayLike | None, groups: ArrayLike | None
) -> tuple[NDArray[Any] | None, NDArray[np.intp] | None]:
    """Times as ranks and groups as numbers from 0, or None."""
    if times is not None and groups is not None:
        raise ValueError("rows are split by time or by group, not by both")
    for name, values in (("times", times), ("groups", groups)):
        if values is not None and len(np.asarray(values)) != len(labels):
            raise ValueError(f"{name} has {len(np.asarray(values))} values for {len(labels)} rows")
    if times is not None:
        moments = np.asarray(times)
        if moments.dtype.kind in "fmM" and (np.isnan(moments) | (moments != moments)).any():
            raise ValueError("times has missing values; the rows cannot be put in order")
        return np.unique(moments, return_inverse=True)[1], None
    if groups is not None:
        numbers = np.unique(np.asarray(groups), return_inverse=True)[1]
        if len(numbers) and numbers.max() == 0:
            raise ValueError("all rows are of one group; a split by group needs at least two")
        return None, numbers
    return None, None


def _by_side(held: NDArray[np.bool_]) -> Split:
    return Split(train=np.flatnonzero(~held), test=np.flatnonzero(held))


def _class_name(value: int) -> str:
    return "positive" if value else "negative"


def _lacking(labels: NDArray[np.int8], split: Split) -> str:
    """What a split lacks, in words; empty if both sides have both classes."""
    for side, rows in (("training", split.train), ("test", split.test)):
        for value in (1, 0):
            if not (labels[rows] == value).any():
                return f"the {len(rows)} {side} rows have no {_class_name(value)}"
    return ""


def _latest(labels: NDArray[np.int8], when: NDArray[Any], test_size: float) -> Split:
    if when.max(initial=0) == 0:
        raise ValueError("all rows have the same time; they cannot be split into past and future")
    # `later[t]`: how many rows are of time t or later. The cut whose number is nearest to the one asked.
    later = np.cumsum(np.bincount(when)[::-1])[::-1][1:]
    cut = 1 + int(np.argmin(np.abs(later - test_size * len(when))))
    split = _by_side(when >= cut)
    for side, rows in (("test rows, the latest", split.test), ("training rows, the earliest", split.train)):
        for value in (1, 0):
            if not (labels[rows] == value).any():
                raise ValueError(
                    f"the {side} {len(rows)} by time, have no {_class_name(value)}; "
                    "use another test size or no time column"
                )
    return split


def _expanding(when: NDArray[Any], n_folds: int) -> list[Split]:
    """Cut after each (i/(n_folds + 1)) of the rows, moved to the nearest border between two times."""
    earlier = np.concatenate([[0], np.cumsum(np.bincount(when))])
    wanted = np.arange(1, n_folds + 1) / (n_folds + 1) * len(when)
    cuts = [int(np.argmin(np.abs(earlier - place))) for place in wanted]
    borders = [*cuts, len(earlier) - 1]
    folds = []
    for start, stop in pairwise(borders):
        if 0 < start < stop:
            folds.append(
                Split(
                    train=np.flatnonzero(when < start), test=np.flatnonzero((when >= start) & (when < stop))
                )
            )
    return folds


def _dealt(labels: NDArray[np.int8], n_folds: int, rng: np.random.Generator) -> list[Split]:
    fold = np.empty(len(labels), dtype=np.intp)
    dealt = 0
    for value in (1, 0):
        rows = rng.permutation(np.flatnonzero(labels == value))
        # The second class goes on where the first stopped, which keeps the folds of one size.
        fold[rows] = (dealt + np.arange(len(rows))) % n_folds
        dealt += len(rows)
    return [_by_side(fold == number) for number in range(n_folds)]


def _deal_groups(
    labels: NDArray[np.int8], groups: NDArray[np.intp], shares: Sequence[float], rng: np.random.Generator
) -> NDArray[np.intp]:
    """A part for each row, all rows of a group in one part.

    Groups go, largest first, to the part that lacks most, relative to its share: groups with positives by
    their positives, then those without by their rows, which evens out the negatives as well.
    """
    positives = np.bincount(groups, weights=labels).astype(np.intp)
    rows = np.bincount(groups)
    shuffled = rng.permutation(len(rows))
    order = shuffled[np.lexsort((-rows[shuffled], -positives[shuffled]))]
    filled_positives = [0.0] * len(shares)
    filled_rows = [0.0] * len(shares)
    part_of = np.empty(len(rows), dtype=np.intp)
    for group in order.tolist():
        mine, size = int(positives[group]), int(rows[group])
        part = min(
            range(len(shares)),
            key=lambda k: (filled_positives[k] / shares[k] if mine else 0.0, filled_rows[k] / shares[k]),
        )
        filled_positives[part] += mine
        filled_rows[part] += size
        part_of[group] = part
    return part_of[groups]
