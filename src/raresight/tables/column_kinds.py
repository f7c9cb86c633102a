"""Decide the kind of each column: numbers, categories, dates, or dropped.

Decisions use summaries, so that the parts of a table give the same answer as the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, mask_of, numbers_from
from raresight.tables.column_codec import LAST_MOMENT
from raresight.tables.columns import Column, Dropped
from raresight.tables.date_formats import (
    DAY,
    NUMBER_FORMATS,
    ambiguous_dates,
    find_date_format,
    may_be_dates,
    moments_in_numbers,
    moments_written,
    no_date_numbers,
)
from raresight.tables.number_formats import (
    PLAIN,
    FormatGuess,
    NumberFormat,
    find_format,
    may_be_formatted_number,
    plain_text,
)
from raresight.tables.summaries import (
    MOST_NUMBERS,
    NO_NUMBERS,
    ColumnSummary,
    NumberSummary,
    summarize_numbers,
)
from raresight.tables.text_values import NO_VALUE, kind_of_text, numbers_in_text, truths
from raresight.tables.value_keys import rare_keys

MOST_CATEGORIES = 255
ALL_CATEGORIES = 20
MOST_MARKS = 3
IDENTIFIER_ROWS = 100
# Row numbers leave out at most every other number.
LARGEST_STEP = 2
# Fewer different numbers may be dates by chance: one number in 27 from 19000101 to 21001231 is one.
FEWEST_DATES = 3
# Of numbers that are dates but for a few, such as 20210230.
MOST_MISFITS = 0.05
_EXACT_FLOAT64 = 2**53
MOSTLY = 0.9
NOT_READ = "not read as"
EQUAL = "numbers that differ only beyond the 16 digits of float64"
ROUNDED = "whole numbers beyond 2^53, rounded to 16 digits"
LOOKS_LIKE_NUMBERS = "looks like numbers except for"

_IDENTIFIER = re.compile(
    r"(^|[\s_.\-:])(id|ids|uuid|guid|key|index|idx|rowid|row|nr|no|number|serial|unnamed)([\s_.\-:\d]|$)",
    re.IGNORECASE,
)
# Words for a missing value, besides those of `NO_VALUE`.
_UNKNOWN = {"unknown", "unk", "missing", "not available", "not known", "n.a.", "k.a.", "nil", "undefined"}
# Postcodes, account numbers and the like: as a number 01234 would be the same as 1234.
_LEADING_ZERO = r"^0\d+$"
_MORE_THAN_FLOAT64 = r"^[+-]?\d{17,}$"
# Also formats that are not read, such as names of months in other languages; not versions and sort codes.
_LIKE_DATE = (
    r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}-\d{1,2}-\d{4}|\d{1,2}/\d{1,2}/\d{2,4}|\d{2}\.\d{2}\.\d{2,4}|"
    r"\d{1,2}[-/. ]+\p{L}{3,9}[-/., ]+\d{2,4}|"
    r"\p{L}{2,9}[.,]? +\p{L}{3,9}\.? +\d{1,2},? .{0,20}\d{4})($|[T ,:])"
)
_WORD = re.compile(r"[^\W\d_]")
_CAMEL_IDENTIFIER = re.compile(r"[a-z](Id|ID|Key|Uuid|UUID|Index)$")


@dataclass(frozen=True)
class Decision:
    """A column or the reason to drop it, and whether its numbers need float64."""

    column: Column | Dropped
    wide: bool = False


def decide_column(summary: ColumnSummary) -> Decision:
    """Decide the kind of a column from its type and all of its values.

    Example:
        >>> import pyarrow as pa
        >>> from raresight.tables.summaries import summarize_column
        >>> decide_column(summarize_column("age", pa.array(["31", "?", "45"]))).column  # doctest: +ELLIPSIS
        Column(name='age', kind='numeric', categories=(), missing_marks=('?',), note="'?' is missing", ...)
        >>> decide_column(summarize_column("country", pa.array(["US", "US", "US"]))).column
        Dropped(name='country', reason="constant: always 'US'")
    """
    name = summary.name
    if summary.missing == summary.rows:
        return Decision(Dropped(name, "no values: missing in every row"))
    if summary.kind in ("moment", "time of day"):
        assert summary.moments is not None
        time_of_day = summary.kind == "time of day"
        return Decision(_decide_moments(name, summary.moments, summary.missing > 0, time_of_day=time_of_day))
    if summary.kind in ("number", "boolean"):
        boolean = summary.kind == "boolean"
        return _decide_numbers(name, summary.numbers, summary.rows, boolean=boolean)
    if summary.texts is None:
        return Decision(Dropped(name, f"type {summary.type}: only numbers, text and dates can be features"))
    column = _TextColumn(summary)
    return column.decide() if summary.kind == "text" else Decision(column.as_categories())


def looks_like_identifier(name: str) -> bool:
    """Tell whether a name suggests an identifier of rows or customers.

    Example:
        >>> [looks_like_identifier(name) for name in ("customer_id", "RowID", "amount", "idle", "paid")]
        [True, True, False, False, False]
    """
    return bool(_IDENTIFIER.search(name) or _CAMEL_IDENTIFIER.search(name))


def _decide_numbers(name: str, numbers: NumberSummary, rows: int, *, boolean: bool = False) -> Decision:
    finite = numbers.count - numbers.infinite
    if finite == 0:
        return Decision(Dropped(name, "no values: missing or infinite in every row"))
    if finite == rows and numbers.minimum == numbers.maximum:
        value = bool(numbers.minimum) if boolean else format(numbers.minimum, ".12g")
        return Decision(Dropped(name, f"constant: always {value}"))
    if numbers.integer and finite == rows and rows > IDENTIFIER_ROWS:
        # Amounts of a table that is sorted by them are in order, too, but leave most numbers out.
        in_order = numbers.increasing or numbers.decreasing
        if in_order and int(numbers.maximum) - int(numbers.minimum) < LARGEST_STEP * rows:
            reason = "identifier: whole numbers, all different and in order, with few left out"
            return Decision(Dropped(name, reason))
        if looks_like_identifier(name) and numbers.all_different:
            return Decision(Dropped(name, "identifier: whole numbers, all different, and its name says so"))
    date_format, no_dates = _date_format_of_numbers(numbers)
    if date_format:
        return Decision(_dates_in_numbers(name, numbers, date_format))
    if numbers.equal_in_float64:
        return Decision(_beyond_float64(name, numbers))
    infinite = numbers.infinite
    notes = [
        f"infinite in {infinite} {_rows(infinite)}, taken as missing" if infinite else "",
        ROUNDED if numbers.integer and numbers.largest > _EXACT_FLOAT64 else "",
        no_dates,
    ]
    note = "; ".join(filter(None, notes))
    return Decision(Column(name, "numeric", note=note, boolean=boolean), numbers.needs_float64)


def _date_format_of_numbers(numbers: NumberSummary) -> tuple[str, str]:
    """Find the format in which nearly all numbers are dates; else nothing, and a note if most look so."""
    for format, found in numbers.dates.items():
        if found.dates == 0:
            continue
        misfits = found.misfits
        if misfits is None or numbers.infinite:
            if found.dates >= MOSTLY * numbers.count:
                return "", f"{NOT_READ} dates {format}: most are, but too many different numbers are none"
            continue
        wrong = sum(misfits.values())
        if wrong > MOST_MISFITS * (found.dates + wrong):
            if found.dates >= MOSTLY * (found.dates + wrong):
                return "", f"{NOT_READ} dates {format}: most are, but not {' and '.join(_marks(misfits))}"
            continue
        different = FEWEST_DATES * (1 + len(misfits))
        if numbers.few is not None:
            values = np.array([value for value in numbers.few if value not in misfits])
            if (~no_date_numbers(values, format)).sum() < different:
                return "", f"{NOT_READ} dates {format}: fewer than {different} different ones"
        return format, ""
    return "", ""


def _marks(misfits: Iterable[float | int]) -> tuple[str, ...]:
    return tuple(str(value).removesuffix(".0") for value in sorted(misfits))


def _dates_in_numbers(name: str, numbers: NumberSummary, format: str) -> Column:
    # A year such as 1899 speaks against dates, but is read if the others are.
    strange = np.array(list(numbers.dates[format].misfits or ()), np.float64)
    marks = _marks(strange[mask_of(moments_in_numbers(strange, format).is_null())].tolist())
    ends = np.array([float(numbers.minimum), float(numbers.maximum)])
    missing = [f"{value:.0f}" for value in ends[no_date_numbers(ends, format)]]
    said = " and ".join([*missing, *marks])
    note = "; ".join(
        filter(None, [f"numbers read as dates {format}", f"{said} taken as missing" if said else ""])
    )
    return Column(
        name,
        "date",
        parts=("day", "hour", "weekday") if NUMBER_FORMATS[format] else ("day", "weekday"),
        missing_marks=marks,
        date_format=format,
        note=note,
    )


def _beyond_float64(name: str, numbers: NumberSummary) -> Column | Dropped:
    """Take whole numbers that float64 cannot tell apart as categories if they are few, or drop the column."""
    if numbers.integer and numbers.few is not None:
        categories = tuple(sorted(str(value) for value in numbers.few))
        return Column(name, "categorical", categories=categories, note=f"{EQUAL}: taken as codes")
    return Dropped(name, f"identifier: {EQUAL}")


def _decide_moments(
    name: str, moments: NDArray[np.int64], missing: bool, *, time_of_day: bool = False
) -> Column | Dropped:
    beyond = moments[0] <= -LAST_MOMENT or moments[-1] >= LAST_MOMENT
    if moments[0] == moments[-1] and beyond:
        return Dropped(name, "each moment is beyond the year 294246")
    if moments[0] == moments[-1] and not missing:
        return Dropped(name, "constant: always the same moment")
    if time_of_day:
        return Column(name, "date", parts=("hour",))
    has_hours = bool((moments % DAY != 0).any())
    note = "moments beyond the year 294246 are taken as its end" if beyond else ""
    return Column(
        name, "date", parts=("day", "hour", "weekday") if has_hours else ("day", "weekday"), note=note
    )


class _TextColumn:
    """A column of text, whose kind is decided from its distinct values and their counts."""

    def __init__(self, summary: ColumnSummary) -> None:
        assert summary.texts is not None
        self.name, self.rows, self.numbers = summary.name, summary.rows, summary.numbers
        self.texts = summary.texts
        self.values, self.counts = summary.texts.examples
        self.text = compute().utf8_trim_whitespace(self.values)

    def decide(self) -> Decision:
        words = compute().is_in(self.text, value_set=arrow().array(NO_VALUE, self.text.type))
        if compute().all(words).as_py():
            return Decision(Dropped(self.name, "no values: missing in every row"))
        notes = []
        # Few texts are enough to recognize most columns of words; each try below goes over all texts.
        few = self.text.filter(compute().not_equal(self.text, "")).slice(0, 1000)
        if (
            self.numbers.count
            or compute().any(may_be_formatted_number(few)).as_py()
            or numbers_in_text(few).null_count < len(few)
        ):
            decided, note = self.as_numbers()
            if decided is not None:
                return decided
            notes.append(note)
        if may_be_dates(few):
            as_dates, note = self.as_dates()
            if as_dates is not None:
                return Decision(as_dates)
            notes.append(note)
        if kind_of_text(self.values) == "boolean":
            values = numbers_from(truths(self.values).cast(arrow().uint8())).astype(np.float64)
            return _decide_numbers(
                self.name, _numbers_with_counts(values, self.counts), self.rows, boolean=True
            )
        if (
            not any(notes)
            and compute().mean(compute().match_substring_regex(few, _LIKE_DATE)).as_py() >= MOSTLY
        ):
            example = _short(few[0].as_py())
            notes.append(f"{NOT_READ} dates: no single known format fits values such as {example}")
        return Decision(_with_notes(self.as_categories(), notes))

    def as_numbers(self) -> tuple[Decision | None, str]:
        """Try to read the column as numbers; else return None and a note."""
        pc = compute()
        plain_numbers = numbers_in_text(self.text)
        written, found = PLAIN, FormatGuess(PLAIN)
        if self.failed(plain_numbers)[1].sum():
            known = mask_of(pc.invert(pc.is_in(self.text, value_set=arrow().array(NO_VALUE, self.text.type))))
            found = find_format(self.text.filter(arrow().array(known)), self.counts[known])
            if found.format is None and found.note:
                return None, f"{NOT_READ} numbers: {found.note}"
            written = found.format or PLAIN
        texts = plain_text(self.text, written) if written != PLAIN else self.text
        numbers = numbers_in_text(texts) if written != PLAIN else plain_numbers
        marks = self.marks(numbers)
        if marks is None:
            return None, self.exceptions(numbers)
        statistics = self.numbers if written == PLAIN else self.converted(texts, numbers)
        date_format, _ = _date_format_of_numbers(statistics)
        if date_format:
            return Decision(_with_marks(_dates_in_numbers(self.name, statistics, date_format), marks)), ""
        if pc.any(pc.match_substring_regex(self.text, _LEADING_ZERO)).as_py():
            return None, "numbers with leading zeros: taken as codes"
        if statistics.equal_in_float64 or self.differ(texts, numbers, statistics):
            if self.texts.folded is not None:
                return Decision(Dropped(self.name, f"identifier: {EQUAL}")), ""
            return None, f"{EQUAL}: taken as codes"
        if _are_codes(marks, statistics, self.rows):
            return None, f"few different numbers and {' and '.join(map(repr, marks))}: taken as codes"
        decision = _decide_numbers(self.name, statistics, self.rows)
        if isinstance(decision.column, Dropped):
            return decision, ""
        column = decision.column
        if ROUNDED not in column.note and pc.any(pc.match_substring_regex(texts, _MORE_THAN_FLOAT64)).as_py():
            column = replace(column, note="; ".join(filter(None, [column.note, ROUNDED])))
        column = _in_format(column, written, found.note)
        return replace(decision, column=_with_marks(column, marks)), ""

    def differ(self, texts: Any, numbers: Any, statistics: NumberSummary) -> bool:
        """Tell whether all texts are equal as float64, but are different numbers."""
        always = float(statistics.minimum)
        if always != float(statistics.maximum):
            return False
        same = texts.filter(compute().equal(numbers, always)).to_pylist()
        return self.texts.folded is not None or len({Decimal(text) for text in same}) > 1

    def converted(self, texts: Any, numbers: Any) -> NumberSummary:
        """Summarize the numbers of a format, from the distinct texts."""
        valid = mask_of(numbers.is_valid())
        counts = self.counts[valid]
        as_integers = kind_of_text(texts.filter(arrow().array(valid))) == "integer"
        statistics = _numbers_with_counts(numbers_from(numbers.drop_null()), counts)
        # Distinct texts are in the order of the rows only if each is in one row and none is folded.
        in_order = self.texts.folded is None and bool((counts == 1).all())
        return replace(
            statistics,
            integer=as_integers,
            dates={},
            increasing=statistics.increasing and in_order,
            decreasing=statistics.decreasing and in_order,
            kept=statistics.kept if in_order else None,
        )

    def as_dates(self) -> tuple[Column | Dropped | None, str]:
        """Try to read the column as dates; else return None and a note."""
        formats = find_date_format(self.text, self.counts)
        if not formats:
            return None, ""
        moments = moments_written(self.text, formats[0])
        marks = self.marks(moments)
        if marks is None:
            return None, ""
        if len(formats) > 1:
            return None, f"{NOT_READ} dates: {ambiguous_dates(formats, self.text)}"
        valid = mask_of(moments.is_valid())
        missing = int(self.counts[valid].sum()) < self.rows
        decided = _decide_moments(self.name, np.unique(numbers_from(moments.drop_null())), missing)
        if isinstance(decided, Dropped):
            return decided, ""
        note = f"dates read as {formats[0]}" if formats[0] else ""
        return _with_marks(replace(decided, date_format=formats[0], note=note), marks), ""

    def as_categories(self) -> Column | Dropped:
        """Take the column as categories, or drop it if it identifies its rows."""
        name = self.name
        filled = mask_of(compute().not_equal(self.text, ""))
        values, counts = self.values.filter(arrow().array(filled)), self.counts[filled]
        if len(values) == 0:
            return Dropped(name, "no values: missing in every row")
        distinct, present = len(values), int(counts.sum())
        if distinct == 1 and present == self.rows:
            return Dropped(name, f"constant: always {_short(values[0].as_py())}")
        note = ""
        if self.texts.folded is not None:
            # The folded texts are no longer known, and too many to be categories.
            stand_ins = len(self.texts.folded)
            values, counts = values.slice(0, distinct - stand_ins), counts[: distinct - stand_ins]
            note = f"more than {MOST_NUMBERS} different numbers are missing"
        elif distinct > 100 and distinct > 0.9 * present:
            return Dropped(name, f"identifier: {distinct} different texts in {present} rows")
        rare = b""
        if distinct <= ALL_CATEGORIES and self.texts.folded is None:
            kept = values.to_pylist()
        else:
            often = np.flatnonzero(counts >= 2)
            names = values.take(arrow().array(often)).to_pylist()
            order = sorted(range(len(names)), key=lambda i: (-counts[often[i]], names[i]))[:MOST_CATEGORIES]
            kept = [names[i] for i in order]
            if not kept:
                return Dropped(name, f"identifier: {distinct} texts, each in one row only")
            if len(kept) < len(values):
                said = f"{len(kept)} of {len(values)} categories kept, the rarer ones are missing"
                note = "; ".join(filter(None, [said, note]))
                rare = rare_keys(values, kept)
        folded = self.texts.folded is not None
        return Column(name, "categorical", tuple(sorted(kept)), note=note, rare=rare, many_numbers=folded)

    def marks(self, converted: Any) -> tuple[str, ...] | None:
        """Return the texts that stand for a missing value; None if the column is not of this kind."""
        present = int(self.counts[mask_of(converted.is_valid())].sum())
        if not present:
            return None
        failed, counts = self.failed(converted)
        if len(failed) == 0:
            return ()
        marks = failed.unique()
        if len(marks) > MOST_MARKS or counts.sum() >= present:
            return None
        return tuple(sorted(marks.to_pylist()))

    def failed(self, converted: Any) -> tuple[Any, NDArray[np.int64]]:
        """Return the texts that were not converted and are no known mark of a missing value."""
        pc = compute()
        known = pc.is_in(self.text, value_set=arrow().array(NO_VALUE, self.text.type))
        wrong = pc.and_(converted.is_null(), pc.invert(known))
        return self.text.filter(wrong), self.counts[mask_of(wrong)]

    def exceptions(self, numbers: Any) -> str:
        """Return a note on the texts that are no numbers, if most of the column is numbers."""
        failed, counts = self.failed(numbers)
        present = int(self.counts[mask_of(numbers.is_valid())].sum())
        if present < MOSTLY * (present + counts.sum()):
            return ""
        others = failed.unique()
        shown = ", ".join(_short(other) for other in others.slice(0, 3).to_pylist())
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        return f"{LOOKS_LIKE_NUMBERS} {shown}{more}"


def _numbers_with_counts(values: NDArray[Any], counts: NDArray[np.int64]) -> NumberSummary:
    """Summarize the numbers of distinct texts, each with its count."""
    statistics = summarize_numbers(values, integer=False, keep=True)
    if statistics.count == 0:
        return NO_NUMBERS
    known = ~np.isnan(values)
    infinite = int(counts[np.isinf(values)].sum())
    return replace(statistics, count=int(counts[known].sum()), infinite=infinite)


def _in_format(column: Column, written: NumberFormat, note: str) -> Column:
    return replace(
        column,
        comma=written.comma,
        thousands=written.thousands,
        currency=written.currency,
        percent=written.percent,
        parentheses=written.parentheses,
        note="; ".join(filter(None, [written.describe(), note, column.note])),
    )


def _with_notes(decided: Column | Dropped, notes: list[str]) -> Column | Dropped:
    if isinstance(decided, Dropped):
        return replace(decided, reason="; ".join(filter(None, [decided.reason, *notes])))
    return replace(decided, note="; ".join(filter(None, [decided.note, *notes])))


def _are_codes(marks: tuple[str, ...], numbers: NumberSummary, rows: int) -> bool:
    """Tell whether words among a few distinct numbers are codes like them: "A" beside 1 to 4 is not missing.

    This is unknown in few rows, which may have few distinct numbers by chance.
    """
    words = [mark for mark in marks if _WORD.search(mark) and mark.lower() not in _UNKNOWN]
    few = numbers.few is not None and len(numbers.few) <= ALL_CATEGORIES
    return rows > IDENTIFIER_ROWS and bool(words) and few


def _with_marks(column: Column, marks: tuple[str, ...]) -> Column:
    if not marks:
        return column
    said = " and ".join(repr(mark) for mark in marks) + (" is missing" if len(marks) == 1 else " are missing")
    all_marks = (*column.missing_marks, *marks)
    return replace(column, missing_marks=all_marks, note="; ".join(filter(None, [column.note, said])))


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _rows(count: int) -> str:
    return "row" if count == 1 else "rows"
