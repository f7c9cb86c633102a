"""Rows that pull hard."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from raresight.linear import LinearClassifier
from raresight.losses import parse
from raresight.theory.influence import deletion_effect, leverage
from raresight.theory.linear_rule import LinearRule


def data(n=2000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 10.0, 0.1]
    return X, (rng.random(n) < expit(2 * X[:, 0] - 3)).astype(int)


@pytest.mark.parametrize("text", ["crossentropy", "tbl", "focal"])
def test_agrees_with_the_theory(text):
    X, y = data()
    loss = parse(text)
    model = LinearClassifier(loss, l2=0.0).fit(X, y)
    found = model.influence(X, y)
    rule = LinearRule(model.coef_[0], float(model.intercept_[0]))
    moves = deletion_effect(loss, X, y, rule)
    ones = np.column_stack([X, np.ones(len(X))])
    bend = loss.hessian(X @ rule.w + rule.b, y)
    H = (ones * bend[:, None]).T @ ones / len(X)
    assert found.pull == pytest.approx(np.sqrt(np.einsum("ij,jk,ik->i", moves, H, moves)), rel=1e-6)
    assert found.leverage == pytest.approx(leverage(loss, X, y, rule), rel=1e-6)
    assert found.leverage.sum() == pytest.approx(4, rel=1e-6)
    assert found.loss == pytest.approx(loss.value(X @ rule.w + rule.b, y))


def test_predicts_what_leaving_a_row_out_does():
    X, y = data(400)
    model = LinearClassifier("tbl", l2=1e-2).fit(X, y)
    found = model.influence(X, y)
    for row in found.top(3):
        without = LinearClassifier("tbl", l2=1e-2).fit(np.delete(X, row, axis=0), np.delete(y, row))
        loss = model.loss_.value(without.decision_function(X[row : row + 1]), y[row : row + 1])[0]
        assert loss - found.loss[row] == pytest.approx(found.own_effect[row], rel=0.35)


@pytest.mark.parametrize("text", ["crossentropy", "tbl"])
def test_finds_flipped_labels(text):
    """Common rows that were labelled rare, where the classes are well apart."""
    rng = np.random.default_rng(1)
    n = 20_000
    y = rng.random(n) < 0.01
    X = rng.normal(size=(n, 5))
    X[y, :2] += 3.0
    flipped = rng.choice(np.flatnonzero(~y), 20, replace=False)
    y[flipped] = True
    model = LinearClassifier(text).fit(X, y)
    found = set(model.influence(X, y).top(40).tolist())
    assert len(found & set(flipped.tolist())) >= 16


def test_weights_sparse_classes_and_lasso():
    X, y = data(600)
    weights = np.random.default_rng(0).integers(1, 4, 600).astype(float)
    model = LinearClassifier("tbl").fit(X, y, sample_weight=weights)
    dense = model.influence(X, y, sample_weight=weights)
    thin = model.influence(sparse.csr_array(X), y, sample_weight=weights)
    assert thin.pull == pytest.approx(dense.pull, rel=1e-8)
    assert not np.allclose(dense.pull, model.influence(X, y).pull)
    three = (X[:, 0] > 0.5).astype(int) + y
    classes = LinearClassifier("tbl", l2=1e-4).fit(X, three)
    pulls = classes.influence(X, three)
    assert pulls.pull.shape == (600,)
    assert pulls.leverage.sum() == pytest.approx(8, abs=0.2)  # (K - 1)(d + 1), and a little ridge
    lasso = LinearClassifier("tbl", l1=0.02).fit(X, y)
    assert np.count_nonzero(lasso.coef_) < 3
    assert lasso.influence(X, y).leverage.sum() == pytest.approx(np.count_nonzero(lasso.coef_) + 1, abs=0.2)


def test_classes_by_hand():
    """H and the pull of each row, written out with the Kronecker product."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) * [1.0, 3.0]
    y = (np.column_stack([X[:, 0], X[:, 1] / 3, 0 * X[:, 0]]) + rng.gumbel(size=(300, 3))).argmax(axis=1)
    l2 = 1e-2
    model = LinearClassifier("tbl", l2=l2).fit(X, y)
    found = model.influence(X, y)
    f = model.decision_function(X)
    S = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(300)])
    bends, slopes = model.loss_.hessian_matrix(f, y), model.loss_.gradient(f, y)
    H = sum(np.kron(bend, np.outer(x, x)) for bend, x in zip(bends, S)) / 300
    H += l2 * np.kron(np.eye(3), np.diag([1.0, 1.0, 0.0]))
    inverse = np.linalg.pinv(H, rcond=1e-10)
    pulls = [np.kron(slope, x) for slope, x in zip(slopes, S)]
    assert found.pull == pytest.approx([np.sqrt(v @ inverse @ v) / 300 for v in pulls], rel=1e-6)
    shares = [np.trace(inverse @ np.kron(bend, np.outer(x, x))) / 300 for bend, x in zip(bends, S)]
    assert found.leverage == pytest.approx(shares, rel=1e-6)


def test_other_rows_than_the_fit_are_refused():
    X, y = data()
    model = LinearClassifier("focal", l2=0.0).fit(X, y)
    with pytest.raises(ValueError, match="label 2, which training did not see"):
        model.influence(X, y + 1)
    with pytest.raises(ValueError, match="features"):
        model.influence(X[:, :2], y)


def test_parameters_set_after_the_fit_change_nothing():
    X, y = data()
    model = LinearClassifier("tbl", l1=1e-3, l2=1e-3).fit(X, y)
    before = model.influence(X, y)
    model.set_params(l2=100.0, l1=0.0, fit_intercept=False, class_weight={1: 5.0}, loss="focal")
    after = model.influence(X, y)
    assert (after.pull == before.pull).all()
    assert (after.leverage == before.leverage).all()
