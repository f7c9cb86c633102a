"""The residual nets for small images of He et al., "Deep residual learning" (2016), section 4.2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raresight.nn.nets import ReplicaNet, make_head, whole_number

from .convolution import Conv3x3, ImageBatchNorm
from .triton_layers import Running, plan_layers
from .trunk import can_run, trunk


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
    depth, width = whole_number("depth", depth), whole_number("width", width)
    channels = whole_number("channels", channels)
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
