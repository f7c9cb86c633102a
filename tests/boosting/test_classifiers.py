"""Both classifiers: every loss, the stored start, early stopping, and the tables they read."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xgboost as xgb
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from boosting.boosting_tables import rare_table
from loss_cases import SOME_CLASS_LOSSES, SOME_LOSSES, has_link
from raresight.boosting import LightGBMClassifier, NoSplitWarning, XGBoostClassifier, start_of
from raresight.losses import LDAM, TBL, ClassWeighted, CrossEntropy, LogitAdjusted, VectorScaling
from raresight.metrics import partial_auc, recall_at_fpr
from raresight.metrics.eval_metrics import lightgbm_metric, xgboost_metric

CLASSIFIERS = [XGBoostClassifier, LightGBMClassifier]
both = pytest.mark.parametrize("kind", CLASSIFIERS)

X, Y = rare_table(4000, 0.05)
FRESH_X, FRESH_Y = rare_table(8000, 0.05, seed=1)


def four_classes(rows=4000, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(4, rows, p=[0.7, 0.2, 0.08, 0.02])
    return rng.normal(size=(rows, 4)) + 1.5 * np.eye(4)[y], y


def plain_scores(model, features, tmp_path):
    """Raw scores of the saved model file, read by the library alone."""
    if isinstance(model, XGBoostClassifier):
        model.save(tmp_path / "model.json")
        booster = xgb.Booster(model_file=tmp_path / "model.json")
        data = xgb.DMatrix(features, enable_categorical=True)
        return booster.predict(data), booster.predict(data, output_margin=True)
    model.save(tmp_path / "model.txt")
    booster = lgb.Booster(model_file=tmp_path / "model.txt")
    return booster.predict(features), booster.predict(features, raw_score=True)


def reliability(model, features, labels, bins=4):
    """Largest gap between mean probability and share of positives over bins, in standard errors."""
    p = model.predict_proba(features)[:, 1]
    edges = np.quantile(p, [0.5, 0.8, 0.95])
    worst = 0.0
    for rows in (np.digitize(p, edges) == b for b in range(bins)):
        expected, variance = p[rows].sum(), (p[rows] * (1 - p[rows])).sum()
        worst = max(worst, abs(labels[rows].sum() - expected) / np.sqrt(variance + 1))
    return worst


def usable(loss):
    # The margins of LDAM and the shifts of logit adjustment belong to other counts in the matrix of losses;
    # the probabilities are calibrated all the same.
    return has_link(loss)


@both
@pytest.mark.parametrize("loss", [loss for loss in SOME_LOSSES if usable(loss)], ids=str)
def test_every_loss_trains_and_has_the_level(kind, loss):
    """The mean on training rows is the shift's doing; that on fresh rows is the model's."""
    model = kind(loss, n_estimators=25, learning_rate=0.2, n_jobs=1, max_depth=3).fit(X, Y)
    p = model.predict_proba(FRESH_X)
    assert p.shape == (len(FRESH_X), 2)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-9)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(Y.mean(), rel=1e-4)
    prior = FRESH_Y.mean()
    entropy = -prior * np.log(prior) - (1 - prior) * np.log1p(-prior)
    log_p = model.predict_log_proba(FRESH_X)
    assert -log_p[np.arange(len(FRESH_Y)), FRESH_Y].mean() < 0.85 * entropy
    assert p[:, 1].mean() == pytest.approx(prior, rel=0.15)
    assert partial_auc(FRESH_Y, p[:, 1], max_fpr=0.1) > 0.75


@both
@pytest.mark.parametrize(
    "loss", [CrossEntropy(), TBL(), LogitAdjusted(TBL(), 0.05), VectorScaling(0.5)], ids=str
)
def test_probabilities_are_reliable_bin_by_bin(kind, loss):
    features, labels = rare_table(40_000, 0.05, seed=2)
    fresh, fresh_labels = rare_table(40_000, 0.05, seed=3)
    model = kind(loss, n_jobs=1, n_estimators=60, max_depth=4).fit(features, labels)
    assert reliability(model, fresh, fresh_labels) < 6


@both
@pytest.mark.parametrize("loss", SOME_CLASS_LOSSES, ids=str)
def test_every_loss_trains_on_classes(kind, loss):
    features, labels = four_classes()
    model = kind(loss, n_estimators=12, learning_rate=0.3, n_jobs=1, max_depth=3).fit(features, labels)
    fresh, fresh_labels = four_classes(seed=1)
    p = model.predict_proba(fresh)
    np.testing.assert_allclose(
        model.predict_proba(features).mean(axis=0), np.bincount(labels) / len(labels), rtol=1e-3
    )
    np.testing.assert_allclose(p.mean(axis=0), np.bincount(fresh_labels) / len(fresh_labels), rtol=0.25)
    constant = np.log(np.bincount(labels) / len(labels))[fresh_labels].mean()
    assert model.predict_log_proba(fresh)[np.arange(len(p)), fresh_labels].mean() > 0.8 * constant
    # `predict` decides as the loss does, which need not be for the most probable class.
    assert (p.argmax(axis=1) == fresh_labels).mean() > 0.75


# ---- the start --------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("loss", ["crossentropy", "tbl", "focal", "vectorscaling(delta=0.5)"])
def test_plain_library_predicts_the_raw_score_with_its_start(kind, loss, tmp_path):
    model = kind(loss, n_estimators=7, n_jobs=1).fit(X, Y)
    raw = model.decision_function(X)
    for scores in plain_scores(model, X, tmp_path):
        np.testing.assert_allclose(scores, raw, atol=1e-6)
    expected = start_of(model.loss_, (1 - Y.mean(), Y.mean())).scores[0]
    assert model.start_score_ == pytest.approx(expected)
    assert abs(expected) > 1  # a start that is lost would be seen
    # One round at a tiny rate leaves the start.
    barely = kind(loss, n_estimators=1, learning_rate=1e-6, n_jobs=1).fit(X, Y)
    np.testing.assert_allclose(plain_scores(barely, X, tmp_path)[0], expected, atol=1e-4)


@both
def test_plain_library_predicts_class_scores_with_their_start(kind, tmp_path):
    features, labels = four_classes()
    model = kind("tbl", n_estimators=4, n_jobs=1).fit(features, labels)
    raw = model.decision_function(features)
    assert raw.shape == (len(labels), 4)
    for scores in plain_scores(model, features, tmp_path):
        np.testing.assert_allclose(scores, raw, atol=1e-6)
    barely = kind("tbl", n_estimators=1, learning_rate=1e-6, n_jobs=1).fit(features, labels)
    expected = TBL().class_scores(np.bincount(labels) / len(labels))
    np.testing.assert_allclose(
        barely.decision_function(features), np.tile(expected, (len(labels), 1)), atol=1e-4
    )


@both
def test_cross_entropy_is_the_library_own(kind):
    """The trees of the built-in objective, with the classifier's parameters and the same start."""
    model = kind(
        "crossentropy", n_estimators=20, n_jobs=1, min_child_weight=0.7, reg_lambda=1.3, max_delta_step=0
    )
    raw = model.fit(X, Y).decision_function(X)
    if kind is XGBoostClassifier:
        parameters = {"min_child_weight": 0.7, "reg_lambda": 1.3, "eta": 0.1, "nthread": 1}
        parameters |= {"objective": "binary:logistic", "base_score": float(Y.mean())}
        own = xgb.train(parameters, xgb.QuantileDMatrix(X, Y), 20).predict(xgb.DMatrix(X), output_margin=True)
    else:
        parameters = {"min_child_weight": 0.7, "lambda_l2": 1.3, "min_data_in_leaf": 1, "num_threads": 1}
        parameters |= {"objective": "binary", "verbose": -1}
        own = lgb.train(parameters, lgb.Dataset(X, Y), 20).predict(X, raw_score=True)
    np.testing.assert_allclose(raw, own, atol=1e-4)


