"""Triton kernels of the losses and of the optimiser step, used where they can run."""

from __future__ import annotations

import contextlib
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch

__all__ = ["SCORE_TYPES", "device_of", "has_triton"]

SCORE_TYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Of scores that the loss kernels take."""


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Whether Triton is installed; it comes with PyTorch's CUDA builds."""
    return find_spec("triton") is not None


def device_of(tensor: torch.Tensor) -> contextlib.AbstractContextManager[Any]:
    """Kernels are launched on the current device, which may be another one than the tensor's."""
    if not tensor.is_cuda or tensor.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(tensor.device)
