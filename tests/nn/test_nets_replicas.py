"""A replica in a stack is the same net as that net alone: outputs, gradients, and weights after training."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from raresight.nn.nets import MLP, TabM, TabNet
from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)

SEEDS = (11, 5, 902)
# How each net is built and the shape of one input row.
NETS = {
    "resnet": (lambda **options: resnet_cifar(8, width=4, **options), (3, 8, 8)),
    "mlp": (lambda **options: MLP(6, hidden=(7, 5), **options), (6,)),
    "mlp with batch norm": (lambda **options: MLP(6, hidden=(7, 5), batch_norm=True, **options), (6,)),
    # Parts of 22, 21 and 21 rows. Parts of a few rows would make training chaotic: with seven rows a change
    # of the first weights in their last digit, without any stack, moves the last weights by 0.1.
    "tabnet": (lambda **options: TabNet(6, ghost_batch=30, momentum=0.1, **options), (6,)),
    "tabm": (lambda **options: TabM(6, members=3, blocks=2, width=7, **options), (6,)),
}
# Which replicas of a stack have cosines; each net is tried with plain heads and with a mixture.
HEADS = {"plain": (False, False, False), "mixed": (False, True, False), "cosine": (True, True, True)}
each_head = pytest.mark.parametrize("heads", HEADS)
ROWS = 64


def make(name, **options):
    return NETS[name][0](**options).double()


def inputs(name, *, stacked, seed=0):
    shape = (ROWS, *NETS[name][1])
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((len(SEEDS), *shape) if stacked else shape, generator=generator, dtype=torch.float64)


def loss_of(scores, y):
    """One loss a replica, a different one for each, so that a mixture would show."""
    factor = torch.arange(1, len(scores) + 1, dtype=scores.dtype)[:, None]
    return (factor * torch.nn.functional.softplus(-(2 * y - 1) * scores)).mean(-1).sum()


def own(x, k, stacked):
    return x[k : k + 1] if stacked else x


@each_head
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("stacked", [True, False], ids=["own rows", "shared rows"])
def test_outputs_and_gradients_are_those_alone(name, stacked, heads):
    stack = make(name, replicas=3, seeds=SEEDS, cosine=HEADS[heads])
    x = inputs(name, stacked=stacked)
    scores = stack(x)
    assert scores.shape == (3, ROWS)
    weight = torch.linspace(-1, 1, 3 * ROWS, dtype=torch.float64).view(3, ROWS)
    (scores * weight).sum().backward()
    gradients = {key: value.grad for key, value in stack.named_parameters()}
    for k, seed in enumerate(SEEDS):
        alone = make(name, replicas=1, seeds=(seed,), cosine=HEADS[heads][k])
        got = alone(own(x, k, stacked))
        torch.testing.assert_close(got[0], scores[k], rtol=0, atol=1e-12)
        (got * weight[k]).sum().backward()
        for key, value in alone.named_parameters():
            torch.testing.assert_close(value.grad[0], gradients[key][k], rtol=0, atol=1e-11)
        for key, value in alone.state_dict().items():
            torch.testing.assert_close(value[0], stack.state_dict()[key][k], rtol=0, atol=1e-12)


@pytest.mark.parametrize("heads", ["plain", "mixed"])
@pytest.mark.parametrize("name", NETS)
def test_weights_after_training_are_those_alone(name, heads):
    def train(net, k=None):
        optimiser = torch.optim.SGD(net.parameters(), lr=0.005, momentum=0.9, weight_decay=2.5e-4)
        generator = torch.Generator().manual_seed(1)
        for step in range(20):
            x = inputs(name, stacked=True, seed=step)
            y = torch.randint(0, 2, (3, ROWS), generator=generator).double()
            if k is not None:
                x, y = x[k : k + 1], y[k : k + 1]
            optimiser.zero_grad()
            sign = 2 * net.training_labels(y) - 1
            torch.nn.functional.softplus(-sign * net.training_scores(x)).mean(-1).sum().backward()
            optimiser.step()
        return net.state_dict()

    cosine = HEADS[heads]
    start = make(name, replicas=3, seeds=SEEDS, cosine=cosine).state_dict()
    stacked = train(make(name, replicas=3, seeds=SEEDS, cosine=cosine))
    for k, seed in enumerate(SEEDS):
        alone = train(make(name, replicas=1, seeds=(seed,), cosine=cosine[k]), k)
        assert alone.keys() == stacked.keys()
        for key, value in alone.items():
            torch.testing.assert_close(value[0], stacked[key][k], rtol=0, atol=1e-9)
    moved = max((stacked[key] - start[key]).abs().max().item() for key in start)
    assert moved > 0.01


@each_head
@pytest.mark.parametrize("name", NETS)
def test_the_seed_alone_decides_the_start(name, heads):
    stack = make(name, replicas=3, seeds=SEEDS, cosine=HEADS[heads])
    for k, seed in enumerate(SEEDS):
        alone = make(name, seeds=(seed,), cosine=HEADS[heads][k]).state_dict()
        assert all(torch.equal(value[k : k + 1], alone[key]) for key, value in stack.state_dict().items())
    first, second = (stack.head.weight[k] for k in (0, 1))
    assert not torch.equal(first, second)
    twins = make(name, replicas=2, seeds=(4, 4))
    assert all(torch.equal(value[0], value[1]) for value in twins.state_dict().values())
    assert make(name, replicas=2).seeds == (0, 1)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("heads", ["plain", "mixed"])
def test_replica_takes_one_out(name, training, heads):
    stack = make(name, replicas=3, seeds=SEEDS, outputs=4, cosine=HEADS[heads])
    x = inputs(name, stacked=True)
    stack(x)  # moves the running statistics
    stack.train(training)
    alone = stack.replica(1)
    assert alone.replicas == 1
    assert alone.seeds == (5,)
    assert alone.training is training
    assert alone.cosine == (HEADS[heads][1],)
    expected = stack(x)
    assert expected.shape == (3, ROWS, 4)
    torch.testing.assert_close(alone(x[1:2])[0], expected[1], rtol=0, atol=1e-12)
    before = stack.head.weight.detach().clone()
    with torch.no_grad():
        alone.head.weight.zero_()
    assert torch.equal(stack.head.weight, before)
    with pytest.raises(IndexError, match="0 to 2"):
        stack.replica(3)


@each_head
@pytest.mark.parametrize("name", NETS)
def test_a_replica_that_is_nan_leaves_the_others_alone(name, heads):
    x = inputs(name, stacked=False)
    y = torch.ones(3, ROWS, dtype=torch.float64)
    sound, broken = (make(name, replicas=3, seeds=SEEDS, cosine=HEADS[heads]) for _ in range(2))
    with torch.no_grad():
        next(iter(broken.parameters()))[1] = torch.nan
    for net in (sound, broken):
        loss_of(net(x), y).backward()
    for (key, one), two in zip(sound.named_parameters(), broken.parameters()):
        for k in (0, 2):
            torch.testing.assert_close(two.grad[k], one.grad[k], rtol=0, atol=1e-12, msg=key)
    assert broken(x)[1].isnan().all()


@pytest.mark.parametrize("name", ["resnet", "mlp with batch norm", "tabnet"])
def test_training_uses_the_batch_and_evaluation_the_running_statistics(name):
    net = make(name, replicas=3, seeds=SEEDS)
    x = inputs(name, stacked=True)
    before = {key: value.clone() for key, value in net.named_buffers()}
    net(x)
    assert all(not torch.equal(value, before[key]) for key, value in net.named_buffers())
    net.eval()
    after = {key: value.clone() for key, value in net.named_buffers()}
    whole = net(x)
    # Row by row: without the batch, since only running statistics count.
    torch.testing.assert_close(net(x[:, :1]), whole[:, :1], rtol=0, atol=1e-12)
    assert all(torch.equal(value, after[key]) for key, value in net.named_buffers())
    net.train()
    assert (net(x) - whole).abs().max() > 1e-3
    with pytest.raises(ValueError, match="at least 2"):
        make("mlp with batch norm")(torch.zeros(1, 6, dtype=torch.float64))


@pytest.mark.parametrize("name", NETS)
def test_what_does_not_fit_is_refused(name):
    with pytest.raises(ValueError, match="2 seeds were given for 3 replicas"):
        make(name, replicas=3, seeds=(1, 2))
    with pytest.raises(ValueError, match="cosine has 2 for 3 replicas"):
        make(name, replicas=3, cosine=(True, False))
    for wrong in (0, 2.0, True):
        with pytest.raises(
            ValueError, match=f"replicas must be a whole number of at least 1, but is {wrong}"
        ):
            make(name, replicas=wrong)
        with pytest.raises(ValueError, match=f"outputs must be a whole number of at least 1, but is {wrong}"):
            make(name, outputs=wrong)
    with pytest.raises(ValueError, match=r"must have shape \(N, "):
        make(name, replicas=3)(inputs(name, stacked=True)[:2])
    with pytest.raises(ValueError, match="must have shape"):
        make(name, replicas=3)(torch.zeros(4, dtype=torch.float64))


def test_sizes_must_be_whole_numbers():
    with pytest.raises(
        TypeError, match=r"hidden must be a sequence of widths such as \(256, 256\), but is 8"
    ):
        MLP(4, hidden=8)
    for width in (0, -3, 2.5, True, "8"):
        with pytest.raises(
            ValueError, match="a width in hidden must be a whole number of at least 1, but is"
        ):
            MLP(4, hidden=(8, width))
    for features in (0, 4.0, "4"):
        for kind in (MLP, TabNet, TabM):
            with pytest.raises(ValueError, match="features must be a whole number of at least 1, but is"):
                kind(features)
    for options in ({"depth": 8.0}, {"width": 4.0}, {"channels": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must be a whole number of at least 1"):
            resnet_cifar(**{"depth": 8, **options})
    one = np.int64(1)
    whole = {"steps": one, "shared": one, "independent": one, "ghost_batch": np.int64(32)}
    for net in (
        resnet_cifar(np.int64(8), width=np.int64(4), channels=one),
        TabNet(5, gamma=np.float32(1.5), **whole),
    ):
        json.dumps(net.options())
    net = MLP(np.int64(4), hidden=np.array([8, 2]))
    assert net.options() == {"features": 4, "hidden": (8, 2), "batch_norm": False}
    json.dumps(net.options())


@pytest.mark.parametrize("heads", ["plain", "mixed"])
@pytest.mark.parametrize("name", NETS)
def test_bfloat16_autocast(name, heads):
    # Evaluation: TabM would drop other places in the second pass.
    net = make(name, replicas=3, seeds=SEEDS, cosine=HEADS[heads]).float()
    net.train(name != "tabm")
    x = inputs(name, stacked=True).float()
    exact = net(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = net(x)
    assert scores.dtype == (torch.bfloat16 if net.training else torch.float32)  # the head in use is exact
    correlation = torch.corrcoef(torch.stack([scores.float().flatten(), exact.flatten()]))[0, 1]
    assert correlation.item() > 0.95
    scores.float().square().mean().backward()
    for parameter in net.parameters():
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("name", NETS)
def test_options_make_the_same_net_again(name):
    net = make(name, replicas=2, outputs=3)
    assert json.loads(json.dumps(net.options())).keys() == net.options().keys()
    again = type(net)(**net.options(), outputs=3, replicas=2, seeds=net.seeds, cosine=False).double()
    assert again.options() == net.options()
    x = inputs(name, stacked=False)
    assert torch.equal(again(x), net(x))
