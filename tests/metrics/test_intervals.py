"""Intervals and comparisons: what they are, and how often they cover the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from raresight.metrics import compare, interval, partial_auc, recall_at_fpr, roc_auc
from raresight.metrics._bootstrap import MOST_STEPS, coarsened
from raresight.metrics._inputs import scored
from raresight.metrics._roc_steps import steps_of
from raresight.metrics.delong import area_parts, auc_moments
from raresight.metrics.ranking import auc_of
from score_cases import score_rows

METRICS = [
    ("roc_auc", {}),
    ("partial_auc", {"max_fpr": 0.05}),
    ("recall_at_fpr", {"fpr": 0.05}),
    ("average_precision", {}),
    ("precision_at_recall", {"recall": 0.4}),
    ("brier_score", {}),
    ("log_loss", {}),
    ("calibration_error", {}),
]


def _without_weights(y_true, y_score):
    return 0.0


def sample(generator, positives=100, negatives=20_000, shift=2.0):
    """Scores of two normal classes, the positives at the end."""
    y = np.repeat([0, 1], [negatives, positives])
    return y, generator.normal(size=len(y)) + shift * y


def population(metric, shift, rate=None):
    """The metric's true value for unit normals so far apart."""
    if metric == "roc_auc":
        return norm.cdf(shift / np.sqrt(2))
    if metric == "recall_at_fpr":
        return norm.cdf(shift + norm.ppf(rate))
    rates = (np.arange(20_000) + 0.5) / 20_000 * rate
    return np.mean(norm.cdf(shift + norm.ppf(rates)))


# 95 % intervals with 100 positives. With 700 repetitions the share covered has a standard error of 0.8 %.
@pytest.mark.slow
@pytest.mark.parametrize(("metric", "params", "negatives", "shift"), [
    ("roc_auc", {}, 5_000, 1.5),
    ("roc_auc", {}, 1_000, 3.0),
    ("partial_auc", {"max_fpr": 0.01, "kind": "mean"}, 5_000, 1.5),
    ("partial_auc", {"max_fpr": 0.01, "kind": "mean"}, 5_000, 3.0),
    ("recall_at_fpr", {"fpr": 0.01}, 5_000, 2.0),
    ("recall_at_fpr", {"fpr": 0.002}, 5_000, 3.0),
])  # fmt: skip
def test_coverage_is_near_nominal(metric, params, negatives, shift):
    truth = population(metric, shift, params.get("max_fpr", params.get("fpr")))
    generator = np.random.default_rng(5)
    covered, below = 0, 0
    for seed in range(700):
        y, s = sample(generator, negatives=negatives, shift=shift)
        found = interval(metric, y, s, draws=400, seed=seed, **params)
        covered += found.low <= truth <= found.high
        below += truth < found.low
    # An AUC near 1 is covered more often, since the lower end allows for positives that the sample lacks.
    assert 0.93 <= covered / 700 <= (0.99 if metric == "roc_auc" else 0.97)
    # Neither end alone does all the missing.
    assert below / 700 <= 0.045


@pytest.mark.parametrize(("metric", "params", "shift"), [
    ("roc_auc", {}, 2.0),
    ("partial_auc", {"max_fpr": 0.01, "kind": "mean"}, 2.0),
    ("recall_at_fpr", {"fpr": 0.01}, 2.0),
])  # fmt: skip
def test_coverage_of_comparisons(metric, params, shift):
    rate = params.get("max_fpr", params.get("fpr"))
    truth = population(metric, shift, rate) - population(metric, shift / np.sqrt(1.25), rate)
    generator = np.random.default_rng(6)
    covered = 0
    for seed in range(500):
        y, s = sample(generator, negatives=5_000, shift=shift)
        other = s + 0.5 * generator.normal(size=len(s))
        found = compare(metric, y, s, other, draws=400, seed=seed, **params)
        covered += found.low <= truth <= found.high
    # The joint bootstrap of recalls is a little wide.
    assert 0.925 <= covered / 500 <= (0.985 if metric == "recall_at_fpr" else 0.975)


