"""The layers of a residual trunk, in plain values."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

__all__ = ["CHANNELS", "Layer", "Running", "Setting", "plan_layers"]

CHANNELS = 16
"""Of the first stage; also the fewest of a matrix product, so images are padded with channels of zeros."""


@dataclass(frozen=True)
class Layer:
    """One convolution with its batch norm.

    Attributes:
        height, width: Of its input.
        channels_in, channels_out: Powers of two, at least 16.
        stride: 1 or 2.
        opens: Whether it is the first of a block.
        shortcut: What is added before its relu: 0 nothing, 1 the block's input, 2 every second pixel of it.
    """

    height: int
    width: int
    channels_in: int
    channels_out: int
    stride: int
    opens: bool
    shortcut: int

    def pixels(self, images: int) -> int:
        """Output pixels of so many images."""
        return images * (self.height // self.stride) * (self.width // self.stride)

    @property
    def out_size(self) -> tuple[int, int, int]:
        return self.height // self.stride, self.width // self.stride, self.channels_out


@dataclass(frozen=True)
class Running:
    """Running statistics of one batch norm, (K, C) each, moved in place by a forward pass in training."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True)
class Setting:
    """What a pass through the trunk is about, its weights apart.

    Attributes:
        layers: In order.
        running: Of the batch norm of each.
        training: Whether batch norm takes its statistics from the batch.
        keep: Whether a backward pass will follow.
        momentum: Of the running statistics.
        epsilon: Added to variances.
    """

    layers: tuple[Layer, ...]
    running: tuple[Running, ...]
    training: bool
    keep: bool
    momentum: float
    epsilon: float


def plan_layers(blocks: int, height: int, width: int) -> tuple[Layer, ...]:
    """The layers of a net with three stages of so many blocks, of 16, 32 and 64 channels."""
    layers = [Layer(height, width, CHANNELS, CHANNELS, 1, False, 0)]
    before = CHANNELS
    for stage in range(3):
        after = CHANNELS << stage
        for position in range(blocks):
            stride = 2 if stage > 0 and position == 0 else 1
            layers.append(Layer(height, width, before, after, stride, True, 0))
            height, width = height // stride, width // stride
            layers.append(Layer(height, width, after, after, 1, False, stride))
            before = after
    return tuple(layers)
