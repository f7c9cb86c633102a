"""Means of weights over the last steps."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch

from raresight.nn import Recipe, Replicas, TableRows
from raresight.nn.nets import MLP, TabNet
from raresight.nn.training_loop import MeanWeights, training_session

RANDOM = np.random.default_rng(0)
Y = (np.arange(200) % 5 == 0).astype(int)
X = RANDOM.normal(size=(200, 3)) + Y[:, None]
ROWS = TableRows(X, Y)
RECIPE = Recipe(epochs=3, batch=50, lr=0.01, warmup_epochs=1, precision="float64")
NETS = {
    "mlp": partial(MLP, 3, hidden=(8,)),
    "batch norm": partial(MLP, 3, hidden=(8,), batch_norm=True),
    "tabnet": partial(TabNet, 3, ghost_batch=50),
}


def stacks_of(replicas):
    return {name: stack.detach().clone() for name, stack in replicas.net.state_dict().items()}


def run(net, epochs_remembered, each_step=lambda course, means, replicas: None):
    replicas = Replicas(NETS[net], ["crossentropy", "tbl"]).to("cpu", torch.float64)
    with training_session(replicas, ROWS.to("cpu", torch.float64), RECIPE) as course:
        means = MeanWeights(course.step, epochs_remembered)
        while not course.is_done:
            course.run_epoch(lambda: each_step(course, means, replicas))
        last = stacks_of(replicas)
        means.write()
    return replicas, last


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("remembered", [0.25, 1.0, 4.0])
def test_the_mean_is_its_formula(net, remembered):
    """Weights and running statistics after every step, each counting for b to the power of its age."""
    seen = []

    def note(course, means, replicas):
        means.note()
        seen.append(stacks_of(replicas))

    replicas, _ = run(net, remembered, note)
    steps = len(ROWS) // RECIPE.batch
    assert len(seen) == RECIPE.epochs * steps
    ages = np.arange(len(seen))[::-1]
    shares = np.exp(-ages / (remembered * steps))
    shares /= math.fsum(shares)
    for name, stack in replicas.net.state_dict().items():
        expected = sum(share * one[name] for share, one in zip(shares, seen))
        assert torch.allclose(stack, expected, rtol=1e-12, atol=1e-14), name
        assert not torch.equal(stack, seen[-1][name]), name


@pytest.mark.parametrize("net", NETS)
def test_training_does_not_notice(net):
    """Lent to the net after every step, the means change nothing of what is trained."""
    lent = []

    def lend(course, means, replicas):
        means.note()
        before = stacks_of(replicas)
        with means.in_place():
            lent.append(stacks_of(replicas))
        assert all(torch.equal(before[name], stack) for name, stack in stacks_of(replicas).items())

    _, alone = run(net, 1.0)
    replicas, beside = run(net, 1.0, lend)
    for name, stack in beside.items():
        assert torch.equal(alone[name], stack), name
    for name, stack in replicas.net.state_dict().items():
        assert torch.equal(lent[-1][name], stack), name


def test_what_fails_in_between_leaves_the_net_as_it_was():
    def fail(course, means, replicas):
        means.note()
        before = stacks_of(replicas)
        with pytest.raises(RuntimeError, match="in between"), means.in_place():
            raise RuntimeError("in between")
        assert all(torch.equal(before[name], stack) for name, stack in stacks_of(replicas).items())

    run("batch norm", 1.0, fail)


def test_without_a_memory_it_is_the_newest_weights():
    replicas, last = run("batch norm", 0.0, lambda course, means, replicas: means.note())
    for name, stack in replicas.net.state_dict().items():
        assert torch.equal(last[name], stack), name


def test_a_broken_replica_leaves_the_means_of_the_others_alone():
    def spoil(course, means, replicas):
        if course.epoch == 1:
            course.step.optimiser.weights[0] = torch.nan
        means.note()

    sound, _ = run("mlp", 1.0, lambda course, means, replicas: means.note())
    replicas, _ = run("mlp", 1.0, spoil)
    for name, stack in replicas.net.state_dict().items():
        assert stack[0].isnan().all(), name
        assert torch.equal(stack[1], sound.net.state_dict()[name][1]), name
