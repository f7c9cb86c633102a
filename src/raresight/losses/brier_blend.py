"""A blend of cross entropy and the squared loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .margin import Array, MarginLoss, Ops
from .parameters import param, positive
from .registry import register
from .tails import Tail

__all__ = ["BrierBlend"]


@register
@dataclass(frozen=True)
class BrierBlend(MarginLoss):
    """Cross entropy with a share of the squared loss: l = -log p_y + c (1 - p_y)^2, c > 0.

    Proper, as both terms are, with the same link, the identity. Convex exactly for c <= 1/2.

    >>> BrierBlend(c=1.0).value([0.0, 2.0], [1, 1]).round(6).tolist()
    [0.943147, 0.141137]
    """

    c: float = param(1.0, positive, search=(0.1, 4.0), log=True)
    name: ClassVar[str] = "brierblend"
    formula: ClassVar[str] = "-log p + c (1-p)^2"
    convexity: ClassVar[str] = "c <= 1/2"
    link: ClassVar[str] = "z"

    @property
    def is_convex(self) -> bool:
        return self.c <= 0.5

    def numbers(self) -> tuple[float, ...]:
        return (self.c,)

    @staticmethod
    def phi(ops: Ops, m: Array, order: int, c: Any) -> tuple[Array, ...]:
        x, q = ops.logistic(m)
        value = x + c * q * q
        if order == 0:
            return (value,)
        p = ops.sigmoid(m)
        slope = -q * (1 + 2 * c * p * q)
        if order == 1:
            return value, slope
        return value, slope, p * q * (1 + 2 * c * q * (2 * p - q))

    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        p, q = ops.sigmoid(m), ops.sigmoid(-m)
        stretch = 1 + 2 * self.c * p * q
        return -ops.softplus(m) + ops.log(stretch), -p + 2 * self.c * p * q * (q - p) / stretch

    def tail(self) -> Tail:
        # The squared term vanishes on both sides faster than cross entropy does.
        return Tail(growth=0.0, decay=1.0)

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return z

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds
