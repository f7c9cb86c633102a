"""The residual nets: size, shortcuts, start, and a plain rewriting of one of them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("depth", "millions", "exact"), [(32, 0.46, 464_154), (44, 0.66, 658_586), (56, 0.85, 853_018)]
)
def test_parameter_counts_are_the_published_ones(depth, millions, exact):
    net = resnet_cifar(depth, outputs=10)
    count = sum(parameter.numel() for parameter in net.parameters())
    assert count == exact
    assert round(count / 1e6, 2) == millions
    pair = resnet_cifar(depth, outputs=10, replicas=2)
    assert sum(parameter.numel() for parameter in pair.parameters()) == 2 * exact
    convolutions = [value for value in net.parameters() if value.dim() == 5]
    assert len(convolutions) + 1 == depth


def plain_forward(net, x):
    """One replica in evaluation mode, written without stacks."""

    def weights(name):
        return net.get_parameter(name)[0]

    def norm(x, name):
        mean, var = net.get_buffer(f"{name}.running_mean")[0], net.get_buffer(f"{name}.running_var")[0]
        return F.batch_norm(x, mean, var, weights(f"{name}.weight"), weights(f"{name}.bias"))

    x = F.relu(norm(F.conv2d(x, weights("stem.weight"), padding=1), "stem_norm"))
    for number in range(len(net.blocks)):
        first, second = weights(f"blocks.{number}.first.weight"), weights(f"blocks.{number}.second.weight")
        grows = len(first) // x.shape[1]
        inner = F.conv2d(x, first, stride=grows, padding=1)
        inner = F.relu(norm(inner, f"blocks.{number}.first_norm"))
        inner = norm(F.conv2d(inner, second, padding=1), f"blocks.{number}.second_norm")
        if grows == 2:
            zeros = torch.zeros_like(x[:, : x.shape[1] // 2, ::2, ::2])
            x = torch.cat([zeros, x[:, :, ::2, ::2], zeros], 1)
        x = F.relu(x + inner)
    return x.mean((2, 3)) @ weights("head.weight").T + weights("head.bias")


@pytest.mark.parametrize("side", [8, 9])
def test_forward_is_that_of_the_paper(side):
    net = resnet_cifar(14, outputs=3).double()
    x = torch.randn(4, 3, side, side, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for _ in range(3):
        net(x)
    net.eval()
    torch.testing.assert_close(net(x)[0], plain_forward(net, x))


def test_weights_start_as_he_proposed():
    net = resnet_cifar(20, replicas=2)
    for name, weight in net.named_parameters():
        if weight.dim() == 5:
            fan_in = weight[0, 0].numel()
            expected = math.sqrt(2 / fan_in)
            spread = 4 * expected / math.sqrt(2 * weight[0].numel())
            for k in range(2):
                assert weight[k].std().item() == pytest.approx(expected, abs=spread), name
    assert not net.head.bias.any()


@pytest.mark.parametrize("depth", [2, 7, 31, 33])
def test_depth_must_fit(depth):
    with pytest.raises(ValueError, match=r"6n \+ 2"):
        resnet_cifar(depth)


def test_width_must_be_even():
    with pytest.raises(ValueError, match="even"):
        resnet_cifar(8, width=3)
