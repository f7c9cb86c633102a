"""Triton kernels of the losses and of the SGD step, and the numbers that a loss passes to them.

This file imports without Triton; `has_triton` says whether the kernels' own files do.
"""

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
"""Types of scores that the loss kernels take."""

MOST_CLASSES = 1024
"""Most logits of a sample, which a program of the loss kernel keeps in registers."""

# The hand-written bodies of phi in `loss_passes`, by the name in a loss's normal form. A loss without one is
# computed by PyTorch's operations. Compiled they take 2.4 times as long (0.95 ms instead of 0.40), which is
# why the bodies stay.
_BODIES = {"logistic": 0, "squared": 1, "erf": 2, "focal": 3, "poly": 4, "boosting": 5}
_BODY_NUMBERS = 6  # numbers that a body reads, whether it uses them or not


@dataclass(frozen=True)
class KernelRow:
    """One loss on a device: the number of its body, whether it is plain, and its numbers in one row."""

    body: int
    is_plain: bool
    table: torch.Tensor


def body_of(form: NormalForm | None) -> int | None:
    """Return the number of the hand-written body of phi, None without one."""
    if form is None or form.kernel is None or len(form.numbers) > _BODY_NUMBERS:
        return None
    if form.counts_spread != (form.kernel == "squared"):
        # The body of the squared loss has the factor of the spread built in, and no other has it.
        return None
    return _BODIES.get(form.kernel)


def packed(form: NormalForm) -> tuple[float, ...]:
    """Return the numbers of a loss in one row: six of phi or more, scales, shifts, margins, weights."""
    padding = (0.0,) * max(0, _BODY_NUMBERS - len(form.numbers))
    return (*form.numbers, *padding, *form.scales, *form.shifts, *form.margins, *form.weights)


@lru_cache(maxsize=256)
def kernel_row(loss: Loss, outputs: int, device: torch.device) -> KernelRow | None:
    """Return the row of one loss, None without a body; cached, so that no step copies it to the device."""
    form = loss.normal_form(outputs)
    body = body_of(form)
    if form is None or body is None:
        return None
    with torch.inference_mode(False):  # a cached tensor of that mode would fail in training
        table = torch.tensor([packed(form)], dtype=torch.float64)
        return KernelRow(body, form.is_plain, table.to(device))


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Return whether Triton is installed; it comes with PyTorch's CUDA builds."""
    return find_spec("triton") is not None


def device_of(tensor: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    """Make a tensor's device the current one, on which Triton launches kernels."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)
