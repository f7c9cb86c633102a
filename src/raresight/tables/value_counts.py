"""How often the values of identifiers occur in the training rows, as features.

A merchant, a card or an address has too many values for categories, but rare and common ones differ. The
feature is log(1 + n), where n is how many training rows have the value. A training row is left out of its own
n. So training rows, validation rows and fresh rows are alike: 0 means that no other training row has the
value. With the row itself counted, no training row would have 0, and fresh rows with a new value would.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.tables.summaries import ColumnSummary, TableSummary
from raresight.tables.value_keys import MISSING, Keys, number_keys, places_in, rounded

MOST_COUNTED = 15
# Columns with fewer values are categories, or numbers that trees split value by value.
FEWEST_VALUES = 20
# Mean number of rows per value, at least.
FEWEST_ROWS = 2
# Most arbitrary floats are known by their first ones.
_FIRST = 1000


@dataclass(frozen=True, eq=False)
class ValueCounts:
    """The counts of a column's values in the training rows.

    Attributes:
        column: The column of the table.
        feature: The name of its feature.
        text: Whether values are counted as text, else as numbers.
        keys: The keys of the values, sorted. Those that occur once are needed, too: a fresh row of such a
            value is like a training row of one that occurs twice.
        counts: How often each occurs.
    """

    column: str
    feature: str
    text: bool
    keys: Keys
    counts: NDArray[np.uint32]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ValueCounts)
            and self._names == other._names
            and np.array_equal(self.keys, other.keys)
            and np.array_equal(self.counts, other.counts)
        )

    def __hash__(self) -> int:
        return hash((self._names, len(self.keys)))

    @property
    def _names(self) -> tuple[str, str, bool]:
        return self.column, self.feature, self.text

    def of(self, keys: Keys, *, in_training: bool = False) -> NDArray[np.float64]:
        """Return log(1 + count) of values given by their keys, NaN where missing.

        Args:
            keys: The keys of `text_keys` or `number_keys`.
            in_training: Whether the rows are the training rows, each of which is left out of its own count.

        Example:
            >>> keys = number_keys(np.array([3.0, 4.0, 3.0, 3.0]))
            >>> counts = ValueCounts("card", "count of card", False, keys[:1], np.array([3], np.uint32))
            >>> np.expm1(counts.of(keys)).round(), np.expm1(counts.of(keys, in_training=True)).round()
            (array([3., 0., 3., 3.]), array([2., 0., 2., 2.]))
        """
        places, is_known = places_in(self.keys, keys)
        values = np.zeros(len(keys))
        values[is_known] = np.log1p(self.counts[places[is_known]].astype(np.float64) - in_training)
        values[keys == MISSING] = np.nan
        return values


def count_of_texts(summary: ColumnSummary) -> float:
    """Return how many different texts are to be counted, infinite if unknown; 0 if they are not worth it."""
    if summary.texts is None:
        return 0
    if summary.texts.folded is not None:
        return np.inf
    different = len(summary.texts.values)
    return different if _is_worth(different, summary.rows - summary.missing) else 0


def _is_worth(different: int, present: int) -> bool:
    return different > FEWEST_VALUES and present >= FEWEST_ROWS * different


def learn_counts(
    summary: TableSummary,
    numeric: Mapping[str, NDArray[Any]],
    texts: Mapping[str, Keys],
    names: Collection[str],
) -> tuple[ValueCounts, ...]:
    """Count the values of the training rows, column by column.

    Counted are texts, and numbers of at most two decimals: arbitrary floats that repeat are measurements.
    The values of a column are more than 20 and occur twice on average. At most 15 columns are counted, those
    with the most values.

    Args:
        summary: The summary of the table.
        numeric: The coded training rows of each numeric column.
        texts: The keys of the training rows of each column of text.
        names: The names of other features, which those of counts must differ from.
    """
    found: list[tuple[str, bool, Keys, NDArray[np.uint32]]] = []
    for name in [*numeric, *texts]:
        if name in texts:
            keys = texts[name]
        else:
            few = summary.column(name).numbers.few
            if (few is not None and len(few) <= FEWEST_VALUES) or not _has_few_decimals(numeric[name]):
                continue
            keys = number_keys(numeric[name])
        values, counts = np.unique(keys[keys != MISSING], return_counts=True)
        if _is_worth(len(values), int(counts.sum())):
            found.append((name, name in texts, values, counts.astype(np.uint32)))
    found.sort(key=lambda one: -len(one[2]))
    made = []
    taken = set(names)
    for name, text, own, number in found[:MOST_COUNTED]:
        feature = f"count of {name}"
        while feature in taken:
            feature += "'"
        taken.add(feature)
        made.append(ValueCounts(name, feature, text, own, number))
    return tuple(made)


def _has_few_decimals(numbers: NDArray[Any]) -> bool:
    """Tell whether each number is that of two decimals nearest to it."""
    return all(_are_rounded(some) for some in (numbers[:_FIRST], numbers))


def _are_rounded(numbers: NDArray[Any]) -> bool:
    return bool(((rounded(numbers).astype(numbers.dtype) == numbers) | np.isnan(numbers)).all())
