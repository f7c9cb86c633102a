"""Tables as rows of numbers that a net can take: scaled, without gaps, categories as zeros and ones.

A column of numbers becomes its normal scores (`raresight.deep.normal_scores`), a column of categories one
input a frequent level (`raresight.deep.category_encoder`). Where training rows lack a value of a column,
one more input says so. A column that is constant in training, numbers or categories, has no input of its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.json_values import VALUE_KINDS, kind_of_values, pack_values, unpack_values
from ..common.tables import check_categories, is_frame, is_sparse
from .category_encoder import MISSING, UNSEEN, CategoryEncoder
from .normal_scores import NormalScores

__all__ = ["TableEncoder", "categories_of", "codes_of", "dense_table", "numbers_of"]

Floats = NDArray[np.float64]

# A sparse table is made dense up to so many numbers, 1 GiB as float32.
_MOST_NUMBERS = 1 << 28


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
                values = numbers_of(table, i)
                missing = np.isnan(values)
                scale = NormalScores.learn(values[~missing], weights[~missing])
                columns.append(_Column(scale, None, bool(missing.any()) and not missing.all()))
        return cls(tuple(columns))

    @property
    def n_inputs(self) -> int:
        """Numbers in a coded row: at least one, which is zero where no column says anything."""
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
        """Warn of columns of a DataFrame with mostly categories that training did not see: "1", say, for 1.

        `of` says whose rows they are, such as " of eval_set".

        Arrays of numbers cannot have got the type wrong, and codes that training lacked are usual in a few
        rows.
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
                    "the column says nothing of these rows",
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
                values = numbers_of(table, i)
                missing = np.isnan(values)
                inputs[:, place] = column.scale.apply(values)
            else:
                missing = _missing(table, i)
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
                frequent = tuple(one["levels"]["frequent"])
                # Models of before had zeros for what training did not see.
                zeros = [0.0] * (len(frequent) + (len(frequent) < len(known)))
                levels = CategoryEncoder(known, frequent, tuple(one["levels"].get("shares", zeros)))
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


def numbers_of(table: Any, i: int) -> Floats:
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


def categories_of(table: Any, i: int) -> tuple[Any, ...]:
    """The categories that occur in a column, in an order of their own and not that of the table."""
    if is_frame(table):
        column = table.iloc[:, i].astype("category").cat.remove_unused_categories()
        found = column.cat.categories.tolist()
        try:
            return tuple(sorted(found))
        except TypeError:  # of several kinds, which `check_categories` refuses
            return tuple(found)
    values = table[:, i]
    return tuple(np.unique(values[~np.isnan(values)]).tolist())


def _missing(table: Any, i: int) -> NDArray[np.bool_]:
    return np.asarray(table.iloc[:, i].isna() if is_frame(table) else np.isnan(table[:, i]))


def codes_of(table: Any, i: int, known: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Positions in `known`, `UNSEEN` for any other value; and which values are missing."""
    if is_frame(table):
        places = {value: place for place, value in enumerate(known)}
        values, missing = table.iloc[:, i].astype(object).to_numpy(), _missing(table, i)
        # Python's own equality, by which True is the 1 that training saw; pandas tells them apart.
        codes = [UNSEEN if gone else places.get(value, UNSEEN) for value, gone in zip(values, missing)]
        return np.array(codes, dtype=np.int64), missing
    if any(isinstance(value, str) for value in known):
        raise ValueError(
            f"column {i} held text categories in training, which an array of numbers cannot have: "
            "pass a DataFrame"
        )
    values = np.asarray(table[:, i], dtype=np.float64)
    levels = np.asarray(known, dtype=np.float64)
    if not len(levels):
        return np.full(len(values), UNSEEN), np.isnan(values)
    order = np.argsort(levels)  # those of a DataFrame come in an order of their own
    codes = order[np.searchsorted(levels, values, sorter=order).clip(0, len(levels) - 1)]
    return np.where(levels[codes] == values, codes, UNSEEN), np.isnan(values)
