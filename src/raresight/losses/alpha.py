"""Alpha loss: from the exponential loss over cross entropy to the soft 0-1 loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from . import _parameters as check
from ._arrays import Array, Ops
from .margin import MarginLoss

__all__ = ["Alpha"]


def tuning(alpha: float) -> float:
    """u = 1/alpha - 1, the exponent of the alpha loss: 0 for cross entropy, 1 for exponential."""
    return -1.0 if math.isinf(alpha) else (1.0 - alpha) / alpha


def check_alpha(value: object, owner: str) -> float:
    alpha = check.number(value, "alpha", owner)
    if not alpha > 0:
        raise ValueError(f"{owner}: alpha must lie in (0, inf], got {alpha}")
    return alpha


@dataclass(frozen=True)
class Alpha(MarginLoss):
    """Alpha loss (Sypherd et al., 2022): l = (p_y^-u - 1)/u, u = 1/alpha - 1, 0 < alpha <= inf.

    alpha = 1 is cross entropy, 1/2 the exponential loss e^-m, inf the soft 0-1 loss 1 - p_y. Convex
    exactly for alpha <= 1; its link is lambda(z) = z/alpha. At alpha = inf every score has the same
    log-odds, so there is no calibrated probability.

    Saturates at the largest finite number once u (-log p_y) passes the logarithm of that number.

    >>> Alpha(alpha=0.5).value([0.0, 2.0], [1, 1]).round(6).tolist()
    [1.0, 0.135335]
    """

    alpha: float = 0.8
    name: ClassVar[str] = "alpha"
    formula: ClassVar[str] = "(p^-u - 1)/u, u = 1/alpha - 1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_alpha(self.alpha, "Alpha"))

    @property
    def is_convex(self) -> bool:
        return self.alpha <= 1

    @property
    def has_unique_minimiser(self) -> bool:
        return not math.isinf(self.alpha)

    def _phi(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        u = tuning(self.alpha)
        x, q = ops.logistic(m)
        if u == 0:
            value, growth = x, 1.0
        else:
            excess = ops.power_excess(m, x, u)
            value = ops.saturate(excess * (1 / u))
            # For u < 0 the sum 1 + excess would cancel.
            growth = 1 + excess if u > 0 else ops.exp(u * x)
        if order == 0:
            return (value,)
        slope = ops.saturate(q * growth)
        if order == 1:
            return value, -slope
        return value, -slope, ops.finite(slope * (ops.sigmoid(m) + u * q))

    def _log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        u = tuning(self.alpha)
        return u * ops.softplus(-m) - ops.softplus(m), -ops.sigmoid(m) - u * ops.sigmoid(-m)

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return z / self.alpha

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds * self.alpha
