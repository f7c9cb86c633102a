"""Convert the values of a column to numbers, by its decided kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, missing_of, numbers_from, whole
from raresight.tables.columns import Column
from raresight.tables.date_formats import (
    CLOCKS,
    DAY,
    NUMBER_FORMATS,
    describe_date_format,
    moments_in_numbers,
    moments_written,
    no_date_numbers,
)
from raresight.tables.number_formats import in_other_marks, numbers_written
from raresight.tables.text_values import NO_VALUE, is_text, numbers_in_text, truths
from raresight.tables.value_keys import is_rare

# The last whole day, and by its opposite the first one, that 64 bits of microseconds hold: a day of 294246.
LAST_MOMENT = (2**63 // DAY - 1) * DAY
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
Made = TypeVar("Made")


class MarksChangedError(Exception):
    """A late row changed how numbers are written, so rows before it must be read again."""


@dataclass(frozen=True)
class _Misfit:
    """The first value of a column that cannot be read in training's decimal mark."""

    row: int
    value: str
    column: Column


class DecimalMarks:
    """Decide for each text column of numbers whether point and comma have exchanged roles since training.

    The decision is about all rows of a source, however they are cut into batches. A column is read in
    training's mark until a value does not fit. Then it is read in the other mark from the first row on. All
    of its values must be numbers in that mark, and one of them must have no second meaning.

    Threads may share it between two calls of `settle`, because decisions change only there.
    """

    def __init__(self) -> None:
        self._exchanged: dict[str, _Misfit] = {}
        self._misfits: dict[str, _Misfit] = {}
        self._lock = threading.Lock()
        self.restart()

    def restart(self) -> None:
        """Begin again at the first row. Decisions stay."""
        self._kept: set[str] = set()
        self._unreadable: set[str] = set()
        self._sure: set[str] = set()

    def read(self, array: Any, column: Column, first_row: int) -> Any:
        """Read text as numbers (Arrow float64), missing where a value is none."""
        pa, pc = arrow(), compute()
        if column.name not in self._exchanged:
            numbers = numbers_written(array, column.number_format)
            if column.boolean:
                numbers = pc.coalesce(numbers, truths(array).cast(pa.float64()))
            if numbers.null_count <= array.null_count or (row := _first_unknown(array, numbers, column)) < 0:
                self._kept.add(column.name)
                return numbers
            misfit = _Misfit(first_row + row, array[row].as_py(), column)
            with self._lock:
                known = self._misfits.setdefault(column.name, misfit)
                self._misfits[column.name] = min(known, misfit, key=lambda one: one.row)
        numbers, sure = in_other_marks(array, column.number_format)
        if _first_unknown(array, numbers, column) >= 0:
            self._unreadable.add(column.name)
        if sure:
            self._sure.add(column.name)
        return numbers

    def settle(self) -> None:
        """Decide after a batch, before its numbers are used.

        Raises:
            ValueError: If a value is no number in either mark; names the first that does not fit training's.
            MarksChangedError: If rows that were read in training's mark must be read in the other one.
        """
        if not self._misfits and not self._unreadable:
            return
        found, self._misfits = self._misfits, {}
        self._exchanged.update(found)
        if self._unreadable:
            misfit = min((self._exchanged[name] for name in self._unreadable), key=lambda one: one.row)
            raise ValueError(_unfit(misfit.column, misfit.value, misfit.row, "number"))
        if not self._kept.isdisjoint(found):
            raise MarksChangedError

    def refuse_unsure(self) -> None:
        """Raise ValueError if each value of a column in the other mark may have thousands instead."""
        for name, misfit in self._exchanged.items():
            if name not in self._sure:
                mark = "comma" if misfit.column.comma else "point"
                raise ValueError(
                    f"column {name!r} holds {misfit.value!r} in row {misfit.row + 1}, which may have a "
                    f"decimal mark or thousands; training had the decimal {mark}: write it that way, "
                    "without separators of thousands"
                )


def read_with_marks(run: Callable[[DecimalMarks], Made]) -> Made:
    """Run `run(marks)`, which reads a source from its first row and calls `settle` after each batch.

    It is run again if a late row changes how earlier rows are to be read. A source pays nothing for that if
    it has training's mark throughout, or the other one from its first batch on.
    """
    marks = DecimalMarks()
    while True:
        try:
            made = run(marks)
            marks.settle()
        except MarksChangedError:
            marks.restart()
            continue
        marks.refuse_unsure()
        return made


