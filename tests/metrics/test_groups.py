"""Groups of rows that depend on each other, in intervals, comparisons and thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raresight.common.dependent_rows import group_codes
from raresight.metrics import compare, evaluate, interval, threshold_at_fpr, time_blocks
from raresight.metrics.threshold import NoThresholdError, allowed_false_positives, design_effect

METRICS = [
    ("roc_auc", {}),
    ("partial_auc", {"max_fpr": 0.05}),
    ("recall_at_fpr", {"fpr": 0.05}),
    ("average_precision", {}),
    ("brier_score", {}),
    ("calibration_error", {}),
]


def customers(generator, positives, negatives, size=3, shift=2.0):
    """Two scores of customers with `size` rows of a class; half of the variance is the customer's."""
    y = np.repeat([1, 0], [positives, negatives])
    group = np.concatenate([np.arange(positives), np.arange(negatives)]) // size
    effect = generator.normal(size=(3, group.max() + 1))[:, group]
    both = (effect + generator.normal(size=(3, len(y)))) / np.sqrt(2)
    return y, np.sqrt(0.8) * both[0] + np.sqrt(0.2) * both[1:] + shift * y, group


def logistic(z):
    return 1 / (1 + np.exp(4 - z))


@pytest.mark.parametrize(("metric", "params"), METRICS, ids=lambda x: x if isinstance(x, str) else "")
def test_groups_of_one_row_change_nothing(metric, params):
    generator = np.random.default_rng(0)
    y, (a, b), _ = customers(generator, 60, 1_500)
    a, b, each = logistic(a), logistic(b), generator.permutation(len(y))
    rows, groups = (interval(metric, y, a, draws=3000, groups=g, **params) for g in (None, each))
    # Where curves are drawn by groups, other random numbers are drawn.
    assert (groups.low, groups.high) == pytest.approx((rows.low, rows.high), abs=0.012)
    assert groups.estimate == rows.estimate
    rows, groups = (compare(metric, y, a, b, groups=g, draws=3000, **params) for g in (None, each))
    assert groups.difference == pytest.approx(rows.difference)
    assert (groups.low, groups.high) == pytest.approx((rows.low, rows.high), abs=0.012)
    if metric in ("roc_auc", "partial_auc"):
        # Sums in another order round to other places of the grid.
        assert groups.p_value == pytest.approx(rows.p_value, abs=0.005)


@pytest.mark.parametrize(("metric", "params"), METRICS[:4], ids=lambda x: x if isinstance(x, str) else "")
def test_copies_of_rows_in_a_group_are_worth_one(metric, params):
    y, (a, b), _ = customers(np.random.default_rng(1), 40, 2_000)
    once = interval(metric, y, a, draws=3000, **params)
    copies = np.tile(np.arange(len(y)), 4)
    many = interval(metric, y[copies], a[copies], draws=3000, groups=copies, **params)
    assert (many.low, many.high) == pytest.approx((once.low, once.high), abs=0.03)
    assert interval(metric, y[copies], a[copies], draws=500, **params).high < once.high
    if metric != "average_precision":
        once = compare(metric, y, a, b, draws=3000, **params)
        many = compare(metric, y[copies], a[copies], b[copies], draws=3000, groups=copies, **params)
        assert (many.low, many.high) == pytest.approx((once.low, once.high), abs=0.02)


@pytest.mark.parametrize("metric", ["roc_auc", "partial_auc"])
def test_intervals_by_groups_keep_their_promise(metric):
    generator = np.random.default_rng(3)
    params = {"max_fpr": 0.1} if metric == "partial_auc" else {}
    y, (a, _), _ = customers(generator, 400_000, 400_000)
    truth = interval(metric, y, a, draws=1, **params).estimate
    covered, rejected = np.zeros(2), np.zeros(2)
    for seed in range(250):
        y, (a, b), group = customers(generator, 60, 1_500)
        for place, given_groups in enumerate((None, group)):
            given = {"groups": given_groups, "draws": 300, "seed": seed} | params
            one = interval(metric, y, a, **given)
            covered[place] += one.low <= truth <= one.high
            rejected[place] += compare(metric, y, a, b, **given).p_value < 0.05
    assert covered[0] / 250 < 0.92
    assert covered[1] / 250 > 0.91
    assert rejected[0] / 250 > 0.08
    assert 0.01 <= rejected[1] / 250 < 0.085


@pytest.mark.usefixtures("both_ways")
def test_no_positive_among_the_highest_rows():
    y = np.repeat([0, 1], [2_000, 60])
    s = np.where(y == 1, -1.0, np.random.default_rng(0).random(len(y)))
    groups = np.arange(len(y)) // 2
    found = interval("recall_at_fpr", y, s, fpr=0.01, groups=groups)
    assert found.low == found.estimate == 0
    assert 0 < found.high < 0.2
    other = np.random.default_rng(1).random(len(y)) - 2 * y
    assert compare("recall_at_fpr", y, s, other, fpr=0.01, groups=groups).p_value == 1


def test_evaluate_by_groups():
    y, (a, _), group = customers(np.random.default_rng(4), 60, 3_000)
    rows, groups = (evaluate(y, a, probability=logistic(a), groups=g) for g in (None, group))
    for name, found in groups.intervals.items():
        width, narrow = (one.high - one.low for one in (found, rows[name]))
        assert width > 1.05 * narrow, name
    assert groups.threshold == rows.threshold


# ---- thresholds --------------------------------------------------------------------------


