"""The rows that nets are trained on, as a function of the weighted set of rows alone.

Nets see rows one by one: batches, held-out rows, parts and dropout are drawn by their places, and sums of
floats depend on their order. So rows get an order of their own, by a hash of what they hold, and a row that
comes n times is the same as one of weight n, whichever way it was written. Training is then the same, bit for
bit, for every order of the rows and for weights in place of repetitions.

Rows are equal where all columns and the class are: a missing value equals a missing one, and -0 equals 0.
Their weights are summed, and weights that are whole multiples of one number are counts: n times it is n
copies of the row. Where that makes too many rows a copy stands for several. Other weights stay weights, with
one copy of each row, or in a table of counts (see `count_rows`) with the rows as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.labels import below_one
from ..common.tables import is_frame
from .encoding import categories_of, codes_of, numbers_of

__all__ = ["CountedRows", "count_rows", "rows_at"]

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Keys = NDArray[np.uint64]

# Copies cost the time of rows. So many are written out, or twice as many as there are distinct rows; and of a
# table of counts, whose equal rows are as good as any, so many, or as many as there are distinct rows.
_MOST_COPIES, _MOST_DRAWS = 10_000, 100_000
# Counts of which the mean is beyond are none: whole multiples of a tiny number, as all floats are.
_LARGEST_MEAN = 1 << 20
# Binary digits of a float, and of the whole numbers among which a greatest common divisor is found.
_DIGITS, _WHOLE_DIGITS = 53, 62
# Rows of an array that are hashed at a time: its columns then come from the cache.
_BLOCK = 1 << 14
# Odd, with irregular digits; the first is that of splitmix64.
_FACTOR, _LAST_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)


@dataclass(frozen=True, eq=False)
class CountedRows:
    """Copies of distinct rows, in the order that the rows themselves give.

    Attributes:
        places: The row of the table that each copy is of.
        weights: Of the copies, below 1; None where they are equal.
        groups: For each copy the number of its row, by which copies stay on one side of a split; None where
            rows are split one by one (see `count_rows`).
    """

    places: NDArray[np.intp]
    weights: Floats | None
    groups: Whole | None


def count_rows(table: Any, codes: Whole, weights: Floats | None, categorical: Sequence[int]) -> CountedRows:
    """The rows of a table with class numbers and weights above 0, as copies of its distinct rows.

    Copies are a row and not evidence of their own, so that splits keep them together: what judges a net
    would else have trained it, such as where positives have a weight of 100, or where records were entered
    twice. Nor do they tell more than the row does, so that of counts only the proportions matter.

    In a table of counts, however, with a few columns of categories, equal rows are independent draws. They
    are split like any rows, and their number is what it is. Such a table is known by rows that are the same
    in different classes, as neither weights nor records that were entered twice make any: of the class with
    the fewest distinct rows at least half are rows of another class, too, and those of the class with the
    most come twice and more on average, as records that were entered again with another label do not.

    >>> X = np.array([[2.0], [1.0], [2.0], [3.0]])
    >>> counted = count_rows(X, np.array([0, 0, 0, 1]), np.array([1.0, 4.0, 3.0, 2.0]), [])
    >>> sorted(X[counted.places, 0].tolist()), counted.weights is None
    ([1.0, 1.0, 2.0, 2.0, 3.0], True)
    >>> order = [3, 1, 0, 2]
    >>> again = count_rows(X[order], np.array([1, 0, 0, 0]), np.array([2.0, 4.0, 1.0, 3.0]), [])
    >>> np.array_equal(X[order][again.places], X[counted.places])
    True
    """
    if weights is not None and weights.max() >= 2.0**_DIGITS:
        weights = below_one(weights)  # whose sums may be infinite
    contents = _contents(table, categorical)
    order, is_equal = _in_order(table, codes, weights, categorical, contents)
    if weights is None and not is_equal.any():
        return CountedRows(order, None, None)
    starts = np.flatnonzero(np.append(True, ~is_equal))
    distinct = order[starts]
    repeated = np.diff(np.append(starts, len(order)))
    # Before they are summed: ten times 0.1 is no whole multiple of it.
    found = _counts(np.ones(len(order)) if weights is None else weights)
    if found is None:
        assert weights is not None
        if _are_draws(contents[distinct], codes[distinct], repeated):
            return CountedRows(order, below_one(weights[order]), None)
        return CountedRows(distinct, below_one(np.add.reduceat(weights[order], starts)), None)
    whole = np.add.reduceat(found.counts[order], starts)
    counts = whole // np.gcd.reduce(whole)
    are_draws = _are_draws(contents[distinct], codes[distinct], counts)
    # Draws are as many as whole weights say, whatever divides them all; fractions of a draw are none.
    unit = found.unit if found.unit == np.rint(found.unit) else 1.0
    if are_draws and whole.mean() * unit <= _LARGEST_MEAN:
        counts = whole * int(unit)
    most = max(len(counts), _MOST_DRAWS) if are_draws else max(2 * len(counts), _MOST_COPIES)
    copies, each = _copies(counts, most)
    groups = None if are_draws or copies.max() == 1 else np.repeat(np.arange(len(distinct)), copies)
    of_copies = None if (each == each[0]).all() else below_one(np.repeat(each, copies))
    return CountedRows(np.repeat(distinct, copies), of_copies, groups)


def rows_at(table: Any, places: Any) -> Any:
    """Some rows of an array or a DataFrame."""
    return table.iloc[places] if is_frame(table) else table[places]


def _contents(table: Any, categorical: Sequence[int]) -> Keys:
    """A hash of each row: equal for equal rows, and hardly ever for others."""
    if is_frame(table):
        return _hashes(table, categorical)
    blocks = range(0, table.shape[0], _BLOCK)
    return np.concatenate([_hashes(table[i : i + _BLOCK], categorical) for i in blocks])


def _hashes(table: Any, categorical: Sequence[int]) -> Keys:
    found = np.zeros(table.shape[0], dtype=np.uint64)
    for i in range(table.shape[1]):
        _stir(found, _keys(table, i, i in categorical))
    return found


def _stir(hashes: Keys, keys: Keys) -> None:
    """Make the hashes depend on one key more, as splitmix64 does: products go up, shifts down the digits."""
    hashes ^= keys
    hashes *= _FACTOR
    hashes ^= hashes >> _HALF
    hashes *= _LAST_FACTOR
    hashes ^= hashes >> _HALF


def _keys(table: Any, i: int, is_categorical: bool) -> Keys:
    """A whole number for each value of a column, the same for the same value alone."""
    if is_categorical and is_frame(table):
        return codes_of(table, i, categories_of(table, i))[0].view(np.uint64)
    numbers = numbers_of(table, i) + 0.0  # -0 becomes 0
    numbers[np.isnan(numbers)] = np.nan  # of which there are many
    return numbers.view(np.uint64)


def _in_order(
    table: Any, codes: Whole, weights: Floats | None, categorical: Sequence[int], contents: Keys
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Places by hash, and whether the row at each place but the first equals the one before."""
    hashes = contents.copy()
    _stir(hashes, codes.astype(np.uint64))
    order = np.argsort(hashes)
    is_tied = hashes[order[1:]] == hashes[order[:-1]]
    if not is_tied.any():
        return order, is_tied
    # Floats are to be summed in one order, too.
    last = [] if weights is None else [weights]
    if weights is not None:
        order = np.lexsort([*last, hashes])
    # Only rows that may be equal are compared.
    some = np.flatnonzero(np.append(False, is_tied) | np.append(is_tied, False))
    near = order[some]
    is_equal = is_tied.copy()
    is_equal[some[1:] - 1] &= _same_as_before(rows_at(table, near), codes[near], categorical)
    if np.array_equal(is_equal, is_tied):
        return order, is_equal
    # Different rows with one hash, once in 37 million tables of a million rows: sorted by all that they hold.
    keys = [_keys(table, i, i in categorical) for i in range(table.shape[1])]
    order = np.lexsort([*last, *keys, codes, hashes])
    return order, _same_as_before(rows_at(table, order), codes[order], categorical)


