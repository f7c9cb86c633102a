"""Launch the loss kernels: values and gradients of scores in one pass, on CUDA or in Triton's interpreter.

`loss_and_gradient` is for one loss, `stack_losses` for the losses of a stack of replicas. Importing this file
imports Triton; see `raresight.nn.kernels.has_triton`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from . import device_of
from .loss_passes import binary_pass, class_pass, rescale_pass

Tensor = torch.Tensor

__all__ = ["KernelGroup", "loss_and_gradient", "rescale_", "stack_losses"]

# Samples from which a program goes over several blocks.
_LONG = 1 << 22
_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class KernelGroup:
    """Losses with one body of phi, as the kernels take them.

    Attributes:
        body: The number of the body, see `body_of`.
        is_plain: Whether each loss is phi(z) for a positive and phi(-z) for a negative.
        table: The numbers of the losses, one row each.
        replicas: The replica of each row, None for the row's own number.
    """

    body: int
    is_plain: bool
    table: Tensor
    replicas: Tensor | None


def loss_and_gradient(
    scores: Tensor,
    labels: Tensor,
    group: KernelGroup,
    *,
    classes: bool = False,
    soft: bool = False,
    negatives: Tensor | None = None,
    weights: Tensor | None = None,
    scale: float | Tensor = 1.0,
    reduced: bool = True,
    gradient: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Compute scale * weights * loss, summed if `reduced`, and its gradient in the scores' type.

    * Binary: `labels` of the shape of `scores` are 0/1 in any type. With `soft` they are shares of label 1,
      and those of label 0 are `negatives` (default: 1 - labels).
    * Classes: `labels` are class numbers without axis 1 of `scores` (axis 0 of a vector).

    The first row of the group's table is used. A label out of range gives NaN.
    """
    shape = _Shape.of_classes(scores) if classes else _Shape(1, scores.numel(), 1, 1)
    results, slopes = _reserve(scores, shape, reduced, gradient)
    _launch(
        shape, _laid_out(scores), _laid_out(labels), group, slopes, results,
        negatives=negatives, weights=weights, soft=soft, scale=scale, reduced=reduced,
    )  # fmt: skip
    if reduced:
        return _finish(results.sum()), slopes
    return results.view(labels.shape), slopes


def stack_losses(
    scores: Tensor,
    labels: Tensor,
    groups: Sequence[KernelGroup],
    label_weights: Tensor | None = None,
    row_weights: Tensor | None = None,
    *,
    complete: bool = True,
) -> tuple[Tensor, Tensor]:
    """Compute the mean of weights * loss of each replica, (K,), and the gradient of their sum.

    scores (K, n) or (K, n, classes); labels (K, n) or (n,); `label_weights` (K, 2) or (K, classes);
    `row_weights` (K, n) or (n,). `complete` says that each replica is in a group; otherwise those in no group
    get zeros.
    """
    replicas, n = scores.shape[:2]
    shape = _Shape(replicas, n, scores.shape[2] if scores.ndim == 3 else 1, 1)
    results, slopes = _reserve(scores, shape, True, True)
    assert slopes is not None
    # Memory is reserved uninitialised: a launch writes every place of its replicas.
    if not complete:
        results.zero_()
        slopes.zero_()
    scores, labels = _laid_out(scores), _laid_out(labels)
    step = n if labels.ndim == 2 else 0
    row_weights = None if row_weights is None else _laid_out(row_weights)
    weight_row = n if row_weights is not None and row_weights.ndim == 2 else 0
    for group in groups:
        _launch(
            shape, scores, labels, group, slopes, results,
            label_weights=None if label_weights is None else label_weights.contiguous(),
            label_step=step, weights=row_weights, weight_row=weight_row, scale=1 / n, reduced=True,
        )  # fmt: skip
    return _finish(results.sum(1)), slopes


