"""Brier score, log loss and calibration error."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st

from raresight.metrics import brier_score, calibration_error, log_loss
from raresight.metrics.calibration_metrics import calibration_bins
from score_cases import score_rows


def probabilities(scores):
    """Scores of any range as probabilities strictly inside (0, 1)."""
    return 1 / (1 + np.exp(-np.clip(scores.astype(np.float64), -30, 30)))


@given(score_rows())
def test_means_equal_scikit_learn(rows):
    y, s, w = rows
    p = probabilities(s)
    expected = sklearn.metrics.brier_score_loss(y, p, sample_weight=w)
    assert brier_score(y, p, sample_weight=w) == pytest.approx(expected, rel=1e-12)
    expected = sklearn.metrics.log_loss(y, p, sample_weight=w)
    assert log_loss(y, p, sample_weight=w) == pytest.approx(expected, rel=1e-10)


def test_small_probabilities_keep_their_digits():
    assert log_loss([0, 0], [1e-20, 1e-20]) == pytest.approx(1e-20, rel=1e-12)
    assert log_loss([1], [1e-300]) == pytest.approx(690.7755, rel=1e-6)


def test_certainty_that_is_wrong_costs_infinity():
    assert log_loss([1, 0], [0.0, 0.5]) == np.inf
    assert log_loss([1, 0], [1.0, 0.0]) == 0.0
    assert log_loss([1, 0], [0.0, 0.5], sample_weight=[0, 1]) == pytest.approx(np.log(2))


def test_error_of_calibrated_probabilities_is_noise():
    generator = np.random.default_rng(0)
    p = 10 ** generator.uniform(-5, -1, 400_000)
    y = generator.random(len(p)) < p
    assert calibration_error(y, p) < 0.001
    assert calibration_error(y, p, scale="log", bins=10) < 0.06


@pytest.mark.parametrize("factor", [0.5, 2.0, 4.0])
def test_log_scale_reads_the_factor(factor):
    generator = np.random.default_rng(1)
    p = 10 ** generator.uniform(-4, -2, 2_000_000)
    y = generator.random(len(p)) < p
    assert calibration_error(y, p * factor, scale="log") == pytest.approx(abs(np.log(factor)), rel=0.06)
    # The linear scale calls even a factor of four small.
    assert calibration_error(y, p * factor) < 0.01


@pytest.mark.parametrize("weight", [1e-6, 1e-3, 1e3])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_only_the_proportions_of_weights_matter(scale, weight):
    generator = np.random.default_rng(3)
    p = generator.random(5_000) ** 4
    y = generator.random(5_000) < p
    plain = calibration_error(y, p / 3, scale=scale)
    weighted = calibration_error(y, p / 3, scale=scale, sample_weight=np.full(5_000, weight))
    assert weighted == pytest.approx(plain)


def test_few_events_get_few_bins():
    generator = np.random.default_rng(4)
    errors = []
    for _ in range(200):
        p = np.full(20_000, 0.0015) * generator.uniform(0.5, 1.5, 20_000)
        errors.append(calibration_error(generator.random(20_000) < p, p, scale="log"))
    # About thirty events: one bin, and an error of about 0.8 / sqrt(30).
    assert np.mean(errors) == pytest.approx(0.8 / np.sqrt(30), rel=0.2)


def test_equal_mass():
    generator = np.random.default_rng(2)
    p = generator.random(10_000) ** 8
    y = generator.random(10_000) < p
    by_rows = calibration_bins(y, p, bins=10)
    assert by_rows.weight == pytest.approx(np.full(10, 1000), abs=1)
    by_events = calibration_bins(y, p, bins=10, by="events")
    assert by_events.expected == pytest.approx(np.full(10, p.sum() / 10), abs=1.01)
    assert np.all(by_events.high[:-1] < by_events.low[1:])
    assert by_events.observed.sum() == y.sum()


@given(score_rows(), st.sampled_from(["linear", "log"]), st.integers(1, 20))
def test_order_of_rows_does_not_matter(rows, scale, bins):
    y, s, w = rows
    p = probabilities(s)
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = None if w is None else w[order]
    value = calibration_error(y, p, scale=scale, bins=bins, sample_weight=w)
    other = calibration_error(y[order], p[order], scale=scale, bins=bins, sample_weight=shuffled)
    assert value == pytest.approx(other, rel=1e-9, abs=1e-12)


@given(score_rows())
def test_weights_are_repetitions(rows):
    y, s, _ = rows
    p = probabilities(s)
    times = np.random.default_rng(len(y)).integers(1, 4, len(y))
    value = calibration_error(y, p, bins=5, sample_weight=times)
    assert value == pytest.approx(calibration_error(np.repeat(y, times), np.repeat(p, times), bins=5))


def test_known_bins_by_hand():
    y = [0, 1, 0, 0]
    p = [0.1, 0.3, 0.6, 0.8]
    # Two bins: (0.2 expected, 0.5 seen) and (0.7 expected, 0 seen).
    assert calibration_error(y, p, bins=2) == pytest.approx((0.3 + 0.7) / 2)
    # Of 1.8 events expected, 0.9 a bin: three rows with 1.0 expected and 1 seen, one with 0.8 and none.
    low, high = abs(np.log(1.5 / 1.5)) * 1.5, abs(np.log(0.5 / 1.3)) * 1.3
    assert calibration_error(y, p, bins=2, scale="log") == pytest.approx((low + high) / 2.8)


def test_all_zero_probabilities_have_bins():
    assert calibration_error([0, 1], [0.0, 0.0]) == 0.5
    assert np.isfinite(calibration_error([0, 1], [0.0, 0.0], scale="log"))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: brier_score([0, 1], [0.1, 1.2]), r"in \[0, 1\], but row 1 holds 1.2"),
    (lambda: log_loss([0, 1], [-0.1, 0.2]), r"in \[0, 1\], but row 0 holds -0.1"),
    (lambda: calibration_error([0, 1], [0.1, 0.2], bins=0), "bins must be a whole number"),
    (lambda: calibration_error([0, 1], [0.1, 0.2], bins=1.5), "bins must be a whole number"),
    (lambda: calibration_error([0, 1], [0.1, 0.2], scale="cubic"), "one of linear, log"),
    (lambda: brier_score([0, 1], [0.1, 0.2], sample_weight=[0, 0]), "All weights are zero"),
])  # fmt: skip
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_class_is_enough_for_a_mean():
    assert brier_score([0, 0], [0.1, 0.2]) == pytest.approx(0.025)
