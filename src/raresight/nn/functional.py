"""Every loss as a function of torch tensors, with the options of torch's own losses.

`loss_with_logits` takes any loss of `raresight.losses`; the named functions build theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import torch

from ..losses import (
    LDAM,
    TBL,
    Alpha,
    CrossEntropy,
    Erf,
    Focal,
    LogitAdjusted,
    Loss,
    Poly,
    Squared,
    VectorScaling,
)
from ..losses._inputs import locate
from ..losses._polynomials import exp_coefficients, power_coefficients
from ..losses.tbl_shape import convex_bound, monotone_bound, unique_bound
from ._closed_form import ClosedForm, Scale, Task

__all__ = [
    "Options",
    "alpha_loss",
    "can_look",
    "ce_loss",
    "erf_loss",
    "focal_loss",
    "ldam_loss",
    "loss_with_logits",
    "poly_loss",
    "squared_loss",
    "tbl_loss",
    "vs_loss",
]

Tensor = torch.Tensor
Prior = float | Sequence[float] | None

# A loss may be built inside a compiled function; its constants are numbers, not part of the graph. This is
# the mark that torch.compiler.assume_constant_result sets, which would load the compiler: seconds, for all
# who never compile.
for _constant in (convex_bound, monotone_bound, unique_bound, exp_coefficients, power_coefficients):
    _constant._dynamo_marked_constant = True  # type: ignore[union-attr]


class Options(TypedDict, total=False):
    """The options that every loss function and module takes; see `loss_with_logits`."""

    weight: Tensor | None
    pos_weight: Tensor | None
    reduction: str
    ignore_index: int | None
    label_smoothing: float
    soft_targets: bool | None
    multiclass: bool | None


def loss_with_logits(
    input: Tensor,
    target: Tensor,
    loss: Loss,
    *,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    soft_targets: bool | None = None,
    multiclass: bool | None = None,
) -> Tensor:
    """The loss of raw scores `input` against `target`, reduced.

    Shapes: `target` of the shape of `input` means binary or multi-label, as in BCEWithLogitsLoss;
    an integer `target` without axis 1 of `input` means classes, as in CrossEntropyLoss, dense
    (N, C, d1, ...) included; `multiclass=True` reads a `target` of the same shape as one share a class.

    weight: binary: a factor for each element, broadcast; classes: one weight a class, and the mean
        is the weighted mean. As in torch.
    pos_weight: binary: a factor for the positives, broadcast.
    reduction: "mean", "sum" or "none".
    ignore_index: targets of this value count for nothing. If all do, the mean is 0.
    label_smoothing: mixes the target with the uniform distribution over its classes.
    soft_targets: binary targets strictly between 0 and 1. None: recognised where the target can be
        looked at (eagerly, on the CPU), allowed for elsewhere. False: all are 0 or 1, the fastest
        when compiled; others are an error, or NaN inside a compiled graph. Whole-number and boolean
        targets are always hard.

    float16 and bfloat16 scores are computed and the loss returned in float32. A mean that overflows
    is the largest finite number. A NaN score gives NaN, so that a gradient scaler can see it.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
    _check_tensors(input, target)
    _check_weights(weight, pos_weight)
    options = (reduction, ignore_index, label_smoothing)
    if target.shape == input.shape and not (multiclass or not loss.takes_score):
        return _binary(input, target, loss, weight, pos_weight, soft_targets, *options)
    if pos_weight is not None:
        raise ValueError("pos_weight is for binary scores; for classes use weight")
    return _classes(input, target, loss, weight, *options)


def _check_tensors(input: Tensor, target: Tensor) -> None:
    for name, tensor in (("input", input), ("target", target)):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} must be a torch tensor, got {type(tensor).__name__}")
    if not input.is_floating_point():
        raise TypeError(f"input must hold floating-point scores, got {input.dtype}")
    if target.requires_grad:
        raise ValueError("target requires a gradient, which these losses do not give; detach it")


