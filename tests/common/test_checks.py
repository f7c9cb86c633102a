"""One set of input checks: what is wrong, where, and what was seen."""

from __future__ import annotations

import decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raresight.common.checks import (
    BLOCK,
    as_vector,
    check_penalty,
    check_probabilities,
    check_range,
    check_rate,
    check_weights,
    check_whole,
    is_missing,
    plain_objects,
)
from raresight.common.labels import encode, read_targets


@pytest.mark.parametrize(
    "values",
    [
        [0.5, 1.0],
        (0.5, 1.0),
        pd.Series([0.5, 1.0]),
        torch.tensor([0.5, 1.0], dtype=torch.bfloat16, requires_grad=True),
        np.array([0.5, 1.0], dtype=object),
    ],
    ids=lambda values: type(values).__name__,
)
def test_vectors_of_every_library(values):
    assert as_vector(values, "y_score").tolist() == [0.5, 1.0]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (np.ma.masked_array([1.0, 2.0], mask=[False, True]), ValueError, "masked at row 1"),
        (iter([1.0]), TypeError, "iterator"),
        (np.zeros((3, 2)), ValueError, r"two columns.*x\[:, 1\]"),
        (np.zeros((2, 2, 2)), ValueError, "one dimension"),
        (np.array([1, None], dtype=object), ValueError, "missing value .None. at row 1"),
        (np.array([1, pd.NA], dtype=object), ValueError, "missing value .* at row 1"),
    ],
)
def test_what_is_no_vector_is_named(values, error, message):
    with pytest.raises(error, match=message):
        as_vector(values, "x")


def test_missing_values_of_every_kind():
    for value in (
        None,
        float("nan"),
        np.float32("nan"),
        pd.NA,
        pd.NaT,
        np.datetime64("NaT"),
        decimal.Decimal("NaN"),
    ):
        assert is_missing(value)
    for value in (0, "", "nan", 0.0, False, np.inf, [float("nan")]):
        assert not is_missing(value)


def test_objects_become_what_they_are():
    assert plain_objects(np.array([True, False], dtype=object), "y").dtype == bool
    assert plain_objects(np.array([1, np.int8(2)], dtype=object), "y").dtype == np.int64
    assert plain_objects(np.array([2**64 - 1, 1], dtype=object), "y").dtype == np.uint64
    assert plain_objects(np.array([1, 2.5], dtype=object), "y").dtype == np.float64
    assert plain_objects(np.array([2**64, 1], dtype=object), "y").dtype == object
    assert plain_objects(np.array(["a", 1], dtype=object), "y").dtype == object


def test_weights_are_looked_at_beyond_the_first_block():
    weights = np.ones(BLOCK + 3, dtype=np.float32)
    assert check_weights(weights, len(weights)) is weights
    for bad in (-1.0, np.nan, np.inf):
        weights[BLOCK + 1] = bad
        with pytest.raises(ValueError, match=f"row {BLOCK + 1} holds"):
            check_weights(weights, len(weights))
    assert check_weights([True, False], 2).tolist() == [1.0, 0.0]
    with pytest.raises(TypeError, match="must hold numbers"):
        check_weights(["a"], 1)
    with pytest.raises(ValueError, match="y has 3 rows, but sample_weight has 2"):
        check_weights([1, 2], 3, of="y")


def test_numbers_in_their_range():
    assert check_rate(np.float32(0.5), "fpr") == 0.5
    for value in (0, 1.01, np.nan):
        with pytest.raises(ValueError, match="fpr must be above 0"):
            check_rate(value, "fpr")
    with pytest.raises(TypeError, match="fpr must be a number"):
        check_rate("half", "fpr")
    for value in (-1, np.inf, np.nan):
        with pytest.raises(ValueError, match="l2 must be at least 0"):
            check_penalty(value, "l2")
    with pytest.raises(TypeError, match="l2 must be a number"):
        check_penalty(True, "l2")
    assert check_range(np.float32(0.5), "share", above=0, most=1) == 0.5
    for value in (0, 1.5, np.inf, np.nan):
        with pytest.raises(ValueError, match="share must be above 0 and at most 1, but is"):
            check_range(value, "share", above=0, most=1)
    with pytest.raises(ValueError, match="rate must be above 0 and finite"):
        check_range(np.inf, "rate", above=0)
    with pytest.raises(ValueError, match=r"got 1\.0"):
        check_probabilities([0.5, 1.0], "prior")


def test_whole_numbers():
    assert check_whole(np.int64(3), "trials") == 3
    for value in (0, 11):
        with pytest.raises(ValueError, match="trials must be a whole number from 1 to 10, but is"):
            check_whole(value, "trials", 1, 10)
    # A wrong type is a wrong value, too: callers catch what they expect.
    for value in (True, 2.0, "2", None):
        for kind in (TypeError, ValueError):
            with pytest.raises(kind, match="trials must be a whole number"):
                check_whole(value, "trials")


@given(
    st.sampled_from([np.int8, np.uint8, np.int64, np.uint64, bool]),
    st.lists(st.integers(0, 200), min_size=2, unique=True),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_counted_labels_are_sorted_labels(kind, values, seed, at_the_end):
    """Whole numbers close together are counted, which must be the same as sorting."""
    if kind is bool:
        values = [0, 1]
    elif at_the_end:  # the largest numbers of the type
        values = [int(np.iinfo(kind).max) - (value % 100) for value in values]
    elif kind is np.int8:
        values = [value - 100 for value in values if value < 200]
    values = np.array(sorted(set(values)), dtype=kind)
    labels = np.random.default_rng(seed).choice(values, 50)
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        return
    found = encode(read_targets(labels, "model"))
    assert found[0].dtype == classes.dtype
    np.testing.assert_array_equal(found[0], classes)
    np.testing.assert_array_equal(found[1], codes)