def test_lightgbm_start_survives_a_first_tree_without_splits(tmp_path):
    model = LightGBMClassifier("tbl", n_estimators=3, n_jobs=1, min_split_gain=1e9)
    with pytest.warns(NoSplitWarning, match="no round found a split"):
        model.fit(X, Y)
    np.testing.assert_allclose(plain_scores(model, X, tmp_path)[0], model.start_score_, atol=1e-9)
    assert (model.feature_importances_ == 0).all()


@both
def test_dart_keeps_the_start(kind, tmp_path):
    dart = (
        {"booster": "dart", "rate_drop": 0.5}
        if kind is XGBoostClassifier
        else {"boosting": "dart", "drop_rate": 0.5}
    )
    model = kind("tbl", n_estimators=15, n_jobs=1, random_state=0, **dart).fit(X, Y)
    np.testing.assert_allclose(plain_scores(model, X, tmp_path)[0], model.decision_function(X), atol=1e-5)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(Y.mean(), rel=1e-4)
    # Without its shift, so that a start added twice or lost would show.
    assert TBL().probability(model.decision_function(X).astype(float)).mean() == pytest.approx(
        Y.mean(), rel=0.3
    )


@pytest.mark.parametrize("drops", [{}, {"drop_rate": 0.5, "skip_drop": 0.0}], ids=str)
def test_lightgbm_dart_sets_the_level_from_the_final_trees(drops):
    """The scores that LightGBM keeps while training are not those of the trees it rescaled."""
    model = LightGBMClassifier("tbl", n_estimators=30, n_jobs=1, random_state=0, boosting="dart", **drops)
    assert model.fit(X, Y).predict_proba(X)[:, 1].mean() == pytest.approx(Y.mean(), rel=1e-4)


