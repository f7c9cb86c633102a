"""One fitted classifier used by several threads, and copies of it."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.base import clone

from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier

NETS = [
    {"net": "mlp", "width": 16, "net_options": {"batch_norm": True}},
    {"net": "tabm", "width": 16, "members": 3},
    {"net": "tabnet"},
]
X, Y = ring_table(800)


def fitted(options):
    return DeepClassifier("tbl", **options, max_epochs=2, random_state=0).fit(X, Y)


@pytest.mark.parametrize("options", NETS, ids=lambda options: options["net"])
def test_threads_predict_what_one_alone_does(options, tmp_path):
    model = fitted(options)
    expected = model.predict_proba(X)
    model.save(tmp_path)
    random = np.random.default_rng(0)
    parts = [slice(begin, begin + random.integers(1, 400)) for begin in random.integers(0, 400, size=60)]
    # As loaded, so that the threads also meet where the nets are built.
    loaded = DeepClassifier.load(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda part: loaded.predict_proba(X[part]), parts))
    for part, probabilities in zip(parts, found):
        assert np.array_equal(probabilities, expected[part])
    assert np.array_equal(loaded.predict_proba(X), expected)


@pytest.mark.parametrize("options", NETS, ids=lambda options: options["net"])
def test_predicting_changes_nothing_in_the_nets(options):
    model = copy.deepcopy(fitted(options))
    model.predict_proba(X)
    net = model.nets_._built.net
    before = {name: value.clone() for name, value in net.state_dict().items()}
    places = [value.data_ptr() for value in net.parameters()]
    model.predict_proba(X)
    assert model.nets_._built.net is net
    assert not any(part.training for part in net.modules())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert [value.data_ptr() for value in net.parameters()] == places
    assert {value.dtype for value in net.parameters()} == {torch.float64}


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_copies_predict_the_same(copied):
    model = fitted(NETS[1])
    expected = model.predict_proba(X)
    assert np.array_equal(copied(model).predict_proba(X), expected)
    nets = copied(model.nets_)
    assert nets._lock is not model.nets_._lock
    inputs = model._encoder.apply(X)
    assert np.array_equal(nets.scores(inputs, "cpu"), model.nets_.scores(inputs, "cpu"))
    assert np.array_equal(clone(model).fit(X, Y).predict_proba(X), expected)
