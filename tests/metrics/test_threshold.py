"""Thresholds: what they promise in the sample, and outside it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from raresight.metrics import recall_at_fpr, threshold_at_fpr
from raresight.metrics.threshold import allowed_false_positives
from score_cases import score_rows

RATES = st.sampled_from([0.001, 0.01, 0.1, 0.3, 0.5, 0.9, 1.0])


@pytest.mark.usefixtures("both_ways")
@given(score_rows(), RATES)
def test_keeps_the_rate_and_has_the_best_recall(rows, fpr):
    y, s, w = rows
    weight = np.ones(len(y)) if w is None else w
    y = np.asarray(y) == 1
    if np.sum(weight[~y & (s == np.inf)]) > fpr * np.sum(weight[~y]):
        with pytest.raises(ValueError, match="infinity"):
            threshold_at_fpr(y, s, fpr, sample_weight=w)
        return
    alarm = s >= threshold_at_fpr(y, s, fpr, sample_weight=w)
    assert weight[alarm & ~y].sum() <= fpr * weight[~y].sum() * (1 + 1e-12)
    recall = weight[alarm & y].sum() / weight[y].sum()
    assert recall == pytest.approx(recall_at_fpr(y, s, fpr, sample_weight=w), abs=1e-12)


@pytest.mark.usefixtures("both_ways")
@given(score_rows(), RATES)
def test_is_the_lowest(rows, fpr):
    y, s, _ = rows
    y = np.asarray(y) == 1
    if np.mean(s[~y] == np.inf) > fpr:
        return
    threshold = threshold_at_fpr(y, s, fpr)
    if threshold > -np.inf:
        with np.errstate(over="ignore"):  # the number below the lowest is minus infinity
            lower = np.nextafter(s.dtype.type(threshold), s.dtype.type(-np.inf))
        assert np.mean(s[~y] >= lower) > fpr


@given(st.integers(1, 5000), st.floats(0.001, 0.9), st.floats(0.5, 0.999))
def test_bound_is_the_order_statistics(negatives, fpr, confidence):
    """The rate above the (k+1)-th highest of n is Beta(k + 1, n - k)."""
    if 1 - (1 - fpr) ** negatives < confidence:
        with pytest.raises(ValueError, match="negatives cannot show"):
            allowed_false_positives(negatives, fpr, confidence)
        return
    k = allowed_false_positives(negatives, fpr, confidence)
    assert beta.cdf(fpr, k + 1, negatives - k) >= confidence - 1e-9
    if k + 1 < negatives:
        assert beta.cdf(fpr, k + 2, negatives - k - 1) < confidence + 1e-9
        assert binom.sf(k + 1, negatives, fpr) < confidence + 1e-9


@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_true_rate_is_kept_as_often_as_promised(confidence):
    generator = np.random.default_rng(0)
    kept = 0
    for _ in range(2000):
        s = generator.random(3000)  # the true rate above t is 1 - t
        kept += 1 - threshold_at_fpr(np.zeros(3000), s, 0.01, confidence=confidence) <= 0.01
    # Steps of the bound cost a little: it is never below the promise, and close to it.
    assert confidence - 0.015 < kept / 2000 < confidence + 0.04


def test_ties_are_on_the_safe_side():
    generator = np.random.default_rng(0)
    for _ in range(200):
        s = generator.integers(0, 20, 3000).astype(float)
        threshold = threshold_at_fpr(np.zeros(3000), s, 0.1, confidence=0.95)
        # P(score >= t) of the discrete distribution, whose values are equally likely.
        assert np.mean(np.arange(20) >= threshold) <= 0.1


def test_positives_are_not_needed_but_negatives_are():
    assert threshold_at_fpr([0, 0], [0.1, 0.2], 0.5) == np.nextafter(0.1, 1)
    with pytest.raises(ValueError, match="no negative row"):
        threshold_at_fpr([1, 1], [0.1, 0.2], 0.5)


def test_float32_scores_get_a_float32_threshold():
    s = np.array([0.1, 0.2, 0.3], dtype=np.float32)
    threshold = threshold_at_fpr([0, 0, 1], s, 0.4)
    assert np.float32(threshold) == threshold
    assert (s >= threshold).tolist() == [False, False, True]


@pytest.mark.parametrize(("arguments", "message"), [
    ({"fpr": 0.001, "confidence": 0.95}, "that takes 2995 negatives"),
    ({"fpr": 0.1, "confidence": 1.0}, "confidence must be between"),
    ({"fpr": 0.0}, "fpr must be above 0"),
    ({"fpr": 0.5, "confidence": 0.5, "sample_weight": [1, 1, 1]}, "cannot be combined with sample_weight"),
])  # fmt: skip
def test_what_cannot_be_promised_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        threshold_at_fpr([0, 0, 1], [0.1, 0.2, 0.3], **arguments)


def test_weightless_rows_after_the_cut():
    rows = 100_000
    s, w, y = np.arange(rows, 0, -1.0), np.ones(rows), np.zeros(rows, dtype=int)
    w[1000:10_000], y[-1] = 0, 1
    fpr = 1000 / w[y == 0].sum()
    assert threshold_at_fpr(y, s, fpr, sample_weight=w) == np.nextafter(rows - 10_000.0, np.inf)


def test_more_negatives_than_a_32_bit_number_counts():
    # The normal approximation, which is close at ten thousand expected.
    k = allowed_false_positives(10_000_000_000, 1e-6, 0.95)
    assert k == pytest.approx(10_000 - 1.645 * 100, abs=2)


def test_just_enough_negatives():
    s = np.arange(2995.0)
    threshold = threshold_at_fpr(np.zeros(2995), s, 0.001, confidence=0.95)
    assert threshold == np.nextafter(2994.0, np.inf)
