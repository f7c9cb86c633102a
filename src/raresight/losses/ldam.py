"""Label-distribution-aware margin loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .cross_entropy import LogisticLoss
from .margin import Array, ClassMap, Ops
from .parameters import at_least, class_counts, param, positive
from .registry import register

__all__ = ["LDAM"]


@register
@dataclass(frozen=True)
class LDAM(LogisticLoss):
    """LDAM (Cao et al., 2019): cross entropy with a larger margin for a rarer class.

        l = CE(S (f - m_y e_y)),   m_y = max_margin n_y^(-1/4) / max_j n_j^(-1/4),   S = scale.

    `class_counts` are (n_neg, n_pos) for a binary score z = f_1 - f_0, or K counts for K logits.
    Made for cosine logits (`raresight.nn.NormedLinear`), which lie in [-1, 1]. Convex.

    >>> LDAM((9900, 100)).value([0.5, 0.5], [1, 0]).round(6).tolist()
    [0.693147, 19.75535]
    """

    class_counts: tuple[float, ...] = param(check=class_counts)
    max_margin: float = param(0.5, at_least(0.0), search=(0.1, 3.0), log=True)
    scale: float = param(30.0, positive)
    name: ClassVar[str] = "ldam"
    formula: ClassVar[str] = "log(1 + exp(-scale (m - margin_y)))"
    link: ClassVar[str] = "s(scale (z - margin_1)) - s(-scale (z + margin_0))"
    place: ClassVar[float] = 8
    search_place: ClassVar[float | None] = 6

    @classmethod
    def example(cls) -> LDAM:
        return cls((9900, 100))

    @classmethod
    def for_search(cls, values: Mapping[str, float], class_counts: Sequence[float]) -> LDAM:
        # The scale of 30 is for cosine logits; the scores of linear models and trees are free.
        return cls(tuple(class_counts), **values, scale=1.0)

    @property
    def prefers_deferred_weights(self) -> bool:
        return True

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

    def _score_start(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds / self.scale
