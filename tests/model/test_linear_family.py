"""Features of linear models: imputation, heavy tails, categories."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse
from scipy.special import expit

from model.model_tables import coded_table
from raresight.linear import LinearClassifier
from raresight.metrics import partial_auc, roc_auc
from raresight.model.families import Candidate, fit_candidates
from raresight.model.linear_family import CategoryCodes, LinearFeatures, NumericColumn, load

NUMBERS = st.floats(allow_infinity=False, width=64)


def dense(features):
    return features.toarray() if sparse.issparse(features) else features


def test_numbers_are_centred_and_missing_ones_are_the_median():
    X = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [np.nan, 5.0], [3.0, 5.0], [9.0, 5.0]])
    features = LinearFeatures.learn(X, [], [])
    assert features.numeric[0] == NumericColumn(0, 2.0, pytest.approx(2 / 1.349), heavy=False, indicator=True)
    assert features.numeric[1] == NumericColumn(1, 5.0, 1.0, heavy=False, indicator=False)
    table = features.apply(X)
    assert features.names == ("0", "1", "0 missing")
    assert table[:, 0] == pytest.approx(np.array([-2, -1, 0, 0, 1, 7]) * 1.349 / 2)
    assert table[:, 1].tolist() == [0.0] * 6
    assert table[:, 2].tolist() == [0, 0, 0, 1, 0, 0]
    # New rows may lack what training had: the median, without an indicator to learn from.
    assert features.apply(np.array([[2.0, np.nan]])).tolist() == [[0.0, 0.0, 0.0]]


def test_nothing_is_learned_from_the_rows_scored():
    table = coded_table(2000)
    features = LinearFeatures.learn(table.X[:1000], table.categorical, table.n_categories)
    alone = dense(features.apply(table.X[1000:]))
    assert np.array_equal(alone, dense(features.apply(table.X))[1000:])


def test_heavy_tails_are_folded_and_keep_their_order():
    rng = np.random.default_rng(0)
    x = rng.standard_cauchy(5000)
    X = np.column_stack([x, rng.normal(size=5000)])
    features = LinearFeatures.learn(X, [], [])
    assert [column.heavy for column in features.numeric] == [True, False]
    folded = features.apply(X)[:, 0]
    assert np.array_equal(np.argsort(folded, kind="stable"), np.argsort(x, kind="stable"))
    assert np.abs(folded).max() < 12
    assert np.corrcoef(folded[np.abs(x) < 1], x[np.abs(x) < 1])[0, 1] > 0.98


def test_many_equal_values_are_measured_by_the_others():
    x = np.zeros(1000)
    x[:100] = np.arange(100)
    column = LinearFeatures.learn(x[:, None], [], []).numeric[0]
    assert (column.centre, column.scale, column.heavy) == (0.0, 50.0, False)
    x[0] = 1e6
    assert LinearFeatures.learn(x[:, None], [], []).numeric[0].heavy


@pytest.mark.parametrize("loss", ["crossentropy", "tbl"])
def test_folding_helps_where_tails_are_heavy_and_leaves_others_alone(loss):
    rng = np.random.default_rng(0)
    n = 20_000
    normal = rng.normal(size=(n, 3))
    y = rng.random(n) < expit(2 * normal[:, 0] - 6)
    heavy = normal.copy()
    heavy[:, 0] = np.exp(3 * normal[:, 0])  # the same order with a tail of e^12
    half = np.arange(n) < n // 2

    def found(X, fold):
        features = LinearFeatures.learn(X[half], [], [])
        assert any(column.heavy for column in features.numeric) == (X is heavy)
        plain = X if not fold else features.apply(X)
        model = LinearClassifier(loss).fit(plain[half], y[half])
        return partial_auc(y[~half], model.decision_function(plain[~half]), max_fpr=0.05)

    assert found(heavy, True) > found(heavy, False) + 0.005
    assert found(normal, True) == pytest.approx(found(normal, False), abs=1e-9)


def test_rare_unknown_and_missing_categories_have_no_column():
    codes = np.repeat([0.0, 1.0, 2.0, np.nan], [100, 19, 20, 5])[:, None]
    features = LinearFeatures.learn(codes, [0], [5])
    assert features.levels == (CategoryCodes(0, (0, 2)),)
    new = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [np.nan]])
    assert dense(features.apply(new)).tolist() == [[1, 0], [0, 0], [0, 1], [0, 0], [0, 0], [0, 0]]


def test_many_categories_are_sparse_and_the_same_as_dense():
    table = coded_table(2000)
    features = LinearFeatures.learn(table.X, table.categorical, table.n_categories)
    made = features.apply(table.X)
    assert sparse.issparse(made)
    assert made.has_canonical_format
    few = LinearFeatures.learn(table.X, (3,), (6,))
    assert isinstance(few.apply(table.X), np.ndarray)
    coef = np.random.default_rng(0).normal(size=features.n_features)
    assert features.scores(table.X, coef, 0.5) == pytest.approx(made @ coef + 0.5, abs=1e-5)
    places = np.array(features.origins)
    for j in (3, 4):
        one_hot = dense(made)[:, places == j]
        level = dict(zip(features.levels[j - 3].codes, one_hot.T))
        for code, column in level.items():
            assert np.array_equal(column, table.X[:, j] == code)


def test_only_rare_categories_leave_a_constant_model():
    codes = np.arange(100.0)[:, None]
    y = np.arange(100) < 10
    (fitted,) = fit_candidates([Candidate("linear", "tbl")], codes, y, [0], [100])
    assert expit(fitted.log_odds(codes)) == pytest.approx(np.full(100, 0.1))
    assert fitted.importance().tolist() == [0.0]


def bent_table(n=6000):
    """A bend, a heavy tail with an atom, a flag, three values, missing values, a category."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    sums = np.where(rng.random(n) < 0.8, 0.0, np.exp(3 * rng.normal(size=n)))
    holes = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    X = np.column_stack([x, sums, x > 0, rng.integers(0, 3, n), holes, rng.integers(0, 4, n)])
    y = rng.random(n) < expit(3 * np.abs(x) - 7)
    return X, y


