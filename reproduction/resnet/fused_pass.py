"""A pass through the trunk by the fused kernels, and through Triton's where the stride is 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from . import fused_kernels as fused
from .triton_layers import Normed, Running, Setting, TritonLayers, finish_statistics, floats

_MOST_NETS = 65535
"""What a grid has in its second direction."""
_FEATURES = 64
_FEWEST_FOR_GROUPS = 8
"""Nets that are worth two groups."""


class FusedPass:
    """One forward pass and what its backward pass needs.

    Many nets are trained in two groups side by side: the last blocks of a kernel leave a part of the GPU
    idle, and small kernels most of it, which those of the other group fill.
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
        nets = len(weights[0])
        middle = nets // 2 if setting.training and nets >= _FEWEST_FOR_GROUPS else nets
        self._groups = [slice(0, middle), slice(middle, nets)][: 1 + (middle < nets)]
        self._passes: list[_GroupPass] = []

    @staticmethod
    def takes(
        setting: Setting,
        pixels: Tensor,
        weights: Sequence[Tensor],
        scales: Sequence[Tensor],
        shifts: Sequence[Tensor],
    ) -> bool:
        """Whether the kernels do this pass; weights and statistics must be float32."""
        statistics = [tensor for of in setting.running for tensor in (of.mean, of.variance)]
        return (
            fused.suits(pixels.dtype, *pixels.shape[1:4], training=setting.training)
            and len(weights[0]) <= _MOST_NETS
            and all(
                given.dtype == torch.float32 and given.is_contiguous() for given in (*weights, *statistics)
            )
            and fused.is_available(pixels.device)
        )

    def forward(self) -> Tensor:
        if not self._setting.training:
            return self._pass_of(self._groups[0]).use()
        # Whatever both groups write to is of the stream they part from and come back to.
        features = floats(self._pixels, len(self._weights[0]), self._pixels.shape[1], _FEATURES)

        def begin(group: int) -> None:
            nets = self._groups[group]
            own = self._pass_of(nets)
            own.train(features[nets])
            if self._setting.keep:
                self._passes.append(own)

        self._side_by_side(begin)
        return features

    def backward(self, features_gradient: Tensor) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Gradients of weights (K, out, in, 3, 3), scales and shifts (K, out)."""
        shapes = [weight.shape for weight in self._weights]
        room = _GradientBuffers(
            [floats(features_gradient, *shape) for shape in shapes],
            [floats(features_gradient, shape[0], 2, shape[1]) for shape in shapes],
        )

        def end(group: int) -> None:
            nets = self._groups[group]
            self._passes[group].backward(features_gradient[nets], room.part(nets))

        self._side_by_side(end)
        return room.weights, [sums[:, 1] for sums in room.sums], [sums[:, 0] for sums in room.sums]

    def _pass_of(self, nets: slice) -> _GroupPass:
        running = [Running(of.mean[nets], of.variance[nets]) for of in self._setting.running]
        return _GroupPass(
            replace(self._setting, running=tuple(running)),
            self._pixels[nets] if len(self._pixels) > 1 else self._pixels,
            [weight.detach()[nets] for weight in self._weights],
            [scale[nets] for scale in self._scales],
            [shift[nets] for shift in self._shifts],
        )

    def _side_by_side(self, work: Callable[[int], None]) -> None:
        """The work of each group: of the first on the current stream, of the second on one beside it."""
        if len(self._groups) == 1 or not self._pixels.is_cuda:
            for group in range(len(self._groups)):
                work(group)
            return
        here = torch.cuda.current_stream()
        beside = next(stream for stream in _streams_beside(self._pixels.device) if stream != here)
        # It begins after what was there before, not after the first group's.
        beside.wait_stream(here)
        try:
            work(0)
            with torch.cuda.stream(beside):
                work(1)
        finally:
            here.wait_stream(beside)


@cache
def _streams_beside(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Two, of which at least one is not the current one: PyTorch has 32 and gives them out in turn."""
    return tuple(torch.cuda.Stream(device) for _ in range(2))  # type: ignore[no-untyped-call, return-value]


@dataclass(frozen=True)
class _GradientBuffers:
    """Room for what a backward pass gives of each layer: (K, out, in, 3, 3), and sums of dz (K, 2, out)."""

    weights: list[Tensor]
    sums: list[Tensor]

    def part(self, nets: slice) -> _GradientBuffers:
        return _GradientBuffers([room[nets] for room in self.weights], [room[nets] for room in self.sums])


