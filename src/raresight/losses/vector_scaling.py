"""Vector scaling loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from .contract import Loss
from .cross_entropy import LogisticLoss
from .margin import ClassMap
from .parameters import Check, class_counts, finite, param, positive
from .registry import register

__all__ = ["VectorScaling"]


def _or(default: float | None, check: Check) -> Check:
    return lambda value, name, owner: default if value is None else check(value, name, owner)


@register
@dataclass(frozen=True)
class VectorScaling(LogisticLoss):
    """Vector scaling loss (Kini et al., 2021): cross entropy of logits scaled and shifted by class.

    Binary score, `VectorScaling(delta, delta_neg=1, iota_pos=0, iota_neg=0)`:

        l(1, z) = log(1 + e^(iota_pos - delta z)),   l(0, z) = log(1 + e^(iota_neg + delta_neg z)).

    The paper's form has delta alone; logit adjustment by tau is iota_pos = -tau log rho and
    iota_neg = tau log rho. Class logits, `VectorScaling(class_counts=(...), tau=1.25, gamma=0.2)`:

        l = CE(D * f + iota),   D_y = (n_y / n_max)^gamma,   iota_y = tau log(n_y / n).

    Convex for every parameter.

    >>> VectorScaling(0.5).value([2.0, 2.0], [1, 0]).round(6).tolist()
    [0.313262, 2.126928]
    """

    delta: float | None = param(None, _or(None, positive), search=(0.05, 0.95), search_from=0.5)
    _: KW_ONLY
    delta_neg: float = param(1.0, positive)
    iota_pos: float = param(0.0, finite)
    iota_neg: float = param(0.0, finite)
    class_counts: tuple[float, ...] | None = param(None, _or(None, class_counts))
    # None stands for 1.25, and for 1 where it adjusts a binary score: torch's function has one tau for both.
    tau: float | None = param(None, _or(1.25, finite))
    gamma: float = param(0.2, finite)
    name: ClassVar[str] = "vectorscaling"
    aliases: ClassVar[tuple[str, ...]] = ("vs",)
    torch_name: ClassVar[str] = "VS"
    score_form: ClassVar[str] = "'vectorscaling(delta=...)', delta a number above 0"
    formula: ClassVar[str] = "log(1 + exp(iota_y - delta_y m))"
    link: ClassVar[str] = "s(delta z - iota_1) - s(-(delta_neg z + iota_0)) + log(delta_neg/delta)"
    place: ClassVar[float] = 7
    search_place: ClassVar[float | None] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.delta is None) == (self.class_counts is None):
            raise ValueError(
                "VectorScaling: give either delta (binary score) or class_counts (class logits), as "
                "'vectorscaling(delta=0.5)' or 'vectorscaling(class_counts=(9900,100))'"
            )

    @classmethod
    def from_counts(
        cls, class_counts: Sequence[float] | Any, tau: float = 1.25, gamma: float = 0.2
    ) -> VectorScaling:
        """The loss for K class logits, from the K class counts."""
        counts: Any = class_counts  # what the check makes a tuple of
        return cls(class_counts=counts, tau=tau, gamma=gamma)

    @classmethod
    def example(cls) -> VectorScaling:
        return cls(0.5)

    @classmethod
    def with_prior(cls, prior: Any, tau: float, /, **parameters: Any) -> Loss:
        # In the form by class counts tau is a parameter of the loss, else that of the adjustment.
        if parameters.get("class_counts") is None:
            adjusted = parameters.pop("tau", None)
            return super().with_prior(prior, tau if adjusted is None else adjusted, **parameters)
        if prior is not None:
            raise ValueError(
                "vector scaling by class_counts adjusts the logits itself, by tau: leave prior out"
            )
        return cls(**parameters)

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
        assert self.tau is not None
        largest, total = max(self.class_counts), sum(self.class_counts)
        return ClassMap(
            scales=tuple((n / largest) ** self.gamma for n in self.class_counts),
            shifts=tuple(self.tau * math.log(n / total) for n in self.class_counts),
            margins=(0.0,) * len(self.class_counts),
        )
