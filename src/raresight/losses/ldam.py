"""Label-distribution-aware margin loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from . import _parameters as check
from ._arrays import Array, Ops
from .cross_entropy import cross_entropy_log_slope, cross_entropy_phi
from .margin import ClassMap, MarginLoss

__all__ = ["LDAM"]


@dataclass(frozen=True)
class LDAM(MarginLoss):
    """LDAM (Cao et al., 2019): cross entropy with a larger margin for a rarer class.

        l = CE(S (f - m_y e_y)),   m_y = max_margin n_y^(-1/4) / max_j n_j^(-1/4),   S = scale.

    `class_counts` are (n_neg, n_pos) for a binary score z = f_1 - f_0, or K counts for K logits.
    Made for cosine logits (`raresight.nn.NormedLinear`), which lie in [-1, 1]. Convex.

    >>> LDAM((9900, 100)).value([0.5, 0.5], [1, 0]).round(6).tolist()
    [0.693147, 19.75535]
    """

    class_counts: tuple[float, ...]
    max_margin: float = 0.5
    scale: float = 30.0
    name: ClassVar[str] = "ldam"
    formula: ClassVar[str] = "log(1 + exp(-scale (m - margin_y)))"

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_counts", check.counts(self.class_counts, "LDAM"))
        object.__setattr__(self, "max_margin", check.at_least(self.max_margin, 0.0, "max_margin", "LDAM"))
        object.__setattr__(self, "scale", check.positive(self.scale, "scale", "LDAM"))

    @property
    def margins(self) -> tuple[float, ...]:
        """The margin of each class; the rarest has `max_margin`."""
        rarest = min(self.class_counts)
        return tuple(self.max_margin * (rarest / n) ** 0.25 for n in self.class_counts)

    @property
    def takes_score(self) -> bool:
        return len(self.class_counts) == 2

    @property
    def n_classes(self) -> int | None:
        return len(self.class_counts)

    def _label_map(self, label: int) -> tuple[float, float]:
        return self.scale, self.scale * self.margins[label]

    def _class_map(self) -> ClassMap:
        n = len(self.class_counts)
        return ClassMap(
            scales=(self.scale,) * n,
            shifts=(0.0,) * n,
            margins=tuple(self.scale * margin for margin in self.margins),
        )

    def _phi(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        return cross_entropy_phi(ops, m, order)

    def _log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        return cross_entropy_log_slope(ops, m)

    def _score_start(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds / self.scale
