"""Sketches equal the exact answer where they promise it, and stay within their bound elsewhere."""

from __future__ import annotations

import copy
import io
import itertools
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raresight.metrics import ranking, threshold
from raresight.metrics._compactor import ClassScores, Compactor, packed, unpacked
from raresight.metrics.sketch import RankSketch

SEEDS = range(12)


def sample(seed, rows=4000, share=0.05, kind="smooth"):
    """Labels and scores; `kind` says how the scores repeat."""
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < share
    y[:2] = [True, False]
    s = rng.normal(size=rows) + 1.5 * y
    if kind == "ties":
        s = np.round(s, 1)
    if kind == "few values":
        s = np.round(s)
    if kind == "infinite":
        s = np.round(s, 1)
        s[rng.random(rows) < 0.003] = np.inf
        s[rng.random(rows) < 0.2] = -np.inf
    return y, s


KINDS = ("smooth", "ties", "few values", "infinite")


def parts_of(y, s, rng, most=12):
    """The rows in random order, cut at random places; some parts are empty."""
    order = rng.permutation(len(y))
    cuts = np.sort(rng.integers(0, len(y) + 1, size=rng.integers(1, most)))
    return [(y[rows], s[rows]) for rows in np.split(order, cuts)]


def merged_in_a_random_tree(y, s, rng, **settings):
    """Every part in a sketch of its own or added to another, merged pairwise in random order."""
    sketches = []
    for labels, scores in parts_of(y, s, rng):
        if sketches and rng.random() < 0.3:
            sketches[rng.integers(len(sketches))].add(labels, scores)
        else:
            sketches.append(RankSketch(**settings).add(labels, scores))
        if rng.random() < 0.3:
            _ = sketches[-1].exact_fpr  # looking must not change an answer
    while len(sketches) > 1:
        first, second = rng.choice(len(sketches), size=2, replace=False)
        sketches[first].merge(sketches[second])
        del sketches[second]
    return sketches[0]


def rates_within(sketch, rng):
    """Rates up to the exact one: the end itself, the next floats on both sides of a count, any others."""
    counts = rng.integers(1, round(sketch.exact_fpr * sketch.negatives) + 1, size=4)
    at = counts / sketch.negatives
    rates = [sketch.exact_fpr, *at, *np.nextafter(at, 0), *(sketch.exact_fpr * rng.random(4))]
    return [float(rate) for rate in rates if 0 < rate <= sketch.exact_fpr]


def assert_exact_within(sketch, y, s, rng):
    for f in rates_within(sketch, rng):
        assert sketch.recall_at_fpr(f) == ranking.recall_at_fpr(y, s, f)
        direct = ranking.recall_at_fpr(y, s, f, interpolate=True)
        assert sketch.recall_at_fpr(f, interpolate=True) == pytest.approx(direct, abs=1e-12)
        for kind in ("mcclish", "mean", "area"):
            direct = ranking.partial_auc(y, s, f, kind=kind)
            assert sketch.partial_auc(f, kind=kind) == pytest.approx(direct, abs=1e-12)
        for found, wanted in zip(sketch.roc_points(f), ranking.roc_points(y, s, max_fpr=f)):
            np.testing.assert_array_equal(found, wanted)
        if np.mean(s[~y] == np.inf) > f:
            with pytest.raises(ValueError, match="too many negatives have the score infinity"):
                sketch.threshold_at_fpr(f)
        else:
            assert sketch.threshold_at_fpr(f) == threshold.threshold_at_fpr(y, s, f)


# Exact where it is promised


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_any_merge_is_exact_up_to_the_rate_it_promises(seed, kind):
    rng = np.random.default_rng(1000 + seed)
    y, s = sample(seed, kind=kind)
    sketch = merged_in_a_random_tree(y, s, rng, capacity=250, resolution=16)
    assert (sketch.positives, sketch.negatives) == (np.sum(y), np.sum(~y))
    assert not sketch.exact
    assert sketch.exact_fpr >= 250 / sketch.negatives
    assert_exact_within(sketch, y, s, rng)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_positives_beyond_capacity_shorten_the_exact_part(seed, kind):
    rng = np.random.default_rng(2000 + seed)
    y, s = sample(seed, share=0.5, kind=kind)
    sketch = merged_in_a_random_tree(y, s, rng, capacity=300, resolution=16)
    # All rows at or above the highest cut of the two are known; one less is promised.
    cut = max(np.sort(s[y])[-301], np.sort(s[~y])[-301])
    assert sketch.exact_fpr == max(np.sum(s[~y] >= cut) - 1, 0) / np.sum(~y)
    assert_exact_within(sketch, y, s, rng)


