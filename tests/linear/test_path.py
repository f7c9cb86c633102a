"""Many settings in one go are the same fits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from raresight.linear import LinearClassifier, NotConvergedWarning, fit_pairs, fit_path
from raresight.losses import Focal

TEXTS = [
    "crossentropy",
    *(f"tbl(alpha={a},C={C})" for a in (0.6, 0.9) for C in (0.0, 1.0)),
    "focal(gamma=1.0)",
]


def rare_data(n, kind=np.float64):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, 4)) * [1, 2, 3, 4] + [0, 1, 2, 3]).astype(kind)
    return X, rng.random(n) < expit(X[:, 0] - 0.3 * X[:, 2] - 4)


@pytest.mark.parametrize(("n", "kind"), [(3000, np.float64), (120_000, np.float32)])
def test_equals_separate_fits(n, kind):
    X, y = rare_data(n, kind)
    weights = np.random.default_rng(1).random(n) + 0.5
    fits = fit_path(X, y, TEXTS, [1e-5, 1e-3], sample_weight=weights)
    assert [(str(fit.loss), fit.l2) for fit in fits][:3] == [
        ("crossentropy", 1e-5),
        ("crossentropy", 1e-3),
        ("tbl(alpha=0.6,C=0.0)", 1e-5),
    ]
    for fit in fits:
        alone = LinearClassifier(fit.loss, l2=fit.l2).fit(X, y, sample_weight=weights)
        assert fit.converged
        assert fit.gradient_norm <= 1e-8
        assert fit.coef == pytest.approx(alone.coef_, rel=1e-6, abs=2e-6)
        assert fit.intercept == pytest.approx(alone.intercept_, rel=1e-6, abs=1e-5)
        assert fit.model.predict_proba(X[:50]) == pytest.approx(alone.predict_proba(X[:50]), abs=1e-6)
        assert fit.objective == pytest.approx(alone.objective_, rel=1e-9)


def test_classes_sparse_and_lasso():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((800, 5)) < 0.4, rng.normal(size=(800, 5)), 0.0)
    y = (X[:, :3] + rng.gumbel(size=(800, 3))).argmax(axis=1)
    fits = fit_path(sparse.csr_array(X), y, ["tbl", Focal(1.0)], 1e-3, l1=1e-3)
    for fit in fits:
        alone = LinearClassifier(fit.loss, l2=1e-3, l1=1e-3).fit(X, y)
        assert fit.coef == pytest.approx(alone.coef_, abs=1e-5)


def test_class_weights_and_counted_losses():
    X, y = rare_data(2000)
    fit = fit_path(X, y, "logitadjusted(tbl,0.01)", class_weight="balanced")[0]
    alone = LinearClassifier("logitadjusted(tbl,0.01)", class_weight="balanced").fit(X, y)
    assert fit.model.loss_ == alone.loss_
    assert fit.coef == pytest.approx(alone.coef_, rel=1e-6)


def test_settings_that_do_not_converge_are_named():
    X = np.linspace(-1, 1, 50)[:, None]
    with pytest.warns(NotConvergedWarning, match="crossentropy, l2=0: a hyperplane separates"):
        fits = fit_path(X, X[:, 0] > 0, ["crossentropy"], [0.0, 1e-3])
    assert [fit.converged for fit in fits] == [False, True]


def test_nothing_to_fit_is_refused():
    X, y = rare_data(100)
    with pytest.raises(ValueError, match="at least one loss"):
        fit_path(X, y, [])
    with pytest.raises(ValueError, match="l2 must be at least 0"):
        fit_path(X, y, "tbl", [-1.0])


def test_pairs_are_the_settings_of_a_path():
    X, y = rare_data(3000)
    path = fit_path(X, y, TEXTS[:2], [1e-5, 1e-3])
    pairs = fit_pairs(X, y, [(TEXTS[1], 1e-3), (Focal(1.0), 1e-4), (TEXTS[0], 1e-5)])
    assert [(str(fit.loss), fit.l2) for fit in pairs] == [
        (TEXTS[1], 1e-3),
        ("focal(gamma=1.0)", 1e-4),
        (TEXTS[0], 1e-5),
    ]
    assert pairs[0].coef == pytest.approx(path[3].coef, rel=1e-6, abs=1e-8)
    assert pairs[2].coef == pytest.approx(path[0].coef, rel=1e-6, abs=1e-8)
    alone = LinearClassifier(Focal(1.0), l2=1e-4).fit(X, y)
    assert pairs[1].coef == pytest.approx(alone.coef_, rel=1e-6, abs=1e-8)


def test_no_pairs_are_refused():
    X, y = rare_data(100)
    with pytest.raises(ValueError, match="at least one pair"):
        fit_pairs(X, y, [])
    with pytest.raises(ValueError, match="l2 must be at least 0"):
        fit_pairs(X, y, [("tbl", -1.0)])
