"""Evaluation metrics in XGBoost and LightGBM: values, weights, and which way early stopping goes."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from raresight.metrics import average_precision, partial_auc, recall_at_fpr
from raresight.metrics.eval_metrics import lightgbm_metric, xgboost_metric

ROUNDS, PATIENCE, MAX_FPR = 60, 20, 0.2


def sample(seed, rows):
    """Labels that depend on few of the features, so that a booster learns first and overfits later."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 8))
    y = rng.random(rows) < 1 / (1 + np.exp(3 - 1.5 * x[:, 0] - x[:, 1] * x[:, 2]))
    return x, y.astype(int)


X, Y = sample(0, 500)
XV, YV = sample(1, 800)
WEIGHT = np.random.default_rng(2).uniform(0.1, 3.0, size=len(YV)).astype(np.float32)

XGB = {"max_depth": 4, "learning_rate": 0.2, "nthread": 1, "objective": "binary:logistic", "seed": 0}
LGB = {
    "num_leaves": 8,
    "learning_rate": 0.2,
    "num_threads": 1,
    "objective": "binary",
    "metric": "None",
    "verbose": -1,
    "seed": 0,
    "deterministic": True,
}


def validation(x, y):
    """LightGBM 4.7 renamed the arguments for the evaluation set."""
    if "eval_X" in inspect.signature(lgb.LGBMClassifier.fit).parameters:
        return {"eval_X": (x,), "eval_y": (y,)}
    return {"eval_set": [(x, y)]}


LGB_CLASS = {key: value for key, value in LGB.items() if key not in ("seed", "num_threads")} | {
    "n_estimators": ROUNDS,
    "n_jobs": 1,
    "random_state": 0,
}


def reference(scores, weight=None):
    return roc_auc_score(YV, scores, max_fpr=MAX_FPR, sample_weight=weight)


def the_peak(values):
    """The round with the highest value, which must tell a rise from a fall: inside the run, not at an end."""
    best = int(np.argmax(np.round(values, 6)))
    assert 3 < best < ROUNDS - PATIENCE
    assert np.argmin(values) != best
    return best


@pytest.fixture(scope="module")
def xgb_history():
    """Partial AUC after each round of a full run, from the predictions."""
    booster = xgb.train(XGB, xgb.DMatrix(X, Y), ROUNDS)
    data = xgb.DMatrix(XV)
    return [reference(booster.predict(data, iteration_range=(0, i + 1))) for i in range(ROUNDS)]


@pytest.fixture(scope="module")
def lgb_history():
    booster = lgb.train(LGB, lgb.Dataset(X, Y), ROUNDS)
    return [reference(booster.predict(XV, num_iteration=i + 1)) for i in range(ROUNDS)]


def check_log(log, history, best, decimals=6):
    assert len(log) == best + PATIENCE + 1
    np.testing.assert_allclose(log, history[: len(log)], atol=0.6 * 10.0**-decimals)


def test_xgb_train_stops_at_the_highest(xgb_history):
    log = {}
    metric = xgboost_metric("partial_auc", max_fpr=MAX_FPR)
    booster = xgb.train(
        XGB,
        xgb.DMatrix(X, Y),
        ROUNDS,
        evals=[(xgb.DMatrix(XV, YV), "valid")],
        custom_metric=metric,
        early_stopping_rounds=PATIENCE,
        evals_result=log,
        verbose_eval=False,
    )
    best = the_peak(xgb_history)
    assert booster.best_iteration == best
    assert booster.best_score == pytest.approx(xgb_history[best], abs=1e-6)
    check_log(log["valid"]["auc_partial_auc@0.2"], xgb_history, best)


def test_xgb_classifier_stops_at_the_highest(xgb_history):
    metric = xgboost_metric("partial_auc", max_fpr=MAX_FPR)
    model = xgb.XGBClassifier(
        n_estimators=ROUNDS, eval_metric=metric, early_stopping_rounds=PATIENCE, n_jobs=1, max_depth=4,
        learning_rate=0.2, random_state=0,
    )  # fmt: skip
    model = clone(model).fit(X, Y, eval_set=[(XV, YV)], verbose=False)
    best = the_peak(xgb_history)
    assert model.best_iteration == best
    check_log(model.evals_result()["validation_0"]["auc_partial_auc@0.2"], xgb_history, best)


def test_xgb_callback_stops_at_the_highest(xgb_history):
    stop = xgb.callback.EarlyStopping(rounds=PATIENCE, save_best=True)
    booster = xgb.train(
        XGB,
        xgb.DMatrix(X, Y),
        ROUNDS,
        evals=[(xgb.DMatrix(XV, YV), "valid")],
        custom_metric=xgboost_metric(max_fpr=MAX_FPR),
        callbacks=[stop],
        verbose_eval=False,
    )
    assert booster.num_boosted_rounds() == the_peak(xgb_history) + 1