@pytest.mark.parametrize("kind", KINDS)
def test_exact_part_does_not_depend_on_the_order(kind):
    y, s = sample(5, kind=kind)
    rates = {
        merged_in_a_random_tree(y, s, np.random.default_rng(seed), capacity=100, resolution=8).exact_fpr
        for seed in range(20)
    }
    assert len(rates) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_everything_is_the_same_while_every_row_is_there(seed, kind):
    rng = np.random.default_rng(seed)
    y, s = sample(seed, kind=kind)
    sketch = merged_in_a_random_tree(y, s, rng, capacity=4000, resolution=16)
    assert sketch.exact
    assert (sketch.exact_fpr, sketch.auc_error, sketch.rank_error) == (1.0, 0.0, (0, 0))
    assert sketch.rows()[2] is None
    assert sketch.roc_auc() == ranking.roc_auc(y, s)
    assert sketch.average_precision() == ranking.average_precision(y, s)
    for f in (0.001, 0.037, 0.5, 1.0):
        assert sketch.partial_auc(f) == ranking.partial_auc(y, s, f)
        assert sketch.recall_at_fpr(f) == ranking.recall_at_fpr(y, s, f)
        if kind != "infinite" or f > 0.01:
            assert sketch.threshold_at_fpr(f) == threshold.threshold_at_fpr(y, s, f)
    for found, wanted in zip(sketch.roc_points(), ranking.roc_points(y, s)):
        np.testing.assert_array_equal(found, wanted)


def test_capacity_is_where_exactness_ends():
    s = np.arange(100.0)
    assert RankSketch(capacity=99).add(np.zeros(100), s).exact
    sketch = RankSketch(capacity=98).add(np.zeros(100), s)
    assert not sketch.exact
    assert sketch.exact_fpr == 0.98


def test_ties_at_the_cut_are_counted_and_not_lost():
    y = np.repeat([True, False], [3, 10_000])
    s = np.concatenate([[5.0, 1.0, 1.0], np.repeat([4.0, 1.0, 0.0], [20, 4980, 5000])])
    sketch = RankSketch(capacity=50, resolution=4)
    for rows in np.split(np.random.default_rng(0).permutation(len(y)), np.arange(7, len(y), 501)):
        sketch.add(y[rows], s[rows])
    assert sketch.exact_fpr == (5000 - 1) / 10_000
    for f in (0.001, 0.1, 0.3, 0.4999):
        wanted = ranking.recall_at_fpr(y, s, f, interpolate=True)
        assert sketch.recall_at_fpr(f, interpolate=True) == pytest.approx(wanted, abs=1e-12)
        assert sketch.partial_auc(f) == pytest.approx(ranking.partial_auc(y, s, f), abs=1e-12)
    assert sketch.threshold_at_fpr(0.3) == np.nextafter(1.0, 2)


def test_float32_and_float64_mix():
    rng = np.random.default_rng(3)
    y, s = sample(3)
    halves = [(y[:2000], s[:2000].astype(np.float32)), (y[2000:], s[2000:])]
    together = np.concatenate([halves[0][1], halves[1][1]])
    for order in ([0, 1], [1, 0]):
        sketch = RankSketch(capacity=100, resolution=16)
        for half in order:
            sketch.add(*halves[half])
        assert_exact_within(sketch, y, together, rng)
        parts = [RankSketch(100, 16).add(*halves[half]) for half in order]
        assert_exact_within(RankSketch.merged(parts), y, together, rng)


def test_float32_stays_float32_and_thresholds_are_next_to_float32_scores():
    y, s = sample(4)
    sketch = RankSketch(capacity=100, resolution=16).add(y, s.astype(np.float32))
    assert sketch.rows()[1].dtype == np.float32
    assert sketch.threshold_at_fpr(0.01) == threshold.threshold_at_fpr(y, s.astype(np.float32), 0.01)
    sketch.add([0], np.array([-9.0]))  # far below what is kept, yet of float64
    assert sketch.rows()[1].dtype == np.float64


@given(
    values=st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    capacity=st.integers(1, 6),
    resolution=st.integers(2, 5),
)
def test_what_is_kept_is_the_top_and_nothing_is_lost(values, cuts, capacity, resolution):
    y = np.array([label for label, _ in values], dtype=bool)
    s = np.array([score for _, score in values], dtype=float)
    parts = [
        RankSketch(capacity, resolution).add(labels, scores)
        for labels, scores in zip(np.split(y, sorted(cuts)), np.split(s, sorted(cuts)))
    ]
    sketch = RankSketch.merged(parts)
    labels, scores, weights = sketch.rows()
    weights = np.ones(len(labels)) if weights is None else weights
    for kind in (False, True):
        rows = np.sort(s[y == kind])[::-1]
        summary, weight = scores[labels == kind], weights[labels == kind]
        assert weight.sum() == len(rows)
        error = sketch.rank_error[0 if kind else 1]
        cut = rows[capacity] if len(rows) > capacity else -np.inf
        for value in np.unique(rows):
            difference = weight[summary >= value].sum() - np.sum(rows >= value)
            assert abs(difference) <= (0 if value >= cut else error)


