"""The residual nets for small images of He et al., "Deep residual learning" (2016), section 4.2.

The 3 x 3 convolutions of K replicas are computed as a grouped convolution or as a batched product, whichever
is faster by benchmarks/bench_layers.py. Dense layers have no such choice: there products won, but in wide
layers of float32, which cuDNN rounds to TF32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raresight.common.checks import check_whole
from raresight.nn.nets import BatchNorm, ReplicaLayer, ReplicaNet, draw_normal, make_head

from .triton_layers import Running, plan_layers
from .trunk import can_run, trunk

Way = Literal["grouped", "product"]

_HALVES = (torch.bfloat16, torch.float16)


# ---- Convolutions of replicas ------------------------------------------------------------------------------


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


# ---- Nets --------------------------------------------------------------------------------------------------


def resnet_cifar(
    depth: int,
    *,
    outputs: int = 1,
    replicas: int = 1,
    seeds: Sequence[int] | None = None,
    width: int = 16,
    channels: int = 3,
    cosine: Sequence[bool] | bool = False,
) -> ResNet:
    """K residual nets of 6n + 2 layers, such as 32, 44 or 56, with He's start and shortcuts without weights.

    Args:
        depth: Layers with weights: one stem, three stages of n blocks with two convolutions each, the head.
        outputs: 1 for a binary score, or one logit a class.
        replicas: K, how many nets.
        seeds: One per replica; 0 to K-1 unless given.
        width: Channels of the first stage; the next two have twice and four times as many.
        channels: Channels of an image.
        cosine: Whether the scores are cosines, as LDAM expects them: for all replicas, or one bool for each.

    Example:
        >>> net = resnet_cifar(8, replicas=2, outputs=10)
        >>> net(torch.zeros(5, 3, 32, 32)).shape
        torch.Size([2, 5, 10])
    """
    depth, width = check_whole(depth, "depth"), check_whole(width, "width")
    channels = check_whole(channels, "channels")
    if depth < 8 or depth % 6 != 2:
        raise ValueError(f"depth must be 6n + 2, such as 8, 20, 32, 44 or 56, but is {depth}")
    if width < 2 or width % 2:
        raise ValueError(f"width must be even, since shortcuts add channels on both sides, but is {width}")
    return ResNet((depth - 2) // 6, outputs, replicas, seeds, width, channels, cosine)


class ResNet(ReplicaNet):
    """Stem, three stages, mean over places, head; built by `resnet_cifar`."""

    row_axes = 3

    def __init__(
        self,
        blocks: int,
        outputs: int,
        replicas: int,
        seeds: Sequence[int] | None,
        width: int,
        channels: int,
        cosine: Sequence[bool] | bool = False,
    ) -> None:
        super().__init__(replicas, seeds, outputs, cosine)
        self.width, self.channels = width, channels
        self.stem = Conv3x3(replicas, channels, width)
        self.stem_norm = ImageBatchNorm(replicas, width)
        self.blocks = nn.ModuleList()
        before = width
        for stage in range(3):
            for position in range(blocks):
                stride = 2 if stage > 0 and position == 0 else 1
                self.blocks.append(_Block(replicas, before, width * 2**stage, stride))
                before = width * 2**stage
        self.head = make_head(self.cosine, before, outputs)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Images (N, 3, H, W) or (K, N, 3, H, W) to scores (K, N), or (K, N, outputs)."""
        x = self.checked_input(x, (self.channels, None, None))
        if can_run(x, self.width, training=self.training):
            return self.head_scores(self._features_by_kernels(x))
        # Inside, images come first and then replicas, so that channels of all replicas are neighbours.
        x = torch.relu(self.stem_norm(self.stem(x.transpose(0, 1) if x.dim() == 5 else x)))
        for block in self.blocks:
            x = block(x)
        return self.head_scores(x.mean((3, 4)).transpose(0, 1))

    def _features_by_kernels(self, x: Tensor) -> Tensor:
        """The same features on a GPU, by kernels of our own."""
        convolutions, norms = zip(*self._layers())
        features = trunk(
            x,
            plan_layers(len(self.blocks) // 3, x.shape[-2], x.shape[-1]),
            [layer.weight for layer in convolutions],
            [norm.weight for norm in norms],
            [norm.bias for norm in norms],
            [Running(norm.running_mean, norm.running_var) for norm in norms],
            training=self.training,
            momentum=self.stem_norm.momentum,
            epsilon=self.stem_norm.epsilon,
        )
        return features.to(self.head.weight.dtype)

    def _layers(self) -> Iterator[tuple[Conv3x3, ImageBatchNorm]]:
        """The convolutions in order, each with its batch norm."""
        yield self.stem, self.stem_norm
        for block in self.blocks:
            assert isinstance(block, _Block)
            yield block.first, block.first_norm
            yield block.second, block.second_norm

    def numbers_per_row(self, row_numbers: int) -> int:
        """Those of the first stage, the widest."""
        return max(row_numbers, self.width * row_numbers // self.channels)

    def options(self) -> dict[str, Any]:
        return {"blocks": len(self.blocks) // 3, "width": self.width, "channels": self.channels}


class _Block(nn.Module):
    """relu(x' + norm(conv(relu(norm(conv(x)))))), x' the shortcut (option A of the paper).

    Where the channels grow from c to C, x' is every second pixel of every second row, with (C - c)/2 channels
    of zeros on each side.
    """

    def __init__(self, replicas: int, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.stride, self.padding = stride, (out_channels - in_channels) // 2
        self.first = Conv3x3(replicas, in_channels, out_channels, stride=stride)
        self.first_norm = ImageBatchNorm(replicas, out_channels)
        self.second = Conv3x3(replicas, out_channels, out_channels)
        self.second_norm = ImageBatchNorm(replicas, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.first_norm(self.first(x)))
        inner = self.second_norm(self.second(inner))
        if self.stride > 1:
            x = F.pad(x[..., :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding))
        return torch.relu(x + inner)
