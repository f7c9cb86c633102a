"""Rows unlike those of training: the level of probabilities stays where the columns say nothing new."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

from raresight.deep import DeepClassifier
from raresight.nn.nets import TabNet

N = 6_000


def noise_and_signal(seed=0):
    random = np.random.default_rng(seed)
    a = random.normal(size=N)
    return random, a, (random.random(N) < 1 / (1 + np.exp(4 - 1.2 * a))).astype(int)


@pytest.mark.parametrize("net", ["mlp", pytest.param("tabnet", marks=pytest.mark.slow)])
def test_a_category_that_training_did_not_see_leaves_the_level(net):
    random, a, y = noise_and_signal()
    frame = pd.DataFrame({"a": a, "c": pd.Categorical(random.choice(["DE", "FR", "IT"], N))})
    model = DeepClassifier(
        "crossentropy", net=net, random_state=0, early_stopping=False, max_epochs=10, n_jobs=1
    ).fit(frame, y)
    with pytest.warns(UserWarning, match="column 'c' holds in 6000 of 6000"):
        new = model.predict_proba(frame.assign(c="NEW"))[:, 1].mean()
    # With zeros in place of the mean inputs it is 1.4 to 1.6 times as high for an MLP.
    assert new == pytest.approx(y.mean(), rel=0.25)


@pytest.mark.parametrize("seed", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_flag_that_training_saw_once_leaves_the_level_of_tabnet(seed):
    _, a, y = noise_and_signal()
    X = np.column_stack([a, np.arange(N) == 7, np.random.default_rng(5).normal(size=N)])
    model = DeepClassifier(
        "crossentropy",
        net="tabnet",
        random_state=seed,
        early_stopping=False,
        max_epochs=6,
        batch_size=256,
        n_jobs=1,
    ).fit(X, y)
    flagged = X.copy()
    flagged[:, 1] = 1.0
    # One row teaches little, and not that all such rows are events, or none.
    assert y.mean() / 20 < model.predict_proba(flagged)[:, 1].mean() < 5 * y.mean()


def test_far_inputs_of_tabnet_are_alike():
    net = TabNet(2).eval()
    with torch.no_grad():
        near, far, farther = net(torch.tensor([[4.0, 0.0], [50.0, 0.0], [5e6, 0.0]]))[0].tolist()
    assert far == farther != near


@pytest.mark.slow
def test_wide_sparse_rows_are_scored_in_parts():
    """More rows than fit in memory at once if they were dense."""
    X = scipy.sparse.random(300, 5_000, density=0.002, format="csr", random_state=0)
    model = DeepClassifier(net="mlp", width=4, max_epochs=1, early_stopping=False, n_jobs=1)
    model.fit(X, np.arange(300) % 5 == 0)
    many = scipy.sparse.csr_matrix((60_000, 5_000))
    scores = model.decision_function(many)
    assert scores.shape == (60_000,)
    assert scores[0] == pytest.approx(model.decision_function(many[:1])[0])


@pytest.mark.parametrize("kind", ["string", "boolean", object])
def test_missing_labels_of_pandas_are_named(kind):
    values = [pd.NA, *([True, False] if kind == "boolean" else ["a", "b"]) * 100]
    with pytest.raises(ValueError, match="missing"):
        DeepClassifier(net="mlp").fit(np.zeros((201, 1)), pd.Series(values, dtype=kind))
