"""Probabilities after training have the mean of the prior, also where classes were reweighted late."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from raresight.nn import Recipe, Replicas, train
from raresight.nn.nets import MLP

torch.set_num_threads(1)

PRIOR = 0.02
NET = partial(MLP, 2, hidden=())
LOSSES = ["crossentropy", "focal(gamma=2.0)", "crossentropy"]
DRW = {"drw_epoch": 6, "deferred": (True, True, False)}


def rows_of(count=20_000):
    random = np.random.default_rng(0)
    y = (random.random(count) < PRIOR).astype(int)
    return random.normal(size=(count, 2)) + y[:, None], y


def recipe_of(**changes):
    options = {"epochs": 12, "batch": 2000, "lr": 0.05, "warmup_epochs": 0, "start_at_prior": True}
    return Recipe(**{**options, **changes})


@pytest.mark.parametrize("changes", [{}, DRW], ids=["plain", "reweighted"])
def test_the_mean_probability_is_the_prior(changes):
    X, y = rows_of()
    replicas = Replicas(NET, LOSSES, (0, 0, 0))
    train(replicas, (X, y), recipe_of(**changes), progress=False)
    means = replicas.probabilities(X).double().mean(1)
    np.testing.assert_allclose(means, [y.mean()] * 3, rtol=0.1)
    if changes:
        # The weights were there: without their share in the link the probabilities are far off.
        replicas.class_weights = None
        off = replicas.probabilities(X).double().mean(1)
        assert min(off[0], off[1]) > 5 * PRIOR
        assert off[2] == means[2]


def test_three_classes():
    random = np.random.default_rng(1)
    y = np.repeat([0, 1, 2], [18_000, 1600, 400])
    X = random.normal(size=(20_000, 2)) + np.array([[0, 0], [1.5, 0], [0, 1.5]])[y]
    replicas = Replicas(partial(NET, outputs=3), ["crossentropy"])
    recipe = recipe_of(epochs=40, drw_epoch=20, deferred=(True,))
    train(replicas, (X, y), recipe, progress=False)
    means = replicas.probabilities(X)[0].double().mean(0)
    np.testing.assert_allclose(means, [0.9, 0.08, 0.02], rtol=0.1)


def test_class_weights_come_back_with_a_training(tmp_path):
    X, y = rows_of(4000)
    recipe = recipe_of(epochs=3, drw_epoch=1, deferred=(True, False, True))
    first = Replicas(NET, LOSSES)
    train(first, (X, y), recipe, folder=tmp_path, progress=False)
    weights = first.class_weights
    assert weights[1] == (1.0, 1.0)
    assert weights[0] == weights[2]
    assert weights[0][1] > 20 * weights[0][0]
    resumed = Replicas(NET, LOSSES)
    train(resumed, (X, y), recipe, folder=tmp_path, progress=False)
    loaded = Replicas(NET, LOSSES).load_weights(tmp_path)
    assert resumed.class_weights == loaded.class_weights == weights
    assert torch.equal(loaded.probabilities(X), first.probabilities(X))
    # A later training without reweighting is one under equal weights.
    train(first, (X, y), recipe_of(epochs=1), progress=False)
    assert first.class_weights is None


def test_before_reweighting_begins_there_are_no_weights():
    X, y = rows_of(4000)
    replicas = Replicas(NET, LOSSES)
    seen = []

    def look(module, inputs, output):
        seen.append(replicas.class_weights)

    replicas.net.head.register_forward_hook(look)
    train(replicas, (X, y), recipe_of(epochs=2, drw_epoch=1, deferred=(True,) * 3), progress=False)
    assert seen[0] is None
    assert seen[-1] == ((1.0, 1.0),) * 3
    assert replicas.class_weights[0] != (1.0, 1.0)


def test_a_replica_frozen_before_reweighting_has_no_weights():
    X, y = rows_of(4000)
    replicas = Replicas(NET, LOSSES)
    recipe = recipe_of(
        optimiser="sgd", epochs=3, drw_epoch=1, deferred=(True,) * 3, lr=(0.05, 1e38, 0.05), clip=None
    )
    result = train(replicas, (X, y), recipe, progress=False)
    # In the first step that would have had weights.
    assert "epoch 2, step 1" in result.frozen[1]
    weights = replicas.class_weights
    assert weights[1] == (1.0, 1.0)
    assert weights[0] == weights[2] != weights[1]
