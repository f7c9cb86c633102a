"""Weights of rows count as repetitions."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier
from raresight.deep.loop import train_nets
from raresight.deep.row_weights import weighted_gradients
from raresight.losses import parse
from raresight.nn import Recipe, Replicas
from raresight.nn.functional import loss_with_logits
from raresight.nn.nets import MLP, TabM, TabNet


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize(
    "build",
    [
        lambda outputs: MLP(3, hidden=(4,), outputs=outputs, replicas=2),
        lambda outputs: TabM(3, width=4, members=3, dropout=0.0, outputs=outputs, replicas=2),
        lambda outputs: TabNet(3, outputs=outputs, replicas=2),
    ],
)
def test_the_gradient_is_that_of_the_weighted_loss(build, outputs):
    random = np.random.default_rng(0)
    x = torch.tensor(random.normal(size=(2, 20, 3)))
    weights = torch.tensor(random.exponential(size=(2, 20)))
    labels = torch.tensor(random.integers(0, max(outputs, 2), (2, 20)))
    net, loss = build(outputs).double(), parse("focal(gamma=2.0)")

    def each(scores):
        repeated = net.training_labels(labels)
        return torch.stack(
            [
                loss_with_logits(one, of, loss, reduction="none", multiclass=outputs > 1)
                for one, of in zip(scores, repeated)
            ]
        )

    expected = torch.autograd.grad(
        (each(net.training_scores(x)) * weights.repeat(1, net.members)).sum(), list(net.parameters())
    )
    with weighted_gradients(net):
        scores = net.training_scores(torch.cat([x, weights.unsqueeze(-1)], -1))
        found = torch.autograd.grad(each(scores).sum(), list(net.parameters()))
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other)
    assert net.training_scores(x).shape == scores.shape  # without the column of weights again


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
