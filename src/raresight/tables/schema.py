"""Decide once what the columns of a table mean, and code any later table as a matrix."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, naming_column, numbers_from
from raresight.tables.column_codec import (
    DecimalMarks,
    codes_of,
    date_parts,
    infinite_values,
    is_moment,
    is_number,
    moments_of,
    numbers_of,
    plain,
    read_with_marks,
    texts_of,
    typed_moments,
    typed_numbers,
    unseen_of,
)
from raresight.tables.column_kinds import EQUAL, decide_column, looks_like_identifier
from raresight.tables.columns import Column, Dropped
from raresight.tables.date_formats import ambiguous_dates, find_clock, find_date_format, moments_written
from raresight.tables.summaries import ColumnSummary, TableSummary, summarize
from raresight.tables.targets import Target, labels_of, learn_target
from raresight.tables.text_values import is_text, numbers_in_text
from raresight.tables.value_counts import MOST_COUNTED, ValueCounts, count_of_texts
from raresight.tables.value_keys import Keys, number_keys, text_keys

__all__ = ["Column", "Dropped", "Schema", "check_name", "learn_schema", "summarize_parts"]

# Rows written to the matrix at a time: a block of a few columns stays in the cache.
_BLOCK = 4096


@dataclass(frozen=True)
class Schema:
    """The columns that a model sees, and how each is coded as numbers.

    Attributes:
        columns: The columns used, in the order of the table.
        dropped: The columns not used, with the reason.
        target: The column to predict.
        negative, positive: The two values of the target as text.
        target_kind: Their kind: "boolean", "number" or "text".
        time, group: The columns that order or group the rows, if any.
        wide: Whether a column needs more than float32.
        target_note: A note on how the positive value was chosen, if that was a guess.
        time_format: The date format of a time column of text, such as "DD.MM.YYYY"; empty for ISO.
        counts: The columns whose values are counted, too; their features come after all others.

    Example:
        >>> import pyarrow as pa
        >>> amounts, countries = [10.0, 250.0, None], ["DE", "FR", "DE"]
        >>> table = pa.table({"amount": amounts, "country": countries, "fraud": [0, 1, 0]})
        >>> schema = learn_schema(table, "fraud")
        >>> schema.matrix(table)
        array([[ 10.,   0.],
               [250.,   1.],
               [ nan,   0.]], dtype=float32)
        >>> schema.labels(table)
        array([0, 1, 0], dtype=int8)
        >>> schema.matrix(pa.table({"country": ["IT"], "amount": ["7.5"]}))
        array([[7.5, nan]], dtype=float32)
    """

    columns: tuple[Column, ...]
    dropped: tuple[Dropped, ...]
    target: str
    negative: str
    positive: str
    target_kind: str
    time: str | None = None
    group: str | None = None
    wide: bool = False
    target_note: str = ""
    time_format: str = ""
    counts: tuple[ValueCounts, ...] = ()

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the matrix's columns; a date gives several."""
        return (*(name for column in self.columns for name in column.features), *self.count_names)

    @property
    def count_names(self) -> tuple[str, ...]:
        """The names of the features that are counts, which are the last ones."""
        return tuple(one.feature for one in self.counts)

    @cached_property
    def columns_read(self) -> tuple[str, ...]:
        """The columns that a table must have."""
        return tuple(dict.fromkeys([c.name for c in self.columns] + [one.column for one in self.counts]))

    @cached_property
    def numeric(self) -> dict[str, int]:
        """The positions in the matrix of the numeric columns."""
        kinds = [(column.name, column.kind) for column in self.columns for _ in column.features]
        return {name: place for place, (name, kind) in enumerate(kinds) if kind == "numeric"}

    @cached_property
    def categorical(self) -> tuple[int, ...]:
        """The positions in the matrix that hold category codes."""
        kinds = [column.kind for column in self.columns for _ in column.features]
        return tuple(position for position, kind in enumerate(kinds) if kind == "categorical")

    @cached_property
    def n_categories(self) -> tuple[int, ...]:
        """Number of categories of each categorical position."""
        return tuple(len(column.categories) for column in self.columns if column.kind == "categorical")

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32, or float64 if a column has whole numbers beyond 2**24 or numbers beyond float32."""
        return np.dtype(np.float64 if self.wide else np.float32)

    def matrix(self, table: Any, *, first_row: int = 0, marks: DecimalMarks | None = None) -> NDArray[Any]:
        """Code the features as a C-ordered matrix, NaN where missing.

        Args:
            table: An Arrow table or record batch. It need not have the target; other columns are ignored.
            first_row: The number of rows before it, for messages on a table read in batches.
            marks: The decimal marks of a source whose batches are coded one by one: see `read_with_marks`.
                Default: the table is the whole source.

        Raises:
            ValueError: If a column is missing, or holds a value that does not fit its kind.
        """
        if marks is None:
            return read_with_marks(lambda marks: self.matrix(table, first_row=first_row, marks=marks))
        self._refuse_missing_columns(table)
        matrix = np.empty((table.num_rows, len(self.feature_names)), dtype=self.dtype)
        start = 0
        ordinary = len(self.feature_names) - len(self.counts)
        for batch in _batches(table, list(self.columns_read)):
            stop = start + batch.num_rows
            _fill(matrix[start:stop, :ordinary], self._numbers(batch, first_row + start, marks))
            if self.counts:
                texts = keys_of(batch, [one.column for one in self.counts if one.text])
                matrix[start:stop, ordinary:] = self.count_features(matrix[start:stop], texts)
            start = stop
        return matrix

    def count_features(
        self, coded: NDArray[Any], texts: Mapping[str, Keys], *, in_training: bool = False
    ) -> NDArray[np.float32]:
        """Return the features that are counts.

        Args:
            coded: The matrix of the rows, at least the ordinary columns.
            texts: The keys of those columns that are counted as text.
            in_training: As for `ValueCounts.of`.
        """
        features = np.empty((len(coded), len(self.counts)), np.float32)
        for place, one in enumerate(self.counts):
            keys = texts[one.column] if one.text else number_keys(coded[:, self.numeric[one.column]])
            features[:, place] = one.of(keys, in_training=in_training)
        return features

    def _numbers(self, batch: Any, first_row: int, marks: DecimalMarks) -> list[NDArray[Any]]:
        """Code the columns of the matrix one by one."""
        numbers: list[NDArray[Any]] = []
        for column in self.columns:
            values = batch.column(column.name)
            with naming_column(column.name):
                if column.kind == "numeric":
                    numbers.append(numbers_of(values, column, first_row, marks))
                elif column.kind == "categorical":
                    numbers.append(codes_of(values, column))
                else:
                    numbers.extend(date_parts(moments_of(values, column, first_row), column.parts))
        return numbers

    def unseen_values(self, table: Any) -> dict[str, Any]:
        """Return the values that the training table did not have, for each categorical column.

        Each is an Arrow array of text with one entry per row that has such a value. A category that was known
        but too rare to be kept is not among them.
        """
        self._refuse_missing_columns(table)
        return {
            column.name: unseen_of(table.column(column.name), column)
            for column in self.columns
            if column.kind == "categorical"
        }

    def unknown_counts(self, table: Any) -> dict[str, int]:
        """Count the rows with a value that the training table did not have, for each categorical column."""
        return {name: len(values) for name, values in self.unseen_values(table).items()}

    def infinite_counts(self, table: Any) -> dict[str, int]:
        """Count the infinite values, which are taken as missing, for each column of numbers."""
        self._refuse_missing_columns(table)
        return {
            column.name: infinite_values(table.column(column.name))
            for column in self.columns
            if column.kind == "numeric"
        }

    def unknown_share(self, table: Any) -> dict[str, float]:
        """Return the shares of rows that `unknown_counts` counts."""
        rows = max(table.num_rows, 1)
        return {name: count / rows for name, count in self.unknown_counts(table).items()}

    def labels(self, table: Any, *, first_row: int = 0) -> NDArray[np.int8]:
        """Return labels: 1 for the positive value of the target, 0 for the negative one.

        Args:
            table: An Arrow table or record batch.
            first_row: The number of rows before it, for messages.

        Raises:
            ValueError: If the target is not there, is missing in a row, or has a third value.
        """
        values = _column(table, self.target, "target column")
        target = Target(self.negative, self.positive, cast(Any, self.target_kind))
        return labels_of(values, self.target, target, first_row)

    def times(self, table: Any) -> NDArray[Any] | None:
        """Return the values that order the rows (int64 or float64), or None without a time column."""
        return None if self.time is None else _order_values(table, self.time, self.time_format)

    def groups(self, table: Any) -> NDArray[np.intp] | None:
        """Return the number of each row's group, or None without a group column."""
        return None if self.group is None else _group_numbers(table, self.group)

    def without(self, reasons: Mapping[str, str]) -> Schema:
        """Drop columns, each with its reason."""
        return replace(
            self,
            columns=tuple(column for column in self.columns if column.name not in reasons),
            dropped=(*self.dropped, *(Dropped(name, reason) for name, reason in reasons.items())),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values that JSON holds exactly; `from_dict` reads them, together with `arrays`."""
        values = asdict(self)
        for column in values["columns"]:
            column["rare"] = len(column["rare"]) // 4
        for one in values["counts"]:
            one["values"] = len(one.pop("keys"))
            del one["counts"]
        return {key: _listed(value) for key, value in values.items()}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is too large for JSON; empty for most tables."""
        rare = {
            f"rare_{place}": np.frombuffer(column.rare, "<u4")
            for place, column in enumerate(self.columns)
            if column.rare
        }
        keys = {f"keys_{place}": one.keys for place, one in enumerate(self.counts)}
        return {**rare, **keys, **{f"counts_{place}": one.counts for place, one in enumerate(self.counts)}}

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] = MappingProxyType({})
    ) -> Schema:
        """Read the schema that `to_dict` and `arrays` wrote.

        Raises:
            ValueError: If something is missing or is no such schema.
        """
        try:
            fields = dict(values)
            columns = tuple(
                Column(
                    **{
                        **column,
                        "categories": tuple(column["categories"]),
                        "missing_marks": tuple(column["missing_marks"]),
                        "parts": tuple(column["parts"]),
                        "rare": _checked(arrays, f"rare_{place}", "<u4", column.get("rare", 0)).tobytes(),
                    }
                )
                for place, column in enumerate(fields.pop("columns"))
            )
            dropped = tuple(Dropped(**column) for column in fields.pop("dropped"))
            counts = tuple(
                ValueCounts(
                    one["column"],
                    one["feature"],
                    one["text"],
                    _checked(arrays, f"keys_{place}", "<u8", one["values"]),
                    _checked(arrays, f"counts_{place}", "<u4", one["values"]),
                )
                for place, one in enumerate(fields.pop("counts", ()))
            )
            schema = cls(columns=columns, dropped=dropped, counts=counts, **fields)
            _ = [schema.numeric[one.column] for one in counts if not one.text]
            return schema
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"this is no schema of a table: {error}") from error

    def _refuse_missing_columns(self, table: Any) -> None:
        names = set(_names(table))
        missing = [name for name in self.columns_read if name not in names]
        if not missing:
            return
        shown = ", ".join(repr(name) for name in missing[:5]) + (", …" if len(missing) > 5 else "")
        word = "column" if len(missing) == 1 else f"{len(missing)} columns"
        raise ValueError(f"the table lacks the {word} {shown}, which the model was trained on")


