"""The layers of stacked nets against PyTorch's own, replica by replica."""

from __future__ import annotations

import pytest
import torch

from raresight.nn.nets.layers import BatchNorm, GhostBatchNorm, Linear
from reproduction.resnet.resnet import WAYS, Conv3x3, ImageBatchNorm, convolution, way_of

torch.set_num_threads(1)

K, N, C = 3, 10, 4


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def prepared(layer):
    """The layer in float64, with weights that are all different."""
    layer = layer.double()
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.copy_(random(*parameter.shape, seed=100 + number))
    return layer


def torch_norm(kind, layer, k):
    norm = kind(C, momentum=layer.momentum, eps=layer.epsilon).double()
    with torch.no_grad():
        norm.weight.copy_(layer.weight[k])
        norm.bias.copy_(layer.bias[k])
    return norm


def test_linear():
    layer = prepared(Linear(K, C, 5))
    stacked, shared = random(K, N, C), random(N, C, seed=1)
    for k in range(K):
        for x, out in ((stacked[k], layer(stacked)[k]), (shared, layer(shared)[k])):
            torch.testing.assert_close(out, torch.nn.functional.linear(x, layer.weight[k], layer.bias[k]))
    without = prepared(Linear(K, C, 5, bias=False))
    torch.testing.assert_close(without(shared)[2], shared @ without.weight[2].T)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution(stride):
    layer = prepared(Conv3x3(K, 2, C, stride=stride))
    stacked, shared = random(N, K, 2, 6, 6), random(N, 2, 6, 6, seed=1)
    for k in range(K):
        for x, out in ((stacked[:, k], layer(stacked)[:, k]), (shared, layer(shared)[:, k])):
            expected = torch.nn.functional.conv2d(x, layer.weight[k], stride=stride, padding=1)
            torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("stride", "height", "width"), [(1, 6, 6), (2, 6, 6), (2, 5, 7), (1, 1, 4)])
def test_every_way_of_a_convolution_is_the_same(way, stride, height, width):
    x, weight = random(N, K, 2, height, width), random(K, C, 2, 3, 3, seed=1)
    given = [x.requires_grad_(), weight.requires_grad_()]
    out = WAYS[way](x, weight, stride)
    expected = torch.stack(
        [torch.nn.functional.conv2d(x[:, k], weight[k], stride=stride, padding=1) for k in range(K)], 1
    )
    torch.testing.assert_close(out, expected)
    pull = random(*out.shape, seed=2)
    found = torch.autograd.grad(out, given, pull)
    for gradient, wanted in zip(found, torch.autograd.grad(expected, given, pull), strict=True):
        torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_a_convolution_mixes_replicas(way):
    """One whose weights are NaN leaves values and gradients of the others as they are."""
    x, weight = random(N, K, 2, 6, 6).requires_grad_(), random(K, C, 2, 3, 3, seed=1)
    spoilt = weight.clone()
    spoilt[1] = float("nan")
    outs, gradients = [], []
    for stack in (weight, spoilt):
        stack.requires_grad_()
        out = WAYS[way](x, stack, 1)
        outs.append(out)
        gradients.append(torch.autograd.grad(out, (x, stack), random(*out.shape, seed=2)))
    (x_sound, w_sound), (x_other, w_other) = gradients
    for k in (0, 2):
        assert torch.equal(outs[0][:, k], outs[1][:, k])
        assert torch.equal(x_sound[:, k], x_other[:, k])
        assert torch.equal(w_sound[k], w_other[k])
    assert outs[1][:, 1].isnan().all()


@pytest.mark.parametrize(
    ("given", "way"),
    [
        (("cpu", torch.bfloat16, 4, 256), "grouped"),
        (("cuda", torch.bfloat16, 2, 256), "product"),
        (("cuda", torch.float16, 4, 512), "product"),
        (("cuda", torch.float32, 4, 256), "grouped"),
        (("cuda", torch.bfloat16, 4, 128), "grouped"),
        (("cuda", torch.bfloat16, 1, 256), "grouped"),
    ],
)
def test_the_way_of_a_convolution(given, way):
    assert way_of(*given) == way


