"""A replica that diverges is frozen with the weights of before, and reported; the others do not notice."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from raresight.nn import ImageRows, Recipe, Replicas, TableRows, train
from raresight.nn.nets import MLP, TabNet, resnet_cifar
from raresight.nn.step import TrainingStep

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
    options = {"epochs": 4, "batch": 32, "lr": rates, "warmup_epochs": 0, "decay_epochs": (), "clip": None}
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
    assert "not finite at epoch 1, step 2; frozen with the weights of before" in text
    assert text in capsys.readouterr().err
    assert text in str(result)


def test_a_gradient_that_is_not_finite_is_told_from_a_loss():
    # In float32 the square of a gradient of 1e20 is infinite; the loss is still a number.
    X = np.full((64, 1), 1e20, dtype=np.float32)
    y = np.arange(64) % 2
    replicas = Replicas(partial(MLP, 1, hidden=()), ["crossentropy"])
    with torch.no_grad():
        replicas.net.head.weight.zero_()
    result = train(replicas, (X, y * 0 + (np.arange(64) < 60)), Recipe(epochs=2, batch=64), progress=False)
    assert "gradient not finite at epoch 1, step 1" in result.frozen[0]
    assert replicas.net.head.weight.item() == 0


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
