"""Rows that training sees are those of the weighted set of rows, in an order of their own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from deep.deep_tables import mixed_frame, ring_table
from raresight.deep import DeepClassifier, counted_rows
from raresight.deep.counted_rows import count_rows, rows_at
from raresight.deep.epoch_selection import PARTS, parts_of
from raresight.deep.validation import MIN_VALIDATION_ROWS, hold_out

FAST = {"width": 8, "max_epochs": 2, "random_state": 0, "n_jobs": 1}
VALUES = [0.0, -0.0, 1.0, -3.5, float("nan"), -float("nan")]


def counted(X, codes, weights=None, categorical=()):
    """What training would see: rows, classes, weights and groups."""
    found = count_rows(X, codes, weights, list(categorical))
    return rows_at(X, found.places), codes[found.places], found.weights, found.groups


def assert_same(one, other):
    for first, second in zip(one, other, strict=True):
        assert (first is None) == (second is None)
        if isinstance(first, pd.DataFrame):
            pd.testing.assert_frame_equal(first.reset_index(drop=True), second.reset_index(drop=True))
        elif first is not None:
            assert np.array_equal(first, second, equal_nan=True)


def distinct_table(rows=60, positives=12, columns=3):
    X = np.random.default_rng(0).normal(size=(rows, columns))
    return X, (np.arange(rows) < positives).astype(np.int64)


@st.composite
def tables(draw, whole=True):
    """A few rows of few values, with class numbers and weights above 0."""
    rows = draw(st.integers(2, 12))
    X = draw(
        st.lists(st.lists(st.sampled_from(VALUES), min_size=2, max_size=2), min_size=rows, max_size=rows)
    )
    codes = [0, 1, *draw(st.lists(st.integers(0, 1), min_size=rows - 2, max_size=rows - 2))]
    weight = st.integers(1, 6).map(float) if whole else st.floats(0.01, 10)
    weights = draw(st.lists(weight, min_size=rows, max_size=rows))
    order = draw(st.permutations(range(rows)))
    return np.array(X), np.array(codes), np.array(weights), np.array(order)


def as_frame(X):
    """The same as numbers and as text."""
    text = pd.Series(X[:, 1]).map(lambda x: None if np.isnan(x) else f"level {x + 0.0}")
    return pd.DataFrame({"number": X[:, 0], "text": pd.Categorical(text)})


@given(tables())
@settings(max_examples=150, deadline=None)
def test_a_weight_is_so_many_rows_in_any_order(table):
    X, codes, weights, order = table
    times = np.repeat(np.arange(len(codes)), weights.astype(int))
    for rows, categorical in ((X, []), (X, [1]), (as_frame(X), [1])):
        weighted = counted(rows_at(rows, order), codes[order], weights[order], categorical)
        assert_same(weighted, counted(rows_at(rows, times), codes[times], None, categorical))
        assert_same(weighted, counted(rows_at(rows, times[::-1]), codes[times[::-1]], None, categorical))


@given(tables(whole=False))
@settings(max_examples=150, deadline=None)
def test_the_order_of_rows_does_not_matter(table):
    """Nor does it for fractions, whose sums depend on their order."""
    X, codes, weights, order = table
    for own in (weights, None):
        shuffled = None if own is None else own[order]
        assert_same(counted(X, codes, own), counted(X[order], codes[order], shuffled))


@given(tables())
@settings(max_examples=150, deadline=None)
def test_no_row_is_lost_and_proportions_stay(table):
    X, codes, weights, _ = table
    rows, classes, own, _ = counted(X, codes, weights)
    own = np.ones(len(classes)) if own is None else own

    def shares(rows, classes, weights):
        found = {}
        for row, k, weight in zip(rows, classes, weights, strict=True):
            key = (*np.where(np.isnan(row), 99, row + 0.0).tolist(), int(k))
            found[key] = found.get(key, 0) + weight / weights.sum()
        return found

    assert shares(rows, classes, own) == pytest.approx(shares(X, codes, weights))


def test_rows_without_copies_are_only_put_in_order():
    X, y = distinct_table()
    found = count_rows(X, y, None, [])
    assert sorted(found.places) == list(range(60))
    assert found.weights is None
    assert found.groups is None
    weights = np.random.default_rng(0).random(60)
    same = count_rows(X, y, weights, [])
    assert np.array_equal(same.places, found.places)
    assert np.array_equal(same.weights, weights[found.places])
    assert same.groups is None
    for equal in (np.full(60, 0.1), np.full(60, 7.0), np.full(60, 1e307)):
        assert_same(counted(X, y, equal), counted(X, y))
    # Columns and the class have places of their own in the hash.
    assert not np.array_equal(count_rows(X[:, ::-1], y, None, []).places, found.places)
    assert not np.array_equal(count_rows(X, 1 - y, None, []).places, found.places)


def test_zeros_are_equal_and_so_are_gaps():
    X = np.array([[0.0], [-0.0], [np.nan], [-np.nan], [1.0], [0.0]])
    weights = np.array([0.1, 0.25, 0.3, 0.15, 0.2, 0.7])
    for categorical in ([], [0]):
        rows, codes, own, _ = counted(X, np.array([0, 0, 0, 0, 0, 1]), weights, categorical)
        assert len(rows) == 4
        found = {str((abs(x), k)): w for (x,), k, w in zip(rows.tolist(), codes.tolist(), own, strict=True)}
        assert found == pytest.approx(
            {"(0.0, 0)": 0.35, "(nan, 0)": 0.45, "(1.0, 0)": 0.2, "(0.0, 1)": 0.7}, rel=1e-12
        )


def test_sums_of_fractions_do_not_depend_on_the_order():
    X, y = np.repeat([[1.0], [2.0], [3.0]], [8, 8, 1], axis=0), np.repeat([0, 0, 1], [8, 8, 1])
    weights = np.random.default_rng(0).random(17)
    orders = [np.random.default_rng(seed).permutation(17) for seed in range(50)]
    assert len({weights[:8][order[order < 8]].cumsum()[-1] for order in orders}) > 1
    for order in orders:
        assert_same(counted(X, y, weights), counted(X[order], y[order], weights[order]))


def test_types_of_numbers_do_not_matter():
    X, y = np.random.default_rng(0).integers(-5, 5, size=(200, 4)), np.arange(200) % 2
    expected = counted(X.astype(float), y)
    for other in (X.astype(np.float32), np.asfortranarray(X.astype(float)), pd.DataFrame(X).to_numpy(float)):
        assert_same(expected, counted(other, y))
    framed = counted(pd.DataFrame(X), y)
    assert np.array_equal(framed[0].to_numpy(float), expected[0])


def test_many_blocks_are_one_table(monkeypatch):
    X, y = ring_table(1000)
    expected = counted(X, y)
    monkeypatch.setattr(counted_rows, "_BLOCK", 7)
    assert_same(expected, counted(X, y))


@pytest.mark.parametrize("factor", [1.0, 10.0, 0.5, 2.0**900, 2.0**-900])
def test_of_weights_without_draws_only_proportions_count(factor):
    X, y = distinct_table()
    weights = np.random.default_rng(0).integers(1, 4, 60) * 1.0
    found = counted(X, y, factor * weights)
    assert len(found[0]) == weights.sum()
    assert found[2] is None
    assert sorted(np.bincount(found[3])) == sorted(weights)
    assert_same(found, counted(X, y, weights))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_fractions_are_no_counts(kind):
    """Though all floats are whole multiples of some power of two."""
    X, y = distinct_table()
    weights = np.random.default_rng(0).random(60).astype(kind).astype(float)
    rows, _, own, groups = counted(X, y, weights)
    assert len(rows) == 60
    assert groups is None
    assert own.max() < 1
    # Twice in the table: the sum of both.
    twice = counted(np.concatenate([X, X]), np.concatenate([y, y]), np.concatenate([weights, weights]))
    assert_same((rows, own), (twice[0], twice[2]))


def test_too_many_copies_stand_for_several(monkeypatch):
    monkeypatch.setattr(counted_rows, "_MOST_COPIES", 100)
    X, y = distinct_table(10, 4)
    weights = np.array([1.0, 2, 3, 50, 200, 400, 1000, 1, 1, 1])
    rows, codes, own, groups = counted(X, y, weights)
    assert 100 <= len(rows) <= 110
    for row, weight in zip(X, weights, strict=True):
        copies = (rows == row).all(1)
        assert len(set(groups[copies])) == 1
        assert own[copies].sum() / own.sum() == pytest.approx(weight / weights.sum())
    assert np.bincount(codes, own)[1] / own.sum() == pytest.approx(weights[:4].sum() / weights.sum())
    # Nor a bound below twice the distinct rows.
    monkeypatch.setattr(counted_rows, "_MOST_COPIES", 1)
    assert 20 <= len(counted(X, y, weights)[0]) <= 30
    assert len(counted(X, y, np.array([2.0] * 5 + [1.0] * 5))[0]) == 15


def test_copies_of_many_rows_are_few():
    """Weights of 100 on all but one in a hundred must not make an epoch a hundred times as long."""
    X, y = distinct_table(10_000, 100)
    weights = np.where(y == 1, 1.0, 100.0)
    rows, codes, own, groups = counted(X, y, weights)
    assert 19_000 <= len(rows) <= 21_000
    assert np.bincount(codes, own)[1] / own.sum() == pytest.approx(100 / weights.sum())
    assert len(set(groups)) == 10_000


def test_draws_are_as_many_as_they_are(monkeypatch):
    """A table of few categories, with rows that both classes share."""
    X = np.random.default_rng(0).integers(0, 3, size=(30_000, 2)).astype(float)
    y = np.arange(30_000) % 2
    rows, _, own, groups = counted(X, y)
    assert len(rows) == 30_000
    assert own is None
    assert groups is None
    monkeypatch.setattr(counted_rows, "_MOST_DRAWS", 1_000)
    rows, codes, own, groups = counted(X, y)
    assert 990 <= len(rows) <= 1_010
    assert groups is None
    assert np.bincount(codes, own) / own.sum() == pytest.approx([0.5, 0.5])


def test_rows_with_one_hash_are_told_apart(monkeypatch):
    def same_hash(hashes, keys):
        hashes[:] = 7

    X = np.random.default_rng(0).integers(0, 3, size=(300, 2)).astype(float)
    X[::5, 1] = np.nan
    y, weights = np.arange(300) % 2, np.random.default_rng(1).random(300)
    order = np.random.default_rng(2).permutation(300)
    frame = as_frame(X)

    def contents(rows):
        return sorted(map(repr, pd.DataFrame(rows[0]).assign(y=rows[1], w=rows[2]).itertuples(index=False)))

    expected = [contents(counted(X, y)), contents(counted(frame, y, None, [1]))]
    monkeypatch.setattr(counted_rows, "_stir", same_hash)
    assert [contents(counted(X, y)), contents(counted(frame, y, None, [1]))] == expected
    for own in (None, weights):
        shuffled = None if own is None else own[order]
        assert_same(counted(X, y, own), counted(X[order], y[order], shuffled))


def test_categories_that_no_row_has_do_not_matter():
    y = np.array([0, 0, 1, 1, 0])
    values = ["b", None, "a", "c", "b"]
    plain = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    known = pd.DataFrame({"x": pd.Categorical(values, categories=["none", "a", "b", "nil", "c"])})
    one, other = (count_rows(frame, y, None, [0]) for frame in (plain, known))
    assert np.array_equal(one.places, other.places)
    assert np.array_equal(one.groups, other.groups)
    assert sorted(one.places.tolist()) in ([0, 0, 1, 2, 3], [1, 2, 3, 4, 4])


# ---- splits ------------------------------------------------------------------------------


def sides(groups, held):
    """Whether no group is on both sides."""
    inside = np.zeros(len(groups), dtype=bool)
    inside[held] = True
    return not set(groups[inside]) & set(groups[~inside])


def test_copies_of_a_row_are_held_out_together():
    """Positives of weight 10: each would else judge what it trained."""
    X, y = distinct_table(3000, 500)
    _, codes, own, groups = counted(X, y, np.where(y == 1, 10.0, 1.0))
    assert own is None
    train, held = hold_out(codes, "auto", 0.2, np.random.RandomState(0), groups)
    assert sorted([*train, *held]) == list(range(len(codes)))
    assert sides(groups, held)
    assert np.bincount(codes[held]).tolist() == [500, 1_000]
    # A fifth of 399 rows is too few to judge by, however often they come.
    few = groups < np.flatnonzero(np.cumsum(np.bincount(groups) > 1) == 399)[0] + 1
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
    parts = parts_of(codes, np.random.RandomState(seed), groups)
    assert len(set(zip(groups.tolist(), parts.tolist(), strict=True))) == len(sizes)
    for k in range(2):
        own, largest = codes == k, max(sizes[k::2])
        for side in (train, held):
            assert (codes[side] == k).any()
        assert abs((codes[held] == k).sum() - fraction * own.sum()) <= 2 * largest
        rows = np.bincount(parts[own], minlength=parts.max() + 1)
        assert rows.min() > 0
        assert rows.max() - rows.min() <= largest
    assert parts.max() + 1 == min(PARTS, len(sizes) // 2)


def test_groups_of_one_are_rows():
    codes = np.repeat([0, 1], [900, 500])
    alone = np.random.default_rng(0).permutation(1400)
    assert np.array_equal(
        np.bincount(parts_of(codes, np.random.RandomState(0), alone)[codes == 1]), [100] * PARTS
    )
    _, held = hold_out(codes, "auto", 0.2, np.random.RandomState(0), alone)
    assert np.bincount(codes[held]).tolist() == [180, 100]


def test_a_heavy_row_does_not_take_the_place_of_others():
    codes = np.repeat([0, 1], [5000, 3999])
    groups = np.concatenate([np.arange(5000), np.repeat(np.arange(5000, 6000), [3000, *[1] * 999])])
    for seed in range(20):
        _, held = hold_out(codes, "auto", 0.2, np.random.RandomState(seed), groups)
        assert len(set(groups[held]) - set(range(5000))) == 200


def test_a_heavy_row_is_not_all_of_the_validation():
    codes = np.repeat([0, 1], [40, 1009])
    groups = np.concatenate([np.arange(40), np.repeat(np.arange(40, 50), [1000, *[1] * 9])])
    for seed in range(20):
        _, held = hold_out(codes, True, 0.2, np.random.RandomState(seed), groups)
        assert (codes[held] == 1).sum() <= 9


def test_copies_of_one_row_cannot_be_split():
    X, y = distinct_table(40, 1)
    weights = np.where(y == 1, 10.0, 1.0)
    with pytest.raises(ValueError, match="every class, but one has 1 of them, copies aside: pass eval_set"):
        DeepClassifier(net="mlp", early_stopping=True, **FAST).fit(X, y, weights)
    with pytest.raises(ValueError, match="a class has one row only, copies aside: pass eval_set"):
        DeepClassifier(["tbl", "squared"], net="mlp", **FAST).fit(X, y, weights)
    DeepClassifier(net="mlp", **FAST).fit(X, y, weights)


def test_draws_of_a_table_of_counts_are_rows():
    """A few categories, of which both classes have all: equal rows are not copies."""
    random = np.random.default_rng(0)
    X, y = random.integers(0, 2, size=(4000, 3)).astype(float), (random.random(4000) < 0.1).astype(np.int64)
    rows, codes, own, groups = counted(X, y)
    assert len(rows) == 4000
    assert own is None
    assert groups is None
    assert np.array_equal(np.bincount(codes), np.bincount(y))
    # Their number is what it is: twice as many rows tell more.
    twice = counted(X, y, np.full(4000, 2.0))
    assert len(twice[0]) == 8000
    # Weights as large, on rows that differ, are no draws.
    numbers = random.normal(size=(4000, 3))
    assert counted(numbers, y, random.integers(2, 9, 4000) * 1.0)[3] is not None
    # A record that was entered again with another label is none either: no other row comes twice.
    again = np.concatenate([numbers, numbers[y == 1]])
    label = np.concatenate([y, 0 * y[y == 1]])
    assert counted(again, label, np.where(label == 1, 10.0, 1.0))[3] is not None
    # Nor are records that were entered twice; a few rows that classes share do not make them so.
    entered = np.concatenate([numbers, numbers[y == 1], numbers[:9]])
    labels = np.concatenate([y, y[y == 1], 1 - y[:9]])
    assert counted(entered, labels)[3] is not None


@pytest.mark.parametrize("weight", [0.1, 1 / 3, 3.7, 1e-300])
def test_constant_weights_are_none(weight):
    """Though sums of fractions are rounded: in a table of counts, and where records come twice."""
    random = np.random.default_rng(0)
    y = (random.random(4000) < 0.1).astype(np.int64)
    numbers = random.normal(size=(4000, 3))
    numbers[2000:3000] = numbers[:1000]
    numbers[3000:3500] = numbers[:500]
    for X in (random.integers(0, 2, size=(4000, 3)).astype(float), numbers):
        assert_same(counted(X, y), counted(X, y, np.full(4000, weight)))


def test_fractions_do_not_make_a_table_of_counts_small():
    random = np.random.default_rng(0)
    X, y = random.integers(0, 2, size=(4000, 3)).astype(float), (random.random(4000) < 0.1).astype(np.int64)
    weights = random.random(4000) + 0.5
    rows, _, own, groups = counted(X, y, weights)
    assert len(rows) == 4000
    assert groups is None
    assert own.sum() / own.max() == pytest.approx(weights.sum() / weights.max())
    order = random.permutation(4000)
    assert_same((rows, own), counted(X[order], y[order], weights[order])[::2])


def test_the_order_of_categories_does_not_matter():
    """Arrow orders those of a dictionary by where they come first."""
    random = np.random.default_rng(0)
    words = np.array(["b", "a", "c"])[random.integers(0, 3, 300)]
    X, y = random.normal(size=300), (random.random(300) < 0.3).astype(np.int64)
    order = random.permutation(300)
    models = []
    for places in (np.arange(300), order):
        table = pa.table({"x": X[places], "word": pa.array(words[places]).dictionary_encode()}).to_pandas()
        models.append(DeepClassifier(net="mlp", **FAST).fit(table, y[places]))
    orders = [list("abc"), list("cab")]
    for categories in orders:
        frame = pd.DataFrame({"x": X, "word": pd.Categorical(words, categories=categories)})
        models.append(DeepClassifier(net="mlp", **FAST).fit(frame, y))
    for other in models[1:]:
        assert_same_model(models[0], other, frame)


# ---- nets --------------------------------------------------------------------------------


def assert_same_model(one, other, X):
    for name, stack in one.nets_.weights.items():
        assert np.array_equal(stack, other.nets_.weights[name]), name
    assert np.array_equal(one.predict_log_odds(X), other.predict_log_odds(X))
    assert one.score_scale_ == other.score_scale_
    assert np.array_equal(one.score_shift_, other.score_shift_)
    assert np.array_equal(one.feature_importances_, other.feature_importances_)
    assert one.validation_scores_ == other.validation_scores_


def given_table(kind):
    if kind == "frame":
        return mixed_frame(400)
    X, y = ring_table(400)
    X[:, 2] = np.random.default_rng(0).choice([0.0, -0.0, 1.0, 2.0], 400)
    if kind == "array":
        X[::7, 1] = np.nan
    return (sparse.csr_matrix(X) if kind == "sparse" else X), y


@pytest.mark.parametrize("kind", ["array", "frame", "sparse"])
@pytest.mark.parametrize("early_stopping", [True, False, "auto"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_model_is_the_same_in_every_order_of_rows(kind, early_stopping, weighted):
    X, y = given_table(kind)
    order = np.random.default_rng(1).permutation(400)
    weights = np.random.default_rng(2).random(400) if weighted else None
    options = {**FAST, "net": "mlp", "early_stopping": early_stopping, "n_seeds": 2}
    model = DeepClassifier(**options).fit(X, y, weights)
    shuffled = DeepClassifier(**options).fit(
        rows_at(X, order), y[order], None if weights is None else weights[order]
    )
    assert_same_model(model, shuffled, X)


@pytest.mark.parametrize("net", ["mlp", "tabm", "tabnet"])
@pytest.mark.parametrize("early_stopping", [True, False, "auto"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_weight_of_two_is_the_row_twice_bit_for_bit(net, early_stopping, classes):
    """With categories, gaps, dropout, batch norm and parts in turn; balanced weights ask for class sizes."""
    X, y = mixed_frame(200)
    labels = y if classes == 2 else y + 2 * (np.arange(200) % 5 == 1) * (1 - y)
    weights = np.random.default_rng(0).integers(0, 5, 200)
    order = np.random.default_rng(1).permutation(weights.sum())
    times = np.repeat(np.arange(200), weights)[order]
    options = {**FAST, "net": net, "early_stopping": early_stopping, "class_weight": "balanced"}
    model = DeepClassifier(**options).fit(X, labels, weights)
    repeated = DeepClassifier(**options).fit(X.iloc[times], labels[times])
    assert_same_model(model, repeated, X)


def test_rows_for_evaluation_stay_as_they_are():
    X, y = ring_table(300)
    model = DeepClassifier(net="mlp", **FAST)
    twice = np.repeat(np.arange(300), 2)
    one = model.fit(X, y, eval_set=(X, y)).validation_history_
    other = model.fit(X, y, eval_set=(X[twice], y[twice])).validation_history_
    assert one == pytest.approx(other, abs=1e-9)
