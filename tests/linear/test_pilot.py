"""Parts of the rows stand for all of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from raresight.linear import LinearClassifier
from raresight.linear.minimise import even_part, pulling_part
from raresight.linear.penalties import Penalty
from raresight.linear.reading import make_sample
from raresight.linear.sums import Request, evaluate
from raresight.losses import parse


def sample_of(n=200_000, weights=None, classes=2, shift=-5.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    codes = (rng.random(n) < expit(X[:, 0] + shift)).astype(np.int64)
    if classes == 3:
        codes += rng.random(n) < 0.001
        codes = np.minimum(codes, 2)
    return make_sample(X, codes, weights, classes, intercept=True)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_risk_of_a_part_is_that_of_all_rows(classes):
    weights = np.random.default_rng(1).random(200_000) + 0.5
    whole = sample_of(weights=weights, classes=classes)
    rng = np.random.default_rng(2)
    theta = rng.normal(size=whole.size) * 0.1
    theta[whole.columns.n_columns - 1 :: whole.columns.n_columns] -= np.linspace(4, 5, whole.n_scores)
    loss = parse("tbl")
    even = even_part(whole)
    assert even is not None
    for part, close in ((even, 0.1), (pulling_part(whole, loss, theta), 0.03)):
        assert part.design.n_rows < 0.1 * whole.design.n_rows
        assert part.total == pytest.approx(whole.total, rel=0.03)
        a, b = (evaluate(one, [Request(loss, Penalty(), theta, 2, double=True)])[0] for one in (whole, part))
        assert b.value == pytest.approx(a.value, rel=close)
        assert b.gradient == pytest.approx(a.gradient, abs=close * a.scale)
        assert b.hessian == pytest.approx(a.hessian, abs=2 * close * np.abs(a.hessian).max())


def test_a_rare_class_is_taken_whole():
    whole = sample_of(shift=-6.5)
    part = even_part(whole)
    assert part is not None
    assert part.labels.sum() == whole.labels.sum()
    assert part.weights[part.labels == 1] == pytest.approx(1.0)


def test_few_rows_have_no_part():
    assert even_part(sample_of(50_000)) is None


@pytest.mark.parametrize("intercept", [True, False])
def test_rows_of_weight_zero_are_not_drawn(intercept):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 3))
    y = rng.random(200_000) < 0.6
    weights = np.ones(200_000)
    rare = np.flatnonzero(~y)
    weights[rare] = 0
    weights[rare[:20]] = 1
    model = LinearClassifier(l2=1e-2, fit_intercept=intercept).fit(X, y, sample_weight=weights)
    used = weights > 0
    alone = LinearClassifier(l2=1e-2, fit_intercept=intercept).fit(X[used], y[used])
    assert model.converged_
    assert model.coef_ == pytest.approx(alone.coef_, rel=1e-4, abs=1e-6)
    sample = make_sample(X, y.astype(np.int64), weights, 2, intercept)
    even = even_part(sample)
    assert even is not None
    assert (even.labels == 0).sum() == 20
    for part in (even, pulling_part(sample, parse("tbl"), np.zeros(sample.size))):
        assert (part.weights > 0).all()
        assert part.total == pytest.approx(sample.total, rel=0.03)
