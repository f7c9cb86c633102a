"""Focal loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from . import _parameters as check
from ._arrays import Array, Ops
from .cross_entropy import cross_entropy_phi
from .margin import MarginLoss

__all__ = ["Focal"]


@dataclass(frozen=True)
class Focal(MarginLoss):
    """Focal loss (Lin et al., 2017): l = -(1 - p_y)^gamma log p_y, gamma >= 0.

    gamma = 0 is cross entropy; for gamma > 0 it is not convex in the score. Not proper, yet every
    risk has one minimiser, so `probability` is calibrated through its link

        lambda(z) = gamma z + log(p + gamma q s(z)) - log(q + gamma p s(-z)),  s(t) = log(1 + e^t).

    >>> Focal(gamma=2.0).value([0.0, 2.0], [1, 1]).round(6).tolist()
    [0.173287, 0.001804]
    """

    gamma: float = 2.0
    name: ClassVar[str] = "focal"
    formula: ClassVar[str] = "-(1-p)^gamma log p"

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", check.at_least(self.gamma, 0.0, "gamma", "Focal"))

    @property
    def is_convex(self) -> bool:
        return self.gamma == 0

    def _phi(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        g = self.gamma
        if g == 0:
            return cross_entropy_phi(ops, m, order)
        x, q = ops.logistic(m)
        damping = ops.exp(-g * ops.softplus(m))
        if order == 0:
            return (damping * x,)
        p = ops.sigmoid(m)
        # First, so that an x near overflow meets a p of zero and not an infinity; nor may x be one itself.
        px = p * ops.saturate(x)
        value, slope = damping * x, -damping * (q + g * px)
        if order == 1:
            return value, slope
        return value, slope, damping * (q * ((1 + 2 * g) * p - g * px) + g * g * p * px)

    def _log_phi(self, ops: Ops, m: Array) -> Array:
        return -self.gamma * ops.softplus(m) + ops.log(ops.logistic(m)[0])

    def _log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        g = self.gamma
        x, q = ops.logistic(m)
        p = ops.sigmoid(m)
        underflow = q < ops.tiny(q)
        ratio = ops.where(underflow, 1.0, x / ops.where(underflow, 1.0, q))
        share = 1 + g * p * ratio
        log_slope = -(1 + g) * ops.softplus(m) + ops.log(share)
        return log_slope, -g * p + (g * p * x - (1 + g) * p) / share

    def _score_start(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds / (1 + self.gamma)
