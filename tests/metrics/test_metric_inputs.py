"""What metrics accept, and what they say of what they do not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from raresight import metrics

Y = np.array([0, 0, 1, 0, 1, 0])
S = np.array([0.1, 0.4, 0.35, 0.2, 0.8, 0.05])

RANKING = [
    metrics.roc_auc,
    metrics.partial_auc,
    metrics.recall_at_fpr,
    metrics.average_precision,
    metrics.precision_at_recall,
]
PROBABILITY = [metrics.brier_score, metrics.log_loss, metrics.calibration_error]


@pytest.mark.parametrize("metric", RANKING + PROBABILITY, ids=lambda m: m.__name__)
@pytest.mark.parametrize("convert", [
    list,
    pd.Series,
    lambda a: pd.Series(a, index=np.arange(len(a))[::-1]),
    lambda a: pd.Series(a).convert_dtypes(),
    pl.Series,
    torch.tensor,
    lambda a: np.repeat(a, 2)[::2],
    lambda a: a.astype(a.dtype.newbyteorder()),
], ids=["list", "pandas", "index", "nullable", "polars", "torch", "strided", "byte order"])  # fmt: skip
def test_every_library(metric, convert):
    weights = np.linspace(0.5, 1.5, len(Y))
    assert metric(convert(Y), convert(S)) == metric(Y, S)
    expected = metric(Y, S, sample_weight=weights)
    assert metric(convert(Y), convert(S), sample_weight=convert(weights)) == expected


@pytest.mark.parametrize("labels", [bool, np.int8, np.uint8, np.int32, np.uint64, np.float32, np.float64])
def test_every_type_of_label(labels):
    assert metrics.roc_auc(Y.astype(labels), S) == metrics.roc_auc(Y, S)


@pytest.mark.parametrize("scores", [np.float16, np.float32, np.float64, np.int8, np.int64, bool])
def test_every_type_of_score(scores):
    typed = (S * 10).astype(scores)
    assert metrics.roc_auc(Y, typed) == metrics.roc_auc(Y, typed.astype(np.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_half_precision_tensors_that_need_gradients(dtype):
    scores = torch.tensor(S, dtype=dtype, requires_grad=True)
    assert metrics.roc_auc(torch.tensor(Y), scores) == metrics.roc_auc(Y, scores.detach().double().numpy())


def test_close_integers_stay_apart():
    wide = np.array([2**53, 2**53 + 1])
    with pytest.raises(ValueError, match=r"2\*\*53"):
        metrics.roc_auc([0, 1], wide)
    assert metrics.roc_auc([0, 1], wide - 2) == 1.0


def test_close_floats_stay_apart():
    s = np.array([1.0, np.nextafter(1.0, 2)])
    assert metrics.roc_auc([0, 1], s) == 1.0
    assert metrics.roc_auc([0, 1], s.astype(np.float32)) == 0.5


def test_zeros_of_both_signs_are_tied():
    assert metrics.roc_auc([0, 1], [-0.0, 0.0]) == 0.5
    assert metrics.roc_auc([0, 1], [0.0, -0.0]) == 0.5


def test_large_logits_are_ranked_not_squashed():
    """torchmetrics turns these into probabilities of exactly one and answers 0.5."""
    assert metrics.roc_auc([0, 0, 1, 1], np.array([100.0, 200, 300, 400], dtype=np.float32)) == 1.0


@pytest.mark.parametrize("metric", RANKING, ids=lambda m: m.__name__)
@pytest.mark.parametrize(("y", "s", "error", "message"), [
    ([], [], ValueError, "y_true is empty"),
    ([0, 1], [0.1], ValueError, "y_true has 2 rows, but y_score has 1"),
    ([0, 1], [0.1, np.nan], ValueError, r"missing score \(NaN\) at row 1"),
    ([0, 0], [0.1, 0.2], ValueError, r"no positive row \(label 1\) among its 2"),
    ([1, 1], [0.1, 0.2], ValueError, r"no negative row \(label 0\) among its 2"),
    ([0, 2], [0.1, 0.2], ValueError, "row 1 holds 2"),
    ([-1, 1], [0.1, 0.2], ValueError, "row 0 holds -1"),
    ([0.0, 0.5], [0.1, 0.2], ValueError, "row 1 holds 0.5"),
    ([0.0, np.nan], [0.1, 0.2], ValueError, r"missing label \(NaN\) at row 1"),
    (["ok", "fraud"], [0.1, 0.2], TypeError, "y_true == 'fraud'"),
    ([0, 1], ["a", "b"], TypeError, "y_score must hold numbers"),
    ([0, 1], [0.1 + 1j, 0.2], TypeError, "y_score must hold numbers"),
    ([0, 1], [[0.1, 0.9], [0.2, 0.8]], ValueError, r"y_score\[:, 1\]"),
    ([0, 1], [[0.1], [0.2]], ValueError, r"one dimension, but has shape \(2, 1\)"),
])  # fmt: skip
def test_bad_rows_are_named(metric, y, s, error, message):
    with pytest.raises(error, match=message):
        metric(y, s)


@pytest.mark.parametrize(("weights", "message"), [
    ([1.0], "sample_weight has 1"),
    ([1.0, -1.0], "row 1 holds -1"),
    ([np.nan, 1.0], "row 0 holds nan"),
    ([np.inf, 1.0], "row 0 holds inf"),
    ([1.0, 0.0], "Every positive row has weight zero"),
    ([0.0, 1.0], "Every negative row has weight zero"),
])  # fmt: skip
@pytest.mark.parametrize("metric", RANKING, ids=lambda m: m.__name__)
def test_bad_weights_are_named(metric, weights, message):
    with pytest.raises(ValueError, match=message):
        metric([0, 1], [0.1, 0.2], sample_weight=weights)


def test_missing_values_of_pandas_and_polars():
    with pytest.raises((ValueError, TypeError), match=r"missing|type"):
        metrics.roc_auc(pd.Series([0, 1, None], dtype="Int64"), [1, 2, 3])
    with pytest.raises(ValueError, match="missing"):
        metrics.roc_auc(pl.Series([0, 1, None]), [1, 2, 3])
    with pytest.raises(ValueError, match="missing"):
        metrics.roc_auc([0, 1, 1], pl.Series([0.5, None, 1.0]))


@pytest.mark.parametrize(("values", "message"), [
    ([0, 1, None], r"missing value \(None\) at row 2"),
    (pd.Series([True, None, False], dtype="boolean"), r"missing value \(<NA>\) at row 1"),
    (np.ma.array([0, 1, 1], mask=[0, 1, 0]), "masked at row 1"),
])  # fmt: skip
def test_missing_objects_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        metrics.roc_auc(values, [0.1, 0.2, 0.3])


def test_objects_that_are_numbers_are_read():
    assert metrics.roc_auc(np.array([0, 1, True], dtype=object), np.array([0.5, 1, 2], dtype=object)) == 1.0
    assert metrics.roc_auc(np.ma.array(Y), np.ma.array(S)) == metrics.roc_auc(Y, S)


def test_iterators_are_refused():
    with pytest.raises(TypeError, match="iterator"):
        metrics.roc_auc([0, 1], (s for s in (0.1, 0.2)))


@pytest.mark.parametrize("rate", ["a", None])
def test_rates_that_are_no_numbers(rate):
    with pytest.raises(TypeError, match="fpr must be a number"):
        metrics.recall_at_fpr([0, 1], [0.1, 0.2], fpr=rate)


def test_bad_row_far_from_the_start_is_found():
    rows = 600_000
    y, s = np.zeros(rows), np.zeros(rows)
    y[0] = 1
    s[555_555] = np.nan
    with pytest.raises(ValueError, match="row 555555"):
        metrics.roc_auc(y, s)
    y[444_444] = 3
    with pytest.raises(ValueError, match="row 444444 holds 3"):
        metrics.roc_auc(y, s)


def test_inputs_are_not_changed():
    y, s, w = Y.astype(np.int8), S.copy(), np.ones(len(Y))
    for metric in RANKING:
        metric(y, s, sample_weight=w)
        metric(y, s)
    metrics.threshold_at_fpr(y, s, 0.5)
    assert np.array_equal(s, S)
    assert np.array_equal(y, Y)
    assert np.all(w == 1)
