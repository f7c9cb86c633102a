"""`train(keep="best")`: each replica ends with the weights of its own best epoch."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch

from raresight.nn import Recipe, Replicas, TableRows, train
from raresight.nn.nets import MLP
from reproduction.images.rows import ImageRows
from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)

LOSSES = ["crossentropy", "tbl(alpha=0.7,C=0.5)", "focal(gamma=2.0)", "crossentropy"]
SEEDS = (0, 1, 2, 3)
# Wide nets on few rows of noise: they overfit, so that the best epoch is seldom the last.
RECIPE = Recipe(epochs=12, batch=32, lr=0.03, warmup_epochs=1)


def rows_of(count, seed):
    random = np.random.default_rng(seed)
    y = (np.arange(count) % 8 == 0).astype(int)
    return random.normal(size=(count, 6)) + 0.7 * y[:, None], y


DATA, JUDGED = rows_of(160, 1), rows_of(400, 2)


def replicas_of(losses=LOSSES, seeds=SEEDS):
    return Replicas(partial(MLP, 6, hidden=(64,)), losses, seeds)


def trained(recipe=RECIPE, replicas=None, data=DATA, **options):
    replicas = replicas_of() if replicas is None else replicas
    return replicas, train(replicas, data, recipe, evaluation=JUDGED, progress=False, **options)


def weights_of(replicas, k):
    return {name: stack[k].clone() for name, stack in replicas.net.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())


class FailingRows(TableRows):
    """Rows whose draws fail after some epochs, as a broken disk would."""

    def __init__(self, X, y, *, epochs):
        super().__init__(X, y)
        self.draws_left = len(SEEDS) * (epochs + 1)

    def draw(self, by, count):
        self.draws_left -= 1
        if self.draws_left < 0:
            raise OSError("the disk is gone")
        return super().draw(by, count)


def test_the_weights_are_those_of_the_best_epoch():
    kept, result = trained(keep="best")
    epochs = [row["epoch"] for row in result.best]
    assert len(set(epochs)) > 1
    assert min(epochs) < RECIPE.epochs
    for k, epoch in enumerate(epochs):
        # A shorter training has the same schedule: its last weights are those of this epoch.
        shorter, _ = trained(replace(RECIPE, epochs=epoch))
        assert_same(weights_of(kept, k), weights_of(shorter, k))
    last, plain = trained()
    assert result.last == tuple(
        {**row, "seconds": found["seconds"]} for row, found in zip(plain.last, result.last)
    )
    assert any(
        not torch.equal(one, other) for one, other in zip(kept.net.parameters(), last.net.parameters())
    )


@pytest.mark.parametrize(("stopped", "every"), [(0, 1), (3, 1), (9, 1), (9, 4)])
def test_a_training_that_resumes_keeps_the_same_ones(tmp_path, stopped, every):
    undisturbed, result = trained(keep="best")
    options = {"folder": tmp_path, "keep": "best", "checkpoint_every": every}
    with pytest.raises(OSError, match="the disk is gone"):
        trained(data=FailingRows(*DATA, epochs=stopped), **options)
    resumed, again = trained(**options)
    assert [row["epoch"] for row in again.best] == [row["epoch"] for row in result.best]
    for k in range(len(SEEDS)):
        assert_same(weights_of(undisturbed, k), weights_of(resumed, k))
    # The folder has them, too, whoever reads it.
    loaded = replicas_of().load_weights(tmp_path)
    assert_same(loaded.net.state_dict(), undisturbed.net.state_dict())
    # Asked for once more, the finished training gives them without a step.
    finished, _ = trained(**options)
    assert_same(finished.net.state_dict(), undisturbed.net.state_dict())


def test_a_longer_training_goes_on_from_the_last_weights(tmp_path):
    trained(replace(RECIPE, epochs=5), folder=tmp_path, keep="best")
    longer, _ = trained(folder=tmp_path, keep="best")
    at_once, _ = trained(keep="best")
    assert_same(longer.net.state_dict(), at_once.net.state_dict())


def test_folders_with_and_without_are_told_apart(tmp_path):
    trained(folder=tmp_path)
    with pytest.raises(ValueError, match='holds another training: keep is "last" there and "best" here'):
        trained(folder=tmp_path, keep="best")


def test_probabilities_are_by_the_class_weights_of_the_best_epoch(tmp_path):
    """Of an epoch before deferred reweighting began they are plain ones."""
    recipe = replace(RECIPE, epochs=9, drw_epoch=4, deferred=(True,) * 4)
    kept, result = trained(recipe, keep="best", folder=tmp_path)
    is_late = [row["epoch"] > 4 for row in result.best]
    assert set(is_late) == {True, False}
    assert [len(set(weights)) > 1 for weights in kept.class_weights] == is_late
    loaded = replicas_of().load_weights(tmp_path)
    assert loaded.class_weights == kept.class_weights
    assert torch.equal(loaded.probabilities(JUDGED[0]), kept.probabilities(JUDGED[0]))


def test_a_replica_that_diverges_keeps_an_epoch_of_before():
    losses, seeds = ["crossentropy", "alpha(alpha=0.3)", "crossentropy"], (0, 1, 2)
    # From epoch 4 on the rate of the last is far too large; that of the others stays negligible.
    recipe = replace(
        RECIPE, epochs=6, lr=(1e-20, 1e-20, 0.03), decay_epochs=(3,), decay_factor=1e15, clip=None
    )
    replicas, result = trained(recipe, replicas_of(losses, seeds), keep="best")
    assert "epoch 4" in result.frozen[2]
    assert result.frozen[2].endswith("it has the weights of epoch 3")
    assert result.best[2]["epoch"] == 3
    shorter, _ = trained(replace(recipe, epochs=3), replicas_of(losses, seeds))
    assert_same(weights_of(replicas, 2), weights_of(shorter, 2))


def test_a_replica_that_diverges_at_once_has_the_weights_it_began_with():
    recipe = replace(RECIPE, epochs=2, lr=(0.03, 1e30, 0.03, 0.03), clip=None)
    replicas, result = trained(recipe, keep="best")
    assert result.best[1] is None
    assert result.frozen[1].endswith("it has the weights it began with")
    assert_same(weights_of(replicas, 1), weights_of(replicas_of(), 1))


def test_statistics_of_images_are_kept_as_well():
    random = np.random.default_rng(0)
    images = random.integers(0, 256, size=(48, 3, 8, 8), dtype=np.uint8)
    rows = ImageRows(images, np.arange(48) % 4 == 0, mean=(0.5,) * 3, std=(0.25,) * 3)
    recipe = Recipe(epochs=4, batch=16, optimiser="sgd", lr=0.05, warmup_epochs=0)

    def run(epochs, **options):
        replicas = Replicas(partial(resnet_cifar, 8, width=4), LOSSES[:2], (0, 1))
        result = train(
            replicas, rows, replace(recipe, epochs=epochs), evaluation=rows, progress=False, **options
        )
        return replicas, result

    kept, result = run(4, keep="best")
    for k, row in enumerate(result.best):
        assert_same(weights_of(kept, k), weights_of(run(row["epoch"])[0], k))


def test_before_an_epoch_is_judged_the_weights_are_the_last(tmp_path):
    recipe = replace(RECIPE, evaluate_every=5, drw_epoch=1, deferred=(True,) * 4)
    with pytest.raises(OSError, match="the disk is gone"):
        trained(recipe, data=FailingRows(*DATA, epochs=3), folder=tmp_path, keep="best")
    loaded = replicas_of().load_weights(tmp_path)
    shorter, _ = trained(replace(recipe, epochs=3))
    assert_same(loaded.net.state_dict(), shorter.net.state_dict())
    assert loaded.class_weights == shorter.class_weights
    assert len(set(loaded.class_weights[0])) > 1


def test_all_that_diverge_at_once_are_loaded_as_they_were_left(tmp_path):
    recipe = replace(RECIPE, epochs=3, lr=1e30, clip=None, warmup_epochs=0, evaluate_every=3)
    left, result = trained(recipe, keep="best", folder=tmp_path)
    assert len(result.frozen) == 4
    assert_same(replicas_of().load_weights(tmp_path).net.state_dict(), left.net.state_dict())
    assert_same(left.net.state_dict(), replicas_of().net.state_dict())


def test_a_metric_that_is_never_defined_leaves_the_last_weights(tmp_path):
    """Rows that make scores NaN: of the nets that learnt something none is thrown away."""
    X, y = JUDGED
    X = X.copy()
    X[:50] = 3e38 * np.sign(X[:50])
    recipe = replace(RECIPE, drw_epoch=1, deferred=(True,) * 4)
    replicas = replicas_of()
    with pytest.warns(UserWarning, match="partial_auc_0.01 was not defined in any epoch of 4 of 4 replicas"):
        result = train(
            *(replicas, DATA, recipe), evaluation=(X, y), keep="best", folder=tmp_path, progress=False
        )
    assert not result.frozen
    assert str(result).count("partial_auc_0.01 not defined in any epoch") == 4
    last, _ = trained(recipe)
    assert_same(replicas.net.state_dict(), last.net.state_dict())
    assert replicas.class_weights == last.class_weights
    assert_same(replicas_of().load_weights(tmp_path).net.state_dict(), last.net.state_dict())


def test_where_some_have_a_best_epoch_each_gets_its_own(tmp_path, monkeypatch):
    module = import_module("raresight.nn.train")
    judge = module.evaluate_replicas

    def seldom_defined(*arguments):
        found = judge(*arguments)
        return [
            dict.fromkeys(metrics, float("nan")) if k == 2 else metrics for k, metrics in enumerate(found)
        ]

    expected, _ = trained(keep="best")
    last, _ = trained()
    monkeypatch.setattr(module, "evaluate_replicas", seldom_defined)
    with pytest.warns(UserWarning, match="of 1 of 4 replicas, which have the weights of the last: focal"):
        kept, _ = trained(keep="best", folder=tmp_path)
    loaded = replicas_of().load_weights(tmp_path)
    for k in range(4):
        assert_same(weights_of(kept, k), weights_of(last if k == 2 else expected, k))
        assert_same(weights_of(loaded, k), weights_of(kept, k))


def test_an_absent_class_cannot_choose_the_epoch():
    X, _ = DATA
    y = np.arange(len(X)) % 4
    replicas = Replicas(partial(MLP, 6, hidden=(8,), outputs=4), ["crossentropy"])
    recipe = replace(RECIPE, best_by="accuracy_3")
    with pytest.raises(
        ValueError, match="best_by is accuracy_3, but the evaluation has no row of that class"
    ):
        train(replicas, (X, y), recipe, evaluation=(X[y < 3], y[y < 3]), keep="best", progress=False)


def test_weights_are_read_while_a_training_writes_them(tmp_path, monkeypatch):
    """Its newest state is in place of the one that its description named a moment before."""
    from raresight.nn import replicas as module

    trained(replace(RECIPE, epochs=2), folder=tmp_path)
    real, asked = module.current_state, []

    def late(folder):
        asked.append(folder)
        return folder / "state-000001.safetensors" if len(asked) < 3 else real(folder)

    monkeypatch.setattr(module, "current_state", late)
    loaded = replicas_of().load_weights(tmp_path)
    assert len(asked) == 3
    expected, _ = trained(replace(RECIPE, epochs=2))
    assert_same(loaded.net.state_dict(), expected.net.state_dict())
    monkeypatch.setattr(module, "current_state", lambda folder: folder / "state-000001.safetensors")
    with pytest.raises(FileNotFoundError, match="state-000001"):
        replicas_of().load_weights(tmp_path)


def test_wrong_words():
    with pytest.raises(ValueError, match="keep must be 'last' or 'best', but is 'first'"):
        trained(keep="first")
    with pytest.raises(ValueError, match="keep='best' needs evaluation"):
        train(replicas_of(), DATA, RECIPE, keep="best", progress=False)