@pytest.mark.parametrize(
    ("positives", "shift", "width"), [(15, 3.0, 0.11), (30, 2.5, 0.08), (100, 3.5, 0.02)]
)
def test_an_auc_near_one_is_covered_by_short_intervals(positives, shift, width):
    """Plain DeLong covers these in 80 to 90 % of samples."""
    generator = np.random.default_rng(9)
    truth, covered, widths = population("roc_auc", shift), 0, 0.0
    for _ in range(400):
        y, s = sample(generator, positives=positives, negatives=1_000, shift=shift)
        found = interval("roc_auc", y, s)
        covered += found.low <= truth <= found.high
        widths += found.high - found.low
    assert covered / 400 >= 0.93
    assert widths / 400 < width


def test_no_difference_is_found_as_often_as_the_level_says():
    generator = np.random.default_rng(7)
    alarms = 0
    for seed in range(400):
        y, s = sample(generator, negatives=4_000)
        a, b = (s + 0.5 * generator.normal(size=len(s)) for _ in "ab")
        alarms += compare("recall_at_fpr", y, a, b, fpr=0.01, draws=400, seed=seed).p_value < 0.05
    assert 0.02 <= alarms / 400 <= 0.08


def brute_force_variance(y, s):
    """DeLong's variance from the matrix of all pairs."""
    wins = (s[y == 1][:, None] > s[y == 0]) + 0.5 * (s[y == 1][:, None] == s[y == 0])
    by_positive, by_negative = wins.mean(axis=1), wins.mean(axis=0)
    return np.var(by_positive, ddof=1) / len(by_positive) + np.var(by_negative, ddof=1) / len(by_negative)


@given(score_rows(max_rows=60))
def test_delong_variance_by_brute_force(rows):
    y, s, _ = rows
    if min(np.sum(y == 1), np.sum(y == 0)) < 2:
        y, s = np.tile(y, 2), np.tile(s, 2)
    variance, lowest = auc_moments(steps_of(y, s))
    assert variance == pytest.approx(brute_force_variance(y, s), abs=1e-12)
    assert lowest == pytest.approx(
        min(np.mean(s[y == 0] < one) + np.mean(s[y == 0] == one) / 2 for one in s[y == 1])
    )


@given(score_rows(max_rows=60), st.integers(0, 100), st.sampled_from([0.2, 0.5, 1.0]))
@settings(max_examples=300)
def test_paired_areas_by_brute_force(rows, seed, max_fpr):
    y, s, _ = rows
    y = np.asarray(y) == 1
    if min(y.sum(), (~y).sum()) < 2:
        y, s = np.tile(y, 2), np.tile(s, 2)
    other = np.round(np.random.default_rng(seed).normal(size=len(y)), 1)
    (place, other_place), parts = area_parts((scored(y, s), scored(y, other)), max_fpr, None)
    area, other_area = np.mean(place), np.mean(other_place)
    assert parts.estimate == pytest.approx(area - other_area, abs=1e-12)
    assert area == pytest.approx(partial_auc(y, s, max_fpr, kind="area"), abs=1e-12)
    assert other_area == pytest.approx(partial_auc(y, other, max_fpr, kind="area"), abs=1e-12)
    if max_fpr == 1 and area != other_area:
        pairs = [(v[y][:, None] > v[~y]) + 0.5 * (v[y][:, None] == v[~y]) for v in (s, other)]
        apart = pairs[0] - pairs[1]
        rows_and_columns = (apart.mean(axis=axis) for axis in (1, 0))
        expected = sum(np.var(part, ddof=1) / len(part) for part in rows_and_columns)
        assert parts.variance == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("width", "other_width"), [(0, 0), (0.7, 0), (0.7, 0.7), (1.5, 1.5)])
def test_variance_of_a_partial_area_is_that_of_repeated_samples(width, other_width):
    """Also for coarse scores, whose ties the limit of the rate cuts through."""
    generator = np.random.default_rng(8)
    areas, variances = [], []
    for _ in range(600):
        y, s = sample(generator, positives=300, negatives=4_000)
        other = s + 0.7 * generator.normal(size=len(s))
        s = np.round(s / width) if width else s
        other = np.round(other / other_width) if other_width else other
        _, parts = area_parts((scored(y, s), scored(y, other)), 0.01, None)
        areas.append(parts.estimate)
        variances.append(parts.variance)
    assert np.mean(variances) == pytest.approx(np.var(areas), rel=0.2)