@both
def test_training_goes_on_in_the_plain_library(kind, tmp_path):
    """The saved model is a whole one: more rounds of the library's own objective build on its raw scores."""
    model = kind("crossentropy", n_estimators=10, n_jobs=1).fit(X, Y)
    raw, _ = plain_scores(model, X, tmp_path)
    if kind is XGBoostClassifier:
        custom = xgb.train(
            {"nthread": 1, "eta": 1e-6}, xgb.DMatrix(X, Y), 1, xgb_model=tmp_path / "model.json"
        )  # fmt: skip
        more = custom.predict(xgb.DMatrix(X), output_margin=True)
    else:
        parameters = {"objective": "binary", "learning_rate": 1e-6, "verbose": -1, "num_threads": 1}
        more = lgb.train(parameters, lgb.Dataset(X, Y), 1, init_model=tmp_path / "model.txt").predict(
            X, raw_score=True
        )
    np.testing.assert_allclose(more, raw, atol=1e-3)


@both
def test_class_weights_in_the_loss_leave_probabilities_calibrated(kind):
    model = kind(ClassWeighted(CrossEntropy(), (1.0, 19.0)), n_jobs=1, n_estimators=40).fit(X, Y)
    assert model.start_score_ == pytest.approx(0, abs=1e-9)
    # The level alone could be the shift's doing; that it holds bin by bin cannot.
    assert model.predict_proba(FRESH_X)[:, 1].mean() == pytest.approx(FRESH_Y.mean(), rel=0.15)
    assert reliability(model, FRESH_X, FRESH_Y) < 6


