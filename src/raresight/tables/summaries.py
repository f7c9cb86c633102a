"""Summarize columns part by part; merged summaries are enough to decide what a column means.

The merged summaries of the parts equal the summary of the whole, if they are merged in the order of the rows.
A summary of text keeps each distinct text with its count. More than 32,768 distinct numbers in text are
folded: their statistics stay, and one example represents all numbers of the same notation. This keeps
summaries of long columns of numbers small. The rule depends on the texts alone, not on the parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, mask_of, naming_column, numbers_from
from raresight.tables.column_codec import is_moment, is_number, plain, texts_of, typed_moments, typed_numbers
from raresight.tables.date_formats import NumberDates, dates_of_numbers
from raresight.tables.text_values import NO_VALUE, is_text, numbers_in_text

__all__ = [
    "ColumnSummary",
    "NumberSummary",
    "TableSummary",
    "Texts",
    "as_integers",
    "summarize",
    "summarize_column",
]

SummaryKind = Literal["text", "category", "number", "boolean", "moment", "time of day", "other", "nothing"]

MOST_NUMBERS = 32_768
MOST_COUNTED = 64
# Number of float32 values that are sampled to count different numbers that become equal in float32.
_ROUNDED = 4096
_EXACT_FLOAT32 = 2**24
# In a range this small beside the numbers, float32 has at most 4096 values.
_NARROW = 2.0**-12


@dataclass(frozen=True, eq=False)
class NumberSummary:
    """Statistics of numbers in the order of their rows. NaN counts as missing and is left out.

    Attributes:
        count: Number of numbers, infinite ones included.
        infinite: Number of infinite ones.
        minimum, maximum: Extremes of the finite ones; exact, also of decimals.
        integer: Whether all are whole numbers by type or text, not by value.
        first, last: The first and the last number in the order of the rows.
        increasing, decreasing: Whether each is larger, or smaller, than the one before it.
        few: Each distinct number with its count, or None if there are more than 64.
        inexact: Whether a whole number is not exact in float32.
        rounded: Numbers beyond 2**24, at most two for each of a sample of float32 values.
        dates: How many of them are dates, by format; see `dates_of_numbers`.
        kept: All numbers, where they are needed; else None.
    """

    count: int = 0
    infinite: int = 0
    minimum: float | int | Decimal = np.inf
    maximum: float | int | Decimal = -np.inf
    integer: bool = True
    first: float | int = 0
    last: float | int = 0
    increasing: bool = True
    decreasing: bool = True
    few: Mapping[float | int, int] | None = None
    inexact: bool = False
    rounded: NDArray[np.float64] | None = None
    dates: Mapping[str, NumberDates] = field(default_factory=dict)
    kept: NDArray[Any] | None = None

    @property
    def largest(self) -> float:
        """The largest absolute value of the finite numbers; 0 without any."""
        return max(abs(float(self.maximum)), abs(float(self.minimum))) if self.count > self.infinite else 0.0

    @property
    def equal_in_float64(self) -> bool:
        """Whether different numbers, such as two near 2**64, are equal as float64.

        With more than 64 distinct numbers, this is known only if all of them are equal.
        """
        if self.few is not None and len({float(value) for value in self.few}) < len(self.few):
            return True
        return self.minimum != self.maximum and float(self.minimum) == float(self.maximum)

    @property
    def all_different(self) -> bool:
        """Whether all numbers are distinct; known only if all are kept."""
        return self.kept is not None and len(np.unique(self.kept)) == len(self.kept)

    @property
    def needs_float64(self) -> bool:
        """Whether float32 rounds a whole number, or makes more than 1 % of large numbers equal to others."""
        if self.largest > float(np.finfo(np.float32).max) or self.inexact:
            return True
        if self.few is None and not self.integer:
            spread = float(self.maximum) - float(self.minimum)
            if spread < _NARROW * self.largest:
                return True
        elif self.few is not None:
            values = np.array([value for value in self.few if np.isfinite(value)], np.float64)
            if len(np.unique(values.astype(np.float32))) < len(values):
                return True
        if self.rounded is None or len(self.rounded) == 0:
            return False
        # Rounding a fraction does no harm unless it becomes equal to another one.
        return len(np.unique(self.rounded.astype(np.float32))) < 0.99 * len(self.rounded)


NO_NUMBERS = NumberSummary(few={})


def summarize_numbers(numbers: NDArray[Any], *, integer: bool, keep: bool = False) -> NumberSummary:
    """Summarize an array of numbers."""
    present = numbers[~np.isnan(numbers)] if numbers.dtype.kind == "f" else numbers
    if len(present) == 0:
        return replace(NO_NUMBERS, kept=present if keep else None)
    finite = present[np.isfinite(present)] if present.dtype.kind == "f" else present
    # Compared rather than subtracted, because differences of unsigned numbers wrap around.
    later, earlier = present[1:], present[:-1]
    few = _few(present)
    inexact, rounded = False, None
    if len(finite) and max(abs(float(finite.max())), abs(float(finite.min()))) > _EXACT_FLOAT32:
        inexact, rounded = _beyond_float32(finite)
    return NumberSummary(
        count=len(present),
        infinite=len(present) - len(finite),
        minimum=finite.min().item() if len(finite) else np.inf,
        maximum=finite.max().item() if len(finite) else -np.inf,
        integer=integer,
        first=present[0].item(),
        last=present[-1].item(),
        increasing=bool((later > earlier).all()),
        decreasing=bool((later < earlier).all()),
        few=few,
        dates=dates_of_numbers(present, few),
        inexact=inexact,
        rounded=rounded,
        kept=present if keep else None,
    )


def merge_numbers(left: NumberSummary, right: NumberSummary) -> NumberSummary:
    """Merge the statistics of two parts, the rows of `left` first."""
    if left.count == 0 or right.count == 0:
        return left if right.count == 0 else right
    few = None
    if left.few is not None and right.few is not None:
        few = dict(left.few)
        for value, count in right.few.items():
            few[value] = few.get(value, 0) + count
        few = few if len(few) <= MOST_COUNTED else None
    inexact = left.inexact or right.inexact
    parts = [one.rounded for one in (left, right) if one.rounded is not None]
    minimum, maximum = min(left.minimum, right.minimum), max(left.maximum, right.maximum)
    # No type of whole numbers holds both, so the whole column is read as floats.
    integer = left.integer and right.integer and not (minimum < 0 and maximum >= 2**63)
    kept = None
    if integer and left.kept is not None and right.kept is not None:
        ends = [left.kept, right.kept]
        same = left.kept.dtype == right.kept.dtype
        # NumPy makes floats of signed and unsigned numbers together.
        kept = np.concatenate(ends if same else [one.astype(object) for one in ends])
    return NumberSummary(
        count=left.count + right.count,
        infinite=left.infinite + right.infinite,
        minimum=minimum,
        maximum=maximum,
        integer=integer,
        first=left.first,
        last=right.last,
        increasing=left.increasing and right.increasing and right.first > left.last,
        decreasing=left.decreasing and right.decreasing and right.first < left.last,
        few=few,
        inexact=inexact,
        rounded=_sample(np.concatenate(parts)) if parts and not inexact else None,
        dates={format: found.merge(right.dates[format]) for format, found in left.dates.items()},
        kept=kept,
    )


def _few(present: NDArray[Any]) -> Mapping[float | int, int] | None:
    # The first numbers of most columns are enough to know, without sorting all.
    if len(np.unique(present[:256])) > MOST_COUNTED:
        return None
    values, counts = np.unique(present, return_counts=True)
    if len(values) > MOST_COUNTED:
        return None
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def _beyond_float32(finite: NDArray[Any]) -> tuple[bool, NDArray[np.float64] | None]:
    """Tell whether a whole number is rounded in float32; if none is, return a sample of the large numbers."""
    large = finite[np.abs(finite.astype(np.float64)) > _EXACT_FLOAT32].astype(np.float64)
    with np.errstate(over="ignore"):
        rounded = large.astype(np.float32)
    if ((large == np.floor(large)) & (rounded != large)).any():
        return True, None
    return False, _sample(large)


def _sample(large: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample numbers: at most two for each of the 4096 float32 values with the smallest hashes.

    Values are chosen by their own hash, so that parts choose the same ones as the whole.
    """
    large = np.unique(large)
    with np.errstate(over="ignore"):
        rounded = large.astype(np.float32)
    # Sorted numbers stay sorted when rounded, so a third number of a value follows two others.
    third = np.zeros(len(large), dtype=bool)
    third[2:] = rounded[2:] == rounded[:-2]
    large, rounded = large[~third], rounded[~third]
    hashes = rounded.view(np.uint32) * np.uint32(2654435761)
    different = np.unique(hashes)
    if len(different) <= _ROUNDED:
        return large
    chosen: NDArray[np.float64] = large[hashes <= different[_ROUNDED - 1]]
    return chosen


