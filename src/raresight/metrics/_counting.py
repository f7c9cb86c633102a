"""Count the negatives above each positive, without sorting the negatives.

Few rows are positive, so a full sort does far more work than needed. A monotone map puts scores into a
million buckets. A bucket without a positive only needs its count. Negatives that share a bucket with a
positive (a few percent) are kept and compared exactly. Any monotone map gives the exact answer, so the map
only affects speed. Where no map helps, blocks are sorted instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import BLOCK, blocks
from raresight.metrics._inputs import LabelledScores

Floats = NDArray[np.floating[Any]]
Counts = NDArray[np.float64]

BUCKETS = 1 << 20
SAMPLE = 1 << 15
WORTH_BUCKETS = 1 << 19  # fewer rows are sorted at once
KEPT_AT_MOST = 0.4  # with a larger share of rows to compare exactly, sorting is faster
# Equal shares of the rows beyond these ends go to the outermost buckets, so that a few far scores do
# not stretch the range.
ENDS = (0.0005, 0.9995)


def negatives_above(data: LabelledScores, values: Floats) -> tuple[Counts, Counts]:
    """Return the weight of the negatives above, and at or above, each of the given scores.

    Args:
        data: The rows.
        values: Distinct scores of the same type, ascending.

    Returns:
        Two arrays: the weight (count) of negatives with a score > value, and >= value.
    """
    if len(data) >= WORTH_BUCKETS and len(values) * 8 < BUCKETS:
        bucket_of = best_map(data, values)
        if bucket_of is not None:
            return _by_buckets(data, values, bucket_of)
    # Few rows, many values, or no map that spreads the rows over the buckets.
    return _by_sorting(data, values)


def _by_sorting(data: LabelledScores, values: Floats) -> tuple[Counts, Counts]:
    """Sort the negatives in blocks, look the values up in each block, and add the counts.

    A block is several times as long as `values`, so that looking up costs less than sorting. Blocks keep the
    memory below a copy of the scores.
    """
    above, through = np.zeros(len(values)), np.zeros(len(values))
    length = max(4 * len(values), 4 * BLOCK)
    for start in range(0, len(data), length):
        rows = slice(start, start + length)
        negative = ~data.labels[rows]
        weights = None if data.weights is None else data.weights[rows][negative]
        _add_counts(data.scores[rows][negative], weights, values, above, through)
    return above, through


def _add_counts(
    scores: Floats, weights: Floats | None, values: Floats, above: Counts, through: Counts
) -> None:
    """Add the counts of these negatives to `above` and `through`. May reorder `scores`."""
    if weights is None:
        scores.sort()
        above += len(scores) - np.searchsorted(scores, values, side="right")
        through += len(scores) - np.searchsorted(scores, values, side="left")
        return
    order = np.argsort(scores)
    scores = scores[order]
    # Summed from the top, where the curve begins and relative accuracy matters.
    mass = np.concatenate([np.cumsum(weights[order][::-1], dtype=np.float64)[::-1], [0.0]])
    above += mass[np.searchsorted(scores, values, side="right")]
    through += mass[np.searchsorted(scores, values, side="left")]


def _by_buckets(
    data: LabelledScores, values: Floats, bucket_of: Callable[[Floats], NDArray[np.intp]]
) -> tuple[Counts, Counts]:
    home = bucket_of(values)
    watched = np.zeros(BUCKETS, dtype=bool)
    watched[home] = True
    filled: NDArray[Any] = np.zeros(BUCKETS, dtype=np.int64 if data.weights is None else np.float64)
    kept_scores, kept_weights = [], []
    for rows in blocks(len(data)):
        scores, labels = data.scores[rows], data.labels[rows]
        bucket = bucket_of(scores)
        if data.weights is None:
            np.add.at(filled, bucket, 1)
        else:
            np.add.at(filled, bucket, np.where(labels, 0.0, data.weights[rows]).astype(np.float64))
        kept = watched[bucket]
        kept &= ~labels
        where = np.flatnonzero(kept)
        kept_scores.append(scores[where])
        if data.weights is not None:
            kept_weights.append(data.weights[rows][where])
    # Positives were counted as well, but only in watched buckets, which are compared exactly below.
    filled[watched] = 0
    beyond = np.concatenate([np.cumsum(filled[::-1])[::-1][1:], [0]])[home]
    above, through = beyond.astype(np.float64), beyond.astype(np.float64)
    weights = np.concatenate(kept_weights) if kept_weights else None
    _add_counts(np.concatenate(kept_scores), weights, values, above, through)
    return above, through


def best_map(data: LabelledScores, values: Floats) -> Callable[[Floats], NDArray[np.intp]] | None:
    """Choose the map that leaves the fewest rows to compare exactly in a sample; None if all leave many.

    Two maps are tried. Raw scores spread evenly on their own scale, and probabilities of rare events on the
    scale of their floating-point exponent.
    """
    sample = np.sort(data.scores[:: max(1, len(data) // SAMPLE)])
    best, fewest = None, KEPT_AT_MOST
    for key_of in (own_scale, exponent_scale):
        bucket_of = _even_buckets(key_of, sample)
        if bucket_of is None:
            continue
        watched = np.zeros(BUCKETS, dtype=bool)
        watched[bucket_of(values)] = True
        kept = float(np.mean(watched[bucket_of(sample)]))
        if kept < fewest:
            best, fewest = bucket_of, kept
    return best


def _even_buckets(
    key_of: Callable[[Floats], Floats], sample: Floats
) -> Callable[[Floats], NDArray[np.intp]] | None:
    """Return buckets of equal width in a monotone key between the sample's ends; None if they coincide."""
    last = len(sample) - 1
    low, high = key_of(sample[[int(ENDS[0] * last), int(np.ceil(ENDS[1] * last))]])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scale = (BUCKETS - 1) / (high - low)
    if not (np.isfinite(low) and np.isfinite(scale) and scale > 0):
        return None

    def bucket_of(scores: Floats) -> NDArray[np.intp]:
        # Subtraction, scaling and clipping stay monotone under rounding, also for infinities.
        with np.errstate(over="ignore"):
            position = key_of(scores) - low
            position *= scale
        np.clip(position, 0, BUCKETS - 1, out=position)
        bucket: NDArray[np.intp] = position.astype(np.intp)
        return bucket

    return bucket_of


def own_scale(scores: Floats) -> Floats:
    return scores


def exponent_scale(scores: Floats) -> Floats:
    """Return the bits of the float as a number: a monotone key that grows with the logarithm of the score."""
    single = scores.dtype.itemsize == 4
    # Adding zero turns -0.0 into 0.0.
    bits: NDArray[Any] = (scores + scores.dtype.type(0)).view(np.int32 if single else np.int64)
    # The bits order negative floats backwards; this reverses them.
    bits ^= (bits >> (31 if single else 63)) & (0x7FFFFFFF if single else 0x7FFFFFFFFFFFFFFF)
    return bits.astype(scores.dtype)