# ---- early stopping ---------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("metric", ["partial_auc", "recall_at_fpr"])
def test_early_stopping_ends_at_the_best_round(kind, metric, tmp_path):
    make, reference = (
        (xgboost_metric if kind is XGBoostClassifier else lightgbm_metric),
        {
            "partial_auc": lambda y, z: partial_auc(y, z, max_fpr=0.05),
            "recall_at_fpr": lambda y, z: recall_at_fpr(y, z, fpr=0.05),
        }[metric],
    )
    place = {"max_fpr": 0.05} if metric == "partial_auc" else {"fpr": 0.05}
    few, few_labels = X[:600], Y[:600]
    settings = {"n_estimators": 60, "n_jobs": 1, "learning_rate": 0.3}
    full = kind("tbl", **settings).fit(few, few_labels)
    stopped = kind("tbl", **settings, early_stopping_rounds=8, eval_metric=make(metric, **place))
    stopped.fit(few, few_labels, eval_set=(FRESH_X, FRESH_Y))
    history = []
    for rounds in range(1, 61):
        if kind is XGBoostClassifier:
            scores = full.booster_.predict(
                xgb.DMatrix(FRESH_X), iteration_range=(0, rounds), output_margin=True
            )
        else:
            scores = full.booster_.predict(FRESH_X, num_iteration=rounds, raw_score=True)
        history.append(round(reference(FRESH_Y, scores), 6))
    log = next(iter(stopped.evals_result_["eval_0"].values()))
    best = int(np.argmax(history[: len(log)]))
    assert stopped.best_iteration_ == best
    assert len(log) == best + 9 < 60
    np.testing.assert_allclose(log, history[: len(log)], atol=1e-6)
    # The model is cut: plain predictions are those of the best round.
    assert reference(FRESH_Y, stopped.decision_function(FRESH_X)) == pytest.approx(history[best], abs=1e-6)
    np.testing.assert_allclose(plain_scores(stopped, X, tmp_path)[0], stopped.decision_function(X), atol=1e-6)
    assert stopped.predict_proba(few)[:, 1].mean() == pytest.approx(few_labels.mean(), rel=1e-3)


@both
def test_the_last_set_decides_and_weights_count(kind):
    upside_down = (FRESH_X, 1 - FRESH_Y)
    model = kind("tbl", n_estimators=30, n_jobs=1, early_stopping_rounds=3, eval_metric="roc_auc")
    weights = np.random.default_rng(0).uniform(0.5, 2, len(FRESH_Y))
    pairs = [upside_down, (FRESH_X, FRESH_Y)]
    model.fit(X, Y, eval_set=pairs, eval_sample_weight=[None, weights])
    assert model.best_iteration_ >= 3
    assert set(model.evals_result_) == {"eval_0", "eval_1"}
    from raresight.metrics import roc_auc

    log = next(iter(model.evals_result_["eval_1"].values()))
    scores = model.decision_function(FRESH_X)
    assert log[model.best_iteration_] == pytest.approx(
        roc_auc(FRESH_Y, scores, sample_weight=weights), abs=1e-6
    )
    assert clone(model).fit(X, Y, eval_set=pairs[::-1]).best_iteration_ == 0


@both
def test_classes_stop_on_the_mean_loss(kind):
    features, labels = four_classes(1500)
    fresh, fresh_labels = four_classes(1500, seed=1)
    model = kind("tbl", n_estimators=80, n_jobs=1, learning_rate=0.4, early_stopping_rounds=4)
    model.fit(features, labels, eval_set=[(fresh, fresh_labels)])
    log = model.evals_result_["eval_0"]["loss"]
    assert model.best_iteration_ == int(np.argmin(np.round(log, 6)))
    assert len(log) == model.best_iteration_ + 5
    value = TBL().value(model.decision_function(fresh).astype(np.float64), fresh_labels).mean()
    assert value == pytest.approx(log[model.best_iteration_], rel=1e-4)


# ---- tables -----------------------------------------------------------------------------------------------


@both
def test_weights_are_repetitions(kind):
    coarse = np.round(X[:1500], 0)
    labels = Y[:1500]
    weights = np.random.default_rng(5).integers(1, 4, len(labels))
    model = kind(
        "tbl", n_estimators=8, n_jobs=1, **({} if kind is XGBoostClassifier else {"min_data_in_bin": 1})
    )
    weighted = clone(model).fit(coarse, labels, sample_weight=weights)
    twice = clone(model).fit(np.repeat(coarse, weights, axis=0), np.repeat(labels, weights))
    np.testing.assert_allclose(
        weighted.predict_proba(coarse), twice.predict_proba(coarse), rtol=1e-3, atol=1e-6
    )
    assert weighted.start_score_ == pytest.approx(twice.start_score_)
    assert (
        abs(clone(model).fit(coarse, labels).predict_proba(coarse) - twice.predict_proba(coarse)).max() > 1e-3
    )


