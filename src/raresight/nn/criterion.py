"""Any loss of `raresight.losses` on torch tensors, as a function and as a module with torch's options.

The named functions and modules, such as `tbl_loss` of `functional` and `TBLLoss` of `modules`, are generated
here from the registered losses. A new loss has them without further code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, Unpack, get_args, get_type_hints

import torch

from ..losses import Loss, parse
from ..losses._inputs import locate
from ..losses.contract import ComposedLoss
from ..losses.registry import loss_kinds
from ._closed_form import ClosedForm, LossTask, Scale

__all__ = [
    "LossModule",
    "LossOptions",
    "Prior",
    "as_module",
    "can_look",
    "function_of",
    "function_source",
    "loss_with_logits",
    "module_of",
    "module_source",
    "named_losses",
]

Tensor = torch.Tensor
Prior = float | Sequence[float] | None


class LossOptions(TypedDict, total=False):
    """Options of every loss function and module; see `loss_with_logits`."""

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
    """Return the loss of raw scores `input` against `target`, reduced.

    The shapes decide how `target` is read:

    * the shape of `input`: binary or multi-label, as in BCEWithLogitsLoss;
    * integers without axis 1 of `input`: class numbers, as in CrossEntropyLoss, dense (N, C, d1, ...) too;
    * the shape of `input` with `multiclass=True`: shares of the classes.

    Args:
        input: Raw scores. float16 and bfloat16 scores are computed, and their loss returned, in float32.
        target: Labels, class numbers or shares.
        loss: The loss.
        weight: As in torch. Binary: a factor per element, broadcast. Classes: one weight per class, and the
            mean is the weighted mean.
        pos_weight: Binary: a factor for the positives, broadcast.
        reduction: "mean", "sum" or "none".
        ignore_index: Targets of this value are ignored. If all are, the mean is 0.
        label_smoothing: Weight of the uniform distribution over the classes that is mixed into the target.
        soft_targets: Whether binary targets lie strictly between 0 and 1. Integer and boolean targets never
            do. None: looked up in eager mode on the CPU, assumed elsewhere. False is fastest in compiled
            graphs, where another target gives NaN; it is an error elsewhere.

    A mean that overflows is the largest finite number. A NaN score gives NaN, for a gradient scaler to see.
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
    """Return whether values may be read: another device would have to wait, a compiled graph cannot."""
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
    task = LossTask(loss, labels, reduction != "none")
    if not torch.is_grad_enabled():
        input = input.detach()  # else an autograd function computes a gradient, also under no_grad
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
        # Scores are masked, too: the weight 0 would not remove the NaN of an ignored NaN score.
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
            # Into the share of label 1: as a factor of the loss it would weigh both shares of a soft target.
            target = (share * pos_weight).expand(input.shape)
    if weight is not None:
        weight = weight.to(torch.promote_types(input.dtype, torch.float32)).expand(input.shape)
    return _finish(input, target, negative, weight, count, loss, labels, reduction)


def _label_kind(target: Tensor, soft_targets: bool | None) -> str:
    if not target.is_floating_point() or soft_targets is False:
        return "hard"
    return "look" if soft_targets is None and can_look(target) else "soft"


def _refuse_outside(target: Tensor, what: str) -> None:
    """Raise an error unless shares lie in [0, 1]."""
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
        # Class numbers take one entry per row, shares a pass over all classes.
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
    """Return whether a tensor has a shape, axis by axis: tuples of symbolic sizes never compare equal."""
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


# ---- as a module -------------------------------------------------------------------------


