"""The residual trunk's kernels on a GPU against the layers they replace."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch

from reproduction.resnet import ResNet, resnet_cifar
from reproduction.resnet import resnet as resnet_module

Gradients = dict[str, torch.Tensor]


def by_layers(call: Callable[[], torch.Tensor]) -> torch.Tensor:
    """What the layers give where the kernels would run."""
    kept, resnet_module.can_run = resnet_module.can_run, lambda x, channels, training: False  # type: ignore[assignment]
    try:
        return call()
    finally:
        resnet_module.can_run = kept


def a_net(depth: int = 32, replicas: int = 3) -> ResNet:
    net = resnet_cifar(depth, replicas=replicas).train()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "norm" in name:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return net.cuda()


def images(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).cuda()


def trained(net: ResNet, x: torch.Tensor, half: bool) -> tuple[torch.Tensor, Gradients]:
    pull = images(net.replicas, x.shape[-4])
    with torch.autocast("cuda", torch.bfloat16, enabled=half):
        scores = net(x)
    (scores.double() * pull).sum().backward()
    return scores.detach(), {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def difference(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


def assert_right(net: ResNet, *shape: int) -> None:
    """Scores, statistics and every gradient up to rounding, over a few inputs.

    A unit at the very edge of its relu is on in one precision and off in the other, and moves the gradients
    of all layers before it by a thousandth. The inputs are small, so that most have no such unit, and a
    gradient must be right for one of them.
    """
    best: dict[str, float] = {}
    for seed in range(6):
        ours, wide = copy.deepcopy(net), copy.deepcopy(net).double()
        x = images(*shape, seed=seed)
        scores, gradients = trained(ours, x, False)
        wanted, wanted_gradients = trained(wide, x.double(), False)
        assert difference(scores, wanted) < 1e-5, (shape, difference(scores, wanted))
        for name, gradient in gradients.items():
            best[name] = min(best.get(name, 1.0), difference(gradient, wanted_gradients[name]))
        buffers = dict(wide.named_buffers())
        for name, buffer in ours.named_buffers():
            if "running" in name:
                assert difference(buffer, buffers[name]) < 1e-5, (shape, name)
    assert max(best.values()) < 1e-5, (shape, {name: apart for name, apart in best.items() if apart > 1e-5})


def check_float32_is_right_for_every_depth() -> None:
    for depth in (32, 44, 56):
        assert_right(a_net(depth, replicas=2), 2, 2, 3, 32, 32)


def check_bfloat16_is_as_near_as_the_layers_under_autocast() -> None:
    """Also of batches that blocks of threads do not share evenly, and that all nets have in common."""
    for shape in ((3, 64, 3, 32, 32), (3, 68, 3, 32, 32), (12, 3, 32, 32)):
        assert_as_near(images(*shape))


def assert_as_near(x: torch.Tensor) -> None:
    net = a_net()
    wanted, wanted_gradients = trained(copy.deepcopy(net).double(), x.double(), False)
    scores, gradients = trained(copy.deepcopy(net), x, True)
    rivals: list[Gradients] = []

    def rival() -> torch.Tensor:
        found, grads = trained(copy.deepcopy(net), x, True)
        rivals.append(grads)
        return found

    theirs = by_layers(rival)
    assert difference(scores, wanted) < 1.2 * difference(theirs, wanted)
    ours = sorted(difference(gradients[name], wanted_gradients[name]) for name in gradients)
    others = sorted(difference(rivals[0][name], wanted_gradients[name]) for name in gradients)
    assert ours[len(ours) // 2] < 1.2 * others[len(others) // 2], (
        ours[len(ours) // 2],
        others[len(others) // 2],
    )


def check_the_same_bits_twice() -> None:
    net, x = a_net(), images(3, 128, 3, 32, 32)
    first, second = (trained(copy.deepcopy(net), x, True) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])


def check_other_sizes_of_images_and_batches() -> None:
    for shape in ((2, 5, 3, 64, 64), (3, 3, 32, 32)):
        assert_right(a_net(8, replicas=2), *shape)


def check_evaluation() -> None:
    net, x = a_net(), images(3, 64, 3, 32, 32)
    trained(net, x, False)
    net.eval()
    with torch.no_grad():
        found = net(x)
        wanted = copy.deepcopy(net).double()(x.double())
    assert difference(found, wanted) < 1e-5, difference(found, wanted)


def check_evaluation_under_autocast_ranks_finely() -> None:
    """As near to the right scores as the layers are, and scores that are not rounded to 8 bits."""
    net, x = a_net(), images(3, 512, 3, 32, 32)
    trained(net, x[:, :64], True)
    net.eval()
    with torch.no_grad():
        wanted = copy.deepcopy(net).double()(x.double())
        with torch.autocast("cuda", torch.bfloat16):
            found = net(x)
            theirs = by_layers(lambda: net(x))
    assert found.dtype == torch.float32
    assert difference(found, wanted) < 1.2 * difference(theirs, wanted) < 0.05
    for scores in found:
        assert len(scores.unique()) > 500


def check_a_stack_equals_a_net_alone() -> None:
    """Also one of so many nets that they are worked on in two groups."""
    for replicas in (4, 9):
        net, x = a_net(replicas=replicas), images(replicas, 64, 3, 32, 32)
        scores, gradients = trained(net, x, True)
        for k in (2, replicas - 1):
            alone, pull = net.replica(k), images(replicas, 64)[k : k + 1]
            with torch.autocast("cuda", torch.bfloat16):
                own = alone(x[k : k + 1])
            alone.zero_grad()
            (own.double() * pull).sum().backward()
            assert torch.equal(own[0], scores[k])
            for name, parameter in alone.named_parameters():
                if parameter.grad is not None and not name.startswith("head"):
                    assert torch.equal(parameter.grad[0], gradients[name][k]), (replicas, k, name)


def check_a_replica_of_nan_touches_no_other() -> None:
    nets, x = [a_net(), a_net()], images(3, 32, 3, 32, 32)
    with torch.no_grad():
        nets[1].stem.weight[1] = torch.nan
    (first, plain), (second, spoilt) = (trained(net, x, True) for net in nets)
    assert second[1].isnan().all()
    for k in (0, 2):
        assert torch.equal(first[k], second[k])
        assert all(
            torch.equal(plain[name][k], spoilt[name][k]) for name in plain if not name.startswith("head")
        )
