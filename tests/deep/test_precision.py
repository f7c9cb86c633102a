"""Training in float64, and what it makes exact: weights as repetitions, whatever the order of rows."""

from __future__ import annotations

import numpy as np
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
def test_a_weight_of_two_is_the_row_twice(net, loss):
    """With categories and gaps; balanced class weights ask for the weights of the rows."""
    X, y = mixed_frame(120)
    weights = np.random.default_rng(0).integers(0, 5, 120)
    order = np.random.default_rng(1).permutation(weights.sum())
    times = np.repeat(np.arange(120), weights)[order]
    model = DeepClassifier(**loss, **net, **EXACT).fit(X, y, weights)
    repeated = DeepClassifier(**loss, **net, **EXACT).fit(X.iloc[times], y[times])
    assert model.predict_log_odds(X) == pytest.approx(repeated.predict_log_odds(X), rel=1e-7, abs=1e-9)


def test_the_order_of_rows_does_not_matter():
    X, y = ring_table(150)
    order = np.random.default_rng(0).permutation(150)
    options = {**EXACT, "net": "mlp"}
    assert DeepClassifier(**options).fit(X[order], y[order]).predict_log_odds(X) == pytest.approx(
        DeepClassifier(**options).fit(X, y).predict_log_odds(X), rel=1e-7, abs=1e-9
    )


@pytest.mark.parametrize("choice", [{}, {"early_stopping": True}, {"early_stopping": False}])
def test_all_ways_to_choose_epochs_train_in_it(choice, tmp_path):
    """Their weights have digits beyond float32's, which a file keeps."""
    X, y = ring_table(300)
    options = {"net": "mlp", "width": 4, "max_epochs": 3, "random_state": 0, "n_jobs": 1, **choice}
    single = DeepClassifier(**options).fit(X, y)
    model = DeepClassifier(precision="float64", **options).fit(X, y)
    for name, weights in model.nets_.weights.items():
        assert (single.nets_.weights[name].dtype, weights.dtype) == (np.float32, np.float64)
        assert (weights != weights.astype(np.float32)).any()
    assert model.predict_log_odds(X) == pytest.approx(single.predict_log_odds(X), abs=1e-3)
    model.save(tmp_path)
    again = DeepClassifier.load(tmp_path)
    assert again.precision == "float64"
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_parts_in_turn_are_trained_in_it():
    """Their scores choose the factor, which float32 gets to some digits only."""
    X, y = ring_table(300)
    options = {"net": "mlp", "width": 4, "max_epochs": 1, "average_epochs": 0, "random_state": 0, "n_jobs": 1}
    single = DeepClassifier(**options).fit(X, y).score_scale_
    double = DeepClassifier(precision="float64", **options).fit(X, y).score_scale_
    assert single != double
    assert double == pytest.approx(single, rel=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "double", 64, None])
def test_refused(precision):
    X, y = ring_table(100)
    with pytest.raises(ValueError, match="precision must be 'float32' or 'float64', got"):
        DeepClassifier(net="mlp", precision=precision).fit(X, y)
