"""Penalty and tolerance follow the prior: linear models learn as much of a rarer event."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from loss_cases import SOME_LOSSES
from raresight.linear import LinearClassifier, LinearClassifierCV, fit_path
from raresight.linear.penalties import relative_l2
from raresight.losses import LDAM, TBL, Alpha, ClassWeighted, CrossEntropy, Focal, VectorScaling

PRIORS = [1e-2, 1e-3, 1e-4, 1e-5]
LOSSES = [*SOME_LOSSES, Focal(0.5), Alpha(), TBL(0.6, 1.0), VectorScaling(0.5), LDAM((9900, 100))]


def world(loss, prior, n=3000):
    """Rows with both labels, weighted by their probabilities; the true score is linear."""
    X = np.random.default_rng(0).normal(size=(n, 3))
    start = np.log(prior) - np.log1p(-prior)
    unit = float(loss.score(start + 0.5) - loss.score(start - 0.5))
    direction = X @ [1.0, -0.5, 0.0] * unit

    def excess(shift):
        return np.log(np.mean(loss.probability(direction + shift)) / prior)

    middle = float(loss.score(start))
    truth = np.asarray(loss.log_odds(direction + brentq(excess, middle - 20 * unit, middle + 5 * unit)))
    weights = np.concatenate([expit(-truth), expit(truth)])
    return np.vstack([X, X]), np.repeat([0, 1], n), weights, truth


def slope_of(log_odds, truth):
    return float(np.polyfit(truth, log_odds, 1)[0])


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_slope_is_that_of_the_truth(loss, prior, solver):
    X, y, weights, truth = world(loss, prior)
    model = LinearClassifier(loss, solver=solver).fit(X, y, weights)
    assert model.converged_
    assert model.n_iter_ <= {"newton": 8, "lbfgs": 20}[solver]
    assert 0.98 < slope_of(model.predict_log_odds(X[: len(truth)]), truth) < 1.01


@pytest.mark.parametrize("loss", ["crossentropy", "tbl", "vectorscaling(delta=0.5)"])
def test_the_slope_of_a_few_hundred_positives(loss):
    rng = np.random.default_rng(0)
    prior, direction = 1e-5, np.array([1.5, -1.0, 0.5])
    X = np.vstack([rng.normal(size=(20_000, 3)), rng.normal(size=(400, 3)) + direction])
    y = np.repeat([0, 1], [20_000, 400])
    weights = np.where(y == 1, prior / 400, (1 - prior) / 20_000)
    truth = X @ direction
    model = LinearClassifier(loss).fit(X, y, weights)
    assert 0.9 < slope_of(model.predict_log_odds(X), truth) < 1.1


def test_a_number_is_taken_as_it_is():
    X, y, weights, _ = world(CrossEntropy(), 1e-4)
    assert LinearClassifier("crossentropy", l2=1e-4).fit(X, y, weights).l2_ == 1e-4
    assert LinearClassifier("crossentropy").fit(X, y, weights).l2_ == pytest.approx(1e-6, rel=1e-3)
    fits = fit_path(X, y, ["crossentropy", "squared"], [1e-4, None], sample_weight=weights)
    assert [fit.l2 for fit in fits[::2]] == [1e-4, 1e-4]
    assert fits[1].l2 == pytest.approx(1e-6, rel=1e-3)
    assert fits[3].l2 < 1e-4 * fits[1].l2 * 10


def test_class_weights_and_scaled_weights_change_no_coefficient():
    X, y, weights, _ = world(TBL(), 1e-3)
    plain = LinearClassifier(TBL(), tol=1e-11).fit(X, y, weights)
    for loss, scale in ((ClassWeighted(TBL(), (7.0, 7.0)), 1.0), (TBL(), 1e6)):
        other = LinearClassifier(loss, tol=1e-11).fit(X, y, scale * weights)
        assert other.coef_ == pytest.approx(plain.coef_, rel=1e-6)


def test_penalties_to_choose_from_follow_each_loss():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    y = rng.random(4000) < expit(X[:, 0] - 4)
    model = LinearClassifierCV(losses=["crossentropy", "focal"], cv=2).fit(X, y)
    prior = y.mean()
    assert model.cv_results_["l2"][:4] == pytest.approx(np.array([1e-3, 1e-2, 0.1, 1]) * prior * (1 - prior))
    assert model.cv_results_["l2"][4] == relative_l2(Focal(2.0), np.array([1 - prior, prior]), 1e-3)
    assert model.l2_ in model.cv_results_["l2"]


def test_the_slope_of_class_logits():
    """The rare two of three classes, as rare as 1e-4."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    logits = np.column_stack([np.zeros(4000), X[:, 0] - 9, X[:, 1] - 9])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows, y = np.vstack([X, X, X]), np.repeat([0, 1, 2], 4000)
    model = LinearClassifier("crossentropy").fit(rows, y, p.T.ravel())
    log_odds = model.predict_log_odds(X)
    truth = np.log(p) - np.log(1 - p)
    assert all(0.97 < slope_of(log_odds[:, k], truth[:, k]) < 1.01 for k in (1, 2))
