"""The residual trunk's kernels, in Triton's interpreter: the same numbers as the layers they replace.

In float32 only: the interpreter's bfloat16 products are not those of a GPU (see tests/gpu for them).
"""

from __future__ import annotations

import copy
import os

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("runs in Triton's interpreter; on a GPU see tests/gpu", allow_module_level=True)

from reproduction.resnet import resnet_cifar, trunk
from reproduction.resnet.triton_layers import Running, plan_layers
from small_resnets import a_net, difference


def parts(net):
    convolutions, norms = zip(*net._layers())
    return (
        [layer.weight for layer in convolutions],
        [norm.weight for norm in norms],
        [norm.bias for norm in norms],
        [Running(norm.running_mean, norm.running_var) for norm in norms],
    )


def reference_features(net, x):
    x = torch.relu(net.stem_norm(net.stem(x.transpose(0, 1) if x.dim() == 5 else x)))
    for block in net.blocks:
        x = block(x)
    return x.mean((3, 4)).transpose(0, 1)


def kernel_features(net, x, training=True):
    layers = plan_layers(len(net.blocks) // 3, x.shape[-2], x.shape[-1])
    return trunk.trunk(x, layers, *parts(net), training=training)


def images(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("depth", "shape"), [(14, (2, 3, 3, 8, 8)), (8, (3, 3, 8, 4)), (8, (2, 5, 1, 12, 4))]
)
def test_features_gradients_and_running_statistics_are_those_of_the_layers(depth, shape):
    net = a_net(depth)
    if shape[-3] == 1:
        net = resnet_cifar(depth, replicas=2, channels=1).train()
    wide = copy.deepcopy(net).double()
    x, pull = images(*shape), images(2, shape[-4], 64, seed=2)
    features = kernel_features(net, x)
    (features * pull).sum().backward()
    wanted = reference_features(wide, x.double())
    (wanted * pull).sum().backward()
    assert difference(features, wanted) < 2e-6
    gradients = dict(wide.named_parameters())
    for name, parameter in net.named_parameters():
        if not name.startswith("head"):
            assert difference(parameter.grad, gradients[name].grad) < 1e-5, name
    statistics = dict(wide.named_buffers())
    for name, buffer in net.named_buffers():
        if "running" in name:
            assert difference(buffer, statistics[name]) < 2e-6, name


def test_evaluation_reads_the_running_statistics_and_leaves_them():
    net = a_net()
    kernel_features(net, images(2, 4, 3, 8, 8))
    net.eval()
    before = [buffer.clone() for buffer in net.buffers()]
    x = images(3, 3, 8, 8)
    assert difference(kernel_features(net, x, training=False), reference_features(net, x)) < 2e-6
    assert all(torch.equal(old, new) for old, new in zip(before, net.buffers()))


def test_a_large_mean_costs_no_digits():
    # mean(y^2) - mean(y)^2 would lose six of float32's seven: the deviation is a thousandth of the mean.
    net = a_net()
    shifted = copy.deepcopy(net)
    with torch.no_grad():
        for each in (net, shifted):
            each.stem.weight[:, :, 0] = 0
            each.stem.weight[:, :, 0, 1, 1] = 1
    x = images(2, 4, 3, 8, 8)
    far = x.clone()
    far[:, :, 0] = 1000
    x[:, :, 0] = 0
    found = kernel_features(shifted, far)
    # A constant channel is undone by batch norm but for float32's rounding of 1000 + y.
    assert difference(found, kernel_features(net, x)) < 2e-3


def test_a_replica_of_nan_touches_no_other():
    x = images(2, 3, 3, 8, 8)
    nets = [a_net(), a_net()]
    with torch.no_grad():
        nets[1].stem.weight[1] = torch.nan
    features = []
    for net in nets:
        features.append(kernel_features(net, x))
        features[-1][0].sum().backward()
    assert torch.equal(features[0][0], features[1][0])
    assert features[1][1].isnan().all()
    for one, other in zip(nets[0].parameters(), nets[1].parameters()):
        if one.grad is not None:
            assert torch.equal(one.grad[0], other.grad[0])


def test_a_second_backward_pass_is_refused():
    net = a_net()
    features = kernel_features(net, images(2, 3, 3, 8, 8))
    features.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward pass runs once"):
        features.sum().backward()


def test_the_cpu_keeps_the_layers():
    assert not trunk.can_run(torch.zeros(2, 3, 32, 32), 16, training=True)


@pytest.mark.parametrize(
    ("shape", "width", "suits"),
    [
        ((2, 5, 3, 32, 32), 16, True),
        ((5, 3, 64, 64), 16, True),
        ((5, 3, 32, 30), 16, False),  # does not halve twice
        ((5, 17, 32, 32), 16, False),  # more colours than the stem has places
        ((5, 3, 32, 32), 32, False),
        ((131_071, 3, 32, 32), 16, True),
        ((131_072, 3, 32, 32), 16, False),  # 2^31 numbers in a replica's first layer
    ],
)
def test_what_suits_the_kernels(shape, width, suits):
    assert trunk.fits(shape, width) is suits


def test_nothing_is_kept_where_no_gradient_is_wanted():
    net = a_net()
    with torch.no_grad():
        features = kernel_features(net, images(2, 2, 3, 8, 8))
    assert not features.requires_grad
    for parameter in net.parameters():
        parameter.requires_grad_(False)
    assert not kernel_features(net, images(2, 2, 3, 8, 8)).requires_grad


def test_a_norm_changed_between_the_passes_is_refused():
    net = a_net()
    features = kernel_features(net, images(2, 2, 3, 8, 8))
    with torch.no_grad():
        net.stem_norm.weight.mul_(2)
    with pytest.raises(RuntimeError, match="changed in place"):
        features.sum().backward()


def test_a_single_value_has_no_variance():
    with pytest.raises(ValueError, match="at least 2 values"):
        kernel_features(a_net(), images(1, 3, 4, 4))
