"""The decided meaning of one column: a feature of the model, or dropped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from raresight.tables.number_formats import NumberFormat

Kind = Literal["numeric", "categorical", "date"]


@dataclass(frozen=True)
class Column:
    """A column that the model sees.

    Attributes:
        name: The name in the table.
        kind: How the values are coded in the matrix.
        categories: The categories of a categorical column; their positions are the codes.
        missing_marks: Texts that stand for a missing value, such as "?".
        note: A note for the reader, or empty.
        parts: The features of a date: some of "day", "hour", "weekday".
        boolean: Whether a numeric column holds truth values, so that the text "true" means 1.
        comma: Whether a numeric column was text with decimal commas, so that the text "1,5" means 1.5.
        thousands, currency, percent, parentheses: The rest of its `NumberFormat`.
        date_format: The format of dates in text, such as "DD.MM.YYYY"; empty for ISO.
        rare: The keys of the categories that were too many to be kept, see `raresight.tables.value_keys`.
        many_numbers: Whether texts that are numbers were too many to be counted one by one.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    missing_marks: tuple[str, ...] = ()
    note: str = ""
    parts: tuple[str, ...] = ()
    boolean: bool = False
    comma: bool = False
    thousands: bool = False
    currency: str = ""
    percent: bool = False
    parentheses: bool = False
    date_format: str = ""
    rare: bytes = field(default=b"", repr=False)
    many_numbers: bool = False

    @property
    def number_format(self) -> NumberFormat:
        """The format of its numbers in text."""
        return NumberFormat(self.comma, self.thousands, self.currency, self.percent, self.parentheses)

    @property
    def format(self) -> str:
        """How its values are written, where that had to be decided; else empty."""
        if self.kind == "date":
            return self.date_format
        return "true and false" if self.boolean else self.number_format.describe()

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its columns in the matrix."""
        return tuple(f"{self.name}: {part}" for part in self.parts) if self.kind == "date" else (self.name,)


@dataclass(frozen=True)
class Dropped:
    """A column that the model does not see, and why."""

    name: str
    reason: str