# Bounded elsewhere

ORDERS = {
    "random": lambda s, rng: rng.permutation(len(s)),
    "ascending": lambda s, rng: np.argsort(s),
    "descending": lambda s, rng: np.argsort(s)[::-1],
    "alternating": lambda s, rng: np.argsort(s).reshape(2, -1).T.ravel(),
    "outside in": lambda s, rng: np.stack([np.argsort(s), np.argsort(s)[::-1]]).T.ravel()[: len(s)],
}


def worst_error(scores, weights, rows):
    """The largest error of a count of rows above, or at or above, any score."""
    order = np.argsort(scores)
    mass = np.concatenate([np.cumsum(weights[order][::-1])[::-1], [0.0]])
    scores, rows = scores[order], np.sort(rows)
    at = np.unique(np.concatenate([scores, rows]))
    return max(
        np.abs(mass[np.searchsorted(scores, at, side)] - (len(rows) - np.searchsorted(rows, at, side))).max()
        for side in ("left", "right")
    )


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(6))
def test_no_count_is_off_by_more_than_the_bound(seed, order):
    rng = np.random.default_rng(seed)
    s = rng.normal(size=20_000) if seed % 2 else np.round(rng.normal(size=20_000), 2)
    s = s[ORDERS[order](s, rng)]
    resolution = int(rng.integers(2, 40))
    summary = ClassScores(capacity=int(rng.integers(1, 300)), resolution=resolution)
    start = 0
    while start < len(s):
        end = start + int(rng.integers(1, 700))
        summary.add(s[start:end].copy())
        start = end
    scores, weights = summary.rows()
    assert weights.sum() == len(s)
    assert worst_error(scores, weights, s) <= summary.rank_error
    # The formula of the docstring, with room for the levels' odd ones.
    stated = len(s) / (2 * (resolution - 1)) * (np.log2(len(s) / resolution) + 1)
    assert summary.rank_error <= stated + 2 * len(s) / resolution


def test_the_bound_is_attained():
    """A bound of half the size would be wrong: four rows of which the higher of each pair is passed on."""
    compactor = Compactor(resolution=4)
    compactor.add(np.array([1.0, 2.0, 3.0, 4.0]))
    assert compactor.rank_error == 1
    assert worst_error(compactor.scores(), compactor.weights(), np.array([1.0, 2.0, 3.0, 4.0])) == 1
    # Batches of two that are split by the rows of the next: errors of one direction add up.
    attained = 0.0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=12)
        compactor = Compactor(resolution=2)
        for row in rows:
            compactor.add(np.array([row]))
        error = worst_error(compactor.scores(), compactor.weights(), rows)
        assert error <= compactor.rank_error
        attained = max(attained, error / compactor.rank_error)
    assert attained > 0.7


def test_directions_stay_in_balance():
    compactor = Compactor(resolution=32)
    rng = np.random.default_rng(0)
    for _ in range(3000):
        compactor.add(rng.normal(size=17))
    assert compactor.weight == 3000 * 17
    assert abs(compactor.raised - compactor.lowered) <= 1 << len(compactor.levels)
    assert compactor.rank_error < 0.6 * (compactor.raised + compactor.lowered)


