"""Read formatted numbers: 1,234.56, 1.234,56, $12.50, 12.50 EUR, 12.5%, (12.50).

The format of a column is decided once, from all of its values. Not numbers are:
- digits with a leading zero, which are codes;
- several points that are not three digits apart, as in versions;
- texts with a dash or a slash inside, such as dates and telephone numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, mask_of, whole
from raresight.tables.text_values import numbers_in_text

_SIGNS = ("$", "€", "£", "¥")
_CODES = (
    "USD|EUR|GBP|JPY|CHF|CAD|AUD|NZD|CNY|INR|BRL|MXN|SEK|NOK|DKK|PLN|CZK|HUF|RON|BGN|TRY|ZAR|KRW|SGD|HKD|THB|"
    "IDR|MYR|PHP|ILS|AED|SAR|EGP|NGN|KES|ARS|CLP|COP|PEN|UAH|RUB|VND|TWD"
)
_CURRENCY = "|".join([*(re.escape(sign) for sign in _SIGNS), _CODES])
# Spreadsheets put blanks between number and sign that must not break the line.
_BLANKS = r"[\s\x{a0}\x{202f}]*"
_FORMATTED = (
    rf"^[+-]?\(?{_BLANKS}(?:{_CURRENCY})?{_BLANKS}[+-]?\(?[\d.,]*\d[\d.,]*"
    rf"{_BLANKS}(?:%|{_CURRENCY})?{_BLANKS}\)?$"
)
_ZERO = r"^[+-]?0?(?:[.,]?0*)$"
# Share of numbers above which a text column gets a note that it looks numeric.
_MOSTLY = 0.9


@dataclass(frozen=True)
class NumberFormat:
    """The format of the numbers in a column of text.

    Attributes:
        comma: Whether the decimal mark is the comma, not the point.
        thousands: Whether the other of the two may separate thousands.
        currency: The sign or code that may stand before or after the number.
        percent: Whether each number but zero has a percent sign; "12.5%" is 12.5.
        parentheses: Whether "(5)" is -5.
    """

    comma: bool = False
    thousands: bool = False
    currency: str = ""
    percent: bool = False
    parentheses: bool = False

    @property
    def marks(self) -> tuple[str, str]:
        """The decimal mark and the other one."""
        return (",", ".") if self.comma else (".", ",")

    @property
    def has_affixes(self) -> bool:
        """Whether numbers have a currency, a percent sign or parentheses."""
        return bool(self.currency or self.percent or self.parentheses)

    def describe(self) -> str:
        """Describe the format for the reader; empty if numbers are written plainly."""
        removed = [
            "thousands separators removed" if self.thousands else "",
            f"currency {self.currency} removed" if self.currency else "",
            "percent signs removed" if self.percent else "",
            "parentheses taken as minus" if self.parentheses else "",
        ]
        said = ", ".join(filter(None, removed))
        commas = "text with decimal commas" if self.comma else ""
        return "; ".join(filter(None, [commas, f"read as numbers: {said}" if said else ""]))


PLAIN = NumberFormat()


@dataclass(frozen=True)
class FormatGuess:
    """The number format of a column (None if there is none) and a note for the reader."""

    format: NumberFormat | None
    note: str = ""


def plain_text(values: Any, format: NumberFormat) -> Any:
    """Rewrite numbers plainly, as Arrow text; missing where a text is no number of this format.

    Example:
        >>> import pyarrow as pa
        >>> money = NumberFormat(thousands=True, currency="$", parentheses=True)
        >>> plain_text(pa.array(["$1,234.50", "($2)", "3,4"]), money).to_pylist()
        ['1234.50', '-2', None]
    """
    pc = compute()
    text = _strip_affixes(values, format)
    decimal, other = format.marks
    if format.thousands:
        d, o = re.escape(decimal), re.escape(other)
        number = rf"^-?(?:(?:0|[1-9]\d{{0,2}}(?:{o}\d{{3}})+|[1-9]\d*)(?:{d}\d*)?|{d}\d+)$"
        text = pc.replace_substring(_only(pc.match_substring_regex(text, number), text), other, "")
    elif format.has_affixes:
        d = re.escape(decimal)
        text = _only(pc.match_substring_regex(text, rf"^-?(?:(?:0|[1-9]\d*)(?:{d}\d*)?|{d}\d+)$"), text)
    if format.comma:
        text = _only(pc.invert(pc.match_substring(text, ".")), text)
        text = pc.replace_substring(text, ",", ".")
    return text


def numbers_written(values: Any, format: NumberFormat = PLAIN) -> Any:
    """Read text as float64; what is no number of this format becomes missing.

    Example:
        >>> import pyarrow as pa
        >>> numbers_written(pa.array(["1.234,5", "7", "1,2,3"]), NumberFormat(True, True)).to_pylist()
        [1234.5, 7.0, None]
    """
    return numbers_in_text(values if format == PLAIN else plain_text(values, format))


def find_format(values: Any, counts: NDArray[np.int64] | None = None) -> FormatGuess:
    """Find the format of the numbers in a column.

    Args:
        values: Texts without white space around them, without missing ones.
        counts: How often each text occurs. Default: once.

    Returns:
        The simplest format that fits. None if there are no numbers, or if they are ambiguous; the note then
        says why.

    Example:
        >>> import pyarrow as pa
        >>> find_format(pa.array(["1,234.50", "12"])).format
        NumberFormat(comma=False, thousands=True, currency='', percent=False, parentheses=False)
        >>> find_format(pa.array(["$5", "€7"])).note
        'amounts in several currencies ($ and €): make them one'
    """
    pc = compute()
    counts = np.ones(len(values), np.int64) if counts is None else counts
    formatted = may_be_formatted_number(values)
    numbers, weights = values.filter(formatted), counts[mask_of(formatted)]
    if len(numbers) == 0:
        return FormatGuess(None)
    mostly = weights.sum() >= _MOSTLY * counts.sum()
    tokens = pc.extract_regex(numbers, f"(?P<token>{_CURRENCY})").drop_null().field("token").unique()
    currencies = sorted(tokens.to_pylist())
    if len(currencies) > 1:
        said = f"amounts in several currencies ({' and '.join(currencies[:3])}): make them one"
        return FormatGuess(None, said if mostly else "")
    signed = pc.match_substring(numbers, "%")
    percent = bool(pc.any(signed).as_py())
    if percent and pc.any(pc.invert(pc.or_(signed, pc.match_substring_regex(numbers, _ZERO)))).as_py():
        said = "some numbers have a percent sign and some have none: write all in one way"
        return FormatGuess(None, said if mostly else "")
    affixes = NumberFormat(
        currency=currencies[0] if currencies else "",
        percent=percent,
        parentheses=bool(pc.any(pc.match_substring(numbers, "(")).as_py()),
    )
    return _by_marks(numbers, weights, affixes, mostly)


def _by_marks(numbers: Any, weights: NDArray[np.int64], affixes: NumberFormat, mostly: bool) -> FormatGuess:
    """Decide whether point or comma is the decimal mark, and whether the other one separates thousands."""
    pc = compute()
    point, comma, point_grouped, comma_grouped = formats = [
        replace(affixes, comma=comma, thousands=thousands)
        for thousands in (False, True)
        for comma in (False, True)
    ]
    fits = {format: numbers_written(numbers, format).is_valid() for format in formats}
    counts = {format: int(weights[mask_of(fit)].sum()) for format, fit in fits.items()}
    most = max(counts.values())
    if most == 0:
        return FormatGuess(None)
    format = next(format for format in formats if counts[format] == most)
    note = ""
    # "1,234" may be slightly more than one, or more than a thousand. An amount of money has no three
    # decimals, so the mark separates thousands. Without a currency a point is decimal, as programs write it.
    grouped = {comma: point_grouped, point: comma_grouped if affixes.currency else None}.get(format)
    separator = format.marks[0]
    if (
        grouped is not None
        and counts[grouped] == most
        and pc.any(pc.match_substring(numbers, separator)).as_py()
    ):
        if pc.any(pc.match_substring_regex(_strip_affixes(numbers, affixes), r"^-?\d{4}")).as_py():
            said = f"numbers such as {_example(numbers, separator)} may have a decimal mark or thousands"
            return FormatGuess(None, f"{said}: write them without separators" if mostly else "")
        format = grouped
        name = "comma" if separator == "," else "point"
        note = f"each {name} is taken as one of thousands; it may be a decimal {name}"
    elsewhere = fits[point]
    for other in formats[1:]:
        elsewhere = pc.or_(elsewhere, fits[other])
    clash = pc.and_not(elsewhere, fits[format])
    if pc.any(clash).as_py():
        one = numbers.filter(fits[format])[0].as_py()
        other_one = numbers.filter(clash)[0].as_py()
        said = f"numbers written in several ways, such as {one!r} and {other_one!r}: write all in one way"
        return FormatGuess(None, said if mostly else "")
    return FormatGuess(format, note)


def may_be_formatted_number(values: Any) -> Any:
    """Tell for each text whether it may be a number in one of the known formats."""
    return compute().match_substring_regex(values, _FORMATTED)


def in_other_marks(values: Any, format: NumberFormat) -> tuple[Any, bool]:
    """Read numbers with point and comma exchanged; also tell whether a value has no other meaning.

    Example:
        >>> import pyarrow as pa
        >>> numbers, sure = in_other_marks(pa.array(["1,5", "1,234"]), PLAIN)
        >>> numbers.to_pylist(), sure
        ([1.5, 1.234], True)
        >>> in_other_marks(pa.array(["1,234"]), PLAIN)[1]
        False
    """
    pc = compute()
    other = replace(format, comma=not format.comma)
    numbers = numbers_written(values, other)
    text = _strip_affixes(values, other)
    decimal, former = (re.escape(mark) for mark in other.marks)
    has_mark = pc.match_substring_regex(text, decimal)
    unsure = pc.match_substring_regex(text, rf"^-?[1-9]\d{{0,2}}{decimal}\d{{3}}$")
    twice = pc.match_substring_regex(text, rf"{former}\d+{former}")
    sure = pc.and_(numbers.is_valid(), pc.or_(pc.and_not(has_mark, unsure), twice))
    return numbers, bool(pc.any(sure).as_py())


def _strip_affixes(values: Any, format: NumberFormat) -> Any:
    """Strip currency, percent sign and parentheses; only a minus is left beside the digits."""
    pc = compute()
    text = pc.utf8_trim_whitespace(whole(values))
    if format.percent:
        keep = pc.or_(pc.match_substring(text, "%"), pc.match_substring_regex(text, _ZERO))
        text = pc.replace_substring_regex(_only(keep, text), rf"{_BLANKS}%({_BLANKS}\)?)$", r"\1")
    if format.currency:
        token = re.escape(format.currency)
        text = pc.replace_substring_regex(text, rf"^([+-]?\(?){_BLANKS}{token}{_BLANKS}", r"\1")
        text = pc.replace_substring_regex(text, rf"{_BLANKS}{token}({_BLANKS}\)?)$", r"\1")
    if format.parentheses:
        text = pc.replace_substring_regex(text, rf"^\({_BLANKS}([\d.,]+){_BLANKS}\)$", r"-\1")
    return pc.replace_substring_regex(text, r"^\+([\d.,])", r"\1")


def _example(numbers: Any, mark: str) -> str:
    return repr(numbers.filter(compute().match_substring(numbers, mark))[0].as_py())


def _only(keep: Any, values: Any) -> Any:
    return compute().if_else(keep, values, arrow().scalar(None, values.type))
