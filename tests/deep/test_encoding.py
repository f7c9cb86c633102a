"""Columns as inputs of a net."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from scipy.special import ndtri

from deep.deep_tables import mixed_frame
from raresight.boosting import LightGBMClassifier
from raresight.common.json_values import pack_values, unpack_values
from raresight.deep import DeepClassifier
from raresight.deep.category_encoder import MISSING, MOST_CATEGORIES, UNSEEN, CategoryEncoder
from raresight.deep.encoding import MOST_KNOTS, NormalScores, TableEncoder, dense_table


def learn(table, categorical=()):
    return TableEncoder.learn(table, list(categorical), np.ones(len(table)))


@pytest.mark.parametrize("rows", [50, 20_000])
def test_numbers_become_normal_whatever_their_distribution(rows):
    values = np.exp(5 * np.random.default_rng(0).normal(size=rows))
    scale = NormalScores.learn(values, np.ones(rows))
    scores = scale.apply(values)
    assert len(scale.knots) <= min(rows, MOST_KNOTS + 2)
    assert scores.mean() == pytest.approx(0, abs=0.01)
    assert scores.std() == pytest.approx(1, abs=0.05)
    assert (np.diff(scores[np.argsort(values)]) >= 0).all()
    # The ends have scores of their own, and nothing lies beyond them.
    assert scores.max() == pytest.approx(ndtri(1 - 0.5 / rows), abs=1e-6)
    assert scale.apply(np.array([1e300, -1.0])).tolist() == [scores.max(), scores.min()]


@pytest.mark.parametrize(
    ("knots", "values", "shares"),
    [
        ([0.0, 1e-312, 1.0], [0.0, 2.5e-313, 5e-313, 1e-312], [0, 0.25, 0.5, 1]),
        ([-5e-324, 0.0, 5e-324], [-5e-324, 0.0], [0, 1]),
        (
            [-1.6e308, 1.6e308],
            [-1.6e308, -0.8e308, 0.0, 0.8e308, 1.6e308, 1.7e308],
            [0, 0.25, 0.5, 0.75, 1, 1],
        ),
    ],
)
def test_knots_at_the_limits_of_float64(knots, values, shares):
    scale = NormalScores.learn(np.array(knots), np.ones(len(knots)))
    low, high = scale.scores[:2]
    assert scale.apply(np.array(values)) == pytest.approx(low + np.array(shares) * (high - low), rel=1e-9)
    assert scale.apply(np.array(knots)).tolist() == scale.scores.tolist()
    assert scale.apply(np.array([np.nan])).tolist() == [0]


def test_ordinary_numbers_are_interpolated_as_numpy_does():
    random = np.random.default_rng(0)
    scale = NormalScores.learn(np.exp(20 * random.normal(size=3000)), np.ones(3000))
    values = np.exp(25 * random.normal(size=3000))
    assert np.array_equal(scale.apply(values), np.interp(values, scale.knots, scale.scores))
    # One segment that is out of range leaves the others as they are.
    mixed = NormalScores(np.append([0.0, 1e-312], scale.knots), np.append([-9.0, -8.0], scale.scores))
    assert np.array_equal(mixed.apply(values), np.interp(values, mixed.knots, mixed.scores))


def test_equal_values_share_the_middle_of_their_ranks():
    scale = NormalScores.learn(np.repeat([0.0, 7.0], [98, 2]), np.ones(100))
    low, high = ndtri(0.49), ndtri(0.99)
    mean = 0.98 * low + 0.02 * high
    assert scale.apply(np.array([0.0, 7.0])) == pytest.approx([low - mean, high - mean])


@pytest.mark.parametrize("most", [40, 5000])
def test_weights_are_repetitions(most):
    random = np.random.default_rng(0)
    values, repeats = random.normal(size=most).round(3), random.integers(1, 4, most)
    weighted = NormalScores.learn(values, repeats.astype(float))
    repeated = NormalScores.learn(np.repeat(values, repeats), np.ones(repeats.sum()))
    assert np.array_equal(weighted.knots, repeated.knots)
    assert weighted.scores == pytest.approx(repeated.scores, abs=1e-12)


def test_columns_that_say_nothing_have_no_input():
    gaps = np.array([np.nan, 1.0, 1.0, 1.0])
    table = np.column_stack([np.full(4, 3.0), np.full(4, np.nan), gaps, np.arange(4.0)])
    coder = learn(table)
    assert coder.origins.tolist() == [2, 3]  # whether there is a gap is all that the third column says
    assert coder.apply(table)[:, 0].tolist() == [1, 0, 0, 0]
    nothing = learn(table[:, :2])
    assert nothing.apply(table[:, :2]).tolist() == [[0.0]] * 4


def test_gaps_are_the_mean_and_an_input():
    column = np.array([[1.0], [2.0], [np.nan], [4.0]])
    assert learn(column).apply(column)[2].tolist() == [0, 1]
    whole = column[[0, 1, 3]]
    assert learn(whole).apply(np.array([[np.nan]])).tolist() == [[0]]  # training had none: no input for it


def test_rare_categories_are_pooled_and_unknown_ones_are_as_the_mean():
    codes = np.concatenate(
        [np.repeat(np.arange(MOST_CATEGORIES), 3), np.arange(MOST_CATEGORIES, MOST_CATEGORIES + 9)]
    )
    column = CategoryEncoder.learn(tuple(range(MOST_CATEGORIES + 9)), codes, np.ones(len(codes)))
    assert column.frequent == tuple(range(MOST_CATEGORIES))
    inputs = column.apply(np.array([4, MOST_CATEGORIES, MOST_CATEGORIES + 8, UNSEEN, MISSING]))
    assert inputs.shape == (5, MOST_CATEGORIES + 1)
    assert inputs.argmax(1)[:3].tolist() == [4, MOST_CATEGORIES, MOST_CATEGORIES]
    assert inputs.sum(1) == pytest.approx([1, 1, 1, 1, 0])
    assert inputs[3] == pytest.approx(column.apply(codes).mean(0))


def test_categories_of_frames():
    frame, _ = mixed_frame(500)
    coder = learn(frame, [1, 2])
    # amount, its gaps; four shops ("nowhere" has no row), their gaps; four codes.
    assert coder.origins.tolist() == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2]
    inputs = coder.apply(frame)
    assert np.array_equal(inputs[:, 6], frame.shop.isna())
    assert inputs[:, 2:6].sum(1) + inputs[:, 6] == pytest.approx(1)
    # By their names, whatever the order in which the frame has them.
    shops = sorted(frame.shop.dropna().unique())
    assert list(frame.shop.cat.categories) != shops
    for place, shop in enumerate(shops):
        assert np.array_equal(inputs[:, 2 + place], frame.shop == shop)
    new = frame.assign(shop=pd.Categorical(["nowhere"] * 500), code=9)
    known = inputs[~frame.shop.isna().to_numpy()]
    assert coder.apply(new)[0, 2:6] == pytest.approx(known[:, 2:6].mean(0))
    assert coder.apply(new)[0, 7:] == pytest.approx(inputs[:, 7:].mean(0))
    assert not coder.apply(new)[:, 6].any()


def test_numbered_categories_are_the_same_in_frames_and_arrays():
    values = np.array([3.0, 1.0, 2.0, 1.0, np.nan])
    frame = pd.DataFrame({"code": pd.Categorical(values, categories=[3.0, 1.0, 2.0])})
    coder = learn(frame, [0])
    assert np.array_equal(coder.apply(values[:, None]), coder.apply(frame))
    assert coder.apply(np.array([[7.0]])).tolist() == [[0.5, 0.25, 0.25, 0]]


def test_text_categories_need_a_frame():
    frame, _ = mixed_frame(50)
    with pytest.raises(ValueError, match="column 1 held text categories in training"):
        learn(frame, [1]).apply(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([1, "a"], "of type int and str"),
        ([1, 2.5], "of type float and int"),
        ([True, "a"], "of type bool and str"),
        (pd.to_datetime(["2026-01-01", "2026-01-02"]), "of type Timestamp"),
        (pd.interval_range(0, 2), "of type Interval"),
        ([2**70, 1], "whole numbers beyond 64 bits"),
    ],
)
def test_categories_that_cannot_be_saved_are_refused(values, said):
    column = pd.Categorical(pd.Series(list(values) * 5, dtype=object))
    frame = pd.DataFrame({"x": np.arange(10.0), "kind": column})
    with pytest.raises(
        ValueError, match=f"categories of column 'kind' are {said}, DeepClassifier takes text"
    ):
        learn(frame, [1])


def test_values_are_packed_as_they_are_or_not_at_all():
    for values in ([1, 2], [1.5, 2.0], [True, False], ["a", "1"], np.array(["a", "b"], dtype=object)):
        again = unpack_values(pack_values(values, "values")).tolist()
        assert again == list(values)
        assert [type(value) for value in again] == [type(value) for value in values]
    for mixed in ([1, "a"], np.array([1, "a"], dtype=object), [1, 2.5], [True, 2], [-1, 2**63], [b"a"]):
        with pytest.raises(ValueError, match=r"values are .* and cannot be saved"):
            pack_values(mixed, "values")


@pytest.mark.parametrize("value", [None, "b"])
def test_columns_of_categories_that_held_nothing_or_one_value_have_no_input(value):
    frame = pd.DataFrame({"x": np.arange(4.0), "kind": pd.Categorical([value] * 4, categories=["a", "b"])})
    coder = learn(frame, [1])
    assert coder.origins.tolist() == [0]
    text = pd.DataFrame({"x": [0.0, 0.0], "kind": ["a", None]})
    assert coder.apply(text).shape == (2, 1)


def test_booleans_are_the_zeros_and_ones_of_training():
    frame = pd.DataFrame({"kind": [0, 1, 1, 0, 1]})
    coder = learn(frame, [0])
    assert np.array_equal(coder.apply(frame.astype(bool)), coder.apply(frame))


def test_written_and_read_again():
    frame, _ = mixed_frame(300)
    coder = learn(frame, [1, 2])
    again = TableEncoder.restore(coder.describe(), coder.arrays())
    assert np.array_equal(again.apply(frame), coder.apply(frame))
    assert np.array_equal(again.origins, coder.origins)


def test_sparse_tables_are_made_dense_up_to_a_size():
    small = sparse.random(5, 4, density=0.5, format="csr", random_state=0)
    assert np.array_equal(dense_table(small), small.toarray())
    with pytest.raises(ValueError, match="sparse with 1048576 x 1024 numbers, but nets take dense rows"):
        dense_table(sparse.csr_matrix((1 << 20, 1 << 10)))


def test_polars_is_read_as_pandas_is():
    from raresight.deep import DeepClassifier

    frame, y = mixed_frame(300)
    options = {"net": "mlp", "width": 8, "max_epochs": 2, "random_state": 0, "n_jobs": 1}
    model = DeepClassifier(**options).fit(frame, y)
    polars = pl.from_pandas(frame)
    again = DeepClassifier(**options).fit(polars, y)
    assert again.feature_names_in_.tolist() == ["amount", "shop", "code"]
    # The order of categories is that of each library; the rows of both differ alike.
    assert model.decision_function(polars) == pytest.approx(model.decision_function(frame), abs=1e-6)
    assert again.decision_function(frame) == pytest.approx(again.decision_function(polars), abs=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_categories_that_float64_cannot_tell_apart_are_refused_in_arrays(dtype):
    X = np.array([[2**53 + 2, 1], [5, 2], [2**53 + 3, 1], [5, 2]], dtype=dtype)
    y = [1, 0, 1, 0]
    model = DeepClassifier(net="mlp", width=4, max_epochs=1, early_stopping=False, categorical_features=[0])
    with pytest.raises(ValueError, match=r"column 0 of X is categorical .* beyond 2\^53, .* pass"):
        model.fit(X, y)
    # As numbers they may be rounded; in a DataFrame they stay different.
    model.set_params(categorical_features=[1]).fit(X, y)
    model.set_params(categorical_features=["a"]).fit(pd.DataFrame(X, columns=["a", "b"]), y)
    assert model._encoder.columns[0].categories.known == (5, 2**53 + 2, 2**53 + 3)
    with pytest.raises(ValueError, match="column 0 of X is categorical"):
        LightGBMClassifier(n_estimators=1).fit(X, y, categorical_feature=[0])
