"""Focal loss."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .margin import Array, MarginLoss, Ops
from .parameters import at_least, param
from .registry import register
from .tails import Tail

__all__ = ["Focal"]


@register
@dataclass(frozen=True)
class Focal(MarginLoss):
    """Focal loss (Lin et al., 2017): l = -(1 - p_y)^gamma log p_y, gamma >= 0.

    gamma = 0 is cross entropy; for gamma > 0 it is not convex in the score. Not proper, yet every
    risk has one minimiser, so `probability` is calibrated through its link

        lambda(z) = gamma z + log(p + gamma q s(z)) - log(q + gamma p s(-z)),  s(t) = log(1 + e^t).

    >>> Focal(gamma=2.0).value([0.0, 2.0], [1, 1]).round(6).tolist()
    [0.173287, 0.001804]
    """

    gamma: float = param(2.0, at_least(0.0), search=(0.25, 4.0))
    name: ClassVar[str] = "focal"
    aliases: ClassVar[tuple[str, ...]] = ("fl",)
    formula: ClassVar[str] = "-(1-p)^gamma log p"
    convexity: ClassVar[str] = "gamma = 0"
    link: ClassVar[str] = "gamma z + log(p + gamma q s(z)) - log(q + gamma p s(-z))"
    place: ClassVar[float] = 3
    search_place: ClassVar[float | None] = 3
    kernel: ClassVar[str | None] = "focal"

    @property
    def is_convex(self) -> bool:
        return self.gamma == 0

    def numbers(self) -> tuple[float, ...]:
        return (self.gamma,)

    @staticmethod
    def phi(ops: Ops, m: Array, order: int, g: Any) -> tuple[Array, ...]:
        x, q = ops.logistic(m)
        # q^gamma, also where q itself underflows; for gamma = 0, zero times infinity would be NaN.
        damping = 1.0 if ops.is_zero(g) else ops.exp(-g * ops.softplus(m))
        if order == 0:
            return (damping * x,)
        p = ops.sigmoid(m)
        # First, so that an x near overflow meets a p of zero and not an infinity; nor may x be one itself.
        px = p * ops.saturate(x)
        value, slope = damping * x, -damping * (q + g * px)
        if order == 1:
            return value, slope
        return value, slope, damping * (q * ((1 + 2 * g) * p - g * px) + g * g * p * px)

    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        g = self.gamma
        x, q = ops.logistic(m)
        p = ops.sigmoid(m)
        # -phi' = q^(1+gamma) (1 + gamma p x/q); x/q tends to 1 where both underflow.
        underflow = q < ops.tiny(q)
        ratio = ops.where(underflow, 1.0, x / ops.where(underflow, 1.0, q))
        share = 1 + g * p * ratio
        log_slope = -(1 + g) * ops.softplus(m) + ops.log(share)
        return log_slope, -g * p + (g * p * x - (1 + g) * p) / share

    def tail(self) -> Tail:
        # -phi'(m) = q^gamma (q + gamma p x) ~ (1 + gamma) e^(-(1 + gamma) m) as m -> inf.
        return Tail(growth=0.0, decay=1 + self.gamma, log_push=math.log1p(self.gamma))

    def _log_phi(self, ops: Ops, m: Array) -> Array:
        return -self.gamma * ops.softplus(m) + ops.log(ops.logistic(m)[0])

    def _score_start(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds / (1 + self.gamma)
