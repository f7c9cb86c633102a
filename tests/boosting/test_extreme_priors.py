"""Training at priors from 0.3 down to 1e-5: it moves, is calibrated, and beats the libraries' defaults."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from scipy.special import expit

from boosting.boosting_tables import rare_table
from raresight.boosting import LightGBMClassifier, NoSplitWarning, XGBoostClassifier, start_of
from raresight.boosting.defaults import limits_of
from raresight.losses import CrossEntropy, parse
from raresight.metrics import partial_auc

both = pytest.mark.parametrize("kind", [XGBoostClassifier, LightGBMClassifier])
ROWS = {0.3: 20_000, 1e-2: 40_000, 1e-3: 100_000, 1e-4: 300_000, 1e-5: 1_000_000}


def fresh_rows(seed=99):
    """Many rows of each class: false-positive and true-positive rates need no prior."""
    negatives, labels = rare_table(100_000, 1e-5, seed=seed)
    positives, others = rare_table(4000, 0.5, seed=seed + 1)
    return negatives[labels == 0], positives[others == 1]


NEGATIVES, POSITIVES = fresh_rows()


def measure(log_odds, prior):
    """Log loss relative to the constant's, mean probability relative to the prior, at this prior."""
    negative, positive = log_odds(NEGATIVES), log_odds(POSITIVES)
    loss = (1 - prior) * np.logaddexp(0, negative).mean() + prior * np.logaddexp(0, -positive).mean()
    entropy = -prior * np.log(prior) - (1 - prior) * np.log1p(-prior)
    mean = (1 - prior) * expit(negative).mean() + prior * expit(positive).mean()
    labels = np.r_[np.zeros(len(negative)), np.ones(len(positive))]
    ranked = partial_auc(labels, np.r_[negative, positive], max_fpr=0.01)
    return loss / entropy, mean / prior, ranked


def built_in(kind, X, y, rounds):
    """The library's own logistic objective with all its defaults."""
    if kind is XGBoostClassifier:
        booster = xgb.train({"objective": "binary:logistic", "nthread": 1}, xgb.QuantileDMatrix(X, y), rounds)
        return lambda table: booster.predict(xgb.DMatrix(table), output_margin=True)
    parameters = {"objective": "binary", "verbose": -1, "num_threads": 1}
    booster = lgb.train(parameters, lgb.Dataset(X, y), rounds)
    return lambda table: booster.predict(table, raw_score=True)


@both
@pytest.mark.parametrize("loss", ["tbl", "crossentropy"])
@pytest.mark.parametrize(
    "prior", [0.3, *(pytest.param(prior, marks=pytest.mark.slow) for prior in (1e-2, 1e-3)), 1e-4]
)
def test_defaults_at_every_prior(kind, loss, prior):
    X, y = rare_table(ROWS[prior], prior)
    model = kind(loss, n_estimators=50, n_jobs=1).fit(X, y)
    relative_loss, mean, ranked = measure(model.predict_log_odds, prior)
    assert relative_loss < 0.9
    # Fresh rows, to two standard errors of the number of positives that the model was trained on.
    assert mean == pytest.approx(1, abs=2 / np.sqrt(y.sum()))
    # On the training rows the shift makes the mean the prior; without it cross entropy is near.
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(prior, rel=1e-5)
    assert abs(model.calibrator_.levels[0]) < (0.1 if loss == "crossentropy" else 1.0)
    assert ranked > measure(built_in(kind, X, y, 50), prior)[2] - 0.01


@both
@pytest.mark.parametrize("loss", ["tbl", pytest.param("crossentropy", marks=pytest.mark.slow)])
def test_one_in_a_hundred_thousand(kind, loss):
    """A million rows, ten positives."""
    X, y = rare_table(1_000_000, 1e-5, columns=4)
    model = kind(loss, n_estimators=20, n_jobs=1).fit(X, y)
    # The level, which is the shift's doing; calibration is that of fresh rows below.
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(1e-5, rel=1e-5)
    negatives, labels = rare_table(100_000, 1e-5, seed=5, columns=4)
    positives, others = rare_table(4000, 0.5, seed=6, columns=4)
    low, high = model.predict_log_odds(negatives[labels == 0]), model.predict_log_odds(positives[others == 1])
    relative = ((1 - 1e-5) * np.logaddexp(0, low).mean() + 1e-5 * np.logaddexp(0, -high).mean()) / (
        -1e-5 * np.log(1e-5) + 1e-5
    )
    assert relative < 0.97  # training does not stall at the constant, for which this is one
    fresh_mean = (1 - 1e-5) * expit(low).mean() + 1e-5 * expit(high).mean()
    assert 0.5e-5 < fresh_mean < 1.5e-5
    ranked = partial_auc(np.r_[np.zeros(len(low)), np.ones(len(high))], np.r_[low, high], max_fpr=0.01)
    assert ranked > 0.53


