"""Columns of numbers on a common scale: each value becomes the normal score of its rank.

Nets need inputs of one size, and a single amount of 1e6 among amounts of 10 would drown the others. With F
the share of training rows below a value, half of those equal to it included,

    score(x) = Phi^-1(F(x)) - its mean over the training rows

is about normal whatever the distribution. Equal values share the middle of their ranks. Values outside the
training range get the score of its ends, and values between those seen are interpolated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

__all__ = ["MOST_KNOTS", "NormalScores"]

Floats = NDArray[np.float64]

# Even steps of the score, not of the rank: rare events are often at the ends, where ranks of even steps would
# leave one segment between the last thousandth and the maximum.
MOST_KNOTS = 1000


@dataclass(frozen=True, eq=False)
class NormalScores:
    """The scale of one column: values in order, and their scores, linear in between.

    >>> amounts = np.array([1.0, 2.0, 2.0, 3.0, 1000.0])
    >>> scale = NormalScores.learn(amounts, np.ones(5))
    >>> scale.apply(np.array([2.0, 1000.0, 1e9])).round(2).tolist()
    [-0.26, 1.28, 1.28]
    """

    knots: Floats
    scores: Floats

    @classmethod
    def learn(cls, values: NDArray[Any], weights: Floats) -> NormalScores | None:
        """From the values of training rows, none of them missing; None where all are equal."""
        distinct, places = np.unique(values.astype(np.float64), return_inverse=True)
        if len(distinct) < 2:
            return None
        mass = np.bincount(places.ravel(), weights, minlength=len(distinct))
        rank = (np.cumsum(mass) - mass / 2) / mass.sum()
        scores = np.asarray(ndtri(rank))
        mean = float(scores @ mass / mass.sum())
        if len(distinct) > MOST_KNOTS:
            wanted = ndtr(np.linspace(scores[0], scores[-1], MOST_KNOTS))
            chosen = np.unique(np.searchsorted(rank, wanted).clip(0, len(rank) - 1))
            chosen = np.unique([0, *chosen, len(rank) - 1])
            distinct, scores = distinct[chosen], scores[chosen]
        return cls(distinct, scores - mean)

    def apply(self, values: NDArray[Any]) -> Floats:
        """The scores of values; 0, the mean, where one is missing."""
        numbers = values.astype(np.float64)
        found = np.interp(numbers, self.knots, self.scores)
        steep = self._steep()
        if steep.any():
            left = (np.searchsorted(self.knots, numbers, side="right") - 1).clip(0, len(steep) - 1)
            within = np.flatnonzero(steep[left])
            found[within] = self._between(numbers[within], left[within])
        return np.asarray(np.where(np.isnan(found), 0.0, found))

    def _steep(self) -> NDArray[np.bool_]:
        """Segments whose length or slope is beyond the range of float64, where `numpy.interp` goes astray."""
        rise = np.diff(self.scores)
        with np.errstate(over="ignore"):
            length = np.diff(self.knots)
            slope = rise / length
        usual = np.isfinite(length) & np.isfinite(slope) & (slope >= np.finfo(np.float64).tiny)
        return np.asarray(~usual & (rise > 0))

    def _between(self, numbers: Floats, left: NDArray[np.intp]) -> Floats:
        """Scores in the segments that start at the knots `left`, by the share of the segment."""
        low, high = self.knots[left], self.knots[left + 1]
        # The larger end becomes about 1/4, by a power of two: no length is infinite or has few digits.
        power = -np.frexp(np.maximum(np.abs(low), np.abs(high)))[1] - 1
        inside = np.clip(numbers, low, high)
        start = np.ldexp(low, power)
        share = (np.ldexp(inside, power) - start) / (np.ldexp(high, power) - start)
        below, above = self.scores[left], self.scores[left + 1]
        score = np.clip(below + share * (above - below), below, above)
        return np.asarray(np.where(share >= 1, above, score))
