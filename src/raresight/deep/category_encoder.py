"""Columns of categories as numbers: one input for each frequent category, and one for all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.tables import is_frame

__all__ = [
    "MISSING",
    "MOST_CATEGORIES",
    "UNSEEN",
    "CategoryEncoder",
    "categories_of",
    "codes_of",
    "missing_in",
]

# Categories with an input of their own. The weights of such an input are learnt from the rows of its category
# alone. Of hundreds of categories most are too rare for that, and one-hot rows become too long.
MOST_CATEGORIES = 50
# Codes of values that are not a known category.
UNSEEN, MISSING = -1, -2


@dataclass(frozen=True, eq=False)
class CategoryEncoder:
    """The categories of one column that training saw; codes from 0 on are positions in `known`.

    There is one input for each category of `frequent`. All other categories share one further input. A
    missing value has zeros. An unseen value has the mean inputs of training, `shares`.

    >>> column = CategoryEncoder.learn(("DE", "FR", "IT"), np.array([0, 0, 1, 2]), np.ones(4), most=1)
    >>> column.apply(np.array([0, 2, UNSEEN, MISSING])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.0, 0.0]]
    """

    known: tuple[Any, ...]
    frequent: tuple[int, ...]
    shares: tuple[float, ...]

    @classmethod
    def learn(
        cls,
        known: tuple[Any, ...],
        codes: NDArray[np.int64],
        weights: NDArray[Any],
        most: int = MOST_CATEGORIES,
    ) -> CategoryEncoder:
        """Learn from the codes of training rows, which hold every category of `known`.

        Codes below 0 are skipped. Of categories with equal weight the first in `known` comes first.
        """
        seen = codes >= 0
        mass = np.bincount(codes[seen], weights[seen], minlength=len(known))
        # Sums of fractions depend in their last digits on the order of rows. Rounded, categories of equal
        # weight stay equal, and the order of rows does not decide which of them is frequent.
        order = np.argsort(-np.log(mass).round(9), kind="stable")
        frequent = sorted(int(code) for code in order[:most])
        parts = mass[frequent] / mass.sum()
        rest = [max(0.0, 1.0 - parts.sum())] if len(frequent) < len(known) else []
        # Rounded for the same reason, since the shares are inputs of a net.
        return cls(known, tuple(frequent), tuple(round(float(part), 9) for part in (*parts, *rest)))

    @property
    def pooled(self) -> bool:
        """Whether there is an input for all other categories."""
        return len(self.frequent) < len(self.known)

    @property
    def n_inputs(self) -> int:
        return len(self.frequent) + self.pooled

    def apply(self, codes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the inputs (n, n_inputs) of codes (n,)."""
        # The input that each code switches on; rare categories share the one after the frequent ones.
        place = np.full(len(self.known) + 1, len(self.frequent))
        place[list(self.frequent)] = np.arange(len(self.frequent))
        inputs = np.zeros((len(codes), self.n_inputs), dtype=np.float32)
        # Not zeros, which no training row had: the net would subtract what it learnt of all categories
        # together.
        inputs[codes == UNSEEN] = self.shares
        rows = np.flatnonzero(codes >= 0)
        inputs[rows, place[codes[rows]]] = 1.0
        return inputs


def categories_of(table: Any, i: int) -> tuple[Any, ...]:
    """Return the categories that occur in a column, sorted."""
    if is_frame(table):
        column = table.iloc[:, i].astype("category").cat.remove_unused_categories()
        found = column.cat.categories.tolist()
        # pandas and Arrow keep the order of the file, on which no model may depend.
        try:
            return tuple(sorted(found))
        except TypeError:  # values of several kinds, which `check_categories` refuses
            return tuple(found)
    values = table[:, i]
    return tuple(np.unique(values[~np.isnan(values)]).tolist())


def missing_in(table: Any, i: int) -> NDArray[np.bool_]:
    """Mark the missing values of a column."""
    return np.asarray(table.iloc[:, i].isna() if is_frame(table) else np.isnan(table[:, i]))


def codes_of(table: Any, i: int, known: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return positions in `known`, `UNSEEN` for any other value, and a mask of missing values."""
    if is_frame(table):
        # A dictionary, because categories of several kinds cannot be sorted for a bisection.
        places = {value: place for place, value in enumerate(known)}
        values, missing = table.iloc[:, i].astype(object).to_numpy(), missing_in(table, i)
        # By Python's equality True is the 1 that training saw; for pandas they differ.
        codes = [UNSEEN if gone else places.get(value, UNSEEN) for value, gone in zip(values, missing)]
        return np.array(codes, dtype=np.int64), missing
    if any(isinstance(value, str) for value in known):
        raise ValueError(
            f"column {i} held text categories in training, which an array of numbers cannot have: "
            "pass a DataFrame"
        )
    # An array holds only numbers, which a bisection finds faster.
    values = np.asarray(table[:, i], dtype=np.float64)
    categories = np.asarray(known, dtype=np.float64)
    if not len(categories):
        return np.full(len(values), UNSEEN), np.isnan(values)
    order = np.argsort(categories)  # the sorted order of a DataFrame may be another one
    codes = order[np.searchsorted(categories, values, sorter=order).clip(0, len(categories) - 1)]
    return np.where(categories[codes] == values, codes, UNSEEN), np.isnan(values)