def plain(values: Any) -> Any:
    """Join a column to one array without dictionary or extension type, text as `string` or `large_string`."""
    pa = arrow()
    array = whole(values)
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    return array


def is_number(type_: Any) -> bool:
    """Tell whether an Arrow type holds numbers: integers, floats, booleans, decimals or durations."""
    types = arrow().types
    return bool(
        types.is_integer(type_)
        or types.is_floating(type_)
        or types.is_boolean(type_)
        or types.is_decimal(type_)
        or types.is_duration(type_)
    )


def is_moment(type_: Any) -> bool:
    """Tell whether an Arrow type is a date, a timestamp or a time of day."""
    types = arrow().types
    return bool(types.is_date(type_) or types.is_timestamp(type_) or types.is_time(type_))


def typed_numbers(array: Any) -> NDArray[Any]:
    """Convert an array of a numeric type to NumPy, NaN where missing; without a copy where possible."""
    pa = arrow()
    type_ = array.type
    if pa.types.is_boolean(type_):
        array = array.cast(pa.uint8())
    elif pa.types.is_decimal(type_):
        array = array.cast(pa.float64(), safe=False)
    elif pa.types.is_duration(type_):
        # A cast to another unit wraps around; seconds in float64 do not.
        return numbers_from(array.cast(pa.int64())) / _UNITS[type_.unit]
    return numbers_from(array)


def infinite_values(values: Any) -> int:
    """Count the values of a column that are infinite, or text such as "inf"."""
    pa, pc = arrow(), compute()
    array = plain(values)
    if pa.types.is_floating(array.type):
        found = pc.is_inf(array)
    elif is_text(array.type):
        found = pc.match_substring_regex(array, r"^\s*[+-]?inf(inity)?\s*$", ignore_case=True)
    else:
        return 0
    return int(pc.sum(found).as_py() or 0)


def numbers_of(values: Any, column: Column, first_row: int, marks: DecimalMarks) -> NDArray[Any]:
    """Return the values of a numeric column, NaN where missing; text is read by `marks`.

    Raises:
        ValueError: If the type cannot be numbers.
    """
    pa = arrow()
    array = plain(values)
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    if is_number(array.type):
        return typed_numbers(array)
    if not is_text(array.type):
        raise ValueError(
            f"column {column.name!r} was numeric in training, but is now of the type {array.type}; "
            "convert it first"
        )
    return numbers_from(marks.read(array, column, first_row))


def moments_of(values: Any, column: Column, first_row: int) -> Any:
    """Return the values of a date column as microseconds since 1970 in UTC (Arrow int64).

    Raises:
        ValueError: If a value is no date, naming the column, the value and the row.
    """
    pa = arrow()
    array = plain(values)
    type_ = array.type
    if pa.types.is_null(type_):
        return pa.nulls(len(array), pa.int64())
    if is_moment(type_):
        return typed_moments(array)
    in_numbers = column.date_format in NUMBER_FORMATS or column.date_format in CLOCKS
    if not (is_text(type_) or (in_numbers and is_number(type_))):
        raise ValueError(
            f"column {column.name!r} held dates in training, but is now of the type {type_}; convert it first"
        )
    if is_text(type_):
        moments = moments_written(array, column.date_format)
    else:
        moments = moments_in_numbers(typed_numbers(array), column.date_format)
    if moments.null_count <= array.null_count:
        return moments
    known = moments
    if in_numbers:
        numbers = numbers_from(numbers_in_text(array)) if is_text(type_) else typed_numbers(array)
        absent = no_date_numbers(numbers, column.date_format) | (np.isnan(numbers) & (not is_text(type_)))
        # As numbers, because 20210230 may be 20210230.0 here.
        marks = numbers_from(numbers_in_text(pa.array(column.missing_marks, pa.string())))
        absent |= np.isin(numbers, marks[~np.isnan(marks)])
        known = compute().coalesce(moments, pa.array(np.zeros(len(numbers), np.int64), mask=~absent))
        array = array if is_text(type_) else array.cast(pa.string())
    if (row := _first_unknown(array, known, column)) >= 0:
        what = describe_date_format(column.date_format)
        raise ValueError(_unfit(column, array[row].as_py(), first_row + row, what))
    return moments


