"""The recalls of two scores at a rate, redrawn together."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.metrics._inputs import ScoredRows
from raresight.metrics._resampling import DRAWN_TOGETHER, reach
from raresight.metrics._tail import tail_positions

Floats = NDArray[np.float64]


def redrawn_recalls(
    a: ScoredRows, b: ScoredRows, fpr: float, draws: int, generator: np.random.Generator
) -> Floats:
    """Recalls of both scores under random weights of the rows, (2, draws).

    Negatives far below both thresholds are one draw together: they only matter by their total.
    """
    negatives = a.negatives
    wanted = reach(fpr, negatives) * negatives
    near = np.union1d(_highest_negatives(a, wanted), _highest_negatives(b, wanted))
    positive = np.flatnonzero(a.labels)
    rest = negatives - len(near)
    readers = [_RecallReader(one.scores[near], one.scores[positive]) for one in (a, b)]
    # Positives that stand alike in both lists are drawn as one.
    both = np.stack([reader.standing for reader in readers])
    standing, counts = np.unique(both, axis=1, return_counts=True)
    for reader, places in zip(readers, standing, strict=True):
        reader.arrange(places)
    batch = max(1, DRAWN_TOGETHER // (len(near) + len(counts) + 1))
    found = []
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        weights = generator.standard_exponential((size, len(near)))
        # n negatives leave n + 1 pieces; the last one lies with those far below.
        total = weights.sum(axis=1) + generator.standard_gamma(rest + 1.0, size)
        shares = generator.standard_gamma(counts.astype(np.float64), (size, len(counts)))
        # A quarter of a positive that a alone catches and one that b alone does: without them nothing could
        # be said where both catch next to nothing.
        alone = generator.standard_gamma(0.25, (2, size))
        whole = shares.sum(axis=1) + alone.sum(axis=0)
        caught = np.stack([reader.recall(weights, total * fpr, shares) for reader in readers])
        found.append((caught + alone) / whole)
    return np.concatenate(found, axis=1)


def _highest_negatives(data: ScoredRows, count: float) -> NDArray[np.intp]:
    """Where the `count` negatives with the highest scores are, and those tied with the last."""
    where = tail_positions(data, count)
    where = where[~data.labels[where]]
    place = max(0, len(where) - int(np.ceil(count)))
    scores = data.scores[where]
    return np.asarray(where[scores >= np.partition(scores, place)[place]])


class _RecallReader:
    """Recall at a rate of one score, for many weightings of the same rows."""

    def __init__(self, negative: NDArray[Any], positive: NDArray[Any]) -> None:
        self.order = np.argsort(negative)[::-1]
        # How many of the near negatives are at or above each positive.
        self.standing = len(negative) - np.searchsorted(negative[self.order[::-1]], positive, side="left")
        self.arrange(self.standing)

    def arrange(self, standing: NDArray[np.intp]) -> None:
        """Sort groups of positives by how many negatives are at or above them."""
        self.group_order = np.argsort(standing, kind="stable")
        self.through = standing[self.group_order]

    def recall(self, weights: Floats, allowed: Floats, shares: Floats) -> Floats:
        passed = np.cumsum(weights[:, self.order], axis=1)
        kept = np.sum(passed <= allowed[:, None], axis=1)  # negatives that may be let pass
        caught = np.cumsum(shares[:, self.group_order], axis=1)
        last = np.searchsorted(self.through, kept, side="right")
        return np.asarray(np.where(last > 0, caught[np.arange(len(kept)), last - 1], 0.0))
