"""ThresholdAtFPR: the promise, by simulation, and its manners as a scikit-learn estimator."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from joblib import parallel_config
from scipy import sparse, stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import (
    GridSearchCV,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    StratifiedShuffleSplit,
    cross_val_predict,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from raresight.metrics import threshold_at_fpr
from raresight.metrics.scorers import scorer
from raresight.metrics.threshold_classifier import ThresholdAtFPR


class FirstColumn(ClassifierMixin, BaseEstimator):
    """A model whose score is the first feature."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X[:, 0]

    def predict(self, X):
        return self.classes_[(X[:, 0] > 0).astype(int)]


class FirstColumnWeighted(FirstColumn):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y)


class LogOnly(ClassifierMixin, BaseEstimator):
    """A model that gives log-probabilities alone; the first feature is the logit."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_log_proba(self, X):
        return np.column_stack([-np.logaddexp(0, X[:, 0]), -np.logaddexp(0, -X[:, 0])])


rng = np.random.default_rng(0)
Y = (rng.random(1500) < 0.1).astype(int)
X = rng.normal(size=(1500, 3)) + 1.5 * Y[:, None] * np.array([1.0, 0.5, 0.0])
TEXT = np.where(Y == 1, "positive", "negative")


@pytest.mark.parametrize(("negatives", "fpr"), [(500, 0.02), (3000, 0.01), (299, 0.01)])
def test_promise_holds_exactly(negatives, fpr):
    # A normal score, so the true false-positive rate of a threshold is known.
    rng = np.random.default_rng(negatives)
    fitted = FirstColumn().fit(None, [0, 1])
    repetitions, labels = 2000, np.zeros(negatives + 5, dtype=int)
    labels[:5] = 1
    broken = 0
    for _ in range(repetitions):
        x = rng.normal(size=(len(labels), 1)) + 2 * labels[:, None]
        model = ThresholdAtFPR(fitted, fpr=fpr, confidence=0.95, cv="prefit").fit(x, labels)
        broken += stats.norm.sf(model.threshold_) > fpr
    # Counts are whole, so the exact share lies a little below 5 %; the Beta law of the rate above the
    # (k+1)-th highest negative tells where. The simulation must agree within four standard errors.
    k = max(k for k in range(negatives) if stats.binom.sf(k, negatives, fpr) >= 0.95)
    exact = stats.beta.sf(fpr, k + 1, negatives - k)
    assert 0.02 < exact <= 0.05
    assert abs(broken / repetitions - exact) < 4 * np.sqrt(exact * (1 - exact) / repetitions)


def test_without_confidence_the_promise_is_broken_half_the_time():
    rng = np.random.default_rng(3)
    fitted = FirstColumn().fit(None, [0, 1])
    broken, labels = 0, np.zeros(500, dtype=int)
    for _ in range(500):
        x = rng.normal(size=(500, 1))
        model = ThresholdAtFPR(fitted, fpr=0.02, confidence=None, cv="prefit").fit(x, labels)
        broken += stats.norm.sf(model.threshold_) > 0.02
        assert model.held_out_fpr_ == 0.02
        assert np.isnan(model.held_out_recall_)
    assert 0.35 < broken / 500 < 0.65


def test_folds_keep_the_promise_approximately():
    # The inner model is refitted to all rows, and the rate is still kept in about 95 of 100 cases.
    broken = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        y = (np.arange(1000) % 5 == 0).astype(int)
        x = rng.normal(size=(1000, 2)) + y[:, None]
        model = ThresholdAtFPR(LogisticRegression(), fpr=0.05, cv=3).fit(x, y)
        w, b = model.estimator_.coef_[0], model.estimator_.intercept_[0]
        broken += stats.norm.sf(model.threshold_, b, np.linalg.norm(w)) > 0.05
    assert 2 <= broken <= 22


@pytest.mark.parametrize("confidence", [None, 0.9])
@pytest.mark.parametrize(
    ("estimator", "method"), [(LogisticRegression(), "decision_function"), (GaussianNB(), "predict_proba")]
)
def test_threshold_comes_from_the_held_out_scores(estimator, method, confidence):
    model = ThresholdAtFPR(estimator, fpr=0.03, confidence=confidence, cv=4).fit(X, Y)
    scores = cross_val_predict(estimator, X, Y, cv=StratifiedKFold(4), method=method)
    scores = scores[:, 1] if scores.ndim == 2 else scores
    assert model.threshold_ == threshold_at_fpr(Y, scores, 0.03, confidence=confidence)
    assert model.held_out_fpr_ == np.mean(scores[Y == 0] >= model.threshold_)
    assert model.held_out_recall_ == np.mean(scores[Y == 1] >= model.threshold_)
    refitted = getattr(clone(estimator).fit(X, Y), method)(X)
    refitted = refitted[:, 1] if refitted.ndim == 2 else refitted
    assert model.predict(X).tolist() == (refitted >= model.threshold_).astype(int).tolist()
    assert np.array_equal(model.decision_function(X), refitted - model.threshold_)


def test_method_can_be_chosen():
    by_score = ThresholdAtFPR(LogisticRegression(), fpr=0.05).fit(X, Y)
    by_probability = ThresholdAtFPR(LogisticRegression(), fpr=0.05, method="predict_proba").fit(X, Y)
    by_log = ThresholdAtFPR(LogisticRegression(), fpr=0.05, method="predict_log_proba").fit(X, Y)
    assert by_probability.threshold_ == pytest.approx(1 / (1 + np.exp(-by_score.threshold_)))
    assert by_log.threshold_ == pytest.approx(np.log(by_probability.threshold_))
    assert np.array_equal(by_score.predict(X), by_probability.predict(X))


def test_log_probabilities_alone_are_enough():
    model = ThresholdAtFPR(LogOnly(), fpr=0.05, confidence=None).fit(X, Y)
    plain = ThresholdAtFPR(FirstColumn(), fpr=0.05, confidence=None).fit(X, Y)
    assert np.array_equal(model.predict(X), plain.predict(X))
    assert model.threshold_ < 0
    assert hasattr(model, "predict_log_proba")
    assert not hasattr(model, "predict_proba")


def test_single_precision_scores_are_compared_exactly():
    # The threshold lies one double above a negative's score; as a float32 it would be that score.
    fitted, single = FirstColumn().fit(None, [0, 1]), X.astype(np.float32)
    for held_out in (single, single.astype(np.float64)):
        model = ThresholdAtFPR(fitted, fpr=0.05, confidence=None, cv="prefit").fit(held_out, Y)
        assert model.held_out_fpr_ == np.floor(0.05 * np.sum(Y == 0)) / np.sum(Y == 0)
        for rows in (single, single.astype(np.float64)):
            assert np.mean(model.predict(rows[Y == 0])) == model.held_out_fpr_


def test_text_labels_and_class_weights_by_label():
    # Label encoders inside cross_val_predict would lose this class_weight.
    inner = LogisticRegression(class_weight={"positive": 20.0})
    model = ThresholdAtFPR(inner, fpr=0.05, cv=3).fit(X, TEXT)
    same = ThresholdAtFPR(LogisticRegression(class_weight={1: 20.0}), fpr=0.05, cv=3).fit(X, Y)
    assert model.threshold_ == pytest.approx(same.threshold_)
    assert model.classes_.tolist() == ["negative", "positive"]
    assert np.array_equal(model.predict(X) == "positive", same.predict(X) == 1)


def test_weights_reach_the_inner_fits_cut_to_the_folds():
    weight = np.random.default_rng(1).uniform(0.1, 5.0, size=len(Y))
    model = ThresholdAtFPR(LogisticRegression(), fpr=0.05, cv=3).fit(X, Y, sample_weight=weight)
    scores = np.empty(len(Y))
    for train, test in StratifiedKFold(3).split(X, Y):
        fold = LogisticRegression().fit(X[train], Y[train], sample_weight=weight[train])
        scores[test] = fold.decision_function(X[test])
    assert model.threshold_ == threshold_at_fpr(Y, scores, 0.05, confidence=0.95)  # rows counted, not weighed
    whole = LogisticRegression().fit(X, Y, sample_weight=weight)
    np.testing.assert_array_equal(model.estimator_.coef_, whole.coef_)
    plain = ThresholdAtFPR(LogisticRegression(), fpr=0.05, cv=3).fit(X, Y)
    assert plain.threshold_ != model.threshold_


def test_rows_of_weight_zero_are_absent():
    weight = np.ones(len(Y))
    weight[::3] = 0.0
    model = ThresholdAtFPR(FirstColumnWeighted(), fpr=0.05).fit(X, Y, sample_weight=weight)
    kept = weight > 0
    assert model.threshold_ == threshold_at_fpr(Y[kept], X[kept, 0], 0.05, confidence=0.95)
    with pytest.raises(ValueError, match="Every row of the class 1 has a sample_weight of zero"):
        ThresholdAtFPR(FirstColumnWeighted(), fpr=0.05).fit(X, Y, sample_weight=1 - Y)
    with pytest.raises(ValueError, match="y has 1500 rows, but sample_weight has 3"):
        ThresholdAtFPR(FirstColumnWeighted(), fpr=0.05).fit(X, Y, sample_weight=[1, 1, 1])


def test_metadata_routing():
    weight = np.random.default_rng(1).uniform(0.1, 5.0, size=len(Y))
    expected = ThresholdAtFPR(LogisticRegression(), fpr=0.05).fit(X, Y, sample_weight=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        asks = LogisticRegression().set_fit_request(sample_weight=True)
        routed = ThresholdAtFPR(asks, fpr=0.05).fit(X, Y, sample_weight=weight)
        assert routed.threshold_ == expected.threshold_
        declines = LogisticRegression().set_fit_request(sample_weight=False)
        with pytest.raises(TypeError, match="sample_weight"):
            ThresholdAtFPR(declines, fpr=0.05).fit(X, Y, sample_weight=weight)


def test_prefit_neither_fits_nor_copies():
    fitted = LogisticRegression().fit(X[:700], TEXT[:700])
    coefficients = fitted.coef_.copy()
    model = ThresholdAtFPR(fitted, fpr=0.05, cv="prefit").fit(X[700:], TEXT[700:])
    assert model.estimator_ is fitted
    assert np.array_equal(fitted.coef_, coefficients)
    expected = threshold_at_fpr(Y[700:], fitted.decision_function(X[700:]), 0.05, confidence=0.95)
    assert model.threshold_ == expected
    # Negatives alone set the threshold.
    alone = Y[700:] == 0
    other = ThresholdAtFPR(fitted, fpr=0.05, cv="prefit").fit(X[700:][alone], TEXT[700:][alone])
    assert other.threshold_ == model.threshold_


def test_prefit_errors():
    with pytest.raises(NotFittedError):
        ThresholdAtFPR(LogisticRegression(), cv="prefit").fit(X, Y)
    fitted = LogisticRegression().fit(X, Y)
    with pytest.raises(ValueError, match="the class 2, which the estimator was not fitted to"):
        ThresholdAtFPR(fitted, fpr=0.05, cv="prefit").fit(X, Y + 1)
    with pytest.raises(ValueError, match="fits nothing, so it cannot use sample_weight"):
        ThresholdAtFPR(fitted, fpr=0.05, cv="prefit").fit(X, Y, sample_weight=np.ones(len(Y)))


def test_frozen_estimator_scores_every_row_with_one_model():
    fitted = LogisticRegression().fit(X[:700], Y[:700])
    frozen = ThresholdAtFPR(FrozenEstimator(fitted), fpr=0.05).fit(X[700:], Y[700:])
    prefit = ThresholdAtFPR(fitted, fpr=0.05, cv="prefit").fit(X[700:], Y[700:])
    assert frozen.threshold_ == prefit.threshold_


def test_rows_held_out_once_count_once():
    split = StratifiedShuffleSplit(n_splits=1, test_size=0.4, random_state=0)
    model = ThresholdAtFPR(LogisticRegression(), fpr=0.05, cv=split).fit(X, Y)
    train, test = next(split.split(X, Y))
    scores = LogisticRegression().fit(X[train], Y[train]).decision_function(X[test])
    assert model.threshold_ == threshold_at_fpr(Y[test], scores, 0.05, confidence=0.95)
    masks = [(np.isin(np.arange(len(Y)), train), np.isin(np.arange(len(Y)), test))]
    masked = ThresholdAtFPR(LogisticRegression(), fpr=0.05, cv=masks).fit(X, Y)
    assert masked.threshold_ == pytest.approx(model.threshold_, rel=1e-9)


def test_rows_held_out_twice_are_refused():
    folds = RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0)
    with pytest.raises(ValueError, match="more than once"):
        ThresholdAtFPR(LogisticRegression(), fpr=0.05, cv=folds).fit(X, Y)


def test_too_few_negatives():
    with pytest.raises(ValueError, match="cannot show a false-positive rate of at most"):
        ThresholdAtFPR(LogisticRegression()).fit(X, Y)


def test_two_classes_are_needed():
    with pytest.raises(ValueError, match=r"Only binary classification is supported.*multiclass"):
        ThresholdAtFPR(LogisticRegression()).fit(X, np.arange(len(Y)) % 3)
    with pytest.raises(ValueError, match="one class only"):
        ThresholdAtFPR(LogisticRegression()).fit(X, np.zeros(len(Y)))
    # One positive: some fold is fitted without it, and a tree does not mind.
    lonely = np.zeros(len(Y), dtype=int)
    lonely[0] = 1
    half = np.arange(len(Y)) < 750
    with pytest.raises(ValueError, match=r"fitted to 1 class\(es\), not two"):
        ThresholdAtFPR(DecisionTreeClassifier(), fpr=0.05, cv=[(half, ~half), (~half, half)]).fit(X, lonely)


@pytest.mark.parametrize("fpr", [0.0, 1.0, -0.1, float("nan")])
def test_rate_out_of_range(fpr):
    with pytest.raises(ValueError, match="fpr must be above 0 and below 1"):
        ThresholdAtFPR(LogisticRegression(), fpr=fpr).fit(X, Y)


def test_method_that_is_not_there():
    with pytest.raises(ValueError, match="RidgeClassifier has no predict_proba"):
        ThresholdAtFPR(RidgeClassifier(), fpr=0.05, method="predict_proba").fit(X, Y)
    with pytest.raises(ValueError, match="method must be auto or one of decision_function"):
        ThresholdAtFPR(RidgeClassifier(), fpr=0.05, method="predict").fit(X, Y)


def test_probabilities_are_the_inner_ones_if_there_are_any():
    model = ThresholdAtFPR(LogisticRegression(), fpr=0.05).fit(X, Y)
    assert np.array_equal(model.predict_proba(X), model.estimator_.predict_proba(X))
    assert np.array_equal(model.predict_log_proba(X), model.estimator_.predict_log_proba(X))
    assert not hasattr(ThresholdAtFPR(RidgeClassifier()), "predict_proba")
    with pytest.raises(NotFittedError):
        ThresholdAtFPR(LogisticRegression()).predict_proba(X)


def test_search_over_inner_parameters_and_pipelines():
    pipe = make_pipeline(StandardScaler(), ThresholdAtFPR(LogisticRegression(), fpr=0.05, cv=3))
    search = GridSearchCV(
        pipe,
        {"thresholdatfpr__estimator__C": [1e-4, 1.0], "thresholdatfpr__fpr": [0.05, 0.1]},
        scoring=scorer("minority_accuracy"),
        cv=3,
    ).fit(X, Y)
    assert search.best_params_["thresholdatfpr__fpr"] == 0.1
    best = search.best_estimator_[-1]
    assert search.best_params_["thresholdatfpr__estimator__C"] == best.estimator_.C
    inside = ThresholdAtFPR(make_pipeline(StandardScaler(), LogisticRegression()), fpr=0.05).fit(X, Y)
    assert inside.predict(X).sum() > 0
    assert inside.n_features_in_ == 3


def test_frames_and_sparse_rows():
    plain = ThresholdAtFPR(LogisticRegression(), fpr=0.05).fit(X, Y)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    labels = pd.Series(TEXT, index=frame.index[::-1])  # rows go by place, not by index
    model = ThresholdAtFPR(LogisticRegression(), fpr=0.05).fit(frame, labels)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    assert model.threshold_ == pytest.approx(plain.threshold_)
    assert set(model.predict(frame)) == {"negative", "positive"}
    polars = ThresholdAtFPR(LogisticRegression(), fpr=0.05).fit(pl.DataFrame(X), pl.Series(Y))
    assert polars.threshold_ == plain.threshold_
    rows = ThresholdAtFPR(LogisticRegression(), fpr=0.05).fit(sparse.csr_array(X), Y)
    assert rows.threshold_ == pytest.approx(plain.threshold_, rel=1e-3)


def test_parallel_folds_and_copies():
    one = ThresholdAtFPR(LogisticRegression(), fpr=0.05).fit(X, Y)
    with parallel_config("threading"):
        two = ThresholdAtFPR(LogisticRegression(), fpr=0.05, n_jobs=2).fit(X, Y)
    assert one.threshold_ == two.threshold_
    assert np.array_equal(pickle.loads(pickle.dumps(one)).predict(X), one.predict(X))
    assert clone(one).get_params()["fpr"] == 0.05
    assert not hasattr(clone(one), "threshold_")


def expected_failures(estimator):
    if hasattr(estimator, "predict_proba"):
        # As for scikit-learn's own TunedThresholdClassifierCV.
        return {"check_classifiers_train": "predict does not cut the probability at one half"}
    return {}


@parametrize_with_checks(
    [
        ThresholdAtFPR(LogisticRegression(), fpr=0.2, confidence=None, cv=2),
        ThresholdAtFPR(RidgeClassifier(), fpr=0.2, confidence=None, cv=2),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def words_of(y):
    return np.where(y == 1, "fraud", "ok")


@pytest.mark.parametrize("inner", [LogisticRegression(), RidgeClassifier(), GaussianNB()], ids=str)
@pytest.mark.parametrize("cv", [3, "prefit"])
def test_the_positive_class_may_be_the_first_label(inner, cv):
    """The same alarms as for labels 0 and 1, though "fraud" comes before "ok"."""
    random = np.random.default_rng(1)
    y = (random.random(3000) < 0.05).astype(int)
    X = random.normal(size=(3000, 2)) + 1.5 * y[:, None]
    models = []
    for labels, positive in ((y, None), (words_of(y), "fraud")):
        given = clone(inner).fit(X, labels) if cv == "prefit" else inner
        models.append(ThresholdAtFPR(given, fpr=0.05, cv=cv, pos_label=positive).fit(X, labels))
    plain, named = models
    assert named.pos_label_ == "fraud"
    assert named.classes_.tolist() == ["fraud", "ok"]
    alarm = plain.predict(X) == 1
    assert np.array_equal(named.predict(X) == "fraud", alarm)
    assert 0.02 < alarm[y == 0].mean() < 0.06
    assert named.held_out_fpr_ == pytest.approx(plain.held_out_fpr_)
    # As scikit-learn has it: above 0 is the second label.
    assert np.array_equal(named.decision_function(X) > 0, named.predict(X) == "ok")


def test_a_positive_class_of_nearly_all_rows_is_told():
    y = np.arange(400) % 40 == 0
    X = np.random.default_rng(0).normal(size=(400, 1)) + y[:, None]
    with pytest.warns(UserWarning, match=r"is 'ok', .* give pos_label='fraud' if that is the event") as told:
        ThresholdAtFPR(LogisticRegression(), fpr=0.2, confidence=None).fit(X, words_of(y))
    assert told[0].filename == __file__
    with pytest.raises(ValueError, match=r"pos_label is 'theft', but the labels are \['fraud', 'ok'\]"):
        ThresholdAtFPR(LogisticRegression(), fpr=0.2, pos_label="theft").fit(X, words_of(y))