def typed_moments(array: Any) -> Any:
    """Convert dates, timestamps and times of day to microseconds (Arrow int64).

    Moments beyond `LAST_MOMENT` become that moment, where Arrow's own casts would wrap around.
    """
    pa, pc = arrow(), compute()
    type_ = array.type
    if pa.types.is_date32(type_):
        factor = DAY
    elif pa.types.is_date64(type_):
        factor = 1_000
    elif type_.unit == "ns":
        return pc.divide(array.cast(pa.int64()), 1_000)
    else:
        factor = _UNITS["us"] // _UNITS[type_.unit]
    counts = array.cast(pa.int32() if type_.bit_width == 32 else pa.int64()).cast(pa.int64())
    most = LAST_MOMENT // factor
    ends = pc.min_max(counts).as_py()
    if ends["max"] is not None and (ends["max"] > most or ends["min"] < -most):
        counts = pc.max_element_wise(counts, pa.scalar(-most), skip_nulls=False)
        counts = pc.min_element_wise(counts, pa.scalar(most), skip_nulls=False)
    return counts if factor == 1 else pc.multiply(counts, factor)


def date_parts(moments: Any, parts: Sequence[str]) -> list[NDArray[np.float64]]:
    """Compute day since 1970, hour with its fraction, and weekday (Monday = 0) of moments in microseconds."""
    missing = missing_of(moments)
    micros = numbers_from(moments.fill_null(0))
    day, rest = np.divmod(micros, DAY)
    made = {"day": day, "hour": rest / 3.6e9, "weekday": (day + 3) % 7}
    return [np.where(missing, np.nan, made[part]) for part in parts]


def texts_of(values: Any) -> Any:
    """Return the values of a categorical column as Arrow text; whole numbers are written without a point."""
    pa, pc = arrow(), compute()
    array = plain(values)
    type_ = array.type
    if is_text(type_):
        return array
    if pa.types.is_decimal(type_) and type_.scale <= 0:
        return array.cast(pa.string())  # exact, where float64 would make 10^30 and 10^30 + 1 one category
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        numbers = array.cast(pa.float64(), safe=False)
        numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float64()), numbers)
        rounds = pc.and_(pc.equal(numbers, pc.round(numbers)), pc.less(pc.abs(numbers), 2.0**53))
        integers = pc.if_else(rounds, numbers, pa.scalar(None, pa.float64())).cast(pa.int64())
        return pc.coalesce(integers.cast(pa.string()), numbers.cast(pa.string()))
    try:
        return array.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"values of the type {type_} cannot be categories; convert them to text") from None


def codes_of(values: Any, column: Column) -> NDArray[Any]:
    """Return category codes, NaN where missing or unknown."""
    pa, pc = arrow(), compute()
    array = plain(values)
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan)
    texts = texts_of(array)
    return numbers_from(
        pc.index_in(texts, value_set=pa.array(column.categories, texts.type), skip_nulls=True)
    )


def unseen_of(values: Any, column: Column) -> Any:
    """Return the values of a categorical column that training did not have, as Arrow text, each row's own.

    Missing values, the empty text and categories that were too rare to be kept are left out.
    """
    pa, pc = arrow(), compute()
    array = plain(values)
    if pa.types.is_null(array.type):
        return pa.nulls(0, pa.string())
    texts = texts_of(array).drop_null()
    known = pa.array([*column.categories, ""], texts.type)
    texts = texts.filter(pc.invert(pc.is_in(texts, value_set=known)))
    if column.many_numbers:
        texts = texts.filter(numbers_in_text(texts).is_null())
    return texts.filter(pa.array(~is_rare(texts, column.rare))) if column.rare else texts


def _first_unknown(array: Any, converted: Any, column: Column) -> int:
    """Find the first row whose value was not converted and does not stand for a missing one; -1 if none."""
    pa, pc = arrow(), compute()
    text = pc.utf8_trim_whitespace(array)
    allowed = pa.array([*NO_VALUE, *column.missing_marks], text.type)
    bad = pc.and_(
        pc.and_(converted.is_null(), array.is_valid()), pc.invert(pc.is_in(text, value_set=allowed))
    )
    return int(pc.index(bad, True).as_py())


def _unfit(column: Column, value: str, row: int, what: str) -> str:
    return (
        f"column {column.name!r} holds {value!r} in row {row + 1}, "
        f"which is no {what} as in training; correct it or leave it empty"
    )