def _check_weights(*weights: Tensor | None) -> None:
    for weight in weights:
        if weight is not None and weight.requires_grad:
            raise ValueError("a weight requires a gradient, which these losses do not give; detach it")


def can_look(tensor: Tensor) -> bool:
    """Whether values may be looked at: on another device that would wait, in a graph it cannot."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def _finish(
    input: Tensor,
    target: Tensor,
    negative: Tensor | None,
    weight: Tensor | None,
    count: Scale,
    loss: Loss,
    labels: str,
    reduction: str,
) -> Tensor:
    scale = 1 / count if reduction == "mean" else 1.0
    task = Task(loss, labels, reduction != "none")
    if not torch.is_grad_enabled():
        input = input.detach()  # or an autograd function takes its gradient to be wanted
    result: Tensor = ClosedForm.apply(  # type: ignore[no-untyped-call]
        input, target, negative, weight, scale, task
    )
    return result


def _need_some(n: int, reduction: str) -> None:
    if n == 0 and reduction == "mean":
        raise ValueError("the mean of an empty batch is undefined; use reduction='sum'")


# ---- binary and multi-label --------------------------------------------------------------


def _binary(
    input: Tensor,
    target: Tensor,
    loss: Loss,
    weight: Tensor | None,
    pos_weight: Tensor | None,
    soft_targets: bool | None,
    reduction: str,
    ignore_index: int | None,
    label_smoothing: float,
) -> Tensor:
    _need_some(input.numel(), reduction)
    count: Scale = max(input.numel(), 1)
    if ignore_index is not None:
        kept = target != ignore_index
        target, input = torch.where(kept, target, 0), torch.where(kept, input, 0)
        weight = kept.to(input.dtype) if weight is None else weight * kept
        count = kept.sum().clamp(min=1)
    labels = _label_kind(target, soft_targets)
    if can_look(target):
        _check_labels(target, labels)
    negative = None
    if label_smoothing or pos_weight is not None:
        share = target.to(torch.promote_types(input.dtype, torch.float32))
        share = share * (1 - label_smoothing) + label_smoothing / 2
        negative, target, labels = 1 - share, share, "soft"
        if pos_weight is not None:
            target = (share * pos_weight).expand(input.shape)
    if weight is not None:
        weight = weight.to(torch.promote_types(input.dtype, torch.float32)).expand(input.shape)
    return _finish(input, target, negative, weight, count, loss, labels, reduction)


def _label_kind(target: Tensor, soft_targets: bool | None) -> str:
    if not target.is_floating_point() or soft_targets is False:
        return "hard"
    return "look" if soft_targets is None and can_look(target) else "soft"


def _refuse_outside(target: Tensor, what: str) -> None:
    """An error for a share that is none."""
    low, high = (end.item() for end in torch.aminmax(target))
    if not (low >= 0 and high <= 1):
        wrong = ~((target >= 0) & (target <= 1))
        raise ValueError(f"{what} must lie in [0, 1]: {locate(wrong, target, 'target')}")


def _check_labels(target: Tensor, labels: str) -> None:
    if target.numel() == 0 or target.dtype == torch.bool:
        return
    _refuse_outside(target, "binary targets")
    if labels == "hard" and target.is_floating_point():
        wrong = (target != 0) & (target != 1)
        if wrong.any():
            raise ValueError(
                f"targets must be 0 or 1 where soft_targets=False: {locate(wrong, target, 'target')}"
            )


# ---- classes -----------------------------------------------------------------------------


def _classes(
    input: Tensor,
    target: Tensor,
    loss: Loss,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int | None,
    label_smoothing: float,
) -> Tensor:
    axis = 1 if input.ndim > 1 else 0
    n_classes = input.shape[axis]
    samples = torch.Size(n for i, n in enumerate(input.shape) if i != axis)
    _check_classes(input, target, loss, weight, n_classes, samples)
    n_samples = samples.numel()
    _need_some(n_samples, reduction)
    if _is_shape(target, input.shape):
        if ignore_index is not None:
            raise ValueError("ignore_index needs class numbers as the target, not shares")
        shares = target.to(torch.promote_types(input.dtype, torch.float32))
        if can_look(shares) and shares.numel():
            _refuse_outside(shares, "shares of classes")
        shares = shares * (1 - label_smoothing) + label_smoothing / n_classes
        if weight is not None:
            shares = shares * _along(weight, input, axis)
        return _finish(input, shares, None, None, max(n_samples, 1), loss, "shares", reduction)
    kept = None
    target = target.long()
    if ignore_index is not None:
        kept = target != ignore_index
        target, input = torch.where(kept, target, 0), torch.where(kept.unsqueeze(axis), input, 0)
    if can_look(target) and target.numel():
        wrong = (target < 0) | (target >= n_classes)
        if wrong.any():
            raise ValueError(
                f"class numbers must lie in 0..{n_classes - 1}: {locate(wrong, target, 'target')}"
            )
    factor = None if kept is None else kept.to(torch.promote_types(input.dtype, torch.float32))
    if weight is not None:
        own = weight.to(torch.promote_types(input.dtype, torch.float32))[target]
        factor = own if factor is None else own * factor
    count: Scale = max(n_samples, 1)
    if factor is not None:
        total = factor.sum()
        count = torch.where(total > 0, total, 1.0)
    if not label_smoothing:
        return _finish(input, target, None, factor, count, loss, "classes", reduction)
    one_hot = torch.nn.functional.one_hot(target, n_classes).movedim(-1, axis)
    shares = one_hot.to(torch.promote_types(input.dtype, torch.float32))
    shares = shares * (1 - label_smoothing) + label_smoothing / n_classes
    if weight is not None:
        shares = shares * _along(weight, input, axis)
    mask = None if kept is None else kept.to(shares.dtype)
    return _finish(input, shares, None, mask, count, loss, "shares", reduction)


def _along(weight: Tensor, input: Tensor, axis: int) -> Tensor:
    return weight.to(torch.promote_types(input.dtype, torch.float32)).reshape(
        [-1 if i == axis else 1 for i in range(input.ndim)]
    )


def _is_shape(tensor: Tensor, shape: torch.Size) -> bool:
    """Whether a tensor has a shape. Axis by axis: of a compiled graph tuples of sizes are not equal."""
    return tensor.ndim == len(shape) and all(size == wanted for size, wanted in zip(tensor.shape, shape))


def _check_classes(
    input: Tensor, target: Tensor, loss: Loss, weight: Tensor | None, n_classes: int, samples: torch.Size
) -> None:
    if not (_is_shape(target, samples) or _is_shape(target, input.shape)):
        raise ValueError(
            f"target of shape {tuple(target.shape)} does not fit input of shape {tuple(input.shape)}: "
            f"pass the same shape (binary), or class numbers of shape {tuple(samples)}"
        )
    if _is_shape(target, samples) and target.is_floating_point():
        raise TypeError(f"class numbers must be integers, got {target.dtype}")
    if n_classes < 2:
        raise ValueError("input has a single class; for a binary score pass input and target of one shape")
    loss._need_classes(n_classes)
    if weight is not None and tuple(weight.shape) != (n_classes,):
        raise ValueError(f"weight must hold {n_classes} class weights, got shape {tuple(weight.shape)}")


# ---- one function a loss -----------------------------------------------------------------


def adjusted(loss: Loss, prior: Any, tau: float) -> Loss:
    """`loss` with logit adjustment where a prior is given."""
    return loss if prior is None else LogitAdjusted(loss, prior, tau)


def ce_loss(
    input: Tensor, target: Tensor, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[Options]
) -> Tensor:
    """Cross entropy; see `raresight.losses.CrossEntropy` and `loss_with_logits`."""
    return loss_with_logits(input, target, adjusted(CrossEntropy(), prior, tau), **options)


def squared_loss(
    input: Tensor, target: Tensor, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[Options]
) -> Tensor:
    """Squared error of the probability; see `raresight.losses.Squared` and `loss_with_logits`."""
    return loss_with_logits(input, target, adjusted(Squared(), prior, tau), **options)


def erf_loss(
    input: Tensor, target: Tensor, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[Options]
) -> Tensor:
    """Erf loss; see `raresight.losses.Erf` and `loss_with_logits`."""
    return loss_with_logits(input, target, adjusted(Erf(), prior, tau), **options)


def focal_loss(
    input: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[Options],
) -> Tensor:
    """Focal loss; see `raresight.losses.Focal` and `loss_with_logits`."""
    return loss_with_logits(input, target, adjusted(Focal(gamma), prior, tau), **options)


def poly_loss(
    input: Tensor,
    target: Tensor,
    epsilon: float = 1.0,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[Options],
) -> Tensor:
    """Poly-1 loss; see `raresight.losses.Poly` and `loss_with_logits`."""
    return loss_with_logits(input, target, adjusted(Poly(epsilon), prior, tau), **options)


def alpha_loss(
    input: Tensor,
    target: Tensor,
    alpha: float = 0.8,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[Options],
) -> Tensor:
    """Alpha loss; see `raresight.losses.Alpha` and `loss_with_logits`."""
    return loss_with_logits(input, target, adjusted(Alpha(alpha), prior, tau), **options)


def tbl_loss(
    input: Tensor,
    target: Tensor,
    alpha: float = 0.8,
    C: float = 0.5,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[Options],
) -> Tensor:
    """Tunable Boosting Loss; see `raresight.losses.TBL` and `loss_with_logits`."""
    return loss_with_logits(input, target, adjusted(TBL(alpha, C), prior, tau), **options)


def vs_loss(
    input: Tensor,
    target: Tensor,
    delta: float | None = None,
    *,
    delta_neg: float = 1.0,
    iota_pos: float = 0.0,
    iota_neg: float = 0.0,
    class_counts: Sequence[float] | None = None,
    gamma: float = 0.2,
    prior: Prior = None,
    tau: float | None = None,
    **options: Unpack[Options],
) -> Tensor:
    """Vector scaling loss, by `delta` (binary score) or by `class_counts` (class logits).

    See `raresight.losses.VectorScaling` and `loss_with_logits`.
    """
    loss = vector_scaling(delta, delta_neg, iota_pos, iota_neg, class_counts, gamma, prior, tau)
    return loss_with_logits(input, target, loss, **options)


def vector_scaling(
    delta: float | None,
    delta_neg: float,
    iota_pos: float,
    iota_neg: float,
    class_counts: Sequence[float] | None,
    gamma: float,
    prior: Prior,
    tau: float | None,
) -> Loss:
    """The binary or the K-class form; `tau` is the class counts' own, or goes with `prior`."""
    if (delta is None) == (class_counts is None):
        raise ValueError("vector scaling takes either delta (binary score) or class_counts (class logits)")
    if delta is not None:
        loss = VectorScaling(delta, delta_neg=delta_neg, iota_pos=iota_pos, iota_neg=iota_neg)
        return adjusted(loss, prior, 1.0 if tau is None else tau)
    if prior is not None:
        raise ValueError("vector scaling by class_counts adjusts the logits itself, by tau; leave prior out")
    return VectorScaling.from_counts(class_counts, tau=1.25 if tau is None else tau, gamma=gamma)


def ldam_loss(
    input: Tensor,
    target: Tensor,
    class_counts: Sequence[float],
    max_margin: float = 0.5,
    scale: float = 30.0,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[Options],
) -> Tensor:
    """LDAM; see `raresight.losses.LDAM` and `loss_with_logits`."""
    loss = LDAM(class_counts, max_margin, scale)  # type: ignore[arg-type]
    return loss_with_logits(input, target, adjusted(loss, prior, tau), **options)