@pytest.mark.parametrize(("metric", "params"), METRICS, ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize("weighted", [False, True])
def test_every_metric_has_an_interval(metric, params, weighted):
    generator = np.random.default_rng(0)
    y, s = sample(generator, positives=60, negatives=1_500)
    p = 1 / (1 + np.exp(4 - s))
    w = generator.random(len(y)) if weighted else None
    found = interval(metric, y, p, sample_weight=w, draws=200, **params)
    assert found.low <= found.estimate <= found.high
    assert 0 < found.high - found.low < 1
    assert found == interval(metric, y, p, sample_weight=w, draws=200, **params)
    other = np.clip(p * generator.uniform(0.5, 1.5, len(p)), 0, 0.999)
    against = compare(metric, y, p, other, sample_weight=w, draws=200, **params)
    assert against.a == pytest.approx(found.estimate)
    assert against.difference == pytest.approx(against.a - against.b)
    assert against.low <= against.difference <= against.high
    assert 0 < 2 * against.standard_error < 2 * (against.high - against.low)
    assert 0 < against.p_value <= 1
    turned = compare(metric, y, other, p, sample_weight=w, draws=200, **params)
    assert turned.difference == pytest.approx(-against.difference)


def test_interval_of_the_bootstrap_agrees_with_delong():
    y, s = sample(np.random.default_rng(1), positives=400)
    one, two = interval("roc_auc", y, s), interval(roc_auc, y, s, method="bootstrap", draws=4000)
    assert one.method == "delong"
    assert two.method == "bootstrap"
    assert two.low == pytest.approx(one.low, abs=0.004)
    assert two.high == pytest.approx(one.high, abs=0.004)


def test_weights_of_one_change_little():
    y, s = sample(np.random.default_rng(2), positives=300, negatives=3_000)
    plain = interval("recall_at_fpr", y, s, fpr=0.01, draws=3000)
    rows = interval("recall_at_fpr", y, s, fpr=0.01, sample_weight=np.ones(len(y)), draws=1500)
    assert rows.estimate == plain.estimate
    assert rows.low == pytest.approx(plain.low, abs=0.03)
    assert rows.high == pytest.approx(plain.high, abs=0.03)


def test_perfect_separation_still_has_an_interval():
    y = np.repeat([0, 1], [1000, 20])
    for metric, params in METRICS[:3]:
        found = interval(metric, y, y.astype(float), **params)
        assert found.estimate == found.high == 1.0
        assert 0.5 < found.low < 0.99


def test_a_thousand_negatives_cannot_speak_of_one_in_a_thousand():
    y = np.repeat([0, 1], [1000, 100])
    found = interval("recall_at_fpr", y, y.astype(float), fpr=0.001)
    # All positives above all negatives, and yet the true rate at their score may well exceed 0.001.
    assert found.estimate == 1.0
    assert found.low < 0.1


def test_one_positive_says_next_to_nothing():
    generator = np.random.default_rng(0)
    y = np.append(np.zeros(5_000), 1)
    s = np.append(generator.normal(size=5_000), 1.0)
    found = interval("roc_auc", y, s)
    assert found.high - found.low > 0.5
    with pytest.raises(ValueError, match="at least two rows of each class"):
        compare("roc_auc", y, s, -s)
    assert interval("log_loss", [0, 0, 0, 1], [0.1, 0.2, 0.1, 0.3]).high > 0.7


def test_rows_that_all_agree_are_no_proof():
    y = np.repeat([0, 1], [3, 2])
    found = compare("roc_auc", y, y.astype(float), np.zeros(5))
    assert found.difference == 0.5
    assert found.p_value > 0.05
    many = np.repeat([0, 1], [300, 200])
    assert compare("roc_auc", many, many.astype(float), np.zeros(500)).p_value < 1e-6


def test_many_positives_are_joined_into_coarse_steps():
    generator = np.random.default_rng(0)
    y = generator.random(300_000) < 0.5
    s = generator.normal(size=len(y)) + y
    steps = coarsened(steps_of(y, s))
    assert len(steps.gain) <= MOST_STEPS
    assert steps.gain.sum() == y.sum()
    assert auc_of(steps) == pytest.approx(roc_auc(y, s), abs=1e-7)
    found, exact = interval("roc_auc", y, s, method="bootstrap", draws=500), interval("roc_auc", y, s)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=4e-4)


