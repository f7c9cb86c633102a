"""The paired difference of two areas under ROC curves, from the placements of the rows.

A positive adds to the area the share of negatives below it; a negative takes from it the share of positives
below it (DeLong et al. 1988). For a partial area only what lies beyond the threshold of `max_fpr` counts
(He and Escobar 2008). The variance of a difference is that of the rows' differences, class by class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.metrics._counting import negatives_above
from raresight.metrics._inputs import Scored, blocks
from raresight.metrics._tail import tail_positions
from raresight.metrics.ranking import width_inside

Floats = NDArray[np.float64]


def paired_areas(a: Scored, b: Scored, max_fpr: float) -> tuple[float, float, float]:
    """Both areas between the rates 0 and `max_fpr`, and the variance of their difference."""
    places = [_positive_placements(one, max_fpr) for one in (a, b)]
    variance = _negative_variance(a, b, max_fpr)
    if len(places[0]) > 1:
        variance += float(np.var(places[0] - places[1], ddof=1)) / len(places[0])
    return float(np.mean(places[0])), float(np.mean(places[1])), variance


def _positive_placements(data: Scored, max_fpr: float) -> Floats:
    """The part of the area that each positive row adds, times the number of positives."""
    scores = data.scores[data.labels]
    values, place = np.unique(scores, return_inverse=True)
    above, through = negatives_above(data, values)
    return width_inside(above / data.negatives, through / data.negatives, max_fpr)[place]


def _negative_variance(a: Scored, b: Scored, max_fpr: float) -> float:
    """Variance that the negatives add to the difference: that of a negative's pull on both areas.

    A negative lowers the area by the share of positives between it and the threshold of `max_fpr` (all
    positives below it, for the whole area). Only negatives beyond a threshold pull.
    """
    negatives = a.negatives
    if negatives < 2:
        return 0.0
    reading = [_pull_of(one, max_fpr) for one in (a, b)]
    total = squares = 0.0
    for rows in blocks(len(a)):
        negative = ~a.labels[rows]
        pull = [pull_of(one.scores[rows][negative]) for pull_of, one in zip(reading, (a, b), strict=True)]
        apart = pull[0] - pull[1]
        total += float(apart.sum())
        squares += float(np.square(apart).sum())
    return max(0.0, (squares - total**2 / negatives) / (negatives - 1) / negatives)


def _pull_of(data: Scored, max_fpr: float) -> Callable[[NDArray[np.floating[Any]]], Floats]:
    """The pull of a negative as a function of its score."""
    positives = np.sort(data.scores[data.labels])
    count = len(positives)
    if max_fpr < 1:
        # The score below which the rate passes max_fpr: positives at or under it are not counted.
        limit = int(np.ceil(max_fpr * data.negatives))
        where = tail_positions(data, float(limit))
        highest = np.sort(data.scores[where][~data.labels[where]])[::-1]
        floor = highest[min(limit, len(highest)) - 1]
        beneath = float(np.searchsorted(positives, floor, side="left"))
    else:
        floor, beneath = None, 0.0

    def pull_of(scores: NDArray[np.floating[Any]]) -> Floats:
        pull = np.zeros(len(scores))
        inside = np.arange(len(scores)) if floor is None else np.flatnonzero(scores >= floor)
        left = np.searchsorted(positives, scores[inside], side="left")
        right = np.searchsorted(positives, scores[inside], side="right")
        pull[inside] = np.maximum((left + right) / 2 - beneath, 0) / count
        return pull

    return pull_of
