"""Accuracy class by class."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
import torch
from hypothesis import given
from hypothesis import strategies as st

from raresight.metrics import balanced_accuracy, class_accuracy, minority_accuracy


@given(st.integers(2, 6), st.integers(2, 200), st.integers(0, 2**31), st.booleans())
def test_against_scikit_learn(classes, rows, seed, weighted):
    generator = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), generator.integers(0, classes, rows)])
    guess = generator.integers(0, classes, len(y))
    w = generator.random(len(y)) + 0.1 if weighted else None
    assert balanced_accuracy(y, guess, sample_weight=w) == pytest.approx(
        sklearn.metrics.balanced_accuracy_score(y, guess, sample_weight=w)
    )
    recalls = sklearn.metrics.recall_score(
        y, guess, average=None, sample_weight=w, labels=np.arange(classes), zero_division=0
    )
    assert list(class_accuracy(y, guess, sample_weight=w).values()) == pytest.approx(recalls)
    weight = np.bincount(y, weights=w)
    rarest = weight == weight.min()
    assert minority_accuracy(y, guess, sample_weight=w) == pytest.approx(recalls[rarest].mean())


def test_tensors_and_strings():
    assert class_accuracy(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 0])) == {0: 1.0, 1: 0.5}
    assert minority_accuracy(["ok", "ok", "fraud"], ["ok", "ok", "ok"]) == 0.0


@pytest.mark.parametrize(("y", "guess", "message"), [
    ([], [], "empty"),
    ([0, 1], [0], "y_pred has 1"),
    ([0, 1], [0.2, 0.9], "labels, not scores, but row 0 holds 0.2"),
    ([0.0, np.nan], [0, 1], "missing label"),
])  # fmt: skip
def test_bad_input_is_refused(y, guess, message):
    with pytest.raises(ValueError, match=message):
        balanced_accuracy(y, guess)


def test_labels_of_different_kinds_are_refused():
    with pytest.raises(TypeError, match="different kinds"):
        class_accuracy(["0", "1"], [0, 1])
    with pytest.raises(ValueError, match="missing value"):
        class_accuracy([0, None], [0, 1])


def test_weightless_classes_are_absent():
    assert class_accuracy([0, 1], [0, 0], sample_weight=[1, 0]) == {0: 1.0}
    with pytest.raises(ValueError, match="All weights are zero"):
        class_accuracy([0, 1], [0, 0], sample_weight=[0, 0])