def _same_as_before(table: Any, codes: Whole, categorical: Sequence[int]) -> NDArray[np.bool_]:
    """Whether each row but the first holds what the one before it does."""
    found: NDArray[np.bool_] = codes[1:] == codes[:-1]
    for i in range(table.shape[1]):
        keys = _keys(table, i, i in categorical)
        found &= keys[1:] == keys[:-1]
    return found


@dataclass(frozen=True, eq=False)
class _Counts:
    """Weights as whole multiples of a unit."""

    counts: Whole
    unit: float


def _counts(weights: Floats) -> _Counts | None:
    """Weights as the whole multiples of the largest number of which all are, or None for any others.

    >>> _counts(np.array([0.5, 2.0, 3.5])).counts, _counts(np.array([0.1, 0.2, 0.4])).counts
    (array([1, 4, 7]), array([1, 2, 4]))
    >>> _counts(np.array([4.0, 6.0])).unit, _counts(np.array([0.3, 1.0]))
    (2.0, None)
    """
    mantissas, exponents = np.frexp(weights)
    digits = np.ldexp(mantissas, _DIGITS).astype(np.int64)
    # The lowest of the binary digits of each weight that is one.
    lowest = exponents - _DIGITS + np.frexp((digits & -digits).astype(np.float64))[1] - 1
    if exponents.max() - lowest.min() > _WHOLE_DIGITS:
        return None
    whole = np.ldexp(weights, -lowest.min()).astype(np.int64)
    divisor = np.gcd.reduce(whole)
    counts = whole // divisor
    if counts.mean() > _LARGEST_MEAN:
        return None
    return _Counts(counts, float(np.ldexp(float(divisor), lowest.min())))


def _copies(counts: Whole, most: int) -> tuple[Whole, Floats]:
    """How many copies each row has, at least one, and how many times the row a copy of it stands for.

    They are about `most` where there would be more.

    >>> copies, each = _copies(np.array([1, 3_000, 1_000]), 1_000)
    >>> copies.tolist(), each.tolist()
    ([1, 750, 250], [1.0, 4.0, 4.0])
    """
    unit = max(1.0, float(counts.sum()) / most)
    copies = np.maximum(1, np.rint(counts / unit)).astype(np.int64)
    return copies, counts / copies


def _are_draws(contents: Keys, codes: Whole, counts: Whole) -> bool:
    """Whether distinct rows are so few that classes share them; `contents` are hashes without the class."""
    sizes = np.bincount(codes)
    rarest, commonest = codes == np.argmin(sizes), codes == np.argmax(sizes)
    is_shared = np.isin(contents[rarest], contents[~rarest])
    return bool(is_shared.mean() >= 0.5 and counts[commonest].mean() >= 2)