@both
def test_arrays_frames_and_sparse_agree(kind):
    model = kind("tbl", n_estimators=5, n_jobs=1)
    reference = clone(model).fit(X, Y).predict_proba(X)
    names = [f"c{i}" for i in range(X.shape[1])]
    for table in (pd.DataFrame(X, columns=names), pl.DataFrame(X, schema=names)):
        fitted = clone(model).fit(table, Y)
        assert fitted.feature_names_in_.tolist() == names
        np.testing.assert_allclose(fitted.predict_proba(table), reference, atol=1e-6)
    thin = sparse.csr_matrix(np.where(np.abs(X) > 1.0, X, 0))
    np.testing.assert_allclose(
        clone(model).fit(thin.tocsc(), pd.Series(Y)).predict_proba(thin),
        clone(model).fit(thin, pl.Series(Y)).predict_proba(thin),
    )


@both
@pytest.mark.parametrize("kept", [True, False], ids=["fitted", "loaded"])
def test_sparse_and_dense_rows_agree(kind, kept, tmp_path, monkeypatch):
    """Whichever the model was fitted on: XGBoost by itself takes the zeros of sparse rows for missing."""
    monkeypatch.setattr("raresight.boosting.xgboost_classifier._DENSE_NUMBERS", 6 * 700)
    dense = np.where(np.abs(X) > 1.0, X, 0)
    thin = sparse.csr_matrix(dense)
    # Some zeros are written out, which makes them no different.
    written = sparse.csr_matrix(dense + (dense == 0))
    written.data[written.data == 1] = 0
    forms = [thin, sparse.csc_matrix(thin), written, dense, dense.astype(np.float64)]
    for trained_on in (thin, written, dense):
        model = kind("tbl", n_estimators=10, n_jobs=1).fit(trained_on, Y, eval_set=[(x, Y) for x in forms])
        logs = [next(iter(log.values())) for log in model.evals_result_.values()]
        np.testing.assert_allclose(logs, [logs[0]] * len(forms), atol=1e-6)
        if not kept:
            path = tmp_path / ("model.json" if kind is XGBoostClassifier else "model.txt")
            model.save(path)
            model = kind.load(path)
        reference = model.predict_proba(trained_on)
        assert np.ptp(reference) > 0.5
        for rows in forms:
            np.testing.assert_allclose(model.predict_proba(rows), reference, atol=1e-6)
    on_sparse = kind("tbl", n_estimators=10, n_jobs=1).fit(thin, Y)
    with pytest.warns(UserWarning, match="feature names"):
        p = on_sparse.predict_proba(pd.DataFrame(dense, columns=list("abcdef")))
    np.testing.assert_allclose(p, on_sparse.predict_proba(thin), atol=1e-6)


@both
def test_predict_is_the_sign_of_the_score(kind):
    """The decision the loss was made for, not the more probable class."""
    model = kind("classweighted(crossentropy,(1,20))", n_estimators=30, n_jobs=1).fit(X, Y)
    scores = model.decision_function(FRESH_X)
    np.testing.assert_array_equal(model.predict(FRESH_X), (scores > 0).astype(int))
    probable = model.predict_proba(FRESH_X)[:, 1] > 0.5
    assert (scores > 0).sum() > 1.2 * probable.sum()
    features, labels = four_classes()
    weighted = kind("classweighted(crossentropy,(1,1,1,50))", n_estimators=10, n_jobs=1).fit(features, labels)
    highest = weighted.decision_function(features).argmax(axis=1)
    np.testing.assert_array_equal(weighted.predict(features), highest)
    assert (highest != weighted.predict_proba(features).argmax(axis=1)).any()


