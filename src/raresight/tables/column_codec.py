"""From the values of a column to numbers: one function a kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, missing_of, numbers_from, whole
from raresight.tables.columns import Column
from raresight.tables.date_formats import describe_date_format, moments_written
from raresight.tables.number_formats import in_other_marks, numbers_written
from raresight.tables.text_values import NO_VALUE, is_text, truths

DAY = 86_400_000_000  # microseconds


def plain(values: Any) -> Any:
    """A column as one array without dictionary or extension type, text as `string` or `large_string`."""
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
    """Whether an Arrow type is numeric for us: numbers, truth values, decimals and durations."""
    types = arrow().types
    return bool(
        types.is_integer(type_)
        or types.is_floating(type_)
        or types.is_boolean(type_)
        or types.is_decimal(type_)
        or types.is_duration(type_)
    )


def is_moment(type_: Any) -> bool:
    """Whether an Arrow type is a date, a timestamp or a time of day."""
    types = arrow().types
    return bool(types.is_date(type_) or types.is_timestamp(type_) or types.is_time(type_))


def typed_numbers(array: Any) -> NDArray[Any]:
    """An array of a numeric type as NumPy numbers, NaN where missing; not copied if it need not be."""
    pa = arrow()
    type_ = array.type
    if pa.types.is_boolean(type_):
        array = array.cast(pa.uint8())
    elif pa.types.is_decimal(type_):
        array = array.cast(pa.float64(), safe=False)
    elif pa.types.is_duration(type_):
        array = array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    numbers = numbers_from(array)
    return numbers / 1e6 if pa.types.is_duration(type_) else numbers


def infinite_values(values: Any) -> int:
    """How many values of a column are infinite, or text that says so."""
    pa, pc = arrow(), compute()
    array = plain(values)
    if pa.types.is_floating(array.type):
        found = pc.is_inf(array)
    elif is_text(array.type):
        found = pc.match_substring_regex(array, r"^\s*[+-]?inf(inity)?\s*$", ignore_case=True)
    else:
        return 0
    return int(pc.sum(found).as_py() or 0)


def numbers_of(values: Any, column: Column, first_row: int) -> NDArray[Any]:
    """The values of a numeric column, NaN where missing.

    Text is read as in training. If that fails, point and comma may have changed their roles, as in the file
    of a program with another language: this is accepted where no value can be meant otherwise.

    Raises:
        ValueError: If a value is no number or may be two, naming the column, the value and the row.
    """
    pa, pc = arrow(), compute()
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
    numbers = numbers_written(array, column.number_format)
    if column.boolean:
        numbers = pc.coalesce(numbers, truths(array).cast(pa.float64()))
    if numbers.null_count > array.null_count and (row := _first_unknown(array, numbers, column)) >= 0:
        others, sure = in_other_marks(array, column.number_format)
        if _first_unknown(array, others, column) >= 0:
            _refuse(array, row, column, first_row, "number")
        if not sure:
            mark = "comma" if column.comma else "point"
            raise ValueError(
                f"column {column.name!r} holds {array[row].as_py()!r} in row {first_row + row + 1}, which "
                f"may have a decimal mark or thousands; training had the decimal {mark}: write it that way, "
                "without separators of thousands"
            )
        numbers = others
    return numbers_from(numbers)


def moments_of(values: Any, column: Column, first_row: int) -> Any:
    """The values of a date column as microseconds since 1970 in UTC (Arrow int64).

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
    if not is_text(type_):
        raise ValueError(
            f"column {column.name!r} held dates in training, but is now of the type {type_}; convert it first"
        )
    moments = moments_written(array, column.date_format)
    if moments.null_count > array.null_count and (row := _first_unknown(array, moments, column)) >= 0:
        _refuse(array, row, column, first_row, describe_date_format(column.date_format))
    return moments


def typed_moments(array: Any) -> Any:
    """Dates, timestamps and times of day as microseconds (Arrow int64)."""
    pa = arrow()
    type_ = array.type
    if pa.types.is_time32(type_):
        array = array.cast(pa.time32("ms")).cast(pa.time64("us"))
    elif pa.types.is_time64(type_):
        array = array.cast(pa.time64("us"), safe=False)
    elif pa.types.is_date(type_):
        array = array.cast(pa.timestamp("us"))
    else:
        array = array.cast(pa.timestamp("us", type_.tz), safe=False)
    return array.cast(pa.int64())


def date_parts(moments: Any, parts: Sequence[str]) -> list[NDArray[np.float64]]:
    """Day since 1970, hour with its fraction, and weekday (Monday = 0) of moments in microseconds."""
    missing = missing_of(moments)
    micros = numbers_from(moments.fill_null(0))
    day, rest = np.divmod(micros, DAY)
    made = {"day": day, "hour": rest / 3.6e9, "weekday": (day + 3) % 7}
    return [np.where(missing, np.nan, made[part]) for part in parts]


def texts_of(values: Any) -> Any:
    """The values of a categorical column as Arrow text; whole numbers are written without a point."""
    pa, pc = arrow(), compute()
    array = plain(values)
    type_ = array.type
    if is_text(type_):
        return array
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


def codes_of(values: Any, column: Column) -> tuple[NDArray[Any], int]:
    """Category codes, NaN where missing or unknown, and how many are unknown."""
    pa, pc = arrow(), compute()
    array = plain(values)
    if pa.types.is_null(array.type):
        return np.full(len(array), np.nan), 0
    texts = texts_of(array)
    # A missing value is no level, and neither is the empty text.
    codes = pc.index_in(texts, value_set=pa.array(column.categories, texts.type), skip_nulls=True)
    absent = texts.null_count + int(pc.sum(pc.equal(texts, "")).as_py() or 0)
    unknown = codes.null_count - absent
    return numbers_from(codes), unknown


def _first_unknown(array: Any, converted: Any, column: Column) -> int:
    """The first row whose value could not be converted and is no mark for a missing one, or -1."""
    pa, pc = arrow(), compute()
    text = pc.utf8_trim_whitespace(array)
    allowed = pa.array([*NO_VALUE, *column.missing_marks], text.type)
    bad = pc.and_(
        pc.and_(converted.is_null(), array.is_valid()), pc.invert(pc.is_in(text, value_set=allowed))
    )
    return int(pc.index(bad, True).as_py())


def _refuse(array: Any, row: int, column: Column, first_row: int, what: str) -> None:
    raise ValueError(
        f"column {column.name!r} holds {array[row].as_py()!r} in row {first_row + row + 1}, "
        f"which is no {what} as in training; correct it or leave it empty"
    )