@dataclass(frozen=True, eq=False)
class Texts:
    """Distinct texts with their counts, in the order in which they first occur.

    Attributes:
        values: Arrow text, without folded numbers.
        counts: How often each text occurs.
        folded: The first text and the count of each notation, if numbers are folded; else None.
    """

    values: Any
    counts: NDArray[np.int64]
    folded: Mapping[int, tuple[str, int]] | None = None

    @cached_property
    def examples(self) -> tuple[Any, NDArray[np.int64]]:
        """All texts with their counts; folded numbers are represented by one text per notation."""
        if not self.folded:
            return self.values, self.counts
        pa = arrow()
        texts = pa.array([text for text, _ in self.folded.values()], self.values.type)
        counts = np.array([count for _, count in self.folded.values()], dtype=np.int64)
        return pa.concat_arrays([self.values, texts]), np.concatenate([self.counts, counts])


def _count_texts(values: Any, weights: NDArray[np.int64] | None = None) -> tuple[Any, NDArray[np.int64]]:
    """Count the distinct texts of an array without missing ones, in order; weights are summed."""
    pa = arrow()
    if weights is None:
        counted = values.value_counts()
        return counted.field("values"), numbers_from(counted.field("counts")).astype(np.int64)
    coded = values.dictionary_encode()
    codes = numbers_from(coded.indices)
    counts = np.bincount(codes, weights=weights, minlength=len(coded.dictionary))
    return pa.array(coded.dictionary), counts.astype(np.int64)


