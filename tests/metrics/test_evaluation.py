"""The record of everything."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from raresight import metrics


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    y = np.repeat([0, 1], [30_000, 100])
    z = generator.normal(size=len(y)) + 3 * y
    p = 1 / (1 + np.exp(-(3 * z - 4.5 + np.log(100 / 30_000))))
    return y, z, p


def test_agrees_with_the_single_metrics(rows):
    y, z, p = rows
    result = metrics.evaluate(y, z, probability=p, max_fpr=0.02, fpr=0.005)
    assert result["roc_auc"].estimate == metrics.roc_auc(y, z)
    assert result["partial_auc"].estimate == metrics.partial_auc(y, z, 0.02)
    assert result["recall_at_fpr"].estimate == metrics.recall_at_fpr(y, z, 0.005)
    assert result["average_precision"].estimate == metrics.average_precision(y, z)
    assert result["brier_score"].estimate == pytest.approx(metrics.brier_score(y, p))
    assert result["log_loss"].estimate == pytest.approx(metrics.log_loss(y, p))
    assert result.calibration["calibration_error"] == metrics.calibration_error(y, p)
    assert result.calibration["log_calibration_error"] == metrics.calibration_error(y, p, scale="log")
    assert result.calibration["mean_probability"] == pytest.approx(p.mean())
    assert (result.rows, result.positives) == (30_100, 100)
    is_alert = z >= result.threshold
    assert result.alerts == is_alert.sum()
    assert result.precision == y[is_alert].mean()
    assert is_alert[y == 1].mean() == result["recall_at_fpr"].estimate


def test_prints_and_turns_into_json(rows):
    y, z, p = rows
    result = metrics.evaluate(pd.Series(y), pd.Series(z), probability=pd.Series(p))
    text = str(result)
    assert "30,100 rows, 100 positive (1 in 301)" in text
    assert "recall at FPR 0.001" in text
    assert "log calibration error" in text
    back = json.loads(json.dumps(result.to_dict()))
    assert back["intervals"]["roc_auc"]["estimate"] == result["roc_auc"].estimate
    assert back["calibration"] == result.calibration


def test_without_probabilities_nothing_is_said_of_calibration(rows):
    y, z, _ = rows
    result = metrics.evaluate(y, z)
    assert result.calibration == {}
    assert "brier_score" not in result.intervals


def test_weights():
    generator = np.random.default_rng(1)
    y = np.repeat([0, 1], [900, 60])
    z = generator.normal(size=len(y)) + 2 * y
    w = generator.integers(1, 4, len(y)).astype(float)
    result = metrics.evaluate(y, z, sample_weight=w, fpr=0.05)
    repeated = metrics.evaluate(np.repeat(y, w.astype(int)), np.repeat(z, w.astype(int)), fpr=0.05)
    for name in result.intervals:
        assert result[name].estimate == pytest.approx(repeated[name].estimate)
    assert result.precision == pytest.approx(repeated.precision)
    assert result.prior == pytest.approx(repeated.prior)


def test_no_alert_at_all():
    result = metrics.evaluate([0] * 20 + [1], [1.0] * 21)
    assert result.alerts == 0
    assert np.isnan(result.precision)
    assert "nan" in str(result)


def test_infinite_scores_leave_no_threshold(rows):
    y, z, _ = rows
    z = np.where(np.arange(len(z)) < 200, np.inf, z)
    result = metrics.evaluate(y, z, fpr=np.float32(0.001))
    assert (result.threshold, result.alerts) == (np.inf, 0)
    assert result["recall_at_fpr"].estimate == 0
    assert json.dumps(result.to_dict())


def test_bad_rates_are_refused(rows):
    y, z, _ = rows
    with pytest.raises(ValueError, match="fpr must be above 0"):
        metrics.evaluate(y, z, fpr=0)
