"""The test of a paired difference: exact flips, and an interval that agrees with them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raresight.metrics import compare
from raresight.metrics._sign_flips import EXACT, REST, flip_test
from raresight.metrics.delong import Parts


def rows_of(parts, rest=0.0):
    """Parts of independent positives."""
    parts = np.asarray(parts, dtype=np.float64)
    return Parts(parts, np.full(len(parts), 1 / len(parts)), rest, 0.0)


def full_test(parts):
    """The mid-p value over all patterns of signs."""
    sums = np.array([abs(np.dot(signs, parts)) for signs in itertools.product((-1, 1), repeat=len(parts))])
    observed, slack = abs(np.sum(parts)), 1e-9 * np.sum(np.abs(parts))
    return np.mean(sums > observed + slack) + np.mean(np.abs(sums - observed) <= slack) / 2


@given(st.lists(st.sampled_from([-2, -1, 0, 1, 2, 5]), min_size=2, max_size=9).filter(any))
@settings(max_examples=200, deadline=None)
def test_all_patterns_of_few_values(parts):
    assert flip_test(rows_of(parts), 0.95)[0] == pytest.approx(full_test(parts), abs=1e-9)


@given(st.integers(2, 10), st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_all_patterns_of_uneven_values(count, seed):
    generator = np.random.default_rng(seed)
    parts = generator.normal(size=count) * np.exp(2 * generator.normal(size=count))
    # Rounding to the grid may turn the order of two sums that lie close together.
    assert flip_test(rows_of(parts), 0.95)[0] == pytest.approx(full_test(parts), abs=2 / 2**count + 0.01)


def test_many_parts_are_nearly_normal():
    generator = np.random.default_rng(0)
    parts = generator.standard_t(3, size=20 * (EXACT + REST)) + 0.06
    found = flip_test(rows_of(parts), 0.95)[0]
    signs = generator.choice([-1.0, 1.0], size=(4000, len(parts)))
    assert found == pytest.approx(np.mean(np.abs(signs @ parts) >= abs(parts.sum())), abs=0.02)
    # Far beyond what random patterns can show the p value still falls, and it is never zero.
    values = [flip_test(rows_of(parts + shift), 0.95)[0] for shift in (0.1, 0.2, 0.3, 0.4)]
    assert values == sorted(values, reverse=True)
    assert 0 < values[-1] < 1e-20


@given(
    st.integers(2, 40),
    st.integers(0, 10_000),
    st.floats(0, 3),
    st.floats(0, 5),
    st.sampled_from([0.8, 0.95, 0.99]),
)
@settings(max_examples=300, deadline=None)
def test_zero_is_outside_where_the_p_value_is_small(count, seed, shift, rest, level):
    generator = np.random.default_rng(seed)
    parts = rows_of(generator.normal(size=count) * np.exp(generator.normal(size=count)) + shift, rest * count)
    p_value, half = flip_test(parts, level)
    assert (p_value < 1 - level) == (abs(parts.estimate) > half)
    assert 0 < p_value <= 1
    assert half > 0


def test_five_positives_alone_prove_nothing():
    assert flip_test(rows_of([1, 1, 1, 1]), 0.95)[0] > 0.05
    p_value, half = flip_test(rows_of([0] * 50 + [1] * 4), 0.95)
    assert p_value == pytest.approx(1 / 16)
    assert half >= 4
    # A level within reach has a quantile of its own.
    assert flip_test(rows_of([0] * 50 + [1] * 4), 0.5)[1] < 4


def sample(generator, positives, negatives, shift=2.0, scores=2):
    """Equally good scores that share 80 % of their variance."""
    common = generator.normal(scale=np.sqrt(0.8), size=positives + negatives)
    common[:positives] += shift
    y = np.repeat([1, 0], [positives, negatives])
    return y, common + generator.normal(scale=np.sqrt(0.2), size=(scores, len(y)))


@pytest.mark.parametrize("max_fpr", [1.0, 0.1])
def test_agrees_with_swapping_the_ranks_of_all_rows(max_fpr):
    """The permutation test of Bandos et al. (2005), on the scale of false-positive rates."""
    generator = np.random.default_rng(0)
    for _ in range(8):
        y, (a, b) = sample(generator, 12, 1_000)
        places = [
            1 - np.searchsorted(np.sort(s[y == 0]), s, side="left") / 1000 + np.where(y == 0, -0.0005, 0)
            for s in (a, b)
        ]
        gains = np.maximum(max_fpr - places[0], 0) - np.maximum(max_fpr - places[1], 0)
        pooled = np.sort(np.concatenate([one[y == 1] for one in places]))
        pooled = pooled[pooled < max_fpr]
        # What a negative takes by the places of all positives; swapped it takes the opposite.
        taken = [-np.searchsorted(pooled, one, side="left") / 24 for one in places]
        parts = np.where(y == 1, gains / 12, (taken[0] - taken[1]) / 1000)
        observed = abs(np.sum(gains[y == 1]) / 12)
        swapped = np.abs(generator.choice([-1.0, 1.0], size=(4000, len(y))) @ parts)
        found = compare("partial_auc", y, a, b, max_fpr=max_fpr)
        assert found.p_value == pytest.approx(np.mean(swapped >= observed), abs=0.05)


# Each of these cells rejected 10 to 15 % with the correction for skewness that came before.
@pytest.mark.parametrize(("positives", "shift", "max_fpr"), [(15, 2.0, 1.0), (100, 4.0, 1.0), (30, 4.0, 0.1)])
def test_true_hypotheses_are_rejected_as_often_as_the_level_says(positives, shift, max_fpr):
    generator = np.random.default_rng(1)
    rejected = 0
    for _ in range(400):
        y, (a, b) = sample(generator, positives, 2_000, shift)
        rejected += compare("partial_auc", y, a, b, max_fpr=max_fpr).p_value < 0.05
    assert 0.015 <= rejected / 400 <= 0.08


@pytest.mark.parametrize(("metric", "params"), [
    ("roc_auc", {}),
    ("partial_auc", {"max_fpr": 0.05}),
    ("recall_at_fpr", {"fpr": 0.02}),
    ("brier_score", {}),
])  # fmt: skip
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_swapped_scores_mirror_the_interval(metric, params, grouped, noise):
    generator = np.random.default_rng(2)
    y, (a, b) = sample(generator, 40, 2_000)
    a, b = (1 / (1 + np.exp(4 - s)) for s in (a, b + noise * generator.normal(size=len(b))))
    groups = np.arange(len(y)) // 2 if grouped else None
    found, turned = (compare(metric, y, *pair, groups=groups, **params) for pair in ((a, b), (b, a)))
    assert (turned.low, turned.high) == pytest.approx((-found.high, -found.low), abs=1e-12)
    assert turned.p_value == pytest.approx(found.p_value, rel=1e-9)
    assert (found.p_value < 0.05) == (not found.low <= 0 <= found.high)


def test_differences_stay_possible():
    y = np.repeat([1, 0], [3, 50])
    found = compare("roc_auc", y, y.astype(float), np.zeros(53))
    assert found.difference == 0.5
    assert -1 <= found.low <= 0 < found.high <= 1
    assert compare("partial_auc", y, y.astype(float), -y.astype(float), max_fpr=0.1, kind="area").high <= 0.1


def test_scores_that_agree_on_few_positives_may_differ():
    """No positive is above the rate by either score: that is no proof that none ever is."""
    generator = np.random.default_rng(3)
    y = np.repeat([1, 0], [20, 2_000])
    a, b = (generator.random(len(y)) - y for _ in "ab")
    found = compare("partial_auc", y, a, b, max_fpr=0.01, kind="mean")
    assert (found.difference, found.p_value) == (0, 1)
    assert found.high == -found.low == pytest.approx(1 - 0.05 ** (1 / 20))
    more = np.concatenate([np.arange(20)] * 10 + [np.arange(20, len(y))])
    assert compare("partial_auc", y[more], a[more], b[more], max_fpr=0.01, kind="mean").high < 0.02