def _summarize_texts(values: Any, numbers: Any, fold: bool) -> Texts:
    """Summarize texts without missing ones; `numbers` are their values, missing where a text is none."""
    if not fold:
        return _folded_if_many(Texts(*_count_texts(values)))
    keep, folded = _fold(values, numbers, None)
    return Texts(*_count_texts(values.filter(arrow().array(keep))), folded)


def _folded_if_many(texts: Texts) -> Texts:
    if texts.folded is not None or len(texts.values) <= MOST_NUMBERS:
        return texts
    folded = _force_fold(texts)
    return folded if len(texts.values) - len(folded.values) > MOST_NUMBERS else texts


def _force_fold(texts: Texts) -> Texts:
    if texts.folded is not None:
        return texts
    keep, folded = _fold(texts.values, numbers_in_text(texts.values), texts.counts)
    return Texts(texts.values.filter(arrow().array(keep)), texts.counts[keep], folded)


def merge_texts(left: Texts, right: Texts) -> Texts:
    """Merge the texts of two parts, those of `left` first."""
    folded: dict[int, tuple[str, int]] | None = None
    if left.folded is not None or right.folded is not None:
        left, right = _force_fold(left), _force_fold(right)
        folded = dict(left.folded or {})
        for way, (text, count) in (right.folded or {}).items():
            known = folded.get(way)
            folded[way] = (text, count) if known is None else (known[0], known[1] + count)
    values = arrow().concat_arrays([left.values, right.values.cast(left.values.type)])
    counts = np.concatenate([left.counts, right.counts])
    return _folded_if_many(Texts(*_count_texts(values, counts), folded))