def rescale_(gradient: Tensor, factor: Tensor) -> Tensor:
    """Multiply a gradient in place by a factor on the device, at no cost if it is 1; returns it."""
    block, loops, n = 1024, 8, gradient.numel()
    programs = -(-n // (block * loops))
    with device_of(gradient):
        rescale_pass[(programs,)](gradient, factor.contiguous(), n, BLOCK=block, LOOPS=loops, num_warps=4)
    return gradient


@dataclass(frozen=True)
class _Shape:
    """Sizes of the scores: `n` samples per replica, `inner` samples between two logits of one sample."""

    replicas: int
    n: int
    classes: int
    inner: int

    @staticmethod
    def of_classes(scores: Tensor) -> _Shape:
        if scores.ndim == 1:
            return _Shape(1, 1, scores.shape[0], 1)
        inner = scores[0, 0].numel()
        return _Shape(1, scores.shape[0] * inner, scores.shape[1], inner)

    def blocks(self) -> tuple[int, int, int]:
        """Return samples per step, steps per program, and programs per replica."""
        if self.classes > 1:
            # All logits of a block of samples lie in registers: fewer samples for more classes.
            block = max(1, min(256, 2048 // _power_of_two(self.classes)))
            return block, 1, -(-self.n // block)
        # Fewer and longer programs for long inputs; for short ones many programs, which fill the GPU.
        block = min(512, max(128, _power_of_two(self.n)))
        loops = 16 if self.n >= _LONG else 1
        return block, loops, -(-self.n // (block * loops))


def _reserve(scores: Tensor, shape: _Shape, reduced: bool, gradient: bool) -> tuple[Tensor, Tensor | None]:
    size = (shape.replicas, shape.blocks()[2] if reduced else shape.n)
    # Sums in float64, one per program, added in a fixed order: atomic additions would differ from run to run.
    results = torch.empty(size, dtype=torch.float64 if reduced else torch.float32, device=scores.device)
    return results, torch.empty(scores.shape, dtype=scores.dtype, device=scores.device) if gradient else None


def _launch(
    shape: _Shape,
    scores: Tensor,
    labels: Tensor,
    group: KernelGroup,
    gradient: Tensor | None,
    results: Tensor,
    *,
    negatives: Tensor | None = None,
    weights: Tensor | None = None,
    weight_row: int = 0,
    label_weights: Tensor | None = None,
    label_step: int = 0,
    soft: bool = False,
    scale: float | Tensor = 1.0,
    reduced: bool = True,
) -> None:
    block, loops, programs = shape.blocks()
    weights, weight_step = _steps(weights)
    rows = shape.replicas if group.replicas is None else group.replicas.shape[0]
    number, device_scale = (0.0, scale) if isinstance(scale, Tensor) else (scale, None)
    pointers = (weights, label_weights, group.table, group.replicas, gradient, results, shape.n)
    with device_of(scores):
        if shape.classes > 1:
            class_pass[(programs, rows)](
                scores, labels, *pointers, shape.inner, label_step, weight_step, weight_row, number,
                device_scale, CLASSES=shape.classes, KIND=group.body, HAS_INNER=shape.inner > 1,
                REDUCE=reduced, BLOCK=block, WIDTH=_power_of_two(shape.classes), num_warps=4,
            )  # fmt: skip
        else:
            plain = group.is_plain and label_weights is None
            shares = None if negatives is None else _laid_out(negatives)
            binary_pass[(programs, rows)](
                scores, labels, shares, *pointers, label_step, weight_step, weight_row, number, device_scale,
                KIND=group.body, PLAIN=plain, SOFT=soft, REDUCE=reduced, BLOCK=block, LOOPS=loops,
                num_warps=4,
            )  # fmt: skip


def _power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def _finish(sums: Tensor) -> Tensor:
    return sums.to(torch.float32).clamp_(-_LARGEST, _LARGEST)


def _laid_out(tensor: Tensor) -> Tensor:
    tensor = tensor.contiguous()
    # Triton has no type for torch's bool.
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _steps(weights: Tensor | None) -> tuple[Tensor | None, int]:
    """Return weights and their step: 0 for one number for all, read in place; otherwise contiguous and 1."""
    if weights is None:
        return None, 0
    if all(step == 0 or length == 1 for step, length in zip(weights.stride(), weights.shape, strict=True)):
        return weights, 0
    return _laid_out(weights), 1
