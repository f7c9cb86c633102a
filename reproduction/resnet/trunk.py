"""The trunk of K residual nets on a GPU: stem, blocks and mean over places as one function.

Images of 32 x 32 pixels in bfloat16 go through kernels in CUDA C++ that do a whole layer at once
(`fused_pass`), everything else layer by layer through Triton's (`triton_layers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from raresight.nn.kernels import device_of, has_triton

from . import fused_kernels as fused
from .fused_pass import FusedPass
from .triton_layers import CHANNELS, Layer, Normed, Running, Setting, TritonLayers


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
    if channels != CHANNELS or colours > CHANNELS or height % 4 or width % 4:
        return False
    # Places within a replica are counted in 32 bits.
    return count * height * width * CHANNELS < 2**31


def kernels_for(device: torch.device, kind: torch.dtype, shape: Sequence[int], channels: int) -> str:
    """What trains nets of such a width on batches (N, channels, H, W): "fused", "triton", or "layers".

    The first two are kernels of our own, the last PyTorch's operations.
    """
    known = kind in (torch.bfloat16, torch.float32) and fits(shape, channels)
    if device.type != "cuda" or not has_triton() or not known:
        return "layers"
    count, _, height, width = shape[-4:]
    is_fused = fused.suits(kind, count, height, width, training=True) and fused.is_available(device)
    return "fused" if is_fused else "triton"


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
    setting = Setting(tuple(layers), tuple(running), training, keep, momentum, epsilon)
    with device_of(images):
        pixels = _channels_last(images, kind)
        features: Tensor = _Trunk.apply(pixels, setting, *parameters)  # type: ignore[no-untyped-call]
    return features


def _channels_last(images: Tensor, kind: torch.dtype) -> Tensor:
    """[K or 1, N, H, W, 16], the channels beyond the image's zero."""
    stacked = images if images.dim() == 5 else images.unsqueeze(0)
    replicas, count, channels, height, width = stacked.shape
    if images.dtype == torch.float32 and kind == torch.bfloat16 and fused.is_available(images.device):
        return fused.lay_out(stacked)
    padded = stacked.new_zeros((replicas, count, height, width, CHANNELS), dtype=kind)
    padded[..., :channels] = stacked.permute(0, 1, 3, 4, 2)
    return padded


class _Trunk(torch.autograd.Function):
    """apply(pixels, setting, *weights, *scales, *shifts): features (K, N, C)."""

    @staticmethod
    def forward(ctx: Any, pixels: Tensor, setting: Setting, *parameters: Tensor) -> Tensor:
        count = len(setting.layers)
        scales = [scale.float().contiguous() for scale in parameters[count : 2 * count]]
        shifts = [shift.float().contiguous() for shift in parameters[2 * count :]]
        given = (setting, pixels, parameters[:count], scales, shifts)
        runner = FusedPass(*given) if FusedPass.takes(*given) else _LayerPass(*given)
        features = runner.forward()
        ctx.runner = runner if setting.keep else None
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
        with device_of(ctx.norms[0]):
            weights, scales, shifts = runner.backward(outputs[0].float().contiguous())
        return None, None, *weights, *scales, *shifts


class _LayerPass:
    """One forward pass, layer by layer, and what its backward pass needs."""

    def __init__(
        self,
        setting: Setting,
        pixels: Tensor,
        weights: Sequence[Tensor],
        scales: Sequence[Tensor],
        shifts: Sequence[Tensor],
    ) -> None:
        self._setting, self._pixels = setting, pixels
        self._layers = TritonLayers(setting, pixels, weights, scales, shifts)
        self._normed: list[Normed] = []
        self._outputs: list[Tensor] = []

    def forward(self) -> Tensor:
        block_input = out = self._pixels
        for place, layer in enumerate(self._setting.layers):
            if layer.opens:
                block_input = out
            if not self._setting.training:
                out = self._layers.in_use(place, out, block_input)
                continue
            normed = self._layers.convolve(place, out)
            out = self._layers.normalise(place, normed, block_input)
            if self._setting.keep:
                self._normed.append(normed)
                self._outputs.append(out)
        return out.mean((2, 3), dtype=torch.float32)

    def backward(self, features_gradient: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        weights, scales, shifts = [], [], []
        dz, sums = self._layers.pooled_gradient(features_gradient, self._normed[-1], self._outputs[-1])
        block_gradient = dz
        for place in reversed(range(len(self._setting.layers))):
            shifts.append(sums[:, 0])
            scales.append(sums[:, 1])
            if not self._setting.layers[place].opens:
                block_gradient = dz
            # Each is read once: its memory serves the layers below.
            dy = self._layers.norm_gradient(place, self._normed.pop(), dz, sums)
            self._outputs.pop()
            x = self._outputs[-1] if place else self._pixels
            weights.append(self._layers.weight_gradient(place, x, dy))
            if place:
                dz, sums = self._layers.input_gradient(place, dy, block_gradient, self._normed[-1], x)
        return weights[::-1], scales[::-1], shifts[::-1]
