"""Weights of rows count as repetitions."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier
from raresight.deep.loop import train_nets
from raresight.nn import Recipe, Replicas
from raresight.nn.nets import MLP


@pytest.mark.parametrize("classes", [2, 3])
def test_full_batches_with_weights_are_those_of_repeated_rows(classes):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 3)).astype(np.float32), np.arange(60) % classes
    repeats = random.integers(1, 4, 60)
    times = np.repeat(np.arange(60), repeats)
    stacks = []
    for inputs, codes, weights in ((X, y, repeats.astype(float)), (X[times], y[times], None)):
        net = partial(MLP, 3, hidden=(8,), outputs=1 if classes == 2 else classes)
        replicas = Replicas(net, ["crossentropy"] * 2)
        replicas.to("cpu", torch.float64)
        train_nets(replicas, inputs, codes, weights, Recipe.tables(epochs=30, batch=500, lr=0.01))
        stacks.append(torch.cat([weight.flatten() for weight in replicas.net.parameters()]))
    torch.testing.assert_close(stacks[0], stacks[1], rtol=1e-5, atol=1e-6)


def test_rows_without_weight_are_not_there():
    X, y = ring_table(900)
    weights = (np.arange(900) % 3 > 0).astype(float)
    options = {"net": "mlp", "width": 8, "max_epochs": 3, "random_state": 0, "n_jobs": 1}
    model = DeepClassifier(**options).fit(X, y, weights)
    kept = DeepClassifier(**options).fit(X[weights > 0], y[weights > 0])
    assert model.predict_log_odds(X) == pytest.approx(kept.predict_log_odds(X), abs=1e-3)


def test_weights_set_the_level():
    X, y = ring_table(3000)
    weights = np.where(y == 1, 1.0, 5.0)
    model = DeepClassifier(net="mlp", width=16, max_epochs=5, random_state=0, n_jobs=1).fit(X, y, weights)
    p = model.predict_proba(X)[:, 1]
    assert np.average(p, weights=weights) == pytest.approx(np.average(y, weights=weights), rel=1e-6)


def test_refused():
    X, y = ring_table(200)
    model = DeepClassifier(net="mlp")
    with pytest.raises(ValueError, match="must not be negative"):
        model.fit(X, y, -np.ones(200))
    with pytest.raises(ValueError, match="every row of class 1 has weight zero"):
        model.fit(X, y, (y == 0).astype(float))
