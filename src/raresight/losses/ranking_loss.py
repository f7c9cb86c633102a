"""Ranking losses: the sibling of losses of one row, for objectives that compare rows with each other.

A `raresight.losses.Loss` has a value for each row. A ranking loss has one value for all rows of a batch. It
compares positives with negatives, it may keep a state from batch to batch, and it has no link. Its scores
rank; to get a probability from them, calibrate them on other rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NoReturn

from ._inputs import read_problem, read_scores
from ._numpy_ops import Array, Ops
from .parameters import between, check_parameters, param, positive
from .registry import register

__all__ = ["PartialAUC", "RankingLoss", "RankingTerms"]

# Squares of larger scores, summed over many rows, leave the range of the numbers.
_LARGEST = {8: 1e100, 4: 1e12}


@dataclass(frozen=True)
class RankingTerms:
    """Value, gradient and state of a ranking loss for one batch.

    Attributes:
        value: The loss of the batch, one number.
        gradient: The derivative of the value by each score.
        state: The `state` argument of the next batch; None if the loss has no state.
    """

    value: Array
    gradient: Array
    state: Any = None


class RankingLoss(ABC):
    """A loss of all rows at once: frozen and comparable; what it remembers is handed in and out."""

    name: ClassVar[str]
    formula: ClassVar[str] = ""
    aliases: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_parameters(self)

    def __str__(self) -> str:
        """The text that `parse_any` reads back."""
        given = ",".join(f"{key}={value!r}" for key, value in self.parameters().items())
        return f"{self.name}({given})" if given else self.name

    def parameters(self) -> dict[str, Any]:
        """The hyper-parameters by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def terms(
        self, scores: Array, labels: Array, *, weights: Array | None = None, state: Any = None
    ) -> RankingTerms:
        """Return value, gradient and next state of a batch.

        Args:
            scores: (n,) raw scores, NumPy or torch.
            labels: (n,) of 0 and 1, with at least one of each.
            weights: (n,) of the rows, not negative. Default: 1.
            state: `state` of the batch before. Default: None, no batch before.

        Raises:
            ValueError: Shapes differ, a class is missing, or a weight is negative.
        """
        problem = read_problem(scores, labels)
        if problem.multiclass or len(problem.z.shape) != 1:
            raise ValueError(
                f"{self} ranks rows by one score each: scores and labels must have one axis and the same "
                f"length, got {tuple(problem.z.shape)}"
            )
        z, y = problem.z, problem.y
        w = z * 0 + 1 if weights is None else problem.ops.like(read_scores(weights, name="weights")[1], z)
        if tuple(w.shape) != tuple(z.shape):
            raise ValueError(f"weights must have shape {tuple(z.shape)}, got {tuple(w.shape)}")
        if not bool((w >= 0).all()):
            raise ValueError("weights must be at least 0")
        if not (bool((w * y).sum() > 0) and bool((w * (1 - y)).sum() > 0)):
            raise ValueError(f"{self} compares positives with negatives: the batch has one class only")
        limit = _LARGEST[z.dtype.itemsize]
        return self._terms(problem.ops, z.clip(-limit, limit), y == 1, w, state)

    @abstractmethod
    def _terms(self, ops: Ops, z: Array, is_positive: Array, w: Array, state: Any) -> RankingTerms:
        """As `terms`, of checked arrays of one library and precision."""

    def log_odds(self, z: Array) -> NoReturn:
        """Refuse: a ranking loss has no link."""
        raise TypeError(
            f"{self} ranks rows and has no link from scores to probabilities. Calibrate the scores on other "
            "rows, for example by logistic regression on the score"
        )

    probability = log_odds
    score = log_odds


@register
@dataclass(frozen=True)
class PartialAUC(RankingLoss):
    """Squared hinge over the pairs that decide the partial AUC up to a false-positive rate.

    With weights w and T the highest-scored negatives that hold a share `max_fpr` of the weight of all,

        L = sum_{i positive, j in T} w_i w_j max(0, margin - (z_i - z_j))^2 / (W_+ max_fpr W_-),

    in O(n log n) by sums over sorted scores. T is chosen anew in each batch. A small batch knows that share
    badly: with `memory` > 0 the state is a running mean of the score where T begins,

        t <- memory t + (1 - memory) t_batch,

    and T are the negatives at or above t.

    >>> import numpy as np
    >>> loss = PartialAUC(max_fpr=0.5)
    >>> terms = loss.terms(np.array([0.0, 2.0, 0.5]), np.array([0, 0, 1]))
    >>> float(terms.value), terms.gradient.tolist()
    (6.25, [0.0, 5.0, -5.0])
    """

    max_fpr: float = param(0.01, between(0.0, 1.0))
    margin: float = param(1.0, positive)
    memory: float = param(0.0, between(0.0, 1.0, "[)"))
    name: ClassVar[str] = "partialauc"
    formula: ClassVar[str] = "mean over positives and top negatives of max(0, margin - (z_i - z_j))^2"

    def _terms(self, ops: Ops, z: Array, is_positive: Array, w: Array, state: Any) -> RankingTerms:
        positives, negatives = z[is_positive], z[~is_positive]
        own, others = w[is_positive], w[~is_positive]
        mass = self.max_fpr * others.sum()
        part, threshold = _top_share(ops, negatives, others, mass)
        if self.memory > 0:
            if state is not None:
                threshold = self.memory * state + (1 - self.memory) * threshold
            part = others * (negatives >= threshold)
        # Scores relative to the positives' mean: sums of squares far from zero would cancel.
        centre = (own * positives).sum() / own.sum()
        positives, negatives = positives - centre, negatives - centre
        total = own.sum() * mass
        value, by_negative = _hinges(ops, negatives + self.margin, part, positives, own)
        # The same pairs by positive: with the signs of all scores turned, positives are the higher side.
        _, by_positive = _hinges(ops, self.margin - positives, own, -negatives, part)
        gradient = z * 0
        gradient[~is_positive] = by_negative / total
        gradient[is_positive] = -by_positive / total
        return RankingTerms(value / total, gradient, threshold if self.memory > 0 else None)


def _top_share(ops: Ops, z: Array, w: Array, mass: Array) -> tuple[Array, Array]:
    """Return the part of each weight within the highest scores of this mass, and the lowest score there."""
    order = ops.order(-z)
    own = w[order]
    left = (mass - ops.prefix_sums(own)[:-1]).clip(0)
    part = w * 0
    part[order] = ops.where(left < own, left, own)
    return part, z[part > 0].min()


def _hinges(ops: Ops, upper: Array, w_upper: Array, lower: Array, w_lower: Array) -> tuple[Array, Array]:
    """Return sum_jk w_j w_k max(0, u_j - l_k)^2, and its derivative by each u_j."""
    order = ops.order(lower)
    lower, w_lower = lower[order], w_lower[order]
    # Scores below u_j are a prefix of the sorted l. Prefix sums of w, w l and w l^2 give the sum of squares.
    count = ops.count_below(lower, upper)
    one, first, second = (ops.prefix_sums(w_lower * lower**power)[count] for power in range(3))
    value = w_upper * (one * upper * upper - 2 * upper * first + second)
    return value.sum(), 2 * w_upper * (one * upper - first)
