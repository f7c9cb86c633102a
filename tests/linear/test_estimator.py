"""The classifier among scikit-learn's tools, and its answers to bad input."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from raresight.linear import LinearClassifier
from raresight.losses import LDAM, TBL, Alpha, ClassWeighted, CrossEntropy, LogitAdjusted, VectorScaling
from raresight.metrics.scorers import scorer


@parametrize_with_checks(
    [
        LinearClassifier(),
        LinearClassifier("crossentropy", solver="lbfgs"),
        LinearClassifier(l1=1e-3),
        LinearClassifier("focal", l2=1e-2),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def data(n=1500):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, (rng.random(n) < expit(2 * X[:, 0] - 3)).astype(int)


def test_in_a_pipeline_and_a_grid():
    X, y = data()
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), LinearClassifier()),
        {
            "linearclassifier__loss": ["tbl", TBL(0.6, 1.0), "crossentropy"],
            "linearclassifier__l2": [1e-4, 1e-1],
        },
        scoring=scorer("partial_auc", max_fpr=0.1),
        cv=3,
    ).fit(X, y)
    assert grid.best_score_ > 0.6
    assert cross_val_score(LinearClassifier(), X, y, scoring="average_precision", cv=3).min() > 0.3


def test_calibrated_classifier_has_little_to_do():
    X, y = data(6000)
    ours = LinearClassifier("tbl").fit(X, y).predict_proba(X)[:, 1]
    theirs = CalibratedClassifierCV(LinearClassifier("tbl"), cv=3).fit(X, y).predict_proba(X)[:, 1]
    assert np.abs(ours - theirs).mean() < 0.01


def test_set_output_before_the_classifier():
    X, y = data()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    prepare = ColumnTransformer([("scale", StandardScaler(), ["a", "b"])], remainder="passthrough")
    model = make_pipeline(prepare, LinearClassifier()).set_output(transform="pandas").fit(frame, y)
    assert model[-1].feature_names_in_.tolist() == ["scale__a", "scale__b", "remainder__c"]


def test_frames_of_pandas_and_polars():
    X, y = data()
    model = LinearClassifier().fit(X, y)
    for frame, labels in (
        (pd.DataFrame(X, columns=list("abc")), pd.Series(y)),
        (pl.DataFrame(X, schema=list("abc")), pl.Series(y)),
    ):
        other = LinearClassifier().fit(frame, labels)
        assert other.feature_names_in_.tolist() == ["a", "b", "c"]
        assert other.coef_ == pytest.approx(model.coef_)
        assert other.predict_proba(frame) == pytest.approx(model.predict_proba(X))


def test_labels_of_any_kind():
    X, y = data()
    expected = LinearClassifier().fit(X, y).coef_
    for labels in (
        y.astype(bool),
        y.astype(float),
        y - 5,
        y * 1000 - 5,
        np.where(y, "z", "a"),
        pd.Categorical(y),
    ):
        model = LinearClassifier().fit(X, labels)
        assert model.coef_ == pytest.approx(expected)
        assert set(model.predict(X)) == set(np.asarray(labels))


def test_scores_in_the_papers_sense_decide():
    X, y = data()
    model = LinearClassifier(LogitAdjusted(CrossEntropy(), y.mean())).fit(X, y)
    plain = LinearClassifier("crossentropy").fit(X, y)
    assert model.predict(X).sum() > 1.5 * plain.predict(X).sum()
    assert model.predict_proba(X) == pytest.approx(plain.predict_proba(X), abs=1e-6)


def test_losses_that_know_the_classes():
    X, y = data()
    assert LinearClassifier("ldam((9, 1),scale=5.0)").fit(X, y).loss_ == LDAM((9, 1), scale=5.0)
    nested = LinearClassifier("classweighted(logitadjusted(tbl,0.1,tau=0.5),(1,2))").fit(X, y).loss_
    assert nested == ClassWeighted(LogitAdjusted(TBL(), 0.1, tau=0.5), (1, 2))
    three = y + (X[:, 1] > 1)
    counts = tuple(np.bincount(three))
    for loss in (VectorScaling.from_counts(counts), LDAM(counts, scale=3.0)):
        assert LinearClassifier(loss).fit(X, three).loss_ == loss


def test_copies():
    X, y = data()
    model = LinearClassifier(TBL(0.7, 0.2), class_weight={1: 3.0}).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    assert clone(model).loss == TBL(0.7, 0.2)


def test_the_same_on_any_number_of_threads(monkeypatch):
    X, y = data(50_000)
    X = np.tile(X, (1, 4)) + np.random.default_rng(0).normal(size=(50_000, 12))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = LinearClassifier().fit(X, y)
    monkeypatch.setattr("raresight.linear.sums.thread_count", lambda: 3)
    monkeypatch.setattr("raresight.linear.threads.thread_count", lambda: 3)
    three = LinearClassifier().fit(X, y)
    assert (one.coef_ == three.coef_).all()


BAD = [
    ({}, {"y": np.zeros(20)}, "one class only"),
    ({}, {"y": np.r_[np.nan, np.ones(19)]}, "NaN"),
    ({}, {"y": np.array([None, *["a", "b"] * 9, "a"], dtype=object)}, r"missing label: y\[0\] is None"),
    ({}, {"y": np.array(["a", 1] * 10, dtype=object)}, "mixes text and other values"),
    ({}, {"X": np.full((20, 2), np.nan)}, "NaN"),
    ({}, {"X": np.full((20, 2), np.inf)}, "infinity"),
    ({}, {"sample_weight": np.full(20, -1.0)}, "[Nn]egative"),
    ({}, {"sample_weight": np.zeros(20)}, "zero"),
    ({}, {"sample_weight": np.r_[np.zeros(10), np.ones(10)]}, "class 0 has weight zero"),
    ({}, {"sample_weight": np.ones(3)}, "sample_weight"),
    ({"l2": -1.0}, {}, "l2 must be at least 0"),
    ({"l1": np.nan}, {}, "l1 must be at least 0"),
    ({"tol": np.inf}, {}, "tol must be"),
    ({"max_iter": 0}, {}, "max_iter must be"),
    ({"solver": "sgd"}, {}, "solver must be one of auto, newton, lbfgs"),
    ({"loss": "tbll"}, {}, "did you mean 'tbl'"),
    ({"loss": "tbl("}, {}, "cannot read"),
    ({"loss": "vectorscaling"}, {}, r"give either delta \(binary score\) or class_counts"),
    ({"loss": "logitadjusted"}, {}, "missing a required argument: 'base'"),
    ({"loss": "ldam"}, {}, r"class counts are \(10,10\): write for example 'ldam\(class_counts=\(10,10\)\)'"),
    ({"loss": "logitadjusted(tbl)"}, {}, "missing a required argument: 'prior'"),
    ({"loss": Alpha(np.inf)}, {}, "no calibrated probability"),
    ({"loss": LDAM((1, 2, 3))}, {}, "3 class logits, but y holds two"),
    ({"loss": VectorScaling(0.5)}, {"y": np.arange(20) % 3}, "is for two classes, but y holds 3"),
    ({"loss": LDAM((1, 2, 3, 4))}, {"y": np.arange(20) % 3}, "for 4 classes, but y holds 3"),
    ({"loss": LDAM((1, 2))}, {"y": np.arange(20) % 3}, "for 2 classes, but y holds 3"),
    ({"class_weight": "heavy"}, {}, "'balanced' or None"),
    ({"class_weight": {7: 1.0}}, {}, "names 7"),
    ({"class_weight": {1: -1.0}}, {}, "positive and finite"),
]


@pytest.mark.parametrize(("settings", "changed", "message"), BAD, ids=[case[2] for case in BAD])
def test_bad_input_is_answered(settings, changed, message):
    given = {"X": np.arange(40.0).reshape(20, 2) % 7, "y": np.repeat([0, 1], 10)} | changed
    with pytest.raises(ValueError, match=message):
        LinearClassifier(**settings).fit(**given)


def test_wrong_kinds_are_answered():
    X, y = data(50)
    for settings in ({"l2": "much"}, {"loss": 3}, {"class_weight": [1, 2]}):
        with pytest.raises(TypeError, match="must be"):
            LinearClassifier(**settings).fit(X, y)
    with pytest.raises(NotFittedError):
        LinearClassifier().influence(X, y)


def test_sparse_rows_are_not_made_dense():
    """Ten thousand columns of a hundred thousand rows would be 8 GB."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((100_000, 10_000), density=5e-5, format="csr", rng=rng)
    y = np.asarray(X[:, :50].sum(axis=1)).ravel() + 0.1 * rng.random(100_000) > 0.09
    model = LinearClassifier("tbl", l2=1e-2, tol=1e-5).fit(X, y)
    assert model.converged_


