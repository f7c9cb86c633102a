"""3 x 3 convolutions and batch norm of K replicas.

A convolution is computed as a grouped convolution or as a batched product, whichever is faster.

Measured by benchmarks/bench_layers.py. Dense layers have no such choice: there products won, but in wide
layers of float32, which cuDNN rounds to TF32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raresight.nn.nets import BatchNorm, ReplicaLayer, draw_normal

Way = Literal["grouped", "product"]

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
    way = way_of(x.device.type, _precision(x), len(weight), weight.shape[2])
    return WAYS[way](x, weight, stride)


def way_of(device: str, precision: torch.dtype, replicas: int, channels: int) -> Way:
    """The faster way for a layer with so many input channels a replica.

    cuDNN has a quick kernel for groups of up to 128 channels in half precision; with more, one product of all
    patches takes 0.5 to 0.6 of its time, though it writes them down. Nearly everywhere else the grouped
    convolution wins, on GPUs and CPUs. The rule is fixed, not a trial at run time: the same seed gives the
    same digits.

    Example:
        >>> way_of("cpu", torch.float32, 4, 256), way_of("cuda", torch.bfloat16, 4, 256)
        ('grouped', 'product')
    """
    is_wide = replicas > 1 and channels >= 256
    return "product" if device == "cuda" and precision in _HALVES and is_wide else "grouped"


def _grouped(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Each replica a group of channels."""
    images = x.flatten(1, 2)
    out = F.conv2d(images, weight.flatten(0, 1), stride=stride, padding=1, groups=len(weight))
    return _unstacked(out, len(weight))


def _product(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Weights (K, out, 9 in) times the patches of all images written out, (K, 9 in, N H' W')."""
    patches = F.pad(x.to(_precision(x)), (1, 1, 1, 1)).unfold(-2, 3, stride).unfold(-2, 3, stride)
    images, replicas, channels, height, width = patches.shape[:5]
    columns = patches.permute(1, 2, 5, 6, 0, 3, 4).reshape(replicas, 9 * channels, images * height * width)
    out = torch.bmm(weight.flatten(2), columns)
    return out.view(replicas, weight.shape[1], images, height, width).permute(2, 0, 1, 3, 4)


WAYS: dict[Way, Callable[[Tensor, Tensor, int], Tensor]] = {
    "grouped": _grouped,
    "product": _product,
}
"""Both give the same, up to rounding."""


def _unstacked(out: Tensor, replicas: int) -> Tensor:
    return out.view(len(out), replicas, out.shape[1] // replicas, *out.shape[2:])


def _precision(x: Tensor) -> torch.dtype:
    """The one that is computed in: that of autocast where it is on (only some kinds of device have it)."""
    kind = x.device.type
    is_cast = kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if is_cast else x.dtype


class Conv3x3(ReplicaLayer):
    """A 3 x 3 convolution of each replica: (N, K, in, H, W) or (N, in, H, W) to (N, K, out, H', W').

    H' = H/stride rounded up. How it is computed, `convolution` decides for the layer.
    """

    def __init__(self, replicas: int, in_channels: int, out_channels: int, *, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.weight = nn.Parameter(torch.zeros(replicas, out_channels, in_channels, 3, 3))

    def reset_replica(self, k: int, generator: torch.Generator) -> None:
        draw_normal(self.weight, k, 2.0, generator)

    def forward(self, x: Tensor) -> Tensor:
        return convolution(x, self.weight, self.stride)


class ImageBatchNorm(BatchNorm):
    """Batch norm of the channels of each replica, over images and places: (N, K, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return self.normalise(x, batch_axes=(0, 3, 4), feature_shape=(x.shape[1], x.shape[2], 1, 1))
