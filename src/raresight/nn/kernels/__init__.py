"""Triton kernels, for what PyTorch's own operations leave on the table; used where they can run."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

import torch

__all__ = ["SCORE_TYPES", "has_triton"]

SCORE_TYPES = (torch.float32, torch.bfloat16, torch.float16)
"""Of scores that the loss kernels take."""


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Whether Triton is installed; it comes with PyTorch's CUDA builds."""
    return find_spec("triton") is not None
