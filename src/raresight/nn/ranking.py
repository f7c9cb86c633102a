"""Ranking losses for torch: a value for a batch, whose gradient is the closed form of the loss."""

from __future__ import annotations

from typing import Any

import torch

from ..losses import RankingLoss
from ..losses.registry import parse_any

__all__ = ["RankingModule"]

Tensor = torch.Tensor


class RankingModule(torch.nn.Module):
    """Any ranking loss, or its text, as a module: `module(scores, labels)` is the loss of the batch.

    A loss with a state hands it from batch to batch while the module trains; `state` is not part of the
    state dict. Scores are (n,) and labels 0 or 1, with at least one of each.

    >>> module = RankingModule("partialauc(max_fpr=0.5)")
    >>> scores = torch.tensor([0.0, 2.0, 0.5], requires_grad=True)
    >>> module(scores, torch.tensor([0, 0, 1])).backward()
    >>> scores.grad.tolist()
    [0.0, 5.0, -5.0]
    """

    def __init__(self, loss: RankingLoss | str) -> None:
        super().__init__()
        known = parse_any(loss) if isinstance(loss, str) else loss
        if not isinstance(known, RankingLoss):
            raise TypeError(f"expected a ranking loss, got {loss!r}; for other losses see as_module")
        self.loss = known
        self.state: Any = None

    def forward(self, input: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        terms = self.loss.terms(input.detach(), target, weights=weight, state=self.state)
        if self.training:
            self.state = terms.state
        value: Tensor = _WithGradient.apply(input, terms.value, terms.gradient)  # type: ignore[no-untyped-call]
        return value

    def extra_repr(self) -> str:
        return str(self.loss)


class _WithGradient(torch.autograd.Function):
    """A value whose gradient by the scores is known."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient.to(scores.dtype))
        return value.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outputs: Any) -> Any:
        (gradient,) = ctx.saved_tensors
        return outputs[0].to(gradient.dtype) * gradient, None, None
