"""One option calibrates every estimator by rows that it did not see, with the same values and name."""

import inspect
import pickle

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone

from raresight.boosting import LightGBMClassifier, XGBoostClassifier
from raresight.common.calibration import Calibrator
from raresight.deep import DeepClassifier
from raresight.linear import LinearClassifier, LinearClassifierCV

SMALL = {
    LinearClassifier: {},
    LinearClassifierCV: {"losses": ["tbl"], "l2s": [1e-4], "cv": 2},
    LightGBMClassifier: {"n_estimators": 10, "n_jobs": 1},
    XGBoostClassifier: {"n_estimators": 10, "n_jobs": 1},
    DeepClassifier: {"net": "mlp", "width": 8, "max_epochs": 2, "early_stopping": False, "random_state": 0},
}
ESTIMATORS = list(SMALL)
BOOSTERS = [LightGBMClassifier, XGBoostClassifier]
FOLDED = [LinearClassifier, *BOOSTERS]


def table(n=3000, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 4))
    return X, (random.random(n) < expit(2 * X[:, 0] - 2.5)).astype(int)


def made(kind, calibration, **options):
    return kind(**SMALL[kind] | {"calibration": calibration} | options)


def calibrator_of(model):
    return getattr(model, "best_model_", model).calibrator_


def log_loss(y, p):
    return -np.mean(np.log(p[np.arange(len(y)), y]))


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_every_estimator_has_the_option(kind):
    assert inspect.signature(kind).parameters["calibration"].default in ("link", "level", "slope")
    X, y = table(600)
    for wrong in ("isotonic", None, 5):
        with pytest.raises(ValueError, match="'link', 'level' or 'slope'"):
            made(kind, wrong).fit(X, y)
    assert calibrator_of(made(kind, "link").fit(X, y)) == Calibrator()
    level = calibrator_of(made(kind, "level").fit(X, y))
    assert level.slope == 1
    assert level != Calibrator()


@pytest.mark.parametrize("kind", FOLDED)
def test_the_slope_is_that_of_rows_that_were_not_seen(kind):
    """Without a relation every model overfits: its spread is noise, which calibration takes out."""
    random = np.random.default_rng(1)
    X, y = random.normal(size=(1500, 30)), (random.random(1500) < 0.1).astype(int)
    model = made(kind, "slope").fit(X, y)
    assert model.calibrator_.slope < 0.3
    np.testing.assert_array_equal(clone(model).fit(X, y).predict_proba(X), model.predict_proba(X))
    new, labels = random.normal(size=(3000, 30)), (random.random(3000) < 0.1).astype(int)
    plain = made(kind, "level").fit(X, y)
    np.testing.assert_array_equal(plain.decision_function(new), model.decision_function(new))
    assert log_loss(labels, model.predict_proba(new)) < log_loss(labels, plain.predict_proba(new))


def test_a_saturating_truth_needs_more_than_the_link():
    """The ratio of predicted to true probability in the top 1 %: by the link alone it depends on the loss."""
    random = np.random.default_rng(0)
    X = random.standard_t(4, size=(100_000, 2))
    truth = np.minimum(expit(X[:, 0] - 6.5), 0.02)
    y = (random.random(len(X)) < truth).astype(int)
    ratios = {}
    for calibration in ("link", "slope"):
        for loss in ("crossentropy", "tbl(alpha=0.8,C=0.5)", "alpha(alpha=0.5)"):
            p = LinearClassifier(loss, calibration=calibration).fit(X, y).predict_proba(X)[:, 1]
            top = np.argsort(-p)[:1000]
            ratios.setdefault(calibration, []).append(p[top].mean() / truth[top].mean())
    assert ratios["link"][0] < 2 < ratios["link"][1] < 3 < ratios["link"][2]
    # A line cannot bend, so that the error of cross entropy stays. What the loss added is gone.
    assert max(ratios["slope"]) < 1.1 * ratios["link"][0]


@pytest.mark.parametrize("kind", FOLDED)
def test_copies_of_a_row_share_a_fold(kind):
    """A booster has memorised a copy of a training row: out of fold it would look sure and right."""
    X, y = table(1000)
    once = made(kind, "slope").fit(X, y).calibrator_.slope
    for rows in (np.repeat(X, 4, axis=0), sparse.csr_array(np.repeat(X, 4, axis=0))):
        assert made(kind, "slope").fit(rows, np.repeat(y, 4)).calibrator_.slope < 1.15 * once


@pytest.mark.parametrize("kind", FOLDED)
def test_rows_of_weight_zero_do_not_count(kind):
    X, y = table(1200)
    weights = np.repeat([1.0, 0.0], [1000, 200])
    X[1000:] *= 5
    weighted = made(kind, "slope").fit(X, y, weights)
    plain = made(kind, "slope").fit(X[:1000], y[:1000])
    assert weighted.calibrator_.slope == pytest.approx(plain.calibrator_.slope, rel=0.2)


@pytest.mark.parametrize("kind", FOLDED)
def test_more_classes(kind):
    random = np.random.default_rng(0)
    X = random.normal(size=(1500, 20))
    y = np.digitize(X[:, 0] + random.normal(size=1500), [0.5, 1.8])
    model = made(kind, "slope", loss="crossentropy").fit(X[:700], y[:700])
    plain = made(kind, "level", loss="crossentropy").fit(X[:700], y[:700])
    assert len(model.calibrator_.levels) == 2
    p = model.predict_proba(X[700:])
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert log_loss(y[700:], p) < log_loss(y[700:], plain.predict_proba(X[700:]))
    if kind is LinearClassifier:
        odds = model.predict_log_odds(X[700:])
        np.testing.assert_allclose(expit(odds), p, rtol=1e-6)


@pytest.mark.parametrize("kind", FOLDED)
def test_a_class_of_one_row_is_refused_and_the_last_fit_stays(kind):
    X, y = table(300)
    model = made(kind, "slope").fit(X, y)
    before = model.predict_proba(X)
    alone = np.zeros(300, int)
    alone[7] = 1
    with pytest.raises(ValueError, match=r"one row only.*'level'"):
        model.fit(X, alone)
    np.testing.assert_array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize("kind", BOOSTERS)
def test_frames_texts_and_early_stopping(kind):
    pandas = pytest.importorskip("pandas")
    X, y = table()
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(where=np.where(X[:, 1] > 0, "here", "there"))
    labels = np.where(y == 1, "yes", "no")
    model = made(kind, "slope", n_estimators=200, early_stopping_rounds=3).fit(
        frame[:2000], labels[:2000], eval_set=(frame[2000:], labels[2000:]), categorical_feature=["where"]
    )
    assert model.best_iteration_ < 150
    # Folds train as many rounds: with all 200 they would overfit, and the slope would be far below this.
    assert model.calibrator_.slope > 0.5


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("calibration", ["link", "slope"])
def test_the_calibrator_is_saved(kind, calibration, tmp_path):
    X, y = table(800)
    model = made(kind, calibration).fit(X, y)
    if hasattr(model, "save"):
        path = tmp_path / {LightGBMClassifier: "model.txt", XGBoostClassifier: "model.json"}.get(
            kind, "model"
        )
        model.save(path)
        again = kind.load(path)
    else:
        again = pickle.loads(pickle.dumps(model))
    assert again.get_params()["calibration"] == calibration
    assert calibrator_of(again) == calibrator_of(model)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