@both
def test_a_failed_fit_leaves_the_model_whole(kind):
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = kind("tbl", n_estimators=40, n_jobs=1).fit(frame, Y)
    before, state = model.predict_proba(frame), dict(vars(model))
    other = pd.DataFrame(-X[:, :2], columns=["u", "v"])
    words = np.array(["ham", "spam"])[Y]
    model.set_params(early_stopping_rounds=3, loss="focal")
    with pytest.raises(ValueError, match="pass eval_set"):
        model.fit(other, words)
    model.set_params(early_stopping_rounds=None, max_depth="deep")
    with pytest.raises(Exception, match="max_depth"):  # the library's own error
        model.fit(other, words)
    for name, value in state.items():
        if name.endswith("_"):
            assert getattr(model, name) is value
    np.testing.assert_array_equal(model.predict_proba(frame), before)
    assert set(model.predict(frame).tolist()) == {0, 1}
    unfitted = kind(early_stopping_rounds=3)
    with pytest.raises(ValueError, match="pass eval_set"):
        unfitted.fit(X, Y)
    assert not hasattr(unfitted, "n_features_in_")


@both
@pytest.mark.parametrize("names", [[0, 1], [5, 3]], ids=str)
@pytest.mark.parametrize("library", ["text", "whole numbers"])
def test_columns_may_have_numbers_for_names(kind, names, library, tmp_path):
    words = np.array(["no", "yes"])[Y] if library == "text" else Y + 4
    frame = pd.DataFrame({names[0]: X[:, 3], names[1]: pd.Categorical(words)})
    model = kind("tbl", n_estimators=5, n_jobs=1).fit(frame, Y)
    assert partial_auc(Y, model.decision_function(frame), max_fpr=0.1) == 1
    path = tmp_path / ("model.json" if kind is XGBoostClassifier else "model.txt")
    model.save(path)
    np.testing.assert_array_equal(kind.load(path).predict_proba(frame), model.predict_proba(frame))


@both
def test_missing_values_are_native(kind):
    rng = np.random.default_rng(6)
    features = rng.normal(size=(4000, 2))
    labels = rng.random(4000) < 0.05
    features[labels & (rng.random(4000) < 0.9), 0] = np.nan
    model = kind("tbl", n_estimators=20, n_jobs=1).fit(features, labels)
    assert model.predict_proba([[np.nan, 0.0]])[0, 1] > 0.5 > model.predict_proba([[0.0, 0.0]])[0, 1]


@both
@pytest.mark.parametrize("library", ["pandas", "polars", "array"])
def test_categories_are_native(kind, library, tmp_path):
    rng = np.random.default_rng(7)
    words = np.array(["ape", "bee", "cat", "dog", "eel", "fox"])
    codes = rng.integers(0, 6, 4000)
    number = rng.normal(size=4000)
    labels = rng.random(4000) < np.where(np.isin(codes, [1, 4]), 0.3, 0.02)
    extra = {"num_leaves": 2} if kind is LightGBMClassifier else {"max_depth": 1}
    # A stump can part {bee, eel} from the rest by categories only, not by an order of numbers.
    extra |= (
        {"min_data_per_group": 1, "cat_smooth": 0.0, "max_cat_to_onehot": 1}
        if kind is LightGBMClassifier
        else {"max_cat_to_onehot": 1}
    )
    model = kind("crossentropy", n_estimators=1, learning_rate=1.0, n_jobs=1, **extra)
    if library == "array":
        table = np.column_stack([codes, number])
        model.fit(table, labels, categorical_feature=[0])
        unseen = np.array([[17.0, 0.0]])
    else:
        values = words[codes]
        if library == "pandas":
            table = pd.DataFrame({"animal": pd.Categorical(values), "number": number})
            unseen = pd.DataFrame({"animal": pd.Categorical(["yak"]), "number": [0.0]})
        else:
            table = pl.DataFrame(
                {"animal": pl.Series(values.tolist(), dtype=pl.Categorical), "number": number}
            )
            unseen = pl.DataFrame({"animal": pl.Series(["yak"], dtype=pl.Categorical), "number": [0.0]})
        model.fit(table, labels)
    p = model.predict_proba(table)[:, 1]
    rare = np.isin(codes, [1, 4])
    assert p[rare].min() > 2 * p[~rare].max()
    path = tmp_path / ("model.json" if kind is XGBoostClassifier else "model.txt")
    model.save(path)
    loaded = kind.load(path)
    np.testing.assert_array_equal(loaded.predict_proba(table)[:, 1], p)
    if library != "array":
        shuffled = table[::-1] if library == "pandas" else table.reverse()
        np.testing.assert_allclose(loaded.predict_proba(shuffled)[::-1, 1], p)
        head = table.head(1) if library == "polars" else table.iloc[:1]
        np.testing.assert_allclose(loaded.predict_proba(head)[:, 1], p[:1])
        assert np.isfinite(loaded.predict_proba(unseen)).all()


