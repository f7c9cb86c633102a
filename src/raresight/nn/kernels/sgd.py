"""SGD with momentum for K models in one pass, as a Triton kernel."""

# Apart from `optimiser`, which imports it on a GPU alone. `@triton.jit` needs Triton when a module is
# imported, and PyTorch's builds for the CPU come without it.
#
# Triton's language has names of its own for types and mutable "constants", and is not typed.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from . import device_of

__all__ = ["sgd_step"]

_BLOCK = 4096


@triton.jit
def _sgd_pass(weights, momentum, gradient, factor, rate, alive, width, inertia, decay, BLOCK: tl.constexpr):
    """Do m <- inertia m + factor g + decay w,   w <- w - rate m, for the models that are alive."""
    k = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    moves = (i < width) & (tl.load(alive + k) != 0)
    i += k * width  # in 64 bits, since k has them: all weights of a stack may exceed 2^31
    w = tl.load(weights + i, mask=moves, other=0.0)
    m = tl.load(momentum + i, mask=moves, other=0.0)
    g = tl.load(gradient + i, mask=moves, other=0.0)
    m = inertia * m + (g * tl.load(factor + k) + decay * w)
    tl.store(momentum + i, m, mask=moves)
    tl.store(weights + i, w - tl.load(rate + k) * m, mask=moves)


def sgd_step(
    weights: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    factor: Tensor,
    rate: Tensor,
    alive: Tensor,
    *,
    inertia: float,
    decay: float,
) -> None:
    """Move weights and momentum (K, P) in place, by rates (K,), where `alive` (K,) is true.

    The gradient (K, P) is multiplied by `factor` (K,).
    """
    replicas, width = weights.shape
    with device_of(weights):
        _sgd_pass[(triton.cdiv(width, _BLOCK), replicas)](
            weights, momentum, gradient, *(given.contiguous() for given in (factor, rate, alive)), width,
            inertia, decay, BLOCK=_BLOCK, num_warps=8,
        )  # fmt: skip
