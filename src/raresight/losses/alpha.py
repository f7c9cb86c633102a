"""Alpha loss: from the exponential loss over cross entropy to the soft 0-1 loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .margin import Array, MarginLoss, Ops
from .parameters import number, param
from .registry import register
from .tails import Tail

__all__ = ["Alpha", "BoostingLoss", "alpha_in_range", "tuning"]


def tuning(alpha: float) -> float:
    """u = 1/alpha - 1, the exponent of the alpha loss: 0 for cross entropy, 1 for exponential."""
    return -1.0 if math.isinf(alpha) else (1.0 - alpha) / alpha


def alpha_in_range(value: Any, name: str, owner: str) -> float:
    """The check for alpha."""
    alpha = number(value, name, owner)
    if not alpha > 0:
        raise ValueError(f"{owner}: {name} must lie in (0, inf], got {alpha}")
    if alpha < 1e-6:
        raise ValueError(f"{owner}: {name} below 1e-6 overflows at every score, got {alpha}")
    return alpha


class BoostingLoss(MarginLoss):
    """The losses whose phi is e^(-C q) (p^-u - 1)/u: alpha loss (C = 0) and TBL."""

    alpha: float
    kernel: ClassVar[str | None] = "boosting"

    def _damping(self) -> float:
        """C."""
        return 0.0

    def numbers(self) -> tuple[float, ...]:
        """(u, C, k, g, v, r).

        With V = e^(ux - Cq - k) the damped growth e^(ux - Cq) is g V, and the loss is v V - r e^(-Cq). For
        u > 1, k = log u keeps V representable as far as the loss itself; else k = 0. r is 1/u, and 0 for
        u = 0, where the loss is e^(-Cq) x.
        """
        u = tuning(self.alpha)
        inverse = 1 / u if u else 0.0
        if u > 1:
            return u, self._damping(), math.log(u), u, 1.0, inverse
        return u, self._damping(), 0.0, 1.0, inverse, inverse

    @staticmethod
    def phi(
        ops: Ops, m: Array, order: int, u: Any, C: Any, k: Any, g: Any, v: Any, r: Any
    ) -> tuple[Array, ...]:
        """With x = -log p, q = 1 - p, D = e^(-C q) and G = e^(ux - Cq):

        phi = (G - D)/u,    -phi' = q (G - C p phi),    phi'' = q (A G + B phi),
        A = p + u q - 2 C p q,    B = C p (q - p) + C^2 p^2 q.

        """
        x, q = ops.logistic(m)
        damping = ops.exp_of_fraction(-C, q)
        if ops.is_number(u) and 0 < u <= 1:
            # The usual settings, alpha from 1/2 to 1, in the fewest operations: by E = D (e^(ux) - 1), which
            # overflows only where the loss does. G - C p phi is D + (1 - C p/u) E, with p = 1 - q.
            excess = damping * ops.power_excess(m, x, u)
            value = ops.saturate(excess * r)
            if order == 0:
                return (value,)
            if order == 1:
                return value, -ops.saturate(q * (damping + ((1 - C * r) + (C * r) * q) * excess))
            # With F = G - C p phi and phi' = -q F the second derivative shares its factors:
            # q (p F + q (u G - C p (G - phi + F))), four steps less than A and B, and no more cancellation.
            growth = ops.saturate(damping + excess)
            p = ops.sigmoid(m)
            if ops.is_zero(C):
                return value, -ops.saturate(q * growth), ops.finite(q * (growth * (u + (1 - u) * p)))
            damped = C * p
            rest = growth - damped * value
            bend = p * rest + q * (u * growth - damped * (growth - value + rest))
            return value, -ops.saturate(q * rest), ops.finite(q * bend)
        # Any setting, and a tensor of settings. The exponents are added first: e^(ux) alone may overflow
        # before the loss does, and for u < 0 the sum D + E would cancel.
        x = ops.saturate(x)  # or zero times infinity, for u = 0
        t = u * x
        near = damping * (ops.expm1(ops.upper(t, 1.0)) * r + ops.where(u == 0, x, 0.0))
        grown = ops.exp(t - C * q - k)
        value = ops.saturate(ops.where(t < 1, near, grown * v - damping * r))
        if order == 0:
            return (value,)
        growth = g * grown
        # The loss is finite here, so that a p of zero gives zero. C p times it may overflow together with the
        # growth, for a C of hundreds, and one infinity would be taken from another. A small C is spared these
        # steps, a twentieth of the time.
        finite = (lambda term: term) if ops.is_number(C) and C < 8 else ops.finite
        slope = ops.saturate(q * (growth - finite(C * ops.sigmoid(m) * value)))
        if order == 1:
            return value, -slope
        p = ops.sigmoid(m)
        pq = p * q
        plain = u + (1 - u) * p - 2 * C * pq
        damped = p * (C - 2 * C * p + C * C * pq)
        return value, -slope, ops.finite(q * (growth * plain + finite(damped * value)))

    def tail(self) -> Tail:
        return Tail(growth=tuning(self.alpha), decay=1.0, log_pull=-self._damping())

    def _log_phi(self, ops: Ops, m: Array) -> Array:
        """log of e^(-Cq) (e^(ux) - 1)/u, where e^(ux) itself overflows early for large u."""
        u = tuning(self.alpha)
        x, q = ops.logistic(m)
        if u == 0:
            return ops.log(x) - self._damping() * q
        # e^(ux) - 1 is e^(ux) (1 - e^(-ux)) for u > 0; for u < 0 the quotient is (1 - e^(-|u|x))/|u|.
        bounded = ops.log(-ops.expm1(-abs(u) * x)) - math.log(abs(u)) - self._damping() * q
        return u * x + bounded if u > 0 else bounded


@register
@dataclass(frozen=True)
class Alpha(BoostingLoss):
    """Alpha loss (Sypherd et al., 2022): l = (p_y^-u - 1)/u, u = 1/alpha - 1, 0 < alpha <= inf.

    alpha = 1 is cross entropy, 1/2 the exponential loss e^-m, inf the soft 0-1 loss 1 - p_y. Convex
    exactly for alpha <= 1; its link is lambda(z) = z/alpha. At alpha = inf every score has the same
    log-odds, so there is no calibrated probability.

    Saturates at the largest finite number once u (-log p_y) passes the logarithm of that number.

    >>> Alpha(alpha=0.5).value([0.0, 2.0], [1, 1]).round(6).tolist()
    [1.0, 0.135335]
    """

    alpha: float = param(0.8, alpha_in_range, search=(0.5, 0.98))
    name: ClassVar[str] = "alpha"
    formula: ClassVar[str] = "(p^-u - 1)/u, u = 1/alpha - 1"
    convexity: ClassVar[str] = "alpha <= 1"
    link: ClassVar[str] = "z/alpha"
    place: ClassVar[float] = 5
    search_place: ClassVar[float | None] = 2

    @property
    def is_convex(self) -> bool:
        return self.alpha <= 1

    @property
    def has_unique_minimiser(self) -> bool:
        return not math.isinf(self.alpha)

    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        u = tuning(self.alpha)
        return u * ops.softplus(-m) - ops.softplus(m), -ops.sigmoid(m) - u * ops.sigmoid(-m)

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return z / self.alpha

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds * self.alpha
