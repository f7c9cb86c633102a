"""The scores of one class in bounded memory: the highest exactly, the rest thinned out with a certain bound.

Of a class's rows the highest scores decide everything at a small false-positive rate, so they are all kept.
The highest scores of a union are the highest among the highest of its parts; what is kept therefore does
not depend on the order of batches or of merges. What is pushed out goes to a `Compactor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


class GrowingArray:
    """An array that grows at its end, and widens to float64 when something of float64 is added."""

    def __init__(self) -> None:
        self._room: Floats = np.empty(0, dtype=np.float32)
        self._filled = 0

    def __len__(self) -> int:
        return self._filled

    @property
    def values(self) -> Floats:
        """What is in the array, as a view: it may be reordered, and is void after the next change."""
        return self._room[: self._filled]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._room.dtype

    def widen(self, dtype: np.dtype[Any]) -> None:
        """Hold everything in a type that also holds `dtype`."""
        wide = np.promote_types(self.dtype, dtype)
        if wide != self.dtype:
            self._room = self.values.astype(wide)

    def append(self, values: Floats) -> None:
        self.widen(values.dtype)
        needed = self._filled + len(values)
        if needed > len(self._room):
            # Doubling: a million batches of one row cost as much as one batch of a million.
            room = np.empty(max(needed, 2 * len(self._room)), dtype=self.dtype)
            room[: self._filled] = self.values
            self._room = room
        self._room[self._filled : needed] = values
        self._filled = needed

    def keep_from(self, start: int) -> None:
        """Drop what is before `start`."""
        kept = self._room[start : self._filled].copy()
        self._room[: len(kept)] = kept
        self._filled = len(kept)


class Compactor:
    r"""Scores at levels; one at level h stands for 2^h rows.

    A level that holds `resolution` scores is sorted, paired with its neighbours, and one of each pair goes
    to the level above with twice the weight. Taking the higher ones can only raise the number of rows
    counted above a score, taking the lower ones only lower it, each by at most 2^h (the one pair that the
    score splits). The two directions are chosen so that their sums stay in balance; the larger sum bounds
    the error of every count with certainty:

    .. math:: E \le \tfrac12 \sum_h \frac{n}{r 2^h} 2^h \approx \frac{n}{2r} \log_2 \frac{n}{r}

    for n rows and a resolution of r. There is no randomness.
    """

    def __init__(self, resolution: int) -> None:
        self.resolution = resolution
        self.levels: list[GrowingArray] = []
        self.raised = 0  # most by which a count of rows above a score may be too high
        self.lowered = 0  # and too low

    @property
    def rank_error(self) -> int:
        """Most by which the count of rows above (or at or above) any score may be wrong."""
        return max(self.raised, self.lowered)

    @property
    def weight(self) -> int:
        """How many rows the scores stand for: exactly as many as were added."""
        return sum(len(level) << height for height, level in enumerate(self.levels))

    def add(self, scores: Floats) -> None:
        if len(scores):
            self._level(0).append(scores)
            self._thin()

    def add_repeated(self, score: np.floating[Any], count: int) -> None:
        """Add one score `count` times: a score at each level that is a digit of the count, without error."""
        for height in range(count.bit_length()):
            if count >> height & 1:
                self._level(height).append(np.array([score]))
        self._thin()

    def merge(self, other: Compactor) -> None:
        for height, level in enumerate(other.levels):
            self._level(height).append(level.values)
        self.raised += other.raised
        self.lowered += other.lowered
        self._thin()

    def scores(self) -> Floats:
        return np.concatenate([np.empty(0, dtype=np.float32), *(level.values for level in self.levels)])

    def weights(self) -> NDArray[np.float64]:
        """Rows that each of the scores stands for: powers of two, so that their sums are exact."""
        sizes = [len(level) for level in self.levels]
        return np.repeat(2.0 ** np.arange(len(sizes)), sizes)

    def _level(self, height: int) -> GrowingArray:
        while len(self.levels) <= height:
            self.levels.append(GrowingArray())
        return self.levels[height]

    def _thin(self) -> None:
        height = 0
        while height < len(self.levels):
            if len(self.levels[height]) >= self.resolution:
                self._halve(height)
            height += 1

    def _halve(self, height: int) -> None:
        level = self.levels[height]
        level.values.sort()
        even = len(level) // 2 * 2  # an odd one out, the highest, stays
        higher = self.raised <= self.lowered
        passed = level.values[1 if higher else 0 : even : 2].copy()
        level.keep_from(even)
        self._level(height + 1).append(passed)
        if higher:
            self.raised += 1 << height
        else:
            self.lowered += 1 << height


class ClassScores:
    """The `capacity` + 1 highest scores, the number of further rows equal to the lowest of them, the rest.

    So every row at or above the lowest kept score is known exactly, ties at the cut included. The one
    score beyond `capacity` is what makes the rate `capacity` / rows itself known: it shows where the
    next step of the curve begins.
    """

    def __init__(self, capacity: int, resolution: int) -> None:
        self.capacity = capacity
        self.count = 0
        self._kept = GrowingArray()
        self._lowest: np.floating[Any] | None = None  # lowest kept, once the array has been cut
        self._tied = 0  # rows equal to the lowest kept score that are not in the array
        self._rest = Compactor(resolution)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._kept.dtype

    @property
    def rank_error(self) -> int:
        self._cut()
        return self._rest.rank_error

    @property
    def complete(self) -> bool:
        """Whether every row is still there."""
        return self.count <= self.capacity + 1

    def add(self, scores: Floats) -> None:
        """Add scores; the array is not kept."""
        self._kept.widen(scores.dtype)
        scores = scores.astype(self.dtype, copy=False)
        self.count += len(scores)
        if self._lowest is not None:
            # Enough scores at or above the lowest are there already, so these can never be among the highest.
            lower = scores[scores < self._lowest]
            higher = scores[scores > self._lowest]
            self._tied += len(scores) - len(lower) - len(higher)
            self._rest.add(lower)
            scores = higher
        self._kept.append(scores)
        if len(self._kept) >= 2 * (self.capacity + 1):
            self._cut()

    def merge(self, other: ClassScores) -> None:
        self.count += other.count
        self._kept.append(other._kept.values)
        self._rest.merge(other._rest)
        self._cut([(other._lowest, other._tied)])

    def known(self) -> Floats:
        """The highest scores (at most `capacity` + 1, in any order)."""
        self._cut()
        return self._kept.values

    def lowest_known(self) -> np.floating[Any] | None:
        """Every row at or above this score is known exactly; None where every row is."""
        self._cut()
        return None if self.complete else self._lowest

    def known_at_or_above(self, score: np.floating[Any] | None) -> int:
        """How many rows there are at or above a score that is not below the lowest known; None: any score."""
        self._cut()
        if score is None:
            return len(self._kept) + self._tied
        tied = self._tied if self._lowest is not None and self._lowest >= score else 0
        return int(np.count_nonzero(self._kept.values >= score)) + tied

    def rows(self) -> tuple[Floats, NDArray[np.float64]]:
        """Scores and the number of rows that each stands for, which add up to the count."""
        self._cut()
        scores, weights = [self._kept.values, self._rest.scores()], [self._rest.weights()]
        weights.insert(0, np.ones(len(self._kept)))
        if self._tied:
            scores.append(np.array([self._lowest], dtype=self.dtype))
            weights.append(np.array([float(self._tied)]))
        return np.concatenate(scores), np.concatenate(weights)

    def _cut(self, ties: Iterable[tuple[np.floating[Any] | None, int]] = ()) -> None:
        """Leave the `capacity` + 1 highest scores in the array; `ties` are scores with rows to take over."""
        surplus = len(self._kept) - (self.capacity + 1)
        if surplus < 0 or (surplus == 0 and self._lowest is not None and not ties):
            return
        ties = [(self._lowest, self._tied), *ties]
        values = self._kept.values
        values.partition(surplus)
        lowest: np.floating[Any] = values[surplus]
        pushed_out = values[:surplus]
        lower = pushed_out[pushed_out < lowest]
        self._rest.add(lower)
        self._tied = surplus - len(lower)
        self._lowest = lowest
        self._kept.keep_from(surplus)
        for score, rows in ties:
            if score is None or rows == 0:
                continue
            if score == lowest:
                self._tied += rows
            else:
                self._rest.add_repeated(score, rows)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything there is to save."""
        self._cut()
        levels = [np.sort(level.values).astype(self.dtype) for level in self._rest.levels]
        return {
            "counts": np.array([self.count, self._tied, self._rest.raised, self._rest.lowered]),
            "kept": packed(np.sort(self._kept.values)),
            "level_sizes": np.array([len(level) for level in levels], dtype=np.int64),
            "levels": packed(np.concatenate([np.empty(0, dtype=self.dtype), *levels])),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], capacity: int, resolution: int) -> ClassScores:
        """The inverse of `to_arrays`; ValueError where the numbers contradict each other."""
        new = cls(capacity, resolution)
        new.count, new._tied, new._rest.raised, new._rest.lowered = (int(n) for n in arrays["counts"])
        new._kept.append(unpacked(arrays["kept"]))
        levels = unpacked(arrays["levels"])
        ends = np.cumsum(arrays["level_sizes"])
        for height, part in enumerate(np.split(levels, ends[:-1]) if len(ends) else []):
            new._rest._level(height).append(part)
        if len(new._kept) == capacity + 1:
            new._lowest = new._kept.values.min()
        lowest = np.inf if new._lowest is None else new._lowest
        whole = (
            len(new._kept) == min(new.count, capacity + 1)
            and new.count == len(new._kept) + new._tied + new._rest.weight
            and min(new._tied, new._rest.raised, new._rest.lowered) >= 0
            and bool(np.all(levels < lowest))
            and not np.isnan(new._kept.values).any()
        )
        if not whole:
            raise ValueError("its counts do not add up")
        return new


def packed(ascending: Floats) -> NDArray[np.uint8]:
    """Ascending floats as differences of their bits, one row of bytes for each byte of the float.

    Neighbours in a sorted array share their leading bytes, so most rows of bytes are nearly constant and
    compress to a fraction: two million float32 scores of a tail to about 1 to 2 MB instead of 8.
    """
    width = ascending.dtype.itemsize
    bits = ascending.view(f"u{width}")
    # Differences wrap round where the bits descend (below zero); adding them up wraps back.
    gaps = np.diff(bits, prepend=bits.dtype.type(0))
    return np.ascontiguousarray(gaps.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T)


def unpacked(planes: NDArray[np.uint8]) -> Floats:
    """The floats that `packed` was given, bit for bit."""
    if planes.dtype != np.uint8 or planes.ndim != 2 or planes.shape[0] not in (4, 8):
        raise ValueError(f"its scores have type {planes.dtype} and shape {planes.shape}")
    width = planes.shape[0]
    gaps = np.ascontiguousarray(planes.T).reshape(-1).view(f"<u{width}")
    bits = np.cumsum(gaps, dtype=f"u{width}")
    return bits.view(np.dtype(f"f{width}"))
