"""Triton kernels of the losses and of the optimiser step, and what a loss hands to them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch

from ...losses import Loss
from ...losses.contract import NormalForm

__all__ = [
    "MOST_CLASSES",
    "SCORE_TYPES",
    "KernelRow",
    "body_of",
    "device_of",
    "has_triton",
    "kernel_row",
    "packed",
]

SCORE_TYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Of scores that the loss kernels take."""

MOST_CLASSES = 1024
"""As many logits of a sample as a program of the loss kernel keeps in registers."""

# The bodies of phi in `loss_passes`, by the name that a loss calls its own. A loss without one is computed by
# PyTorch's operations, which take 2.4 times as long compiled (0.95 ms where the hand-written body takes
# 0.40).
_BODIES = {"logistic": 0, "squared": 1, "erf": 2, "focal": 3, "poly": 4, "boosting": 5}
_BODY_NUMBERS = 6  # as many numbers as a body reads


@dataclass(frozen=True)
class KernelRow:
    """One loss on a device: its body of phi, whether it is plain, and its numbers as a table of one row."""

    body: int
    is_plain: bool
    table: torch.Tensor


def body_of(form: NormalForm | None) -> int | None:
    """The number of the hand-written body of phi; None where there is none."""
    if form is None or form.kernel is None or len(form.numbers) > _BODY_NUMBERS:
        return None
    if form.counts_spread != (form.kernel == "squared"):
        # The body of the squared loss has the factor of the spread built in, and no other has it.
        return None
    return _BODIES.get(form.kernel)


def packed(form: NormalForm) -> tuple[float, ...]:
    """The numbers of a loss in one row: six of phi, or more, then scales, shifts, margins, weights by
    label."""
    padding = (0.0,) * max(0, _BODY_NUMBERS - len(form.numbers))
    return (*form.numbers, *padding, *form.scales, *form.shifts, *form.margins, *form.weights)


@lru_cache(maxsize=256)
def kernel_row(loss: Loss, outputs: int, device: torch.device) -> KernelRow | None:
    """The row of one loss, kept so that a training loop does not copy it every step; None without a body."""
    form = loss.normal_form(outputs)
    body = body_of(form)
    if form is None or body is None:
        return None
    with torch.inference_mode(False):  # a tensor made in that mode could not be used outside it
        table = torch.tensor([packed(form)], dtype=torch.float64)
        return KernelRow(body, form.is_plain, table.to(device))


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Whether Triton is installed; it comes with PyTorch's CUDA builds."""
    return find_spec("triton") is not None


def device_of(tensor: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    """Kernels are launched on the current device, which may be another one than the tensor's."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)