@pytest.mark.parametrize(
    "metric", ["roc_auc", "partial_auc", "recall_at_fpr", "average_precision", "precision_at_recall"]
)
def test_every_metric_goes_up_in_xgboost(metric):
    metric = xgboost_metric(metric)
    log = {}
    booster = xgb.train(
        XGB,
        xgb.DMatrix(X, Y),
        30,
        evals=[(xgb.DMatrix(XV, YV), "valid")],
        custom_metric=metric,
        early_stopping_rounds=30,
        evals_result=log,
        verbose_eval=False,
    )
    values = log["valid"][metric.__name__]
    assert booster.best_iteration == np.argmax(values)
    assert max(values) > values[0] or np.argmin(values) > 0  # going down would stop elsewhere


def test_xgb_cv_reads_the_name():
    table = xgb.cv(
        XGB,
        xgb.DMatrix(X, Y),
        40,
        nfold=3,
        stratified=True,
        custom_metric=xgboost_metric(max_fpr=1e-5),
        early_stopping_rounds=5,
    )
    # The result is cut after the best round: the highest is the last.
    values = table["test-auc_partial_auc@1e-05-mean"]
    assert 1 < len(values) < 35
    assert np.argmax(values) == len(values) - 1


def test_lgb_train_stops_at_the_highest(lgb_history):
    log = {}
    data = lgb.Dataset(X, Y)
    booster = lgb.train(
        LGB,
        data,
        ROUNDS,
        valid_sets=[lgb.Dataset(XV, YV, reference=data)],
        feval=lightgbm_metric("partial_auc", max_fpr=MAX_FPR),
        callbacks=[lgb.early_stopping(PATIENCE, verbose=False), lgb.record_evaluation(log)],
    )
    best = the_peak(lgb_history)
    assert booster.best_iteration == best + 1  # LightGBM counts from one
    check_log(log["valid_0"]["partial_auc@0.2"], lgb_history, best, decimals=9)


def test_lgb_classifier_stops_at_the_highest(lgb_history):
    model = lgb.LGBMClassifier(**LGB_CLASS).fit(
        X,
        Y,
        **validation(XV, YV),
        eval_metric=lightgbm_metric("partial_auc", max_fpr=MAX_FPR),
        callbacks=[lgb.early_stopping(PATIENCE, verbose=False)],
    )
    best = the_peak(lgb_history)
    assert model.best_iteration_ == best + 1
    check_log(model.evals_result_["valid_0"]["partial_auc@0.2"], lgb_history, best, decimals=9)


def test_lgb_cv():
    metric = lightgbm_metric("recall_at_fpr", fpr=0.05)
    result = lgb.cv(LGB, lgb.Dataset(X, Y), 5, nfold=3, feval=metric)
    assert len(result["valid recall_at_fpr@0.05-mean"]) == 5


def test_weights_are_used_in_all_four_interfaces():
    boosted = xgb.train(XGB, xgb.DMatrix(X, Y), 5)
    plain, weighted = (reference(boosted.predict(xgb.DMatrix(XV)), w) for w in (None, WEIGHT))
    assert abs(plain - weighted) > 1e-3
    metric = xgboost_metric(max_fpr=MAX_FPR)
    log = {}
    evals = [(xgb.DMatrix(XV, YV), "plain"), (xgb.DMatrix(XV, YV, weight=WEIGHT), "weighted")]
    xgb.train(
        XGB, xgb.DMatrix(X, Y), 5, evals=evals, custom_metric=metric, evals_result=log, verbose_eval=False
    )
    model = xgb.XGBClassifier(
        n_estimators=5, max_depth=4, learning_rate=0.2, eval_metric=metric, n_jobs=1, random_state=0
    ).fit(X, Y, eval_set=[(XV, YV)], sample_weight_eval_set=[WEIGHT], verbose=False)
    assert log["plain"][metric.__name__][-1] == pytest.approx(plain, abs=1e-6)
    assert log["weighted"][metric.__name__][-1] == pytest.approx(weighted, abs=1e-6)
    assert model.evals_result()["validation_0"][metric.__name__][-1] == pytest.approx(weighted, abs=1e-6)

    boosted = lgb.train(LGB, lgb.Dataset(X, Y), 5)
    plain, weighted = (reference(boosted.predict(XV), w) for w in (None, WEIGHT))
    assert abs(plain - weighted) > 1e-3
    metric = lightgbm_metric(max_fpr=MAX_FPR)
    log = {}
    data = lgb.Dataset(X, Y)
    lgb.train(
        LGB,
        data,
        5,
        valid_sets=[
            lgb.Dataset(XV, YV, reference=data),
            lgb.Dataset(XV, YV, weight=WEIGHT, reference=data),
        ],
        feval=metric,
        callbacks=[lgb.record_evaluation(log)],
    )
    model = lgb.LGBMClassifier(**LGB_CLASS | {"n_estimators": 5}).fit(
        X, Y, **validation(XV, YV), eval_sample_weight=[WEIGHT], eval_metric=metric
    )
    assert log["valid_0"]["partial_auc@0.2"][-1] == pytest.approx(plain, abs=1e-9)
    assert log["valid_1"]["partial_auc@0.2"][-1] == pytest.approx(weighted, abs=1e-6)
    assert model.evals_result_["valid_0"]["partial_auc@0.2"][-1] == pytest.approx(weighted, abs=1e-6)


