"""Tunable Boosting Loss, the paper's proposal."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import ClassVar

from . import _parameters as check
from ._arrays import Array, Ops
from ._polynomials import exp_coefficients, power_coefficients
from .alpha import check_alpha, log_gain, tuning
from .errors import NonConvexLossWarning
from .margin import MarginLoss
from .tbl_shape import convex_bound, monotone_bound, unique_bound

__all__ = ["TBL"]


@dataclass(frozen=True)
class TBL(MarginLoss):
    """Tunable Boosting Loss: the alpha loss damped by exp(-C (1 - p_y)), 0 < alpha <= inf, C >= 0.

        l = e^(-C q) (p_y^-u - 1)/u,    q = 1 - p_y,  u = 1/alpha - 1

    C = 0 is the alpha loss. Convex exactly for C <= C_conv(alpha) (a warning above it) and with one
    minimiser for every risk exactly for C < C_uniq(alpha) (refused from there on); every C <= 1.28
    is convex for every alpha <= 1. As z -> -inf, C multiplies the gradient by e^-C and changes
    nothing else: badly misclassified points keep an unbounded influence when alpha < 1.

    Saturates at the largest finite number once u (-log p_y) passes the logarithm of that number.

    >>> TBL(alpha=0.8, C=0.5).value([0.0, 2.0], [1, 1]).round(6).tolist()
    [0.589419, 0.121501]
    """

    alpha: float = 0.8
    C: float = 0.5
    _exponent: float = field(init=False, repr=False, compare=False)
    _power: tuple[float, ...] = field(init=False, repr=False, compare=False)
    _damping: tuple[float, ...] = field(init=False, repr=False, compare=False)
    name: ClassVar[str] = "tbl"
    formula: ClassVar[str] = "exp(-C (1-p)) (p^-u - 1)/u, u = 1/alpha - 1"

    def __post_init__(self) -> None:
        alpha = check_alpha(self.alpha, "TBL")
        C = check.at_least(self.C, 0.0, "C", "TBL")
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "C", C)
        object.__setattr__(self, "_exponent", tuning(alpha))
        object.__setattr__(self, "_power", power_coefficients(self._exponent))
        object.__setattr__(self, "_damping", exp_coefficients(-C))
        if C > 0 and unique_bound(alpha) <= C:
            raise ValueError(
                f"TBL: C must be below C_uniq({alpha}) = {unique_bound(alpha):.6g}, got {C}: from there on "
                "the risk has no unique minimiser, so there is no calibrated probability"
            )
        if not self.is_convex:
            reason = (
                f"alpha={alpha} is above 1"
                if alpha > 1
                else f"C={C} is above C_conv = {convex_bound(alpha):.6g}"
            )
            warnings.warn(f"{self} is not convex in the score: {reason}", NonConvexLossWarning, stacklevel=3)

    @property
    def is_monotone(self) -> bool:
        return monotone_bound(self.alpha) >= self.C

    @property
    def is_convex(self) -> bool:
        return self.alpha <= 1 and convex_bound(self.alpha) >= self.C

    @property
    def has_unique_minimiser(self) -> bool:
        return not math.isinf(self.alpha)

    def _phi(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        u, C = self._exponent, self.C
        x, q = ops.logistic(m)
        damping = ops.exp_of_fraction(-C, q, self._damping)
        if u > 0:
            return self._growing(ops, m, x, q, damping, order)
        # An infinite x would meet a p of zero in the slope.
        gain = ops.expm1(u * x) * (1 / u) if u else ops.saturate(x)
        growth = ops.exp(u * x) if u else 1.0
        value = damping * gain
        if order == 0:
            return (value,)
        p = ops.sigmoid(m)
        slope = q * damping * (growth - C * p * gain)
        if order == 1:
            return value, -slope
        plain, damped = self._bends(p, q)
        return value, -slope, damping * q * (growth * plain + damped * gain)

    def _growing(
        self, ops: Ops, m: Array, x: Array, q: Array, damping: Array, order: int
    ) -> tuple[Array, ...]:
        """For alpha < 1, in terms of e^(-Cq) (e^(ux) - 1), which overflows where p is zero.

        It is factored out, so that no product of the two is formed.
        """
        u, C = self._exponent, self.C
        if u <= 1:
            damped_excess = damping * ops.power_excess(m, x, u, self._power)
            value = ops.saturate(damped_excess * (1 / u))
        else:
            damped_excess, value = self._steep(ops, u * x, q, damping)
        if order == 0:
            return (value,)
        slope = ops.saturate(q * (damping + (1 - C / u + (C / u) * q) * damped_excess))
        if order == 1:
            return value, -slope
        plain, damped = self._bends(ops.sigmoid(m), q)
        return value, -slope, ops.finite(q * (damping * plain + (plain + damped * (1 / u)) * damped_excess))

    def _steep(self, ops: Ops, t: Array, q: Array, damping: Array) -> tuple[Array, Array]:
        """The same for alpha < 1/2, where e^t overflows well before the damped terms do."""
        u, C = self._exponent, self.C
        small = damping * ops.expm1(ops.upper(t, 1.0))
        exponent = t - C * q
        damped_excess = ops.where(t < 1, small, ops.exp(exponent) - damping)
        value = ops.where(t < 1, small * (1 / u), ops.exp(exponent - math.log(u)) - damping * (1 / u))
        return damped_excess, ops.saturate(value)

    def _bends(self, p: Array, q: Array) -> tuple[Array, Array]:
        """The factors of e^(ux) and of the gain in the second derivative."""
        C = self.C
        return p + self._exponent * q - 2 * C * p * q, C * p * (q - p) + C * C * p * p * q

    def _log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        u, C = self._exponent, self.C
        x, q = ops.logistic(m)
        p = ops.sigmoid(m)
        # p r with r = (1 - p^u)/u; past x = 700 p r is zero for u > -1, before it nothing overflows.
        short = ops.upper(x, 700.0)
        fall = ops.exp(-u * short)
        r = -ops.expm1(-u * short) / u if u else short
        rest = 1 - C * p * r
        log_slope = -ops.softplus(m) + u * x - C * q + ops.log(rest)
        return log_slope, -p - u * q + C * p * q - C * p * q * (r - fall) / rest

    def _log_phi(self, ops: Ops, m: Array) -> Array:
        x, q = ops.logistic(m)
        return log_gain(ops, x, self._exponent) - self.C * q

    def _score_start(self, ops: Ops, log_odds: Array) -> Array:
        return self.alpha * (log_odds + self.C * log_odds / (1 + ops.abs(log_odds)))
