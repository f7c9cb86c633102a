"""The layers of a residual trunk by Triton's kernels, one at a time: forward, backward and in use.

What limits training of small nets on a large GPU is moving activations. Kept as [K, N, H, W, C], all channels
of a pixel are neighbours and a convolution is nine small matrix products. The sums that batch norm needs are
taken while its input is still in registers, forward and backward. The gradient of a shortcut and of the relu
below join that of the convolution. So each activation is read and written about 13 times a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# ---- Layers in plain values --------------------------------------------------------------------------------

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


# ---- Launching the kernels ---------------------------------------------------------------------------------

# Pixels a program does at a time, and its warps, by the channels it writes (a weight gradient: reads). The
# fastest of those tried on an H200 with K = 16 and 128 images.
_TILES: dict[str, dict[int, tuple[int, int]]] = {
    "convolve": {16: (256, 4), 32: (256, 4), 64: (128, 4)},
    "normalise": {16: (128, 4), 32: (64, 4), 64: (64, 8)},
    "norm_gradient": {16: (128, 4), 32: (64, 4), 64: (64, 4)},
    "input_gradient": {16: (128, 2), 32: (128, 4), 64: (128, 4)},
    "weight_gradient": {16: (128, 4), 32: (64, 4), 64: (32, 4)},
}
_CHUNKS = 8
"""Into how many parts the pixels of a weight gradient are cut; each leaves a partial sum."""
_TILE_OF_PARTIALS = 64


@dataclass(frozen=True)
class Normed:
    """What a convolution gave, with the statistics that batch norm takes off.

    Attributes:
        y: (K, N, H, W, C).
        mean: (K, C).
        inverse: (K, C), 1/deviation.
    """

    y: Tensor
    mean: Tensor
    inverse: Tensor


class TritonLayers:
    """The layers of a trunk for a batch.

    Args:
        setting: Which layers.
        pixels: The input, (K or 1, N, H, W, 16).
        weights: (K, out, in, 3, 3) of each.
        scales, shifts: (K, out) of each batch norm, float32.
    """

    def __init__(
        self,
        setting: Setting,
        pixels: Tensor,
        weights: Sequence[Tensor],
        scales: Sequence[Tensor],
        shifts: Sequence[Tensor],
    ) -> None:
        self._setting, self._pixels = setting, pixels
        self._weights, self._scales, self._shifts = weights, scales, shifts
        self.replicas, self.images = len(weights[0]), pixels.shape[1]
        self._laid: dict[int, Tensor] = {}

    def convolve(self, place: int, x: Tensor) -> Normed:
        from . import triton_kernels as passes

        layer = self._setting.layers[place]
        count, out = layer.pixels(self.images), layer.channels_out
        size, warps = _TILES["convolve"][out]
        blocks = _blocks(count, size)
        y = x.new_empty((self.replicas, self.images, *layer.out_size))
        partial = floats(x, self.replicas, blocks, 2, out)
        passes.convolve[(blocks, self.replicas)](
            x, self._laid_out(place), y, partial, count, stride_of(x),
            layer.height, layer.width, layer.channels_in, out, layer.stride, BM=size, num_warps=warps,
        )  # fmt: skip
        return finish_statistics(self._setting, place, y, partial, size)

    def normalise(self, place: int, normed: Normed, block_input: Tensor) -> Tensor:
        """What the layer gives: batch norm, shortcut (if it has one) and relu."""
        from . import triton_kernels as passes

        layer = self._setting.layers[place]
        count, (height, width, channels) = layer.pixels(self.images), layer.out_size
        size, warps = _TILES["normalise"][channels]
        out = torch.empty_like(normed.y)
        passes.normalise[(_blocks(count, size), self.replicas)](
            normed.y, normed.mean, normed.inverse, self._scales[place], self._shifts[place], block_input, out,
            count, height, width, channels, SHORTCUT=layer.shortcut, BM=size, num_warps=warps,
        )  # fmt: skip
        return out

    def in_use(self, place: int, x: Tensor, block_input: Tensor) -> Tensor:
        """Convolution, batch norm by the running statistics, shortcut and relu at once."""
        from . import triton_kernels as passes

        layer, running = self._setting.layers[place], self._setting.running[place]
        count, channels = layer.pixels(self.images), layer.channels_out
        size, warps = _TILES["convolve"][channels]
        scale = self._scales[place] * torch.rsqrt(running.variance.float() + self._setting.epsilon)
        shift = self._shifts[place] - running.mean.float() * scale
        out = x.new_empty((self.replicas, self.images, *layer.out_size))
        passes.convolve_normalised[(_blocks(count, size), self.replicas)](
            x, self._laid_out(place), scale, shift, block_input, out, count, stride_of(x),
            layer.height, layer.width, layer.channels_in, channels, layer.stride,
            SHORTCUT=layer.shortcut, BM=size, num_warps=warps,
        )  # fmt: skip
        return out

    def pooled_gradient(
        self, features_gradient: Tensor, last: Normed, out: Tensor, sums: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """dz and its sums of the last layer, from the gradient of the means over places.

        There may be room for the sums, (K, 2, C), here and in `input_gradient`.
        """
        from . import triton_kernels as passes

        layer = self._setting.layers[-1]
        count, channels = layer.pixels(self.images), layer.channels_out
        size, warps = _TILES["norm_gradient"][channels]
        blocks = _blocks(count, size)
        dz = torch.empty_like(last.y)
        partial = floats(out, self.replicas, blocks, 2, channels)
        passes.pooled_gradient[(blocks, self.replicas)](
            features_gradient, out, last.y, last.mean, last.inverse, dz,
            partial, count, PLACES=count // self.images, C=channels, BM=size, num_warps=warps,
        )  # fmt: skip
        return dz, _add_partial_sums(partial, sums)

    def norm_gradient(self, place: int, normed: Normed, dz: Tensor, sums: Tensor) -> Tensor:
        """dy, from dz and its sums."""
        from . import triton_kernels as passes

        layer = self._setting.layers[place]
        count, channels = layer.pixels(self.images), layer.channels_out
        size, warps = _TILES["norm_gradient"][channels]
        dy = torch.empty_like(dz)
        passes.norm_gradient[(_blocks(count, size), self.replicas)](
            dz, normed.y, normed.mean, normed.inverse, self._scales[place], sums, dy,
            count, C=channels, BM=size, num_warps=warps,
        )  # fmt: skip
        return dy

    def weight_gradient(self, place: int, x: Tensor, dy: Tensor) -> Tensor:
        """(K, out, in, 3, 3), from the layer's input and dy."""
        from . import triton_kernels as passes

        layer = self._setting.layers[place]
        count, out = layer.pixels(self.images), layer.channels_out
        size, warps = _TILES["weight_gradient"][layer.channels_in]
        chunk = _blocks(_blocks(count, _CHUNKS), size) * size
        chunks = _blocks(count, chunk)
        partial = floats(x, self.replicas, chunks, 9, layer.channels_in, out)
        passes.weight_gradient[(3, chunks, self.replicas)](
            x, dy, partial, count, stride_of(x), chunk,
            layer.height, layer.width, layer.channels_in, out, layer.stride, BM=size, num_warps=warps,
        )  # fmt: skip
        channels = self._weights[place].shape[2]
        gradient = partial.sum(1)[:, :, :channels].reshape(self.replicas, 3, 3, channels, out)
        return gradient.permute(0, 4, 3, 1, 2)

    def input_gradient(
        self,
        place: int,
        dy: Tensor,
        block_gradient: Tensor,
        below: Normed,
        out_below: Tensor,
        sums: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """dz and its sums of the layer below; `block_gradient` is dz of the block that the layer opens."""
        from . import triton_kernels as passes

        layer, layer_below = self._setting.layers[place], self._setting.layers[place - 1]
        count, channels, parts = layer_below.pixels(self.images), layer.channels_in, layer.stride**2
        size, warps = _TILES["input_gradient"][channels]
        blocks = _blocks(count // parts, size)
        dz = torch.empty_like(below.y)
        partial = floats(dy, self.replicas, parts * blocks, 2, channels)
        passes.input_gradient[(parts * blocks, self.replicas)](
            dy, self._laid_out(place), block_gradient, out_below, below.y, below.mean, below.inverse,
            self._scales[place - 1], self._shifts[place - 1],
            dz, partial, count, layer.height, layer.width, channels, layer.channels_out, layer.stride,
            SHORTCUT=layer.stride if layer.opens else 0, FROM_OUTPUT=layer_below.shortcut > 0,
            BM=size, num_warps=warps,
        )  # fmt: skip
        return dz, _add_partial_sums(partial, sums)

    def _laid_out(self, place: int) -> Tensor:
        """The weights (K, out, in, 3, 3) as [K, 9, in, out], the stem's missing channels zero."""
        if place not in self._laid:
            weight, wanted = self._weights[place], self._setting.layers[place].channels_in
            replicas, out, channels = weight.shape[:3]
            laid = weight.detach().permute(0, 3, 4, 2, 1).reshape(replicas, 9, channels, out)
            laid = laid.to(self._pixels.dtype)
            if channels < wanted:
                laid = torch.nn.functional.pad(laid, (0, 0, 0, wanted - channels))
            self._laid[place] = laid.contiguous()
        return self._laid[place]


def finish_statistics(setting: Setting, place: int, y: Tensor, partial: Tensor, pixels: int) -> Normed:
    """The statistics of y from those of its blocks of so many pixels; moves the running ones."""
    from . import triton_kernels as passes

    replicas, blocks, _, channels = partial.shape
    running = setting.running[place]
    mean, inverse = floats(y, replicas, channels), floats(y, replicas, channels)
    passes.finish_statistics[(replicas,)](
        partial, mean, inverse, running.mean, running.variance, y[0].numel() // channels,
        setting.momentum, setting.epsilon,
        BLOCKS=blocks, C=channels, BM=pixels, TILE=_TILE_OF_PARTIALS, num_warps=4,
    )  # fmt: skip
    return Normed(y, mean, inverse)


def _add_partial_sums(partial: Tensor, sums: Tensor | None = None) -> Tensor:
    """(K, blocks, 2, C) to (K, 2, C): gradients by the shift and by the scale of a batch norm."""
    from . import triton_kernels as passes

    replicas, blocks, _, channels = partial.shape
    if sums is None:
        sums = floats(partial, replicas, 2, channels)
    passes.add_partial_sums[(replicas,)](
        partial, sums, blocks, WIDTH=2 * channels, TILE=_TILE_OF_PARTIALS, num_warps=4
    )
    return sums


def floats(like: Tensor, *shape: int) -> Tensor:
    return like.new_empty(shape, dtype=torch.float32)


def _blocks(count: int, size: int) -> int:
    return -(-count // size)


def stride_of(x: Tensor) -> int:
    """Elements from one replica's input to the next; none where all have the same."""
    return x[0].numel() if len(x) > 1 else 0
