"""Poly-1 loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from . import _parameters as check
from ._arrays import Array, Ops
from .margin import MarginLoss

__all__ = ["Poly"]


@dataclass(frozen=True)
class Poly(MarginLoss):
    """Poly-1 loss (Leng et al., 2022): l = -log p_y + epsilon (1 - p_y), epsilon >= -1.

    Convex exactly for epsilon <= 1; below -1 the loss would rise with the margin and is refused.

    >>> Poly(epsilon=1.0).value([0.0, 2.0], [1, 1]).round(6).tolist()
    [1.193147, 0.246131]
    """

    epsilon: float = 1.0
    name: ClassVar[str] = "poly"
    formula: ClassVar[str] = "-log p + epsilon (1-p)"

    def __post_init__(self) -> None:
        epsilon = check.finite(self.epsilon, "epsilon", "Poly")
        if epsilon < -1:
            raise ValueError(
                f"Poly: epsilon must be at least -1, got {epsilon}: below, the loss is not monotone "
                "in the score and its risk has no unique minimiser"
            )
        object.__setattr__(self, "epsilon", epsilon)

    @property
    def is_convex(self) -> bool:
        return self.epsilon <= 1

    def _phi(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        e = self.epsilon
        x, q = ops.logistic(m)
        if e > -0.9:
            value = x + e * q
        else:  # the two terms cancel; (1 + e) x - e (x - q) does not
            value = -e * _excess(ops, x, q)
            if e > -1:
                value = value + (1 + e) * x
        if order == 0:
            return (value,)
        p = ops.sigmoid(m)
        slope = -q * self._stretch(p, q)
        if order == 1:
            return value, slope
        # 1 + e (p - q) in the form that keeps its digits where it nearly vanishes.
        bend = (1 - e) + 2 * e * p if e >= 0 else (1 + e) - 2 * e * q
        return value, slope, p * q * bend

    def _log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        _, q = ops.logistic(m)
        p = ops.sigmoid(m)
        stretch = self._stretch(p, q)
        if self.epsilon == -1:  # 1 + e p is q, whose logarithm is known without forming it
            return -2 * ops.softplus(m), -2 * p
        return -ops.softplus(m) + ops.log(stretch), -p + self.epsilon * p * q / stretch

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
        return lead + ops.sqrt(lead * lead - 4 * k * eta)


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
