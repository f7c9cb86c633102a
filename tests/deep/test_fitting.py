"""Losses that cannot be told apart, and the importances of columns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier
from raresight.deep.fitting import TrainingRows, importances
from raresight.losses import from_callable

OPTIONS = {"net": "mlp", "width": 8, "max_epochs": 2, "random_state": 0, "n_jobs": 1}


def logistic(scale):
    return from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * scale * z), name="mine")


def test_two_losses_of_one_text_are_refused():
    X, y = ring_table(300)
    losses = [logistic(1.0), logistic(2.0)]
    model = DeepClassifier(losses, **OPTIONS)
    with pytest.raises(ValueError, match="two different losses have the same text mine, by which"):
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

    expected = np.zeros(inputs.shape[1])
    step = 1e-6
    for label in range(classes):
        rows = inputs[y == label].astype(np.float64)
        for i in range(inputs.shape[1]):
            beside = step * np.eye(inputs.shape[1])[i]
            slopes = (margins(rows + beside, label) - margins(rows - beside, label)) / (2 * step)
            expected[i] += np.abs(slopes).mean() * inputs[:, i].std(dtype=np.float64)
    training = TrainingRows(inputs, y, None, np.bincount(y) / len(y))
    found = importances(model.nets_, training, model._encoder.origins, len(model._encoder.columns), "cpu")
    gathered = np.bincount(model._encoder.origins, expected[: len(model._encoder.origins)])
    assert found == pytest.approx(gathered / gathered.sum(), rel=1e-4)
    assert found.sum() == pytest.approx(1)


def test_importances_take_one_pass_back_for_each_class():
    X, _ = ring_table(300)
    y = np.arange(len(X)) % 12
    model = DeepClassifier("crossentropy", **OPTIONS).fit(X, y)
    inputs, passes = model._encoder.apply(X), []
    net = model.nets_._built.net
    watched = net.head.register_full_backward_hook(lambda *given: passes.append(1))
    training = TrainingRows(inputs, y, None, np.bincount(y) / len(y))
    importances(model.nets_, training, model._encoder.origins, len(model._encoder.columns), "cpu")
    watched.remove()
    assert len(passes) == 12
