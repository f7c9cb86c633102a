"""A replica that diverges is frozen with its last sound weights, and reported; the others do not notice."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from raresight.nn import Recipe, Replicas, TableRows, train
from raresight.nn.nets import MLP, TabM, TabNet
from raresight.nn.step import TrainingStep
from reproduction.images.rows import ImageRows
from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)

RANDOM = np.random.default_rng(1)
Y = (np.arange(96) % 4 == 0).astype(int)
TABLE = TableRows(RANDOM.normal(size=(96, 4)) + Y[:, None], Y)
PIXELS = RANDOM.integers(0, 256, size=(96, 3, 8, 8), dtype=np.uint8)
IMAGES = ImageRows(PIXELS, Y, mean=(0.5,) * 3, std=(0.3,) * 3)
NETS = {
    "mlp": (partial(MLP, 4, hidden=(6,)), TABLE),
    "mlp with batch norm": (partial(MLP, 4, hidden=(6,), batch_norm=True), TABLE),
    "tabnet": (partial(TabNet, 4, ghost_batch=30), TABLE),
    "resnet": (partial(resnet_cifar, 8, width=4), IMAGES),
}
LOSSES = ["crossentropy", "alpha(alpha=0.3)", "tbl(alpha=0.8,C=0.5)"]


def recipe_of(*, explodes, **changes):
    rates = (0.01, 1e30 if explodes else 0.01, 0.01)
    options = {"epochs": 4, "batch": 32, "optimiser": "sgd", "lr": rates, "warmup_epochs": 0, "clip": None}
    return Recipe(**{**options, **changes})


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
@pytest.mark.parametrize("name", NETS)
def test_the_others_do_not_notice(name, optimiser):
    build, source = NETS[name]
    broken, sound = Replicas(build, LOSSES, (3, 4, 3)), Replicas(build, LOSSES, (3, 4, 3))
    result = train(broken, source, recipe_of(explodes=True, optimiser=optimiser), progress=False)
    train(sound, source, recipe_of(explodes=False, optimiser=optimiser), progress=False)
    assert list(result.frozen) == [1]
    for one, other in zip(broken.net.state_dict().values(), sound.net.state_dict().values()):
        assert torch.equal(one[[0, 2]], other[[0, 2]])
        assert one[1].isfinite().all()
    rows = [row for row in result.history if row["replica"] == 1]
    assert rows[-1]["frozen"]
    assert rows[-1]["train_loss"] is None
    assert rows[-1]["gradient_norm_max"] is None
    assert all(not row["frozen"] for row in result.history if row["replica"] != 1)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
@pytest.mark.parametrize("name", NETS)
def test_frozen_on_the_spot_and_for_good(name, optimiser):
    build, source = NETS[name]
    replicas = Replicas(build, LOSSES, (3, 4, 3))
    # One step an epoch, so that the state can be looked at between steps.
    recipe = recipe_of(explodes=True, optimiser=optimiser, batch=96, epochs=8)
    step = TrainingStep(replicas, source.to("cpu", torch.float32), recipe, (72, 24))
    assert step.steps == 1

    def state():
        tensors = [
            *replicas.net.state_dict().values(),
            step.optimiser.weights,
            *step.optimiser.slots.values(),
        ]
        return [tensor.clone() for tensor in tensors]

    before, frozen_at = state(), None
    for epoch in range(8):
        step.run_epoch(epoch)
        after = state()
        changed = [any(not torch.equal(a[k], b[k]) for a, b in zip(after, before)) for k in range(3)]
        if frozen_at is None and step.frozen[1]:
            frozen_at = epoch
        assert changed == [True, frozen_at is None, True]
        before = after
    assert frozen_at is not None
    assert frozen_at > 0
    assert step.frozen_at.tolist() == [-1, frozen_at, -1]
    assert step.frozen.tolist() == [False, True, False]


def test_the_report_says_who_why_and_when(capsys):
    replicas = Replicas(NETS["mlp"][0], LOSSES, (3, 4, 3))
    result = train(replicas, TABLE, recipe_of(explodes=True))
    (text,) = result.frozen.values()
    assert text.startswith("replica 1, alpha(alpha=0.3), seed 4: ")
    assert "not finite at epoch 1, step 2; frozen with its last sound weights" in text
    assert text in capsys.readouterr().err
    assert text in str(result)


@pytest.mark.parametrize("size", [1e20, 1e30, 1e37])
def test_a_gradient_whose_square_overflows_is_clipped(size):
    X = np.full((64, 1), size, dtype=np.float32)
    replicas = Replicas(partial(MLP, 1, hidden=()), ["crossentropy"])
    with torch.no_grad():
        replicas.net.head.weight.zero_()
    recipe = Recipe(epochs=1, batch=64, optimiser="sgd", lr=0.1, warmup_epochs=0, weight_decay=0.0, clip=3.0)
    result = train(replicas, (X, np.arange(64) < 60), recipe, progress=False)
    assert not result.frozen
    assert replicas.net.head.weight.item() == pytest.approx(0.1 * 3.0, rel=1e-5)
    (row,) = result.history
    assert row["gradient_norm_max"] == pytest.approx(size * (60 / 64 - 0.5), rel=1e-5)
    assert row["clipped"] == 1


def test_a_gradient_whose_square_adamw_cannot_keep_freezes_a_replica():
    """Divided by the root of an infinite square it would move nothing any more, and nobody would know."""
    X, y = np.full((64, 1), 1e25, dtype=np.float32), np.arange(64) < 60
    for optimiser, clip in (("adamw", None), ("adamw", 3.0), ("sgd", None)):
        replicas = Replicas(partial(MLP, 1, hidden=()), ["crossentropy"])
        with torch.no_grad():
            replicas.net.head.weight.zero_()
        recipe = recipe_of(explodes=False, lr=0.01, epochs=1, batch=64, optimiser=optimiser, clip=clip)
        result = train(replicas, (X, y), recipe, progress=False)
        if (optimiser, clip) == ("adamw", None):
            assert "gradient not finite at epoch 1, step 1" in result.frozen[0]
        else:
            assert not result.frozen
            assert replicas.net.head.weight.item() > 0


def test_a_gradient_that_is_not_finite_is_told_from_a_loss():
    # A score of 1e10 is a loss of 1e10, but its slope in the first weight is 1e10 times 1e35.
    replicas = Replicas(partial(MLP, 1, hidden=(1,)), ["crossentropy"])
    first, head = replicas.net.layers[0], replicas.net.head
    with torch.no_grad():
        first.weight.zero_()
        first.bias.fill_(1.0)
        head.weight.fill_(1e10)
    X, recipe = np.full((64, 1), 1e35, dtype=np.float32), recipe_of(explodes=False, lr=0.01)
    result = train(replicas, (X, np.arange(64) < 60), recipe, progress=False)
    assert "gradient not finite at epoch 1, step 1" in result.frozen[0]
    assert first.weight.item() == 0
    assert result.history[0]["train_loss"] == pytest.approx(1e10 * 4 / 64, rel=0.5)


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_statistics_that_are_not_finite_freeze_a_replica(optimiser):
    """The variance of numbers of 1e25 is infinite; behind it scores are the bias, and the loss is sound."""
    net = partial(MLP, 4, hidden=(6,), batch_norm=True)
    replicas, sound = Replicas(net, LOSSES, (3, 4, 3)), Replicas(net, LOSSES, (3, 4, 3))
    with torch.no_grad():
        replicas.net.layers[0].weight[1] = 1e25
    before = {name: stack[1].clone() for name, stack in replicas.net.state_dict().items()}
    recipe = recipe_of(explodes=False, optimiser=optimiser)
    result = train(replicas, TABLE, recipe, progress=False)
    train(sound, TABLE, recipe, progress=False)
    assert list(result.frozen) == [1]
    assert "running statistics not finite at epoch 1, step 1; frozen" in result.frozen[1]
    there = sound.net.state_dict()
    for name, stack in replicas.net.state_dict().items():
        assert torch.equal(stack[1], before[name])
        assert torch.equal(stack[[0, 2]], there[name][[0, 2]])


def test_weights_that_take_no_gradient_are_refused():
    replicas = Replicas(NETS["mlp"][0], LOSSES)
    replicas.net.layers[0].bias.requires_grad_(False)
    with pytest.raises(ValueError, match=r"but layers\.0\.bias has requires_grad=False"):
        train(replicas, TABLE, recipe_of(explodes=False), progress=False)


@pytest.mark.parametrize("judged", [None, TABLE], ids=["", "judged"])
def test_the_last_step_is_guarded_too(judged, tmp_path):
    """It has no step after it whose loss would show what it did."""
    recipe = recipe_of(explodes=True, epochs=1, batch=96)
    # Of two layers, so that infinities of both signs meet whatever the order of the sums.
    replicas = Replicas(partial(MLP, 4, hidden=(6, 6)), LOSSES)
    training = train(replicas, TABLE, recipe, evaluation=judged, folder=tmp_path, progress=False)
    assert set(training.frozen) == {1}
    report = training.frozen[1]
    assert report.endswith("scores not finite at epoch 1, step 1; its last step spoilt the weights"), report
    assert [row["frozen"] for row in training.history] == [False, True, False]
    again = train(replicas, TABLE, recipe, evaluation=judged, folder=tmp_path, progress=False)
    assert again.frozen == training.frozen


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("build", [partial(MLP, 4, hidden=(6,)), partial(TabM, 4, width=6, members=2)])
def test_probabilities_of_the_others_can_be_read(build, outputs):
    replicas = Replicas(partial(build, outputs=outputs), LOSSES)
    x = np.zeros((5, 4), np.float32)
    expected = replicas.probabilities(x)
    with torch.no_grad():
        for stack in replicas.net.parameters():
            stack[1] = float("nan")
    found = replicas.probabilities(x)
    assert found[1].isnan().all()
    torch.testing.assert_close(found[[0, 2]], expected[[0, 2]], rtol=0, atol=0)


def test_training_ends_when_all_are_frozen():
    replicas = Replicas(NETS["mlp"][0], LOSSES, (3, 4, 3))
    recipe = recipe_of(explodes=True, lr=1e30, epochs=50)
    result = train(replicas, TABLE, recipe, evaluation=TABLE, progress=False)
    assert len(result.frozen) == 3
    assert result.epochs < 50
    assert result.best == (None, None, None)
    assert [row["epoch"] for row in result.last] == [result.epochs] * 3


def test_gradient_norms_and_clipping_are_logged():
    build, source = NETS["mlp"]
    free = train(
        Replicas(build, LOSSES),
        source,
        recipe_of(explodes=False, epochs=1, batch=96, lr=0.01),
        progress=False,
    )
    norms = [row["gradient_norm_max"] for row in free.history]
    assert [row["clipped"] for row in free.history] == [0.0, 0.0, 0.0]
    # By hand: the norm of the first gradient.
    for k, norm in enumerate(norms):
        replicas = Replicas(build, LOSSES).to("cpu", torch.float64)
        scores = replicas.net(source.values.double())
        replicas.table(scores, source.labels).sum().backward()
        squares = sum(p.grad[k].square().sum() for p in replicas.net.parameters())
        assert norm == pytest.approx(squares.sqrt().item(), rel=1e-4)
    limit = sorted(norms)[1]
    held = train(
        Replicas(build, LOSSES),
        source,
        recipe_of(explodes=False, epochs=1, batch=96, lr=0.01, clip=limit),
        progress=False,
    )
    assert [row["clipped"] for row in held.history] == [float(norm > limit) for norm in norms]
    assert [row["gradient_norm_max"] for row in held.history] == norms
