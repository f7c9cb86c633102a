"""Write numbers, names and tables of the page as HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from html import escape
from typing import Any

from ...model.families import FAMILIES

__all__ = [
    "count",
    "counted",
    "decimal",
    "empty",
    "family_name",
    "heads",
    "key",
    "left_out",
    "loss",
    "name",
    "number",
    "parameters",
    "percent",
    "points",
    "seconds",
    "sentence",
    "short_percent",
    "significant",
    "sortable_heads",
    "span",
    "table",
    "threshold",
]

SPACE = "\u00a0"
MINUS = "\u2212"
LONGEST_NAME = 120


def name(text: Any, longest: int = LONGEST_NAME) -> str:
    """Escape any text for HTML, and truncate a very long one.

    >>> name("<b>")
    '&lt;b&gt;'
    """
    shown = str(text)
    if len(shown) > longest:
        shown = shown[: longest - 1] + "\u2026"
    return escape(shown)


def sentence(text: str) -> str:
    """Escape a sentence of the outcome for HTML, with the page's space before a percent sign.

    >>> sentence("It catches 12% of <b>.").replace(SPACE, " ")
    'It catches 12 % of &lt;b&gt;.'
    """
    return escape(re.sub(r"(?<=\d)%", f"{SPACE}%", text))


def loss(text: str) -> str:
    """Escape a loss for HTML, with possible line breaks after commas.

    >>> loss("tbl(alpha=0.8,C=0.5)")
    'tbl(alpha=0.8,<wbr>C=0.5)'
    """
    return name(text).replace(",", ",<wbr>")


def family_name(family: str) -> str:
    """Return the title of a family: `Linear`, `LightGBM`, `Deep net`.

    >>> family_name("deep")
    'Deep net'
    """
    if family not in FAMILIES:
        return name(family)
    title = FAMILIES[family].title
    return name(title[:1].upper() + title[1:])


def significant(value: float, digits: int) -> str:
    """Format a number with so many significant digits, without an exponent.

    >>> significant(0.00123456, 3), significant(45.678, 3), significant(1234.5, 3)
    ('0.00123', '45.7', '1234')
    """
    if value == 0:
        return "0"
    # 1e-12, so that rounding of log10 cannot move a power of ten such as 0.001 to the power below.
    places = digits - 1 - math.floor(math.log10(abs(value)) + 1e-12)
    return f"{value:.{min(12, max(0, places))}f}"


def percent(share: float | None, digits: int = 3) -> str:
    """Format a share in percent.

    >>> percent(0.7834).replace(SPACE, " "), percent(None)
    ('78.3 %', 'none')
    """
    if share is None or not math.isfinite(share):
        return "none"
    return f"{significant(share * 100, digits)}{SPACE}%"


def short_percent(share: float) -> str:
    """Format a round share in percent, without trailing zeros.

    >>> short_percent(0.001).replace(SPACE, " ")
    '0.1 %'
    """
    text = f"{float(f'{share * 100:.6g}'):.10f}".rstrip("0").rstrip(".")
    return f"{text}{SPACE}%"


def count(value: float | None) -> str:
    """Format a count, with separators of thousands.

    >>> count(1234567), count(12.345)
    ('1,234,567', '12.3')
    """
    if value is None or not math.isfinite(value):
        return "none"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else significant(value, 3)


def counted(value: float, noun: str) -> str:
    """Format a count with its noun, in the plural unless it is one.

    >>> counted(1, "positive"), counted(1200, "positive")
    ('1 positive', '1,200 positives')
    """
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def decimal(value: float | None, places: int = 4) -> str:
    if value is None or math.isnan(value):
        return "none"
    return f"{value:.{places}f}".replace("-", MINUS)


def number(value: Any) -> str:
    """Format a parameter's value, with four digits.

    >>> number(0.05), number(127)
    ('0.05', '127')
    """
    return f"{value:.4g}" if isinstance(value, float) else name(value)


def points(value: float) -> str:
    """Format hundredths with their sign.

    >>> points(0.0123)
    '+1.23'
    """
    text = f"{value * 100:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", MINUS)


def seconds(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def span(interval: Any, write: Any = percent) -> str:
    """Format an interval with its level."""
    return f"{percent(interval.level, 2)} interval {write(interval.low)} to {write(interval.high)}"


def key(value: Any) -> str:
    """Return the text by which a column is sorted; empty for None.

    >>> key(0.25), key(None)
    ('0.25', '')
    """
    return "" if value is None else repr(float(value))


def threshold(value: float) -> str:
    if value == math.inf:
        return "above every score"
    if value == -math.inf:
        return "below every score"
    return decimal(value)


def parameters(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name(key)} {number(value)}" for key, value in values.items())


# How many rows a table shows before its button is pressed; page.css hides the others.
FIRST_ROWS = {"leaders": 12, "influential-table": 12, "column-table": 15}


def heads(*columns: tuple[str, str]) -> str:
    """Return column headings; the class "n" is for numbers."""
    return "".join(f'<th scope="col" class="{kind}">{label}</th>' for label, kind in columns)


def sortable_heads(*columns: tuple[str, str]) -> str:
    return heads(*((f'<button type="button">{label}</button>', kind) for label, kind in columns))


def table(identity: str, label: str, head: str, body: str, rows: int, kind: str = "") -> str:
    """Return a table in a box that scrolls sideways; a long table has a button that shows all rows."""
    more = ""
    if rows > FIRST_ROWS.get(identity, rows):
        more = (
            f'<button type="button" class="more" data-more="{identity}" aria-expanded="false" hidden>'
            f"Show all {rows}</button>"
        )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table id="{identity}" class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}"
    )


def left_out(rows: int, what: str) -> str:
    """Return a note on how many rows are not shown; `what` is their noun in the singular."""
    if rows <= 0:
        return ""
    verb = "is" if rows == 1 else "are"
    return f'<p class="note">{counted(rows, f"further {what}")} {verb} not shown here.</p>'


def empty(why: str) -> str:
    return f'<p class="empty">{escape(why)}</p>'
