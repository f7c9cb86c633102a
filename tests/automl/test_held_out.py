"""What held-out rows tell where they depend on each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from raresight.automl.evaluation import find_threshold, units_of
from raresight.metrics import threshold_at_fpr


def test_units_are_groups_or_stretches_of_time():
    y = np.tile([0, 0, 1], 100)
    assert units_of(y, None, None) is None
    groups = np.repeat(np.arange(100), 3)
    np.testing.assert_array_equal(units_of(y, None, groups), groups)
    stretches = units_of(y, np.arange(300.0), None)
    assert len(np.unique(stretches)) == 30
    assert (np.diff(stretches) >= 0).all()


@pytest.mark.parametrize("units", [np.zeros(300), np.where(np.tile([0, 0, 1], 100) == 1, 0, np.arange(300))])
def test_one_unit_that_holds_a_class_shows_nothing(units):
    assert units_of(np.tile([0, 0, 1], 100), None, units.astype(np.intp)) is None


def test_alike_rows_of_a_group_are_fewer_observations():
    generator = np.random.default_rng(0)
    y = np.arange(6_000) < 60
    group = generator.permutation(6_000) // 20
    scores = generator.normal(size=300)[group] + generator.normal(size=6_000) + 2 * y
    rows, groups = find_threshold(y, scores, 0.02), find_threshold(y, scores, 0.02, group)
    assert groups.log_odds == rows.log_odds
    assert groups.fpr_seen == rows.fpr_seen
    assert groups.fpr_bound > rows.fpr_bound
    assert groups.safe > rows.safe
    each = find_threshold(y, scores, 0.02, np.arange(6_000))
    assert each == rows


@pytest.mark.parametrize("shift", [0, 2, 6])
def test_no_false_alert_without_a_positive_below_it(shift):
    generator = np.random.default_rng(0)
    y = np.arange(20_000) < 40
    scores = generator.normal(size=20_000) + shift * y
    found = find_threshold(y, scores, 0.02)
    for threshold, lowest in (
        (found.log_odds, threshold_at_fpr(y, scores, 0.02)),
        (found.safe, threshold_at_fpr(y, scores, 0.02, confidence=0.95)),
    ):
        assert threshold >= lowest
        caught = y & (scores >= threshold)
        assert caught.sum() == (y & (scores >= lowest)).sum()
        # The lowest score that raises an alert is a positive's.
        assert not caught.any() or scores[scores >= threshold].min() == scores[caught].min()
    alerts = (scores >= found.log_odds).sum()
    assert found.fpr_seen == np.mean(scores[~y] >= found.log_odds)
    assert found.fpr_seen <= found.fpr_bound
    assert found.safe >= found.log_odds
    if shift == 6:
        assert alerts < 0.5 * (scores >= threshold_at_fpr(y, scores, 0.02)).sum()


def test_a_threshold_that_catches_nothing_is_the_lowest():
    y, scores = np.arange(1000) < 5, np.r_[np.zeros(5), np.arange(1.0, 996)]
    assert find_threshold(y, scores, 0.01).log_odds == threshold_at_fpr(y, scores, 0.01)


def test_a_safe_threshold_keeps_its_promise_on_new_rows():
    generator = np.random.default_rng(1)
    kept = []
    for _ in range(300):
        y = np.arange(3_000) < 30
        scores = generator.normal(size=3_000) + 3 * y
        kept.append(norm.sf(find_threshold(y, scores, 0.01).safe) <= 0.01)
    assert np.mean(kept) >= 0.95
