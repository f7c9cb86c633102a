"""One autograd function for every loss: value and closed-form gradient in a single pass.

The forward pass computes the gradient with the value and keeps it in place of intermediate results. The
backward pass only scales it. In eager mode on the CPU the pass goes over the input in pieces that stay in
the cache: its many small operations then cost little more than one. On CUDA with Triton it is one kernel
(`kernels.loss`). A backward pass that is itself differentiated recomputes the gradient in differentiable
form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..losses import Loss
from ..losses._torch_ops import TorchOps
from .kernels import MOST_CLASSES, SCORE_TYPES, KernelRow, has_triton, kernel_row

Tensor = torch.Tensor
Scale = float | Tensor

# Numbers in a piece: half a megabyte in float32, so that the temporaries of phi stay in the caches.
_PIECE = 1 << 17


@dataclass(frozen=True)
class LossTask:
    """The arguments of `ClosedForm` that are not tensors: the loss, the kind of target, the reduction.

    Attributes:
        loss: The loss.
        labels: "hard" (0 or 1), "soft" (between them), "look" (decided by the values), "classes" (class
            numbers) or "shares" (a share for every class).
        reduced: Whether losses are summed.
    """

    loss: Loss
    labels: str
    reduced: bool

    @property
    def has_class_axis(self) -> bool:
        return self.labels in ("classes", "shares")


class ClosedForm(torch.autograd.Function):
    """Compute scale * weight * loss, summed if reduced.

        apply(z, target, negative, weight, scale, task)

    `negative` is the share of label 0, None for 1 - target. `weight` has the shape of the losses, None for 1.
    `scale` is a number, 1/n for a mean.
    """

    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        y: Tensor,
        negative: Tensor | None,
        weight: Tensor | None,
        scale: Scale,
        task: LossTask,
    ) -> Tensor:
        wants_gradient = ctx.needs_input_grad[0]
        gradient: Tensor | None
        if torch.compiler.is_compiling():
            # The compiler fuses the whole pass, which needs neither pieces nor a kernel of ours.
            value, gradient = _whole(z, y, negative, weight, scale, task)
            ctx.save_for_backward(gradient)
        else:
            ctx.row = _kernel_row(z, task)
            value, gradient = _evaluate(z, y, negative, weight, scale, task, ctx.row, wants_gradient)
            ctx.save_for_backward(z, y, negative, weight)
            ctx.gradient = gradient if wants_gradient else None
        ctx.scale, ctx.task, ctx.dtype = scale, task, z.dtype
        return value

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> Any:
        (upstream,) = outputs
        if torch.compiler.is_compiling():
            (saved,) = ctx.saved_tensors
            return _times(upstream, saved, ctx), None, None, None, None, None
        z, y, negative, weight = ctx.saved_tensors
        inputs = (z, y, negative, weight, ctx.scale, ctx.task)
        if torch.is_grad_enabled():
            return _times(upstream, _differentiable(*inputs), ctx), None, None, None, None, None
        # Drop the reference to the gradient, so that it can become the input's .grad without a copy. Another
        # backward pass through a kept graph computes it again.
        gradient: Tensor | None = ctx.gradient
        ctx.gradient = None
        if gradient is None:
            gradient = _evaluate(*inputs, ctx.row, True)[1]
            assert gradient is not None
        if ctx.task.reduced and ctx.row is not None:
            from .kernels.loss import rescale_

            return rescale_(gradient, upstream), None, None, None, None, None
        if ctx.task.reduced and upstream.device.type == "cpu" and upstream.item() == 1.0:
            return gradient.to(ctx.dtype), None, None, None, None, None
        return _times(upstream, gradient, ctx), None, None, None, None, None


def _times(upstream: Tensor, gradient: Tensor, ctx: Any) -> Tensor:
    """Multiply in float32 or higher, and round to the precision of the scores last.

    The slope of a mean over many rows is too small for float16. The product is not, where `upstream` holds
    the factor of a gradient scaler.
    """
    if not ctx.task.reduced and ctx.task.has_class_axis:
        upstream = upstream.unsqueeze(TorchOps.class_axis(gradient))
    return (upstream * gradient).to(ctx.dtype)


def _evaluate(
    z: Tensor,
    y: Tensor,
    negative: Tensor | None,
    weight: Tensor | None,
    scale: Scale,
    task: LossTask,
    row: KernelRow | None,
    wants_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Compute (losses or their sum, gradient) by a kernel, in pieces or whole, whichever is fastest."""
    if row is not None:
        from .kernels.loss import KernelGroup, loss_and_gradient

        return loss_and_gradient(
            z,
            y,
            KernelGroup(row.body, row.is_plain, row.table, None),
            classes=task.has_class_axis,
            soft=task.labels == "soft",
            negatives=negative,
            weights=weight,
            scale=scale,
            reduced=task.reduced,
            gradient=wants_gradient,
        )
    rows_are_samples = z.ndim > 1 or not task.has_class_axis
    in_pieces = z.device.type == "cpu" and z.numel() > _PIECE and rows_are_samples
    return (_in_pieces if in_pieces else _whole)(z, y, negative, weight, scale, task)