def test_higher_level_is_wider():
    y, s = sample(np.random.default_rng(3))
    for metric, params in METRICS[:4]:
        widths = [
            (found := interval(metric, y, s, level=level, **params)).high - found.low
            for level in (0.5, 0.9, 0.99)
        ]
        assert widths == sorted(widths)


def test_a_metric_of_the_users_own():
    def mean_score_of_positives(y_true, y_score, *, sample_weight):
        return float(np.average(y_score[y_true == 1], weights=sample_weight[y_true == 1]))

    y, s = sample(np.random.default_rng(4), positives=500, negatives=1_000)
    found = interval(mean_score_of_positives, y, s, sample_weight=np.ones(len(y)), draws=1000)
    assert found.metric == "mean_score_of_positives"
    half = 1.96 * np.std(s[y == 1]) / np.sqrt(500)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.1)


def test_identical_scores_do_not_differ():
    y, s = sample(np.random.default_rng(5))
    for metric in ("roc_auc", "partial_auc"):
        found = compare(metric, y, s, s)
        assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)
    assert compare("recall_at_fpr", y, s, s, fpr=0.01).p_value > 0.5


def test_large_tables_cost_what_the_tail_costs():
    """Two million rows: only the steps near the top are redrawn."""
    y, s = sample(np.random.default_rng(6), positives=2_000, negatives=2_000_000)
    found = interval("recall_at_fpr", y, s.astype(np.float32))
    assert found.estimate == recall_at_fpr(y, s.astype(np.float32))
    assert found.low < population("recall_at_fpr", 2.0, 0.001) < found.high
    other = (s + 0.5 * np.random.default_rng(7).normal(size=len(s))).astype(np.float32)
    assert compare("partial_auc", y, s.astype(np.float32), other).p_value < 1e-6


def test_text_and_dictionary():
    y, s = sample(np.random.default_rng(0))
    found = interval("roc_auc", y, s)
    assert str(found).startswith(f"roc_auc {found.estimate:.4f} [")
    assert found.to_dict()["low"] == found.low
    against = compare("roc_auc", y, s, -s)
    assert "p = " in str(against)
    assert against.to_dict()["p_value"] == against.p_value


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda y, s: interval("auroc", y, s), ValueError, "known are roc_auc"),
    (lambda y, s: interval("roc_auc", y, s, max_fpr=0.1), TypeError, "no parameter 'max_fpr'"),
    (lambda y, s: interval("roc_auc", y, s, level=95), ValueError, "level must be between 0 and 1"),
    (lambda y, s: interval("roc_auc", y, s, method="exact"), ValueError, "method must be one of"),
    (lambda y, s: interval("partial_auc", y, s, method="delong"), ValueError, "is for roc_auc"),
    (lambda y, s: interval("roc_auc", y, s, method="normal"), ValueError, "brier_score and log_loss"),
    (lambda y, s: interval("roc_auc", y, s, method="delong", sample_weight=[1, 1]), ValueError, "weighted"),
    (lambda y, s: compare("roc_auc", y, s, s, method="delong", sample_weight=[1, 1]), ValueError, "weighted"),
    (lambda y, s: compare("roc_auc", y, s, s[:1]), ValueError, "score_b has 1"),
    (lambda y, s: interval("partial_auc", y, s, draws=0), ValueError, "draws must be at least 1"),
    (lambda y, s: compare("recall_at_fpr", y, s, s, draws=0), ValueError, "draws must be at least 1"),
    (lambda y, s: interval(_without_weights, y, s), TypeError, "must take sample_weight"),
    (lambda y, s: compare("log_loss", y, [0.1, 0.0], [0.1, 0.5]), ValueError, "infinite"),
])  # fmt: skip
def test_bad_requests_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call([0, 1], [0.1, 0.2])