@both
@pytest.mark.parametrize(
    "labels",
    [np.array(["good", "bad"])[1 - Y], Y.astype(bool), np.where(Y == 1, 2.0, -1.0), np.where(Y == 1, 7, 3)],
    ids=["text", "bool", "float", "int"],
)
def test_labels_of_any_kind(kind, labels):
    model = kind("tbl", n_estimators=10, n_jobs=1).fit(X, labels)
    assert model.classes_.tolist() == sorted(set(labels.tolist()))
    assert set(model.predict(X).tolist()) <= set(labels.tolist())
    assert model.score(X, labels) > 0.94
    positive = labels == model.classes_[1]
    assert partial_auc(positive, model.decision_function(X), max_fpr=0.1) > 0.8


# ---- scikit-learn -----------------------------------------------------------------------------------------


@both
def test_pipeline_grid_and_calibration(kind):
    model = kind("tbl", n_estimators=5, n_jobs=1, max_depth=3)
    pipeline = make_pipeline(StandardScaler(), model).set_output(transform="pandas")
    frame = pd.DataFrame(X, columns=list("abcdef"))
    assert pipeline.fit(frame, Y)[-1].feature_names_in_.tolist() == list("abcdef")
    name = type(model).__name__.lower()
    grid = {f"{name}__loss": ["crossentropy", TBL(0.7, 0.3)], f"{name}__max_depth": [2, 3]}
    search = GridSearchCV(pipeline, grid, cv=2, scoring="roc_auc", n_jobs=1).fit(frame, Y)
    assert search.best_score_ > 0.9
    calibrated = CalibratedClassifierCV(model, cv=2).fit(X, Y)
    assert calibrated.predict_proba(FRESH_X)[:, 1].mean() == pytest.approx(FRESH_Y.mean(), rel=0.15)


@both
def test_parameters_of_the_library_are_parameters(kind):
    model = kind("tbl", max_depth=3, subsample=0.8)
    assert model.get_params()["max_depth"] == 3
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    twin.set_params(max_depth=4, n_estimators=3, loss="focal")
    assert (twin.get_params()["max_depth"], twin.n_estimators, twin.loss) == (4, 3, "focal")
    assert model.get_params()["max_depth"] == 3


@both
def test_importances_find_the_columns_that_matter(kind):
    model = kind("tbl", n_estimators=20, n_jobs=1).fit(X, Y)
    importance = model.feature_importances_
    assert importance.shape == (6,)
    assert importance.sum() == pytest.approx(1)
    assert importance[:3].min() > importance[3:].max()
    frame = pd.DataFrame(X, columns=[f"column {i}" for i in range(6)])
    if kind is XGBoostClassifier:
        np.testing.assert_allclose(
            kind("tbl", n_estimators=20, n_jobs=1).fit(frame, Y).feature_importances_, importance
        )


@both
def test_a_seed_repeats(kind):
    sampled = {"subsample": 0.5} | ({"subsample_freq": 1} if kind is LightGBMClassifier else {})
    runs = [
        kind("tbl", n_estimators=5, n_jobs=1, random_state=seed, **sampled).fit(X, Y) for seed in (1, 1, 2)
    ]
    first, again, other = (run.decision_function(X) for run in runs)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    kind("tbl", n_estimators=1, n_jobs=1, random_state=np.random.RandomState(0)).fit(X, Y)


def test_ldam_with_its_counts():
    counts = (int((Y == 0).sum()), int(Y.sum()))
    model = LightGBMClassifier(LDAM(counts), n_estimators=20, n_jobs=1).fit(X, Y)
    assert partial_auc(FRESH_Y, model.decision_function(FRESH_X), max_fpr=0.1) > 0.75