def _fold(
    values: Any, numbers: Any, counts: NDArray[np.int64] | None
) -> tuple[NDArray[np.bool_], dict[int, tuple[str, int]]]:
    """Mark the texts that are not folded, and collect the others by notation."""
    keep = ~(np.isfinite(numbers_from(numbers)) & mask_of(numbers.is_valid()))
    rows = np.flatnonzero(~keep)
    chosen = values if len(rows) == len(values) else values.filter(arrow().array(~keep))
    ways = _ways_to_write(chosen, numbers_from(numbers)[rows])
    # Codes such as 007 must stay: they decide that the column is categorical.
    keep[rows[ways == _CODE]] = True
    weights = None if counts is None else counts[rows]
    totals = np.bincount(ways, weights=weights, minlength=_CODE + 1)[:_CODE]
    first = np.full(_CODE + 1, len(ways))
    # NumPy keeps the last of several assignments to one place. In reversed order that is the first text.
    first[ways[::-1]] = np.arange(len(ways))[::-1]
    found = np.flatnonzero(totals)
    return keep, {
        int(way): (chosen[int(first[way])].as_py(), int(totals[way]))
        for way in found[np.argsort(first[found])]
    }


_WAYS = 10
_CODE = 1 << _WAYS


def _ways_to_write(values: Any, numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Number the notation of each finite number from 0 to 1023; 1024 is a code such as 007.

    Texts of the same notation fit the same number formats (see `NumberFormat`).
    """
    if len(values) == 0:
        return np.zeros(0, np.int64)
    data, starts, ends = _bytes_of(values)
    if (data <= ord(" ")).any() or (data > 127).any():
        data, starts, ends = _bytes_of(compute().utf8_trim_whitespace(values))
    first = data[starts]
    negative = first == ord("-")
    signed = (first == ord("+")) | negative
    starts = starts + signed
    # A number has at most one point and one exponent. Searching bytes is several times as fast as regular
    # expressions, and most columns of most tables are numbers.
    place, has_exponent = ends.copy(), np.zeros(len(ends), bool)
    points = np.flatnonzero(data == ord("."))
    place[np.searchsorted(ends, points, side="right")] = points
    has_exponent[np.searchsorted(ends, np.flatnonzero((data | 32) == ord("e")), side="right")] = True
    has_point = place < ends
    before, behind = place - starts, ends - place - 1
    starts_with_zero = data[starts] == ord("0")
    leading_zero = starts_with_zero & (before > 1)
    flags = [
        has_point,
        has_exponent,
        negative,
        signed & ~negative,
        leading_zero,
        starts_with_zero,
        before == 0,
        before > 3,
        behind == 3,
        numbers == 0,
    ]
    assert len(flags) == _WAYS
    ways = np.zeros(len(ends), np.int64)
    for bit, flag in enumerate(flags):
        ways |= flag.astype(np.int64) << bit
    ways[leading_zero & ~has_point & ~has_exponent & ~signed] = _CODE
    return ways


def _bytes_of(values: Any) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the bytes of texts, and where each text begins and ends."""
    pa = arrow()
    texts = values.cast(pa.large_string())
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(texts.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    return data, offsets[:-1] - offsets[0], offsets[1:] - offsets[0]


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """The summary of a column.

    Attributes:
        name: The name in the table.
        kind: The kind of its type; what it means is decided later.
        type: The name of its Arrow type.
        rows, missing: Number of rows, and of those without a value.
        numbers: Statistics of numbers, or of the texts that are numbers.
        texts: The texts of a column of text or of categories.
        moments: Distinct moments in microseconds, sorted.
    """

    name: str
    kind: SummaryKind
    type: str
    rows: int
    missing: int
    numbers: NumberSummary = NO_NUMBERS
    texts: Texts | None = None
    moments: NDArray[np.int64] | None = None

    @property
    def example(self) -> str:
        """One of its values as text: of text the first one, of moments the one in the middle; else empty."""
        if self.texts is not None:
            values = self.texts.examples[0].slice(0, 100).to_pylist()
            return next((value for value in values if value.strip() not in NO_VALUE), "")
        if self.moments is not None and len(self.moments):
            moment = np.datetime64(int(self.moments[len(self.moments) // 2]), "us")
            day, _, time = str(moment).removesuffix(".000000").partition("T")
            return time if self.kind == "time of day" else day if time == "00:00:00" else f"{day} {time}"
        numbers = self.numbers
        if numbers.count == 0:
            return ""
        value = numbers.first if numbers.first or self.kind == "boolean" else numbers.maximum
        return str(bool(value)) if self.kind == "boolean" else _number_text(value)

    def merge(self, other: ColumnSummary) -> ColumnSummary:
        """Merge the summaries of two parts, the rows of `other` last.

        Raises:
            ValueError: If the columns have different names or types.
        """
        if self.kind == "nothing" or other.kind == "nothing":
            # A part without values may have another type.
            kind = other if self.kind == "nothing" else self
            rows, missing = self.rows + other.rows, self.missing + other.missing
            return replace(kind, rows=rows, missing=missing)
        if (self.name, self.kind) != (other.name, other.kind):
            raise ValueError(
                f"the column {self.name!r} is {self.kind} in one part, but {other.name!r} is {other.kind} in "
                "another one"
            )
        texts = self.texts
        if texts is not None and other.texts is not None:
            texts = merge_texts(texts, other.texts)
        moments = self.moments
        if moments is not None and other.moments is not None:
            moments = np.union1d(moments, other.moments)
        return replace(
            self,
            rows=self.rows + other.rows,
            missing=self.missing + other.missing,
            numbers=merge_numbers(self.numbers, other.numbers),
            texts=texts,
            moments=moments,
        )


def _number_text(value: Any) -> str:
    if isinstance(value, float):
        # Shorter is easier to read, but a date such as 20240531.0 needs all its digits.
        return format(value, ".0f" if value == np.floor(value) and abs(value) < 2**53 else ".6g")
    return str(value)


def summarize_column(name: str, values: Any, *, keep: bool = False, fold: bool = False) -> ColumnSummary:
    """Summarize an Arrow column.

    Args:
        name: Its name.
        values: An Arrow array.
        keep: Whether to keep all numbers, to know whether all are distinct.
        fold: Whether to fold numbers in text at once, because those of an earlier part are folded.

    Example:
        >>> import pyarrow as pa
        >>> first, second = pa.array(["1", "2"]), pa.array(["2", None, "x"])
        >>> whole = summarize_column("a", first).merge(summarize_column("a", second))
        >>> whole.texts.values.to_pylist(), whole.texts.counts, whole.missing, whole.numbers.count
        (['1', '2', 'x'], array([1, 2, 1]), 1, 3)
    """
    pa = arrow()
    encoded = pa.types.is_dictionary(values.type)
    array = plain(values)
    type_ = array.type

    def made(kind: SummaryKind, **more: Any) -> ColumnSummary:
        return ColumnSummary(name, kind, str(type_), len(array), array.null_count, **more)

    if pa.types.is_null(type_):
        return made("nothing")
    if is_moment(type_):
        kind: SummaryKind = "time of day" if pa.types.is_time(type_) else "moment"
        return made(kind, moments=np.unique(numbers_from(typed_moments(array).drop_null())))
    if encoded and (is_text(type_) or is_number(type_)):
        return made("category", texts=Texts(*_count_texts(texts_of(array).drop_null())))
    if is_number(type_):
        integer = pa.types.is_integer(type_)
        numbers = typed_numbers(array.drop_null() if integer or pa.types.is_boolean(type_) else array)
        found = summarize_numbers(numbers, integer=integer, keep=keep and integer)
        if pa.types.is_decimal(type_) and found.count:
            ends = compute().min_max(array).as_py()
            found = replace(found, minimum=ends["min"], maximum=ends["max"])
            if type_.scale <= 0 and found.few is not None and found.largest >= 2.0**53:
                found = replace(found, integer=True, few=_few_decimals(array))
        return made("boolean" if pa.types.is_boolean(type_) else "number", numbers=found)
    if is_text(type_):
        present = array.drop_null()
        floats = numbers_in_text(present)
        texts = _summarize_texts(present, floats, fold)
        return made("text", numbers=_numbers_of_text(present, floats, keep), texts=texts)
    return made("other")


def _few_decimals(array: Any) -> Mapping[float | int, int] | None:
    """Count whole decimals exactly, unless there are many."""
    found = array.drop_null().value_counts()
    if len(found) > MOST_COUNTED:
        return None
    return {int(one["values"]): one["counts"] for one in found.to_pylist()}


def _numbers_of_text(present: Any, floats: Any, keep: bool) -> NumberSummary:
    """Summarize the texts that are numbers, as whole numbers if all of them are written so."""
    written = present if floats.null_count == 0 else present.filter(floats.is_valid())
    whole = as_integers(written, floats)
    if whole is not None:
        return summarize_numbers(numbers_from(whole), integer=True, keep=keep)
    return summarize_numbers(numbers_from(floats.drop_null()), integer=False)


def as_integers(written: Any, floats: Any) -> Any:
    """Read text as int64, or uint64 if its numbers `floats` need that; None if one is not whole."""
    pa = arrow()
    largest = compute().max(floats).as_py()
    type_ = pa.uint64() if largest is not None and 2.0**63 <= largest <= 2.0**64 else pa.int64()
    try:
        # A failing cast is slow, because Arrow writes an error for each value. A few values are tried first.
        written.slice(0, 16).cast(type_)
        return written.cast(type_)
    except pa.ArrowInvalid:
        return None


@dataclass(frozen=True, eq=False)
class TableSummary:
    """The summaries of the columns of a table."""

    columns: tuple[ColumnSummary, ...]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.columns[0].rows if self.columns else 0

    def column(self, name: str) -> ColumnSummary:
        """Return the summary of the column with this name."""
        return next(column for column in self.columns if column.name == name)

    def merge(self, other: TableSummary) -> TableSummary:
        """Merge the summaries of two parts of a table, the rows of `other` last."""
        if self.names != other.names:
            raise ValueError(f"the parts of a table differ in their columns: {self.names}, {other.names}")
        return TableSummary(tuple(a.merge(b) for a, b in zip(self.columns, other.columns, strict=True)))


def summarize(parts: Any, *, keep: Any = lambda name: False) -> TableSummary:
    """Summarize a table, or its parts in the order of their rows.

    Args:
        parts: An Arrow table, or an iterable of tables or record batches, such as `Batches`.
        keep: Decides by the name of a column whether to keep all of its numbers.
    """
    if hasattr(parts, "schema") and hasattr(parts, "num_rows"):
        parts = [parts]
    # Merging each part into all before it would copy the first texts again with each part. Summaries of
    # about equal size are merged instead, as in a binary counter.
    waiting: list[tuple[int, TableSummary]] = []
    folded: set[str] = set()
    for part in parts:
        columns = []
        for name in part.schema.names:
            with naming_column(name):
                columns.append(
                    summarize_column(name, part.column(name), keep=keep(name), fold=name in folded)
                )
        merged = TableSummary(tuple(columns))
        size = 1
        while waiting and waiting[-1][0] <= size:
            earlier_size, earlier = waiting.pop()
            merged, size = earlier.merge(merged), earlier_size + size
        folded |= {
            one.name for one in merged.columns if one.texts is not None and one.texts.folded is not None
        }
        waiting.append((size, merged))
    if not waiting:
        raise ValueError("there are no rows to summarize")
    _, result = waiting.pop()
    while waiting:
        result = waiting.pop()[1].merge(result)
    return result