def test_knots_bend_numeric_columns():
    X, _ = bent_table()
    features = LinearFeatures.learn(X, [5], [4], knots=5)
    assert [len(column.knots) for column in features.numeric] == [5, 5, 0, 1, 5]
    assert features.names[5:8] == ("4 missing", "0 bend 1", "0 bend 2")
    assert features.n_features == 5 + 1 + 16 + 4
    made = dense(features.apply(X))
    # Most of the second column is zero, yet its knots lie among the others, on the scale of logarithms.
    bends = made[:, 11:16]
    assert ((bends > 0).mean(axis=0) > 0).all()
    assert (np.diff((bends > 0).mean(axis=0)) < 0).all()
    assert made[:, 6] == pytest.approx(np.maximum(made[:, 0] - features.numeric[0].knots[0], 0), abs=1e-6)
    coef = np.random.default_rng(1).normal(size=features.n_features)
    assert features.scores(X, coef, 0.5) == pytest.approx(made @ coef + 0.5, abs=1e-5)
    assert features.scores(X[7:8], coef, 0.5)[0] == features.scores(X, coef, 0.5)[7]


def test_many_columns_have_fewer_knots():
    X = np.random.default_rng(0).normal(size=(100, 200))
    assert LinearFeatures.learn(X, [], [], knots=8).n_features == 400
    X[:, 40:] = X[:, 40:] > 0  # no room is kept for columns that cannot bend
    assert LinearFeatures.learn(X, [], [], knots=5).n_features == 400
    assert LinearFeatures.learn(X, [], [], knots=4).n_features == 360
    wide = np.random.default_rng(0).normal(size=(100, 600))
    assert LinearFeatures.learn(wide, [], [], knots=8).n_features == 600


