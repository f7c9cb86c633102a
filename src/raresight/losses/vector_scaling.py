"""Vector scaling loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from . import _parameters as check
from ._arrays import Array, Ops
from .cross_entropy import cross_entropy_log_slope, cross_entropy_phi
from .margin import ClassMap, MarginLoss

__all__ = ["VectorScaling"]


@dataclass(frozen=True, init=False)
class VectorScaling(MarginLoss):
    """Vector scaling loss (Kini et al., 2021): cross entropy of logits scaled and shifted by class.

    Binary score, `VectorScaling(delta, delta_neg=1, iota_pos=0, iota_neg=0)`:

        l(1, z) = log(1 + e^(iota_pos - delta z)),   l(0, z) = log(1 + e^(iota_neg + delta_neg z)).

    The paper's form has delta alone; logit adjustment by tau is iota_pos = -tau log rho and
    iota_neg = tau log rho. Class logits, `VectorScaling.from_counts(class_counts, tau, gamma)`:

        l = CE(D * f + iota),   D_y = (n_y / n_max)^gamma,   iota_y = tau log(n_y / n).

    Convex for every parameter.

    >>> VectorScaling(0.5).value([2.0, 2.0], [1, 0]).round(6).tolist()
    [0.313262, 2.126928]
    """

    delta: float | None = None
    delta_neg: float = 1.0
    iota_pos: float = 0.0
    iota_neg: float = 0.0
    class_counts: tuple[float, ...] | None = None
    tau: float = 1.25
    gamma: float = 0.2
    name: ClassVar[str] = "vectorscaling"
    formula: ClassVar[str] = "log(1 + exp(iota_y - delta_y m))"

    def __init__(
        self, delta: float, *, delta_neg: float = 1.0, iota_pos: float = 0.0, iota_neg: float = 0.0
    ) -> None:
        owner = "VectorScaling"
        self._set(
            delta=check.positive(delta, "delta", owner),
            delta_neg=check.positive(delta_neg, "delta_neg", owner),
            iota_pos=check.finite(iota_pos, "iota_pos", owner),
            iota_neg=check.finite(iota_neg, "iota_neg", owner),
        )

    @classmethod
    def from_counts(
        cls, class_counts: Sequence[float] | Any, tau: float = 1.25, gamma: float = 0.2
    ) -> VectorScaling:
        """The loss for K class logits, from the K class counts."""
        owner = "VectorScaling.from_counts"
        loss = object.__new__(cls)
        loss._set(
            class_counts=check.counts(class_counts, owner),
            tau=check.finite(tau, "tau", owner),
            gamma=check.finite(gamma, "gamma", owner),
        )
        return loss

    def _set(self, **values: Any) -> None:
        for key, value in values.items():
            object.__setattr__(self, key, value)

    @property
    def takes_score(self) -> bool:
        return self.class_counts is None

    @property
    def n_classes(self) -> int | None:
        return 1 if self.class_counts is None else len(self.class_counts)

    def parameters(self) -> dict[str, Any]:
        score, logits = ("delta", "delta_neg", "iota_pos", "iota_neg"), ("class_counts", "tau", "gamma")
        return {key: getattr(self, key) for key in (score if self.takes_score else logits)}

    def _label_map(self, label: int) -> tuple[float, float]:
        assert self.delta is not None
        return (self.delta, self.iota_pos) if label else (self.delta_neg, self.iota_neg)

    def _class_map(self) -> ClassMap:
        assert self.class_counts is not None
        largest, total = max(self.class_counts), sum(self.class_counts)
        return ClassMap(
            scales=tuple((n / largest) ** self.gamma for n in self.class_counts),
            shifts=tuple(self.tau * math.log(n / total) for n in self.class_counts),
            margins=(0.0,) * len(self.class_counts),
        )

    def _phi(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        return cross_entropy_phi(ops, m, order)

    def _log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        return cross_entropy_log_slope(ops, m)
