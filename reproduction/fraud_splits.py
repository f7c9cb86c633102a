"""Which rows of the fraud table are trained on and which are tested."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .card_fraud import CardFraud

__all__ = ["FOLDS", "REPEATS", "Key", "Rows", "luck", "split_keys", "splits"]

FOLDS = 4
REPEATS = 3
TIME_SHARE = 0.25

Rows = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Training rows and test rows."""
Key = tuple[str, int, int]
"""The kind of split ("random" or "time"), the repetition, the fold."""


def splits(table: CardFraud, seed: int, repeats: int) -> dict[Key, Rows]:
    """Four stratified folds of all rows, `repeats` times; the last quarter in time after the first three."""
    from sklearn.model_selection import RepeatedStratifiedKFold

    keys = split_keys(repeats)
    folds = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=repeats, random_state=seed)
    cut = int(len(table.y) * (1 - TIME_SHARE))
    in_time = np.arange(cut), np.arange(cut, len(table.y))
    return dict(zip(keys, [*folds.split(table.X, table.y), in_time], strict=True))


def split_keys(repeats: int) -> list[Key]:
    """The names of the splits, in order.

    >>> split_keys(1)[-2:]
    [('random', 0, 3), ('time', 0, 0)]
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    return [*(("random", *divmod(place, FOLDS)) for place in range(repeats * FOLDS)), ("time", 0, 0)]


def luck(seed: int, key: Key) -> int:
    """The seed of what is random in the fits of a split.

    >>> [luck(0, key) for key in (("random", 0, 3), ("random", 1, 0), ("time", 0, 0))]
    [3, 4, 0]
    """
    _, repeat, fold = key
    return seed + FOLDS * repeat + fold
