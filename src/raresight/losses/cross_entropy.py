"""Cross entropy, the loss all others are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ._arrays import Array, Ops
from .margin import MarginLoss

__all__ = ["CrossEntropy"]


def cross_entropy_phi(ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
    x, q = ops.logistic(m)
    if order == 0:
        return (x,)
    if order == 1:
        return x, -q
    return x, -q, q * ops.sigmoid(m)


def cross_entropy_log_slope(ops: Ops, m: Array) -> tuple[Array, Array]:
    return -ops.softplus(m), -ops.sigmoid(m)


@dataclass(frozen=True)
class CrossEntropy(MarginLoss):
    """Cross entropy (log loss): l = -log p_y = log(1 + e^-m).

    Convex, proper; its link is the identity: the score is the log-odds.

    >>> CrossEntropy().value([0.0, 2.0], [1, 1]).round(6).tolist()
    [0.693147, 0.126928]
    """

    name: ClassVar[str] = "crossentropy"
    formula: ClassVar[str] = "-log p"

    def _phi(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        return cross_entropy_phi(ops, m, order)

    def _log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        return cross_entropy_log_slope(ops, m)

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return z

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds
