"""Types of the names that `functional.py` makes from the losses (written by docs/generate.py)."""

from collections.abc import Sequence
from typing import Any, Unpack

from torch import Tensor

from .criterion import LossOptions, Prior
from .criterion import loss_with_logits as loss_with_logits

def ce_loss(
    input: Tensor, target: Tensor, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[LossOptions]
) -> Tensor: ...
def squared_loss(
    input: Tensor, target: Tensor, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[LossOptions]
) -> Tensor: ...
def erf_loss(
    input: Tensor, target: Tensor, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[LossOptions]
) -> Tensor: ...
def focal_loss(
    input: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[LossOptions],
) -> Tensor: ...
def poly_loss(
    input: Tensor,
    target: Tensor,
    epsilon: float = 1.0,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[LossOptions],
) -> Tensor: ...
def alpha_loss(
    input: Tensor,
    target: Tensor,
    alpha: float = 0.8,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[LossOptions],
) -> Tensor: ...
def tbl_loss(
    input: Tensor,
    target: Tensor,
    alpha: float = 0.8,
    C: float = 0.5,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[LossOptions],
) -> Tensor: ...
def vs_loss(
    input: Tensor,
    target: Tensor,
    delta: float | None = None,
    *,
    delta_neg: float = 1.0,
    iota_pos: float = 0.0,
    iota_neg: float = 0.0,
    class_counts: Sequence[float] | None = None,
    tau: float | None = None,
    gamma: float = 0.2,
    prior: Prior = None,
    **options: Unpack[LossOptions],
) -> Tensor: ...
def ldam_loss(
    input: Tensor,
    target: Tensor,
    class_counts: Sequence[float],
    max_margin: float = 0.5,
    scale: float = 30.0,
    *,
    prior: Prior = None,
    tau: float = 1.0,
    **options: Unpack[LossOptions],
) -> Tensor: ...
def __getattr__(name: str) -> Any: ...
