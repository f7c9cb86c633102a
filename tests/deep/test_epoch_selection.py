"""How long nets are trained where positives are too few to hold some out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss

from deep.deep_tables import ring_table
from raresight.common.calibration import Calibrator
from raresight.common.row_groups import FOLDS, assign_folds
from raresight.deep import DeepClassifier
from raresight.deep.parameters import default_epochs
from raresight.deep.training import DivergedWarning
from raresight.losses import from_callable
from raresight.metrics import partial_auc

SMALL = {"net": "mlp", "random_state": 0, "n_jobs": 1}


def rare_table(count, seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(count, 8))
    eta = 6.3 - 1.5 * X[:, 0] - X[:, 1] + 0.5 * X[:, 2] - X[:, 3] * X[:, 4]
    return X, random.random(count) < 1 / (1 + np.exp(eta))


def test_folds_have_rows_of_every_class():
    codes = np.repeat([0, 1, 2], [50, 7, 23])
    parts = assign_folds(codes, np.random.RandomState(0))
    assert set(parts) == set(range(FOLDS))
    for k, count in enumerate((50, 7, 23)):
        sizes = np.bincount(parts[codes == k], minlength=FOLDS)
        assert sizes.sum() == count
        assert sizes.max() - sizes.min() <= 1
    assert assign_folds(np.repeat([0, 1], [9, 3]), np.random.RandomState(0)).max() == 2
    assert assign_folds(np.repeat([0, 1], [9, 1]), np.random.RandomState(0)) is None


@pytest.mark.slow
def test_few_positives_are_not_learnt_by_heart():
    """A net of 100 epochs is worse than the constant share of positives here, by a factor of two and more."""
    X, y = rare_table(2000, 0)
    assert y.sum() < 50
    rows, labels = rare_table(30_000, 1)
    constant = log_loss(labels, np.full(len(labels), labels.mean()))

    def log_loss_of(**options):
        model = DeepClassifier(**SMALL, **options).fit(X, y)
        return log_loss(labels, model.predict_proba(rows)[:, 1]), model

    chosen, model = log_loss_of()
    assert 1 <= model.n_epochs_ <= 20
    assert model.best_epochs_ == (model.n_epochs_,)
    assert model.validation_history_ is None
    assert chosen < 0.95 * constant
    assert log_loss_of(max_epochs=100, early_stopping=False)[0] > 1.5 * constant
    # `max_epochs` is the most there may be.
    assert log_loss_of(max_epochs=1)[1].n_epochs_ == 1


def test_six_positives_are_better_than_none():
    """Some parts are at their best after one epoch, others improve for thirty; scores are far too large."""
    random = np.random.default_rng(3)

    def table(count, positives):
        y = np.zeros(count, int)
        y[random.choice(count, positives, replace=False)] = 1
        X = random.normal(size=(count, 10))
        X[:, :2] += y[:, None]
        return X, y

    X, y = table(300, 6)
    rows, labels = table(20_000, 400)
    model = DeepClassifier("crossentropy", **SMALL).fit(X, y)
    assert model.n_epochs_ <= 20
    assert model.calibrator_.slope < 0.5
    constant = log_loss(labels, np.full(len(labels), labels.mean()))
    assert log_loss(labels, model.predict_proba(rows)[:, 1]) < constant
    plain = DeepClassifier("crossentropy", calibration="level", **SMALL).fit(X, y)
    assert log_loss(labels, plain.predict_proba(rows)[:, 1]) > constant


def test_nets_that_diverge_while_epochs_are_chosen_are_reported():
    X, y = rare_table(800, 3)
    wild = DeepClassifier("crossentropy", **SMALL, width=16, learning_rate=1e20, warmup_epochs=1)
    # The model itself is no better.
    with (
        pytest.warns() as reported,
        pytest.raises(ValueError, match="no net learned anything: crossentropy, seed"),
    ):
        wild.fit(X, y)
    messages = [str(one.message) for one in reported if one.category is DivergedWarning]
    assert "nets that choose the number of epochs failed" in messages[0]
    assert len(messages) == 1


def test_the_choice_is_that_of_the_seed():
    X, y = rare_table(800, 3)
    options = {**SMALL, "width": 16, "learning_rate": 0.01}
    found = [DeepClassifier(**options).fit(X, y) for _ in range(2)]
    assert np.array_equal(*(model.predict_proba(X) for model in found))
    weighted = DeepClassifier(**options).fit(X, y, np.ones(len(y)))
    assert weighted.n_epochs_ == found[0].n_epochs_


def test_without_a_choice_epochs_are_few():
    X, y = rare_table(800, 3)
    model = DeepClassifier(**SMALL, width=16, early_stopping=False).fit(X, y)
    assert model.n_epochs_ == default_epochs("mlp", False) == 5
    alone = np.arange(len(y)) == 7
    assert DeepClassifier(**SMALL, width=16).fit(X, alone).n_epochs_ == 5  # one positive cannot be split


@pytest.mark.slow
def test_the_best_of_several_losses_by_cross_validation():
    """Each loss has its own epochs, the ranking of all rows by nets that did not see them chooses."""
    X, y = rare_table(1000, 2)
    losses = ["tbl(alpha=0.7,C=0.5)", "crossentropy", "squared"]
    options = {**SMALL, "width": 16, "n_seeds": 2, "max_fpr": 0.1, "max_epochs": 8, "learning_rate": 0.005}
    model = DeepClassifier(losses, **options).fit(X, y)
    scores = model.validation_scores_
    assert list(scores) == [str(loss) for loss in model.losses_]
    assert len(set(scores.values())) == 3
    assert str(model.loss_) == max(scores, key=scores.get)
    # The loss that won, alone: the same epochs, the same nets.
    alone = DeepClassifier(model.loss_, **options).fit(X, y)
    assert alone.best_epochs_ == model.best_epochs_
    assert alone.validation_scores_ == {str(model.loss_): scores[str(model.loss_)]}
    assert alone.calibrator_ == model.calibrator_ != Calibrator()
    assert np.array_equal(alone.predict_proba(X), model.predict_proba(X))
    assert DeepClassifier(model.loss_, calibration="level", **options).fit(X, y).calibrator_.slope == 1
    with pytest.raises(ValueError, match="3 losses need rows to choose by"):
        DeepClassifier(losses, early_stopping=False, **options).fit(X, y)
    own = [from_callable(lambda z, y, by=by: by * torch.exp((1 - 2 * y) * z), name="own") for by in (1, 2)]
    with pytest.raises(ValueError, match="two different losses have the same text"):
        DeepClassifier(own, **options).fit(X, y)


@pytest.mark.slow
def test_the_choice_is_no_worse_than_epochs_that_suit_such_tables():
    """Ten thousand rows with about a hundred positives: by held-out rows it was, in six of six tables."""

    def table(count, seed):
        random = np.random.default_rng(seed)
        X = random.normal(size=(count, 6))
        z = 1.5 * X[:, 0] - X[:, 1] + 0.7 * X[:, 2] * X[:, 3] - 6.3
        return X, (random.random(count) < 1 / (1 + np.exp(-z))).astype(int)

    rows, labels = table(50_000, 999)
    found = []
    for seed in range(4):
        X, y = table(10_000, 100 + seed)
        for options in ({}, {"early_stopping": False}):
            model = DeepClassifier("tbl", net="mlp", random_state=seed, n_jobs=1, **options).fit(X, y)
            area = partial_auc(labels, model.decision_function(rows), 0.01)
            found.append((area, log_loss(labels, model.predict_proba(rows)[:, 1])))
    (chosen_area, chosen_loss), (area, loss) = np.reshape(found, (4, 2, 2)).mean(0)
    assert chosen_area > area - 0.003
    assert chosen_loss < loss


def test_several_classes_are_cross_validated_too():
    X, _ = ring_table(400)
    y = np.digitize(X[:, 0], [-1.5, 1.6])
    assert np.bincount(y).min() < 50
    model = DeepClassifier(**SMALL, width=16, max_epochs=30).fit(X, y)
    assert 1 < model.n_epochs_ <= 30
    assert np.bincount(model.predict(X)).min() > 0


@pytest.mark.parametrize("rare", ["a", "z"])
def test_the_rarer_class_is_the_event_of_early_stopping(rare):
    """Whichever comes last in sorted order."""
    X, y = ring_table(2000)
    valid, labels = ring_table(1500, seed=1)

    def names(flags):
        return np.where(flags, rare, "m")

    model = DeepClassifier("crossentropy", max_epochs=4, max_fpr=0.1, width=16, **SMALL)
    model.fit(X, names(y), eval_set=(valid, names(labels)))
    score = model.decision_function(valid) * (1 if rare == "z" else -1)
    expected = partial_auc(labels, score, 0.1)
    assert model.validation_scores_["crossentropy"] == pytest.approx(expected, abs=1e-9)


def test_balanced_weights_count_rows_by_their_weights():
    X, y = ring_table(600)
    w = np.where(y, 5, 1)
    options = {**SMALL, "width": 16, "max_epochs": 2, "early_stopping": False, "class_weight": "balanced"}
    weighted = DeepClassifier(**options).fit(X, y, w)
    repeated = DeepClassifier(**options).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    assert weighted.loss_.weights == pytest.approx(repeated.loss_.weights, rel=1e-12)
    assert DeepClassifier(**options).fit(X, y, 1e300 * w).loss_.weights == pytest.approx(
        weighted.loss_.weights
    )


def test_a_saved_model_can_be_read_by_others(tmp_path):
    X, y = ring_table(300)
    DeepClassifier(**SMALL, width=16, max_epochs=1, early_stopping=False).fit(X, y).save(tmp_path / "model")
    plain = tmp_path / "plain"
    plain.write_text("")
    for path in (tmp_path / "model").iterdir():
        assert path.stat().st_mode == plain.stat().st_mode, path


def test_labels_in_a_column_of_objects():
    X, y = ring_table(300)
    options = {**SMALL, "width": 16, "max_epochs": 1, "early_stopping": False}
    plain = DeepClassifier(**options).fit(X, y.astype(int))
    objects = DeepClassifier(**options).fit(X, y.astype(int).astype(object))
    assert objects.classes_.tolist() == [0, 1]
    assert np.array_equal(plain.predict_proba(X), objects.predict_proba(X))
    wrong = np.empty(len(y), dtype=object)
    wrong[:] = [(1, 2)] * len(y)
    with pytest.raises(
        ValueError, match="y holds objects of type tuple: labels must be numbers, bools or text"
    ):
        DeepClassifier(**options).fit(X, wrong)
    for stop in (0, 1, "yes"):
        with pytest.raises(ValueError, match="early_stopping must be 'auto', True or False"):
            DeepClassifier(**SMALL, early_stopping=stop).fit(X, y)
    with pytest.raises(ValueError, match="device is 'cpu:7', but there is one CPU"):
        DeepClassifier(**SMALL, device="cpu:7").fit(X, y)
