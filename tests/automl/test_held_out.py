"""What held-out rows tell where they depend on each other."""

from __future__ import annotations

import numpy as np
import pytest

from raresight.automl.evaluation import find_threshold, units_of


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
