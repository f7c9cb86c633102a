"""A 3 x 3 convolution of K replicas, as a grouped convolution or as a batched product, whichever is faster.

Measured by benchmarks/bench_layers.py. Dense layers have no such choice: there products won throughout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["WAYS", "Way", "convolution", "way_of"]

Way = Literal["grouped", "grouped, channels last", "product"]

_HALVES = (torch.bfloat16, torch.float16)


def convolution(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Images (N, K, in, H, W) to (N, K, out, H', W') by weights (K, out, in, 3, 3).

    A border of zeros keeps the size, and H' is H/stride rounded up. Images (N, in, H, W) are the same for all
    replicas: then a plain convolution gives the channels of all.

    Example:
        >>> convolution(torch.ones(1, 2, 3, 4, 4), torch.ones(2, 5, 3, 3, 3), 2).shape
        torch.Size([1, 2, 5, 2, 2])
    """
    if x.dim() == 4:
        return _unstacked(F.conv2d(x, weight.flatten(0, 1), stride=stride, padding=1), len(weight))
    way = way_of(x.device.type, _precision(x), weight.shape[2], stride)
    return WAYS[way](x, weight, stride)


def way_of(device: str, precision: torch.dtype, channels: int, stride: int) -> Way:
    """The fastest way for a layer with so many input channels a replica.

    cuDNN has a quick kernel for groups of up to 128 channels in half precision; with more, one product of all
    patches takes half the time, though it writes them down. With channels last it needs no copies of its own
    for tensor cores, up to nine times quicker in float32; only where the stride is 2 it is slower. CPUs gain
    from neither. What a layer is given must not depend on time: the same seed gives the same digits.

    Example:
        >>> way_of("cpu", torch.float32, 64, 1), way_of("cuda", torch.bfloat16, 256, 1)
        ('grouped', 'product')
    """
    if device != "cuda":
        return "grouped"
    if precision in _HALVES and channels >= 256:
        return "product"
    return "grouped, channels last" if stride == 1 and channels >= 16 else "grouped"


def _grouped(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Each replica a group of channels."""
    images = x.flatten(1, 2)
    out = F.conv2d(images, weight.flatten(0, 1), stride=stride, padding=1, groups=len(weight))
    return _unstacked(out, len(weight))


def _grouped_channels_last(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The same, with all channels of a pixel side by side in memory."""
    images = x.flatten(1, 2).contiguous(memory_format=torch.channels_last)
    out = F.conv2d(images, weight.flatten(0, 1), stride=stride, padding=1, groups=len(weight))
    return _unstacked(out, len(weight))


def _product(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Weights (K, out, 9 in) times the patches of all images written out, (K, 9 in, N H' W')."""
    patches = F.pad(x.to(_precision(x)), (1, 1, 1, 1)).unfold(-2, 3, stride).unfold(-2, 3, stride)
    images, replicas, channels, height, width = patches.shape[:5]
    columns = patches.permute(1, 2, 5, 6, 0, 3, 4).reshape(replicas, 9 * channels, -1)
    out = torch.bmm(weight.flatten(2), columns)
    return out.view(replicas, -1, images, height, width).permute(2, 0, 1, 3, 4)


WAYS: dict[Way, Callable[[Tensor, Tensor, int], Tensor]] = {
    "grouped": _grouped,
    "grouped, channels last": _grouped_channels_last,
    "product": _product,
}
"""All of them give the same, up to rounding."""


def _unstacked(out: Tensor, replicas: int) -> Tensor:
    return out.view(len(out), replicas, -1, *out.shape[2:])


def _precision(x: Tensor) -> torch.dtype:
    """The one that is computed in: that of autocast where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
