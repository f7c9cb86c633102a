"""The best epoch of each net, and the rows that choose it."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier
from raresight.deep.training import CodedRows, train_nets
from raresight.deep.validation import MIN_VALIDATION_ROWS, Validation, hold_out
from raresight.metrics import partial_auc
from raresight.nn import Recipe, Replicas
from raresight.nn.nets import MLP

SMALL = {"net": "mlp", "width": 16, "random_state": 0, "n_jobs": 1}


def training_rows(X, y):
    return CodedRows(X.astype(np.float32), y.astype(np.int64), None, np.bincount(y) / len(y))


def trained(epochs, evaluate=None, patience=100):
    X, y = ring_table(300)
    replicas = Replicas(partial(MLP, 3, hidden=(8,)), ["crossentropy", "tbl"])
    recipe = Recipe(epochs=epochs, batch=64, warmup_epochs=1)
    done = train_nets(replicas, training_rows(X, y), recipe, evaluate=evaluate, patience=patience)
    return replicas, done


def returning(*epochs):
    """An evaluation that returns these metrics, one tuple per epoch."""
    rest = iter(epochs)
    return lambda replicas, frozen: np.array(next(rest), dtype=float)


def test_each_replica_has_the_weights_of_its_own_best_epoch():
    nan = float("nan")
    replicas, done = trained(4, returning((0.5, 0.1), (0.7, nan), (0.6, 0.9), (nan, 0.2)))
    assert done.best_epochs == (2, 3)
    assert done.metrics.shape == (4, 2)
    for k, epochs in enumerate(done.best_epochs):
        stopped, _ = trained(epochs)
        for name, stack in replicas.net.state_dict().items():
            assert torch.equal(stack[k], stopped.net.state_dict()[name][k])


def test_of_equal_epochs_the_later_one():
    assert trained(3, returning((1, 0.5), (1, 0.5), (1, 0.4)))[1].best_epochs == (3, 2)


def test_training_ends_when_no_replica_becomes_better():
    metrics = [(0.5, 0.5), (0.4, 0.6), (0.4, 0.5), (0.4, 0.5), (0.9, 0.9)]
    _, done = trained(5, returning(*metrics), patience=2)
    assert (done.epochs, done.best_epochs) == (4, (1, 2))


def test_a_frozen_net_is_not_waited_for():
    """It would tie with itself after every epoch."""
    X, y = ring_table(300)
    inputs, codes = X.astype(np.float32), y.astype(np.int64)
    replicas = Replicas(partial(MLP, 3, hidden=(8,)), ["crossentropy", "tbl"])
    validation = Validation(inputs, codes, None, 0.1)
    seen = []

    def evaluate(replicas, frozen):
        seen.append(frozen.tolist())
        metrics = validation.evaluate(replicas, frozen)
        metrics[1] = -len(seen)  # the other net becomes worse and worse
        # Frozen in the second epoch; from then on as it was before.
        with torch.no_grad():
            replicas.net.head.bias[0] = torch.nan if len(seen) == 1 else 0.0
        return metrics

    recipe = Recipe(epochs=30, batch=64, warmup_epochs=1)
    done = train_nets(replicas, training_rows(X, y), recipe, evaluate=evaluate, patience=3)
    assert seen[1:3] == [[False, False], [True, False]]
    assert done.epochs < 8
    assert np.isnan(done.metrics[2:, 0]).all()
    assert len(done.failures) == 1


def test_every_class_is_held_out_in_its_share():
    codes = np.repeat([0, 1], [9000, 1000])
    train, held = hold_out(codes, "auto", 0.2, np.random.RandomState(0))
    assert sorted([*train, *held]) == list(range(10_000))
    assert np.bincount(codes[held]).tolist() == [1800, 200]
    few = np.repeat([0, 1], [9000, 5 * MIN_VALIDATION_ROWS - 1])
    assert hold_out(few, "auto", 0.2, np.random.RandomState(0)) is None
    for no in (False, np.False_):
        assert hold_out(codes, no, 0.2, np.random.RandomState(0)) is None
    assert hold_out(codes, np.True_, 0.2, np.random.RandomState(0)) is not None
    assert len(hold_out(few, True, 0.2, np.random.RandomState(0))[1]) == 1800 + MIN_VALIDATION_ROWS - 1
    with pytest.raises(ValueError, match="holds out rows of every class, but one class has 1 of them"):
        hold_out(np.repeat([0, 1], [9, 1]), True, 0.2, np.random.RandomState(0))


def test_scores_are_those_of_the_rows_given():
    X, y = ring_table(2000)
    valid = ring_table(1000, seed=1)
    model = DeepClassifier(max_epochs=8, max_fpr=0.1, **SMALL).fit(X, y, eval_set=valid)
    assert model.validation_history_.shape == (model.n_epochs_, 1, 1)
    best = model.validation_history_.max()
    assert model.validation_history_[model.best_epochs_[0] - 1, 0, 0] == best
    assert list(model.validation_scores_) == ["tbl(alpha=0.8,C=0.5)"]
    score = partial_auc(valid[1], model.decision_function(valid[0]), 0.1)
    assert model.validation_scores_["tbl(alpha=0.8,C=0.5)"] == pytest.approx(score, abs=1e-9)
    assert score == pytest.approx(best, abs=1e-3)  # which was taken of float32 scores


def test_the_best_of_several_losses_is_kept():
    X, y = ring_table(3000)
    losses = ["crossentropy", "tbl(alpha=0.6,C=1)", "focal"]
    held = {"n_seeds": 2, "max_epochs": 4, "max_fpr": 0.1, "early_stopping": True}
    model = DeepClassifier(losses, **held, **SMALL).fit(X, y)
    assert model.validation_history_.shape == (4, 3, 2)
    scores = model.validation_scores_
    assert list(scores) == [str(loss) for loss in model.losses_]
    assert str(model.loss_) == max(scores, key=scores.get)
    assert len(model.best_epochs_) == len(model.nets_.seeds) == 2
    with pytest.raises(ValueError, match="3 losses need rows to choose by"):
        DeepClassifier(losses, early_stopping=False, **SMALL).fit(X, y)
    with pytest.raises(ValueError, match="loss is an empty list"):
        DeepClassifier([], **SMALL).fit(X, y)


def test_several_classes_are_evaluated_by_the_log_probability():
    X, _ = ring_table(1500)
    y = np.digitize(X[:, 0], [-1, 1])
    valid = X[:300]
    model = DeepClassifier(max_epochs=3, **SMALL).fit(X, y, eval_set=(valid, y[:300]))
    # The epochs were evaluated before the scores were calibrated.
    raw = model.loss_.probability(model.raw_scores(valid), multiclass=True)
    expected = np.log(raw[np.arange(300), y[:300]]).mean()
    assert model.validation_scores_["tbl(alpha=0.8,C=0.5)"] == pytest.approx(expected, rel=1e-6)


def test_refused():
    X, y = ring_table(300)
    model = DeepClassifier(**SMALL)
    with pytest.raises(ValueError, match="eval_set holds the label 0 alone"):
        model.fit(X, y, eval_set=(X[:2], np.zeros(2, dtype=int)))
    with pytest.raises(ValueError, match="eval_set holds the label 5, which training did not see"):
        model.fit(X, y, eval_set=(X[:2], [0, 5]))
    with pytest.raises(ValueError, match=r"eval_set must be a pair \(X, y\)"):
        model.fit(X, y, eval_set=X)
    with pytest.raises(ValueError, match="3 features"):
        model.fit(X, y, eval_set=(X[:, :2], y))