def test_repeated_scores_cost_no_error():
    compactor = Compactor(resolution=100)
    compactor.add_repeated(np.float64(3.5), 1_000_003)
    assert (compactor.weight, compactor.rank_error) == (1_000_003, 0)
    assert set(compactor.scores()) == {3.5}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("share", [0.02, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_metrics_stay_within_their_stated_errors(seed, share, order):
    rng = np.random.default_rng(seed)
    y, s = sample(seed, rows=10_000, share=share, kind="smooth" if seed % 2 else "ties")
    rows = ORDERS[order](s, rng)
    y, s = y[rows], s[rows]
    sketches = []
    for part in np.array_split(np.arange(len(y)), 25):
        sketches.append(RankSketch(capacity=100, resolution=32).add(y[part], s[part]))
    sketch = RankSketch.merged(sketches)
    e0, e1 = sketch.fpr_error, sketch.recall_error
    assert sketch.auc_error == e0 + e1 > 0
    assert e0 == sketch.rank_error.negatives / sketch.negatives
    assert abs(sketch.roc_auc() - ranking.roc_auc(y, s)) <= sketch.auc_error
    for f in (0.02, 0.1, 0.4, 0.9):
        area = ranking.partial_auc(y, s, f, kind="area")
        assert abs(sketch.partial_auc(f, kind="area") - area) <= e0 + f * e1 + 1e-12
        low = ranking.recall_at_fpr(y, s, f - e0) if f > e0 else 0.0
        high = ranking.recall_at_fpr(y, s, min(f + e0, 1.0))
        assert low - e1 - 1e-12 <= sketch.recall_at_fpr(f) <= high + e1 + 1e-12
        rate = np.mean(s[~y] >= sketch.threshold_at_fpr(f))
        assert rate <= f + e0 + 1e-12
        points = sketch.roc_points(f)
        inner = slice(1, None, max(1, len(points.fpr) // 50))
        for fpr, tpr, at in zip(points.fpr[inner], points.tpr[inner], points.thresholds[inner]):
            assert fpr <= f
            assert abs(np.mean(s[~y] >= at) - fpr) <= e0 + 1e-12
            assert abs(np.mean(s[y] >= at) - tpr) <= e1 + 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_average_precision_stays_within_its_stated_fraction(seed):
    y, s = sample(seed, rows=20_000, share=0.005)
    sketch = RankSketch(capacity=200, resolution=64)
    for part in np.array_split(np.arange(len(y)), 40):
        sketch.add(y[part], s[part])
    found = sketch.average_precision()
    fraction = sketch.rank_error.negatives / sketch.capacity
    assert 0 < abs(found - ranking.average_precision(y, s)) <= fraction * found


# Thresholds with confidence


def test_confidence_equals_the_direct_threshold_inside_the_exact_part():
    y, s = sample(1, rows=20_000)
    sketch = RankSketch(capacity=2000, resolution=64).add(y, s)
    for f in (0.001, 0.01, 0.1):
        for confidence in (0.5, 0.95):
            wanted = threshold.threshold_at_fpr(y, s, f, confidence=confidence)
            assert sketch.threshold_at_fpr(f, confidence=confidence) == wanted


def test_confidence_beyond_the_exact_part_is_refused():
    y, s = sample(1, rows=20_000)
    sketch = RankSketch(capacity=1000, resolution=64).add(y, s)
    with pytest.raises(ValueError, match="only 1001 are known exactly"):
        sketch.threshold_at_fpr(0.1, confidence=0.95)
    with pytest.raises(ValueError, match="confidence must be between 0 and 1"):
        sketch.threshold_at_fpr(0.01, confidence=1.5)


def test_confidence_needs_the_capacity_that_its_error_names():
    y, s = sample(1, rows=20_000)
    allowed = threshold.allowed_false_positives(int(np.sum(~y)), 0.05, 0.9)
    with pytest.raises(ValueError, match=f"capacity of at least {allowed}"):
        RankSketch(capacity=allowed - 1, resolution=64).add(y, s).threshold_at_fpr(0.05, confidence=0.9)
    sketch = RankSketch(capacity=allowed, resolution=64).add(y, s)
    wanted = threshold.threshold_at_fpr(y, s, 0.05, confidence=0.9)
    assert sketch.threshold_at_fpr(0.05, confidence=0.9) == wanted


def test_all_alarms_allowed_is_minus_infinity():
    y, s = sample(1)
    assert RankSketch(capacity=10, resolution=8).add(y, s).threshold_at_fpr(1.0) == -np.inf


# Batches


@pytest.mark.parametrize(
    "convert",
    [
        list,
        pd.Series,
        pl.Series,
        torch.tensor,
        lambda values: np.asarray(values)[::-1][::-1],
    ],
    ids=["list", "pandas", "polars", "torch", "strided"],
)
def test_inputs_of_every_library(convert):
    y, s = sample(2, rows=500)
    sketch = RankSketch(capacity=50, resolution=8).add(convert(y.astype(np.int64)), convert(s))
    assert sketch.recall_at_fpr(0.05) == ranking.recall_at_fpr(y, s, 0.05)


def test_half_precision_tensors_on_the_autograd_graph():
    scores = torch.linspace(-2, 2, 100, dtype=torch.bfloat16, requires_grad=True)
    sketch = RankSketch(capacity=10).add(torch.arange(100) % 7 == 0, scores)
    assert (sketch.positives, sketch.negatives) == (15, 85)
    assert sketch.rows()[1].dtype == np.float32


def test_the_callers_arrays_are_neither_kept_nor_changed():
    y, s = sample(2, rows=500)
    before = s.copy()
    sketch = RankSketch(capacity=20, resolution=8).add(np.zeros(500), s).add(y, s)
    found = sketch.roc_auc()
    np.testing.assert_array_equal(s, before)
    s[:] = 7
    assert sketch.roc_auc() == found


def test_empty_and_one_class_batches():
    sketch = RankSketch(capacity=5)
    sketch.add([], []).add(np.array([], dtype=bool), np.array([], dtype=np.float32))
    assert (sketch.positives, sketch.negatives) == (0, 0)
    sketch.add([0, 0], [0.1, 0.2]).add([1], [0.15])
    assert sketch.roc_auc() == 0.5


def test_one_row_at_a_time():
    y, s = sample(6, rows=600)
    sketch = RankSketch(capacity=40, resolution=8)
    for label, score in zip(y, s):
        sketch.add([label], [score])
    assert_exact_within(sketch, y, s, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("y", "s", "error", "message"),
    [
        ([0, 1, 2], [0.1, 0.2, 0.3], ValueError, "row 2 holds 2"),
        ([0, 1, np.nan], [0.1, 0.2, 0.3], ValueError, "missing label"),
        ([0, 1, 1], [0.1, np.nan, 0.3], ValueError, r"missing score \(NaN\) at row 1"),
        ([0, 1, 1], [0.1, 0.2], ValueError, "y_true has 3 rows, but y_score has 2"),
        ([], [0.1], ValueError, "y_true has 0 rows, but y_score has 1"),
        (["a", "b"], [0.1, 0.2], TypeError, "labels 0 and 1"),
        ([0, 1], ["a", "b"], TypeError, "must hold numbers"),
        ([0, 1], [[0.1, 0.9], [0.2, 0.8]], ValueError, "two columns"),
    ],
)
def test_a_refused_batch_changes_nothing(y, s, error, message):
    labels, scores = sample(7, rows=500)
    sketch = RankSketch(capacity=20, resolution=8).add(labels, scores.astype(np.float32))
    before = sketch.to_bytes()
    with pytest.raises(error, match=message):
        sketch.add(y, s)
    assert arrays_of(sketch.to_bytes()).keys() == arrays_of(before).keys()
    for name, array in arrays_of(sketch.to_bytes()).items():
        np.testing.assert_array_equal(array, arrays_of(before)[name])


@pytest.mark.parametrize(
    ("labels", "query"),
    [
        ([], lambda sketch: sketch.roc_auc()),
        ([0, 0], lambda sketch: sketch.average_precision()),
        ([1, 1], lambda sketch: sketch.partial_auc(0.1)),
        ([0, 0], lambda sketch: sketch.recall_at_fpr(0.1)),
        ([1, 1], lambda sketch: sketch.threshold_at_fpr(0.1)),
        ([0, 0], lambda sketch: sketch.roc_points()),
    ],
)
def test_a_missing_class_is_an_error(labels, query):
    sketch = RankSketch(capacity=1, resolution=2).add(labels, np.arange(len(labels), dtype=float))
    with pytest.raises(ValueError, match=r"without a (positive|negative) row no rate"):
        query(sketch)


def test_threshold_needs_negatives_alone():
    assert RankSketch().add([0, 0, 0, 0], [1.0, 2.0, 3.0, 4.0]).threshold_at_fpr(0.25) == np.nextafter(3.0, 4)


def test_only_positives_evicted():
    sketch = RankSketch(capacity=2, resolution=2).add(np.ones(50), np.arange(50.0))
    assert sketch.exact_fpr == 0.0
    sketch.add([0], [10.0])
    assert sketch.exact_fpr == 0.0
    assert abs(sketch.roc_auc() - 39.5 / 50) <= sketch.auc_error


# Weights


def weighted_sample(seed, rows=3000):
    rng = np.random.default_rng(seed)
    y, s = sample(seed, rows=rows, kind="ties" if seed % 2 else "smooth")
    return y, s, rng.integers(0, 9, rows)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(4))
def test_weights_are_repetitions_within_the_guarantee(seed, order):
    y, s, w = weighted_sample(seed)
    rows = ORDERS[order](s, np.random.default_rng(seed))
    y, s, w = y[rows], s[rows], w[rows]
    repeated = RankSketch(200, 32).add(np.repeat(y, w), np.repeat(s, w))
    weighted = RankSketch(200, 32)
    for part in np.array_split(np.arange(len(s)), 5):
        weighted.add(y[part], s[part], sample_weight=w[part])
    assert (weighted.positives, weighted.negatives) == (repeated.positives, repeated.negatives)
    assert weighted.exact_fpr > 0
    for f in (weighted.exact_fpr, min(weighted.exact_fpr, repeated.exact_fpr) / 2):
        assert weighted.recall_at_fpr(f) == ranking.recall_at_fpr(y, s, f, sample_weight=w)
        assert weighted.threshold_at_fpr(f) == threshold.threshold_at_fpr(y, s, f, sample_weight=w)
        exact = ranking.partial_auc(y, s, f, sample_weight=w)
        assert weighted.partial_auc(f) == pytest.approx(exact, abs=1e-12)
    between = weighted.auc_error + repeated.auc_error
    assert abs(weighted.roc_auc() - repeated.roc_auc()) <= between + 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_no_weight_is_off_by_more_than_the_bound(seed):
    rng = np.random.default_rng(seed)
    s, w = np.round(rng.normal(size=5000), 2), rng.lognormal(sigma=2.0, size=5000) * 10.0 ** (6 * seed - 12)
    resolution = int(rng.integers(2, 40))
    parts = [ClassScores(int(rng.integers(1, 100)), resolution)]
    parts.append(ClassScores(parts[0].capacity, resolution))
    for number, rows in enumerate(np.array_split(np.arange(5000), 50)):
        parts[number % 2].add(s[rows], w[rows])
    parts[0].merge(parts[1])
    scores, weights = parts[0].rows()
    assert weights.sum() == pytest.approx(w.sum())
    for value in np.unique(s):
        error = abs(weights[scores >= value].sum() - w[s >= value].sum())
        assert error <= parts[0].rank_error + 1e-9 * w.sum()
        if value >= (parts[0].lowest_known() or -np.inf):
            assert error <= 1e-9 * w.sum()


def weighted_rows(rng):
    """Rows with ties, infinite scores and weights of many sizes."""
    rows = int(rng.choice([5, 40, 800]))
    y, s = sample(rng.integers(1 << 30), rows, share=rng.choice([0.05, 0.5]), kind=rng.choice(KINDS))
    w = {
        "whole": lambda: rng.integers(1, 5, rows).astype(float),
        "some zero": lambda: np.append([1.0, 1.0], rng.integers(0, 3, rows - 2)),
        "any": lambda: rng.exponential(size=rows) + 1e-3,
        "wide": lambda: 10.0 ** rng.uniform(-6, 6, rows),
    }[rng.choice(["whole", "some zero", "any", "wide"])]()
    return y, s, w


def weighted_in_a_random_tree(y, s, w, rng, **settings):
    """Parts added to any sketch, sketches merged in any order, some sent as bytes on the way."""
    cuts = np.sort(rng.integers(0, len(y) + 1, size=rng.integers(1, 30)))
    sketches = []
    for rows in np.split(rng.permutation(len(y)), cuts):
        if not sketches or rng.random() < 0.6:
            sketches.append(RankSketch(**settings))
        place = rng.integers(len(sketches))
        sketches[place].add(y[rows], s[rows], w[rows])
        if rng.random() < 0.2:
            sketches[place] = RankSketch.from_bytes(sketches[place].to_bytes())
    while len(sketches) > 1:
        first, second = rng.choice(len(sketches), size=2, replace=False)
        sketches[first].merge(sketches[second])
        del sketches[second]
    return sketches[0]


@given(st.integers(0, 1 << 30), st.sampled_from([1, 3, 20, 1000]), st.sampled_from([2, 3, 8, 33]))
@settings(max_examples=100, deadline=None)
def test_weighted_rows_in_any_order(seed, capacity, resolution):
    """Exact up to the exact rate, within the stated bounds beyond; the exact rate is that of any order."""
    rng = np.random.default_rng(seed)
    y, s, w = weighted_rows(rng)
    found = [
        weighted_in_a_random_tree(y, s, w, rng, capacity=capacity, resolution=resolution) for _ in range(3)
    ]
    exact = [sketch.exact_fpr for sketch in found]
    assert exact == pytest.approx([exact[0]] * 3, rel=1e-9)
    for sketch in found:
        assert (sketch.positives, sketch.negatives) == pytest.approx((w[y].sum(), w[~y].sum()))
        e0, e1 = sketch.fpr_error, sketch.recall_error
        assert abs(sketch.roc_auc() - ranking.roc_auc(y, s, sample_weight=w)) <= e0 + e1 + 1e-9
        for f in (*(min(exact) * (1 - rng.random(3))), 0.05, 0.3, 0.9, 1.0):
            if 0 < f <= min(exact):
                for name in ("recall_at_fpr", "partial_auc"):
                    direct = getattr(ranking, name)(y, s, f, sample_weight=w)
                    assert getattr(sketch, name)(f) == pytest.approx(direct, abs=1e-9)
            elif f > 0:
                area = ranking.partial_auc(y, s, f, kind="area", sample_weight=w)
                assert abs(sketch.partial_auc(f, kind="area") - area) <= e0 + f * e1 + 1e-9
                low = ranking.recall_at_fpr(y, s, f - e0, sample_weight=w) if f > e0 else 0.0
                high = ranking.recall_at_fpr(y, s, min(f + e0 + 1e-12, 1.0), sample_weight=w)
                assert low - e1 - 1e-9 <= sketch.recall_at_fpr(f) <= high + e1 + 1e-9


def test_rows_with_and_without_weights_merge_and_survive_a_file():
    y, s, w = weighted_sample(1)
    half = np.arange(len(s)) < 1500
    plain = RankSketch(100, 16).add(y[half], s[half])
    weighted = RankSketch(100, 16).add(y[~half], s[~half], sample_weight=w[~half])
    both = np.where(half, 1, w)
    for order in ([plain, weighted], [weighted, plain]):
        sketch = RankSketch.merged(order)
        assert sketch.weighted
        assert sketch.negatives == both[y == 0].sum()
        assert abs(sketch.roc_auc() - ranking.roc_auc(y, s, sample_weight=both)) <= sketch.auc_error + 1e-12
        same_answers(sketch, RankSketch.from_bytes(sketch.to_bytes()))
    assert not plain.weighted


def test_weights_are_checked_and_zero_counts_for_nothing():
    sketch = RankSketch(10, 4).add([0, 1, 1], [0.1, 0.2, 0.3], sample_weight=[2.5, 0.0, 1.0])
    assert (sketch.positives, sketch.negatives) == (1.0, 2.5)
    for weights in ([1.0, -1.0, 1.0], [1.0, np.nan, 1.0], [1.0, 1.0]):
        with pytest.raises(ValueError, match="sample_weight"):
            sketch.add([0, 1, 1], [0.1, 0.2, 0.3], sample_weight=weights)
    with pytest.raises(ValueError, match="infinity"):
        sketch.add([0, 0], [0.1, 0.2], sample_weight=[1e308, 1e308])
    assert (sketch.positives, sketch.negatives) == (1.0, 2.5)
    with pytest.raises(ValueError, match="confidence counts rows"):
        sketch.threshold_at_fpr(0.5, confidence=0.9)


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.5, np.nan])
def test_rates_are_checked(bad):
    y, s = sample(1, rows=100)
    sketch = RankSketch().add(y, s)
    for query in (sketch.partial_auc, sketch.recall_at_fpr, sketch.threshold_at_fpr, sketch.roc_points):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            query(bad)
    with pytest.raises(ValueError, match="kind must be one of"):
        sketch.partial_auc(0.1, kind="other")


# Merging


def test_merging_leaves_the_other_as_it_is():
    y, s = sample(8)
    first, second = RankSketch(50, 8).add(y[:2000], s[:2000]), RankSketch(50, 8).add(y[2000:], s[2000:])
    _ = second.exact_fpr
    before = copy.deepcopy(second).rows()
    assert first.merge(second) is first
    first.add(y, s + 10)
    for found, wanted in zip(second.rows(), before):
        np.testing.assert_array_equal(np.sort(found), np.sort(wanted))


def test_merging_checks():
    with pytest.raises(ValueError, match="have capacity 5 and 6"):
        RankSketch(5).merge(RankSketch(6))
    with pytest.raises(ValueError, match="have resolution 8 and 9"):
        RankSketch(5, 8).merge(RankSketch(5, 9))
    sketch = RankSketch(5)
    with pytest.raises(ValueError, match="count every row twice"):
        sketch.merge(sketch)
    with pytest.raises(TypeError, match="Only a RankSketch can be merged, but got list"):
        sketch.merge([])
    with pytest.raises(TypeError, match="but got int"):
        RankSketch.merged([1])
    with pytest.raises(ValueError, match="no sketch to merge"):
        RankSketch.merged([])


@pytest.mark.parametrize(
    ("settings", "error"),
    [({"capacity": 0}, ValueError), ({"resolution": 1}, ValueError), ({"capacity": 2.5}, TypeError)],
)
def test_settings_are_checked(settings, error):
    with pytest.raises(error, match=r"must be (at least|a whole number)"):
        RankSketch(**settings)


# Files


def arrays_of(data):
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def same_answers(first, second):
    assert repr(first) == repr(second)
    assert first.rank_error == second.rank_error
    assert (first.capacity, first.resolution) == (second.capacity, second.resolution)
    assert first.rows()[1].dtype == second.rows()[1].dtype
    if first.positives and first.negatives:
        assert first.roc_auc() == second.roc_auc()
        assert first.exact_fpr == second.exact_fpr
        for found, wanted in zip(first.roc_points(), second.roc_points()):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("capacity", [30, 10_000])
def test_round_trip(tmp_path, kind, dtype, capacity):
    y, s = sample(9, kind=kind)
    s = s.astype(dtype)
    sketch = RankSketch(capacity, 16).add(y, s)
    path = tmp_path / "scores.sketch"
    sketch.save(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["scores.sketch"]
    for other in (RankSketch.load(str(path)), pickle.loads(pickle.dumps(sketch)), copy.copy(sketch)):
        same_answers(sketch, other)
        # And it goes on as the original does.
        same_answers(copy.deepcopy(sketch).add(y, s + 1), other.add(y, s + 1))


def test_round_trip_of_an_empty_sketch():
    same_answers(RankSketch(7, 3), RankSketch.from_bytes(RankSketch(7, 3).to_bytes()))


def test_save_replaces_a_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "scores.sketch"
    RankSketch(7).add([0, 1], [0.0, 1.0]).save(path)

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        RankSketch(7).save(path)
    assert RankSketch.load(path).positives == 1
    assert len(list(tmp_path.iterdir())) == 1


@given(st.lists(st.floats(allow_nan=False)), st.sampled_from([np.float32, np.float64]))
def test_packing_is_bit_for_bit(values, dtype):
    with np.errstate(over="ignore"):
        values = np.sort(np.array(values, dtype=np.float64).astype(dtype))
    found = unpacked(packed(values))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.view(np.uint8), values.view(np.uint8))


def test_a_file_cut_short_is_refused(tmp_path):
    y, s = sample(9)
    data = RankSketch(50, 16).add(y, s).to_bytes()
    path = tmp_path / "scores.sketch"
    for end in (2, 10, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:end])
        with pytest.raises(ValueError, match=r"scores\.sketch is damaged or truncated"):
            RankSketch.load(path)