def learn_schema(
    source: Any,
    target: str,
    *,
    positive: Any = None,
    time: str | None = None,
    group: str | None = None,
    drop: Collection[str] = (),
) -> Schema:
    """Decide the kind of each column of a table.

    - Numbers, truth values and text that holds numbers are numeric.
    - Dates and text that holds dates give day, hour and weekday.
    - Other text is categorical; the 255 most frequent categories are kept.
    - Constants, columns without values, identifiers and nested values are dropped with the reason.
    - The group column is dropped. Of the time column hour and weekday stay: its day only separates past and
      future.

    Args:
        source: An Arrow table, see `read_table`, or the summary of its parts, see `summarize_parts`.
        target: The column to predict; it must have two values.
        positive: The positive one of them. None: 1, true or yes, else the rarer one (see `target_note`).
        time: A column that orders the rows.
        group: A column that groups the rows.
        drop: Columns to leave out.

    Raises:
        ValueError: If a named column is missing, if the target, time or group column is unsuitable, or if no
            column is left to learn from.
    """
    if time is not None and time == group:
        raise ValueError(f"the time column and the group column are both {time!r}: give two columns")
    in_memory = not isinstance(source, TableSummary)
    summary = summarize_parts(source) if in_memory else source
    wanted = learn_target(_known_column(summary, target, "target column"), positive)
    for role, name in (("time column", time), ("group column", group)):
        if name is not None and name == target:
            raise ValueError(f"the {role} cannot be the target {target!r} itself")
    time_format = ""
    if time is not None:
        time_format = _time_format(_known_column(summary, time, "time column"))
        if in_memory:
            _order_values(source, time, time_format)
    if group is not None:
        _check_group(_known_column(summary, group, "group column"))
    for name in drop:
        _known_column(summary, name, "column to leave out")
    columns: list[Column] = []
    dropped: list[Dropped] = []
    wide = False
    for name in summary.names:
        if name == target:
            continue
        if name == group:
            dropped.append(Dropped(name, "group column: used only to keep rows of a group together"))
            continue
        if name in drop:
            dropped.append(Dropped(name, "left out as asked for"))
            continue
        decision = decide_column(summary.column(name))
        decided = _recurring(decision.column, summary.column(name)) if name == time else decision.column
        if isinstance(decided, Column):
            columns.append(decided)
            wide = wide or (decision.wide and decided.kind == "numeric")
        else:
            dropped.append(decided)
    if not columns:
        reasons = "; ".join(f"{column.name!r} is dropped ({column.reason})" for column in dropped[:3])
        raise ValueError(
            f"no column is left to learn from besides the target {target!r}"
            + (f": {reasons}" if reasons else "")
        )
    return Schema(
        columns=tuple(columns),
        dropped=tuple(dropped),
        target=target,
        negative=wanted.negative,
        positive=wanted.positive,
        target_kind=wanted.kind,
        time=time,
        group=group,
        wide=wide,
        target_note=wanted.note,
        time_format=time_format,
    )


