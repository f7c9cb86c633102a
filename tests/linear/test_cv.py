"""Choosing a loss and a penalty."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from raresight.linear import LinearClassifier, LinearClassifierCV
from raresight.metrics import partial_auc


@pytest.mark.slow  # those of the classifier itself are in test_estimator.py
@parametrize_with_checks([LinearClassifierCV(cv=2)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def planted(n=6000):
    """Ten rows of the common class lie far out on the wrong side: an unbounded pull misleads a loss."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    y = rng.random(n) < expit(3 * X[:, 0] - 5)
    bad = rng.choice(np.flatnonzero(~y), 40, replace=False)
    X[bad, 1] += 12
    y[bad] = True
    return X, y


def test_picks_the_planted_setting():
    X, y = planted()
    model = LinearClassifierCV(losses=["crossentropy"], l2s=[1e-4, 1e3], metric="log_loss", cv=3).fit(X, y)
    assert model.l2_ == 1e-4
    assert model.cv_results_["mean_score"].argmax() == 0
    # A loss that stretches far scores cannot be calibrated here, one that is right can.
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(20_000, 2))
    t = rng.random(20_000) < expit(2.5 * Z[:, 0] - 3)
    losses = ["alpha(alpha=0.2)", "crossentropy", "focal(gamma=5.0)"]
    chosen = LinearClassifierCV(losses=losses, l2s=[1e-6], metric="log_loss", cv=3).fit(Z, t)
    assert str(chosen.loss_) == "crossentropy"


def test_scores_are_those_of_separate_fits():
    X, y = planted(3000)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    model = LinearClassifierCV(
        losses=["tbl", "crossentropy"], l2s=[1e-4, 1e-2], cv=folds, metric_params={"max_fpr": 0.05}
    ).fit(X, y)
    assert model.cv_results_["scores"].shape == (4, 3)
    for number, (train, test) in enumerate(folds.split(X, y)):
        alone = LinearClassifier("crossentropy", l2=1e-4).fit(X[train], y[train])
        expected = partial_auc(y[test], alone.decision_function(X[test]), max_fpr=0.05)
        assert model.cv_results_["scores"][2, number] == pytest.approx(expected, abs=1e-9)
    best = LinearClassifier(model.loss_, l2=model.l2_).fit(X, y)
    assert model.coef_ == pytest.approx(best.coef_, rel=1e-6)
    assert model.best_score_ == model.cv_results_["mean_score"].max()


def test_labels_of_any_kind_and_weights():
    X, y = planted(3000)
    words = np.where(y, "fraud", "fair")
    weights = np.random.default_rng(0).random(len(y)) + 0.5
    settings = {"losses": ["tbl"], "l2s": [1e-4, 1.0], "cv": 3, "metric": "balanced_accuracy"}
    model = LinearClassifierCV(**settings, class_weight={"fraud": 20.0}).fit(X, words, sample_weight=weights)
    assert model.classes_.tolist() == ["fair", "fraud"]
    assert set(model.predict(X)) == {"fair", "fraud"}
    number = LinearClassifierCV(**settings, class_weight={1: 20.0}).fit(
        X, y.astype(int), sample_weight=weights
    )
    assert (model.cv_results_["scores"] == number.cv_results_["scores"]).all()
    assert model.predict_log_odds(X) == pytest.approx(number.predict_log_odds(X))


def test_weights_count_in_fits_and_in_the_metric():
    X, y = planted(3000)
    weights = np.random.default_rng(0).random(len(y)) ** 3
    folds = StratifiedKFold(2)
    model = LinearClassifierCV(losses=["tbl"], l2s=[1e-3], cv=folds).fit(X, y, sample_weight=weights)
    for number, (train, test) in enumerate(folds.split(X, y)):
        alone = LinearClassifier("tbl", l2=1e-3).fit(X[train], y[train], sample_weight=weights[train])
        expected = partial_auc(y[test], alone.decision_function(X[test]), sample_weight=weights[test])
        assert model.cv_results_["scores"][0, number] == pytest.approx(expected, abs=1e-9)


def test_clone_keeps_the_settings():
    model = LinearClassifierCV(losses=("tbl",), metric="roc_auc")
    assert clone(model).get_params() == model.get_params()


def test_bad_input_is_answered():
    X, y = planted(300)
    with pytest.raises(ValueError, match="Only binary classification"):
        LinearClassifierCV().fit(X, np.arange(300) % 3)
    with pytest.raises(ValueError, match="one class only"):
        LinearClassifierCV().fit(X, np.ones(300))
    with pytest.raises(ValueError, match=r"[Uu]nknown metric"):
        LinearClassifierCV(metric="nonsense").fit(X, y)
    with pytest.raises(TypeError, match="no parameter"):
        LinearClassifierCV(metric_params={"max_tpr": 0.1}).fit(X, y)


def test_generators_are_read_once():
    X, y = planted(1500)
    texts = ["crossentropy", "tbl"]
    model = LinearClassifierCV(losses=(t for t in texts), l2s=iter([1e-4, 1e-2]), cv=2)
    listed = LinearClassifierCV(losses=texts, l2s=[1e-4, 1e-2], cv=2).fit(X, y)
    assert (model.fit(X, y).cv_results_["scores"] == listed.cv_results_["scores"]).all()
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match=r"losses is empty.*a generator gives its values once"):
        model.fit(X[:, :2], y)
    assert (model.predict_proba(X) == before).all()


def test_a_failed_fit_leaves_the_model_as_it_was():
    X, y = planted(1500)
    model = LinearClassifierCV(losses="tbl", l2s=1e-4, cv=2).fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X[:, :2], np.zeros(1500))
    assert (model.predict_proba(X) == before).all()


def test_the_metric_may_be_about_the_first_label():
    """The choice and its scores are those of labels 0 and 1, though "fraud" comes before "ok"."""
    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 3))
    y = (random.random(1500) < 1 / (1 + np.exp(3.5 - 2 * X[:, 0]))).astype(int)
    words = np.where(y == 1, "fraud", "ok")
    options = {"losses": ["crossentropy", "tbl"], "l2s": [1e-4, 1e-1], "cv": 3}
    plain = LinearClassifierCV(**options).fit(X, y)
    named = LinearClassifierCV(**options, pos_label="fraud").fit(X, words)
    other = LinearClassifierCV(**options).fit(X, words)
    # Cross entropy is the same for both classes; TBL is not, and its fits are others.
    same = [str(loss) == "crossentropy" for loss in plain.cv_results_["loss"]]
    np.testing.assert_allclose(
        np.asarray(named.cv_results_["scores"])[same],
        np.asarray(plain.cv_results_["scores"])[same],
        rtol=1e-6,
    )
    assert not np.allclose(named.cv_results_["scores"], other.cv_results_["scores"])
    with pytest.raises(ValueError, match="pos_label is 'theft', but the labels are"):
        LinearClassifierCV(**options, pos_label="theft").fit(X, words)
