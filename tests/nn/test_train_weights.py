"""Weights of rows in `train`: what they mean, what they decide, and where they are refused."""

from __future__ import annotations

import json
from functools import partial

import numpy as np
import pytest
import torch

from raresight.nn import Recipe, Replicas, TableRows, evaluate_replicas, train
from raresight.nn.nets import MLP, TabM

torch.set_num_threads(1)

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(60, 3))
Y = np.arange(60) % 2
REPEATS = RANDOM.integers(0, 4, 60)
TIMES = np.repeat(np.arange(60), REPEATS)
# One batch has all rows.
RECIPE = Recipe(epochs=15, batch=500, lr=0.01, warmup_epochs=0, precision="float64")


def trained(rows, recipe=RECIPE, *, net=None, losses=("crossentropy", "tbl(alpha=0.8,C=0.5)"), **options):
    replicas = Replicas(net or partial(MLP, 3, hidden=(8,)), losses, (0, 1))
    return replicas, train(replicas, rows, recipe, progress=False, **options)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("members", [1, 3])
def test_full_batches_with_weights_are_those_of_repeated_rows(classes, members):
    y, outputs = np.arange(60) % classes, 1 if classes == 2 else classes
    net = partial(MLP, 3, hidden=(8,), outputs=outputs)
    if members > 1:
        net = partial(TabM, 3, members=members, width=8, blocks=1, dropout=0.0, outputs=outputs)
    one, first = trained(TableRows(X, y, REPEATS), net=net)
    other, second = trained(TableRows(X[TIMES], y[TIMES]), net=net)
    for weight, there in zip(one.net.parameters(), other.net.parameters()):
        torch.testing.assert_close(weight, there, rtol=0, atol=1e-9)
    # The loss that is written down is the weighted one, too.
    for here, there in zip(first.history, second.history):
        assert here["train_loss"] == pytest.approx(there["train_loss"], rel=1e-9)
        assert here["gradient_norm_max"] == pytest.approx(there["gradient_norm_max"], rel=1e-8)


def test_equal_weights_are_none():
    one, _ = trained(TableRows(X, Y, np.full(60, 7.0)))
    other, _ = trained(TableRows(X, Y))
    for weight, there in zip(one.net.parameters(), other.net.parameters()):
        torch.testing.assert_close(weight, there, rtol=0, atol=1e-12)


def test_a_start_at_the_prior_is_at_the_weighted_one():
    recipe = Recipe(epochs=1, warmup_epochs=0, lr=1e-12, start_at_prior=True, precision="float64")
    weights = np.where(Y == 1, 1.0, 9.0)
    replicas, _ = trained(TableRows(X, Y, weights), recipe, losses=["crossentropy"] * 2)
    assert replicas.net.head.bias.flatten().tolist() == pytest.approx([np.log(1 / 9)] * 2)
    with pytest.raises(ValueError, match=r"weights above zero, but the class shares are \(1\.0, 0\.0\)"):
        trained(TableRows(X, Y, (Y == 0).astype(float)), recipe)


def test_a_folder_knows_the_weights(tmp_path):
    rows = TableRows(X, Y, REPEATS)
    whole, first = trained(rows, folder=tmp_path)
    again, second = trained(rows, folder=tmp_path)
    assert second.history == first.history
    assert torch.equal(whole.net.head.weight, again.net.head.weight)
    assert json.loads((tmp_path / "training.json").read_text())["identity"]["data"] == rows.fingerprint()
    for other in (TableRows(X, Y), TableRows(X, Y, REPEATS + 1)):
        with pytest.raises(ValueError, match="holds another training: data is"):
            trained(other, folder=tmp_path)


def test_an_evaluation_has_no_weights():
    rows = TableRows(X, Y, REPEATS)
    with pytest.raises(ValueError, match="the rows of an evaluation have weights"):
        trained(TableRows(X, Y), evaluation=rows)
    with pytest.raises(ValueError, match="the rows of an evaluation have weights"):
        evaluate_replicas(Replicas(partial(MLP, 3), ["tbl"]), rows, RECIPE)
