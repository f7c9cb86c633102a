"""Cross-validated epochs, compared with trainings fold by fold; and nets that fail in them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from raresight.common.row_groups import assign_folds
from raresight.deep import DeepClassifier, epoch_selection
from raresight.deep.encoding import TableEncoder
from raresight.deep.ensemble_scores import ensemble_score, score_rows
from raresight.deep.epoch_selection import _batch, _plan_stacks
from raresight.deep.net_calibration import NetScores, calibrated_likelihood, held_out_slope
from raresight.deep.net_plans import plan_net
from raresight.deep.training import CodedRows, DivergedWarning, new_replicas, train_nets
from raresight.losses import from_callable, parse
from raresight.metrics import partial_auc
from raresight.nn import Recipe

EPOCHS, BATCH, RATE = 8, 60, 0.08
OPTIONS = {"net": "mlp", "width": 8, "n_seeds": 2, "max_fpr": 0.1, "random_state": 0, "n_jobs": 1}
FITTED = {**OPTIONS, "max_epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE}
RANDOM = np.random.default_rng(8)
# Of eight columns one matters: nets soon learn the others by heart.
X = RANDOM.normal(size=(600, 8))
Y = (RANDOM.random(600) < 1 / (1 + np.exp(2.2 - 1.2 * X[:, 0]))).astype(int)
WEIGHTS = np.exp(1.5 * RANDOM.normal(size=600))


# With and without the slope, and by weights or not, other epochs are the best of these rows.
BEST = {("level", False): 3, ("slope", False): 2, ("level", True): 4, ("slope", True): 6}


def scored_by_other_folds(loss, weights, epochs, with_slope, average_epochs=2.0):
    """The likelihood of all rows, each by nets of our own that were trained without it, and their scores."""
    random = check_random_state(0)
    seeds = [int(seed) for seed in random.randint(np.iinfo(np.int32).max, size=2)]
    parts = assign_folds(Y, random)
    counted = np.ones(600) if weights is None else weights
    encoder = TableEncoder.learn(X, [], counted)
    inputs, codes = encoder.apply(X), Y.astype(np.int64)
    shares = np.bincount(Y, counted) / counted.sum()
    plan = plan_net("mlp", {"width": 8}, {}, features=encoder.n_inputs, outputs=1)
    scores = np.empty(600)
    for part in range(5):
        out = parts == part
        replicas = new_replicas(plan, [loss], seeds, shares, "cpu")
        batch = _batch(int((~out).sum()), 600 // BATCH, 2)
        common = {"weight_decay": 1e-3, "warmup_epochs": 1.0, "decay_epochs": ()}
        recipe = Recipe(epochs=epochs, batch=batch, lr=RATE, **common)
        own = None if weights is None else weights[~out]
        rows = CodedRows(inputs[~out], codes[~out], own, shares)
        train_nets(replicas, rows, recipe, average_epochs=average_epochs)
        of_seeds = score_rows(replicas, torch.from_numpy(inputs[out]))
        scores[out] = ensemble_score(loss, torch.from_numpy(of_seeds)).numpy()
    rows = NetScores(scores, codes, weights)
    return calibrated_likelihood(loss, rows, shares, with_slope=with_slope), rows


@pytest.mark.parametrize(
    ("weights", "calibration"),
    [
        pytest.param(None, "level", id="level"),
        pytest.param(WEIGHTS, "slope", id="slope-weighted"),
        pytest.param(None, "slope", id="slope", marks=pytest.mark.slow),
        pytest.param(WEIGHTS, "level", id="level-weighted", marks=pytest.mark.slow),
    ],
)
def test_every_row_is_scored_by_nets_that_did_not_see_it(weights, calibration):
    loss, with_slope = parse("crossentropy"), calibration == "slope"
    model = DeepClassifier(loss, calibration=calibration, **FITTED).fit(X, Y, weights)
    normed = None if weights is None else weights / weights.max()
    found = [scored_by_other_folds(loss, normed, epochs, with_slope) for epochs in range(1, EPOCHS + 1)]
    best = int(np.argmax([likelihood for likelihood, _ in found]))
    assert best + 1 == BEST[calibration, weights is not None]
    assert model.best_epochs_ == (best + 1,) * 2
    _, rows = found[best]
    expected = partial_auc(Y, rows.scores, 0.1, sample_weight=weights)
    assert model.validation_scores_["crossentropy"] == pytest.approx(expected, abs=1e-6)
    slope = held_out_slope(loss, rows) if with_slope else 1.0
    assert model.calibrator_.slope == pytest.approx(slope, rel=1e-4)


def test_the_nets_are_those_of_all_rows_with_means_over_two_epochs():
    model = DeepClassifier("tbl", **FITTED).fit(X, Y)
    given = {**FITTED, "max_epochs": model.n_epochs_, "early_stopping": False}
    for average_epochs, same in ((2.0, True), (1.0, False), (0.0, False)):
        alone = DeepClassifier("tbl", average_epochs=average_epochs, **given).fit(X, Y)
        pairs = zip(model.nets_.weights.values(), alone.nets_.weights.values(), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs) is same


@pytest.mark.slow
def test_ranking_chooses_among_losses():
    """Though the epochs of each are those that make the rows likeliest."""
    losses = [parse("tbl(alpha=0.6,C=1)"), parse("squared"), parse("crossentropy")]
    random = np.random.default_rng(3)
    differ = 0
    for seed in range(3):
        x = random.normal(size=(400, 4))
        y = (random.random(400) < 1 / (1 + np.exp(3 - x[:, 0] - x[:, 1] * x[:, 2]))).astype(int)
        options = {**FITTED, "random_state": seed, "max_fpr": 0.02, "max_epochs": 4, "n_seeds": 1}
        model = DeepClassifier(losses, **options).fit(x, y)
        scores = model.validation_scores_
        assert str(model.loss_) == max(scores, key=scores.get)
        broad = DeepClassifier(losses, **{**options, "max_fpr": 1.0}).fit(x, y)
        differ += broad.loss_ != model.loss_
    assert differ > 0


def test_nets_that_fail_are_reported_at_the_line_of_fit():
    """Two seeds, whose scores are NaN and cannot be averaged."""
    wild = {**OPTIONS, "max_epochs": 4, "learning_rate": 1e20}
    model = DeepClassifier("crossentropy", **wild)
    with pytest.warns() as reported, pytest.raises(ValueError, match="no net learned anything"):
        model.fit(X, Y)
    message = str(reported[0].message)
    assert reported[0].category is DivergedWarning
    assert message.startswith(
        "10 of 10 nets that choose the number of epochs failed, such as crossentropy, seed"
    )
    assert reported[0].filename == __file__
    both = DeepClassifier(["crossentropy", "tbl"], **wild)
    with (
        pytest.warns(DivergedWarning, match="20 of 20 nets"),
        pytest.raises(ValueError, match=r"no net learned anything: crossentropy, .*: lower learning_rate"),
    ):
        both.fit(X, Y)


def test_a_loss_that_fails_leaves_the_others_alone():
    options = {**OPTIONS, "max_epochs": 4, "learning_rate": 3.0}
    with pytest.warns(DivergedWarning, match=r"such as alpha\(alpha=0.3\)"):
        model = DeepClassifier(["alpha(alpha=0.3)", "crossentropy"], **options).fit(X, Y)
    assert str(model.loss_) == "crossentropy"
    assert np.isnan(model.validation_scores_["alpha(alpha=0.3)"])


@pytest.mark.parametrize("net", ["tabm", "mlp"])
@pytest.mark.parametrize("labels", [Y, np.digitize(X[:, 0], [-1, 1.2])], ids=["two", "three"])
def test_several_classes_and_members_that_fail(net, labels):
    wild = {**OPTIONS, "net": net, "max_epochs": 2, "learning_rate": 1e20}
    members = {"members": 2} if net == "tabm" else {}
    model = DeepClassifier("crossentropy", **wild, **members)
    with pytest.warns() as reported, pytest.raises(ValueError, match="no net learned anything"):
        model.fit(X, labels)
    assert {one.category for one in reported} == {DivergedWarning}


def test_nets_that_fail_after_their_first_epoch_are_reported():
    wild = {**OPTIONS, "net": "mlp", "max_epochs": 2, "learning_rate": 1e6}
    with pytest.warns() as reported:  # of the level as well, which such scores do not reach
        DeepClassifier("crossentropy", **wild).fit(X, Y)
    found = {one.category for one in reported}
    assert DivergedWarning in found
    assert found <= {DivergedWarning, ConvergenceWarning}


def test_an_impossible_event_does_not_end_a_loss():
    """The link of a squared hinge is 0 or 1 beyond its margin."""
    loss = from_callable(lambda z, y: torch.relu(1 - (2 * y - 1) * z) ** 2, name="squared hinge")
    model = DeepClassifier(loss, **{**FITTED, "n_seeds": 1}).fit(X, Y)
    assert 0.52 < model.validation_scores_["squared hinge"] < 1
    assert model.best_epochs_[0] > 1


def test_small_batches_stay_fit_for_batch_norm():
    normed = {**OPTIONS, "net_options": {"batch_norm": True}, "max_epochs": 1}
    DeepClassifier("crossentropy", batch_size=2, **normed).fit(X[:120], Y[:120])
    for rows, batch in ((300, 1), (300, 2), (300, 3), (300, 7), (10_000, 128), (600, 600)):
        train = rows * 4 // 5
        steps = rows // batch
        found = _batch(train, steps, min(2, batch))
        assert found >= min(2, batch)
        assert 0.75 < train // found / steps < 1.34


def test_one_row_cannot_choose_among_losses():
    alone = np.arange(600) == 7
    with pytest.raises(ValueError, match="2 losses need rows to choose by, but a class has one row only"):
        DeepClassifier(["tbl", "crossentropy"], **FITTED).fit(X, alone)


def masks(*lengths):
    """The fold of each row, for folds of these lengths."""
    return np.repeat(np.arange(len(lengths)), lengths)


@pytest.mark.parametrize(
    ("net", "width", "lengths", "batch", "together"),
    [
        # All folds of a small net; those whose batches are not the same apart, as of 79 rows beside 80 in
        # four steps; those of a wide one alone.
        ("mlp", 8, (20,) * 5, 25, [5]),
        ("mlp", 8, (60, 10, 10, 10, 10), 25, [1, 4]),
        ("mlp", 4096, (20,) * 5, 25, [1] * 5),
        ("tabnet", 8, (19, 19, 20, 20, 22), 25, [1, 4]),
        ("tabnet", 8, (199, 200, 200, 200, 201), 90, [5]),
    ],
)
def test_folds_of_small_nets_are_trained_as_one(net, width, lengths, batch, together):
    parts, count = masks(*lengths), sum(lengths)
    codes, shares = np.zeros(count, np.int64), np.array([0.5, 0.5])
    rows = CodedRows(np.zeros((count, 3), np.float32), codes, None, shares)
    plan = plan_net(net, {"width": width}, {}, features=3, outputs=1)
    found = _plan_stacks(plan, 2, rows, Recipe(batch=batch), parts, "cpu")
    assert sorted(len(own) for _, own in found) == together
    inside = [one for _, own in found for one in own]
    assert np.array_equal(np.sum(inside, axis=0), np.ones(count))
    for size, own in found:
        for one in own:
            assert size == _batch(int((~one).sum()), count // batch, 2)


@pytest.mark.parametrize("net", ["mlp", "tabnet"])
def test_a_stack_of_folds_finds_what_folds_alone_do(monkeypatch, net):
    """Of several losses and seeds, with rows of different weights; 120 rows make parts of two lengths."""
    x, y, weights = X[:121, :3], Y[:121], WEIGHTS[:121]
    options = {**OPTIONS, "net": net, "max_epochs": 3, "batch_size": 30, "precision": "float64"}
    counts = []

    def fitted():
        counts.append([])
        return DeepClassifier(["crossentropy", "tbl"], **options).fit(x, y, weights)

    plain = epoch_selection._open_fold_stack

    def noted(*given):
        found = plain(*given)
        counts[-1].append(len(found.held_out))
        return found

    monkeypatch.setattr(epoch_selection, "_open_fold_stack", noted)
    stacked = fitted()
    monkeypatch.setattr(epoch_selection, "_CPU_STACK_NUMBERS", 1)
    alone = fitted()
    assert max(counts[0]) > 1
    assert counts[1] == [1] * 5
    assert stacked.best_epochs_ == alone.best_epochs_
    assert stacked.validation_scores_ == pytest.approx(alone.validation_scores_, rel=1e-9)
    assert stacked.calibrator_.slope == pytest.approx(alone.calibrator_.slope, rel=1e-5)