@pytest.mark.parametrize("labels", [[2**64 - 5, 2**64 - 1], [2**63 - 1, 2**63 + 1], [-128, 127]])
def test_labels_at_the_ends_of_their_type(labels):
    X, y = data()
    kind = np.uint64 if labels[0] > 0 else np.int8
    model = LinearClassifier().fit(X, np.array(labels, dtype=kind)[y])
    assert model.classes_.tolist() == labels
    assert model.classes_.dtype == kind
    assert (model.coef_ == LinearClassifier().fit(X, y).coef_).all()


def test_labels_in_a_column_of_objects():
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.array([0, 1] * 30)
    plain, objects = (LinearClassifier("crossentropy").fit(X, labels) for labels in (y, y.astype(object)))
    assert objects.classes_.tolist() == [0, 1]
    assert np.array_equal(plain.coef_, objects.coef_)


def test_arrow_tables_are_known_by_their_names():
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 2))
    y = X[:, 0] + random.normal(size=80) > 0
    table = pa.table({"a": X[:, 0], "b": X[:, 1]})
    model = LinearClassifier("crossentropy").fit(table, y)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    assert np.array_equal(model.decision_function(table.to_batches()[0]), model.decision_function(table))
    with pytest.raises(ValueError, match="feature names should match"):
        model.decision_function(table.select(["b", "a"]).to_batches()[0])
    with pytest.raises(TypeError, match="a polars LazyFrame, which holds no rows yet"):
        model.decision_function(pl.from_arrow(table).lazy())