@pytest.mark.parametrize("way", WAYS)
def test_a_convolution_of_no_images(way):
    assert WAYS[way](random(0, K, 2, 6, 6), random(K, C, 2, 3, 3), 2).shape == (0, K, C, 3, 3)


def test_a_convolution_without_numbers():
    """As shapes are found on the meta device, which has no autocast."""
    x, weight = (torch.empty(shape, device="meta") for shape in ((N, K, 2, 6, 6), (K, C, 2, 3, 3)))
    assert convolution(x, weight, 1).shape == (N, K, C, 6, 6)


def test_a_product_is_computed_in_the_precision_of_autocast():
    x, weight = random(N, K, 2, 6, 6).float(), random(K, C, 2, 3, 3, seed=1).float()
    with torch.autocast("cpu", torch.bfloat16):
        out = WAYS["product"](x, weight, 1)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), WAYS["product"](x, weight, 1), rtol=0.05, atol=0.1)


def test_batch_norm_of_rows_and_of_images():
    rows, images = prepared(BatchNorm(K, C)), prepared(ImageBatchNorm(K, C))
    x, pictures = 3 * random(K, N, C) + 1, 3 * random(N, K, C, 5, 5) + 1
    one = [torch_norm(torch.nn.BatchNorm1d, rows, k) for k in range(K)]
    two = [torch_norm(torch.nn.BatchNorm2d, images, k) for k in range(K)]
    for training in (True, False):
        for module in (rows, images, *one, *two):
            module.train(training)
        out, drawn = rows(x), images(pictures)
        for k in range(K):
            torch.testing.assert_close(out[k], one[k](x[k]))
            torch.testing.assert_close(drawn[:, k], two[k](pictures[:, k]))
            for layer, norm in ((rows, one[k]), (images, two[k])):
                torch.testing.assert_close(layer.running_mean[k], norm.running_mean)
                torch.testing.assert_close(layer.running_var[k], norm.running_var)


def test_variance_survives_a_large_mean():
    """mean(x^2) - mean^2 in float32 would be 0 or worse here."""
    x = 1e4 + 0.01 * random(1, 1000, 1)
    exact = BatchNorm(1, 1).double()(x)
    layer = BatchNorm(1, 1)
    out = layer(x.float())
    reference = BatchNorm(1, 1).double()(x.float().double())
    torch.testing.assert_close(out.double(), reference, rtol=0.01, atol=0.01)
    assert exact.std().item() == pytest.approx(1, abs=0.1)


def test_bfloat16_is_normalised_in_float32():
    layer = BatchNorm(2, C)
    x = (5 + random(2, 500, C)).to(torch.bfloat16)
    out = layer(x)
    assert out.dtype == torch.bfloat16
    expected = BatchNorm(2, C)(x.float())
    torch.testing.assert_close(out.float(), expected, rtol=0.01, atol=0.01)
    assert layer.running_mean.dtype == torch.float32


@pytest.mark.parametrize(
    ("ghost_batch", "rows", "sizes"),
    [
        *((4, 12, [4, 4, 4]), (4, 10, [4, 3, 3]), (4, 5, [3, 2]), (4, 4, [4])),
        # One row alone has no variance: it joins another part.
        *((2, 7, [3, 2, 2]), (2, 3, [3]), (2, 6, [2, 2, 2])),
    ],
)
def test_ghost_batches_are_normalised_apart(ghost_batch, rows, sizes):
    layer = prepared(GhostBatchNorm(K, C, ghost_batch=ghost_batch, momentum=1.0))
    x = random(K, rows, C) + torch.arange(rows)[:, None]
    out = layer(x)
    for k in range(K):
        parts = x[k].split(sizes)
        expected = torch.cat([torch_norm(torch.nn.BatchNorm1d, layer, k)(part) for part in parts])
        torch.testing.assert_close(out[k], expected)
        torch.testing.assert_close(layer.running_mean[k], torch.stack([p.mean(0) for p in parts]).mean(0))
        torch.testing.assert_close(layer.running_var[k], torch.stack([p.var(0) for p in parts]).mean(0))
    layer.eval()
    torch.testing.assert_close(layer(x)[:, :1], layer(x[:, :1]))
