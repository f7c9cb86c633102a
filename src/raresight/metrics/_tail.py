"""The rows with the highest scores, enough of them to hold a given number of negatives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import blocks
from raresight.metrics._inputs import LabelledScores

SAMPLE = 1 << 16
WORTH_CUTTING = 1 << 16  # fewer rows are taken whole
MOST = 0.1  # of the rows may be a tail; a place takes eight bytes, twice as much as a float32 score


def tail_rows(data: LabelledScores, negatives: float) -> LabelledScores:
    """Return all rows at or above a score that has at least `negatives` (weight or count) at or above it."""
    where = _tail(data, negatives)
    return data if where is None else take(data, where)


def tail_positions(data: LabelledScores, negatives: float) -> NDArray[np.intp]:
    """Return the places of the rows of `tail_rows`, ascending."""
    where = _tail(data, negatives)
    return np.arange(len(data)) if where is None else where


def _tail(data: LabelledScores, negatives: float) -> NDArray[np.intp] | None:
    """Return the places of those rows, or None for all rows if the tail would be most of them.

    A sample suggests the score. If too few negatives of all rows lie above it, the next guess is lower.
    """
    if len(data) < WORTH_CUTTING:
        return None
    # Rows at even distances, not random ones: this needs no state and samples sorted input evenly.
    sample = np.sort(data.scores[:: max(1, len(data) // SAMPLE)])[::-1]
    share = negatives / data.negatives
    if data.weights is not None:
        # Heavy rows may lie anywhere, so the guess ignores weights and only the check uses them.
        share = min(1.0, 1.5 * share)
    # The wanted share plus four standard deviations of the sample's error.
    wanted = int(len(sample) * share + 4 * np.sqrt(len(sample) * share) + 4)
    while wanted < len(sample):
        where = rows_at_or_above(data, sample[wanted])
        if where is None:
            break
        if take(data, where).negatives >= negatives:
            return where
        wanted = 2 * wanted + 16
    return None


def take(data: LabelledScores, where: NDArray[np.intp]) -> LabelledScores:
    """Return the rows at these places."""
    return LabelledScores(
        data.labels[where], data.scores[where], None if data.weights is None else data.weights[where]
    )


def rows_at_or_above(data: LabelledScores, score: float) -> NDArray[np.intp] | None:
    """Return their places; None if there are so many, such as ties, that places would need much memory."""
    found, count = [], 0
    for rows in blocks(len(data)):
        part = rows.start + np.flatnonzero(data.scores[rows] >= score)
        count += len(part)
        if count > MOST * len(data):
            return None
        found.append(part)
    return np.concatenate(found)
