"""Ranking metrics against scikit-learn, against brute force, and against the golden values."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import norm
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score, roc_curve

from raresight.metrics import (
    _counting,
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


@pytest.mark.usefixtures("both_ways")
class TestAgainstScikitLearn:
    @given(score_rows())
    @settings(max_examples=250)
    def test_auc(self, rows):
        y, s, w = rows
        expected = roc_auc_score(y, finite(s), sample_weight=w)
        assert roc_auc(y, s, sample_weight=w) == pytest.approx(expected, abs=1e-12)

    @given(score_rows(), RATES)
    @settings(max_examples=250)
    def test_partial_auc(self, rows, max_fpr):
        y, s, w = rows
        expected = roc_auc_score(y, finite(s), max_fpr=max_fpr, sample_weight=w)
        assert partial_auc(y, s, max_fpr, sample_weight=w) == pytest.approx(expected, abs=1e-12)

    @given(score_rows(), RATES)
    @settings(max_examples=250)
    def test_recall_at_fpr(self, rows, fpr):
        y, s, w = rows
        false, true, _ = roc_curve(y, finite(s), sample_weight=w, drop_intermediate=False)
        best = true[false <= fpr * (1 + 1e-12)].max()
        assert recall_at_fpr(y, s, fpr, sample_weight=w) == pytest.approx(best, abs=1e-12)

    @given(score_rows())
    @settings(max_examples=200)
    def test_average_precision(self, rows):
        y, s, w = rows
        expected = average_precision_score(y, finite(s), sample_weight=w)
        assert average_precision(y, s, sample_weight=w) == pytest.approx(expected, abs=1e-12)

    @given(score_rows(), st.floats(0.01, 1.0))
    @settings(max_examples=200)
    def test_precision_at_recall(self, rows, wanted):
        y, s, w = rows
        precision, recall, _ = precision_recall_curve(y, finite(s), sample_weight=w)
        expected = precision[:-1][recall[:-1] >= wanted * (1 - 1e-12)].max()
        assert precision_at_recall(y, s, wanted, sample_weight=w) == pytest.approx(expected, abs=1e-12)

    @given(score_rows(), RATES, st.booleans())
    @settings(max_examples=200)
    def test_roc_points(self, rows, max_fpr, drop):
        y, s, w = rows
        false, true, _ = roc_curve(y, finite(s), sample_weight=w, drop_intermediate=False)
        inside = false <= max_fpr * (1 + 1e-12)
        points = roc_points(y, s, max_fpr=max_fpr, sample_weight=w, drop_intermediate=drop)
        if not drop:
            assert points.fpr == pytest.approx(false[inside], abs=1e-12)
            assert points.tpr == pytest.approx(true[inside], abs=1e-12)
            return
        # Fewer points, the same line from end to end: none of those left out is off it.
        ends = ((points.fpr[0], points.tpr[0]), (points.fpr[-1], points.tpr[-1]))
        assert np.ravel(ends) == pytest.approx([0, 0, false[inside][-1], true[inside][-1]], abs=1e-12)
        assert len(points.fpr) <= inside.sum()
        along = points.fpr + points.tpr  # grows along the curve, upright pieces included
        height = np.interp(false[inside] + true[inside], along, points.tpr)
        assert height == pytest.approx(true[inside], abs=1e-9)


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
@settings(max_examples=250)
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


# AUC and recall at a rate of 0.001 that the paper prints for its fraud tables.
PRINTED = {
    "F1 LDAM": (96.13, 32.76), "F1 Focal": (95.80, 29.91), "F1 Poly": (96.14, 31.82), "F1 VS": (96.12, 32.06),
    "F1 TBL": (96.30, 32.45), "F2 LDAM": (97.90, 38.44), "F2 Focal": (97.83, 38.37),
    "F2 Poly": (97.90, 38.57), "F2 VS": (97.90, 38.76), "F2 TBL": (97.90, 39.14),
}  # fmt: skip


def test_golden_opauc_of_binormal_curves(golden_auc):
    """Scores on the binormal curve through the paper's AUC and recall have the golden McClish area.

    The paper's own opAUC is near that, and far from the mean recall: its convention is McClish's.
    """
    negatives = norm.ppf((np.arange(400_000) + 0.5) / 400_000)
    for row in golden_auc["opauc"]:
        auc, recall = (value / 100 for value in PRINTED[row["row"]])

        # recall = Phi(a + b Phi^-1(0.001)), AUC = Phi(a / sqrt(1 + b^2)).
        def miss(b, auc=auc, recall=recall):
            return (norm.ppf(recall) - b * norm.ppf(0.001)) / np.sqrt(1 + b * b) - norm.ppf(auc)

        b = brentq(miss, 0.05, 3)
        a = norm.ppf(recall) - b * norm.ppf(0.001)
        positives = (norm.ppf((np.arange(4_000) + 0.5) / 4_000) + a) / b
        y = np.repeat([0, 1], [len(negatives), len(positives)])
        s = np.concatenate([negatives, positives])
        assert partial_auc(y, s, 0.01) * 100 == pytest.approx(row["binormal_mcclish"], abs=0.02)
        mean = partial_auc(y, s, 0.01, kind="mean") * 100
        assert mean == pytest.approx(row["binormal_pauc_over_maxfpr"], abs=0.04)
        assert abs(row["paper"] - row["binormal_mcclish"]) < 2 < abs(row["paper"] - mean)


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


def peak_memory(work):
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_memory_stays_below_a_copy_of_the_scores():
    generator = np.random.default_rng(0)
    y = generator.random(4_000_000) < 0.001
    s = generator.normal(size=4_000_000).astype(np.float32)
    for metric in (roc_auc, partial_auc, recall_at_fpr):
        # The bucket table has a fixed size of a few megabytes besides.
        assert peak_memory(lambda metric=metric: metric(y, s)) < s.nbytes + 16e6, metric.__name__


@pytest.mark.parametrize("tied", [1.0, 0.997])
def test_memory_stays_small_where_scores_are_tied(tied):
    generator = np.random.default_rng(0)
    y = generator.random(4_000_000) < 0.001
    s = np.where(generator.random(len(y)) < tied, 0, generator.random(len(y))).astype(np.float32)
    for metric in (roc_auc, partial_auc, recall_at_fpr):
        assert peak_memory(lambda metric=metric: metric(y, s)) < s.nbytes + 16e6, metric.__name__


@pytest.mark.parametrize("weight", [1e-300, 1e-200, 1e200, 1e300])
def test_only_the_proportions_of_weights_matter(weight):
    generator = np.random.default_rng(0)
    y = generator.random(200) < 0.3
    s = np.round(generator.normal(size=200) + y, 1)
    w = generator.random(200)
    for metric in (roc_auc, partial_auc, recall_at_fpr, average_precision, precision_at_recall):
        expected = metric(y, s, sample_weight=w)
        assert metric(y, s, sample_weight=w * weight) == pytest.approx(expected, abs=1e-12)


def test_weights_whose_sum_is_no_number_are_refused():
    with pytest.raises(ValueError, match="sum to inf"), np.errstate(over="ignore"):
        roc_auc([0, 0, 1], [0.1, 0.2, 0.3], sample_weight=np.full(3, 1e308))


def test_thinned_points_reach_the_end():
    y = np.repeat([0, 1], [100, 10])
    s = np.concatenate([np.arange(100.0), np.full(10, 200.0)])
    points = roc_points(y, s, max_fpr=0.355, drop_intermediate=True)
    assert points.fpr.tolist() == [0, 0, 0.35]


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
