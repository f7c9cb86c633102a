"""Metrics updated batch by batch equal those of all rows at once."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raresight.metrics import (
    average_precision,
    brier_score,
    log_loss,
    partial_auc,
    recall_at_fpr,
    roc_auc,
    threshold_at_fpr,
)
from raresight.metrics.sketch import RankSketch
from raresight.metrics.streaming import ExactSum, StreamingMetrics


def sample(seed, rows=5000):
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < 0.05
    s = rng.normal(size=rows) + 1.5 * y - 3
    return y, s, 1 / (1 + np.exp(-s))


def batches_of(columns, rng, most=9):
    order = rng.permutation(len(columns[0]))
    cuts = np.sort(rng.integers(0, len(order) + 1, size=rng.integers(1, most)))
    return [tuple(column[rows] for column in columns) for rows in np.split(order, cuts)]


@pytest.mark.parametrize("seed", range(6))
def test_batches_in_any_order_equal_all_rows_at_once(seed):
    y, s, p = sample(seed)
    metrics = StreamingMetrics(max_fpr=0.05, fpr=0.01)
    for batch in batches_of((y, s, p), np.random.default_rng(seed)):
        assert metrics.update(*batch) is metrics
    found = metrics.compute()
    assert list(found) == [
        "rows",
        "positives",
        "prior",
        "roc_auc",
        "partial_auc",
        "recall_at_fpr",
        "threshold_at_fpr",
        "average_precision",
        "brier_score",
        "log_loss",
        "exact_fpr",
        "auc_error",
    ]
    assert found["rows"] == 5000
    assert found["positives"] == np.sum(y)
    assert found["prior"] == np.mean(y)
    assert found["roc_auc"] == roc_auc(y, s)
    assert found["partial_auc"] == partial_auc(y, s, 0.05)
    assert found["recall_at_fpr"] == recall_at_fpr(y, s, 0.01)
    assert found["threshold_at_fpr"] == threshold_at_fpr(y, s, 0.01)
    assert found["average_precision"] == average_precision(y, s)
    assert found["brier_score"] == pytest.approx(brier_score(y, p), rel=1e-14)
    assert found["log_loss"] == pytest.approx(log_loss(y, p), rel=1e-14)
    assert (found["exact_fpr"], found["auc_error"]) == (1.0, 0.0)


@pytest.mark.parametrize("seed", range(6))
def test_workers_merged_in_any_order_equal_all_rows_at_once(seed):
    y, s, p = sample(seed)
    rng = np.random.default_rng(seed)
    settings = {"max_fpr": 0.02, "fpr": 0.01, "capacity": 150, "resolution": 64}
    batches = batches_of((y, s, p), rng)
    workers = [StreamingMetrics(**settings).update(*batch) for batch in batches]
    results = []
    for _ in range(2):
        total = StreamingMetrics(**settings)
        for place in rng.permutation(len(workers)):
            total.merge(workers[place])
        results.append(total.compute())
    for found in results:
        assert found["recall_at_fpr"] == recall_at_fpr(y, s, 0.01)
        assert found["threshold_at_fpr"] == threshold_at_fpr(y, s, 0.01)
        assert found["partial_auc"] == pytest.approx(partial_auc(y, s, 0.02), abs=1e-12)
        assert abs(found["roc_auc"] - roc_auc(y, s)) <= found["auc_error"]
        assert found["exact_fpr"] >= 0.02
    # Sums of the same batches do not depend on their order in the last digit either.
    assert results[0]["log_loss"] == results[1]["log_loss"]
    assert results[0]["brier_score"] == results[1]["brier_score"]


@given(st.lists(st.floats(0, 1e200) | st.floats(0, 1e-200) | st.floats(0, 1)), st.randoms())
def test_exact_sum(numbers, random):
    exact = float(sum(Fraction(number) for number in numbers))
    random.shuffle(numbers)
    total = ExactSum(numbers)
    assert total.value == exact
    assert ExactSum(total.parts).value == exact
    assert len(total.parts) < 45


@pytest.mark.parametrize("seed", range(4))
def test_weighted_rows_are_repeated_rows(seed):
    y, s, p = sample(seed)
    w = np.random.default_rng(seed).integers(0, 5, len(y))
    weighted = StreamingMetrics(max_fpr=0.05, fpr=0.01)
    for y_part, s_part, p_part, w_part in batches_of((y, s, p, w), np.random.default_rng(seed)):
        weighted.update(y_part, s_part, p_part, sample_weight=w_part)
    repeated = StreamingMetrics(max_fpr=0.05, fpr=0.01)
    repeated.update(*(np.repeat(column, w) for column in (y, s, p)))
    found, wanted = weighted.compute(), repeated.compute()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name] == pytest.approx(value, rel=1e-9), name
    weighted.update([0, 1], [0.1, 0.2], [0.1, 0.2], sample_weight=[0.0, 0.0])
    assert weighted.compute() == found


def test_probabilities_with_some_batches_only_are_refused():
    metrics = StreamingMetrics().update([0, 1], [0.1, 0.9], [0.1, 0.9])
    before = metrics.compute()
    with pytest.raises(ValueError, match="This batch has no probabilities, but the batches before had;"):
        metrics.update([0, 1], [0.1, 0.9])
    assert metrics.compute() == before
    without = StreamingMetrics().update([0, 1], [0.1, 0.9])
    with pytest.raises(ValueError, match="This batch has probabilities, but the batches before had none"):
        without.update([0, 1], [0.1, 0.9], [0.1, 0.9])
    with pytest.raises(ValueError, match="What is merged has probabilities"):
        without.merge(metrics)
    assert "log_loss" not in without.compute()
    assert metrics.compute() == before
    # A worker without rows has no say.
    assert metrics.merge(StreamingMetrics()).compute() == before
    assert StreamingMetrics().merge(metrics).compute() == before


@pytest.mark.parametrize(
    ("y", "s", "p", "message"),
    [
        ([0, 2], [0.1, 0.2], [0.1, 0.2], "labels 0 and 1"),
        ([0, 1], [0.1, np.nan], [0.1, 0.2], "missing score"),
        ([0, 1], [0.1, 0.2], [0.1, 1.2], r"probability must be in \[0, 1\], but row 1 holds 1.2"),
        ([0, 1], [0.1, 0.2], [0.1, np.nan], "probability has a missing score"),
        ([0, 1], [0.1, 0.2], [0.1], "y_true has 2 rows, but probability has 1"),
        ([], [], [0.1], "y_true has 0 rows, but probability has 1"),
    ],
)
def test_a_refused_batch_changes_nothing(y, s, p, message):
    metrics = StreamingMetrics().update([0, 1, 0], [0.1, 0.9, 0.95], [0.1, 0.9, 0.5])
    before = metrics.compute()
    with pytest.raises(ValueError, match=message):
        metrics.update(y, s, p)
    assert metrics.compute() == before
    fresh = StreamingMetrics()
    with pytest.raises(ValueError, match=message):
        fresh.update(y, s, p)
    assert fresh.update([0, 1], [0.0, 1.0]).compute()["rows"] == 2


def test_empty_batches_and_tensors():
    y, s, p = (torch.tensor(column) for column in sample(0, rows=300))
    metrics = StreamingMetrics().update([], []).update([], [], [])
    metrics.update(y, s.to(torch.float32), p).update([], [])
    assert metrics.compute()["log_loss"] == pytest.approx(log_loss(y, p), rel=1e-14)


def test_an_impossible_event_costs_infinity():
    metrics = StreamingMetrics().update([1, 0], [0.0, 1.0], [0.0, 0.5]).update([0], [0.5], [0.25])
    assert metrics.compute()["log_loss"] == math.inf
    assert metrics.compute()["brier_score"] == pytest.approx((1 + 0.25 + 0.0625) / 3)
    assert StreamingMetrics().merge(metrics).compute()["log_loss"] == math.inf


def test_reset_forgets_everything_but_the_settings():
    metrics = StreamingMetrics(0.1, 0.2, 7, 9).update([0, 1], [0.1, 0.9], [0.1, 0.9]).reset()
    with pytest.raises(ValueError, match="0 positive and 0 negative rows"):
        metrics.compute()
    assert (metrics.max_fpr, metrics.fpr) == (0.1, 0.2)
    assert (metrics.sketch.capacity, metrics.sketch.resolution) == (7, 9)
    assert "log_loss" not in metrics.update([0, 1], [0.1, 0.9]).compute()


def test_one_class_is_an_error_that_tells_the_counts():
    with pytest.raises(ValueError, match="0 positive and 2 negative rows"):
        StreamingMetrics().update([0, 0], [0.1, 0.2]).compute()


def test_from_batches_takes_them_one_at_a_time():
    alive = []

    def batches():
        for seed in range(3):
            alive.append(seed)
            yield sample(seed)
            assert alive == list(range(seed + 1))

    found = StreamingMetrics.from_batches(batches(), max_fpr=0.1, fpr=0.05, capacity=400, resolution=32)
    assert found.compute()["rows"] == 15_000
    y, s, _ = (np.concatenate(column) for column in zip(*(sample(seed) for seed in range(3))))
    assert found.sketch.recall_at_fpr(0.02) == recall_at_fpr(y, s, 0.02)
    with pytest.raises(ValueError, match="but has 1 parts"):
        StreamingMetrics.from_batches([([0, 1],)])


def test_merging_checks_the_settings():
    with pytest.raises(ValueError, match=r"have fpr 0.001 and 0.002"):
        StreamingMetrics().merge(StreamingMetrics(fpr=0.002))
    with pytest.raises(ValueError, match="have capacity"):
        StreamingMetrics().merge(StreamingMetrics(capacity=5))
    with pytest.raises(TypeError, match="got RankSketch"):
        StreamingMetrics().merge(RankSketch())
    metrics = StreamingMetrics().update([0, 1], [0.0, 1.0], [0.5, 0.5])
    with pytest.raises(ValueError, match="twice"):
        metrics.merge(metrics)
    assert metrics.compute()["brier_score"] == 0.25
    with pytest.raises(ValueError, match="max_fpr must be above 0"):
        StreamingMetrics(max_fpr=0)


@pytest.mark.parametrize("columns", [2, 3])
def test_round_trip(tmp_path, columns):
    data = sample(3)[:columns]
    metrics = StreamingMetrics(0.02, 0.01, 150, 64).update(*data)
    metrics.save(tmp_path / "metrics.npz")
    other = StreamingMetrics.load(tmp_path / "metrics.npz")
    assert other.compute() == metrics.compute()
    assert repr(other) == repr(metrics)
    assert other.update(*data).compute() == metrics.update(*data).compute()
    with pytest.raises(ValueError, match=r"not a RankSketch file: it holds raresight\.StreamingM"):
        RankSketch.load(tmp_path / "metrics.npz")
    whole = (tmp_path / "metrics.npz").read_bytes()
    (tmp_path / "metrics.npz").write_bytes(whole[:-40])
    with pytest.raises(ValueError, match="damaged or truncated"):
        StreamingMetrics.load(tmp_path / "metrics.npz")


def test_round_trip_before_the_first_batch():
    empty = StreamingMetrics.from_bytes(StreamingMetrics().to_bytes())
    assert empty.update([0, 1], [0.0, 1.0], [0.5, 0.5]).compute()["brier_score"] == 0.25
