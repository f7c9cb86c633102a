"""Convolutions of stacked nets on a GPU, by every way that a layer may take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from check_training import RECIPE, SMALL_IMAGES, assert_equal, assert_moved, trained

from reproduction.resnet import resnet_cifar
from reproduction.resnet.resnet import WAYS, way_of

LAYERS = ((3, 16, 32, 1), (16, 16, 32, 1), (16, 32, 32, 2), (64, 64, 8, 1), (256, 256, 4, 1), (5, 7, 9, 2))
"""Channels in and out, pixels a side, stride."""


def check_every_way_of_a_convolution() -> None:
    """Values and gradients are those in float64, up to the rounding of each precision.

    cuDNN rounds what it convolves in float32 to TF32, ten bits of a number, unless told not to.
    """
    limits = {
        torch.float64: dict.fromkeys(WAYS, 1e-12),
        torch.float32: {"grouped": 2e-3, "product": 1e-5},
        torch.bfloat16: dict.fromkeys(WAYS, 2e-2),
    }
    for precision, tolerances in limits.items():
        for channels, out_channels, side, stride in LAYERS:
            random = torch.Generator().manual_seed(channels)
            x = torch.randn(8, 3, channels, side, side, generator=random, dtype=torch.float64)
            weight = torch.randn(3, out_channels, channels, 3, 3, generator=random, dtype=torch.float64)
            wanted = values(WAYS["grouped"], x, weight, stride)
            given = [tensor.to("cuda", precision) for tensor in (x, weight)]
            for way in WAYS:
                found = values(WAYS[way], *given, stride)
                for one, exact in zip(found, wanted, strict=True):
                    apart = float((one.cpu().double() - exact).norm() / exact.norm())
                    assert apart < tolerances[way], (way, precision, channels, stride, apart)


def check_a_wide_net_is_trained_the_same_twice_and_without_a_graph() -> None:
    """By both ways in one net: the first layers grouped, the last ones by products."""
    taken = {way_of("cuda", torch.bfloat16, 4, channels) for channels in (64, 128, 256)}
    assert taken == set(WAYS), taken
    net = partial(resnet_cifar, 8, width=64)
    recipe = replace(RECIPE, precision="bf16")
    one, other = (trained(net, SMALL_IMAGES, recipe)[0] for _ in range(2))
    without_graph, _ = trained(net, SMALL_IMAGES, replace(recipe, cuda_graph=False))
    assert_moved(one, net)
    assert_equal(one, other)
    assert_equal(one, without_graph)


def values(
    call: Callable[..., torch.Tensor], x: torch.Tensor, weight: torch.Tensor, stride: int
) -> list[torch.Tensor]:
    given = [tensor.clone().requires_grad_() for tensor in (x, weight)]
    out = call(*given, stride)
    pull = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(out)
    return [out.detach(), *torch.autograd.grad(out, given, pull)]
