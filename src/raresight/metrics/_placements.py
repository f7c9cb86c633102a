"""The paired difference of two areas under ROC curves, from the placements of the rows.

A positive adds to the area the share of negatives below it; a negative takes from it the share of positives
below it (DeLong et al. 1988). For a partial area only what lies beyond the threshold of `max_fpr` counts
(He and Escobar 2008). The variance of a difference is that of the rows' differences, class by class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import blocks
from raresight.metrics._counting import negatives_above
from raresight.metrics._inputs import ScoredRows
from raresight.metrics.delong import Spread
from raresight.metrics.ranking import width_inside

Floats = NDArray[np.float64]


def paired_areas(a: ScoredRows, b: ScoredRows, max_fpr: float) -> tuple[float, float, Spread]:
    """Both areas between the rates 0 and `max_fpr`, and the spread of their difference."""
    fewest = min(np.count_nonzero(a.labels), np.count_nonzero(~a.labels))
    if fewest < 2:
        raise ValueError("A comparison needs at least two rows of each class; one shows no variance.")
    sides = [_Side(one, max_fpr) for one in (a, b)]
    gains = sides[0].placements() - sides[1].placements()
    positive = _moments(len(gains), *(float(np.sum(gains**power)) for power in (1, 2, 3)))
    negative = _pull_moments(a, b, sides)
    variance, third = positive[0] + negative[0], positive[1] + negative[1]
    areas = [float(np.mean(side.placements())) for side in sides]
    if variance <= 0 and areas[0] != areas[1]:
        # Every row says the same (a perfect score against a constant one): the chance of a row that
        # would not is about one in as many rows as there are.
        variance = (max_fpr / (fewest + 1)) ** 2
    return areas[0], areas[1], Spread(variance, third / variance**1.5 if variance > 0 else 0.0)


class _Side:
    """One score of the rows: what each row adds to or takes from its partial area."""

    def __init__(self, data: ScoredRows, max_fpr: float) -> None:
        self.values, self.place, counts = np.unique(
            data.scores[data.labels], return_inverse=True, return_counts=True
        )
        above, through = negatives_above(data, self.values)
        start, end = above / data.negatives, through / data.negatives
        self.width = width_inside(start, end, max_fpr)
        # How the width shrinks when one more negative lies above the step, or ties with it: by one half each
        # where the step is inside; where the limit cuts its diagonal at the share r, by the derivatives of
        # (f - start)^2 / (2 (end - start)).
        cut = np.clip((max_fpr - start) / np.where(end > start, end - start, 1.0), 0.0, 1.0)
        inside = end <= max_fpr
        by_above = np.where(inside, 0.5, cut - cut**2 / 2)
        by_tie = np.where(inside, 0.5, cut**2 / 2)
        shares = counts / counts.sum()
        self.below = np.concatenate([[0.0], np.cumsum(shares * by_above)])
        self.through = np.concatenate([[0.0], np.cumsum(shares * by_tie)])
        reached = np.flatnonzero(by_above + by_tie > 0)
        self.floor = self.values[reached[0]] if len(reached) else np.inf

    def placements(self) -> Floats:
        """The part of the area that each positive row adds, times the number of positives."""
        return np.asarray(self.width[self.place])

    def pull(self, scores: NDArray[np.floating[Any]]) -> Floats:
        """What a negative of each score takes from the area, times the number of negatives."""
        taken = np.zeros(len(scores))
        near = np.flatnonzero(scores >= self.floor)
        taken[near] = self.below[np.searchsorted(self.values, scores[near], side="left")]
        taken[near] += self.through[np.searchsorted(self.values, scores[near], side="right")]
        return taken


def _pull_moments(a: ScoredRows, b: ScoredRows, sides: list[_Side]) -> tuple[float, float]:
    """Variance and third moment that the negatives add to the difference."""
    sums = np.zeros(3)
    for rows in blocks(len(a)):
        negative = ~a.labels[rows]
        # What a negative takes lowers the area: b's pull minus a's.
        apart = sides[1].pull(b.scores[rows][negative]) - sides[0].pull(a.scores[rows][negative])
        sums += [apart.sum(), np.square(apart).sum(), (apart**3).sum()]
    return _moments(int(np.count_nonzero(~a.labels)), *sums)


def _moments(count: int, first: float, second: float, third: float) -> tuple[float, float]:
    """Variance and third central moment of a mean, from the sums of powers."""
    mean = first / count
    variance = max(0.0, (second - count * mean**2) / (count - 1))
    central = third / count - 3 * mean * second / count + 2 * mean**3
    return variance / count, central / count**2
