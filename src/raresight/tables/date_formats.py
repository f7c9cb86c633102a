"""Read dates as people and programs write them, with or without a time of day, besides ISO dates.

With slashes the order of day and month is ambiguous. It is decided from the whole column: a part above 12 is
a day. A year of two digits is one of 1969 to 2068, as in POSIX.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, mask_of, missing_of, numbers_from, whole
from raresight.tables.text_values import moments_in_text, numbers_in_text

DAY = 86_400_000_000  # microseconds

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_D, _M, _Y, _YY = r"(?P<day>\d{1,2})", r"(?P<month>\d{1,2})", r"(?P<year>\d{4})", r"(?P<year>\d{2})"
_NAME = (
    r"(?P<name>(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?))\.?"
)
_WEEKDAY = r"(?:(?i:mon|tue|wed|thu|fri|sat|sun)[a-z]*[,.]? *)?"
_ZONE = r"(?:Z|UTC|GMT|(?P<sign>[+-])(?P<zone_hour>\d{2})(?::?(?P<zone_minute>\d{2}))?)?"
_TIME = (
    r"(?P<time>[T :,]+(?P<hour>\d{1,2})(?P<minutes>:(?P<minute>\d{2})"
    r"(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?)?"
    rf"[\s\x{{a0}}\x{{202f}}]*(?P<half>[AaPp]\.?[Mm]\.?)? *{_ZONE})?"
)
_FORMATS = {
    "MM/DD/YYYY": rf"{_M}/{_D}/{_Y}",
    "DD/MM/YYYY": rf"{_D}/{_M}/{_Y}",
    "DD.MM.YYYY": rf"{_D}\.{_M}\.{_Y}",
    "YYYY-MM-DD": rf"{_Y}-{_M}-{_D}",
    "YYYY/MM/DD": rf"{_Y}/{_M}/{_D}",
    "YYYY.MM.DD": rf"{_Y}\.{_M}\.{_D}",
    "MM-DD-YYYY": rf"{_M}-{_D}-{_Y}",
    "DD-MM-YYYY": rf"{_D}-{_M}-{_Y}",
    "DD Mon YYYY": rf"{_WEEKDAY}{_D}(?:st|nd|rd|th)?[-/. ]*{_NAME}[-/, ]*{_Y}",
    "Mon DD, YYYY": rf"{_WEEKDAY}{_NAME}[-/ ]*{_D}(?:st|nd|rd|th)?[-/, ]+{_Y}",
    "YYYYMMDDThhmmss": (
        r"(?P<year>\d{4})(?P<month>\d{2})(?P<day>\d{2})"
        rf"(?P<time>[T ](?P<hour>\d{{2}})(?P<minutes>(?P<minute>\d{{2}})(?P<second>\d{{2}})?){_ZONE})"
    ),
    # As C's `ctime` and the command `date` write it.
    "Mon DD hh:mm:ss YYYY": (
        rf"{_WEEKDAY}{_NAME} +{_D} +(?P<time>(?P<hour>\d{{1,2}})(?P<minutes>:(?P<minute>\d{{2}}):"
        rf"(?P<second>\d{{2}})) *{_ZONE}) +{_Y}"
    ),
    "MM/DD/YY": rf"{_M}/{_D}/{_YY}",
    "DD/MM/YY": rf"{_D}/{_M}/{_YY}",
    "MM.DD.YY": r"(?P<month>\d{2})\.(?P<day>\d{2})\.(?P<year>\d{2})",
    "DD.MM.YY": r"(?P<day>\d{2})\.(?P<month>\d{2})\.(?P<year>\d{2})",
    "DD Mon YY": rf"{_D}[-/ ]{_NAME}[-/ ]{_YY}",
}
_SECONDS = re.compile(r"time|sec|dt$", re.IGNORECASE)
_PATTERNS = {format: f"^{date}{'' if '(?P<time>' in date else _TIME}$" for format, date in _FORMATS.items()}
# Whole numbers that are dates, and how many digits of them are the time of day.
NUMBER_FORMATS = {"YYYYMMDD": 0, "YYYYMMDDhhmm": 4, "YYYYMMDDhhmmss": 6}
# Numbers that count from a moment on, with the microseconds of their unit. Their own start is unknown where
# it is not 1970: the hour of day is then one of a clock that is wrong by a constant, as is the weekday.
CLOCKS = {
    "seconds since 1970": 1e6,
    "milliseconds since 1970": 1e3,
    "microseconds since 1970": 1.0,
    "nanoseconds since 1970": 1e-3,
    "seconds since a start": 1e6,
}
# Counts from 1970 on are those of 1990 to 2040: few other numbers are.
_FIRST_COUNT, _LAST_COUNT = 631_152_000, 2_208_988_800
# The years in which numbers are taken as dates; 9999-12-31 is written for "no end".
_FIRST_YEAR, _LAST_YEAR, _NO_END = 1900, 2100, 99_991_231
# What stands for a missing date among such numbers.
_NO_DATES = {
    "YYYYMMDD": (0, 99_999_999),
    "YYYYMMDDhhmm": (0, 999_999_999_999),
    "YYYYMMDDhhmmss": (0, 99_999_999_999_999),
}
# As many as marks for a missing value in text.
_MOST_MISFITS = 3


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
    iso = moments_in_text(text)
    if iso.null_count == text.null_count < len(text):
        return ("",)
    known = _possible_formats(text)
    read = {format: mask_of(moments_written(text, format).is_valid()) for format in ["", *known]}
    # Every format reads ISO as well, which is first among those that read the same.
    best = max(read, key=lambda format: weights[read[format]].sum())
    if not read[best].any():
        return ()
    same = tuple(format for format in known if best and np.array_equal(read[format], read[best]))
    # Versions and fractions look like dates with a year of two digits, unless a part above 12 tells the day.
    return () if len(same) > 1 and not best.endswith("YYYY") else same or ("",)


def may_be_dates(values: Any) -> bool:
    """Tell whether one of the texts may be a date in a known format."""
    text = compute().utf8_trim_whitespace(whole(values))
    return moments_in_text(text).null_count < len(text) or bool(_possible_formats(text))


def _possible_formats(text: Any) -> list[str]:
    pc = compute()
    # Compiling all patterns takes longer than this one on most columns of words.
    if not pc.any(pc.match_substring_regex(text, r"\d\D+\d")).as_py():
        return []
    return [
        format
        for format, pattern in _PATTERNS.items()
        if pc.any(pc.match_substring_regex(text, pattern)).as_py()
    ]


def moments_written(values: Any, format: str) -> Any:
    """Read dates in a format, or in ISO, as microseconds since 1970 in UTC (int64); others are missing.

    Example:
        >>> import pyarrow as pa
        >>> moments_written(pa.array(["2.1.1970", "1970-01-01", "30.2.1970"]), "DD.MM.YYYY").to_pylist()
        [86400000000, 0, None]
    """
    if format == "":
        return moments_in_text(values)
    if format in NUMBER_FORMATS or format in CLOCKS:
        moments = moments_in_numbers(numbers_from(numbers_in_text(values)), format)
    else:
        moments = _moments(compute().utf8_trim_whitespace(whole(values)), format)
    if moments.null_count > values.null_count:
        moments = compute().coalesce(moments, moments_in_text(values))
    return moments


def _moments(text: Any, format: str) -> Any:
    """Read dates in one of `_FORMATS`; the parts are numbers, because Arrow reads no dates but ISO."""
    pc = compute()
    parts = pc.extract_regex(text, _PATTERNS[format])
    if parts.null_count == len(parts):
        return arrow().nulls(len(parts), arrow().int64())
    columns = parts.flatten()
    if parts.null_count:
        columns = [pc.fill_null(column, "") for column in columns]
    texts = dict(zip([field.name for field in parts.type], columns, strict=True))
    year = _whole(texts["year"])
    if not format.endswith("YYYY") and format.endswith("YY"):
        year = year + np.where(year < 69, 2000, 1900)
    if "Mon" in format:
        name = pc.utf8_lower(pc.utf8_slice_codeunits(texts["name"], 0, 3))
        month = numbers_from(
            pc.fill_null(pc.index_in(name, arrow().array(_MONTHS, name.type)), -1)
        ) + np.int64(1)
    else:
        month = _whole(texts["month"])
    days, known = _days(year, month, _whole(texts["day"]))
    known &= ~missing_of(parts)
    micros = days * DAY
    if _any(texts["time"]):
        clock, read = _clock(texts, format)
        micros, known = micros + clock, known & read
    return arrow().array(micros, mask=~known)


def _clock(texts: dict[str, Any], format: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Read times of day in microseconds, less their distance from UTC; also tell which are valid."""
    pc = compute()
    hour, minute, second = (_whole(texts[name]) for name in ("hour", "minute", "second"))
    known = (hour < 24) & (minute < 60) & (second < 60)
    if "half" in texts:
        without, half = (mask_of(pc.equal(texts[name], "")) for name in ("minutes", "half"))
        # An hour without minutes is a time of day only beside AM or PM.
        known &= ~(without & half & mask_of(pc.not_equal(texts["time"], "")))
        if not half.all():
            afternoon = mask_of(pc.starts_with(texts["half"], "p", ignore_case=True))
            known &= half | (hour <= 12)
            hour = np.where(half, hour, hour % 12 + 12 * afternoon)
    clock = ((hour * 60 + minute) * 60 + second) * 1_000_000
    if "fraction" in texts and _any(texts["fraction"]):
        clock = clock + _whole(pc.utf8_slice_codeunits(pc.utf8_rpad(texts["fraction"], 6, "0"), 0, 6))
    if _any(texts["sign"]):
        zone = (_whole(texts["zone_hour"]) * 60 + _whole(texts["zone_minute"])) * 60_000_000
        clock = np.where(mask_of(pc.equal(texts["sign"], "-")), clock + zone, clock - zone)
    return clock, known


