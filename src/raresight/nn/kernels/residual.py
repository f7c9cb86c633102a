"""The trunk of K residual nets on a GPU: stem, blocks and mean over places as one function.

What limits training of small nets on a large GPU is moving activations. Kept as [K, N, H, W, C], all channels
of a pixel are neighbours and a convolution is nine small matrix products; the sums that batch norm needs are
taken while its input is still in registers, forward and backward, and the gradient of a shortcut and of the
relu below join that of the convolution. So each activation is read and written about 13 times a step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import has_triton

__all__ = ["Layer", "Running", "can_run", "fits", "plan_layers", "trunk"]

_CHANNELS = 16
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


def plan_layers(blocks: int, height: int, width: int) -> tuple[Layer, ...]:
    """The layers of a net with three stages of so many blocks, of 16, 32 and 64 channels."""
    layers = [Layer(height, width, _CHANNELS, _CHANNELS, 1, False, 0)]
    before = _CHANNELS
    for stage in range(3):
        after = _CHANNELS << stage
        for position in range(blocks):
            stride = 2 if stage > 0 and position == 0 else 1
            layers.append(Layer(height, width, before, after, stride, True, 0))
            height, width = height // stride, width // stride
            layers.append(Layer(height, width, after, after, 1, False, stride))
            before = after
    return tuple(layers)


def can_run(x: Tensor, channels: int, *, training: bool) -> bool:
    """Whether the kernels take this input: images on a GPU, bfloat16 or float32, of sizes that halve twice.

    The first stage must have 16 channels, the input need no gradient, and Triton be there. In evaluation mode
    the kernels give no gradients, so that none must be wanted. A graph of torch.compile has kernels of its
    own.
    """
    if x.device.type != "cuda" or torch.compiler.is_compiling() or not has_triton():
        return False
    if x.requires_grad or (torch.is_grad_enabled() and not training):
        return False
    return _precision(x) is not None and fits(x.shape, channels)


def fits(shape: Sequence[int], channels: int) -> bool:
    """Whether images of this shape, (..., N, channels, H, W), suit the kernels of a net of such a width."""
    count, colours, height, width = shape[-4:]
    if channels != _CHANNELS or colours > _CHANNELS or height % 4 or width % 4:
        return False
    # Places within a replica are counted in 32 bits.
    return count * height * width * _CHANNELS < 2**31


def _precision(x: Tensor) -> torch.dtype | None:
    """The type of the activations: that of autocast where it is on, else the images'."""
    kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    return kind if kind in (torch.bfloat16, torch.float32) else None


def trunk(
    images: Tensor,
    layers: Sequence[Layer],
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    shifts: Sequence[Tensor],
    running: Sequence[Running],
    *,
    training: bool,
    momentum: float = 0.1,
    epsilon: float = 1e-5,
) -> Tensor:
    """Images (K, N, channels, H, W), or (N, channels, H, W) for all replicas, to features (K, N, C), float32.

    Each convolution has weights (K, out, in, 3, 3) and a batch norm with scale and shift (K, out). Batch norm
    takes its statistics from the batch in training, and from `running` otherwise.
    """
    kind = _precision(images) or images.dtype
    parameters = (*weights, *scales, *shifts)
    if training and layers[-1].pixels(images.shape[-4]) < 2:
        raise ValueError("batch norm in training needs at least 2 values a channel, but the batch has fewer")
    # Inside an autograd function gradients always look wanted; here it can be seen whether they are.
    keep = training and torch.is_grad_enabled() and any(parameter.requires_grad for parameter in parameters)
    setting = _Setting(tuple(layers), tuple(running), training, keep, momentum, epsilon)
    with _device_of(images):
        pixels = _channels_last(images, kind)
        features: Tensor = _Trunk.apply(pixels, setting, *parameters)  # type: ignore[no-untyped-call]
    return features


