"""Every loss as a torch module: drop-in for BCEWithLogitsLoss and CrossEntropyLoss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch

from ..losses import LDAM, TBL, Alpha, CrossEntropy, Erf, Focal, Loss, Poly, Squared, parse
from .functional import Options, Prior, adjusted, loss_with_logits, vector_scaling

__all__ = [
    "AlphaLoss",
    "CELoss",
    "ErfLoss",
    "FocalLoss",
    "LDAMLoss",
    "LossModule",
    "PolyLoss",
    "SquaredLoss",
    "TBLLoss",
    "VSLoss",
    "as_module",
]

Tensor = torch.Tensor


class LossModule(torch.nn.Module):
    """Any loss of `raresight.losses` as a module; see `raresight.nn.functional.loss_with_logits`.

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
    # A copy: deferred reweighting changes it, which is of no concern to who gave it.
    tensor = torch.as_tensor(weight).clone()
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def as_module(loss: Loss | str, **options: Unpack[Options]) -> LossModule:
    """Any loss, or its text, as a module.

    Options: `weight`, `pos_weight`, `reduction`, `ignore_index`, `label_smoothing`, `soft_targets`,
    `multiclass`, each as in `raresight.nn.functional.loss_with_logits`.

    >>> as_module("tbl(alpha=0.8,C=0.5)")(torch.zeros(3), torch.ones(3)).round(decimals=4).item()
    0.5893999934196472
    """
    return LossModule(parse(loss) if isinstance(loss, str) else loss, **options)


class CELoss(LossModule):
    """Cross entropy, with logit adjustment where `prior` is given."""

    def __init__(self, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[Options]) -> None:
        super().__init__(adjusted(CrossEntropy(), prior, tau), **options)


class SquaredLoss(LossModule):
    """Squared error of the probability (half the Brier score for more than two classes)."""

    def __init__(self, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[Options]) -> None:
        super().__init__(adjusted(Squared(), prior, tau), **options)


class ErfLoss(LossModule):
    """Erf (probit) loss."""

    def __init__(self, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[Options]) -> None:
        super().__init__(adjusted(Erf(), prior, tau), **options)


class FocalLoss(LossModule):
    """Focal loss, -(1 - p_y)^gamma log p_y."""

    def __init__(
        self, gamma: float = 2.0, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[Options]
    ) -> None:
        super().__init__(adjusted(Focal(gamma), prior, tau), **options)


class PolyLoss(LossModule):
    """Poly-1 loss, -log p_y + epsilon (1 - p_y)."""

    def __init__(
        self, epsilon: float = 1.0, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[Options]
    ) -> None:
        super().__init__(adjusted(Poly(epsilon), prior, tau), **options)


class AlphaLoss(LossModule):
    """Alpha loss, (p_y^-u - 1)/u with u = 1/alpha - 1."""

    def __init__(
        self, alpha: float = 0.8, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[Options]
    ) -> None:
        super().__init__(adjusted(Alpha(alpha), prior, tau), **options)


class TBLLoss(LossModule):
    """Tunable Boosting Loss, the alpha loss damped by exp(-C (1 - p_y))."""

    def __init__(
        self,
        alpha: float = 0.8,
        C: float = 0.5,
        *,
        prior: Prior = None,
        tau: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(adjusted(TBL(alpha, C), prior, tau), **options)


class VSLoss(LossModule):
    """Vector scaling loss, by `delta` for a binary score or by `class_counts` for class logits."""

    def __init__(
        self,
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
    ) -> None:
        loss = vector_scaling(delta, delta_neg, iota_pos, iota_neg, class_counts, gamma, prior, tau)
        super().__init__(loss, **options)


class LDAMLoss(LossModule):
    """LDAM: cross entropy with a larger margin for a rarer class. Made for `NormedLinear` logits."""

    def __init__(
        self,
        class_counts: Sequence[float],
        max_margin: float = 0.5,
        scale: float = 30.0,
        *,
        prior: Prior = None,
        tau: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        loss = LDAM(class_counts, max_margin, scale)  # type: ignore[arg-type]
        super().__init__(adjusted(loss, prior, tau), **options)