class _GroupPass:
    """A pass of some of the nets.

    What a layer gives is written to memory only where it is a block's input: what the first layer of a block
    gives is computed again from its convolution wherever it is read.
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
        self._scales, self._shifts = scales, shifts
        self._nets = len(weights[0])
        self._strided = TritonLayers(setting, pixels, weights, scales, shifts)
        self._plain = [place for place, layer in enumerate(setting.layers) if layer.stride == 1]
        packed = fused.pack(
            [weights[place] for place in self._plain],
            [setting.layers[place].channels_out for place in self._plain],
            gradients=setting.keep,
        )
        self._ahead = {place: ahead for place, (ahead, _) in zip(self._plain, packed)}
        self._back = {place: back for place, (_, back) in zip(self._plain, packed)}
        self._normed: dict[int, Normed] = {}
        self._outputs: dict[int, Tensor] = {}

    def train(self, features: Tensor) -> None:
        """Write the features (K, N, 64) of a batch, and keep what the backward pass needs."""
        for place, layer in enumerate(self._setting.layers):
            if layer.stride == 2:
                normed = self._strided.convolve(place, self._output(place - 1))
            else:
                y, partial = self._convolved(place)
                pixels = layer.pixels(fused.images_of_block(layer.channels_out))
                normed = finish_statistics(self._setting, place, y, partial, pixels)
            self._normed[place] = normed
            if not self._setting.keep:
                # A layer reads that below it, and the input of the block before.
                self._normed.pop(place - 1, None)
                self._outputs.pop(place - 4, None)
        last = self._output(len(self._setting.layers) - 1)
        torch.mean(last, (2, 3), dtype=torch.float32, out=features)

    def _convolved(self, place: int) -> tuple[Tensor, Tensor]:
        """What a convolution by stride 1 gives, with its partial statistics."""
        weights, below = self._ahead[place], place - 1
        if place == 0:
            y, partial, _ = fused.forward(self._pixels, None, None, weights, self._nets, keep=False)
            return y, partial
        layer_below = self._setting.layers[below]
        if layer_below.shortcut == 2:
            y, partial, _ = fused.forward(self._output(below), None, None, weights, self._nets, keep=False)
            return y, partial
        shortcut = self._outputs[below - 2] if layer_below.shortcut else None
        y, partial, kept = fused.forward(
            self._normed[below].y,
            self._norm(below),
            shortcut,
            weights,
            self._nets,
            keep=self._setting.layers[place].opens,
        )
        if kept is not None:
            self._outputs[below] = kept
        return y, partial

    def _output(self, place: int) -> Tensor:
        """What a layer gives, with its shortcut if it has one, in memory."""
        if place not in self._outputs:
            layer = self._setting.layers[place]
            block_input = self._outputs[place - 2] if layer.shortcut else self._normed[place].y
            self._outputs[place] = self._strided.normalise(place, self._normed[place], block_input)
        return self._outputs[place]

    def _norm(self, place: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        normed = self._normed[place]
        return normed.mean, normed.inverse, self._scales[place], self._shifts[place]

    def backward(self, features_gradient: Tensor, into: _GradientBuffers) -> None:
        last = len(self._setting.layers) - 1
        dz, sums = self._strided.pooled_gradient(
            features_gradient, self._normed[last], self._outputs.pop(last), into.sums[last]
        )
        block_gradient = dz
        for place in reversed(range(len(self._setting.layers))):
            layer, normed, below = self._setting.layers[place], self._normed.pop(place), place - 1
            if not layer.opens:
                block_gradient = dz
            # What a block was given is read for the last time by its first layer.
            x = self._outputs.pop(below) if layer.opens else None
            if layer.stride == 2:
                assert x is not None
                dy = self._strided.norm_gradient(place, normed, dz, sums)
                into.weights[place].copy_(self._strided.weight_gradient(place, x, dy))
                dz, sums = self._strided.input_gradient(
                    place, dy, block_gradient, self._normed[below], x, into.sums[below]
                )
                continue
            found = fused.backward(
                dz,
                normed,
                self._scales[place],
                sums,
                x=x if place else self._pixels,
                below=(self._normed[below], self._scales[below], self._shifts[below]) if place else None,
                shortcut=block_gradient if layer.opens else None,
                weights=self._back[place],
                gradient=into.weights[place],
                sums_below=into.sums[below] if place else None,
            )
            if found is not None:
                dz, sums = found, into.sums[below]

    def use(self) -> Tensor:
        """Stage by stage, the images of each in shared memory."""
        running = [self._setting.running[place] for place in self._plain]
        norms = dict(
            zip(
                self._plain,
                fused.fold(
                    [self._scales[place] for place in self._plain],
                    [self._shifts[place] for place in self._plain],
                    [of.mean for of in running],
                    [of.variance for of in running],
                    self._setting.epsilon,
                ),
            )
        )
        opening = [place for place, layer in enumerate(self._setting.layers) if layer.stride == 2]
        bounds = [-1, *opening, len(self._setting.layers)]
        out, wide = self._pixels, None
        for before, end in pairwise(bounds):
            first = before + 1
            if before >= 0:
                wide, out = out, self._strided.in_use(before, out, out)
            out = fused.in_use(out, wide, self._ahead[first], norms[first], end - first, self._nets)
        return out
