"""Copies of a row stay on one side where rows are held out or split into folds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep.deep_tables import ring_table
from raresight.common.row_groups import FOLDS, assign_folds
from raresight.deep import DeepClassifier
from raresight.deep.validation import MIN_VALIDATION_ROWS, hold_out, split_groups

FAST = {"width": 8, "max_epochs": 2, "random_state": 0, "n_jobs": 1}


def distinct_table(rows=60, positives=12, columns=3):
    X = np.random.default_rng(0).normal(size=(rows, columns))
    return X, (np.arange(rows) < positives).astype(np.int64)


def repeated(X, y, times):
    places = np.random.default_rng(1).permutation(np.repeat(np.arange(len(y)), times))
    return X[places], y[places], places


def sides(groups, held):
    """Whether no group is on both sides."""
    inside = np.zeros(len(groups), dtype=bool)
    inside[held] = True
    return not set(groups[inside]) & set(groups[~inside])


def test_copies_have_one_number():
    X, y = distinct_table()
    assert split_groups(X, y, []) is None
    rows, codes, places = repeated(X, y, np.where(y == 1, 3, 1))
    groups = split_groups(rows, codes, [])
    assert len(set(groups)) == 60
    assert len(set(zip(groups, places, strict=True))) == 60
    # Of different classes they are different rows.
    assert split_groups(np.concatenate([X, X[:1]]), np.append(y, 1 - y[0]), []) is None


def test_zeros_are_equal_and_so_are_gaps_and_categories():
    X = np.array([[0.0], [-0.0], [np.nan], [-np.nan], [1.0], [0.0]])
    y = np.array([0, 0, 0, 0, 0, 1])
    for categorical in ([], [0]):
        assert len(set(split_groups(X, y, categorical))) == 4
    values = ["b", None, "a", "c", "b", None]
    plain = pd.DataFrame({"x": pd.Series(values, dtype=object), "n": 1.0})
    known = pd.DataFrame({"x": pd.Categorical(values, categories=["none", "a", "b", "nil", "c"]), "n": 1})
    for frame in (plain, known):
        groups = split_groups(frame, np.array([0, 0, 1, 1, 0, 0]), [0])
        assert groups[0] == groups[4]
        assert groups[1] == groups[5]
        assert len(set(groups)) == 4


def test_draws_of_a_table_of_counts_are_rows():
    """A few categories, of which both classes have all: equal rows are not copies."""
    random = np.random.default_rng(0)
    X, y = random.integers(0, 2, size=(4000, 3)).astype(float), (random.random(4000) < 0.1).astype(np.int64)
    assert split_groups(X, y, []) is None
    numbers = random.normal(size=(4000, 3))
    # Records that were entered twice, or again with another label, are none: no other row comes twice.
    entered = np.concatenate([numbers, numbers[y == 1], numbers[:9]])
    assert split_groups(entered, np.concatenate([y, y[y == 1], 1 - y[:9]]), []) is not None
    again, label = np.concatenate([numbers, numbers[y == 1]]), np.concatenate([y, 0 * y[y == 1]])
    rows, codes, _ = repeated(again, label, np.where(label == 1, 10, 1))
    assert split_groups(rows, codes, []) is not None


def test_copies_of_a_row_are_held_out_together():
    """Positives that come ten times: each would otherwise validate what it trained."""
    X, y = distinct_table(3000, 500)
    rows, codes, places = repeated(X, y, np.where(y == 1, 10, 1))
    groups = split_groups(rows, codes, [])
    train, held = hold_out(codes, "auto", 0.2, np.random.RandomState(0), groups)
    assert sorted([*train, *held]) == list(range(len(codes)))
    assert sides(groups, held)
    assert np.bincount(codes[held]).tolist() == [500, 1_000]
    # A fifth of 399 rows is too few for validation, however often they come.
    few = (places >= 500) | (places < 399)
    assert hold_out(codes[few], "auto", 0.2, np.random.RandomState(0), groups[few]) is None
    assert hold_out(codes[few], "auto", 0.2, np.random.RandomState(0)) is not None
    assert MIN_VALIDATION_ROWS == 80


@given(st.lists(st.integers(1, 9), min_size=4, max_size=60), st.integers(0, 99), st.floats(0.05, 0.9))
@settings(max_examples=150, deadline=None)
def test_splits_by_groups_are_as_even_as_they_can_be(sizes, seed, fraction):
    codes = np.repeat(np.arange(len(sizes)) % 2, sizes)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    train, held = hold_out(codes, True, fraction, np.random.RandomState(seed), groups)
    assert sides(groups, held)
    parts = assign_folds(codes, np.random.RandomState(seed), groups)
    assert len(set(zip(groups.tolist(), parts.tolist(), strict=True))) == len(sizes)
    for k in range(2):
        own, largest = codes == k, max(sizes[k::2])
        for side in (train, held):
            assert (codes[side] == k).any()
        assert abs((codes[held] == k).sum() - fraction * own.sum()) <= 2 * largest
        rows = np.bincount(parts[own], minlength=parts.max() + 1)
        assert rows.min() > 0
        assert rows.max() - rows.min() <= largest
    assert parts.max() + 1 == min(FOLDS, len(sizes) // 2)


def test_groups_of_one_are_rows():
    codes = np.repeat([0, 1], [900, 500])
    alone = np.random.default_rng(0).permutation(1400)
    assert np.array_equal(
        np.bincount(assign_folds(codes, np.random.RandomState(0), alone)[codes == 1]), [100] * FOLDS
    )
    _, held = hold_out(codes, "auto", 0.2, np.random.RandomState(0), alone)
    assert np.bincount(codes[held]).tolist() == [180, 100]


def test_a_row_of_many_copies_does_not_take_the_place_of_others():
    codes = np.repeat([0, 1], [5000, 3999])
    groups = np.concatenate([np.arange(5000), np.repeat(np.arange(5000, 6000), [3000, *[1] * 999])])
    for seed in range(20):
        _, held = hold_out(codes, "auto", 0.2, np.random.RandomState(seed), groups)
        assert len(set(groups[held]) - set(range(5000))) == 200


def test_a_row_of_many_copies_is_not_all_of_the_validation():
    codes = np.repeat([0, 1], [40, 1009])
    groups = np.concatenate([np.arange(40), np.repeat(np.arange(40, 50), [1000, *[1] * 9])])
    for seed in range(20):
        _, held = hold_out(codes, True, 0.2, np.random.RandomState(seed), groups)
        assert (codes[held] == 1).sum() <= 9


def test_copies_of_one_row_cannot_be_split():
    X, y, _ = repeated(*distinct_table(40, 1), np.where(np.arange(40) < 1, 10, 1))
    with pytest.raises(ValueError, match="but one class has 1 of them, copies counted once: pass"):
        DeepClassifier(net="mlp", early_stopping=True, **FAST).fit(X, y)
    with pytest.raises(ValueError, match="a class has one row only, copies counted once: pass eval_set"):
        DeepClassifier(["tbl", "squared"], net="mlp", **FAST).fit(X, y)
    DeepClassifier(net="mlp", **FAST).fit(X, y)


def test_rows_for_evaluation_count_as_often_as_they_come():
    X, y = ring_table(300)
    model = DeepClassifier(net="mlp", **FAST)
    twice = np.repeat(np.arange(300), 2)
    one = model.fit(X, y, eval_set=(X, y)).validation_history_
    other = model.fit(X, y, eval_set=(X[twice], y[twice])).validation_history_
    assert one == pytest.approx(other, abs=1e-9)
