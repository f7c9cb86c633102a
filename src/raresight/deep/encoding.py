"""Tables as rows of numbers for nets: scaled, without gaps, categories as zeros and ones.

A column of numbers becomes its normal scores. A column of categories becomes one input for each frequent
category (see `raresight.deep.category_encoder`). Where training rows lack a value, one further input marks
the gap. A column that is constant in training, numbers or categories, has no input of its own.

Nets need inputs of similar size: a single amount of 1e6 among amounts of 10 would dominate the others. Let F
be the share of training rows below a value, plus half of those equal to it. Then

    score(x) = Phi^-1(F(x)) - its mean over the training rows

is about normal for every distribution. Equal values share the middle of their ranks. Values outside the
training range get the score of its ends. Values between those seen are interpolated.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..common.json_values import VALUE_KINDS, kind_of_values, pack_values, unpack_values
from ..common.tables import check_categories, is_frame, is_sparse
from .category_encoder import MISSING, CategoryEncoder, categories_of, codes_of, missing_in

__all__ = ["MOST_KNOTS", "NormalScores", "TableEncoder", "dense_table", "numbers_and_codes", "rows_at"]

Floats = NDArray[np.float64]

# The most knots of a scale, in even steps of the score and not of the rank. Rare events are often at the
# ends, where even steps of the rank would leave one segment for the last thousandth of the rows.
MOST_KNOTS = 1000
# A sparse table is made dense up to this many numbers, 1 GiB as float32.
_MOST_NUMBERS = 1 << 28


@dataclass(frozen=True, eq=False)
class NormalScores:
    """The scale of one column: sorted values and their scores, linear in between.

    >>> amounts = np.array([1.0, 2.0, 2.0, 3.0, 1000.0])
    >>> scale = NormalScores.learn(amounts, np.ones(5))
    >>> scale.apply(np.array([2.0, 1000.0, 1e9])).round(2).tolist()
    [-0.26, 1.28, 1.28]
    """

    knots: Floats
    scores: Floats

    @classmethod
    def learn(cls, values: NDArray[Any], weights: Floats) -> NormalScores | None:
        """Learn from training values without gaps; None where all are equal."""
        distinct, places = np.unique(values.astype(np.float64), return_inverse=True)
        if len(distinct) < 2:
            return None
        mass = np.bincount(places.ravel(), weights, minlength=len(distinct))
        rank = (np.cumsum(mass) - mass / 2) / mass.sum()
        scores = np.asarray(ndtri(rank))
        mean = float(scores @ mass / mass.sum())
        if len(distinct) > MOST_KNOTS:
            wanted = ndtr(np.linspace(scores[0], scores[-1], MOST_KNOTS))
            chosen = np.unique(np.searchsorted(rank, wanted).clip(0, len(rank) - 1))
            chosen = np.unique([0, *chosen, len(rank) - 1])  # the extremes always are knots
            distinct, scores = distinct[chosen], scores[chosen]
        return cls(distinct, scores - mean)

    def apply(self, values: NDArray[Any]) -> Floats:
        """Return the scores of values; 0, the mean, for missing ones."""
        numbers = values.astype(np.float64)
        found = np.interp(numbers, self.knots, self.scores)
        steep = self._steep()
        if steep.any():
            left = (np.searchsorted(self.knots, numbers, side="right") - 1).clip(0, len(steep) - 1)
            within = np.flatnonzero(steep[left])
            found[within] = self._between(numbers[within], left[within])
        return np.asarray(np.where(np.isnan(found), 0.0, found))

    def _steep(self) -> NDArray[np.bool_]:
        """Mark segments whose length or slope is beyond float64, where `numpy.interp` gives wrong values."""
        rise = np.diff(self.scores)
        with np.errstate(over="ignore"):
            length = np.diff(self.knots)
            slope = rise / length
        # A slope below the smallest normal number has lost digits.
        usual = np.isfinite(length) & np.isfinite(slope) & (slope >= np.finfo(np.float64).tiny)
        return np.asarray(~usual & (rise > 0))

    def _between(self, numbers: Floats, left: NDArray[np.intp]) -> Floats:
        """Return scores in the segments that start at the knots `left`, by the share of the segment."""
        low, high = self.knots[left], self.knots[left + 1]
        # A power of two scales the larger end to about 1/4, without rounding: no length overflows or
        # underflows.
        power = -np.frexp(np.maximum(np.abs(low), np.abs(high)))[1] - 1
        inside = np.clip(numbers, low, high)
        start = np.ldexp(low, power)
        share = (np.ldexp(inside, power) - start) / (np.ldexp(high, power) - start)
        below, above = self.scores[left], self.scores[left + 1]
        score = np.clip(below + share * (above - below), below, above)
        return np.asarray(np.where(share >= 1, above, score))


@dataclass(frozen=True, eq=False)
class _ColumnEncoding:
    """The coding of one column: by a scale, by categories, or by neither, in which case it is not read."""

    scale: NormalScores | None
    categories: CategoryEncoder | None
    gaps: bool

    @property
    def n_inputs(self) -> int:
        values = 0 if self.categories is None else self.categories.n_inputs
        return values + (self.scale is not None) + self.gaps


@dataclass(frozen=True, eq=False)
class TableEncoder:
    """The coding of a table, learnt from its training rows.

    >>> X = np.array([[1.0, 0.0], [np.nan, 2.0], [3.0, 2.0]])
    >>> coder = TableEncoder.learn(X, [1], np.ones(3))
    >>> coder.apply(X).astype(float).round(2).tolist()
    [[-0.67, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [0.67, 0.0, 0.0, 1.0]]
    >>> coder.origins.tolist()
    [0, 0, 1, 1]
    """

    columns: tuple[_ColumnEncoding, ...]

    @classmethod
    def learn(cls, table: Any, categorical: Sequence[int], weights: Floats) -> TableEncoder:
        """Learn from weighted training rows, as `raresight.common.tables.read_table` returns them."""
        columns = []
        for i in range(table.shape[1]):
            if i in categorical:
                known = categories_of(table, i)
                check_categories(list(known), _name(table, i), VALUE_KINDS, "DeepClassifier")
                codes, missing = codes_of(table, i, known)
                gaps = bool(missing.any()) and not missing.all()
                needed = len(known) > 1 or gaps
                categories = CategoryEncoder.learn(known, codes, weights) if needed else None
                columns.append(_ColumnEncoding(None, categories, gaps))
            else:
                values = _numbers_of(table, i)
                missing = np.isnan(values)
                scale = NormalScores.learn(values[~missing], weights[~missing])
                columns.append(_ColumnEncoding(scale, None, bool(missing.any()) and not missing.all()))
        return cls(tuple(columns))

    @property
    def n_inputs(self) -> int:
        """Inputs per row: at least one, which is zero where no column has an input."""
        return max(1, sum(column.n_inputs for column in self.columns))

    @property
    def origins(self) -> NDArray[np.intp]:
        """The column of each input."""
        return np.repeat(np.arange(len(self.columns)), [column.n_inputs for column in self.columns])

    @property
    def categorical(self) -> list[int]:
        """The columns that may hold text: those of categories, and those whose values are not read."""
        return [i for i, column in enumerate(self.columns) if column.scale is None]

    def warn_of_unseen(self, table: Any, of: str = "") -> None:
        """Warn about columns of a DataFrame in which most categories are new, such as "1" instead of 1.

        Args:
            table: The rows.
            of: Which rows they are, for the text, such as " of eval_set".
        """
        # Arrays hold numbers of one type, so that only a few new codes are to be expected.
        if not is_frame(table):
            return
        for i, coding in enumerate(self.columns):
            if coding.categories is None:
                continue
            known = coding.categories.known
            codes, missing = codes_of(table, i, known)
            is_new = (codes < 0) & ~missing
            if 2 * is_new.sum() > (~missing).sum():
                value = table.iloc[:, i][is_new].tolist()[0]
                warnings.warn(
                    f"column {_name(table, i)!r} holds in {is_new.sum()} of {len(codes)} rows{of} categories "
                    f"that training did not see, such as {value!r} (training saw {known[0]!r}): "
                    "nets ignore the column in these rows",
                    UserWarning,
                    stacklevel=3,
                )

    def apply(self, table: Any) -> NDArray[np.float32]:
        """Return the inputs (n, n_inputs) of rows (n, columns)."""
        inputs = np.zeros((table.shape[0], self.n_inputs), dtype=np.float32)
        place = 0
        for i, column in enumerate(self.columns):
            if not column.n_inputs:
                continue
            last = place + column.n_inputs
            if column.categories is not None:
                codes, missing = codes_of(table, i, column.categories.known)
                if column.gaps:
                    codes = np.where(missing, MISSING, codes)
                inputs[:, place : place + column.categories.n_inputs] = column.categories.apply(codes)
            elif column.scale is not None:
                values = _numbers_of(table, i)
                missing = np.isnan(values)
                inputs[:, place] = column.scale.apply(values)
            else:
                missing = missing_in(table, i)
            if column.gaps:
                inputs[:, last - 1] = missing
            place = last
        return inputs

    def describe(self) -> list[dict[str, Any]]:
        """Return JSON values for `restore`; the scales are in `arrays`."""
        return [
            {
                "scaled": column.scale is not None,
                "gaps": column.gaps,
                "categories": None
                if column.categories is None
                else {
                    "known": pack_values(column.categories.known, f"the categories of column {i}"),
                    "frequent": list(column.categories.frequent),
                    "shares": list(column.categories.shares),
                },
            }
            for i, column in enumerate(self.columns)
        ]

    def arrays(self) -> dict[str, Floats]:
        """Return the arrays of the scales by name."""
        found = {}
        for i, column in enumerate(self.columns):
            if column.scale is not None:
                found[f"column.{i}.knots"] = column.scale.knots
                found[f"column.{i}.scores"] = column.scale.scores
        return found

    @classmethod
    def restore(
        cls, described: Sequence[Mapping[str, Any]], arrays: Mapping[str, NDArray[Any]]
    ) -> TableEncoder:
        """Rebuild the encoder from the results of `describe` and `arrays`."""
        columns = []
        for i, one in enumerate(described):
            scale = None
            if one["scaled"]:
                scale = NormalScores(arrays[f"column.{i}.knots"], arrays[f"column.{i}.scores"])
            categories, saved = None, one["categories"]
            if saved is not None:
                known = tuple(unpack_values(saved["known"]).tolist())
                categories = CategoryEncoder(known, tuple(saved["frequent"]), tuple(saved["shares"]))
            columns.append(_ColumnEncoding(scale, categories, bool(one["gaps"])))
        return cls(tuple(columns))


def dense_table(table: Any) -> Any:
    """Write out the zeros of a sparse matrix; refuse one that is too large."""
    if not is_sparse(table):
        return table
    if table.shape[0] * table.shape[1] > _MOST_NUMBERS:
        raise ValueError(
            f"X is sparse with {table.shape[0]} x {table.shape[1]} numbers, but nets take dense rows: choose "
            "columns, or reduce them, such as by sklearn.decomposition.TruncatedSVD"
        )
    return table.toarray()


def rows_at(table: Any, places: Any) -> Any:
    """Return some rows of an array or a DataFrame."""
    return table.iloc[places] if is_frame(table) else table[places]


def numbers_and_codes(table: Any, categorical: Sequence[int]) -> Floats:
    """Return a table as float64: numbers, and codes for the categories of a DataFrame."""
    if not is_frame(table):
        return np.asarray(table, dtype=np.float64)
    columns = [
        codes_of(table, i, categories_of(table, i))[0] if i in categorical else _numbers_of(table, i)
        for i in range(table.shape[1])
    ]
    return np.column_stack(columns).astype(np.float64)


def _numbers_of(table: Any, i: int) -> Floats:
    """Return a column as float64, NaN for missing; refuse categories that are not numbers."""
    if is_frame(table):
        dtype = table.dtypes.iloc[i]
        if str(dtype) == "category":
            categories = dtype.categories.tolist()
            kind = kind_of_values(categories)
            if categories and kind not in ("booleans", "whole numbers", "floats"):
                raise ValueError(
                    f"column {_name(table, i)!r} held numbers in training, but holds categories that are "
                    f"{kind} here, such as {categories[0]!r}: make it numeric, such as by pandas.to_numeric"
                )
        return np.asarray(table.iloc[:, i].to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(table[:, i], dtype=np.float64)


def _name(table: Any, i: int) -> str:
    return str(table.columns[i]) if is_frame(table) else str(i)
