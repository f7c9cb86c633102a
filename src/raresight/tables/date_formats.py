"""Read dates such as 05/31/2024, 31/05/2024 and 31.05.2024, with or without a time of day.

With slashes the order of day and month is ambiguous. It is decided from the whole column: a part above 12 is
a day.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, mask_of, whole
from raresight.tables.text_values import moments_in_text

MONTH_FIRST = "MM/DD/YYYY"
DAY_FIRST = "DD/MM/YYYY"
DAY_FIRST_POINTS = "DD.MM.YYYY"

_TIME = r"(?P<time>[T ]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?P<rest>:(?P<second>\d{2}))?)?"
_SLASHES = rf"^(?P<one>\d{{1,2}})/(?P<two>\d{{1,2}})/(?P<year>\d{{4}}){_TIME}$"
_POINTS = rf"^(?P<one>\d{{1,2}})\.(?P<two>\d{{1,2}})\.(?P<year>\d{{4}}){_TIME}$"


def find_date_format(values: Any, counts: NDArray[np.int64] | None = None) -> tuple[str, ...]:
    """List the formats that fit the dates of a column best, "" for ISO; none if it holds no dates.

    There are several if all values fit all of them.

    Args:
        values: Texts.
        counts: How often each text occurs. Default: once.

    Example:
        >>> import pyarrow as pa
        >>> find_date_format(pa.array(["05/31/2024", "06/01/2024 12:30"]))
        ('MM/DD/YYYY',)
        >>> find_date_format(pa.array(["05/06/2024"]))
        ('MM/DD/YYYY', 'DD/MM/YYYY')
        >>> find_date_format(pa.array(["2024-05-31"])), find_date_format(pa.array(["1.2.3"]))
        (('',), ())
    """
    text = compute().utf8_trim_whitespace(whole(values))
    weights = np.ones(len(text), np.int64) if counts is None else counts
    if (iso := _count(moments_in_text(text), weights)) and iso == _count(text, weights):
        return ("",)
    known = ("", MONTH_FIRST, DAY_FIRST, DAY_FIRST_POINTS)
    read = {format: _count(moments_written(text, format), weights) for format in known}
    # Every format reads ISO as well.
    most = max(read.values())
    if most == 0:
        return ()
    return ("",) if read[""] == most else tuple(format for format in known if read[format] == most)


def moments_written(values: Any, format: str) -> Any:
    """Read dates in a format, or in ISO, as microseconds since 1970 in UTC (int64); others are missing.

    Example:
        >>> import pyarrow as pa
        >>> moments_written(pa.array(["2.1.1970", "1970-01-01", "30.2.1970"]), "DD.MM.YYYY").to_pylist()
        [86400000000, 0, None]
    """
    iso = moments_in_text(values)
    if format == "":
        return iso
    pc = compute()
    text = pc.utf8_trim_whitespace(whole(values))
    pattern = _POINTS if format == DAY_FIRST_POINTS else _SLASHES
    if not pc.any(pc.match_substring_regex(text, pattern)).as_py():
        return iso
    parts = pc.extract_regex(text, pattern)
    one, two, year, hour, minute, second = (
        pc.struct_field(parts, [name]) for name in ("one", "two", "year", "hour", "minute", "second")
    )
    month, day = (one, two) if format == MONTH_FIRST else (two, one)
    # Arrow joins only texts of one type, which may be `string` or `large_string`.
    dash, colon, between = (arrow().scalar(sign, text.type) for sign in "-:T")
    date = pc.binary_join_element_wise(year, _two(month), _two(day), dash)
    time = pc.binary_join_element_wise(_two(hour), _two(minute), _two(second), colon)
    return pc.coalesce(moments_in_text(pc.binary_join_element_wise(date, time, between)), iso)


def describe_date_format(format: str) -> str:
    """Name a date format in messages.

    Example:
        >>> describe_date_format(""), describe_date_format("DD.MM.YYYY")
        ('ISO date', 'date of the form DD.MM.YYYY')
    """
    return f"date of the form {format}" if format else "ISO date"


def _two(digits: Any) -> Any:
    """Pad to two digits; "00" where there are none."""
    return compute().utf8_lpad(digits, 2, padding="0")


def _count(values: Any, weights: NDArray[np.int64]) -> int:
    return int(weights[mask_of(values.is_valid())].sum())


def ambiguous_dates(formats: tuple[str, ...], values: Any) -> str:
    """Return a note on dates whose order of day and month is ambiguous, with an example."""
    pc, pa = compute(), arrow()
    present = values.filter(moments_written(values, formats[0]).is_valid())
    example = present[0].as_py()
    days = [moments_written(present.slice(0, 1), format).cast(pa.timestamp("us"))[0] for format in formats]
    read = " or ".join(
        f"{pc.strftime(day, format='%Y-%m-%d').as_py()} ({format})"
        for day, format in zip(days, formats, strict=True)
    )
    return f"{example!r} may be {read}, and no value decides which"
