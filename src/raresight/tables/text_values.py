"""Read text as numbers, truth values or ISO dates, value by value, and tell what a column of text holds.

A CSV file has no types. Each value is read by itself, so that the result does not depend on where a file was
cut into batches.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from raresight.tables._arrow import arrow, compute, whole

TextKind = Literal["empty", "integer", "number", "boolean", "text"]

# What programs write for "no value". In a column of numbers these are missing; in a column of text they stay,
# because "NA" may be North America.
NO_VALUE = (
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "NaT",
    "None",
    "n/a",
    "nan",
    "null",
)
TRUE = ("true", "True", "TRUE")
FALSE = ("false", "False", "FALSE")

_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[iI]nf(inity)?|[nN]a[nN])$"
_DATE = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?(Z|[+-]\d{2}(:?\d{2})?)?)?$"
_ZONE = r"[T ].*(Z|[+-]\d{2}(:?\d{2})?)$"


def is_text(type_: Any) -> bool:
    """Tell whether an Arrow type holds text."""
    types = arrow().types
    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def kind_of_text(values: Any) -> TextKind:
    """Tell what a column of text holds, from its distinct values; missing values say nothing.

    Example:
        >>> import pyarrow as pa
        >>> [kind_of_text(pa.array(text)) for text in (["1", "NA"], ["1", "2.5"], ["True"], ["1", "x"], [""])]
        ['integer', 'number', 'boolean', 'text', 'empty']
    """
    pa, pc = arrow(), compute()
    values = whole(values).drop_null()
    if len(values) == 0:
        return "empty"
    numbers = _cast(values, pa.float64())
    if numbers is None:
        values = _without(NO_VALUE, pc.utf8_trim_whitespace(values)).drop_null()
        if len(values) == 0:
            return "empty"
        numbers = _cast(values, pa.float64())
    if numbers is not None:
        if _cast(values, pa.int64()) is not None:
            return "integer"
        # A column of nothing but "nan" has no value at all.
        return "empty" if pc.all(pc.is_nan(numbers)).as_py() else "number"
    known = pc.all(pc.is_in(values, value_set=pa.array([*TRUE, *FALSE], values.type))).as_py()
    return "boolean" if known else "text"


def truths(values: Any) -> Any:
    """Read text as truth values: the usual spellings of true and false; anything else is missing."""
    pa, pc = arrow(), compute()
    text = pc.utf8_trim_whitespace(whole(values))
    yes = pc.is_in(text, value_set=pa.array(TRUE, text.type))
    known = pc.or_(yes, pc.is_in(text, value_set=pa.array(FALSE, text.type)))
    return pc.if_else(known, yes, pa.scalar(None, pa.bool_()))


def text_of_mixed(value: Any) -> str | None:
    """Write one value of a mixed column as text; 5.0 as "5", so that 5 and 5.0 are one category."""
    if value is None or value != value:
        return None
    if (
        isinstance(value, float)
        and math.isfinite(value)
        and value == math.floor(value)
        and abs(value) < 2**53
    ):
        return str(int(value))
    text = str(value)
    return None if text in ("NaT", "<NA>") else text


def numbers_in_text(values: Any) -> Any:
    """Read text as float64; what is no number becomes missing.

    Example:
        >>> import pyarrow as pa
        >>> numbers_in_text(pa.array([" 1.5", "?", None, "-2e3"])).to_pylist()
        [1.5, None, None, -2000.0]
    """
    pa, pc = arrow(), compute()
    values = whole(values)
    numbers = _cast(values, pa.float64())
    if numbers is not None:
        return numbers
    text = pc.utf8_trim_whitespace(values)
    return _only(pc.match_substring_regex(text, _NUMBER), text).cast(pa.float64())


def moments_in_text(values: Any) -> Any:
    """Read ISO dates, with or without time of day, as microseconds since 1970 in UTC (int64); else missing.

    Example:
        >>> import pyarrow as pa
        >>> moments_in_text(pa.array(["1970-01-02", "1970-01-01T01:00:00+01:00", "soon"])).to_pylist()
        [86400000000, 0, None]
    """
    pa, pc = arrow(), compute()
    text = pc.utf8_trim_whitespace(whole(values))
    text = _only(pc.match_substring_regex(text, _DATE), text)
    if text.null_count == len(text):
        return pa.nulls(len(text), pa.int64())
    # Arrow reads no more digits than its unit has.
    text = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    zoned = pc.match_substring_regex(text, _ZONE)
    local = _moments(_only(pc.invert(zoned), text), None)
    if not pc.any(zoned).as_py():
        return local
    return pc.coalesce(local, _moments(_only(zoned, text), "UTC"))


def _moments(text: Any, zone: str | None) -> Any:
    pa = arrow()
    type_ = pa.timestamp("us", zone)
    moments = _cast(text, type_)
    if moments is None:
        # Some are no valid date, such as 2020-13-01. Only then are distinct texts converted one by one.
        coded = text.dictionary_encode()
        each = [_cast(coded.dictionary.slice(row, 1), type_) for row in range(len(coded.dictionary))]
        known = pa.concat_arrays([pa.nulls(1, type_) if one is None else one for one in each])
        moments = known.take(coded.indices)
    return moments.cast(pa.int64())


def _cast(values: Any, type_: Any) -> Any:
    """Cast values to another type; None if one of them cannot be cast."""
    pa = arrow()
    try:
        # A failing cast is slow, because Arrow writes an error for each value. A few values are tried first.
        values.slice(0, 16).cast(type_)
        return values.cast(type_)
    except pa.ArrowInvalid:
        return None


def _only(keep: Any, values: Any) -> Any:
    return compute().if_else(keep, values, arrow().scalar(None, values.type))


def _without(marks: tuple[str, ...], values: Any) -> Any:
    pa, pc = arrow(), compute()
    return _only(pc.invert(pc.is_in(values, value_set=pa.array(marks, values.type))), values)
