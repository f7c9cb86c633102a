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
    """All rows at or above some score that has at least `negatives` (weight or count) at or above it."""
    where = _tail(data, negatives)
    return data if where is None else take(data, where)


def tail_positions(data: LabelledScores, negatives: float) -> NDArray[np.intp]:
    """Return where those rows are, ascending."""
    where = _tail(data, negatives)
    return np.arange(len(data)) if where is None else where


def _tail(data: LabelledScores, negatives: float) -> NDArray[np.intp] | None:
    """Return where those rows are, or None for all of them, where the tail would be most of the rows.

    A sample suggests the score, the rows decide: if too few negatives lie above it, the next guess is lower.
    """
    if len(data) < WORTH_CUTTING:
        return None
    # Rows at even distances rather than random ones: no state, and sorted input is sampled evenly.
    sample = np.sort(data.scores[:: max(1, len(data) // SAMPLE)])[::-1]
    share = negatives / data.negatives
    if data.weights is not None:
        # Heavy rows may lie anywhere, so weights have no say in the guess, only in the check.
        share = min(1.0, 1.5 * share)
    # Four standard deviations of the sample's own error above the share asked for.
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
    """Where they are; None if they are so many (a tie, say) that their places would need much memory."""
    found, count = [], 0
    for rows in blocks(len(data)):
        part = rows.start + np.flatnonzero(data.scores[rows] >= score)
        count += len(part)
        if count > MOST * len(data):
            return None
        found.append(part)
    return np.concatenate(found)