@pytest.mark.slow
@both
@pytest.mark.parametrize("prior", [1e-3, 1e-4, 1e-5])
def test_a_hundred_rounds_at_rare_priors(kind, prior):
    X, y = rare_table(ROWS[prior], prior)
    model = kind("tbl", n_jobs=1).fit(X, y)
    relative_loss, mean, ranked = measure(model.predict_log_odds, prior)
    assert relative_loss < 0.9
    assert 0.5 < mean < 1.5
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(prior, rel=0.01)
    assert ranked > measure(built_in(kind, X, y, 100), prior)[2] - 0.01


@pytest.mark.slow
@both
def test_many_positives_at_a_rare_prior_are_calibrated_on_fresh_rows(kind):
    """With 400 positives overfitting no longer rules: fresh rows have the prior as their mean, too."""
    X, y = rare_table(2_000_000, 2e-4)
    model = kind("crossentropy", n_estimators=40, n_jobs=1, max_depth=4).fit(X, y)
    assert measure(model.predict_log_odds, 2e-4)[1] == pytest.approx(1, abs=0.1)


# ---- the scale of the defaults ----------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [0.3, 1e-2, 1e-5])
def test_limits_of_cross_entropy_count_positives(prior):
    limits = limits_of(CrossEntropy(), start_of(CrossEntropy(), (1 - prior, prior)))
    assert (limits.min_child_weight, limits.l2) == pytest.approx((2, 2), rel=1e-6)
    assert limits.max_delta_step == pytest.approx(10, rel=1e-6)


@pytest.mark.parametrize("prior", [0.3, 1e-2, 1e-5])
@pytest.mark.parametrize("base", ["crossentropy", "tbl", "focal"])
def test_limits_follow_weights_and_scales_of_the_loss(base, prior):
    """Multiplying the loss by 7 multiplies the Hessian's limits; shifting the score changes nothing."""
    shares = (1 - prior, prior)

    def limits(text):
        return limits_of(parse(text), start_of(parse(text), shares))

    plain = limits(base)
    heavy = limits(f"classweighted({base},weights=(7.0,7.0))")
    assert (heavy.l2, heavy.min_child_weight) == pytest.approx((7 * plain.l2, 7 * plain.min_child_weight))
    assert heavy.max_delta_step == pytest.approx(plain.max_delta_step)
    shifted = limits(f"logitadjusted({base},prior=0.001)")
    assert (shifted.l2, shifted.max_delta_step) == pytest.approx((plain.l2, plain.max_delta_step), rel=1e-6)


@both
def test_given_parameters_win(kind, tmp_path):
    X, y = rare_table(2000, 0.05)
    with pytest.warns(NoSplitWarning):
        model = kind("tbl", n_estimators=1, n_jobs=1, min_child_weight=1e9).fit(X, y)
    assert len(np.unique(model.decision_function(X))) == 1
    name = "reg_lambda"
    soft, hard = (kind("tbl", n_estimators=1, n_jobs=1, **{name: value}).fit(X, y) for value in (0.0, 1e6))
    assert np.ptp(hard.decision_function(X)) < 1e-3 < np.ptp(soft.decision_function(X))
    small = kind("tbl", n_estimators=1, n_jobs=1, learning_rate=1.0, max_delta_step=1e-3).fit(X, y)
    assert np.ptp(small.decision_function(X)) <= 2.1e-3


def test_curvature_at_the_start_is_the_pull_of_positives_times_the_link():
    """h* = prior |l'(1)| lambda', the identity on which the defaults rest."""
    for text in (
        "crossentropy",
        "tbl",
        "focal",
        "squared",
        "vectorscaling(delta=0.5)",
        "ldam(class_counts=(99,1))",
    ):
        loss = parse(text)
        start = start_of(loss, (0.99, 0.01))
        z = start.scores[0]
        assert float(loss.probability(z)) == pytest.approx(0.01, rel=1e-6)
        slope = (loss.log_odds(z + 1e-5) - loss.log_odds(z - 1e-5)) / 2e-5
        assert start.log_odds_slope == pytest.approx(float(slope), rel=1e-5)
        bends = loss.hessian(np.full(2, z), np.array([0, 1]))
        assert start.curvature == pytest.approx(0.99 * bends[0] + 0.01 * bends[1], rel=1e-6)
