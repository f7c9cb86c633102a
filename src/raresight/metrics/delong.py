r"""The variance of areas under the ROC curve by placements (DeLong, DeLong and Clarke-Pearson 1988).

Let :math:`V_i` be the share of negatives below positive i, and :math:`W_j` the share of positives above
negative j; ties count one half. The AUC is the mean of either, and its variance is
:math:`s^2_V / n_1 + s^2_W / n_0`. For a partial area only what lies beyond the threshold of `max_fpr` counts
(He and Escobar 2008). The variance of a difference is that of the rows' differences.

If the rows of a group depend on each other, what they add is summed first, and the groups are the units
(Obuchowski 1997).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import blocks
from raresight.common.dependent_rows import Codes
from raresight.metrics._counting import negatives_above
from raresight.metrics._inputs import LabelledScores
from raresight.metrics._roc_steps import RocSteps
from raresight.metrics.ranking import width_inside

Floats = NDArray[np.float64]

UNSEEN = 0.25  # of a positive that the sample lacks
UNSEEN_ODDS = 30.0  # how much higher its odds of being below a negative are than the lowest positive's


class Parts(NamedTuple):
    """What the units of a sample, rows or groups of rows, add to an area or a difference of two.

    Attributes:
        own: Of each unit with a positive; they sum to the estimate.
        shares: The share of the positives in each of these units.
        rest: The variance that the units without a positive add.
        rest_third: Their third central moment.
    """

    own: Floats
    shares: Floats
    rest: float
    rest_third: float

    @property
    def estimate(self) -> float:
        return float(np.sum(self.own))

    @property
    def units(self) -> float:
        """The number of units with a positive; fewer if they hold unequally many positives (Kish 1965)."""
        return 1 / float(self.shares @ self.shares)

    @property
    def variance(self) -> float:
        return self._squares() / (1 - 1 / self.units) + self.rest

    @property
    def skewness(self) -> float:
        """The third central moment over the variance to 3/2."""
        third = float(np.sum((self.own - self.shares * self.estimate) ** 3)) + self.rest_third
        return third / self.variance**1.5 if self.variance > 0 else 0.0

    def scaled(self, factor: float) -> Parts:
        """Return the parts of a multiple of the estimate."""
        return Parts(self.own * factor, self.shares, self.rest * factor**2, self.rest_third * factor**3)

    def _squares(self) -> float:
        return float(np.sum(np.square(self.own - self.shares * self.estimate)))


# ---- one AUC -----------------------------------------------------------------------------


def auc_moments(steps: RocSteps) -> tuple[float, float]:
    """Return the variance of the AUC of unweighted rows, and the lowest positive's share of negatives below.

    All negatives between two positives have the same W. So the steps are enough, and no array of the size of
    the data is sorted or stored.
    """
    below = 1 - (steps.above + steps.through) / (2 * steps.negatives)
    before = steps.caught - steps.gain
    # Negatives with equally many positives above them: runs between steps, groups tied with a step, the rest.
    tied = steps.through - steps.above
    runs = np.diff(np.concatenate([[0.0], steps.through])) - tied
    counts = np.concatenate([runs, tied, [steps.negatives - steps.through[-1]]])
    above = np.concatenate([before, before + steps.gain / 2, [steps.positives]]) / steps.positives
    return _variance_of_mean(below, steps.gain) + _variance_of_mean(above, counts), float(below[-1])


def _variance_of_mean(values: Floats, counts: Floats) -> float:
    """Return the variance of the mean of at least two values with counts."""
    total = float(np.sum(counts))
    apart = values - float(np.sum(values * counts)) / total
    return float(np.sum(counts * np.square(apart))) / (total - 1) / total


def auc_interval(
    estimate: float, variance: float, units: float, lowest: float, level: float
) -> tuple[float, float]:
    r"""Return the interval of one AUC strictly between 0 and 1.

    It is Student's on the scale of log-odds, where an AUC near 1 is far less skewed (Qin and Hotilovac 2008).
    The lower end also allows for positives that rank low and that the sample lacks. Their share is
    Beta(1/4, n_1), as if a quarter of a positive were unseen. Their odds of being below a negative are taken
    as 30 times those of the lowest positive seen.

    Of 25 such pairs of numbers, this one has the shortest intervals among those that cover at least 93 % in
    all worlds of benchmarks/bench_coverage.py. A smaller share fails on heavy tails with 30 positives,
    smaller odds fail near 1 with 15.

    Args:
        estimate: The AUC.
        variance: Its variance.
        units: How many positives, or groups with positives, there are.
        lowest: The share of negatives below the lowest positive.
        level: The coverage.
    """
    from scipy.special import betaincinv, expit, logit, ndtri, stdtrit

    deviation = np.sqrt(variance)
    half = stdtrit(units - 1, (1 + level) / 2) * deviation / (estimate * (1 - estimate))
    low, high = expit(logit(estimate) - half), expit(logit(estimate) + half)
    # Each distribution is replaced by its quantiles at the midpoints of 200 equal shares.
    grid = (np.arange(200) + 0.5) / 200
    unseen = betaincinv(UNSEEN, units, grid)
    place = lowest / (lowest + UNSEEN_ODDS * (1 - lowest)) if lowest > 0 else 0.0
    seen = estimate + deviation * ndtri(grid)
    mixed = np.multiply.outer(1 - unseen, seen) + (unseen * place)[:, None]
    return min(float(low), float(np.quantile(mixed, (1 - level) / 2))), float(high)


# ---- areas of one or two scores ----------------------------------------------------------


def area_parts(
    scores: tuple[LabelledScores, ...], max_fpr: float, codes: Codes | None
) -> tuple[list[Floats], Parts]:
    """Return the positives' placements by each of one score or two, and what the units add.

    The mean of the placements is the area between the rates 0 and `max_fpr`. The parts are those of the area
    of one score, or of the difference of two, the first less the second.
    """
    sides = [_Side(one, max_fpr) for one in scores]
    signs = (1.0, -1.0)[: len(sides)]
    placements = [side.placements() for side in sides]
    gains = np.sum([sign * one for sign, one in zip(signs, placements, strict=True)], axis=0)
    labels, negatives = scores[0].labels, int(scores[0].negatives)

    def pulls() -> Iterator[tuple[slice, NDArray[np.bool_], Floats]]:
        """What each negative takes from the first area less what it takes from the second, by block."""
        for rows in blocks(len(labels)):
            negative = ~labels[rows]
            taken = [side.pull(one.scores[rows][negative]) for side, one in zip(sides, scores, strict=True)]
            yield rows, negative, np.sum([s * t for s, t in zip(signs, taken, strict=True)], axis=0)

    if codes is None:
        sums = np.zeros(3)
        for _, _, pull in pulls():
            sums += [pull.sum(), np.square(pull).sum(), (pull**3).sum()]
        rest, third = _moments(negatives, *sums)
        count = len(gains)
        # A pull lowers the area.
        return placements, Parts(gains / count, np.full(count, 1 / count), rest, -third)
    groups = int(codes.max()) + 1
    taken, sizes = np.zeros(groups), np.zeros(groups)
    for rows, negative, pull in pulls():
        taken += np.bincount(codes[rows][negative], weights=pull, minlength=groups)
        sizes += np.bincount(codes[rows][negative], minlength=groups)
    whole = (sizes * (taken.sum() / negatives) - taken) / negatives
    return placements, grouped_parts(gains / len(gains), codes[labels], whole)


def grouped_parts(gains: Floats, codes: Codes, others: Floats) -> Parts:
    """Return the parts of groups.

    Args:
        gains: What each positive adds.
        codes: The group of each positive.
        others: What the negatives of each group add; they sum to zero.
    """
    counts = np.bincount(codes, minlength=len(others))
    added = np.bincount(codes, weights=gains, minlength=len(others)) + others
    has_positive = counts > 0
    alone = others[~has_positive]
    rest = float(alone @ alone) * (len(alone) / max(1, len(alone) - 1))
    shares = counts[has_positive] / len(codes)
    # The negatives in groups without a positive need not sum to zero, so neither do those of the others.
    own = added[has_positive]
    own += shares * (float(np.sum(gains)) - own.sum())
    return Parts(own, shares, rest, float(np.sum(alone**3)))


class _Side:
    """One score of the rows: what each row adds to or takes from its partial area."""

    def __init__(self, data: LabelledScores, max_fpr: float) -> None:
        self.values, self.place, counts = np.unique(
            data.scores[data.labels], return_inverse=True, return_counts=True
        )
        above, through = negatives_above(data, self.values)
        start, end = above / data.negatives, through / data.negatives
        self.width = width_inside(start, end, max_fpr)
        # How much the width shrinks when one more negative lies above the step, or ties with it. Inside the
        # limit it is one half each. Where the limit cuts the diagonal of the step, at the share `cut`, these
        # are the derivatives of (f - start)^2 / (2 (end - start)).
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
        """Return the part of the area that each positive row adds, times the number of positives."""
        return np.asarray(self.width[self.place])

    def pull(self, scores: NDArray[np.floating[Any]]) -> Floats:
        """Return what a negative of each score takes from the area, times the number of negatives."""
        taken = np.zeros(len(scores))
        near = np.flatnonzero(scores >= self.floor)
        taken[near] = self.below[np.searchsorted(self.values, scores[near], side="left")]
        taken[near] += self.through[np.searchsorted(self.values, scores[near], side="right")]
        return taken


def _moments(count: int, first: float, second: float, third: float) -> tuple[float, float]:
    """Return the variance and third central moment of a mean, from the sums of powers."""
    mean = first / count
    variance = max(0.0, (second - count * mean**2) / (count - 1))
    central = third / count - 3 * mean * second / count + 2 * mean**3
    return variance / count, central / count**2
