"""Columns of categories as numbers: codes, and one input for each frequent level and one for all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.tables import is_frame

__all__ = ["MISSING", "MOST_LEVELS", "UNSEEN", "CategoryEncoder", "categories_of", "codes_of", "missing_in"]

# Levels with an input of their own. The weights of a level are learnt from its rows alone: where there are
# hundreds of levels most are too rare for that, and one-hot rows too long.
MOST_LEVELS = 50
# Codes of values that are no level.
UNSEEN, MISSING = -1, -2


@dataclass(frozen=True, eq=False)
class CategoryEncoder:
    """The levels of one column that training saw; codes from 0 on are positions in `known`.

    Inputs: one for each level of `frequent`, then, where there are more levels, one for all others together.
    A value that training did not see has the mean inputs of training, `shares`: with zeros, which no row of
    training had, a net would take away what it learnt of all levels together. A missing value has zeros.

    >>> levels = CategoryEncoder.learn(("DE", "FR", "IT"), np.array([0, 0, 1, 2]), np.ones(4), most=1)
    >>> levels.apply(np.array([0, 2, UNSEEN, MISSING])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.0, 0.0]]
    """

    known: tuple[Any, ...]
    frequent: tuple[int, ...]
    shares: tuple[float, ...]

    @classmethod
    def learn(
        cls, known: tuple[Any, ...], codes: NDArray[np.int64], weights: NDArray[Any], most: int = MOST_LEVELS
    ) -> CategoryEncoder:
        """From the codes of training rows, which hold every level of `known`; a code below 0 is no level.

        Of levels with equal weight the first in `known` comes first.
        """
        seen = codes >= 0
        mass = np.bincount(codes[seen], weights[seen], minlength=len(known))
        # Sums of fractions differ in their last digits with the order of rows. Rounded, levels of equal
        # weight stay equal, and the order of rows does not decide which of them is frequent.
        order = np.argsort(-np.log(mass).round(9), kind="stable")
        frequent = sorted(int(code) for code in order[:most])
        parts = mass[frequent] / mass.sum()
        rest = [max(0.0, 1.0 - parts.sum())] if len(frequent) < len(known) else []
        # Rounded for the same reason, since the shares are inputs of a net.
        return cls(known, tuple(frequent), tuple(round(float(part), 9) for part in (*parts, *rest)))

    @property
    def pooled(self) -> bool:
        """Whether levels are left over for the input of the others."""
        return len(self.frequent) < len(self.known)

    @property
    def n_inputs(self) -> int:
        return len(self.frequent) + self.pooled

    def apply(self, codes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Codes (n,) to inputs (n, n_inputs)."""
        # By the code of a level the input that is on; the one after the frequent ones is that of all others.
        place = np.full(len(self.known) + 1, len(self.frequent))
        place[list(self.frequent)] = np.arange(len(self.frequent))
        inputs = np.zeros((len(codes), self.n_inputs), dtype=np.float32)
        inputs[codes == UNSEEN] = self.shares
        rows = np.flatnonzero(codes >= 0)
        inputs[rows, place[codes[rows]]] = 1.0
        return inputs


def categories_of(table: Any, i: int) -> tuple[Any, ...]:
    """The categories that occur in a column, sorted.

    pandas and Arrow keep them in the order of the file, on which no model may depend.
    """
    if is_frame(table):
        column = table.iloc[:, i].astype("category").cat.remove_unused_categories()
        found = column.cat.categories.tolist()
        try:
            return tuple(sorted(found))
        except TypeError:  # of several kinds, which `check_categories` refuses
            return tuple(found)
    values = table[:, i]
    return tuple(np.unique(values[~np.isnan(values)]).tolist())


def missing_in(table: Any, i: int) -> NDArray[np.bool_]:
    return np.asarray(table.iloc[:, i].isna() if is_frame(table) else np.isnan(table[:, i]))


def codes_of(table: Any, i: int, known: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Positions in `known`, `UNSEEN` for any other value; and which values are missing."""
    if is_frame(table):
        # A dictionary, since levels of one column may be of several kinds, which cannot be sorted.
        places = {value: place for place, value in enumerate(known)}
        values, missing = table.iloc[:, i].astype(object).to_numpy(), missing_in(table, i)
        # Python's own equality, by which True is the 1 that training saw; pandas tells them apart.
        codes = [UNSEEN if gone else places.get(value, UNSEEN) for value, gone in zip(values, missing)]
        return np.array(codes, dtype=np.int64), missing
    if any(isinstance(value, str) for value in known):
        raise ValueError(
            f"column {i} held text categories in training, which an array of numbers cannot have: "
            "pass a DataFrame"
        )
    # An array has numbers alone, which can be found by bisection.
    values = np.asarray(table[:, i], dtype=np.float64)
    levels = np.asarray(known, dtype=np.float64)
    if not len(levels):
        return np.full(len(values), UNSEEN), np.isnan(values)
    order = np.argsort(levels)  # those of a DataFrame come in an order of their own
    codes = order[np.searchsorted(levels, values, sorter=order).clip(0, len(levels) - 1)]
    return np.where(levels[codes] == values, codes, UNSEEN), np.isnan(values)
