"""Cross entropy, the loss all others are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from .margin import Array, MarginLoss, Ops
from .registry import register
from .tails import Tail

__all__ = ["CrossEntropy", "LogisticLoss"]


class LogisticLoss(MarginLoss):
    """The losses whose phi is that of cross entropy; they differ in the map from score to margin."""

    kernel: ClassVar[str | None] = "logistic"

    @staticmethod
    def phi(ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        """x = -log p, with the derivatives -q and p q."""
        x, q = ops.logistic(m)
        if order == 0:
            return (x,)
        if order == 1:
            return x, -q
        return x, -q, q * ops.sigmoid(m)

    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        return -ops.softplus(m), -ops.sigmoid(m)


@register
@dataclass(frozen=True)
class CrossEntropy(LogisticLoss):
    """Cross entropy (log loss): l = -log p_y = log(1 + e^-m).

    Convex, proper; its link is the identity: the score is the log-odds.

    >>> CrossEntropy().value([0.0, 2.0], [1, 1]).round(6).tolist()
    [0.693147, 0.126928]
    """

    name: ClassVar[str] = "crossentropy"
    aliases: ClassVar[tuple[str, ...]] = ("ce", "bce")
    formula: ClassVar[str] = "-log p"
    link: ClassVar[str] = "z"
    place: ClassVar[float] = 0
    torch_name: ClassVar[str] = "CE"

    def tail(self) -> Tail:
        return Tail(growth=0.0, decay=1.0)

    def _log_odds(self, ops: Any, z: Array) -> Array:
        return z

    def _score(self, ops: Any, log_odds: Array) -> Array:
        return log_odds
