"""The losses of a stack of replicas as one autograd function: values and closed-form gradients together.

Losses of one kind are computed at once, with their numbers as tensors; on CUDA by a Triton kernel (see
`kernels.loss`), elsewhere, in float64 and in compiled graphs by PyTorch's operations.
"""

from __future__ import annotations

from typing import Any

import torch

from ..losses._torch_ops import TorchOps
from ..losses.margin import class_margin
from ._loss_rows import phi
from .kernels import SCORE_TYPES, has_triton
from .loss_parameters import MOST_CLASSES, SHAPE_NUMBERS, Kind

Tensor = torch.Tensor
Groups = tuple[tuple[Kind, bool, Tensor, Tensor], ...]

__all__ = ["StackLosses"]

_NAN = float("nan")


class StackLosses(torch.autograd.Function):
    """apply(scores, labels, weights, row_weights, back, alone, kind, plain, table, replicas, kind, ...).

    K means over the batch of row_weights * weights[k, y] * loss_k.

    Each group of losses is its kind, whether all of it is plain, its numbers (one row a loss) and its
    replicas. `alone` replicas are in no group; their losses and gradients are zero. `back` are the places
    of the replicas in the order of the groups, those alone last.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        row_weights: Tensor | None,
        back: Tensor,
        alone: int,
        *flat_groups: Any,
    ) -> Tensor:
        groups = tuple(zip(*(flat_groups[i::4] for i in range(4)), strict=True))
        if _runs_in_a_kernel(scores):
            from .kernels.loss import Group, stack_losses

            values, gradient = stack_losses(
                scores, labels, [Group(*group) for group in groups], weights, row_weights, complete=not alone
            )
        else:
            values, gradient = _in_torch(scores, labels, weights, row_weights, back, alone, groups)
        ctx.save_for_backward(gradient)
        return values

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outputs: Any) -> Any:
        (gradient,) = ctx.saved_tensors
        spread = outputs[0].reshape(-1, *[1] * (gradient.ndim - 1))
        return ((spread * gradient).to(gradient.dtype), *[None] * (len(ctx.needs_input_grad) - 1))


def _runs_in_a_kernel(scores: Tensor) -> bool:
    if torch.compiler.is_compiling() or not scores.is_cuda or scores.dtype not in SCORE_TYPES:
        return False
    return has_triton() and (scores.ndim == 2 or scores.shape[2] <= MOST_CLASSES)


def _in_torch(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    row_weights: Tensor | None,
    back: Tensor,
    alone: int,
    groups: Groups,
) -> tuple[Tensor, Tensor]:
    precision = torch.promote_types(scores.dtype, torch.float32)
    terms = _binary_terms if scores.ndim == 2 else _class_terms
    together = len(groups) == 1 and not alone
    values, gradients = [], []
    for kind, _, table, replicas in groups:
        z, y, w, v = (
            each if together or each is None or each.ndim == 1 else each.index_select(0, replicas)
            for each in (scores, labels, weights, row_weights)
        )
        assert z is not None
        assert y is not None
        value, gradient = terms(kind, table.to(precision), z.to(precision), y, w)
        if v is not None:
            v = v.to(precision)
            value = TorchOps.finite(v * value)
            gradient = TorchOps.finite((v if z.ndim == 2 else v.unsqueeze(-1)) * gradient)
        # Scaled before the sum: a mean of large losses is finite where their sum is not.
        share = 1 / value.shape[1]
        values.append(TorchOps.finite((value * share).sum(1)))
        gradients.append((gradient * share).to(scores.dtype))
    if together:
        return values[0], gradients[0]
    if alone:
        values.append(values[0].new_zeros(alone))
        gradients.append(gradients[0].new_zeros((alone, *scores.shape[1:])))
    return torch.cat(values).index_select(0, back), torch.cat(gradients).index_select(0, back)


def _binary_terms(
    kind: Kind, table: Tensor, z: Tensor, y: Tensor, label_weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Losses and slopes (rows, n) of scores (rows, n)."""
    shape = tuple(table[:, i, None] for i in range(SHAPE_NUMBERS))
    scales, shifts, _, weights = table[:, SHAPE_NUMBERS:].reshape(-1, 4, 2).unbind(1)
    if label_weights is not None:
        weights = weights * label_weights.to(weights.dtype)
    positive = y == 1

    def choose(by_label: Tensor) -> Tensor:
        return torch.where(positive, by_label[:, 1:], by_label[:, :1])

    scale = choose(scales)
    value, slope = phi(kind, shape, TorchOps.finite(scale * z + choose(shifts)))
    # A label that is neither shows as NaN where it could not be refused.
    weight = torch.where(positive | (y == 0), choose(weights), _NAN)
    return TorchOps.finite(weight * value), TorchOps.finite(-weight * (scale * slope))


def _class_terms(
    kind: Kind, table: Tensor, f: Tensor, y: Tensor, label_weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Losses (rows, n) and gradients (rows, n, classes) of logits (rows, n, classes)."""
    classes = f.shape[2]
    shape = tuple(table[:, i, None, None] for i in range(SHAPE_NUMBERS))
    scales, shifts, margins, weights = table[:, SHAPE_NUMBERS:].reshape(-1, 4, 1, classes).unbind(1)
    if label_weights is not None:
        weights = weights * label_weights.to(weights.dtype).unsqueeze(1)
    label = y.unsqueeze(-1) == torch.arange(classes, device=f.device)
    g = scales * TorchOps.finite(f) + shifts
    g = TorchOps.finite(torch.where(label, g - margins, g))
    own = torch.where(label, g, 0.0).sum(-1, keepdim=True)
    margin, others = class_margin(TorchOps, own, torch.where(label, -float("inf"), g), -1)
    value, slope = phi(kind, shape, margin)
    gradient = torch.where(label, -slope, slope * others)
    if kind == Kind.SQUARED:
        spread = (others * others).sum(-1, keepdim=True)
        half = (1 + spread) / 2
        gradient = gradient * half + value * (others * (others - spread))
        value = value * half
    weight = torch.where(label, weights, 0.0).sum(-1, keepdim=True)
    weight = torch.where(label.any(-1, keepdim=True), weight, _NAN)
    return TorchOps.finite(weight * value).squeeze(-1), TorchOps.finite(weight * (gradient * scales))
