"""The last layer of a stack: plain for some replicas, cosines for others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .layers import Linear

__all__ = ["MemberHead", "MixedHead", "make_head"]


def make_head(cosine: Sequence[bool], in_features: int, out_features: int, *, gain: float = 2.0) -> Linear:
    """Build the head of a stack; `cosine` says for each replica whether its scores are cosines."""
    if any(cosine):
        return MixedHead(cosine, in_features, out_features, gain=gain)
    return Linear(len(cosine), in_features, out_features, gain=gain)


class MixedHead(Linear):
    """A linear layer in which some replicas have cosines instead of products: (K, N, in) to (K, N, out).

        plain:   f_j = x . w_j + b_j
        cosine:  f_j = x . w_j / (|x| |w_j|)   in [-1, 1],   for each of several outputs
                 z   = 2 x . w / (|x| |w|)     in [-2, 2],   for one output

    LDAM has margins in units of a cosine and, with one output, takes z = f_1 - f_0. Two cosines to opposite
    directions w_1 = w and w_0 = -w differ by z as above. One cosine alone would halve the span of z and so
    double the margin in it.

    Opposite directions lose nothing. For unit directions f_1 - f_0 = x . (w_1 - w_0) / |x|, and w_1 - w_0 is
    any direction with a length of at most 2, which opposite ones reach. Smaller scores come from turning x.
    `outputs=2` gives two free directions.

    A cosine has no bias: b of such a replica starts at zero and is not used, so its gradient is zero. A row x
    of zeros has cosine 0. Directions start uniform on the sphere, with length 1. A plain replica gives the
    numbers of `Linear` to the last bit.
    """

    is_cosine: Tensor

    def __init__(
        self, cosine: Sequence[bool], in_features: int, out_features: int, *, gain: float = 2.0
    ) -> None:
        super().__init__(len(cosine), in_features, out_features, gain=gain)
        self.span = 2.0 if out_features == 1 else 1.0
        # An option of the net like its widths, and therefore not in its state.
        self.register_buffer(
            "is_cosine", torch.tensor(list(cosine), dtype=torch.bool).view(-1, 1, 1), persistent=False
        )

    def reset_replica(self, k: int, generator: torch.Generator) -> None:
        super().reset_replica(k, generator)
        if self.is_cosine[k]:
            with torch.no_grad():
                self.weight[k] = _unit(self.weight[k])

    def forward(self, x: Tensor) -> Tensor:
        assert self.bias is not None
        x = x.expand(len(self.weight), *x.shape[-2:])
        return _scores(x, self.weight, self.bias, self.is_cosine, self.span)


class MemberHead(Linear):
    """A head for each member of each replica: (K, members, N, in) to (K, members, N, out).

    Weights and biases start uniform in +-1/sqrt(in). The members of a replica with `cosine` give cosines, see
    `MixedHead`.
    """

    is_cosine: Tensor

    def __init__(self, cosine: Sequence[bool], members: int, in_features: int, out_features: int) -> None:
        super().__init__(len(cosine), in_features, out_features)
        self.span = 2.0 if out_features == 1 else 1.0
        self.has_cosine = any(cosine)
        self.weight = nn.Parameter(torch.zeros(len(cosine), members, out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(len(cosine), members, out_features))
        self.register_buffer("is_cosine", torch.tensor(list(cosine), dtype=torch.bool), persistent=False)

    def reset_replica(self, k: int, generator: torch.Generator) -> None:
        assert self.bias is not None
        for stack in (self.weight, self.bias):
            drawn = torch.rand(stack.shape[1:], generator=generator, dtype=torch.float64)
            with torch.no_grad():
                stack[k] = (2 * drawn - 1) / math.sqrt(self.weight.shape[-1])
        if self.is_cosine[k]:
            with torch.no_grad():
                self.weight[k] = _unit(self.weight[k])
                self.bias[k] = 0

    def forward(self, x: Tensor) -> Tensor:
        assert self.bias is not None
        replicas, members = x.shape[:2]
        heads = x.flatten(0, 1), self.weight.flatten(0, 1), self.bias.flatten(0, 1)
        if self.has_cosine:
            is_cosine = self.is_cosine.repeat_interleave(members).view(-1, 1, 1)
            scores = _scores(*heads, is_cosine, self.span)
        else:
            scores = torch.baddbmm(heads[2].unsqueeze(1), heads[0], heads[1].mT)
        return scores.view(replicas, members, *scores.shape[1:])


def _scores(x: Tensor, weight: Tensor, bias: Tensor, is_cosine: Tensor, span: float) -> Tensor:
    """Map x (B, N, in), weight (B, out, in) and bias (B, out) to plain scores or cosines (B, N, out)."""
    return torch.baddbmm(
        torch.where(is_cosine, 0, bias.unsqueeze(1)),
        _unit_where(is_cosine, x, 1.0),
        _unit_where(is_cosine, weight, span).mT,
    )


def _unit_where(is_cosine: Tensor, x: Tensor, length: float) -> Tensor:
    """Scale the rows of x to this length in replicas whose scores are cosines."""
    # Plain replicas pass ones through the unused branch: an infinite or NaN row would give it a NaN gradient,
    # since 0 times NaN is NaN.
    unit = _unit(torch.where(is_cosine, x, 1))
    return torch.where(is_cosine, (unit * length).to(x.dtype), x)


def _unit(x: Tensor) -> Tensor:
    """Scale rows to length 1, in float32 or higher; rows of zeros stay zeros, with slope 1."""
    wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
    square = wide.square().sum(-1, keepdim=True)
    return wide * torch.rsqrt(torch.where(square > 0, square, 1))
