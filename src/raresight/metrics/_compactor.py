"""The scores of one class in bounded memory: the highest exactly, the rest thinned with a certain bound.

At a small false-positive rate only a class's highest scores matter, so they are all kept. The highest scores
of a union are the highest among the highest of its parts. So the order of batches or merges does not change
what is kept. Lower scores go to a `Compactor`.
"""

from __future__ import annotations

import math
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
        """The filled part as a view: it may be reordered, and becomes invalid with the next change."""
        return self._room[: self._filled]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._room.dtype

    def widen(self, dtype: np.dtype[Any]) -> None:
        """Convert to a type that also holds `dtype`."""
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
        """Drop the values before `start`."""
        kept = self._room[start : self._filled].copy()
        self._room[: len(kept)] = kept
        self._filled = len(kept)


class _Level:
    """Scores of about one weight: 2^height each, or their own `weights` from 2^height to twice that."""

    def __init__(self) -> None:
        self.scores = GrowingArray()
        self.weights: GrowingArray | None = None

    def __len__(self) -> int:
        return len(self.scores)

    def append(self, scores: Floats, weights: Floats | None, height: int) -> None:
        if weights is not None and self.weights is None:
            self.weights = GrowingArray()
            self.weights.append(np.full(len(self), 2.0**height))
        self.scores.append(scores)
        if self.weights is not None:
            self.weights.append(np.full(len(scores), 2.0**height) if weights is None else weights)

    def sort(self) -> None:
        if self.weights is None:
            self.scores.values.sort()
            return
        order = np.argsort(self.scores.values, kind="stable")
        self.scores.values[:] = self.scores.values[order]
        self.weights.values[:] = self.weights.values[order]

    def all_weights(self, height: int) -> NDArray[np.float64]:
        if self.weights is None:
            return np.full(len(self), 2.0**height)
        return self.weights.values.astype(np.float64)


class Compactor:
    r"""Scores at levels; one at level h represents 2^h rows, or a weight from 2^h to 2^(h+1).

    A level that reaches `resolution` scores is sorted and split into pairs of neighbours. One of each pair
    moves to the next level with the weight of both. Keeping the higher one can only raise the weight counted
    above a score, and keeping the lower one can only lower it. A score lies inside one pair at most. So a
    step changes its count by at most the weight of the dropped partner: 2^h for rows. The two directions are
    chosen so that their sums stay balanced. The larger sum is a certain bound on the error of every count:

    .. math:: E \le \tfrac12 \sum_h \frac{n}{r 2^h} 2^h \approx \frac{n}{2r} \log_2 \frac{n}{r}

    for n rows and a resolution of r, and at most twice that for a total weight of n. There is no randomness.
    """

    def __init__(self, resolution: int) -> None:
        self.resolution = resolution
        self.levels: dict[int, _Level] = {}
        self.raised: float = 0  # bound on how much too high the weight counted above a score may be
        self.lowered: float = 0  # bound on how much too low

    @property
    def rank_error(self) -> float:
        """Bound on the error of the weight above (or at or above) any score."""
        return max(self.raised, self.lowered)

    @property
    def weight(self) -> float:
        """The total the scores represent: exactly the rows added, or their weight up to rounding."""
        return sum(
            len(level) << height
            if level.weights is None and height >= 0
            else float(level.all_weights(height).sum())
            for height, level in self.levels.items()
        )

    def add(self, scores: Floats, weights: Floats | None = None) -> None:
        """Add rows, or rows of positive weights."""
        if len(scores) == 0:
            return
        if weights is None:
            self._level(0).append(scores, None, 0)
        else:
            # floor(log2 w), exactly: frexp reads the exponent.
            heights = np.frexp(weights)[1] - 1
            for height in np.unique(heights):
                own = heights == height
                self._level(int(height)).append(scores[own], weights[own], int(height))
        self._thin()

    def add_repeated(self, score: np.floating[Any], count: int) -> None:
        """Add one score `count` times: a score at each level that is a digit of the count, without error."""
        for height in range(count.bit_length()):
            if count >> height & 1:
                self._level(height).append(np.array([score]), None, height)
        self._thin()

    def merge(self, other: Compactor) -> None:
        for height, level in other.levels.items():
            weights = None if level.weights is None else level.weights.values
            self._level(height).append(level.scores.values, weights, height)
        self.raised += other.raised
        self.lowered += other.lowered
        self._thin()

    def scores(self) -> Floats:
        parts = (level.scores.values for level in self.levels.values())
        return np.concatenate([np.empty(0, dtype=np.float32), *parts])

    def weights(self) -> NDArray[np.float64]:
        """Return the weight of each score; for rows a power of two, so that sums are exact."""
        return np.concatenate(
            [np.empty(0), *(level.all_weights(height) for height, level in self.levels.items())]
        )

    def _level(self, height: int) -> _Level:
        if height not in self.levels:
            self.levels[height] = _Level()
        return self.levels[height]

    def _thin(self) -> None:
        # From the lowest level up: the scores that a level passes on may fill the next one.
        waiting = sorted(self.levels)
        while waiting:
            height = waiting.pop(0)
            if len(self.levels[height]) >= self.resolution:
                self._halve(height)
                if height + 1 not in waiting:
                    waiting.insert(0, height + 1)

    def _halve(self, height: int) -> None:
        level = self.levels[height]
        level.sort()
        even = len(level) // 2 * 2  # an odd one out, the highest, stays
        # Errors of both signs partly cancel. Taking the direction with the smaller sum makes the larger sum,
        # which is the bound, grow half as fast.
        higher = self.raised <= self.lowered
        kept, dropped = slice(1 if higher else 0, even, 2), slice(0 if higher else 1, even, 2)
        passed = level.scores.values[kept].copy()
        weights, moved = None, 2**height if height >= 0 else 2.0**height
        if level.weights is not None:
            own = level.weights.values
            # A score lies inside one pair at most, so the error is the weight of one dropped partner.
            weights, moved = own[kept] + own[dropped], float(own[dropped].max())
            level.weights.keep_from(even)
        level.scores.keep_from(even)
        self._level(height + 1).append(passed, weights, height + 1)
        if higher:
            self.raised += moved
        else:
            self.lowered += moved


