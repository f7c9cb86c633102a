"""Weights of rows count as repetitions."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier
from raresight.deep.training import CodedRows, train_nets
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
        rows = CodedRows(inputs, codes, weights, np.full(classes, 1 / classes))
        train_nets(replicas, rows, Recipe(epochs=30, batch=500, lr=0.01))
        stacks.append(torch.cat([weight.flatten() for weight in replicas.net.parameters()]))
    torch.testing.assert_close(stacks[0], stacks[1], rtol=1e-5, atol=1e-6)


def test_rows_without_weight_are_not_there():
    X, y = ring_table(900)
    weights = (np.arange(900) % 3 > 0).astype(float)
    options = {"net": "mlp", "width": 8, "max_epochs": 3, "random_state": 0, "n_jobs": 1}
    model = DeepClassifier(**options).fit(X, y, weights)
    kept = DeepClassifier(**options).fit(X[weights > 0], y[weights > 0])
    assert model.predict_log_odds(X) == pytest.approx(kept.predict_log_odds(X), abs=1e-3)


@pytest.mark.slow
def test_weights_set_the_level():
    X, y = ring_table(3000)
    weights = np.where(y == 1, 1.0, 5.0)
    model = DeepClassifier(net="mlp", width=16, max_epochs=5, random_state=0, n_jobs=1).fit(X, y, weights)
    p = model.predict_proba(X)[:, 1]
    assert np.average(p, weights=weights) == pytest.approx(np.average(y, weights=weights), rel=1e-6)


@pytest.mark.parametrize("factor", [2.0**1000, 2.0**-900])
def test_only_the_proportions_of_weights_count(factor):
    X, y = ring_table(400)
    weights = np.random.default_rng(0).integers(1, 5, 400).astype(float)
    options = {"net": "mlp", "width": 8, "max_epochs": 2, "random_state": 0, "n_jobs": 1}
    given = {"eval_set": (X, y), "eval_sample_weight": weights}
    model = DeepClassifier(**options).fit(X, y, weights, **given)
    given["eval_sample_weight"] = factor * weights
    scaled = DeepClassifier(**options).fit(X, y, factor * weights, **given)
    assert np.array_equal(model.predict_proba(X), scaled.predict_proba(X))


def test_weights_whose_sum_is_infinite():
    X, y = ring_table(400)
    model = DeepClassifier(net="mlp", width=8, max_epochs=1, random_state=0, n_jobs=1)
    p = model.fit(X, y, np.full(400, 1e307)).predict_proba(X)[:, 1]
    assert p.mean() == pytest.approx(y.mean(), rel=1e-6)


@pytest.mark.parametrize("rare", [1e-30, 1e-300])
def test_weights_that_leave_a_class_nothing(rare):
    X, y = ring_table(200)
    with pytest.raises(ValueError, match="sample_weight leaves class 1 a share of"):
        DeepClassifier(net="mlp").fit(X, y, np.where(y == 1, rare, 1e300))


def test_evaluation_that_cannot_choose_is_refused_before_training():
    X, y = ring_table(200)
    model = DeepClassifier(net="mlp")
    with pytest.raises(ValueError, match="eval_sample_weight was given without eval_set"):
        model.fit(X, y, eval_sample_weight=np.ones(200))
    for two in ([(X, y), (X, y)], ((X, y), (X, y)), [(X, y)] * 3, [[X.tolist(), y.tolist()]] * 2):
        with pytest.raises(ValueError, match=f"eval_set holds {len(two)} pairs .* pass one pair"):
            model.fit(X, y, eval_set=two)
    with pytest.raises(ValueError, match="eval_sample_weight leaves only rows of class 0"):
        model.fit(X, y, eval_set=(X, y), eval_sample_weight=(y == 0).astype(float))


def test_two_rows_as_lists_are_one_pair():
    X, y = ring_table(200)
    rows = [int(np.argmin(y)), int(np.argmax(y))]
    model = DeepClassifier(net="mlp", width=8, max_epochs=1, random_state=0, n_jobs=1)
    assert model.fit(X, y, eval_set=(X[rows].tolist(), y[rows].tolist())).validation_scores_ is not None


def test_refused():
    X, y = ring_table(200)
    model = DeepClassifier(net="mlp")
    with pytest.raises(ValueError, match="not negative"):
        model.fit(X, y, -np.ones(200))
    with pytest.raises(ValueError, match="every row of class 1 has weight zero"):
        model.fit(X, y, (y == 0).astype(float))
