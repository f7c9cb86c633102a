"""Logit adjustment: any loss of the score plus tau times the log prior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .contract import Array, ComposedLoss, Loss, NormalForm, Ops
from .parameters import finite, number, numbers, param
from .registry import parse, register
from .tails import Tail

__all__ = ["LogitAdjusted"]


def _prior(prior: Any, name: str, owner: str) -> float | tuple[float, ...]:
    """Check P(y=1) as a float, or one prior per class."""
    if getattr(prior, "ndim", None) == 0 or isinstance(prior, (int, float)):
        single = number(prior, name, owner)
        if not 0 < single < 1:
            raise ValueError(f"{owner}: {name} must lie strictly between 0 and 1, got {single}")
        return single
    several = numbers(prior, name, owner)
    if len(several) < 2 or abs(sum(several) - 1) > 1e-6:
        raise ValueError(f"{owner}: class priors must be at least 2 numbers that sum to one, got {several}")
    return several


@register
@dataclass(frozen=True)
class LogitAdjusted(ComposedLoss):
    """Logit adjustment (Menon et al., 2021) of any loss: the base loss of logits plus tau log prior.

    Binary score: base(z + tau log rho), rho = prior/(1 - prior), with `prior` = P(y=1) a float.
    Class logits: base(f + tau log prior), with one prior per class. With tau = 1 the raw scores rank
    classes as if they were equally frequent. `probability` stays calibrated.

    >>> from raresight.losses import CrossEntropy
    >>> LogitAdjusted(CrossEntropy(), prior=0.5).value([0.0], [1]).round(6).tolist()
    [0.693147]
    """

    base: Loss
    prior: float | tuple[float, ...] = param(check=_prior)
    tau: float = param(1.0, finite)
    name: ClassVar[str] = "logitadjusted"
    aliases: ClassVar[tuple[str, ...]] = ("la",)
    formula: ClassVar[str] = "base(z + tau log rho), rho = prior/(1-prior)"
    convexity: ClassVar[str] = "as base"
    link: ClassVar[str] = "base's at z + tau log rho"
    place: ClassVar[float] = 9

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_base(len(self.class_priors), "priors")

    @classmethod
    def example(cls) -> LogitAdjusted:
        return cls(parse("crossentropy"), prior=0.01)

    @property
    def class_priors(self) -> tuple[float, ...]:
        """P(y=k) for each class; (1 - prior, prior) where a float was given."""
        return self.prior if isinstance(self.prior, tuple) else (1 - self.prior, self.prior)

    @property
    def takes_score(self) -> bool:
        return self.base.takes_score and len(self.class_priors) == 2

    @property
    def n_classes(self) -> int | None:
        return self._classes_with(len(self.class_priors))

    @property
    def shift(self) -> float:
        """tau log rho, which is added to a binary score."""
        negative, positive = self.class_priors
        # Two logarithms, because the quotient of tiny priors may overflow.
        return self.tau * (math.log(positive) - math.log(negative))

    # `finite` after each shift: the largest score plus a shift may be infinite, and infinity less infinity in
    # the base loss would be NaN.

    def _labelled(self, ops: Ops, z: Array, y: Array, order: int) -> tuple[Array, ...]:
        return self.base._labelled(ops, ops.finite(z + self.shift), y, order)

    def _branch(self, ops: Ops, z: Array, label: int, order: int) -> tuple[Array, ...]:
        return self.base._branch(ops, ops.finite(z + self.shift), label, order)

    def _log_slopes(self, ops: Ops, z: Array, label: int) -> tuple[Array, Array]:
        return self.base._log_slopes(ops, ops.finite(z + self.shift), label)

    def _log_value(self, ops: Ops, z: Array, label: int) -> Array:
        return self.base._log_value(ops, ops.finite(z + self.shift), label)

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return self.base._log_odds(ops, ops.finite(z + self.shift))

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        return self.base._score(ops, log_odds) - self.shift

    def _class_terms(self, ops: Ops, f: Array, y: Array, order: int) -> tuple[Array, ...]:
        return self.base._class_terms(ops, self._adjust(ops, f), y, order)

    def _class_hessian(self, ops: Ops, f: Array, y: Array) -> Array:
        return self.base._class_hessian(ops, self._adjust(ops, f), y)

    def _class_hvp(self, ops: Ops, f: Array, y: Array, u: Array) -> Array:
        return self.base._class_hvp(ops, self._adjust(ops, f), y, u)

    def _class_expected_hvp(self, ops: Ops, f: Array, shares: Array, u: Array) -> Array:
        return self.base._class_expected_hvp(ops, self._adjust(ops, f), shares, u)

    def _class_expected(self, ops: Ops, f: Array, shares: Array) -> tuple[Array, Array]:
        return self.base._class_expected(ops, self._adjust(ops, f), shares)

    def _class_log_posterior(self, ops: Ops, f: Array) -> Array:
        return self.base._class_log_posterior(ops, self._adjust(ops, f))

    def tail(self) -> Tail | None:
        base = self.base.tail()
        return None if base is None else base.shifted(self.shift)

    def normal_form(self, outputs: int = 1) -> NormalForm | None:
        base = self.base.normal_form(outputs)
        return None if base is None else base.shifted(self._shifts(outputs))

    def _shifts(self, outputs: int) -> tuple[float, ...]:
        """Return the numbers added to the score under either label, or to each of K logits."""
        # A binary score is one number, so both labels see the same shift; the margin turns its sign.
        if outputs == 1:
            return self.shift, self.shift
        return tuple(self.tau * math.log(prior) for prior in self.class_priors)

    def _adjust(self, ops: Ops, f: Array) -> Array:
        axis = ops.class_axis(f)
        return ops.finite(f + ops.per_class(self._shifts(len(self.class_priors)), f, axis))
