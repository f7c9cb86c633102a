"""Slope and level of the log-odds: by rows that training did not see, and by the class shares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from raresight.common.calibration import (
    Calibrator,
    evidence,
    held_out_calibrator,
    level_shift,
    two_columns,
)


def calibration_of(log_odds, y, weights=None):
    return held_out_calibrator(two_columns(log_odds), y, weights)


def rare_rows(count=20_000, seed=0, mean=-4.0):
    """Log-odds and labels drawn by them."""
    random = np.random.default_rng(seed)
    odds = 1.5 * random.normal(size=count) + mean
    return odds, (random.random(count) < expit(odds)).astype(np.int64)


def log_loss(y, odds, weights=None):
    return np.average(np.logaddexp(0, np.where(y == 1, -odds, odds)), weights=weights)


@settings(deadline=None, max_examples=25)
@given(slope=st.floats(0.2, 5.0), level=st.floats(-4.0, 4.0))
def test_a_wrong_slope_and_level_are_undone(slope, level):
    odds, y = rare_rows()
    found = calibration_of((odds - level) / slope, y)
    own = calibration_of(odds, y)
    assert own.slope == pytest.approx(1.0, abs=0.1)
    # The prior of a wrong slope moves it a little, as so many rows allow.
    assert found.slope == pytest.approx(own.slope * slope, rel=0.02)
    assert found.slope * (-4 - level) / slope + found.levels[0] == pytest.approx(
        own.slope * -4 + own.levels[0], abs=0.05
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_is_the_share_and_no_line_is_likelier(weighted):
    odds, y = rare_rows(5_000, mean=-3)
    weights = np.where(y == 1, 1.0, 7.0) if weighted else None
    found = calibration_of(3 * odds + 1, y, weights)
    moved = found.slope * (3 * odds + 1) + found.levels[0]
    share = np.average(y, weights=weights)
    assert np.average(expit(moved), weights=weights) == pytest.approx(share, rel=1e-6)
    best = log_loss(y, moved, weights)
    for slope in (0.9, 1.1):
        other = slope * moved
        assert log_loss(y, other - other.mean() + moved.mean(), weights) > best
    assert log_loss(y, moved + 0.05, weights) > best
    assert log_loss(y, moved - 0.05, weights) > best


def test_a_few_rows_move_the_slope_little():
    odds = np.array([-3.0, -2.0, -1.0, 1.0])
    slopes = [calibration_of(np.tile(odds, times), np.tile([0, 0, 0, 1], times)).slope for times in (1, 30)]
    # Both are told apart without an error: the more rows say so, the surer.
    assert 1.0 < slopes[0] < 2.5
    assert slopes[1] > 2 * slopes[0]
    backwards = calibration_of(np.tile(odds, 30), np.tile([1, 0, 0, 0], 30))
    assert 0.04 < backwards.slope < 0.1


def test_of_weights_only_the_proportions_count():
    odds, y = rare_rows(2_000, mean=-2)
    weights = np.random.default_rng(1).exponential(size=2_000)
    found = calibration_of(odds, y, weights)
    again = calibration_of(odds, y, 1e-6 * weights)
    assert (again.slope, again.levels[0]) == pytest.approx((found.slope, found.levels[0]), rel=1e-6)


def test_rows_that_say_nothing():
    assert calibration_of(np.array([1.0, 2.0]), np.array([0, 0])) == Calibrator(1.0, (0.0,))
    assert calibration_of(np.array([1.0, 2.0]), np.array([0, 1]), np.array([1.0, 0.0])) == Calibrator()
    constant = calibration_of(np.full(100, -3.0), np.arange(100) % 4 // 3)
    assert constant.slope == pytest.approx(1.0, abs=1e-3)
    assert expit(constant.slope * -3.0 + constant.levels[0]) == pytest.approx(0.25)


def test_impossible_events_that_happened_are_one_row_each():
    odds, y = rare_rows(5_000, mean=-2)
    odds[np.flatnonzero(y == 1)[0]] = -np.inf
    odds[np.flatnonzero(y == 0)[0]] = np.inf
    found = calibration_of(odds, y)
    assert np.isfinite([found.slope, found.levels[0]]).all()
    assert 0 < found.slope < 1


def test_what_weighted_rows_are_worth():
    codes = np.repeat([0, 1], [90, 10])
    assert evidence(codes, None) == 100
    assert evidence(codes, np.full(100, 0.25)) == pytest.approx(100)
    # A tenth of the negatives with ten times the weight: what ten positives tell remains.
    thin = codes[np.concatenate([np.arange(0, 90, 10), np.arange(90, 100)])]
    assert evidence(thin, np.where(thin == 0, 10.0, 1.0)) == pytest.approx(9 / 0.9)
    # Positives that count a hundredfold are not a hundred times as many.
    assert evidence(codes, np.where(codes == 1, 100.0, 1.0)) == pytest.approx(10 / (1000 / 1090))
    assert evidence(codes, np.where(codes == 1, 1e-320, 1e300)) == np.inf


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
    log_posterior = Calibrator(1.0, (0.0, 0.0, 0.0)).log_posterior(scores)
    shares = np.array([0.9, 0.09, 0.009, 0.001])
    weights = np.random.default_rng(3).uniform(0.1, 2, 3000)
    shift = level_shift(log_posterior, shares, weights)
    assert shift[0] == 0
    mean = np.average(
        np.exp(Calibrator(1.0, tuple(shift[1:])).log_posterior(log_posterior)), axis=0, weights=weights
    )
    np.testing.assert_allclose(mean, shares, rtol=1e-6)


def test_what_cannot_close_is_said():
    # Numbers this far apart leave no digits for the shift.
    log_odds = np.array([-1e30, -1e30, 1e30])
    with pytest.warns(ConvergenceWarning, match="off its share"):
        level_shift(two_columns(log_odds), np.array([0.9, 0.1]), None)


def test_one_calibrator_after_another_is_one():
    random = np.random.default_rng(0)
    log_posterior = Calibrator(1.0, (0.0, 0.0)).log_posterior(random.normal(size=(50, 3)))
    first, second = Calibrator(2.0, (0.3, -1.0)), Calibrator(0.25, (1.0, 4.0))
    one_by_one = second.log_posterior(first.log_posterior(log_posterior))
    np.testing.assert_allclose(first.then(second).log_posterior(log_posterior), one_by_one, rtol=1e-12)
    assert Calibrator.from_dict(first.to_dict()) == first
    odds = random.normal(size=20)
    assert Calibrator(2.0, (1.0,)).log_posterior(two_columns(odds)) == pytest.approx(
        two_columns(2 * odds + 1)
    )


def test_slope_of_classes():
    """Three classes whose logits are twice too large."""
    random = np.random.default_rng(4)
    log_posterior = Calibrator(1.0, (-3.0, -5.0)).log_posterior(random.normal(size=(40_000, 3)) * 1.5)
    codes = (np.exp(log_posterior).cumsum(axis=1) < random.random((40_000, 1))).sum(axis=1)
    found = held_out_calibrator(2 * log_posterior + [[0.0, 0.7, 0.1]], codes)
    assert found.slope == pytest.approx(0.5, rel=0.05)
    assert found.levels == pytest.approx((-0.35, -0.05), abs=0.1)


@pytest.mark.parametrize(("slope", "levels"), [(0.0, (0.0,)), (1.0, ()), (1.0, (np.nan,)), (np.inf, (0.0,))])
def test_a_calibrator_that_is_none_is_refused(slope, levels):
    with pytest.raises(ValueError, match="slope above 0 and finite levels"):
        Calibrator(slope, levels)


def test_half_as_many_digits_of_scores_give_the_same_slope():
    rng = np.random.default_rng(3)
    z = rng.normal(size=30_000) * 2 - 5
    y = (rng.random(30_000) < expit(z)).astype(np.int64)
    found = [held_out_calibrator(two_columns(z).astype(kind), y) for kind in (np.float32, np.float64)]
    assert found[0].slope == pytest.approx(found[1].slope, rel=1e-5)
