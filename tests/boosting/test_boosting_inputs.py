"""Bad input is answered clearly, and the libraries are not needed before they are used."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from boosting.boosting_tables import rare_table
from loss_cases import non_convex_tbl
from raresight.boosting import LightGBMClassifier, NoSplitWarning, XGBoostClassifier
from raresight.losses import VectorScaling

X, Y = rare_table(300, 0.2)
both = pytest.mark.parametrize("kind", [XGBoostClassifier, LightGBMClassifier])


def missing(values, missing_one):
    values = values.astype(object if missing_one is None else float)
    values[5] = missing_one
    return values


@both
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(300), "one class only"),
        (missing(Y, np.nan), r"y\[5\] is nan"),
        (missing(np.array(["a", "b"])[Y], None), r"y\[5\] is None"),
        (np.linspace(0, 1, 300), "continuous"),
        (Y[:-1], "inconsistent numbers of samples"),
        (None, "requires y"),
    ],
)
def test_bad_labels(kind, labels, message):
    with pytest.raises(ValueError, match=message):
        kind().fit(X, labels)


@both
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("ldam", r"class counts are \(240,60\): write for example 'ldam\(class_counts=\(240,60\)\)'"),
        ("logitadjusted(tbl)", "prior=0.2"),
        ("tble", "did you mean 'tbl'"),
        (VectorScaling.from_counts((1, 2, 3)), "is for 3 class logits"),
        (non_convex_tbl(np.inf, 0.0), "no calibrated probability"),
    ],
)
def test_losses_that_do_not_fit(kind, loss, message):
    with pytest.raises(ValueError, match=message):
        kind(loss).fit(X, Y)


@both
def test_losses_that_do_not_fit_three_classes(kind):
    labels = np.arange(300) % 3
    with pytest.raises(ValueError, match="is for two classes, but y holds 3"):
        kind("vectorscaling(delta=0.5)").fit(X, labels)
    with pytest.raises(ValueError, match="is for 2 classes, but y holds 3"):
        kind("ldam(class_counts=(9,1))").fit(X, labels)
    with pytest.raises(ValueError, match="partial_auc is for two classes"):
        kind(eval_metric="partial_auc").fit(X, labels, eval_set=(X, labels))
    with pytest.raises(ValueError, match="log-odds are for two classes"):
        kind(n_estimators=1).fit(X, labels).predict_log_odds(X)
    with pytest.raises(TypeError, match="loss must be"):
        kind(3).fit(X, Y)


@both
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"scale_pos_weight": 10}, "ClassWeighted"),
        ({"objective": "binary"}, "does not take objective"),
        ({"n_estimators": 0}, "n_estimators must be a whole number"),
        ({"learning_rate": -1}, "learning_rate must be a positive"),
        ({"learning_rate": True}, "learning_rate must be a positive number, got True"),
        ({"eval_metric": "brier_score"}, "brier_score does not rank"),
        ({"early_stopping_rounds": 5}, "pass eval_set"),
        ({"early_stopping_rounds": 0}, "early_stopping_rounds must be"),
        ({"num_class": 3}, "does not take num_class"),
    ],
)
def test_bad_parameters(kind, parameters, message):
    with pytest.raises(ValueError, match=message):
        kind(**parameters).fit(X, Y)


def test_modes_that_cannot_hold_the_start():
    with pytest.raises(ValueError, match="leaves are functions"):
        LightGBMClassifier(linear_tree=True).fit(X, Y)
    with pytest.raises(ValueError, match="random forest"):
        LightGBMClassifier(boosting="rf").fit(X, Y)
    with pytest.raises(ValueError, match="booster must be"):
        XGBoostClassifier(booster="gblinear").fit(X, Y)
    for kind, dart in ((LightGBMClassifier, {"boosting": "dart"}), (XGBoostClassifier, {"booster": "dart"})):
        with pytest.raises(ValueError, match="no early stopping"):
            kind(early_stopping_rounds=3, **dart).fit(X, Y, eval_set=(X, Y))


@both
def test_bad_evaluation_sets(kind):
    with pytest.raises(ValueError, match="label 7, which training did not see"):
        kind().fit(X, Y, eval_set=(X, np.where(Y == 1, 7, 0)))
    with pytest.raises(ValueError, match="X has 2 features"):
        kind().fit(X, Y, eval_set=(X[:, :2], Y))
    with pytest.raises(ValueError, match="1 eval_sample_weight for 2"):
        kind().fit(X, Y, eval_set=[(X, Y), (X, Y)], eval_sample_weight=[np.ones(300)])
    with pytest.raises(ValueError, match="without eval_set"):
        kind().fit(X, Y, eval_sample_weight=np.ones(300))
    with pytest.raises(ValueError, match=r"eval_set\[0\] must be a pair"):
        kind().fit(X, Y, eval_set=[X])
    # What is wrong is said of them, not of the y and sample_weight of fit.
    with pytest.raises(
        ValueError, match=r"the labels of eval_set\[0\] cannot be used: y has a missing label"
    ):
        kind().fit(X, Y, eval_set=(X, np.where(Y == 1, np.nan, 0)))
    with pytest.raises(ValueError, match=r"eval_set\[1\] has 300 rows but 299 labels"):
        kind().fit(X, Y, eval_set=[(X, Y), (X, Y[1:])])
    with pytest.raises(ValueError, match=r"eval_sample_weight\[0\] cannot be used: sample_weight must be"):
        kind().fit(X, Y, eval_set=(X, Y), eval_sample_weight=np.full(300, -1.0))
    with pytest.raises(TypeError, match="eval_metric must be"):
        kind(eval_metric=3).fit(X, Y, eval_set=(X, Y))
    with pytest.raises(ValueError, match="brier_score does not rank"):
        kind(eval_metric="brier_score").fit(X, Y, eval_set=(X, Y))


@both
def test_text_in_a_column_that_is_named_categorical(kind, tmp_path):
    """As if it were of the type category, in evaluation rows, predictions and after loading, too."""
    words = np.array(["shop", "web", "phone"])[(np.arange(300) + Y) % 3]
    text = pd.DataFrame({"a": X[:, 0], "word": words})
    typed = text.astype({"word": "category"})
    options = {"n_estimators": 5, "n_jobs": 1}
    model = kind(**options).fit(text, Y, categorical_feature=["word"], eval_set=(text, Y))
    expected = kind(**options).fit(typed, Y).predict_proba(typed)
    path = tmp_path / ("model.json" if kind is XGBoostClassifier else "model.txt")
    model.save(path)
    for found in (model, kind.load(path)):
        np.testing.assert_array_equal(found.predict_proba(text), expected)
        np.testing.assert_array_equal(found.predict_proba(typed), expected)
        gaps = found.predict_proba(text.head(2).assign(word=[None, "fax"]))
        assert np.isfinite(gaps).all()
    with pytest.raises(ValueError, match="column 'a' holds neither numbers nor categories"):
        model.predict_proba(text.assign(a="x"))


@both
def test_bad_tables_and_weights(kind):
    wrong = X.copy()
    wrong[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        kind().fit(wrong, Y)
    with pytest.raises(ValueError, match="infinity"):
        kind().fit(pd.DataFrame(wrong), Y)
    text = pd.DataFrame({"a": X[:, 0], "word": ["x"] * 300})
    with pytest.raises(ValueError, match="column 'word' holds neither numbers nor categories"):
        kind().fit(text, Y)
    twice = pd.DataFrame(X[:, :2], columns=["a", "a"])
    with pytest.raises(ValueError, match="two columns are named 'a'"):
        kind().fit(twice, Y)
    with pytest.raises(ValueError, match="y mixes text and other values, such as 'bad' and 0"):
        kind().fit(X, np.where(Y == 1, "bad", Y.astype(object)))
    with pytest.raises(ValueError, match="there is no column named 'b'"):
        kind().fit(text[["a"]], Y, categorical_feature=["b"])
    with pytest.raises(ValueError, match="whole numbers from 0 on"):
        kind().fit(X, Y, categorical_feature=[0])
    with pytest.raises(ValueError, match="not negative"):
        kind().fit(X, Y, sample_weight=-np.ones(300))
    with pytest.raises(ValueError, match="every row of class 1 has weight zero"):
        kind().fit(X, Y, sample_weight=1.0 - Y)
    with pytest.raises(NotFittedError):
        kind().predict_proba(X)
    with pytest.raises(NotFittedError):
        kind().save("model.json")
    frame = pd.DataFrame({"kind": pd.Categorical(np.array(["a", "b"])[Y]), "x": X[:, 0]})
    model = kind(n_estimators=2, n_jobs=1).fit(frame, Y)
    with (
        pytest.warns(UserWarning, match="feature names"),
        pytest.raises(ValueError, match="trained on a DataFrame with categorical columns"),
    ):
        model.predict_proba(np.zeros((2, 2)))


@both
def test_constant_columns_leave_the_prior(kind):
    with pytest.warns(NoSplitWarning, match="columns are constant"):
        model = kind(n_jobs=1, n_estimators=5).fit(np.ones((300, 2)), Y)
    np.testing.assert_allclose(model.predict_proba(np.ones((2, 2)))[:, 1], Y.mean(), rtol=1e-4)


@both
def test_a_model_without_splits_says_so(kind):
    with pytest.warns(NoSplitWarning, match=r"their weights sum to 0\.2.*lower min_child_weight"):
        kind(n_jobs=1, n_estimators=5).fit(X, Y, sample_weight=np.full(300, 1 / 300))
    few = np.zeros(100_000, dtype=int)
    few[7] = 1
    rows = np.random.default_rng(0).normal(size=(100_000, 2))
    with pytest.warns(NoSplitWarning, match=r"their weights sum to 1\."):
        kind(n_jobs=1, n_estimators=2).fit(rows, few)


def test_lightgbm_names_a_mistyped_parameter():
    with pytest.raises(ValueError, match="no parameter 'numleaves': did you mean 'num_leaves'"):
        LightGBMClassifier(numleaves=3).fit(X, Y)
    LightGBMClassifier(n_estimators=1, n_jobs=1, min_child_samples=5, bagging_fraction=0.9).fit(X, Y)


@both
def test_frames_that_a_library_cannot_hold(kind):
    number = pd.Series(X[:, 0])
    with pytest.raises(ValueError, match=r"categories of column 'band' are of type Interval.*as text"):
        kind().fit(pd.DataFrame({"band": pd.cut(number, 4), "x": X[:, 1]}), Y)
    for values in (np.round(X[:, 0]), Y.astype(bool)):
        frame = pd.DataFrame({"c": pd.Categorical(values), "x": X[:, 1]})
        if kind is XGBoostClassifier:
            with pytest.raises(ValueError, match=r"categories of column 'c' are (floats|booleans)"):
                kind().fit(frame, Y)
            frame["c"] = frame["c"].cat.rename_categories(str)
        assert kind(n_estimators=2, n_jobs=1).fit(frame, Y).predict_proba(frame).shape == (300, 2)
    for name in ("a[0]", "a]") + (("a<b",) if kind is XGBoostClassifier else ("a:b", 'a"', "a{")):
        with pytest.raises(ValueError, match="in the name of a column") as caught:
            kind().fit(pd.DataFrame({name: X[:, 0], "x": X[:, 1]}), Y)
        assert repr(name) in str(caught.value)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_needs_no_library():
    code = "import sys, raresight.boosting; print({'xgboost', 'lightgbm', 'catboost'} & set(sys.modules))"
    assert run(code).stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("library", "kind"), [("xgboost", "XGBoostClassifier"), ("lightgbm", "LightGBMClassifier")]
)
def test_a_missing_library_is_named(library, kind):
    code = f"import sys; sys.modules[{library!r}] = None\nfrom raresight.boosting import {kind}\n"
    code += f"{kind}().fit([[0], [1]], [0, 1])"
    result = run(code)
    assert result.returncode != 0
    assert "pip install 'raresight[boosting]'" in result.stderr.splitlines()[-1]
