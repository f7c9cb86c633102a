"""Weights of rows in training.

The mean loss of a batch has no weights of rows. But what training needs is its gradient, and that of the
weighted mean is the gradient in each score times the weight of its row. So the weights travel as a last
column of the inputs, and the scores pass on their values as they are and their gradients weighted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..nn.nets import ReplicaNet

__all__ = ["weighted_gradients"]


@contextmanager
def weighted_gradients(net: ReplicaNet) -> Iterator[None]:
    """While it lasts, the last column of what the net is trained on is the weight of the row.

    >>> from raresight.nn.nets import MLP
    >>> net = MLP(1, hidden=())
    >>> with weighted_gradients(net):
    ...     scores = net.training_scores(torch.tensor([[1.0, 0.5], [1.0, 3.0]]))
    >>> torch.autograd.grad(scores.sum(), [net.head.bias])[0].tolist()
    [[3.5]]
    """
    plain = net.training_scores

    def weighted(x: Tensor) -> Tensor:
        scores = plain(x[..., :-1])
        weights = x[..., -1]
        weights = weights.repeat(*(1,) * (weights.dim() - 1), net.members)
        if scores.dim() == 3:
            weights = weights.unsqueeze(-1)
        return _WeightedGradient.apply(scores, weights.to(scores.dtype))  # type: ignore[no-any-return, no-untyped-call]

    net.training_scores = weighted  # type: ignore[method-assign]
    try:
        yield
    finally:
        del net.training_scores  # the method of the class is in its place again


class _WeightedGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by weights."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weights: Tensor) -> Tensor:
        ctx.save_for_backward(weights)
        return scores.view_as(scores)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        return gradient * weights, None
