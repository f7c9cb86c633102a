"""Scorers in scikit-learn's model selection."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from joblib import parallel_config
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    recall_score,
    roc_auc_score,
)
from sklearn.metrics import log_loss as sklearn_log_loss
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from raresight.metrics import calibration_error, partial_auc, precision_at_recall, recall_at_fpr, roc_auc
from raresight.metrics.scorers import METRICS, scorer

rng = np.random.default_rng(0)
Y = (rng.random(600) < 0.15).astype(int)
X = rng.normal(size=(600, 3)) + 1.2 * Y[:, None] * np.array([1.0, 0.5, 0.0])
WEIGHT = rng.uniform(0.1, 3.0, size=600)
MODEL = LogisticRegression().fit(X, Y)
Z, P, HARD = MODEL.decision_function(X), MODEL.predict_proba(X)[:, 1], MODEL.predict(X)

# Each metric as a scorer, and its value by other means (scikit-learn's where it has the metric).
CASES = [
    ("roc_auc", {}, lambda w: roc_auc_score(Y, Z, sample_weight=w)),
    ("partial_auc", {"max_fpr": 0.1}, lambda w: roc_auc_score(Y, Z, max_fpr=0.1, sample_weight=w)),
    ("recall_at_fpr", {"fpr": 0.1}, lambda w: recall_at_fpr(Y, Z, 0.1, sample_weight=w)),
    ("average_precision", {}, lambda w: average_precision_score(Y, Z, sample_weight=w)),
    ("precision_at_recall", {"recall": 0.8}, lambda w: precision_at_recall(Y, Z, 0.8, sample_weight=w)),
    ("brier_score", {}, lambda w: -brier_score_loss(Y, P, sample_weight=w)),
    ("log_loss", {}, lambda w: -sklearn_log_loss(Y, P, sample_weight=w)),
    (
        "calibration_error",
        {"bins": 7, "scale": "log"},
        lambda w: -calibration_error(Y, P, bins=7, scale="log", sample_weight=w),
    ),
    ("minority_accuracy", {}, lambda w: recall_score(Y, HARD, sample_weight=w)),
    ("balanced_accuracy", {}, lambda w: balanced_accuracy_score(Y, HARD, sample_weight=w)),
]


def test_every_metric_has_a_case():
    assert [name for name, _, _ in CASES] == list(METRICS)


@pytest.mark.parametrize(("name", "params", "expected"), CASES, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_value_and_sign(name, params, expected, weight):
    score = scorer(name, **params)(MODEL, X, Y, sample_weight=weight)
    assert score == pytest.approx(expected(weight), rel=1e-9)


@pytest.mark.parametrize("name", METRICS)
def test_function_serves_as_well_as_its_name(name):
    assert scorer(METRICS[name].function)(MODEL, X, Y) == scorer(name)(MODEL, X, Y)


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize(
    ("negative", "positive"), [("a_ok", "fraud"), (-1, 1), (1, 2), (1.0, 3.0), (False, True)], ids=str
)
def test_labels_of_any_kind(name, negative, positive):
    labels = np.where(Y == 1, positive, negative)
    model = LogisticRegression().fit(X, labels)
    assert scorer(name)(model, X, labels) == pytest.approx(scorer(name)(MODEL, X, Y), rel=1e-6)


@pytest.mark.parametrize("name", [name for name in METRICS if METRICS[name].reads != "label"])
@pytest.mark.parametrize("kind", [LogisticRegression, RandomForestClassifier])
def test_pos_label_turns_the_score_around(name, kind):
    # "fraud" comes before "ok": without pos_label the frequent class would be the positive one.
    labels = np.where(Y == 1, "fraud", "ok")
    settings = {} if kind is LogisticRegression else {"n_estimators": 5, "random_state": 0, "max_depth": 2}
    model = kind(**settings).fit(X, labels)
    column = model.predict_proba(X)[:, 0]
    sign = -1 if METRICS[name].reads == "probability" else 1
    # The logit ranks as the probability does, but for its rounding.
    expected = sign * METRICS[name].function(Y, column)
    assert scorer(name, pos_label="fraud")(model, X, labels) == pytest.approx(expected, rel=1e-9)
    assert scorer(name)(model, X, labels) == pytest.approx(
        sign * METRICS[name].function(1 - Y, 1 - column), rel=1e-9
    )


def test_pos_label_makes_no_sense_for_accuracies():
    with pytest.raises(TypeError, match="minority_accuracy treats all classes alike"):
        scorer("minority_accuracy", pos_label="fraud")


def test_pos_label_that_is_no_label_is_refused():
    with pytest.raises(ValueError, match="frod"):
        scorer("roc_auc", pos_label="frod")(MODEL, X, Y)


@pytest.mark.parametrize("container", [list, pd.Series, pl.Series, np.asarray])
def test_containers(container):
    labels = container(np.where(Y == 1, "positive", "negative").tolist())
    model = LogisticRegression().fit(X, np.asarray(labels))
    assert scorer("roc_auc")(model, X, labels) == pytest.approx(roc_auc(Y, Z), rel=1e-6)


def test_decision_function_is_preferred_and_not_needed():
    ridge = RidgeClassifier().fit(X, Y)
    assert scorer("roc_auc")(ridge, X, Y) == roc_auc(Y, ridge.decision_function(X))
    forest = RandomForestClassifier(5, random_state=0).fit(X, Y)
    assert scorer("roc_auc")(forest, X, Y) == roc_auc(Y, forest.predict_proba(X)[:, 1])
    with pytest.raises(AttributeError, match="predict_proba"):
        scorer("brier_score")(ridge, X, Y)


def test_cross_val_score_is_the_metric_on_each_fold():
    folds = StratifiedKFold(4)
    got = cross_val_score(LogisticRegression(), X, Y, scoring=scorer("partial_auc", max_fpr=0.2), cv=folds)
    for value, (train, test) in zip(got, folds.split(X, Y), strict=True):
        z = LogisticRegression().fit(X[train], Y[train]).decision_function(X[test])
        assert value == partial_auc(Y[test], z, 0.2)


def test_several_at_once_and_in_parallel():
    several = {name: scorer(name) for name in METRICS}
    one = cross_validate(LogisticRegression(), X, Y, scoring=several, cv=3)
    with parallel_config("threading"):
        two = cross_validate(LogisticRegression(), X, Y, scoring=several, cv=3, n_jobs=2)
    for name in METRICS:
        assert one[f"test_{name}"].tolist() == two[f"test_{name}"].tolist()
        assert np.all(one[f"test_{name}"] <= 0) == (METRICS[name].reads == "probability")


def test_grid_search_picks_the_highest():
    pipe = make_pipeline(StandardScaler(), LogisticRegression())
    grid = {"logisticregression__C": [1e-6, 1e-2, 1.0]}
    for name in ("average_precision", "log_loss"):
        search = GridSearchCV(pipe, grid, scoring=scorer(name), cv=3).fit(X, Y)
        scores = search.cv_results_["mean_test_score"]
        assert search.best_score_ == scores.max() > scores.min()


def test_copies_score_alike():
    original = scorer("calibration_error", bins=4, pos_label=1)
    for copy in (pickle.loads(pickle.dumps(original)), clone(original, safe=False)):
        assert copy(MODEL, X, Y) == original(MODEL, X, Y)
    search = clone(GridSearchCV(LogisticRegression(), {"C": [1.0]}, scoring=original))
    assert search.scoring(MODEL, X, Y) == original(MODEL, X, Y)
    assert "metric=calibration_error, bins=4, pos_label=1" in repr(original)


def test_weights_by_metadata_routing():
    folds = StratifiedKFold(3)
    with sklearn.config_context(enable_metadata_routing=True):
        weighted = scorer("partial_auc", max_fpr=0.2).set_score_request(sample_weight=True)
        model = LogisticRegression().set_fit_request(sample_weight=False)
        got = cross_val_score(model, X, Y, scoring=weighted, cv=folds, params={"sample_weight": WEIGHT})
    for value, (train, test) in zip(got, folds.split(X, Y), strict=True):
        z = LogisticRegression().fit(X[train], Y[train]).decision_function(X[test])
        assert value == partial_auc(Y[test], z, 0.2, sample_weight=WEIGHT[test])


ORDERED = np.sort(Y)


@pytest.mark.parametrize("name", [name for name in METRICS if METRICS[name].reads != "probability"])
@pytest.mark.parametrize("kind", ["number", "text"])
def test_fold_with_one_class_is_an_error(name, kind):
    labels = ORDERED if kind == "number" else np.where(ORDERED == 1, "positive", "negative")
    with pytest.raises(ValueError, match=r"no positive row|one class only"):
        cross_val_score(DummyClassifier(), X, labels, scoring=scorer(name), cv=KFold(5), error_score="raise")


def test_one_class_has_an_average_error_where_it_is_clear_which():
    negatives = np.zeros(len(Y), dtype=int)
    assert scorer("brier_score")(MODEL, X, negatives) == pytest.approx(-np.mean(P**2))
    text = LogisticRegression().fit(X, np.where(Y == 1, "fraud", "ok"))
    only = np.full(len(Y), "ok")
    assert scorer("brier_score", pos_label="fraud")(text, X, only) == pytest.approx(-np.mean(P**2), rel=1e-6)
    with pytest.raises(ValueError, match=r"one class only \('ok'\).*pos_label"):
        scorer("brier_score")(text, X, only)
    # The lone 1 is the negative class of labels 1 and 2.
    with pytest.raises(ValueError, match=r"one class only \(1\)"):
        scorer("brier_score")(LogisticRegression().fit(X, Y + 1), X, negatives + 1)


def test_many_classes_are_refused():
    three = np.arange(len(Y)) % 3
    with pytest.raises(ValueError, match="two classes, but y_true holds 3: 0, 1, 2"):
        scorer("roc_auc")(LogisticRegression().fit(X, three), X, three)
    assert 0 < scorer("balanced_accuracy")(LogisticRegression().fit(X, three), X, three) < 1


def test_unknown_metric_names_the_known_ones():
    with pytest.raises(ValueError, match="Unknown metric 'pauc'; known are roc_auc, partial_auc"):
        scorer("pauc")
    with pytest.raises(ValueError, match="Unknown metric <function roc_auc_score"):
        scorer(roc_auc_score)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("partial_auc", {"fpr": 0.1}, "partial_auc has no parameter 'fpr'; it takes max_fpr, kind"),
        ("roc_auc", {"max_fpr": 0.1}, "it takes none"),
        ("roc_auc", {"sample_weight": [1.0]}, "no parameter 'sample_weight'"),
        ("roc_auc", {"y_score": [1.0]}, "no parameter 'y_score'"),
    ],
)
def test_wrong_parameter_is_told_at_once(name, params, message):
    with pytest.raises(TypeError, match=message):
        scorer(name, **params)


@pytest.mark.parametrize(
    ("name", "params"),
    [("partial_auc", {"max_fpr": 2}), ("partial_auc", {"kind": "half"}), ("calibration_error", {"bins": 0})],
)
def test_value_out_of_range_is_told_at_once(name, params):
    with pytest.raises(ValueError, match="must be"):
        scorer(name, **params)