def _whole(digits: Any) -> NDArray[np.int64]:
    """Read digits as whole numbers; 0 where there are none."""
    found: NDArray[np.int64] = numbers_from(compute().utf8_lpad(digits, 1, "0").cast(arrow().int64()))
    return found


def _any(texts: Any) -> bool:
    """Tell whether one of the texts is not empty."""
    return bool(compute().max(compute().binary_length(texts)).as_py())


def _days(
    year: NDArray[np.int64], month: NDArray[np.int64], day: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Count the days since 1970; also tell which dates are in the calendar."""
    months = ((year - 1970) * 12 + month - 1).astype("M8[M]")
    first = months.astype("M8[D]").astype(np.int64)
    length = (months + 1).astype("M8[D]").astype(np.int64) - first
    return first + day - 1, (month >= 1) & (month <= 12) & (day >= 1) & (day <= length)


@dataclass(frozen=True)
class NumberDates:
    """How many numbers are dates of a format, and which ones are none.

    Attributes:
        dates: The number of dates of 1900 to 2100.
        misfits: Each distinct number that is no date with its count, or None if there are more than three.
    """

    dates: int
    misfits: Mapping[float | int, int] | None

    def merge(self, other: NumberDates) -> NumberDates:
        """Add those of other numbers."""
        misfits = None
        if self.misfits is not None and other.misfits is not None:
            misfits = dict(self.misfits)
            for value, count in other.misfits.items():
                misfits[value] = misfits.get(value, 0) + count
            misfits = misfits if len(misfits) <= _MOST_MISFITS else None
        return NumberDates(self.dates + other.dates, misfits)


def dates_of_numbers(
    numbers: NDArray[Any], few: Mapping[float | int, int] | None = None
) -> dict[str, NumberDates]:
    """Count the dates in numbers by each of `NUMBER_FORMATS`.

    Args:
        numbers: Numbers without NaN.
        few: Each distinct number with its count, if they are at most 64; else None.

    Example:
        >>> dates_of_numbers(np.array([20240531, 20240601, 20240532]))["YYYYMMDD"]
        NumberDates(dates=2, misfits={20240532: 1})
    """
    return {format: _dates_of_numbers(numbers, few, format) for format in NUMBER_FORMATS}


def _dates_of_numbers(
    numbers: NDArray[Any], few: Mapping[float | int, int] | None, format: str
) -> NumberDates:
    values = numbers if few is None else np.array(list(few), numbers.dtype)
    counts = None if few is None else np.array(list(few.values()))
    if values.dtype.kind == "f":
        values = values.astype(np.float64, copy=False)
    unit = 10 ** (4 + NUMBER_FORMATS[format])
    if few is None and float(values.max()) < _FIRST_YEAR * unit:
        return NumberDates(0, None)  # more than 60 different numbers before the first date
    near = (values >= _FIRST_YEAR * unit) & (values < (_LAST_YEAR + 1) * unit)
    found = mask_of(moments_in_numbers(values[near], format, only_plausible=True).is_valid())
    dates = int(found.sum() if counts is None else counts[near][found].sum())
    near[near] = found
    # The first numbers rule out nearly all other columns. Many are zero in most rows.
    for most in (512, len(values)):
        rest = values[:most][~near[:most] & (values[:most] != 0)]
        wrong = mask_of(moments_in_numbers(rest, format, only_plausible=True).is_null())
        misfits, how_often = np.unique(rest[wrong], return_counts=True)
        if len(misfits) > _MOST_MISFITS:
            return NumberDates(dates, None)
    if few is not None:
        return NumberDates(dates, {value: few[value] for value in misfits.tolist()})
    return NumberDates(dates, dict(zip(misfits.tolist(), how_often.tolist(), strict=True)))


def moments_in_numbers(numbers: NDArray[Any], format: str, *, only_plausible: bool = False) -> Any:
    """Read whole numbers as dates, as microseconds (Arrow int64); others are missing.

    Args:
        numbers: Numbers, NaN where missing.
        format: One of `NUMBER_FORMATS` or of `CLOCKS`.
        only_plausible: Whether only years 1900 to 2100, and numbers for "no date" and "no end", are read.

    Example:
        >>> moments_in_numbers(np.array([19700102, 19700230, np.nan]), "YYYYMMDD").to_pylist()
        [86400000000, None, None]
    """
    if numbers.dtype.kind == "f":
        numbers = numbers.astype(np.float64, copy=False)
    if format in CLOCKS:
        micros = np.asarray(numbers, np.float64) * CLOCKS[format]
        known = np.abs(micros) < 2.0**62  # and not NaN
        return arrow().array(np.where(known, micros, 0).astype(np.int64), mask=~known)
    known = (numbers >= 0) & (numbers < 10**15) & (numbers == np.floor(numbers))
    date, clock = np.divmod(np.where(known, numbers, 0).astype(np.int64), 10 ** NUMBER_FORMATS[format])
    days, valid = _days(date // 10_000, date // 100 % 100, date % 100)
    clock *= 10 ** (6 - NUMBER_FORMATS[format])
    valid &= (clock < 240_000) & (clock // 100 % 100 < 60) & (clock % 100 < 60)
    valid &= known & (date >= 10_000_000) & (date <= _NO_END)
    if only_plausible:
        year = date // 10_000
        valid &= ((year >= _FIRST_YEAR) & (year <= _LAST_YEAR)) | (date == _NO_END)
        valid |= no_date_numbers(numbers, format)
    seconds = (clock // 10_000 * 60 + clock // 100 % 100) * 60 + clock % 100
    return arrow().array(days * DAY + seconds * 1_000_000, mask=~valid)


def no_date_numbers(numbers: NDArray[Any], format: str) -> NDArray[np.bool_]:
    """Mark the numbers that stand for a missing date among numbers of this format: 0 and all nines."""
    zero, nines = _NO_DATES.get(format, (np.nan, np.nan))
    return np.asarray((numbers == zero) | (numbers == nines))


def describe_date_format(format: str) -> str:
    """Name a date format in messages.

    Example:
        >>> describe_date_format(""), describe_date_format("DD.MM.YYYY")
        ('ISO date', 'date of the form DD.MM.YYYY')
    """
    if format in CLOCKS:
        return f"number of {format}"
    return f"date of the form {format}" if format else "ISO date"


def find_clock(name: str, low: float, high: float) -> tuple[str, tuple[str, ...]]:
    """Find what the numbers of a time column count, one of `CLOCKS`, and which parts of it recur.

    Seconds since a start are known by the name of the column and a first value in the first week. Hours recur
    in one and a half days or more, weekdays in two weeks or more.

    Args:
        name: The name of the column.
        low, high: The least and the greatest number.

    Example:
        >>> find_clock("Time", 0, 172792), find_clock("created", 1377986400, 1380578400)
        (('seconds since a start', ('hour',)), ('seconds since 1970', ('hour', 'weekday')))
        >>> find_clock("step", 1, 743)
        ('', ())
    """
    found = ""
    for format, micros in CLOCKS.items():
        if format == "seconds since a start":
            fits = _SECONDS.search(name) is not None and 0 <= low <= 7 * 86_400
        else:
            fits = low * micros / 1e6 >= _FIRST_COUNT and high * micros / 1e6 <= _LAST_COUNT
        if fits:
            found = format
            break
    days = (high - low) * CLOCKS.get(found, 0.0) / DAY
    parts = ["hour"] * (days >= 1.5) + ["weekday"] * (days >= 14)
    return (found, tuple(parts)) if parts else ("", ())


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