def _kernel_row(z: Tensor, task: LossTask) -> KernelRow | None:
    """Return the numbers of the loss on the device, None where no kernel can do the task."""
    if not z.is_cuda or z.dtype not in SCORE_TYPES or task.labels == "shares" or not has_triton():
        return None
    outputs = z.shape[TorchOps.class_axis(z)] if task.has_class_axis else 1
    if z.numel() == 0 or outputs > MOST_CLASSES:
        return None
    try:
        return kernel_row(task.loss, outputs, z.device)
    except TypeError:  # a user's loss that cannot be hashed, which has no kernel either
        return None


def _whole(
    z: Tensor, y: Tensor, negative: Tensor | None, weight: Tensor | None, scale: Scale, task: LossTask
) -> tuple[Tensor, Tensor]:
    """Compute (losses or their sum, gradient) at once, in float32 or higher."""
    value, gradient = _weighted(z, y, negative, weight, task)
    # Scaled before the sum: a mean of large losses is finite where their sum is not.
    value = value * scale
    if task.reduced:
        value = value.sum()
    return TorchOps.finite(value), gradient * scale


def _in_pieces(
    z: Tensor, y: Tensor, negative: Tensor | None, weight: Tensor | None, scale: Scale, task: LossTask
) -> tuple[Tensor, Tensor]:
    """Compute the same in pieces that fit into the cache."""
    precision = torch.promote_types(z.dtype, torch.float32)
    losses = None if task.reduced else torch.empty(_loss_shape(z, task), dtype=precision)
    gradient = torch.empty(z.shape, dtype=precision)
    tensors: list[Any] = [z, y, negative, weight, losses, gradient]
    if not task.has_class_axis:
        tensors = [None if t is None else t.reshape(-1) for t in tensors]
    rows = tensors[0].shape[0]
    height = max(1, _PIECE * rows // z.numel())
    total = 0.0
    for start in range(0, rows, height):
        piece = slice(start, start + height)
        z_here, y_here, negative_here, weight_here, losses_here, gradient_here = (
            _cut(tensor, piece) for tensor in tensors
        )
        value, slope = _weighted(z_here, y_here, negative_here, weight_here, task)
        torch.mul(slope, scale, out=gradient_here)
        if losses_here is None:
            total += _sum(value)
        else:
            torch.mul(value, scale, out=losses_here)
    if losses is None:
        losses = torch.tensor(total * float(scale), dtype=torch.float64).to(precision)
    return TorchOps.finite(losses), gradient


def _cut(tensor: Tensor | None, piece: slice) -> Any:
    return None if tensor is None else tensor[piece]


def _loss_shape(z: Tensor, task: LossTask) -> list[int]:
    axis = TorchOps.class_axis(z) if task.has_class_axis else None
    return [n for i, n in enumerate(z.shape) if i != axis]


def _sum(losses: Tensor) -> float:
    """Sum losses in their own precision, or in float64 if that overflows."""
    total = float(losses.sum())
    return total if abs(total) < float("inf") else float(losses.sum(dtype=torch.float64))


def _weighted(
    z: Tensor, y: Tensor, negative: Tensor | None, weight: Tensor | None, task: LossTask
) -> tuple[Tensor, Tensor]:
    value, gradient = _terms(z, y, negative, task, 1)
    if weight is None:
        return value, gradient
    spread = weight.unsqueeze(TorchOps.class_axis(z)) if task.has_class_axis else weight
    return TorchOps.finite(value * weight), TorchOps.finite(gradient * spread)


def _terms(z: Tensor, y: Tensor, negative: Tensor | None, task: LossTask, order: int) -> tuple[Tensor, ...]:
    loss = task.loss
    scores = z if z.dtype in (torch.float32, torch.float64) else z.to(torch.float32)
    if task.labels == "classes":
        return _refuse_unknown(loss._class_terms(TorchOps, scores, y, order), scores, y)
    labels = y.to(scores.dtype)
    if task.labels == "shares":
        return loss._class_expected(TorchOps, scores, labels)
    if task.labels == "hard":
        return loss._labelled(TorchOps, scores, _refuse_soft(labels, y), order)
    if negative is None:
        if task.labels == "look" and _are_hard(labels):
            return loss._labelled(TorchOps, scores, labels, order)
        negative = 1 - labels
        return loss._mixed(TorchOps, scores, labels, negative, order)
    terms = loss._mixed(TorchOps, scores, labels, negative.to(scores.dtype), order)
    return tuple(TorchOps.finite(term) for term in terms)


def _are_hard(labels: Tensor) -> bool:
    """Return whether labels in [0, 1] are all 0 or 1: the numbers that equal their squares."""
    return torch.equal(labels * labels, labels)


def _refuse_soft(labels: Tensor, y: Tensor) -> Tensor:
    """Make a label such as 0.3 NaN in a compiled graph, which cannot raise an error."""
    if torch.compiler.is_compiling() and y.is_floating_point():
        return torch.where(labels * labels == labels, labels, float("nan"))
    return labels


def _refuse_unknown(terms: tuple[Tensor, ...], f: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Make the loss of a class number out of range NaN in a compiled graph."""
    if not torch.compiler.is_compiling():
        return terms
    axis = TorchOps.class_axis(f)
    known = (y >= 0) & (y < f.shape[axis])
    value, *rest = terms
    spread = known.unsqueeze(axis)
    nan = float("nan")
    return (torch.where(known, value, nan), *(torch.where(spread, term, nan) for term in rest))


# ---- differentiable gradient, for a backward pass that is differentiated itself ----------


def _differentiable(
    z: Tensor, y: Tensor, negative: Tensor | None, weight: Tensor | None, scale: Scale, task: LossTask
) -> Tensor:
    if task.has_class_axis:
        gradient: Tensor = ClassGradient.apply(z, y, task)  # type: ignore[no-untyped-call]
    else:
        gradient = ElementGradient.apply(z, y, negative, task)  # type: ignore[no-untyped-call]
    if weight is not None:
        gradient = gradient * (weight.unsqueeze(TorchOps.class_axis(z)) if task.has_class_axis else weight)
    return gradient * scale


class ElementGradient(torch.autograd.Function):
    """Compute the elementwise gradient, whose derivative is the closed-form second derivative."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor, negative: Tensor | None, task: LossTask) -> Tensor:
        _, gradient, bend = _terms(z, y, negative, task, 2)
        ctx.save_for_backward(bend)
        return gradient

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outputs: Any) -> Any:
        (bend,) = ctx.saved_tensors
        return outputs[0] * bend, None, None, None


class ClassGradient(torch.autograd.Function):
    """Compute the gradient by class logits, whose derivative is the Hessian times a vector."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor, task: LossTask) -> Tensor:
        ctx.save_for_backward(z, y)
        ctx.task = task
        return _terms(z, y, None, task, 1)[1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outputs: Any) -> Any:
        z, y = ctx.saved_tensors
        loss = ctx.task.loss
        scores = z if z.dtype in (torch.float32, torch.float64) else z.to(torch.float32)
        direction = outputs[0].to(scores.dtype)
        if ctx.task.labels == "classes":
            curved = loss._class_hvp(TorchOps, scores, y, direction)
        else:
            curved = loss._class_expected_hvp(TorchOps, scores, y.to(scores.dtype), direction)
        return curved.to(z.dtype), None, None
