"""Tables as rows of numbers that a net can take: scaled, without gaps, categories as zeros and ones.

A column of numbers becomes its normal scores, a column of categories one input for each frequent level (see
`raresight.deep.category_encoder`). Where training rows lack a value of a column, one more input says so. A
column that is constant in training, numbers or categories, has no input of its own.

Nets need inputs of one size, and a single amount of 1e6 among amounts of 10 would drown the others. With F
the share of training rows below a value, half of those equal to it included,

    score(x) = Phi^-1(F(x)) - its mean over the training rows

is about normal whatever the distribution. Equal values share the middle of their ranks. Values outside the
training range get the score of its ends, and values between those seen are interpolated.
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

# Even steps of the score, not of the rank: rare events are often at the ends, where ranks of even steps would
# leave one segment between the last thousandth and the maximum.
MOST_KNOTS = 1000
# A sparse table is made dense up to so many numbers, 1 GiB as float32.
_MOST_NUMBERS = 1 << 28


@dataclass(frozen=True, eq=False)
class NormalScores:
    """The scale of one column: values in order, and their scores, linear in between.

    >>> amounts = np.array([1.0, 2.0, 2.0, 3.0, 1000.0])
    >>> scale = NormalScores.learn(amounts, np.ones(5))
    >>> scale.apply(np.array([2.0, 1000.0, 1e9])).round(2).tolist()
    [-0.26, 1.28, 1.28]
    """

    knots: Floats
    scores: Floats

    @classmethod
    def learn(cls, values: NDArray[Any], weights: Floats) -> NormalScores | None:
        """From the values of training rows, none of them missing; None where all are equal."""
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
            chosen = np.unique([0, *chosen, len(rank) - 1])
            distinct, scores = distinct[chosen], scores[chosen]
        return cls(distinct, scores - mean)

    def apply(self, values: NDArray[Any]) -> Floats:
        """The scores of values; 0, the mean, where one is missing."""
        numbers = values.astype(np.float64)
        found = np.interp(numbers, self.knots, self.scores)
        steep = self._steep()
        if steep.any():
            left = (np.searchsorted(self.knots, numbers, side="right") - 1).clip(0, len(steep) - 1)
            within = np.flatnonzero(steep[left])
            found[within] = self._between(numbers[within], left[within])
        return np.asarray(np.where(np.isnan(found), 0.0, found))

    def _steep(self) -> NDArray[np.bool_]:
        """Segments whose length or slope is beyond the range of float64, where `numpy.interp` goes astray."""
        rise = np.diff(self.scores)
        with np.errstate(over="ignore"):
            length = np.diff(self.knots)
            slope = rise / length
        usual = np.isfinite(length) & np.isfinite(slope) & (slope >= np.finfo(np.float64).tiny)
        return np.asarray(~usual & (rise > 0))

    def _between(self, numbers: Floats, left: NDArray[np.intp]) -> Floats:
        """Scores in the segments that start at the knots `left`, by the share of the segment."""
        low, high = self.knots[left], self.knots[left + 1]
        # The larger end becomes about 1/4, by a power of two: no length is infinite or has few digits.
        power = -np.frexp(np.maximum(np.abs(low), np.abs(high)))[1] - 1
        inside = np.clip(numbers, low, high)
        start = np.ldexp(low, power)
        share = (np.ldexp(inside, power) - start) / (np.ldexp(high, power) - start)
        below, above = self.scores[left], self.scores[left + 1]
        score = np.clip(below + share * (above - below), below, above)
        return np.asarray(np.where(share >= 1, above, score))


@dataclass(frozen=True, eq=False)
class _Column:
    """How one column is read: by a scale, by levels, or, where neither is given, not at all."""

    scale: NormalScores | None
    levels: CategoryEncoder | None
    gaps: bool

    @property
    def n_inputs(self) -> int:
        values = 0 if self.levels is None else self.levels.n_inputs
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

    columns: tuple[_Column, ...]

    @classmethod
    def learn(cls, table: Any, categorical: Sequence[int], weights: Floats) -> TableEncoder:
        """From the training rows, as `raresight.common.tables.read_table` gives them, and their weights."""
        columns = []
        for i in range(table.shape[1]):
            if i in categorical:
                known = categories_of(table, i)
                check_categories(list(known), _name(table, i), VALUE_KINDS, "DeepClassifier")
                codes, missing = codes_of(table, i, known)
                gaps = bool(missing.any()) and not missing.all()
                levels = CategoryEncoder.learn(known, codes, weights) if len(known) > 1 or gaps else None
                columns.append(_Column(None, levels, gaps))
            else:
                values = _numbers_of(table, i)
                missing = np.isnan(values)
                scale = NormalScores.learn(values[~missing], weights[~missing])
                columns.append(_Column(scale, None, bool(missing.any()) and not missing.all()))
        return cls(tuple(columns))

    @property
    def n_inputs(self) -> int:
        """Numbers in a coded row: at least one, which is zero where no column has an input."""
        return max(1, sum(column.n_inputs for column in self.columns))

    @property
    def origins(self) -> NDArray[np.intp]:
        """The column that each input comes from."""
        return np.repeat(np.arange(len(self.columns)), [column.n_inputs for column in self.columns])

    @property
    def categorical(self) -> list[int]:
        """The columns that may hold text: those with levels, and those whose values are not read at all."""
        return [i for i, column in enumerate(self.columns) if column.scale is None]

    def warn_of_unseen(self, table: Any, of: str = "") -> None:
        """Warn of columns of a DataFrame with mostly categories that training did not see, such as "1" for 1.

        Arrays of numbers cannot have got the type wrong, and a few new codes are usual.

        Args:
            table: The rows.
            of: Whose rows they are, such as " of eval_set".
        """
        if not is_frame(table):
            return
        for i, coding in enumerate(self.columns):
            levels = coding.levels
            if levels is None:
                continue
            codes, missing = codes_of(table, i, levels.known)
            is_new = (codes < 0) & ~missing
            if 2 * is_new.sum() > (~missing).sum():
                value = table.iloc[:, i][is_new].tolist()[0]
                warnings.warn(
                    f"training saw no category that column {_name(table, i)!r} holds in {is_new.sum()} of "
                    f"{len(codes)} rows{of}, such as {value!r}, but others such as {levels.known[0]!r}: "
                    "the net learns nothing from the column there",
                    UserWarning,
                    stacklevel=3,
                )

    def apply(self, table: Any) -> NDArray[np.float32]:
        """Rows (n, columns) to inputs (n, n_inputs)."""
        inputs = np.zeros((table.shape[0], self.n_inputs), dtype=np.float32)
        place = 0
        for i, column in enumerate(self.columns):
            if not column.n_inputs:
                continue
            last = place + column.n_inputs
            if column.levels is not None:
                codes, missing = codes_of(table, i, column.levels.known)
                if column.gaps:
                    codes = np.where(missing, MISSING, codes)
                inputs[:, place : place + column.levels.n_inputs] = column.levels.apply(codes)
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
        """JSON values for `restore`; the scales are in `arrays`."""
        return [
            {
                "scaled": column.scale is not None,
                "gaps": column.gaps,
                "levels": None
                if column.levels is None
                else {
                    "known": pack_values(column.levels.known, f"the categories of column {i}"),
                    "frequent": list(column.levels.frequent),
                    "shares": list(column.levels.shares),
                },
            }
            for i, column in enumerate(self.columns)
        ]

    def arrays(self) -> dict[str, Floats]:
        """The numbers of the scales by name."""
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
        """What `describe` and `arrays` wrote."""
        columns = []
        for i, one in enumerate(described):
            scale = None
            if one["scaled"]:
                scale = NormalScores(arrays[f"column.{i}.knots"], arrays[f"column.{i}.scores"])
            levels = None
            if one["levels"] is not None:
                known = tuple(unpack_values(one["levels"]["known"]).tolist())
                frequent, shares = tuple(one["levels"]["frequent"]), tuple(one["levels"]["shares"])
                levels = CategoryEncoder(known, frequent, shares)
            columns.append(_Column(scale, levels, bool(one["gaps"])))
        return cls(tuple(columns))


def dense_table(table: Any) -> Any:
    """A sparse matrix with its zeros written out; a table too large for that is refused."""
    if not is_sparse(table):
        return table
    if table.shape[0] * table.shape[1] > _MOST_NUMBERS:
        raise ValueError(
            f"X is sparse with {table.shape[0]} x {table.shape[1]} numbers, but nets take dense rows: choose "
            "columns, or reduce them, such as by sklearn.decomposition.TruncatedSVD"
        )
    return table.toarray()


def rows_at(table: Any, places: Any) -> Any:
    """Some rows of an array or a DataFrame."""
    return table.iloc[places] if is_frame(table) else table[places]


def numbers_and_codes(table: Any, categorical: Sequence[int]) -> Floats:
    """A table as float64: numbers as they are, categories as codes, in an array as the numbers they are."""
    if not is_frame(table):
        return np.asarray(table, dtype=np.float64)
    columns = [
        codes_of(table, i, categories_of(table, i))[0] if i in categorical else _numbers_of(table, i)
        for i in range(table.shape[1])
    ]
    return np.column_stack(columns).astype(np.float64)


def _numbers_of(table: Any, i: int) -> Floats:
    """A column as float64, missing values as NaN; an error where it holds categories that are no numbers."""
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