def _device_of(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Kernels are launched on the current device, which may be another one than the tensor's."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()


@dataclass(frozen=True)
class _Setting:
    layers: tuple[Layer, ...]
    running: tuple[Running, ...]
    training: bool
    keep: bool
    momentum: float
    epsilon: float


def _channels_last(images: Tensor, kind: torch.dtype) -> Tensor:
    """[K or 1, N, H, W, 16], the channels beyond the image's zero."""
    stacked = images if images.dim() == 5 else images.unsqueeze(0)
    replicas, count, channels, height, width = stacked.shape
    padded = stacked.new_zeros((replicas, count, height, width, _CHANNELS), dtype=kind)
    padded[..., :channels] = stacked.permute(0, 1, 3, 4, 2)
    return padded


class _Trunk(torch.autograd.Function):
    """apply(pixels, setting, *weights, *scales, *shifts): features (K, N, C)."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, setting: _Setting, *parameters: Tensor) -> Tensor:
        count = len(setting.layers)
        scales = [scale.float().contiguous() for scale in parameters[count : 2 * count]]
        shifts = [shift.float().contiguous() for shift in parameters[2 * count :]]
        kernels = [
            _kernel_layout(weight, layer, pixels.dtype)
            for weight, layer in zip(parameters[:count], setting.layers)
        ]
        runner = _Pass(pixels, setting, kernels, scales, shifts)
        features = runner.forward(setting.keep)
        ctx.runner = runner if setting.keep else None
        ctx.in_channels = [weight.shape[2] for weight in parameters[:count]]
        # Scales and shifts are read again in the backward pass, where they lie.
        ctx.norms = parameters[count:]
        ctx.versions = [parameter._version for parameter in ctx.norms]
        return features

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outputs: Any) -> Any:
        if ctx.runner is None:
            raise RuntimeError(
                "the trunk keeps no gradient in evaluation mode, and a backward pass runs once: call train() "
                "first, or leave the kernels by moving the net to float64"
            )
        if [parameter._version for parameter in ctx.norms] != ctx.versions:
            raise RuntimeError(
                "scales or shifts of batch norm were changed in place between forward and backward pass"
            )
        runner, ctx.runner = ctx.runner, None
        with _device_of(runner.pixels):
            weights, scales, shifts = runner.backward(outputs[0].float().contiguous())
        return None, None, *(_given_layout(w, c) for w, c in zip(weights, ctx.in_channels)), *scales, *shifts


def _kernel_layout(weight: Tensor, layer: Layer, kind: torch.dtype) -> Tensor:
    """(K, out, in, 3, 3) to [K, 9, in, out], the stem's missing channels zero."""
    replicas, out, channels = weight.shape[:3]
    laid = weight.detach().permute(0, 3, 4, 2, 1).reshape(replicas, 9, channels, out).to(kind)
    if channels < layer.channels_in:
        laid = torch.nn.functional.pad(laid, (0, 0, 0, layer.channels_in - channels))
    return laid.contiguous()


def _given_layout(gradient: Tensor, channels: int) -> Tensor:
    replicas, _, _, out = gradient.shape
    return gradient[:, :, :channels].reshape(replicas, 3, 3, channels, out).permute(0, 4, 3, 1, 2)


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


def _blocks(count: int, size: int) -> int:
    return -(-count // size)


class _Pass:
    """One forward pass and what its backward pass needs."""

    def __init__(
        self,
        pixels: Tensor,
        setting: _Setting,
        kernels: list[Tensor],
        scales: list[Tensor],
        shifts: list[Tensor],
    ) -> None:
        self.pixels, self.setting = pixels, setting
        self.kernels, self.scales, self.shifts = kernels, scales, shifts
        self.replicas, self.images = len(kernels[0]), pixels.shape[1]
        self.convolved: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.means: list[Tensor] = []
        self.inverses: list[Tensor] = []

    def forward(self, keep: bool) -> Tensor:
        block_input = out = self.pixels
        for place, layer in enumerate(self.setting.layers):
            if layer.opens:
                block_input = out
            if not self.setting.training:
                out = self._in_use(place, layer, out, block_input)
                continue
            y, mean, inverse = self._convolve(place, layer, out)
            out = self._normalise(place, layer, y, mean, inverse, block_input)
            if keep:
                self.convolved.append(y)
                self.outputs.append(out)
                self.means.append(mean)
                self.inverses.append(inverse)
        return out.mean((2, 3), dtype=torch.float32)

    def _convolve(self, place: int, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        from . import residual_passes as passes

        running = self.setting.running[place]
        count, out = layer.pixels(self.images), layer.channels_out
        size, warps = _TILES["convolve"][out]
        blocks = _blocks(count, size)
        y = x.new_empty((self.replicas, self.images, *layer.out_size))
        partial = self._floats(blocks, 2, out)
        passes.convolve[(blocks, self.replicas)](
            x, self.kernels[place], y, partial, count, self._stride(x),
            layer.height, layer.width, layer.channels_in, out, layer.stride, BM=size, num_warps=warps,
        )  # fmt: skip
        mean, inverse = self._floats(out), self._floats(out)
        passes.finish_statistics[(self.replicas,)](
            partial, mean, inverse, running.mean, running.variance, count,
            self.setting.momentum, self.setting.epsilon,
            BLOCKS=blocks, C=out, BM=size, TILE=_TILE_OF_PARTIALS, num_warps=4,
        )  # fmt: skip
        return y, mean, inverse

    def _normalise(
        self, place: int, layer: Layer, y: Tensor, mean: Tensor, inverse: Tensor, block_input: Tensor
    ) -> Tensor:
        from . import residual_passes as passes

        count, (height, width, channels) = layer.pixels(self.images), layer.out_size
        size, warps = _TILES["normalise"][channels]
        out = torch.empty_like(y)
        passes.normalise[(_blocks(count, size), self.replicas)](
            y, mean, inverse, self.scales[place], self.shifts[place], block_input, out, count,
            height, width, channels, SHORTCUT=layer.shortcut, BM=size, num_warps=warps,
        )  # fmt: skip
        return out

    def _in_use(self, place: int, layer: Layer, x: Tensor, block_input: Tensor) -> Tensor:
        """Convolution, batch norm by the running statistics, shortcut and relu at once."""
        from . import residual_passes as passes

        running, channels = self.setting.running[place], layer.channels_out
        count = layer.pixels(self.images)
        size, warps = _TILES["convolve"][channels]
        scale = self.scales[place] * torch.rsqrt(running.variance.float() + self.setting.epsilon)
        shift = self.shifts[place] - running.mean.float() * scale
        out = x.new_empty((self.replicas, self.images, *layer.out_size))
        passes.convolve_normalised[(_blocks(count, size), self.replicas)](
            x, self.kernels[place], scale, shift, block_input, out, count, self._stride(x),
            layer.height, layer.width, layer.channels_in, channels, layer.stride,
            SHORTCUT=layer.shortcut, BM=size, num_warps=warps,
        )  # fmt: skip
        return out

    def backward(self, features_gradient: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        weights, scales, shifts = [], [], []
        dz, sums = self._pooled_gradient(features_gradient)
        block_gradient = dz
        for place in reversed(range(len(self.setting.layers))):
            layer = self.setting.layers[place]
            shifts.append(sums[:, 0])
            scales.append(sums[:, 1])
            if not layer.opens:
                block_gradient = dz
            dy = self._norm_gradient(place, layer, dz, sums)
            weights.append(self._weight_gradient(place, layer, dy))
            if place:
                dz, sums = self._input_gradient(place, layer, dy, block_gradient)
            # Each is read once: let its memory serve the layers below.
            self.convolved.pop()
            self.outputs.pop()
        return weights[::-1], scales[::-1], shifts[::-1]

    def _pooled_gradient(self, features_gradient: Tensor) -> tuple[Tensor, Tensor]:
        from . import residual_passes as passes

        layer = self.setting.layers[-1]
        count, channels = layer.pixels(self.images), layer.channels_out
        size, warps = _TILES["norm_gradient"][channels]
        blocks = _blocks(count, size)
        dz = torch.empty_like(self.convolved[-1])
        partial = self._floats(blocks, 2, channels)
        passes.pooled_gradient[(blocks, self.replicas)](
            features_gradient, self.outputs[-1], self.convolved[-1], self.means[-1], self.inverses[-1], dz,
            partial, count, PLACES=count // self.images, C=channels, BM=size, num_warps=warps,
        )  # fmt: skip
        return dz, self._added(partial, blocks, channels)

    def _norm_gradient(self, place: int, layer: Layer, dz: Tensor, sums: Tensor) -> Tensor:
        from . import residual_passes as passes

        count, channels = layer.pixels(self.images), layer.channels_out
        size, warps = _TILES["norm_gradient"][channels]
        dy = torch.empty_like(dz)
        passes.norm_gradient[(_blocks(count, size), self.replicas)](
            dz, self.convolved[place], self.means[place], self.inverses[place], self.scales[place], sums, dy,
            count, C=channels, BM=size, num_warps=warps,
        )  # fmt: skip
        return dy

    def _weight_gradient(self, place: int, layer: Layer, dy: Tensor) -> Tensor:
        from . import residual_passes as passes

        x = self.outputs[place - 1] if place else self.pixels
        count, out = layer.pixels(self.images), layer.channels_out
        size, warps = _TILES["weight_gradient"][layer.channels_in]
        chunk = _blocks(_blocks(count, _CHUNKS), size) * size
        chunks = _blocks(count, chunk)
        partial = self._floats(chunks, 9, layer.channels_in, out)
        passes.weight_gradient[(3, chunks, self.replicas)](
            x, dy, partial, count, self._stride(x), chunk,
            layer.height, layer.width, layer.channels_in, out, layer.stride, BM=size, num_warps=warps,
        )  # fmt: skip
        return partial.sum(1)

    def _input_gradient(
        self, place: int, layer: Layer, dy: Tensor, block_gradient: Tensor
    ) -> tuple[Tensor, Tensor]:
        from . import residual_passes as passes

        below = self.setting.layers[place - 1]
        count, channels = below.pixels(self.images), layer.channels_in
        size, warps = _TILES["input_gradient"][channels]
        blocks = _blocks(count, size)
        dz = torch.empty_like(self.convolved[place - 1])
        partial = self._floats(blocks, 2, channels)
        passes.input_gradient[(blocks, self.replicas)](
            dy, self.kernels[place], block_gradient, self.outputs[place - 1], self.convolved[place - 1],
            self.means[place - 1], self.inverses[place - 1], self.scales[place - 1], self.shifts[place - 1],
            dz, partial, count, layer.height, layer.width, channels, layer.channels_out, layer.stride,
            SHORTCUT=layer.stride if layer.opens else 0, FROM_OUTPUT=below.shortcut > 0,
            BM=size, num_warps=warps,
        )  # fmt: skip
        return dz, self._added(partial, blocks, channels)

    def _added(self, partial: Tensor, blocks: int, channels: int) -> Tensor:
        """(K, 2, C): gradients by the shift and by the scale of a batch norm."""
        from . import residual_passes as passes

        sums = self._floats(2, channels)
        passes.add_partial_sums[(self.replicas,)](
            partial, sums, blocks, WIDTH=2 * channels, TILE=_TILE_OF_PARTIALS, num_warps=4
        )
        return sums

    def _floats(self, *shape: int) -> Tensor:
        return self.pixels.new_empty((self.replicas, *shape), dtype=torch.float32)

    @staticmethod
    def _stride(x: Tensor) -> int:
        """Elements from one replica's input to the next; none where all have the same."""
        return x[0].numel() if len(x) > 1 else 0
