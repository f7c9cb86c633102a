"""Losses with the same text, and the importances of columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier, trained_nets
from raresight.deep.trained_nets import importances
from raresight.losses import from_callable

OPTIONS = {"net": "mlp", "width": 8, "max_epochs": 2, "random_state": 0, "n_jobs": 1}


def logistic(scale):
    return from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * scale * z), name="mine")


def test_two_losses_of_one_text_are_refused():
    X, y = ring_table(300)
    losses = [logistic(1.0), logistic(2.0)]
    model = DeepClassifier(losses, **OPTIONS)
    with pytest.raises(ValueError, match="two different losses have the same text mine"):
        model.fit(X, y, eval_set=(X, y))
    assert not hasattr(model, "nets_")
    DeepClassifier([losses[0], losses[0]], **OPTIONS).fit(X, y, eval_set=(X, y))


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("options", [{}, {"net": "tabm", "members": 3, "n_seeds": 2}], ids=["mlp", "tabm"])
def test_importances_are_those_of_the_formula(classes, options):
    """By differences of the nets' scores in float64."""
    X, _ = ring_table(300)
    y = np.digitize(X[:, 0] + 0.3 * X[:, 1], np.linspace(-1, 1, classes - 1) if classes > 2 else [1.0])
    model = DeepClassifier("tbl", **OPTIONS | options).fit(X, y)
    inputs = model._encoder.apply(X)
    net = model.nets_._built.net

    def margins(rows, label):
        with torch.no_grad():
            scores = net(torch.from_numpy(rows)).sum(0).numpy()
        others = np.delete(scores, label, axis=1).mean(1) if classes > 2 else 0.0
        return (scores[:, label] if classes > 2 else scores) - others

    expected = np.zeros(len(model._encoder.columns))
    step, means = 1e-6, inputs.mean(0, dtype=np.float64)
    for label in range(classes):
        rows = inputs[y == label].astype(np.float64)
        moves = np.zeros((len(expected), len(rows)))
        for i, column in enumerate(model._encoder.origins):
            beside = step * np.eye(inputs.shape[1])[i]
            slopes = (margins(rows + beside, label) - margins(rows - beside, label)) / (2 * step)
            moves[column] += slopes * (rows[:, i] - means[i])
        expected += np.sqrt((moves**2).mean(1))
    found = importances_of(model, inputs, y)
    assert found == pytest.approx(expected / expected.sum(), rel=1e-4)
    assert found.sum() == pytest.approx(1)


@pytest.mark.parametrize("net", ["mlp", "tabm"])
def test_many_categories_do_not_make_a_column_important(net):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"x": random.normal(size=6000), "noise": random.normal(size=6000)})
    frame["shop"] = pd.Categorical(random.integers(0, 40, 6000).astype(str))
    y = random.random(6000) < 1 / (1 + np.exp(3 - 2 * frame["x"]))
    options = {"net": net, "max_epochs": 8, "early_stopping": False}
    model = DeepClassifier("crossentropy", **OPTIONS | options).fit(frame, y)
    x, _, shop = model.feature_importances_
    assert x > 0.5
    assert x > 2 * shop


@pytest.mark.parametrize("classes", [2, 3])
def test_importances_of_many_rows_do_not_depend_on_their_order(classes):
    X, y = ring_table(4000)
    y = y if classes == 2 else np.digitize(X[:, 0], [-0.5, 0.5])
    model = DeepClassifier("crossentropy", **OPTIONS).fit(X, y)
    inputs = model._encoder.apply(X)
    # Every eighth row is one in the middle of the first column.
    order = np.argsort(np.abs(X[:, 0])).reshape(8, -1).T.ravel()
    order = np.concatenate([order[y[order] == label] for label in range(classes)])
    found = importances_of(model, inputs, y)
    assert importances_of(model, inputs[order], y[order]) == pytest.approx(found, abs=0.005)
    # They are those of all rows, nearly.
    assert found == pytest.approx(importances_of(model, inputs, y, most=4000), abs=0.02)


def importances_of(model, inputs, y, most=512):
    coder = model._encoder
    scores = model.nets_.scores(inputs, "cpu")
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(trained_nets, "_SLOPE_ROWS", most)
        return importances(model.nets_, inputs, y, None, scores, coder.origins, len(coder.columns), "cpu")


def test_importances_take_one_pass_back_for_each_class():
    X, _ = ring_table(300)
    y = np.arange(len(X)) % 12
    model = DeepClassifier("crossentropy", **OPTIONS).fit(X, y)
    inputs, passes = model._encoder.apply(X), []
    net = model.nets_._built.net
    watched = net.head.register_full_backward_hook(lambda *given: passes.append(1))
    importances_of(model, inputs, y)
    watched.remove()
    assert len(passes) == 12
