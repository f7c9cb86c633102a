"""The tails of a loss, which decide its behaviour at a vanishing prior.

As the prior falls, scores go to minus infinity, and only the tails of the loss there matter:

    -l'(1, z) ~ a e^(-u z),    l'(0, z) ~ c e^(k z)      as z -> -infinity.

u is positive if the pull of a missed positive grows without bound (alpha < 1). It is zero if the pull is
constant (cross entropy), and negative if it vanishes (squared). From these four numbers follow the decay
index k/(k + u), the leading term of the Bayes risk and the limit of linear rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = ["Tail", "read_tail"]


@dataclass(frozen=True)
class Tail:
    """The tails of a loss of a binary score.

    Attributes:
        growth: u, how fast the pull of a positive grows as its score falls.
        decay: k, how fast the pull of a negative vanishes.
        log_pull: log a.
        log_push: log c.
        shift: Added to the score before the loss (logit adjustment). a and c do not include it.
        log_weights: Logarithms of the weights of (negatives, positives). a and c do not include them.
        is_gaussian: The pull of a negative vanishes like a Gaussian density, and `decay` has no meaning (the
            erf loss).
    """

    growth: float
    decay: float
    log_pull: float = 0.0
    log_push: float = 0.0
    shift: float = 0.0
    log_weights: tuple[float, float] = (0.0, 0.0)
    is_gaussian: bool = False

    @property
    def index(self) -> float:
        """The decay index beta: statistical information fades like prior^beta.

        >>> Tail(growth=0.25, decay=1.0).index
        0.8
        """
        if self.is_gaussian:
            return 1.0
        return self.decay / (self.decay + self.growth)

    @property
    def log_ratio(self) -> float:
        """log(a/c) with the weights, without the shift."""
        negative, positive = self.log_weights
        return self.log_pull + positive - self.log_push - negative

    def shifted(self, shift: float) -> Tail:
        """Return the tail of l(y, z + shift)."""
        return replace(self, shift=self.shift + shift)

    def mapped(self, negative: tuple[float, float], positive: tuple[float, float]) -> Tail:
        """The tail of a loss whose margins are scale * m - offset, with (scale, offset) of either label."""
        (scale_0, offset_0), (scale_1, offset_1) = negative, positive
        return replace(
            self,
            growth=scale_1 * self.growth,
            decay=scale_0 * self.decay,
            log_pull=self.log_pull + math.log(scale_1) + self.growth * offset_1,
            log_push=self.log_push + math.log(scale_0) + self.decay * offset_0,
        )

    def weighted(self, negative: float, positive: float) -> Tail:
        """Return the tail of the loss with class weights."""
        own = self.log_weights
        return replace(self, log_weights=(own[0] + math.log(negative), own[1] + math.log(positive)))

    def risk_factors(self) -> tuple[float, float]:
        """Return (K, beta) of the leading Bayes risk at small odds x.

        u > 0: K x^beta, beta = k/(k + u) < 1, K = a (1/u + 1/k) (a/c)^(-u/(u + k)).
        u = 0: K x log(1/x), beta = 1, K = a/k.

        Stationarity is x a e^(-u z) = c e^(k z), so e^z = (x a/c)^(1/(u + k)). The risk
        x (a/u) e^(-u z) + (c/k) e^(k z) is then x a e^(-u z) (1/u + 1/k). The shift cancels.
        """
        log_pull = self.log_pull + self.log_weights[1]
        u, k = self.growth, self.decay
        if u == 0:
            return math.exp(log_pull) / k, 1.0
        return math.exp(log_pull - u / (u + k) * self.log_ratio) * (1 / u + 1 / k), self.index


# At these margins an exponential tail is exact to rounding, and its logarithm still has ten digits after the
# point.
_FAR = np.array([1e4, 2e4])


def read_tail(log_slope: Callable[[Any], tuple[Any, Any]]) -> Tail | None:
    """Return the tail of phi from log(-phi') and its derivative; None if it is not exponential."""
    with np.errstate(all="ignore"):
        pull, pull_slope = (np.asarray(term, dtype=np.float64) for term in log_slope(-_FAR))
        push, push_slope = (np.asarray(term, dtype=np.float64) for term in log_slope(_FAR))
    growth, decay = -pull_slope, -push_slope
    is_exponential = np.allclose(growth, growth[0], atol=1e-9) and np.allclose(decay, decay[0], atol=1e-9)
    if not (is_exponential and np.isfinite([pull, push]).all() and decay[0] > 0):
        return None
    log_pull, log_push = pull - growth * _FAR, push + decay * _FAR
    if not (np.ptp(log_pull) < 1e-6 and np.ptp(log_push) < 1e-6):
        return None
    return Tail(float(growth[0]), float(decay[0]), float(log_pull[0]), float(log_push[0]))
