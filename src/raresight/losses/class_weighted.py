"""Class weights on any loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .contract import Array, ComposedLoss, Loss, NormalForm, Ops
from .margin import log_normalise
from .parameters import class_counts as counts_of
from .parameters import number, numbers, param
from .registry import parse, register
from .tails import Tail

__all__ = ["ClassWeighted", "effective_number_weights"]


def effective_number_weights(class_counts: Sequence[float] | Any, beta: float = 0.9999) -> tuple[float, ...]:
    """Return class weights by the effective number of samples (Cui et al., 2019), scaled to mean one.

        w_y proportional to (1 - beta)/(1 - beta^n_y),   0 <= beta < 1

    beta = 0 gives every class the same weight; beta -> 1 gives it the inverse of its count.

    >>> [round(w, 4) for w in effective_number_weights((5000, 50))]
    [0.025, 1.975]
    """
    counts = counts_of(class_counts, "class_counts", "effective_number_weights")
    beta = number(beta, "beta", "effective_number_weights")
    if not 0 <= beta < 1:
        raise ValueError(f"effective_number_weights: beta must lie in [0, 1), got {beta}")
    if beta == 0:
        return (1.0,) * len(counts)
    # expm1 keeps the digits of 1 - beta^n, which would cancel for beta near one and small n.
    raw = [(1 - beta) / -math.expm1(n * math.log(beta)) for n in counts]
    mean = sum(raw) / len(raw)
    return tuple(w / mean for w in raw)


def _weights(weights: Any, name: str, owner: str) -> tuple[float, ...]:
    result = numbers(weights, name, owner)
    if len(result) < 2:
        raise ValueError(f"{owner}: at least 2 {name} are needed, got {len(result)}")
    return result


@register
@dataclass(frozen=True)
class ClassWeighted(ComposedLoss):
    """Any loss with a weight for each class: w_y base(y, z).

    `weights` are (w_neg, w_pos) for a binary score, or K weights for K logits. The link undoes the
    weights, lambda(z) = lambda_base(z) - log(w_pos/w_neg), so probabilities stay calibrated.

    >>> from raresight.losses import CrossEntropy
    >>> ClassWeighted(CrossEntropy(), (1.0, 10.0)).value([0.0, 0.0], [0, 1]).round(6).tolist()
    [0.693147, 6.931472]
    """

    base: Loss
    weights: tuple[float, ...] = param(check=_weights)
    name: ClassVar[str] = "classweighted"
    formula: ClassVar[str] = "weight_y base(y, z)"
    convexity: ClassVar[str] = "as base"
    link: ClassVar[str] = "base's, less log(w_pos/w_neg)"
    place: ClassVar[float] = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_base(len(self.weights), "weights")

    @classmethod
    def example(cls) -> ClassWeighted:
        return cls(parse("crossentropy"), (1.0, 99.0))

    @property
    def takes_score(self) -> bool:
        return self.base.takes_score and len(self.weights) == 2

    @property
    def n_classes(self) -> int | None:
        return self._classes_with(len(self.weights))

    # The base loss has saturated its own terms, so weights multiply finite numbers. Only the product can
    # leave the range, and `finite` is needed once more. Inside the base a weight would meet infinities.

    def _labelled(self, ops: Ops, z: Array, y: Array, order: int) -> tuple[Array, ...]:
        weight = ops.choose(y, self.weights[1], self.weights[0])
        return tuple(ops.finite(weight * term) for term in self.base._labelled(ops, z, y, order))

    def _branch(self, ops: Ops, z: Array, label: int, order: int) -> tuple[Array, ...]:
        weight = self.weights[label]
        return tuple(ops.finite(weight * term) for term in self.base._branch(ops, z, label, order))

    def _log_slopes(self, ops: Ops, z: Array, label: int) -> tuple[Array, Array]:
        # A sum of logarithms stays accurate where the slope itself overflows or underflows.
        log_slope, derivative = self.base._log_slopes(ops, z, label)
        return log_slope + math.log(self.weights[label]), derivative

    def _log_value(self, ops: Ops, z: Array, label: int) -> Array:
        return self.base._log_value(ops, z, label) + math.log(self.weights[label])

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return self.base._log_odds(ops, z) - math.log(self.weights[1] / self.weights[0])

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        return self.base._score(ops, log_odds + math.log(self.weights[1] / self.weights[0]))

    def tail(self) -> Tail | None:
        base = self.base.tail()
        return None if base is None else base.weighted(*self.weights)

    def normal_form(self, outputs: int = 1) -> NormalForm | None:
        base = self.base.normal_form(outputs)
        return None if base is None else base.weighted(self.weights)

    def _class_terms(self, ops: Ops, f: Array, y: Array, order: int) -> tuple[Array, ...]:
        axis = ops.class_axis(f)
        weight = ops.number_at_label(self.weights, y, f, axis)
        value, *rest = self.base._class_terms(ops, f, y, order)
        return (ops.finite(ops.squeeze(weight, axis) * value), *(ops.finite(weight * term) for term in rest))

    def _class_hessian(self, ops: Ops, f: Array, y: Array) -> Array:
        axis = ops.class_axis(f)
        weight = ops.move_axis(ops.number_at_label(self.weights, y, f, axis), axis, -1)[..., None]
        return ops.finite(weight * self.base._class_hessian(ops, f, y))

    def _class_hvp(self, ops: Ops, f: Array, y: Array, u: Array) -> Array:
        weight = ops.number_at_label(self.weights, y, f, ops.class_axis(f))
        return ops.finite(weight * self.base._class_hvp(ops, f, y, u))

    def _class_expected_hvp(self, ops: Ops, f: Array, shares: Array, u: Array) -> Array:
        # Weights join the shares: sum_k share_k w_k l(k, f) then costs one pass of the base loss.
        weights = ops.per_class(self.weights, f, ops.class_axis(f))
        return self.base._class_expected_hvp(ops, f, weights * shares, u)

    def _class_expected(self, ops: Ops, f: Array, shares: Array) -> tuple[Array, Array]:
        weights = ops.per_class(self.weights, f, ops.class_axis(f))
        return self.base._class_expected(ops, f, weights * shares)

    def _class_log_posterior(self, ops: Ops, f: Array) -> Array:
        axis = ops.class_axis(f)
        log_weights = ops.per_class(tuple(map(math.log, self.weights)), f, axis)
        return log_normalise(ops, self.base._class_log_posterior(ops, f) - log_weights, axis)