def logistic(scores, labels):
    p = 1 / (1 + np.exp(-scores))
    return p - labels, p * (1 - p)


def test_raw_margins_of_an_own_objective_rank_alike():
    log = {}
    params = {key: value for key, value in XGB.items() if key != "objective"}
    booster = xgb.train(
        params,
        xgb.DMatrix(X, Y),
        5,
        obj=lambda scores, data: logistic(scores, data.get_label()),
        evals=[(xgb.DMatrix(XV, YV), "valid")],
        custom_metric=xgboost_metric("recall_at_fpr", fpr=0.1),
        evals_result=log,
        verbose_eval=False,
    )
    margin = booster.predict(xgb.DMatrix(XV), output_margin=True)
    assert margin.min() < 0
    expected = recall_at_fpr(YV, margin, 0.1)
    assert log["valid"]["auc_recall_at_fpr@0.1"][-1] == pytest.approx(expected, abs=1e-6)

    own = lgb.LGBMClassifier(
        **LGB_CLASS | {"n_estimators": 5, "objective": lambda y, scores: logistic(scores, y)}
    )
    own.fit(X, Y, **validation(XV, YV), eval_metric=lightgbm_metric("average_precision"))
    expected = average_precision(YV, own.predict(XV, raw_score=True))
    assert own.evals_result_["valid_0"]["average_precision"][-1] == pytest.approx(expected)


def test_several_classes_are_refused():
    three = np.arange(len(Y)) % 3
    settings = {"objective": "multi:softprob", "num_class": 3, "nthread": 1}
    data = xgb.DMatrix(X, three)
    with pytest.raises(ValueError, match="predicts 3 values per row, but partial_auc is for two classes"):
        xgb.train(settings, data, 1, evals=[(data, "train")], custom_metric=xgboost_metric())
    with pytest.raises(ValueError, match="predicts 3 values per row"):
        lgb.LGBMClassifier(n_estimators=1, verbose=-1, n_jobs=1).fit(
            X, three, **validation(X, three), eval_metric=lightgbm_metric()
        )
    with pytest.raises(ValueError, match="labels 0 and 1"):
        xgboost_metric()([0, 1, 2], [0.1, 0.2, 0.3])


def test_one_column_is_one_score_a_row():
    column = np.array([[0.1], [0.4], [0.35], [0.8]])
    assert xgboost_metric("roc_auc")([0, 0, 1, 1], column) == 0.75
    assert lightgbm_metric("roc_auc")([0, 0, 1, 1], column) == ("roc_auc", 0.75, True)


@pytest.mark.parametrize(
    ("metric", "params", "name"),
    [
        ("partial_auc", {}, "partial_auc@0.01"),
        ("partial_auc", {"max_fpr": 1e-5}, "partial_auc@1e-05"),
        ("partial_auc", {"kind": "mean", "max_fpr": 0.5}, "partial_auc@0.5_kind=mean"),
        ("partial_auc", {"kind": "mcclish"}, "partial_auc@0.01"),
        ("recall_at_fpr", {"interpolate": True}, "recall_at_fpr@0.001_interpolate=True"),
        ("roc_auc", {}, "roc_auc"),
        ("average_precision", {}, "average_precision"),
    ],
)
def test_names(metric, params, name):
    assert lightgbm_metric(metric, **params).__name__ == name
    assert xgboost_metric(metric, **params).__name__ == f"auc_{name}"


def test_name_that_xgboost_maximizes_anyway_is_left_alone():
    assert xgboost_metric("precision_at_recall").__name__ == "precision_at_recall@0.5"


@pytest.mark.parametrize("make", [xgboost_metric, lightgbm_metric])
def test_bad_requests_are_told_at_once(make):
    with pytest.raises(ValueError, match="Unknown metric"):
        make("pauc")
    with pytest.raises(TypeError, match="no parameter 'fpr'"):
        make("partial_auc", fpr=0.1)
    with pytest.raises(ValueError, match="max_fpr must be"):
        make(max_fpr=0)
    with pytest.raises(ValueError, match=r"brier_score does not rank scores.*choose one of roc_auc"):
        make("brier_score")


@pytest.mark.parametrize("make", [xgboost_metric, lightgbm_metric])
def test_copies_and_functions(make):
    metric = make(partial_auc, max_fpr=0.5)
    copy = pickle.loads(pickle.dumps(metric))
    assert copy.__name__ == metric.__name__
    assert copy([0, 0, 1], [0.3, 0.1, 0.2]) == metric([0, 0, 1], [0.3, 0.1, 0.2])
    assert repr(metric) == f"{type(metric).__name__}({metric.__name__!r})"


def test_no_booster_is_imported():
    code = (
        "from raresight.metrics.eval_metrics import xgboost_metric, lightgbm_metric; import sys; "
        "xgboost_metric()([0, 1], [0, 1]); lightgbm_metric()([0, 1], [0, 1]); "
        "assert not {'xgboost', 'lightgbm'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
