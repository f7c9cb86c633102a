"""What each column is: numbers, categories, dates, or nothing a model can learn from."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from raresight.tables._arrow import arrow, compute, numbers_from
from raresight.tables.column_codec import is_moment, is_number, plain, texts_of, typed_moments, typed_numbers
from raresight.tables.columns import Column, Dropped
from raresight.tables.date_formats import ambiguous_dates, find_date_format, moments_written
from raresight.tables.number_formats import PLAIN, Found, find_format, looks_dressed, plain_text
from raresight.tables.text_values import NO_VALUE, is_text, kind_of_text, numbers_in_text, truths

MOST_LEVELS = 255
ALL_LEVELS = 20
MOST_MARKS = 3
IDENTIFIER_ROWS = 100
# Numbers of rows leave out no more than every other one.
LARGEST_STEP = 2
MOSTLY = 0.9
NOT_READ = "not read as"
LOOKS_LIKE_NUMBERS = "looks like numbers except for"

_IDENTIFIER = re.compile(
    r"(^|[\s_.\-:])(id|ids|uuid|guid|key|index|idx|rowid|row|nr|no|number|serial|unnamed)([\s_.\-:\d]|$)",
    re.IGNORECASE,
)
# Words that say of a value that there is none, beside those that no reader takes for one.
_UNKNOWN = {"unknown", "unk", "missing", "not available", "not known", "n.a.", "k.a.", "nil", "undefined"}
# Postcodes, account numbers and the like: as a number 01234 would be the same as 1234.
_LEADING_ZERO = r"^0\d+$"
_WORD = re.compile(r"[^\W\d_]")
_CAMEL_IDENTIFIER = re.compile(r"[a-z](Id|ID|Key|Uuid|UUID|Index)$")


def decide_column(name: str, values: Any) -> Column | Dropped:
    """The kind of a column by its type and all its values.

    Example:
        >>> import pyarrow as pa
        >>> decide_column("age", pa.array(["31", "?", "45"]))  # doctest: +ELLIPSIS
        Column(name='age', kind='numeric', categories=(), missing_marks=('?',), note="'?' is missing", ...)
        >>> decide_column("country", pa.array(["US", "US", "US"]))
        Dropped(name='country', reason="constant: always 'US'")
    """
    pa = arrow()
    encoded = pa.types.is_dictionary(values.type)
    array = plain(values)
    type_ = array.type
    if array.null_count == len(array):
        return Dropped(name, "no values: missing in every row")
    if is_moment(type_):
        return _decide_moments(name, typed_moments(array), time_of_day=pa.types.is_time(type_))
    if is_number(type_) and not encoded:
        return _decide_numbers(name, array)
    if is_text(type_) and not encoded:
        return _decide_text(name, array)
    if is_text(type_) or is_number(type_):
        return _decide_categories(name, texts_of(array))
    return Dropped(name, f"type {type_}: only numbers, text and dates can be features")


def looks_like_identifier(name: str) -> bool:
    """Whether a name says that its column numbers the rows or the customers.

    Example:
        >>> [looks_like_identifier(name) for name in ("customer_id", "RowID", "amount", "idle", "paid")]
        [True, True, False, False, False]
    """
    return bool(_IDENTIFIER.search(name) or _CAMEL_IDENTIFIER.search(name))


def _decide_numbers(name: str, array: Any) -> Column | Dropped:
    pa, pc = arrow(), compute()
    boolean = pa.types.is_boolean(array.type)
    numbers = typed_numbers(array)
    infinite = int(np.isinf(numbers).sum()) if numbers.dtype.kind == "f" else 0
    present = numbers[np.isfinite(numbers)] if numbers.dtype.kind == "f" else numbers
    if len(present) == 0:
        return Dropped(name, "no values: missing or infinite in every row")
    if len(present) == len(numbers) and present.min() == present.max():
        value = bool(present[0]) if boolean else present[0]
        return Dropped(name, f"constant: always {value if boolean else format(value, '.12g')}")
    if pa.types.is_integer(array.type) and array.null_count == 0 and len(array) > IDENTIFIER_ROWS:
        # Differences of unsigned numbers wrap around; comparisons do not.
        monotone = bool((numbers[1:] > numbers[:-1]).all() or (numbers[1:] < numbers[:-1]).all())
        # Amounts of a table that is sorted by them are in order, too, but leave most numbers out.
        if monotone and (int(present.max()) - int(present.min())) < LARGEST_STEP * len(numbers):
            return Dropped(name, "identifier: whole numbers, all different and in order, with few left out")
        if looks_like_identifier(name) and pc.count_distinct(array).as_py() == len(array):
            return Dropped(name, "identifier: whole numbers, all different, and its name says so")
    note = "" if not infinite else f"infinite in {infinite} {_rows(infinite)}, taken as missing"
    return Column(name, "numeric", note=note, boolean=boolean)


def _decide_text(name: str, array: Any) -> Column | Dropped:
    pa, pc = arrow(), compute()
    text = pc.utf8_trim_whitespace(array)
    filled = pc.and_(array.is_valid(), pc.not_equal(text, ""))
    if not pc.any(filled).as_py():
        return Dropped(name, "no values: missing in every row")
    # A look at a few values spares whole columns of words the tries below.
    few = text.filter(filled).slice(0, 1000)
    notes = []
    if _some(numbers_in_text(few)) or compute().any(looks_dressed(few)).as_py():
        as_numbers, note = _decide_numbers_in_text(name, text)
        if as_numbers is not None:
            return as_numbers
        notes.append(note)
    if find_date_format(few):
        as_dates, note = _decide_dates_in_text(name, text)
        if as_dates is not None:
            return as_dates
        notes.append(note)
    if kind_of_text(array) == "boolean":
        return _decide_numbers(name, truths(array))
    decided = _decide_categories(name, pc.if_else(filled, array, pa.scalar(None, array.type)))
    return _with_notes(decided, notes)


def _decide_numbers_in_text(name: str, text: Any) -> tuple[Column | Dropped | None, str]:
    """The column as numbers, or None and what a reader should know of that."""
    pa, pc = arrow(), compute()
    found = Found(PLAIN)
    if len(_failed(text, numbers_in_text(text))):
        found = find_format(_without_missing(text))
        if found.format is None and found.note:
            return None, f"{NOT_READ} numbers: {found.note}"
    written = found.format or PLAIN
    texts = plain_text(text, written) if written != PLAIN else text
    numbers = numbers_in_text(texts)
    marks = _marks(text, numbers)
    if marks is None:
        return None, _exceptions(text, numbers)
    if pc.any(pc.match_substring_regex(text, _LEADING_ZERO)).as_py():
        return None, "numbers with leading zeros: taken as codes"
    if _are_codes(marks, numbers):
        return None, f"few different numbers and {' and '.join(map(repr, marks))}: taken as codes"
    kind = kind_of_text(numbers_text(texts, numbers))
    decided = _decide_numbers(name, numbers.cast(pa.int64()) if kind == "integer" else numbers)
    if isinstance(decided, Dropped):
        return decided, ""
    decided = replace(
        decided,
        comma=written.comma,
        thousands=written.thousands,
        currency=written.currency,
        percent=written.percent,
        parentheses=written.parentheses,
        note="; ".join(filter(None, [written.describe(), found.note, decided.note])),
    )
    return _with_marks(decided, marks), ""


def _decide_dates_in_text(name: str, text: Any) -> tuple[Column | Dropped | None, str]:
    """The column as dates, or None and what a reader should know of that."""
    formats = find_date_format(text)
    moments = moments_written(text, formats[0])
    marks = _marks(text, moments)
    if marks is None:
        return None, ""
    if len(formats) > 1:
        return None, f"{NOT_READ} dates: {ambiguous_dates(formats, text)}"
    decided = _decide_moments(name, moments)
    if isinstance(decided, Dropped):
        return decided, ""
    note = f"dates read as {formats[0]}" if formats[0] else ""
    return _with_marks(replace(decided, date_format=formats[0], note=note), marks), ""


def _with_notes(decided: Column | Dropped, notes: list[str]) -> Column | Dropped:
    if isinstance(decided, Dropped):
        return replace(decided, reason="; ".join(filter(None, [decided.reason, *notes])))
    return replace(decided, note="; ".join(filter(None, [decided.note, *notes])))


def numbers_text(text: Any, numbers: Any) -> Any:
    """The texts that are numbers; the others missing."""
    return compute().if_else(numbers.is_valid(), text, arrow().scalar(None, text.type))


def _some(values: Any) -> bool:
    return bool(values.null_count < len(values))


def _marks(text: Any, converted: Any) -> tuple[str, ...] | None:
    """The texts that stand for a missing value, or None if the column is not of the converted kind."""
    if not _some(converted):
        return None
    failed = _failed(text, converted)
    if len(failed) == 0:
        return ()
    present = len(converted) - converted.null_count
    marks = failed.unique()
    if len(marks) > MOST_MARKS or len(failed) >= present:
        return None
    return tuple(sorted(marks.to_pylist()))


def _are_codes(marks: tuple[str, ...], numbers: Any) -> bool:
    """Whether words among a few different numbers are codes like them: "A" beside 1 to 4 is not missing.

    Of few rows it cannot be told: they may have few different numbers by chance.
    """
    words = [mark for mark in marks if _WORD.search(mark) and mark.lower() not in _UNKNOWN]
    if len(numbers) <= IDENTIFIER_ROWS or not words:
        return False
    return int(compute().count_distinct(numbers.drop_null()).as_py()) <= ALL_LEVELS


def _without_missing(text: Any) -> Any:
    pa, pc = arrow(), compute()
    present = text.drop_null()
    return present.filter(pc.invert(pc.is_in(present, value_set=pa.array(NO_VALUE, present.type))))


def _failed(text: Any, converted: Any) -> Any:
    """The texts that were not converted and are not known to stand for a missing value."""
    pc = compute()
    return _without_missing(text.filter(pc.and_(converted.is_null(), text.is_valid())))


def _exceptions(text: Any, numbers: Any) -> str:
    """What keeps a column of text from being one of numbers, if most of it are numbers."""
    failed = _failed(text, numbers)
    present = len(numbers) - numbers.null_count
    if present < MOSTLY * (present + len(failed)):
        return ""
    others = failed.unique()
    shown = ", ".join(_short(other) for other in others.slice(0, 3).to_pylist())
    return f"{LOOKS_LIKE_NUMBERS} {shown}" + (f" and {len(others) - 3} more" if len(others) > 3 else "")


def _with_marks(column: Column, marks: tuple[str, ...]) -> Column:
    if not marks:
        return column
    said = " and ".join(repr(mark) for mark in marks) + (" is missing" if len(marks) == 1 else " are missing")
    return replace(column, missing_marks=marks, note="; ".join(filter(None, [column.note, said])))


def _decide_moments(name: str, moments: Any, *, time_of_day: bool = False) -> Column | Dropped:
    pc = compute()
    extremes = pc.min_max(moments).as_py()
    if extremes["min"] == extremes["max"] and moments.null_count == 0:
        return Dropped(name, "constant: always the same moment")
    if time_of_day:
        return Column(name, "date", parts=("hour",))
    present = numbers_from(moments.drop_null())
    has_hours = bool((present % 86_400_000_000 != 0).any())
    return Column(name, "date", parts=("day", "hour", "weekday") if has_hours else ("day", "weekday"))


def _decide_categories(name: str, texts: Any) -> Column | Dropped:
    pa, pc = arrow(), compute()
    present = texts.filter(pc.and_(texts.is_valid(), pc.not_equal(texts, "")))
    if len(present) == 0:
        return Dropped(name, "no values: missing in every row")
    counted = pc.value_counts(present)
    values, counts = counted.field("values"), numbers_from(counted.field("counts"))
    distinct = len(values)
    if distinct == 1 and len(present) == len(texts):
        return Dropped(name, f"constant: always {_short(values[0].as_py())}")
    if distinct > 100 and distinct > 0.9 * len(present):
        return Dropped(name, f"identifier: {distinct} different texts in {len(present)} rows")
    note = ""
    if distinct <= ALL_LEVELS:
        kept = values.to_pylist()
    else:
        often = np.flatnonzero(counts >= 2)
        names = values.take(pa.array(often)).to_pylist()
        order = sorted(range(len(names)), key=lambda i: (-counts[often[i]], names[i]))[:MOST_LEVELS]
        kept = [names[i] for i in order]
        if not kept:
            return Dropped(name, f"identifier: {distinct} texts, each in one row only")
        if len(kept) < distinct:
            note = f"{len(kept)} of {distinct} levels kept, the rarer ones are missing"
    return Column(name, "categorical", categories=tuple(sorted(kept)), note=note)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"
