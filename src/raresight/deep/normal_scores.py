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
        found = np.interp(values.astype(np.float64), self.knots, self.scores)
        return np.asarray(np.where(np.isnan(found), 0.0, found))
