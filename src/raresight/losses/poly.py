"""Poly-1 loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .margin import Array, MarginLoss, Ops
from .parameters import finite, param
from .registry import register
from .tails import Tail

__all__ = ["Poly"]

# Below, x + epsilon q cancels where q is small.
_NEAR_MINUS_ONE = -0.9


def _epsilon(value: Any, name: str, owner: str) -> float:
    epsilon = finite(value, name, owner)
    if epsilon < -1:
        raise ValueError(
            f"{owner}: {name} must be at least -1, got {epsilon}: below, the loss is not monotone "
            "in the score and its risk has no unique minimiser"
        )
    return epsilon


@register
@dataclass(frozen=True)
class Poly(MarginLoss):
    """Poly-1 loss (Leng et al., 2022): l = -log p_y + epsilon (1 - p_y), epsilon >= -1.

    Convex exactly for epsilon <= 1; below -1 the loss would rise with the margin and is refused.

    >>> Poly(epsilon=1.0).value([0.0, 2.0], [1, 1]).round(6).tolist()
    [1.193147, 0.246131]
    """

    epsilon: float = param(1.0, _epsilon, search=(-0.9, 3.0))
    name: ClassVar[str] = "poly"
    formula: ClassVar[str] = "-log p + epsilon (1-p)"
    convexity: ClassVar[str] = "epsilon <= 1"
    link: ClassVar[str] = "z + log(1 + epsilon q) - log(1 + epsilon p)"
    place: ClassVar[float] = 4
    search_place: ClassVar[float | None] = 4
    kernel: ClassVar[str | None] = "poly"

    @property
    def is_convex(self) -> bool:
        return self.epsilon <= 1

    def numbers(self) -> tuple[float, ...]:
        """(c, d, f) and (a, b_p, b_q) of

            phi = c x + d q + f (x - q),   -phi' = q (c + d p + f q),   phi'' = p q (a + b_p p + b_q q),

        None of these loses digits. f is not zero where x and epsilon q would cancel. a + b_p p + b_q q is
        1 + epsilon (p - q), written so that a nearly vanishing number is not a difference.
        """
        e = self.epsilon
        bend = (1 - e, 2 * e, 0.0) if e >= 0 else (1 + e, 0.0, -2 * e)
        return (1.0, e, 0.0, *bend) if e > _NEAR_MINUS_ONE else (1 + e, 0.0, -e, *bend)

    @staticmethod
    def phi(
        ops: Ops, m: Array, order: int, c: Any, d: Any, f: Any, a: Any, b_p: Any, b_q: Any
    ) -> tuple[Array, ...]:
        x, q = ops.logistic(m)
        value = d * q
        if not ops.is_zero(f):
            value = value + f * _excess(ops, x, q)
        if not ops.is_zero(c):  # or zero times infinity
            value = ops.saturate(value + c * x)
        if order == 0:
            return (value,)
        p = ops.sigmoid(m)
        slope = -q * (c + d * p + f * q)
        if order == 1:
            return value, slope
        return value, slope, p * q * (a + b_p * p + b_q * q)

    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        _, q = ops.logistic(m)
        p = ops.sigmoid(m)
        stretch = self._stretch(p, q)
        if self.epsilon == -1:  # 1 + e p is q, whose logarithm is known without forming it
            return -2 * ops.softplus(m), -2 * p
        return -ops.softplus(m) + ops.log(stretch), -p + self.epsilon * p * q / stretch

    def tail(self) -> Tail:
        # At epsilon = -1 the slope q (1 + epsilon p) is q^2: another order of decay.
        if self.epsilon == -1:
            return Tail(growth=0.0, decay=2.0)
        return Tail(growth=0.0, decay=1.0, log_push=math.log1p(self.epsilon))

    def _stretch(self, p: Array, q: Array) -> Array:
        """1 + e p, written as (1 + e) - e q where e is negative: it may vanish as p nears 1."""
        e = self.epsilon
        return 1 + e * p if e >= 0 else (1 + e) - e * q

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        """p = 2 eta / (1 + k + sqrt((1 + k)^2 - 4 k eta)), k = e (1 - 2 eta); q by symmetry."""
        if self.epsilon == -1:
            return log_odds / 2
        if self.epsilon < -0.9:  # the root loses its digits as 1 + e vanishes
            return super()._score(ops, log_odds)
        eta, other = ops.sigmoid(log_odds), ops.sigmoid(-log_odds)
        return log_odds + ops.log(self._root(ops, other, eta)) - ops.log(self._root(ops, eta, other))

    def _root(self, ops: Ops, eta: Array, other: Array) -> Array:
        k = self.epsilon * (other - eta)
        lead = 1 + k if self.epsilon >= 0 else (1 + self.epsilon) - 2 * self.epsilon * eta
        root = ops.sqrt(lead * lead - 4 * k * eta)
        # Below zero the lead nearly cancels the root; their product with the conjugate does not.
        return ops.where(lead >= 0, lead + root, -4 * k * eta / (root - lead))


def _excess(ops: Ops, x: Array, q: Array) -> Array:
    """x - q for x = -log(1 - q), to full relative precision.

    With s = q/(2 - q), x = 2 artanh(s), hence x - q = q^2/(2 - q) + 2 s^3 (1/3 + s^2/5 + ...).
    """
    small = ops.where(q < 0.5, q, 0.0)
    s = small / (2 - small)
    square = s * s
    series = 0.0
    for k in range(17, 0, -1):
        series = 1 / (2 * k + 1) + square * series
    return ops.where(q < 0.5, small * s + 2 * s * square * series, x - q)