def summarize_parts(parts: Any) -> TableSummary:
    """Summarize a table, or its parts in the order of their rows, for `learn_schema`.

    The schema decided from the merged summaries of parts is the one decided from the whole.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"code": ["01", "2", "3", "02"], "y": [0, 1, 0, 1]})
        >>> halves = [summarize_parts(table.slice(start, 2)) for start in (0, 2)]
        >>> learn_schema(halves[0].merge(halves[1]), "y") == learn_schema(table, "y")
        True
    """
    # To know whether all numbers are distinct takes all of them: only where the name suggests an identifier.
    return summarize(parts, keep=looks_like_identifier)


def text_columns_to_count(summary: TableSummary, schema: Schema) -> list[str]:
    """Choose the columns of text whose values may be worth counting, the widest ones if they are many."""
    # A long number that is no feature, such as that of a card, may still repeat.
    names = [column.name for column in schema.columns if column.kind == "categorical"]
    names += [column.name for column in schema.dropped if EQUAL in column.reason]
    widths = {name: count_of_texts(summary.column(name)) for name in names}
    widest = sorted(names, key=lambda name: -widths[name])[:MOST_COUNTED]
    return [name for name in names if name in widest and widths[name]]


def keys_of(table: Any, names: Collection[str]) -> dict[str, Keys]:
    """Return the keys of the values of columns of text."""
    found = {}
    for name in names:
        with naming_column(name):
            found[name] = text_keys(texts_of(table.column(name)))
    return found


