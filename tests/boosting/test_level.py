"""The shift that makes the mean probability the class share closes, or says that it did not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from boosting.boosting_tables import rare_table
from raresight.boosting import LightGBMClassifier, XGBoostClassifier
from raresight.common.level import level_shift, shifted


def two_columns(log_odds):
    return -np.logaddexp(0, np.stack([log_odds, -log_odds], axis=1))


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0, 600.0, 1e5])
@pytest.mark.parametrize("prior", [0.5, 0.213, 1e-3, 1e-6])
def test_two_classes_close(spread, prior):
    log_odds = np.random.default_rng(0).normal(size=2000) * spread
    weights = np.random.default_rng(1).uniform(0.1, 2, 2000)
    shift = level_shift(two_columns(log_odds), np.array([1 - prior, prior]), weights)
    assert shift[0] == 0
    assert np.average(expit(log_odds + shift[1]), weights=weights) == pytest.approx(prior, rel=1e-6)


@pytest.mark.parametrize("gap", [5.0, 40.0, 700.0])
def test_separated_rows_close(gap):
    """Two clusters with nothing between them, and a share that only a long shift can reach."""
    log_odds = np.repeat([-gap, gap], [7862, 2138])
    shift = level_shift(two_columns(log_odds), np.array([0.78625, 0.21375]), None)
    assert expit(log_odds + shift[1]).mean() == pytest.approx(0.21375, rel=1e-6)


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
def test_classes_close(spread):
    scores = np.random.default_rng(2).normal(size=(3000, 4)) * spread
    log_posterior = shifted(scores, np.zeros(4))
    shares = np.array([0.9, 0.09, 0.009, 0.001])
    weights = np.random.default_rng(3).uniform(0.1, 2, 3000)
    shift = level_shift(log_posterior, shares, weights)
    assert shift[0] == 0
    mean = np.average(np.exp(shifted(log_posterior, shift)), axis=0, weights=weights)
    np.testing.assert_allclose(mean, shares, rtol=1e-6)


def test_what_cannot_close_is_said():
    # Numbers this far apart leave no digits for the shift.
    log_odds = np.array([-1e30, -1e30, 1e30])
    with pytest.warns(ConvergenceWarning, match="off its share"):
        level_shift(two_columns(log_odds), np.array([0.9, 0.1]), None)


@pytest.mark.parametrize("kind", [XGBoostClassifier, LightGBMClassifier])
def test_squared_loss_on_separated_rows(kind):
    X, y = rare_table(8000, 0.21375)
    X[:, 0] += 10 * y
    model = kind("squared", n_estimators=100, learning_rate=0.3, n_jobs=1).fit(X, y)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=1e-6)
