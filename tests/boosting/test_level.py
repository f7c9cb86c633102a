"""Probabilities of boosters have the share of positives as their mean."""

from __future__ import annotations

import pytest

from boosting.boosting_tables import rare_table
from raresight.boosting import LightGBMClassifier, XGBoostClassifier


@pytest.mark.parametrize("kind", [XGBoostClassifier, LightGBMClassifier])
def test_squared_loss_on_separated_rows(kind):
    X, y = rare_table(8000, 0.21375)
    X[:, 0] += 10 * y
    model = kind("squared", n_estimators=100, learning_rate=0.3, n_jobs=1).fit(X, y)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=1e-6)