def _names(table: Any) -> list[str]:
    return list(table.schema.names)


def _column(table: Any, name: str, role: str) -> Any:
    check_name(_names(table), name, role)
    return table.column(name)


def _known_column(summary: TableSummary, name: str, role: str) -> ColumnSummary:
    check_name(summary.names, name, role)
    return summary.column(name)


def check_name(names: list[str], name: str, role: str) -> None:
    """Refuse the name of a column that the table does not have, and suggest close ones."""
    if name in names:
        return
    folded = {other.strip().lower(): other for other in names}
    close = [folded[key] for key in difflib.get_close_matches(name.strip().lower(), folded, n=3, cutoff=0.6)]
    if close:
        advice = "did you mean " + " or ".join(repr(other) for other in close) + "?"
    else:
        shown = ", ".join(repr(other) for other in names[:8]) + (", …" if len(names) > 8 else "")
        advice = f"its columns are {shown}"
    raise ValueError(f"the table has no {role} {name!r}; {advice}")


def _recurring(decided: Column | Dropped, summary: ColumnSummary) -> Column | Dropped:
    """Keep the hour and the weekday of the time column: no day of the training rows comes again."""
    if isinstance(decided, Column) and decided.kind == "date":
        parts = tuple(part for part in decided.parts if part != "day")
        note = "time column: without the day, which only separates past and future"
        if parts:
            return replace(decided, parts=parts, note="; ".join(filter(None, [decided.note, note])))
    numbers = summary.numbers
    # A column of dates without hours, or one that is not numbers throughout, has no clock.
    if numbers.count - numbers.infinite == summary.rows and not (
        isinstance(decided, Column) and decided.kind == "date"
    ):
        clock, parts = find_clock(summary.name, float(numbers.minimum), float(numbers.maximum))
        if parts:
            note = f"time column: {clock}, of which only {' and '.join(parts)} recur"
            return Column(summary.name, "date", parts=parts, date_format=clock, note=note)
    return Dropped(summary.name, "time column: used only to split past and future")


