"""Training in float64, and what it makes exact: weights of any size as repetitions."""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import pytest

from deep.deep_tables import mixed_frame, ring_table
from raresight.deep import DeepClassifier

# All rows in one batch, none dropped, none held out.
EXACT = {
    "width": 8,
    "max_epochs": 20,
    "batch_size": 1000,
    "learning_rate": 0.01,
    "early_stopping": False,
    "precision": "float64",
    "random_state": 0,
    "n_jobs": 1,
}


@pytest.mark.parametrize("net", [{"net": "mlp"}, {"net": "tabm", "members": 3, "dropout": 0.0}])
@pytest.mark.parametrize("loss", [{}, {"loss": "ldam(class_counts=(108,12))"}, {"class_weight": "balanced"}])
def test_fractions_are_repetitions(net, loss):
    """With categories and gaps; balanced class weights ask for the weights of the rows."""
    X, y = mixed_frame(120)
    weights = np.random.default_rng(0).integers(0, 5, 120)
    order = np.random.default_rng(1).permutation(weights.sum())
    times = np.repeat(np.arange(120), weights)[order]
    model = DeepClassifier(**loss, **net, **EXACT).fit(X, y, 0.1 * weights)
    repeated = DeepClassifier(**loss, **net, **EXACT).fit(X.iloc[times], y[times])
    assert model.predict_log_odds(X) == pytest.approx(repeated.predict_log_odds(X), rel=1e-7, abs=1e-9)
    assert model.feature_importances_ == pytest.approx(repeated.feature_importances_, rel=1e-6)


def rows_of(classes):
    X, y = ring_table(300)
    return X, y if classes == 2 else np.digitize(X[:, 0], [-0.5, 0.5])


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"early_stopping": True},
        {"early_stopping": True, "refit": False},
        {"early_stopping": False},
        {"n_seeds": 2},
        {"loss": ["tbl", "crossentropy"]},
        {"loss": ["tbl", "crossentropy"], "eval_set": True},
        {"net": "tabnet"},
        {"net": "tabm", "members": 2},
        {"eval_set": True},
    ],
    ids=str,
)
def test_all_ways_to_train_do_so_in_it(options, classes, tmp_path):
    """Weights have digits beyond float32's, which predict, and which files and copies keep."""
    X, y = rows_of(classes)
    options = {"net": "mlp", "width": 4, "max_epochs": 2, "random_state": 0, "n_jobs": 1, **options}
    given = {"eval_set": (X, y)} if options.pop("eval_set", False) else {}
    single = DeepClassifier(**options).fit(X, y, **given)
    model = DeepClassifier(precision="float64", **options).fit(X, y, **given)
    used = model.nets_.replicas("cpu").net.state_dict()
    model.save(tmp_path)
    copies = [DeepClassifier.load(tmp_path), copy.deepcopy(model)]
    for name, weights in model.nets_.weights.items():
        assert single.nets_.weights[name].dtype == np.float32
        assert weights.dtype == np.float64
        # Statistics that nothing has moved yet may be whole numbers.
        assert (weights != weights.astype(np.float32)).any() or (weights == weights.round()).all()
        for other in (used[name].numpy(), *(one.nets_.weights[name] for one in copies)):
            assert np.array_equal(other, weights)
    assert (model.nets_.weights["head.weight"] != model.nets_.weights["head.weight"].astype(np.float32)).all()
    assert model.predict_log_odds(X) == pytest.approx(single.predict_log_odds(X), abs=1e-2)
    for one in copies:
        assert one.precision == "float64"
        assert np.array_equal(one.predict_proba(X), model.predict_proba(X))


def test_nets_that_choose_the_epoch_are_trained_in_it():
    """Not only those of the second training: what they were worth has other last digits."""
    X, y = rows_of(3)
    options = {
        "net": "mlp",
        "width": 4,
        "max_epochs": 2,
        "early_stopping": True,
        "random_state": 0,
        "n_jobs": 1,
    }
    single = DeepClassifier(**options).fit(X, y).validation_history_
    double = DeepClassifier(precision="float64", **options).fit(X, y).validation_history_
    assert (single != double).all()
    assert double == pytest.approx(single, rel=1e-4)


def test_folds_are_trained_in_it():
    """Their scores choose the factor, which float32 gets to some digits only."""
    X, y = ring_table(300)
    options = {"net": "mlp", "width": 4, "max_epochs": 1, "average_epochs": 0, "random_state": 0, "n_jobs": 1}
    single = DeepClassifier(**options).fit(X, y).calibrator_.slope
    double = DeepClassifier(precision="float64", **options).fit(X, y).calibrator_.slope
    assert single != double
    assert double == pytest.approx(single, rel=1e-4)


def test_fractions_of_weights_choose_the_same_categories():
    """0.1 + 0.2 is not quite 0.3: categories of equal weight beyond the fiftieth would change places."""
    random = np.random.default_rng(0)
    level = random.integers(0, 80, 800)
    y = ((random.random(800) < 0.1) | ((level % 9 == 0) & (random.random(800) < 0.5))).astype(int)
    X = pd.DataFrame({"level": pd.Categorical(level.astype(str)), "x": random.normal(size=800)})
    weights, order = random.integers(1, 4, 800) * 0.1, random.permutation(800)
    options = {**EXACT, "net": "mlp"}
    model = DeepClassifier(**options).fit(X, y, weights)
    for other in (
        DeepClassifier(**options).fit(X.iloc[order], y[order], weights[order]),
        DeepClassifier(**options).fit(X, y, 10 * weights),
    ):
        assert other.predict_log_odds(X) == pytest.approx(model.predict_log_odds(X), rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("precision", ["bf16", "double", 64, None, np.dtype("float64"), ["float64"]])
def test_refused(precision):
    X, y = ring_table(100)
    with pytest.raises(ValueError, match="precision must be 'float32' or 'float64', got"):
        DeepClassifier(net="mlp", precision=precision).fit(X, y)