def test_threshold_of_groups_of_one_row_is_the_exact_one():
    s = np.random.default_rng(5).normal(size=5_000)
    plain = threshold_at_fpr(np.zeros(5_000), s, 0.01, confidence=0.95)
    assert threshold_at_fpr(np.zeros(5_000), s, 0.01, confidence=0.95, groups=np.arange(5_000)) == plain


def test_groups_have_no_say_in_the_rate_of_the_sample():
    s = np.random.default_rng(6).normal(size=5_000)
    groups = np.arange(5_000) // 10
    assert threshold_at_fpr(np.zeros(5_000), s, 0.01, groups=groups) == threshold_at_fpr(
        np.zeros(5_000), s, 0.01
    )


def test_threshold_by_groups_keeps_the_rate():
    from scipy.stats import norm

    generator = np.random.default_rng(7)
    group = np.arange(6_000) // 20
    kept = np.zeros(2)
    for _ in range(400):
        s = np.sqrt(0.5) * (generator.normal(size=300)[group] + generator.normal(size=6_000))
        for place, given_groups in enumerate((None, group)):
            found = threshold_at_fpr(np.zeros(6_000), s, 0.02, confidence=0.95, groups=given_groups)
            kept[place] += norm.sf(found) <= 0.02
    assert kept[0] / 400 < 0.85
    assert kept[1] / 400 > 0.92


def test_copies_in_groups_are_one_negative():
    s = np.random.default_rng(8).normal(size=2_000)
    copies = np.tile(np.arange(2_000), 3)
    found = threshold_at_fpr(np.zeros(6_000), s[copies], 0.02, confidence=0.95, groups=copies)
    once = allowed_false_positives(2_000, 0.02, 0.95)
    # The count of rows ends inside a group, whose rows have one score.
    assert abs(np.sum(s >= found) - once) <= 1


@given(st.integers(2, 60), st.integers(0, 1000), st.floats(0.05, 0.5))
@settings(max_examples=100, deadline=None)
def test_design_effect_is_at_least_one(count, seed, rate):
    generator = np.random.default_rng(seed)
    codes = np.unique(generator.integers(0, count, 200), return_inverse=True)[1]
    alerts = generator.random(200) < rate
    assert design_effect(alerts, codes, 0.95) >= 1
    assert design_effect(alerts, np.arange(200), 0.95) == 1


def test_too_few_groups_for_a_threshold():
    s = np.arange(3_000.0)
    with pytest.raises(NoThresholdError, match="worth"):
        threshold_at_fpr(np.zeros(3_000), s, 0.01, confidence=0.95, groups=np.arange(3_000) // 1_000)


# ---- groups as they are given ------------------------------------------------------------


@pytest.mark.parametrize(("groups", "message"), [
    ([1, 2, 3], "y_true has 4 rows, but groups has 3"),
    ([1.0, np.nan, 2.0, 2.0], "missing value .* at row 1"),
    (["a", "b", None, "b"], "missing value .* at row 2"),
    (np.array(["2024-01-01", "NaT", "2024-01-01", "2024-01-02"], dtype="datetime64[D]"), "missing value"),
    ([7, 7, 7, 7], "one value alone"),
    ([[1, 2], [3, 4], [5, 6], [7, 8]], "two columns"),
])  # fmt: skip
def test_bad_groups_are_refused(groups, message):
    y, s = [0, 1, 0, 1], [0.1, 0.4, 0.2, 0.3]
    for call in (
        lambda: interval("roc_auc", y, s, groups=groups),
        lambda: compare("roc_auc", y, s, s, groups=groups),
        lambda: threshold_at_fpr(y, s, 0.5, confidence=0.5, groups=groups),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_class_of_one_group_shows_no_variance():
    y, s = np.repeat([1, 0], [5, 50]), np.random.default_rng(9).normal(size=55)
    groups = np.where(y == 1, 0, np.arange(55))
    with pytest.raises(ValueError, match="at least two groups"):
        interval("partial_auc", y, s, max_fpr=0.1, groups=groups)
    with pytest.raises(ValueError, match="at least two groups with rows"):
        compare("roc_auc", y, s, -s, groups=groups)


@pytest.mark.parametrize("values", [
    ["ann", "bob", "ann", "eve"], [3, 1, 3, 7], [0.5, -1.0, 0.5, 2.0], ["ann", 1, "ann", (2, 3)],
])  # fmt: skip
def test_groups_are_told_apart_by_equality(values):
    array = np.empty(4, dtype=object)
    array[:] = values
    codes = group_codes(array, 4)
    assert codes[0] == codes[2]
    assert len(set(codes.tolist())) == 3


@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.integers(2, 40))
def test_time_blocks(times, blocks):
    found = time_blocks(times, blocks)
    order = np.argsort(times, kind="stable")
    # Blocks follow time, and rows of one time are in one block.
    assert (np.diff(found[order]) >= 0).all()
    for time in set(times):
        assert len(set(found[np.asarray(times) == time].tolist())) == 1
    assert found.min() == 0
    assert found.max() < blocks
    assert set(np.diff(np.unique(found)).tolist()) <= {1}


def test_time_blocks_are_even_where_times_differ():
    counts = np.bincount(time_blocks(np.random.default_rng(0).permutation(3_000)))
    assert len(counts) == 30
    assert set(counts.tolist()) == {100}
    with pytest.raises(ValueError, match="blocks must be"):
        time_blocks([1, 2], blocks=1)
    with pytest.raises(ValueError, match="times has a missing value"):
        time_blocks([1.0, np.nan])