# The time column is read apart from `decide_column`, which decides about features. That one drops row numbers
# as identifiers, makes categories of ambiguous dates, and takes "?" as missing. To order rows, row numbers
# serve well, an ambiguous date is an error, and each row needs a value.
def _time_format(summary: ColumnSummary) -> str:
    """Find how a time column of text writes its dates; empty for numbers and ISO dates."""
    if summary.kind != "text" or summary.texts is None:
        return ""
    values, counts = summary.texts.examples
    if numbers_in_text(values).null_count == 0:
        return ""
    formats = find_date_format(values, counts)
    if len(formats) > 1:
        raise ValueError(
            f"the dates of the time column {summary.name!r} can be read in two ways: "
            f"{ambiguous_dates(formats, values)}; write them as 2024-05-31"
        )
    return formats[0] if formats else ""


def _order_values(table: Any, name: str, format: str) -> NDArray[Any]:
    """Read the time column as numbers that order the rows."""
    values = plain(_column(table, name, "time column"))
    type_ = values.type
    if is_moment(type_):
        ordered = typed_moments(values)
    elif is_number(type_):
        ordered = values
    elif is_text(type_):
        ordered = numbers_in_text(values)
        if ordered.null_count > values.null_count:
            ordered = moments_written(values, format)
        failed = compute().and_(ordered.is_null(), values.is_valid())
        row = compute().index(failed, True).as_py()
        if row >= 0 and values[row].as_py().strip():
            raise ValueError(
                f"the time column {name!r} holds {values[row].as_py()!r} in row {row + 1}, which is neither "
                "a number nor "
                + (f"a date of the form {format}" if format else "an ISO date such as 2024-05-31 12:00")
                + ("" if format else ", and no date of the form 05/31/2024, 31/05/2024 or 31.05.2024")
            )
    else:
        raise ValueError(
            f"the time column {name!r} is of the type {type_}; rows are ordered by dates or numbers"
        )
    numbers: NDArray[Any] = typed_numbers(ordered)
    missing = int(np.isnan(numbers).sum()) if numbers.dtype.kind == "f" else 0
    if missing:
        raise ValueError(
            f"the time column {name!r} is missing in {missing} of {len(numbers)} rows; "
            "leave these rows out or split without it"
        )
    return numbers


def _check_group(summary: ColumnSummary) -> None:
    if summary.missing:
        raise ValueError(
            f"the group column {summary.name!r} is missing in {summary.missing} of {summary.rows} rows; "
            "fill it or leave these rows out"
        )
    if summary.kind == "other":
        raise ValueError(
            f"the group column {summary.name!r} is of the type {summary.type}; use text or numbers"
        )


def _group_numbers(table: Any, name: str) -> NDArray[np.intp]:
    values = plain(_column(table, name, "group column"))
    return numbers_from(values.dictionary_encode().indices).astype(np.intp)


def _batches(table: Any, names: list[str]) -> list[Any]:
    """Split a table into its batches, without copies; many small ones are joined."""
    if isinstance(table, arrow().RecordBatch):
        return [table]
    chosen = table.select(names)
    batches: list[Any] = chosen.to_batches()
    return batches if len(batches) <= 1 + chosen.num_rows // _BLOCK else chosen.combine_chunks().to_batches()


def _fill(matrix: NDArray[Any], columns: list[NDArray[Any]]) -> None:
    """Write columns side by side into a C-ordered matrix, infinite values as missing.

    A value beyond the largest number of the matrix becomes that number: only infinite values become missing.
    Rows are written block by block, because a whole column written into a wide row-major matrix touches one
    cache line per value.
    """
    largest = np.finfo(matrix.dtype).max
    with np.errstate(over="ignore"):
        for start in range(0, len(matrix), _BLOCK):
            block = matrix[start : start + _BLOCK]
            for position, column in enumerate(columns):
                block[:, position] = column[start : start + _BLOCK]
            for position in np.flatnonzero(np.isinf(block).any(0)).tolist():
                values = columns[position][start : start + _BLOCK]
                block[:, position] = np.where(np.isinf(values), np.nan, np.clip(values, -largest, largest))


def _checked(arrays: Mapping[str, NDArray[Any]], name: str, dtype: str, length: int) -> NDArray[Any]:
    """Return an array of `Schema.arrays`."""
    found = arrays[name] if length else np.empty(0, dtype)
    if found.shape != (length,) or found.dtype != np.dtype(dtype):
        raise ValueError(f"{length} values of type {dtype} were expected as {name!r}")
    return found


def _listed(value: Any) -> Any:
    """Turn tuples into lists, as JSON has them."""
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return value