def test_a_damaged_byte_is_noticed_or_does_not_matter():
    """A zip archive checks its content, names and sizes are checked here; only dates and the like are not."""
    y, s = sample(9)
    sketch = RankSketch(20, 16).add(y, s.astype(np.float32))
    data, wanted = bytearray(sketch.to_bytes()), sketch.rows()
    refused = 0
    for place, bits in itertools.product(range(len(data)), (0x01, 0xFE)):
        data[place] ^= bits
        try:
            found = RankSketch.from_bytes(bytes(data)).rows()
        except ValueError as why:
            refused += "The data is" in str(why) or "The data has" in str(why)
        else:
            for part, other in zip(found, wanted):
                np.testing.assert_array_equal(np.sort(part), np.sort(other))
        data[place] ^= bits
    assert refused > len(data)


def test_a_foreign_file_is_refused(tmp_path):
    path = tmp_path / "other"
    for content in (b"", b"label,score\n0,0.5\n", pickle.dumps([1, 2])):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is not a RankSketch file"):
            RankSketch.load(path)
    with open(path, "wb") as stream:
        np.savez(stream, a=np.zeros(3))
    with pytest.raises(ValueError, match="holds arrays of another origin"):
        RankSketch.load(path)
    with open(path, "wb") as stream:
        np.savez(stream, format=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="is damaged"):
        RankSketch.load(path)
    with pytest.raises(FileNotFoundError):
        RankSketch.load(tmp_path / "absent")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.update(version=np.array(2)), "format version 2, .* newer"),
        (lambda arrays: arrays.update(format=np.array("raresight.Other")), "it holds raresight.Other"),
        (lambda arrays: arrays.pop("negative_levels"), "not a complete RankSketch file .*levels"),
        (lambda arrays: arrays["negative_counts"].__iadd__([1, 0, 0, 0]), "counts do not add up"),
        (lambda arrays: arrays.update(positive_kept=np.zeros(3)), "its scores have type"),
        (lambda arrays: arrays["settings"].__setitem__(0, 0), "capacity must be at least 1"),
        (lambda arrays: arrays["negative_levels"].__setitem__((3, 0), 127), "counts do not add up"),
    ],
)
def test_a_contradictory_file_is_refused(change, message):
    y, s = sample(9)
    arrays = arrays_of(RankSketch(50, 16).add(y, s.astype(np.float32)).to_bytes())
    change(arrays)
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    with pytest.raises(ValueError, match=message):
        RankSketch.from_bytes(stream.getvalue())


