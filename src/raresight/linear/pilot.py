"""First fits on some of the rows, where there are many.

Of a first, small part each class has its share, a rare class all it has. With the fit of that part at hand a
second part is drawn in which a row's chance goes with its pull |l'|: rows that hardly pull are hardly needed.
Rows are weighted by the inverse of their chance (Horvitz and Thompson), so that the risk of the part is right
on average. Its fit lands within a fraction of a standard error of the fit of all rows, and its Hessian
serves there as well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from .design import Floats
from .risk import Sample, slope_sizes

__all__ = ["even_part", "pulling_part"]

_LEAST_ROWS = 100_000
_EVEN_SHARE = 50
_PULLING_SHARE = 20
_ROWS_PER_NUMBER = 50


def even_part(sample: Sample) -> Sample | None:
    """A small part of the rows, by class; None where taking all of them is as well."""
    n = _rows_that_count(sample)
    goal = _goal(sample, _EVEN_SHARE)
    if n < _LEAST_ROWS or _goal(sample, _PULLING_SHARE) > n // 4:
        return None
    labels = sample.labels.astype(np.int64, copy=False)
    counted = None if sample.weights is None else sample.weights > 0
    counts = np.bincount(labels if counted is None else labels[counted], minlength=max(sample.n_scores, 2))
    rng = np.random.default_rng(0)
    taken, weights = [], []
    for label, size in enumerate(_shares(counts, goal)):
        own = sample.labels == label
        rows = np.flatnonzero(own if counted is None else own & counted)
        if size < len(rows):
            # One row out of each of `size` stretches of equal length.
            places = (np.arange(size) + rng.random(size)) * (len(rows) / size)
            rows = rows[places.astype(np.int64)]
        taken.append(rows)
        weights.append(np.full(len(rows), counts[label] / len(rows)))
    return _part(sample, np.concatenate(taken), np.concatenate(weights))


def pulling_part(sample: Sample, loss: Loss, theta: Floats) -> Sample:
    """A part of the rows drawn by their pull at `theta`; every row of some weight has some chance."""
    sizes = slope_sizes(sample, loss, theta)
    n = _rows_that_count(sample)
    mean = float(sizes.sum(dtype=np.float64)) / n
    chance = sizes + sizes.dtype.type(0.1 * mean)
    chance *= sizes.dtype.type(_goal(sample, _PULLING_SHARE) / (1.1 * mean * n))
    if sample.weights is not None:
        chance[sample.weights == 0] = 0
    draws = np.random.default_rng(0).random(len(sizes), dtype=sizes.dtype)
    rows = np.flatnonzero(draws < chance)
    return _part(sample, rows, 1 / np.minimum(chance[rows].astype(np.float64), 1.0))


def _rows_that_count(sample: Sample) -> int:
    return sample.design.n_rows if sample.weights is None else int(np.count_nonzero(sample.weights))


def _goal(sample: Sample, share: int) -> int:
    return max(_rows_that_count(sample) // share, _ROWS_PER_NUMBER * sample.size)


def _part(sample: Sample, rows: NDArray[np.intp], weight: Floats) -> Sample:
    order = np.argsort(rows, kind="stable")  # in the order of memory
    rows, weight = rows[order], weight[order]
    if sample.weights is not None:
        weight = weight * sample.weights[rows]
    return Sample(sample.design.take(rows), sample.labels[rows], weight, sample.n_scores)


def _shares(counts: NDArray[np.int64], goal: int) -> list[int]:
    """How many rows of each class: all of a small one, and what is left in equal parts."""
    sizes = np.zeros(len(counts), dtype=np.int64)
    left, order = goal, np.argsort(counts)
    for place, label in enumerate(order):
        sizes[label] = min(int(counts[label]), left // (len(counts) - place))
        left -= int(sizes[label])
    return [int(size) for size in sizes]
