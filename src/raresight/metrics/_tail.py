"""The rows with the highest scores, enough of them to hold a given number of negatives."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raresight.metrics._inputs import Scored, blocks

SAMPLE = 1 << 16
WORTH_CUTTING = 1 << 16  # fewer rows are taken whole


def tail_rows(data: Scored, negatives: float) -> Scored:
    """All rows at or above some score that has at least `negatives` (weight or count) at or above it."""
    where = tail_positions(data, negatives)
    return data if len(where) == len(data) else take(data, where)


def tail_positions(data: Scored, negatives: float) -> NDArray[np.intp]:
    """Where those rows are, ascending.

    A sample suggests the score, the rows decide: if too few negatives lie above it, the next guess is lower.
    """
    if len(data) < WORTH_CUTTING:
        return np.arange(len(data))
    sample = np.sort(data.scores[:: max(1, len(data) // SAMPLE)])[::-1]
    share = negatives / data.negatives
    if data.weights is not None:
        # Heavy rows may lie anywhere, so weights have no say in the guess, only in the check.
        share = min(1.0, 1.5 * share)
    # Four standard deviations of the sample's own error above the share asked for.
    wanted = int(len(sample) * share + 4 * np.sqrt(len(sample) * share) + 4)
    while wanted < len(sample):
        where = rows_at_or_above(data, sample[wanted])
        if take(data, where).negatives >= negatives:
            return where
        wanted = 2 * wanted + 16
    return np.arange(len(data))


def take(data: Scored, where: NDArray[np.intp]) -> Scored:
    """The rows at these places."""
    return Scored(
        data.labels[where], data.scores[where], None if data.weights is None else data.weights[where]
    )


def rows_at_or_above(data: Scored, score: float) -> NDArray[np.intp]:
    found = [rows.start + np.flatnonzero(data.scores[rows] >= score) for rows in blocks(len(data))]
    return np.concatenate(found)
