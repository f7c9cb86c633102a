"""Ranking metrics against scikit-learn, against brute force, and against the golden values."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from raresight.metrics import (
    _counting,
    _tail,
    average_precision,
    partial_auc,
    precision_at_recall,
    recall_at_fpr,
    roc_auc,
    roc_points,
)
from score_cases import score_rows

RATES = st.sampled_from([0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0])


def finite(scores):
    """Infinities by large numbers in the same order, for scikit-learn refuses infinite scores."""
    return np.searchsorted(np.unique(scores), scores).astype(float)


@pytest.fixture(params=["small data", "large data"])
def both_ways(request, monkeypatch):
    """The ways for small and for large data, both on the rows of a test."""
    if request.param == "large data":
        monkeypatch.setattr(_counting, "WORTH_BUCKETS", 1)
        monkeypatch.setattr(_counting, "KEPT_AT_MOST", 2.0)
        monkeypatch.setattr(_counting, "BUCKETS", 1 << 12)
        monkeypatch.setattr(_counting, "BLOCK", 64)
        monkeypatch.setattr(_tail, "WORTH_CUTTING", 1)
        monkeypatch.setattr(_tail, "SAMPLE", 16)


@pytest.mark.usefixtures("both_ways")
class TestAgainstScikitLearn:
    @given(score_rows())
    @settings(max_examples=500)
    def test_auc(self, rows):
        y, s, w = rows
        expected = roc_auc_score(y, finite(s), sample_weight=w)
        assert roc_auc(y, s, sample_weight=w) == pytest.approx(expected, abs=1e-12)

    @given(score_rows(), RATES)
    @settings(max_examples=500)
    def test_partial_auc(self, rows, max_fpr):
        y, s, w = rows
        expected = roc_auc_score(y, finite(s), max_fpr=max_fpr, sample_weight=w)
        assert partial_auc(y, s, max_fpr, sample_weight=w) == pytest.approx(expected, abs=1e-12)

    @given(score_rows(), RATES)
    @settings(max_examples=500)
    def test_recall_at_fpr(self, rows, fpr):
        y, s, w = rows
        false, true, _ = roc_curve(y, finite(s), sample_weight=w, drop_intermediate=False)
        best = true[false <= fpr * (1 + 1e-12)].max()
        assert recall_at_fpr(y, s, fpr, sample_weight=w) == pytest.approx(best, abs=1e-12)

    @given(score_rows())
    @settings(max_examples=300)
    def test_average_precision(self, rows):
        y, s, w = rows
        expected = average_precision_score(y, finite(s), sample_weight=w)
        assert average_precision(y, s, sample_weight=w) == pytest.approx(expected, abs=1e-12)

    @given(score_rows(), st.floats(0.01, 1.0))
    @settings(max_examples=300)
    def test_precision_at_recall(self, rows, wanted):
        y, s, w = rows
        precision, recall, _ = precision_recall_curve(y, finite(s), sample_weight=w)
        expected = precision[:-1][recall[:-1] >= wanted * (1 - 1e-12)].max()
        assert precision_at_recall(y, s, wanted, sample_weight=w) == pytest.approx(expected, abs=1e-12)

    @given(score_rows(), RATES, st.booleans())
    @settings(max_examples=300)
    def test_roc_points(self, rows, max_fpr, drop):
        y, s, w = rows
        false, true, _ = roc_curve(y, finite(s), sample_weight=w, drop_intermediate=False)
        inside = false <= max_fpr * (1 + 1e-12)
        points = roc_points(y, s, max_fpr=max_fpr, sample_weight=w, drop_intermediate=drop)
        if drop:
            # Fewer points, the same line.
            height = np.interp(false[inside], points.fpr, points.tpr)
            upright = np.isin(false[inside], false[inside][:-1][np.diff(false[inside]) == 0])
            assert len(points.fpr) <= inside.sum()
            last = np.searchsorted(points.fpr, false[inside], side="right") < len(points.fpr)
            assert height[last & ~upright] == pytest.approx(true[inside][last & ~upright], abs=1e-9)
        else:
            assert points.fpr == pytest.approx(false[inside], abs=1e-12)
            assert points.tpr == pytest.approx(true[inside], abs=1e-12)


def brute_force_recall(y, s, fpr, interpolate):
    """Recall of every threshold by counting, and between neighbours along the line."""
    points = [(0.0, 0.0)]
    for t in np.unique(s)[::-1]:
        points.append((np.mean(s[y == 0] >= t), np.mean(s[y == 1] >= t)))
    best = max(tpr for rate, tpr in points if rate <= fpr)
    if not interpolate:
        return best
    for (f0, t0), (f1, t1) in pairwise(points):
        if f0 <= fpr < f1:
            best = max(best, t0 + (t1 - t0) * (fpr - f0) / (f1 - f0))
    return best


@given(score_rows(max_rows=40), RATES, st.booleans())
@settings(max_examples=500)
def test_recall_by_brute_force(rows, fpr, interpolate):
    y, s, _ = rows
    expected = brute_force_recall(np.asarray(y), s, fpr, interpolate)
    assert recall_at_fpr(y, s, fpr, interpolate=interpolate) == pytest.approx(expected, abs=1e-12)


@given(score_rows(max_rows=40))
@settings(max_examples=200)
def test_auc_by_brute_force(rows):
    y, s, w = rows
    weight = np.ones(len(y)) if w is None else w
    positive, negative = np.asarray(y) == 1, np.asarray(y) == 0
    wins = (s[positive][:, None] > s[negative]) + 0.5 * (s[positive][:, None] == s[negative])
    pairs = weight[positive][:, None] * weight[negative]
    assert roc_auc(y, s, sample_weight=w) == pytest.approx((wins * pairs).sum() / pairs.sum(), abs=1e-12)


@given(score_rows(), RATES)
def test_three_conventions_of_one_area(rows, f):
    y, s, w = rows
    area = partial_auc(y, s, f, kind="area", sample_weight=w)
    assert partial_auc(y, s, f, kind="mean", sample_weight=w) == pytest.approx(area / f, abs=1e-12)
    mcclish = 0.5 * (1 + (area - f * f / 2) / (f - f * f / 2))
    assert partial_auc(y, s, f, kind="mcclish", sample_weight=w) == pytest.approx(mcclish, abs=1e-12)
    assert 0 <= area <= f


@given(score_rows())
def test_weights_are_repetitions(rows):
    y, s, _ = rows
    times = np.random.default_rng(len(y)).integers(1, 4, len(y))
    repeated = np.repeat(y, times), np.repeat(s, times)
    for metric in (roc_auc, partial_auc, recall_at_fpr, average_precision, precision_at_recall):
        assert metric(y, s, sample_weight=times) == pytest.approx(metric(*repeated), abs=1e-12)


@given(score_rows())
def test_only_the_order_matters(rows):
    y, s, w = rows
    ranks = finite(s)
    for metric in (roc_auc, partial_auc, recall_at_fpr, average_precision):
        assert metric(y, s, sample_weight=w) == metric(y, ranks, sample_weight=w)


def test_golden_example(golden_auc):
    y = np.repeat([0, 1], [1000, 10])
    score = np.concatenate([np.linspace(0, 1, 1000), np.linspace(0.5, 1.2, 10)])
    expected = float(golden_auc["sklearn_example"]["roc_auc_score_max_fpr"])
    assert partial_auc(y, score, 0.01) == pytest.approx(expected, abs=1e-14)


def test_golden_opauc_of_binormal_curves(golden_auc):
    """The paper's opAUC is McClish's: a curve through its AUC and recall gives its value so."""
    for row in golden_auc["opauc"]:
        mcclish, mean = row["binormal_mcclish"] / 100, row["binormal_pauc_over_maxfpr"] / 100
        # Both golden numbers describe one area; ours convert between them in the same way.
        area = mean * 0.01
        assert 0.5 * (1 + (area - 0.01**2 / 2) / (0.01 - 0.01**2 / 2)) == pytest.approx(mcclish, abs=1e-12)
        assert abs(row["paper"] / 100 - mcclish) < 0.02 < abs(row["paper"] / 100 - mean)


def test_large_binormal_sample_is_near_the_population():
    generator = np.random.default_rng(0)
    y = np.repeat([False, True], [1_000_000, 20_000])
    s = (generator.normal(size=len(y)) + 2 * y).astype(np.float32)
    assert roc_auc(y, s) == pytest.approx(norm.cdf(2 / np.sqrt(2)), abs=0.004)
    assert recall_at_fpr(y, s, 0.001) == pytest.approx(norm.cdf(2 + norm.ppf(0.001)), abs=0.012)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", ["logits", "probabilities", "log-normal", "half tied", "narrow"])
@pytest.mark.parametrize("weighted", [False, True])
def test_large_data_equal_scikit_learn(dtype, shape, weighted):
    generator = np.random.default_rng(1)
    rows = 700_000
    y = generator.random(rows) < 0.003
    s = generator.normal(size=rows) + 2 * y
    s = {
        "logits": lambda: s,
        "probabilities": lambda: 1 / (1 + np.exp(7 - s)),
        "log-normal": lambda: np.exp(9 * s),
        "half tied": lambda: np.maximum(s, 0),
        "narrow": lambda: 1 - 1e-6 * (1 / (1 + np.exp(-s))),
    }[shape]().astype(dtype)
    w = generator.random(rows) if weighted else None
    assert roc_auc(y, s, sample_weight=w) == pytest.approx(roc_auc_score(y, s, sample_weight=w), abs=1e-12)
    expected = roc_auc_score(y, s, max_fpr=0.01, sample_weight=w)
    assert partial_auc(y, s, 0.01, sample_weight=w) == pytest.approx(expected, abs=1e-12)


def test_buckets_are_used_where_they_help(monkeypatch):
    used = []
    counting = _counting._by_buckets
    monkeypatch.setattr(_counting, "_by_buckets", lambda *a: used.append(1) or counting(*a))
    generator = np.random.default_rng(1)
    y = np.arange(_counting.WORTH_BUCKETS) % 1000 == 0
    for s in (generator.normal(size=len(y)), np.exp(20 * generator.normal(size=len(y)))):
        roc_auc(y, s)
    assert len(used) == 2
    roc_auc(y, np.zeros(len(y)))
    assert len(used) == 2


def test_memory_stays_below_a_copy_of_the_scores():
    import tracemalloc

    generator = np.random.default_rng(0)
    y = generator.random(4_000_000) < 0.001
    s = generator.normal(size=4_000_000).astype(np.float32)
    for metric in (roc_auc, partial_auc, recall_at_fpr):
        tracemalloc.start()
        metric(y, s)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # The bucket table has a fixed size of a few megabytes besides.
        assert peak < s.nbytes + 16e6, metric.__name__


@pytest.mark.parametrize("call", [
    lambda y, s: partial_auc(y, s, 0),
    lambda y, s: partial_auc(y, s, 1.5),
    lambda y, s: partial_auc(y, s, kind="macro"),
    lambda y, s: recall_at_fpr(y, s, -0.1),
    lambda y, s: precision_at_recall(y, s, 0),
    lambda y, s: roc_points(y, s, max_fpr=float("nan")),
])  # fmt: skip
def test_bad_parameters_are_refused(call):
    with pytest.raises(ValueError, match=r"must be (above 0|one of)"):
        call([0, 1], [0.1, 0.2])
