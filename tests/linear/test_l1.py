"""The lasso penalty: the KKT conditions, checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from raresight.linear import LinearClassifier
from raresight.losses import parse


def wide_data(n=600, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (1 + np.arange(d))
    y = rng.random(n) < expit(2 * X[:, 0] - 0.5 * X[:, 1] - 1.5)
    return X, y


def assert_kkt(model, X, y, l1, l2):
    unit = X.std(axis=0)
    S = (X - X.mean(axis=0)) / unit
    z = X @ model.coef_.T + model.intercept_
    codes = np.searchsorted(model.classes_, y)
    if z.shape[1] == 1:
        slope = model.loss_.gradient(z[:, 0], codes)[:, None]
    else:
        slope = model.loss_.gradient(z, codes)
    b = model.coef_ * unit
    gradient = slope.T @ S / len(y) + l2 * b
    used = b != 0
    assert np.abs(gradient[used] + l1 * np.sign(b[used])).max() < 2e-8
    assert np.abs(gradient[~used]).max(initial=0) <= l1 + 2e-8
    assert np.abs(slope.mean(axis=0)).max() < 2e-8


@pytest.mark.parametrize(
    "text", ["crossentropy", "tbl", "focal", "alpha(alpha=0.5)", "squared", "erf", "poly"]
)
def test_kkt(text):
    X, y = wide_data()
    model = LinearClassifier(text, l1=0.02, l2=1e-3).fit(X, y)
    assert model.converged_
    assert 1 <= np.count_nonzero(model.coef_) < X.shape[1]
    assert_kkt(model, X, y, 0.02, 1e-3)


def test_kkt_for_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 8))
    y = (np.column_stack([X[:, 0], X[:, 1], -X[:, 0]]) + rng.gumbel(size=(900, 3))).argmax(axis=1)
    model = LinearClassifier("crossentropy", l1=0.02, l2=0.0).fit(X, y)
    assert_kkt(model, X, y, 0.02, 0.0)
    assert np.count_nonzero(model.coef_[:, 2:]) < 6


def test_more_features_than_rows():
    """The working set: most features never enter a Hessian."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2000))
    y = rng.random(300) < expit(3 * X[:, 0] - 3 * X[:, 7])
    model = LinearClassifier("tbl", l1=0.03, l2=0.0).fit(X, y)
    assert_kkt(model, X, y, 0.03, 0.0)
    assert {0, 7} <= set(np.flatnonzero(model.coef_[0]))
    thin = LinearClassifier("tbl", l1=0.03, l2=0.0).fit(sparse.csr_array(X), y)
    assert thin.coef_ == pytest.approx(model.coef_, abs=1e-6)


def test_cross_entropy_is_the_lasso_of_scikit_learn():
    X, y = wide_data()
    S = StandardScaler().fit(X)
    theirs = LogisticRegression(
        C=1 / (len(y) * 0.02), l1_ratio=1.0, solver="saga", tol=1e-9, max_iter=20_000
    ).fit(S.transform(X), y)
    model = LinearClassifier("crossentropy", l1=0.02, l2=0.0).fit(X, y)
    assert model.coef_ * S.scale_ == pytest.approx(theirs.coef_, abs=1e-5)
    assert ((model.coef_ == 0) == (theirs.coef_ == 0)).all()


def test_a_penalty_too_large_leaves_the_constant():
    X, y = wide_data()
    model = LinearClassifier("tbl", l1=10.0).fit(X, y)
    assert not model.coef_.any()
    assert model.predict_proba(X[:1])[0, 1] == pytest.approx(y.mean(), abs=1e-6)


def test_many_float32_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120_000, 6)).astype(np.float32)
    y = rng.random(len(X)) < expit(1.5 * X[:, 0] - 5)
    model = LinearClassifier("tbl", l1=1e-3, l2=0.0).fit(X, y)
    assert_kkt(model, X.astype(float), y, 1e-3, 0.0)
    assert np.count_nonzero(model.coef_) < 6


def test_lasso_and_lbfgs_are_refused():
    X, y = wide_data()
    with pytest.raises(ValueError, match="l1 > 0 needs proximal steps"):
        LinearClassifier(l1=0.1, solver="lbfgs").fit(X, y)


def test_losses_that_are_not_convex_keep_their_zeros():
    X, y = wide_data()
    loss = parse("focal(gamma=5.0)")
    model = LinearClassifier(loss, l1=0.01, l2=0.0).fit(X, y)
    assert_kkt(model, X, y, 0.01, 0.0)
