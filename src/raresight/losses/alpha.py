"""Alpha loss: from the exponential loss over cross entropy to the soft 0-1 loss."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from . import _parameters as check
from ._arrays import Array, Ops
from ._polynomials import power_coefficients
from .margin import MarginLoss

__all__ = ["Alpha"]


def tuning(alpha: float) -> float:
    """u = 1/alpha - 1, the exponent of the alpha loss: 0 for cross entropy, 1 for exponential."""
    return -1.0 if math.isinf(alpha) else (1.0 - alpha) / alpha


def log_gain(ops: Ops, x: Array, u: float) -> Array:
    """log of (e^(ux) - 1)/u, which itself overflows early for large u."""
    if u == 0:
        return ops.log(x)
    # e^(ux) - 1 is e^(ux) (1 - e^(-ux)) for u > 0; for u < 0 the quotient is (1 - e^(-|u|x))/|u|.
    bounded = ops.log(-ops.expm1(-abs(u) * x)) - math.log(abs(u))
    return u * x + bounded if u > 0 else bounded


def check_alpha(value: object, owner: str) -> float:
    alpha = check.number(value, "alpha", owner)
    if not alpha > 0:
        raise ValueError(f"{owner}: alpha must lie in (0, inf], got {alpha}")
    if alpha < 1e-6:
        raise ValueError(f"{owner}: alpha below 1e-6 overflows at every score, got {alpha}")
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
    _exponent: float = field(init=False, repr=False, compare=False)
    _power: tuple[float, ...] = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "alpha"
    formula: ClassVar[str] = "(p^-u - 1)/u, u = 1/alpha - 1"

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_alpha(self.alpha, "Alpha"))
        object.__setattr__(self, "_exponent", tuning(self.alpha))
        object.__setattr__(self, "_power", power_coefficients(self._exponent))

    @property
    def is_convex(self) -> bool:
        return self.alpha <= 1

    @property
    def has_unique_minimiser(self) -> bool:
        return not math.isinf(self.alpha)

    def _phi(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        u = self._exponent
        x, q = ops.logistic(m)
        if u == 0:
            value, growth = x, 1.0
        else:
            excess = ops.power_excess(m, x, u, self._power)
            value = ops.saturate(excess * (1 / u)) if u <= 1 else ops.saturate(_divided(ops, u * x, u))
            # For u < 0 the sum 1 + excess would cancel.
            growth = 1 + excess if u > 0 else ops.exp(u * x)
        if order == 0:
            return (value,)
        slope = ops.saturate(q * growth)
        if order == 1:
            return value, -slope
        return value, -slope, ops.finite(slope * (ops.sigmoid(m) + u * q))

    def _log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        u = self._exponent
        return u * ops.softplus(-m) - ops.softplus(m), -ops.sigmoid(m) - u * ops.sigmoid(-m)

    def _log_phi(self, ops: Ops, m: Array) -> Array:
        return log_gain(ops, ops.logistic(m)[0], self._exponent)

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return z / self.alpha

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds * self.alpha


def _divided(ops: Ops, t: Array, u: float) -> Array:
    """(e^t - 1)/u for u > 1, which is representable a little beyond e^t."""
    return ops.where(t < 1, ops.expm1(t) * (1 / u), ops.exp(t - math.log(u)) - 1 / u)