class ClassScores:
    """The `capacity` + 1 highest scores, the weight of more rows tied with the lowest of them, and the rest.

    So every row at or above the lowest kept score is known exactly, ties at the cut included. The one score
    beyond `capacity` shows where the next step of the curve begins. Without it the rate `capacity` / rows
    itself would be unknown. Each row weighs 1 until weights are added.
    """

    def __init__(self, capacity: int, resolution: int) -> None:
        self.capacity = capacity
        self.count = 0
        self._kept = GrowingArray()
        self._kept_weights: GrowingArray | None = None  # None while every row weighs 1
        self._weight = 0.0  # of all rows, once there are weights
        self._lowest: np.floating[Any] | None = None  # lowest kept, once the array has been cut
        self._tied: float = 0  # weight of rows equal to the lowest kept score that are not in the array
        self._rest = Compactor(resolution)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._kept.dtype

    @property
    def weighted(self) -> bool:
        return self._kept_weights is not None

    @property
    def weight(self) -> float:
        """The weight of all rows: their number, exactly, where there are no weights."""
        return self._weight if self.weighted else self.count

    @property
    def rank_error(self) -> float:
        self._cut()
        return self._rest.rank_error

    @property
    def complete(self) -> bool:
        """Whether every row is kept."""
        return self.count <= self.capacity + 1

    def add(self, scores: Floats, weights: Floats | None = None) -> None:
        """Add scores, with positive weights if given; the arrays are copied."""
        self._kept.widen(scores.dtype)
        scores = scores.astype(self.dtype, copy=False)
        if weights is not None:
            self._weigh()
        elif self.weighted:
            weights = np.ones(len(scores))
        self.count += len(scores)
        if weights is not None:
            self._weight += float(weights.sum())
        if self._lowest is not None:
            # Enough scores at or above the lowest are kept, so lower ones can never be among the highest.
            below, above = scores < self._lowest, scores > self._lowest
            lower, higher = scores[below], scores[above]
            if weights is None:
                self._tied += len(scores) - len(lower) - len(higher)
                self._rest.add(lower)
            else:
                self._tied += float(weights[~below & ~above].sum())
                self._rest.add(lower, weights[below])
                weights = weights[above]
            scores = higher
        self._keep(scores, weights)
        if len(self._kept) >= 2 * (self.capacity + 1):
            self._cut()

    def merge(self, other: ClassScores) -> None:
        if other.weighted:
            self._weigh()
        weights = None if other._kept_weights is None else other._kept_weights.values
        if self.weighted:
            self._weight += other.weight
            if weights is None:
                weights = np.ones(len(other._kept))
        self.count += other.count
        self._keep(other._kept.values, weights)
        self._rest.merge(other._rest)
        self._cut([(other._lowest, other._tied)])

    def _weigh(self) -> None:
        """Hold a weight for each kept row from now on; earlier rows weigh 1."""
        if self._kept_weights is None:
            self._kept_weights = GrowingArray()
            self._kept_weights.append(np.ones(len(self._kept)))
            self._weight = float(self.count)

    def _keep(self, scores: Floats, weights: Floats | None) -> None:
        self._kept.append(scores)
        if self._kept_weights is not None:
            assert weights is not None
            self._kept_weights.append(weights)

    def known(self) -> Floats:
        """Return the highest scores (at most `capacity` + 1, in any order)."""
        self._cut()
        return self._kept.values

    def lowest_known(self) -> np.floating[Any] | None:
        """Return the score at and above which every row is known exactly; None if all rows are."""
        self._cut()
        return None if self.complete else self._lowest

    def known_at_or_above(self, score: np.floating[Any] | None) -> float:
        """Return the weight at or above a score that is not below the lowest known; None: any score."""
        self._cut()
        inside = slice(None) if score is None else self._kept.values >= score
        is_low = score is None or (self._lowest is not None and self._lowest >= score)
        tied = self._tied if is_low else 0
        if self._kept_weights is not None:
            return float(self._kept_weights.values[inside].sum(dtype=np.float64)) + tied
        return len(self._kept.values[inside]) + tied

    def rows(self) -> tuple[Floats, NDArray[np.float64]]:
        """Return scores and the weight (or number of rows) of each; the weights add up to the total."""
        self._cut()
        own = np.ones(len(self._kept)) if self._kept_weights is None else self._kept_weights.values
        scores, weights = [self._kept.values, self._rest.scores()], [own, self._rest.weights()]
        if self._tied:
            scores.append(np.array([self._lowest], dtype=self.dtype))
            weights.append(np.array([float(self._tied)]))
        return np.concatenate(scores), np.concatenate(weights)

    def _cut(self, ties: Iterable[tuple[np.floating[Any] | None, float]] = ()) -> None:
        """Leave the `capacity` + 1 highest scores in the array; `ties` are scores and weights to add."""
        surplus = len(self._kept) - (self.capacity + 1)
        if surplus < 0 or (surplus == 0 and self._lowest is not None and not ties):
            return
        ties = [(self._lowest, self._tied), *ties]
        values = self._kept.values
        if self._kept_weights is None:
            values.partition(surplus)
        else:
            order = np.argpartition(values, surplus)
            values[:] = values[order]
            self._kept_weights.values[:] = self._kept_weights.values[order]
        lowest: np.floating[Any] = values[surplus]
        pushed_out = values[:surplus]
        below = pushed_out < lowest
        lower = pushed_out[below]
        if self._kept_weights is None:
            self._rest.add(lower)
            self._tied = surplus - len(lower)
        else:
            pushed_weights = self._kept_weights.values[:surplus]
            self._rest.add(lower, pushed_weights[below])
            self._tied = float(pushed_weights[~below].sum())
            self._kept_weights.keep_from(surplus)
        self._lowest = lowest
        self._kept.keep_from(surplus)
        for score, weight in ties:
            if score is None or weight == 0:
                continue
            if score == lowest:
                self._tied += weight
            elif self.weighted:
                self._rest.add(np.array([score]), np.array([float(weight)]))
            else:
                self._rest.add_repeated(score, int(weight))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save, with weights if there are any."""
        self._cut()
        heights = sorted(self._rest.levels)
        levels = [self._rest.levels[height] for height in heights]
        for level in levels:
            level.sort()
        scores = [level.scores.values.astype(self.dtype) for level in levels]
        arrays = {
            "counts": np.array([self.count, self._tied, self._rest.raised, self._rest.lowered]),
            "kept": packed(np.sort(self._kept.values)),
            "level_heights": np.array(heights, dtype=np.int64),
            "level_sizes": np.array([len(level) for level in levels], dtype=np.int64),
            "levels": packed(np.concatenate([np.empty(0, dtype=self.dtype), *scores])),
        }
        if self._kept_weights is not None:
            order = np.argsort(self._kept.values)  # several times as slow as the sort that rows do with
            weights = [level.all_weights(height) for height, level in zip(heights, levels)]
            arrays["weight"] = np.array(self._weight)
            arrays["kept_weights"] = self._kept_weights.values[order].astype(np.float64)
            arrays["level_weights"] = np.concatenate([np.empty(0), *weights])
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], capacity: int, resolution: int) -> ClassScores:
        """Return the inverse of `to_arrays`; ValueError where the numbers contradict each other."""
        new = cls(capacity, resolution)
        is_weighted = "weight" in arrays
        number = float if is_weighted else int
        count, new._tied, new._rest.raised, new._rest.lowered = (number(n) for n in arrays["counts"])
        new.count = int(count)
        if is_weighted:
            new._weigh()
            new._weight = float(arrays["weight"])
        new._keep(unpacked(arrays["kept"]), arrays["kept_weights"] if is_weighted else None)
        levels = unpacked(arrays["levels"])
        ends = np.cumsum(arrays["level_sizes"])[:-1]
        weights = (
            np.split(arrays["level_weights"], ends) if is_weighted else [None] * len(arrays["level_sizes"])
        )
        heights = arrays["level_heights"].tolist()
        for height, part, own in zip(heights, np.split(levels, ends), weights, strict=bool(heights)):
            new._rest._level(height).append(part, own, height)
        if len(new._kept) == capacity + 1:
            new._lowest = new._kept.values.min()
        lowest = np.inf if new._lowest is None else new._lowest
        whole = (
            len(new._kept) == min(new.count, capacity + 1)
            and new._adds_up()
            and min(new._tied, new._rest.raised, new._rest.lowered) >= 0
            and bool(np.all(levels < lowest))
            and not np.isnan(new._kept.values).any()
        )
        if not whole:
            raise ValueError("its counts do not add up")
        return new

    def _adds_up(self) -> bool:
        """Return whether the parts add up to the total: exactly for rows, up to rounding for weights."""
        if self._kept_weights is None:
            return self.count == len(self._kept) + self._tied + self._rest.weight
        weights = self._kept_weights.values
        if len(weights) != len(self._kept) or not (weights > 0).all():
            return False
        return math.isclose(self._weight, float(weights.sum()) + self._tied + self._rest.weight, rel_tol=1e-9)


def packed(ascending: Floats) -> NDArray[np.uint8]:
    """Pack ascending floats as differences of their bits, one row of bytes for each byte of the float.

    Neighbours in a sorted array share their leading bytes. So most rows of bytes are nearly constant and
    compress well. Two million float32 scores of a tail take 1 to 2 MB instead of 8.
    """
    width = ascending.dtype.itemsize
    bits = ascending.view(f"u{width}")
    # Differences wrap round where the bits descend (below zero); adding them up wraps back.
    gaps = np.diff(bits, prepend=bits.dtype.type(0))
    return np.ascontiguousarray(gaps.astype(f"<u{width}").view(np.uint8).reshape(-1, width).T)


def unpacked(planes: NDArray[np.uint8]) -> Floats:
    """Return the floats that `packed` was given, bit for bit."""
    if planes.dtype != np.uint8 or planes.ndim != 2 or planes.shape[0] not in (4, 8):
        raise ValueError(f"its scores have type {planes.dtype} and shape {planes.shape}")
    width = planes.shape[0]
    gaps = np.ascontiguousarray(planes.T).reshape(-1).view(f"<u{width}")
    bits = np.cumsum(gaps, dtype=f"u{width}")
    return bits.view(np.dtype(f"f{width}"))