class LossModule(torch.nn.Module):
    """Any loss of `raresight.losses` as a module; see `loss_with_logits`.

    `weight` and `pos_weight` are buffers: they move with `.to()` and are part of the state dict.
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        loss: Loss,
        *,
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
        reduction: str = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        soft_targets: bool | None = None,
        multiclass: bool | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(loss, Loss):
            raise TypeError(f"expected a loss of raresight.losses, got {loss!r}")
        if reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.loss = loss
        self.register_buffer("weight", _as_weight(weight))
        self.register_buffer("pos_weight", _as_weight(pos_weight))
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.soft_targets = soft_targets
        self.multiclass = multiclass

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return loss_with_logits(
            input,
            target,
            self.loss,
            weight=self.weight,
            pos_weight=self.pos_weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            soft_targets=self.soft_targets,
            multiclass=self.multiclass,
        )

    def extra_repr(self) -> str:
        return f"{self.loss}, reduction={self.reduction!r}"


def _as_weight(weight: Tensor | None) -> Tensor | None:
    if weight is None:
        return None
    # A copy, since deferred reweighting changes it in place and the caller's tensor must not change.
    tensor = torch.as_tensor(weight).clone()
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def as_module(loss: Loss | str, **options: Unpack[LossOptions]) -> LossModule:
    """Return a loss, or the loss of a text, as a module.

    Options: `weight`, `pos_weight`, `reduction`, `ignore_index`, `label_smoothing`, `soft_targets`,
    `multiclass`, each as in `raresight.nn.functional.loss_with_logits`.

    >>> as_module("tbl(alpha=0.8,C=0.5)")(torch.zeros(3), torch.ones(3)).round(decimals=4).item()
    0.5893999934196472
    """
    return LossModule(parse(loss) if isinstance(loss, str) else loss, **options)


# ---- the named functions and modules -----------------------------------------------------
# They are compiled from source text, as dataclasses do it: help() shows real parameters, and torch.compile
# can trace the function. The stubs of `functional` and `modules` are the same text with types (a test).


def named_losses(*, entry_points: bool = True) -> dict[str, type[Loss]]:
    """Return the registered losses by their torch names, without those composed of another loss."""
    return {
        kind.torch_name or kind.__name__: kind
        for kind in loss_kinds(entry_points=entry_points).values()
        if not issubclass(kind, ComposedLoss)
    }


def function_of(name: str, kind: type[Loss]) -> Callable[..., Tensor]:
    """Build the function of a loss, such as `tbl_loss` for "TBL"."""
    made: Callable[..., Tensor] = _compiled(function_source(name, kind), f"{name.lower()}_loss", kind)
    return made


def module_of(name: str, kind: type[Loss]) -> type[LossModule]:
    """Build the module of a loss, such as `TBLLoss` for "TBL"."""
    made: type[LossModule] = _compiled(module_source(name, kind), f"{name}Loss", kind)
    return made


def function_source(name: str, kind: type[Loss], *, typed: bool = False) -> str:
    """Return the source of the function of a loss; typed and without a body for a stub."""
    call = f"loss_with_logits(input, target, kind.with_prior({_passed(kind)}), **options)"
    head = _parameters(kind, ["input", "target"], typed)
    about = f"{_summary(kind)} See `raresight.losses.{kind.__name__}` and `loss_with_logits`."
    arrow = " -> Tensor" if typed else ""
    body = "..." if typed else f"{about!r}\n    return {call}"
    return f"def {name.lower()}_loss({head}){arrow}:\n    {body}\n"


def module_source(name: str, kind: type[Loss], *, typed: bool = False) -> str:
    """Return the source of the module of a loss; typed and without a body for a stub."""
    head = _parameters(kind, ["self"], typed)
    about = f"{_summary(kind)} See `raresight.losses.{kind.__name__}`."
    arrow = " -> None" if typed else ""
    body = (
        "..." if typed else f"super({name}Loss, self).__init__(kind.with_prior({_passed(kind)}), **options)"
    )
    text = "" if typed else f"    {about!r}\n"
    return f"class {name}Loss(LossModule):\n{text}    def __init__({head}){arrow}:\n        {body}\n"


def _own(kind: type[Loss]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(kind).parameters)


def _parameters(kind: type[Loss], first: list[str], typed: bool) -> str:
    """Write the parameter list: those of the loss, `prior`, its `tau`, and the options."""
    types = get_type_hints(kind) if typed else {}

    def written(name: str, hint: str, default: Any) -> str:
        text = f"{name}: {hint}" if typed else name
        if default is inspect.Parameter.empty:
            return text
        return f"{text}{' = ' if typed else '='}{default!r}"

    empty = inspect.Parameter.empty
    leading = [written(name, "Tensor", empty) if name != "self" else name for name in first]
    by_place: list[str] = []
    by_name: list[str] = []
    for one in _own(kind).values():
        keyword_only = one.kind is inspect.Parameter.KEYWORD_ONLY
        (by_name if keyword_only else by_place).append(
            written(one.name, _type_text(types.get(one.name)), one.default)
        )
    by_name.append(written("prior", "Prior", None))
    if "tau" not in _own(kind):
        by_name.append(written("tau", "float", 1.0))
    options = "**options: Unpack[LossOptions]" if typed else "**options"
    return ", ".join([*leading, *by_place, "*", *by_name, options])


def _type_text(hint: Any) -> str:
    """Write a type; a tuple that the loss keeps is given as a sequence."""
    text = hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint)
    return text.replace("tuple[float, ...]", "Sequence[float]").replace("typing.", "")


def _passed(kind: type[Loss]) -> str:
    # A loss with a tau of its own is adjusted by 1, unless its `with_prior` reads the tau otherwise.
    own = _own(kind)
    return ", ".join(["prior", "1.0" if "tau" in own else "tau", *(f"{name}={name}" for name in own)])


def _summary(kind: type[Loss]) -> str:
    """Return the first paragraph of a loss's docstring in one line."""
    return " ".join((inspect.getdoc(kind) or kind.__name__).split("\n\n")[0].split())


def _compiled(source: str, name: str, kind: type[Loss]) -> Any:
    # In a closure, which torch.compile can trace; it would look up globals in this module.
    body = "".join(f"    {line}\n" for line in source.splitlines())
    maker = f"def make(kind, loss_with_logits, LossModule):\n{body}    return {name}\n"
    space: dict[str, Any] = {"__name__": __name__}
    exec(compile(maker, f"<made for {kind.__name__}>", "exec"), space)
    made = space["make"](kind, loss_with_logits, LossModule)
    made.__qualname__ = name
    return made