def test_three_million_rows_are_a_small_file_and_keep_every_promise(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.random(3_000_000) < 0.001
    s = rng.standard_normal(3_000_000, dtype=np.float32) + 2 * y
    sketch = RankSketch(capacity=60_000, resolution=8192)
    for part in np.split(np.arange(3_000_000), 6):
        sketch.add(y[part], s[part])
    path = tmp_path / "scores.sketch"
    sketch.save(path)
    assert path.stat().st_size < 500_000
    sketch = RankSketch.load(path)
    assert sketch.exact_fpr >= 0.02
    assert 0 < sketch.auc_error < 5e-4
    assert abs(sketch.roc_auc() - ranking.roc_auc(y, s)) <= sketch.auc_error
    for f in (1e-5, 1e-3, 0.02):
        assert sketch.recall_at_fpr(f) == ranking.recall_at_fpr(y, s, f)
        assert sketch.threshold_at_fpr(f) == threshold.threshold_at_fpr(y, s, f)
        assert sketch.partial_auc(f) == pytest.approx(ranking.partial_auc(y, s, f), abs=1e-12)


def test_repr_tells_what_is_known():
    sketch = RankSketch(capacity=10, resolution=8).add(np.arange(1000) % 100 == 0, np.arange(1000.0))
    assert repr(sketch).startswith("RankSketch(positives=10, negatives=990, exact_fpr=0.0101, auc_error=0.")