@pytest.mark.parametrize("loss", ["crossentropy", "tbl"])
def test_a_model_with_knots_follows_a_bend(loss, tmp_path):
    X, y = bent_table()
    candidates = [Candidate("linear", loss, (("knots", knots),)) for knots in (0, 5, 0)]
    fits = fit_candidates(candidates, X[:3000], y[:3000], [5], [4])
    assert [fitted.candidate for fitted in fits] == candidates
    plain, bent, again = (roc_auc(y[3000:], fitted.log_odds(X[3000:])) for fitted in fits)
    assert plain == again < 0.6
    assert bent > 0.8
    share = fits[1].importance()
    assert share.shape == (6,)
    assert share.sum() == pytest.approx(1)
    assert share.argmax() == 0
    fits[1].save(tmp_path)
    back = load(tmp_path, "linear")
    assert back.features == fits[1].part.features
    assert np.array_equal(back.scores(X, None), fits[1].scores(X))
    for knots in ([1.0, 0.5], [0.0, float("nan")], ["a"], 3):
        described = json.loads((tmp_path / "linear.json").read_text())
        described["features"]["numeric"][0]["knots"] = knots
        (tmp_path / "linear.json").write_text(json.dumps(described))
        with pytest.raises(ValueError, match="is not a linear model of raresight"):
            load(tmp_path, "linear")


@pytest.mark.parametrize("loss", ["crossentropy", "squared", "tbl", "vectorscaling(delta=0.5)"])
@pytest.mark.parametrize("prior", [1e-2, 1e-5])
def test_l2_means_the_same_at_every_prior_and_for_every_loss(loss, prior):
    """The share of the curvature by which a weak effect is shrunk: to 1/(1 + l2)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 1))
    effect = 0.05 * X[:, 0]
    p = prior * np.exp(effect)
    rows, y, weights = np.vstack([X, X]), np.repeat([0, 1], 4000), np.concatenate([1 - p, p])
    candidates = [Candidate("linear", loss, (("l2", l2),)) for l2 in (1e-4, 1.0)]
    free, held = (
        np.polyfit(effect, fitted.log_odds(X), 1)[0]
        for fitted in fit_candidates(candidates, rows, y, [], [], weights=weights)
    )
    assert 0.97 < free < 1.03
    # Half of it for cross entropy. Losses that curve more at the start than at even odds are held less.
    assert 0.45 < held < 0.8


def test_extreme_numbers_stay_finite():
    X = np.array([[-1.7e308, 1e-300], [1.7e308, 2e-300], [0.0, -1e300], [1.0, np.nan], [2.0, 5e-324]] * 10)
    features = LinearFeatures.learn(X, [], [])
    made = features.apply(X)
    assert np.isfinite(made).all()
    y = np.arange(50) % 10 == 0
    model = LinearClassifier("crossentropy", l2=1e-2).fit(made, y)
    assert np.isfinite(model.coef_).all()
    assert roc_auc(y, features.scores(X, model.coef_[0], model.intercept_[0])) > 0.9
    single = LinearFeatures.learn(np.ones((50, 1), np.float32), [], [])
    assert np.isfinite(single.apply(np.array([[3e38]], np.float32))).all()


def test_refused():
    X = np.ones((30, 2))
    features = LinearFeatures.learn(X, [], [])
    with pytest.raises(ValueError, match="has 2 columns"):
        features.apply(X[:, :1])
    with pytest.raises(ValueError, match="column 1 holds infinite values"):
        LinearFeatures.learn(np.array([[1.0, np.inf], [1.0, 2.0]]), [], [])
    with pytest.raises(ValueError, match="column 0 has 1 categories, but codes from 1 to 1"):
        LinearFeatures.learn(X, [0], [1])
    described = features.to_dict()
    described["numeric"] = described["numeric"][:1]
    with pytest.raises(ValueError, match="do not describe each of 2 columns once"):
        LinearFeatures.from_dict(described)


@given(
    arrays(np.float64, st.tuples(st.integers(1, 60), st.just(3)), elements=NUMBERS),
    st.booleans(),
    st.integers(0, 4),
)
def test_json_round_trip_is_exact(X, coded, knots):
    categorical, n_categories = ([1], [4]) if coded else ([], [])
    if coded:
        X[:, 1] = np.where(np.isnan(X[:, 1]), np.nan, np.abs(np.nan_to_num(X[:, 1])) % 4 // 1)
    features = LinearFeatures.learn(X, categorical, n_categories, knots)
    back = LinearFeatures.from_dict(json.loads(json.dumps(features.to_dict(), allow_nan=False)))
    assert back == features
    one, two = dense(features.apply(X)), dense(back.apply(X))
    assert np.array_equal(one, two)
    assert np.isfinite(one).all()
