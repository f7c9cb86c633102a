"""Nets that held-out rows chose, trained once more on all rows; and means of their weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deep.deep_tables import mixed_frame, ring_table
from raresight.deep import DeepClassifier, classifier
from raresight.deep.net_calibration import slope_after_refit
from raresight.deep.net_plans import plan_net
from raresight.deep.training import CodedRows, DivergedWarning, _LastWantedEpoch, new_replicas, refit_nets
from raresight.losses import parse
from raresight.nn import Recipe

SMALL = {"net": "mlp", "width": 16, "random_state": 0, "n_jobs": 1, "max_fpr": 0.1}
HELD = {**SMALL, "early_stopping": True, "max_epochs": 8}
WAVERING = {**SMALL, "learning_rate": 0.03}
X, Y = ring_table(2000)


@pytest.mark.parametrize("average_epochs", [0, 1.5])
def test_each_net_is_trained_on_all_rows_for_its_own_epochs(average_epochs):
    """As one that is trained for so long without a look at anything."""
    losses = ["crossentropy", "tbl(alpha=0.7,C=0.5)"]
    held = {"n_seeds": 3, "average_epochs": average_epochs, "early_stopping": True, "max_epochs": 12}
    model = DeepClassifier(losses, **WAVERING, **held).fit(X, Y)
    assert len(set(model.best_epochs_)) > 1
    for k, epochs in enumerate(model.best_epochs_):
        # Where epochs are given, smaller steps at the end are left out for means, if only over a moment.
        given = {"n_seeds": 3, "average_epochs": average_epochs or 1e-9, "early_stopping": False}
        alone = DeepClassifier(model.loss_, **WAVERING, **given, max_epochs=epochs).fit(X, Y)
        for name, stack in model.nets_.weights.items():
            assert np.array_equal(stack[k], alone.nets_.weights[name][k]), name


def test_the_slope_is_kept_by_rows_that_both_trainings_saw(monkeypatch):
    seen = []

    def watched(loss, slope, before, after):
        seen.append((slope, before, after))
        return slope_after_refit(loss, slope, before, after)

    monkeypatch.setattr(classifier, "slope_after_refit", watched)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(Y))
    model, first = (DeepClassifier(refit=refit, **HELD).fit(X, Y, weights) for refit in (True, False))
    ((slope, before, after),) = seen
    assert slope == first.calibrator_.slope
    assert model.calibrator_.slope == slope_after_refit(model.loss_, slope, before, after) != slope
    assert len(before.codes) == len(Y) - int(0.2 * (Y == 0).sum()) - int(0.2 * Y.sum())
    assert np.array_equal(before.codes, after.codes)
    for one, rows in ((first, before), (model, after)):
        own = np.isin(one.nets_.scores(one._encoder.apply(X), "cpu"), rows.scores)
        assert own.sum() >= len(rows.codes)
    # Both have the same spread then, by the weights of the rows.
    spreads = [
        a * np.sqrt(np.cov(model.loss_.log_odds(rows.scores.astype(float)), aweights=rows.weights, ddof=0))
        for a, rows in ((slope, before), (model.calibrator_.slope, after))
    ]
    assert spreads[0] == pytest.approx(spreads[1], rel=1e-6)
    assert DeepClassifier(calibration="level", **HELD).fit(X, Y).calibrator_.slope == 1
    assert len(seen) == 1


def test_what_was_chosen_is_of_the_first_training():
    options = {"loss": ["crossentropy", "tbl"], "n_seeds": 2, **HELD}
    model, first = (DeepClassifier(refit=refit, **options).fit(X, Y) for refit in (True, False))
    for name in ("loss_", "losses_", "validation_scores_", "best_epochs_", "n_epochs_"):
        assert getattr(model, name) == getattr(first, name), name
    assert model.calibrator_.slope != 1
    assert np.array_equal(model.validation_history_, first.validation_history_)
    assert not np.array_equal(model.predict_proba(X), first.predict_proba(X))
    # Both are at the level of the rows.
    for one in (model, first):
        assert one.predict_proba(X)[:, 1].mean() == pytest.approx(Y.mean(), rel=1e-6)


def test_rows_that_were_given_are_not_trained_on():
    valid = ring_table(1000, seed=1)
    models = [
        DeepClassifier(refit=refit, max_epochs=3, **SMALL).fit(X, Y, eval_set=valid)
        for refit in (True, False)
    ]
    assert np.array_equal(*(model.predict_proba(X) for model in models))


def test_columns_are_coded_by_all_rows_in_the_end():
    frame, y = mixed_frame(1500)
    given = DeepClassifier(**SMALL, early_stopping=False, max_epochs=1).fit(frame, y)
    for refit in (True, False):
        model = DeepClassifier(refit=refit, **{**HELD, "max_epochs": 1}).fit(frame, y)
        pairs = zip(model._encoder.arrays().items(), given._encoder.arrays().items(), strict=True)
        same = [name == other and np.array_equal(one, two) for (name, one), (other, two) in pairs]
        assert all(same) is refit


def test_a_net_that_fails_keeps_the_weights_of_before():
    plan = plan_net("mlp", {"width": 4}, {}, features=3, outputs=1)
    rows = CodedRows(X.astype(np.float32), Y.astype(np.int64), None, np.bincount(Y) / len(Y))
    recipe = Recipe(epochs=9, batch=100, lr=(1e30, 1e-3), warmup_epochs=1)
    loss, options = parse("crossentropy"), {"average_epochs": 1.0, "device": "cpu"}
    with pytest.warns(DivergedWarning, match="not finite in epoch 1, frozen with its last sound weights"):
        nets = refit_nets(plan, loss, [5, 6], rows, recipe, [3, 3], **options)
    with pytest.raises(
        ValueError, match="in the training on all rows: no net learned anything: crossentropy, seed 5"
    ):
        refit_nets(plan, loss, [5], rows, replace(recipe, lr=1e30), [3], **options)
    assert all(np.isfinite(stack).all() for stack in nets.weights.values())


def test_the_evaluation_of_a_refit():
    """An epoch is the better, the later; none is after the one wanted, or without scores or once frozen."""
    plan = plan_net("mlp", {"width": 4}, {}, features=3, outputs=1)
    replicas = new_replicas(plan, [parse("tbl")], range(5), np.array([0.9, 0.1]), "cpu")
    replicas.net.head.bias.data[4] = np.nan
    metrics = _LastWantedEpoch([1, 3, 3, 0, 3], np.zeros((2, 3), np.float32)).evaluate
    frozen = np.array([[False] * 5, [False] * 5, [False, True, False, False, False]])
    reported = np.array([metrics(replicas, at) for at in frozen])
    assert np.array_equal(reported[:, 0], [1, np.nan, np.nan], equal_nan=True)
    assert np.array_equal(reported[:, 1], [1, 2, np.nan], equal_nan=True)
    assert np.array_equal(reported[:, 2], [1, 2, 3])
    assert np.isnan(reported[:, 3:]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"refit": 1}, "refit must be True or False, got 1"),
        ({"refit": None}, "refit must be True or False, got None"),
        ({"verbose": 2}, "verbose must be 'auto', True or False, got 2"),
        ({"verbose": "always"}, "verbose must be 'auto', True or False, got 'always'"),
        ({"average_epochs": -1}, "average_epochs must be at least 0 and finite, but is -1"),
        ({"average_epochs": float("nan")}, "average_epochs must be at least 0 and finite, but is nan"),
        ({"average_epochs": "auto"}, "average_epochs must be a number, but is 'auto'"),
    ],
)
def test_wrong_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        DeepClassifier(**SMALL, **options).fit(X[:100], Y[:100])
