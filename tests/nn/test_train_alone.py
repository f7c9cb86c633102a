"""A replica trained in the stack equals the same model trained alone by a plain loop of torch."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from loss_cases import BINARY_LOSSES, CLASS_LOSSES
from raresight.losses import LDAM, TBL, CrossEntropy, Focal
from raresight.nn import Recipe, Replicas, TableRows, as_module, train
from raresight.nn.batches import draw_epoch
from raresight.nn.nets import MLP, TabM, TabNet
from reproduction.images.rows import ImageRows
from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)

ROWS, BATCH, EPOCHS = 330, 64, 4  # 5 steps an epoch and 10 rows left over: 20 steps
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(ROWS, 6))
Y = (X[:, 0] + RANDOM.normal(size=ROWS) > 1).astype(int)
CLASSES = np.digitize(X[:, 0] + 0.5 * RANDOM.normal(size=ROWS), [-0.5, 0.5, 1.2])
PIXELS = RANDOM.integers(0, 256, size=(ROWS, 3, 8, 8), dtype=np.uint8)

TABLE = TableRows(X, Y)
# Some rows count for nothing.
WEIGHTS = np.random.default_rng(4).exponential(size=ROWS) * (np.arange(ROWS) % 4 > 0)
IMAGES = ImageRows(PIXELS, Y, mean=(0.5,) * 3, std=(0.3,) * 3, padding=1)

NETS = {
    "resnet": (partial(resnet_cifar, 8, width=4), IMAGES),
    "mlp": (partial(MLP, 6, hidden=(7, 5)), TABLE),
    "mlp with batch norm": (partial(MLP, 6, hidden=(7, 5), batch_norm=True), TABLE),
    # Parts of a few rows would make training chaotic: a change in the last digit would grow to 0.1.
    "tabnet": (partial(TabNet, 6, ghost_batch=30, momentum=0.1), TABLE),
    "tabm": (partial(TabM, 6, members=3, width=8, blocks=2, dropout=0.1), TABLE),
    "cosine heads": (partial(MLP, 6, hidden=(7,), cosine=(True, False, False, True)), TABLE),
}
LOSSES = [TBL(0.8, 0.5), CrossEntropy(), Focal(2.0), TBL(0.8, 0.5)]
SEEDS = [11, 5, 11, 902]  # two replicas share their batches


def recipe_of(**changes):
    options = {"epochs": EPOCHS, "batch": BATCH, "optimiser": "sgd", "lr": 0.005, "precision": "float64"}
    return Recipe(**{**options, "warmup_epochs": 1, "decay_epochs": (3,), **changes})


def trained_alone(replicas, k, source, recipe, weights_of=None):
    """Replica k by torch's own optimiser; `replicas` are not trained yet."""
    net = replicas.replica(k)
    source = source.to("cpu", torch.float64)
    if recipe.optimiser == "sgd":
        optimiser = torch.optim.SGD(
            net.parameters(), lr=1.0, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
    else:
        optimiser = torch.optim.AdamW(
            net.parameters(), lr=1.0, betas=recipe.betas, eps=recipe.epsilon, weight_decay=recipe.weight_decay
        )
    steps = len(source) // recipe.batch
    for epoch in range(recipe.epochs):
        draws = draw_epoch(source, [replicas.seeds[k]], epoch, recipe.batch)
        for step in range(steps):
            index = draws.order[step, 0]
            x = source.batch(draws.order[step], tuple(change[step] for change in draws.changes))[0]
            y = net.training_labels(source.labels[index].long())
            warm = min(1.0, (epoch * steps + step + 1) / (recipe.warmup_epochs * steps))
            optimiser.param_groups[0]["lr"] = (
                recipe.lr * warm * (0.1 if epoch >= recipe.decay_epochs[0] else 1)
            )
            optimiser.zero_grad()
            scores = net.training_scores(x)[0]
            target = y if scores.ndim == 2 else y.to(scores.dtype)
            loss = as_module(replicas.losses[k], reduction="none", soft_targets=False)(scores, target)
            weight = torch.tensor(
                [1.0, 1.0] if weights_of is None else weights_of(k, epoch), dtype=torch.float64
            )[y.clamp(max=1)]
            each = loss * weight
            if source.weights is not None:
                each = each * net.training_labels(source.weights[index])
            (each.sum() / weight.sum()).backward()
            if recipe.clip is not None:
                torch.nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
            optimiser.step()
    return net.state_dict()


def assert_equals_alone(replicas, source, recipe, weights_of=None, least_move=1e-3):
    replicas.to("cpu", torch.float64)
    start = {key: value.clone() for key, value in replicas.net.state_dict().items()}
    alone = [trained_alone(replicas, k, source, recipe, weights_of) for k in range(len(replicas))]
    result = train(replicas, source, recipe, progress=False)
    assert not result.frozen
    stack = replicas.net.state_dict()
    for k, one in enumerate(alone):
        assert one.keys() == stack.keys()
        for key, value in one.items():
            torch.testing.assert_close(stack[key][k], value[0], rtol=0, atol=1e-9, msg=f"{k} {key}")
        moved = max((one[key][0] - start[key][k]).abs().max().item() for key in start)
        assert moved > least_move, f"replica {k} did not train"


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
@pytest.mark.parametrize("name", NETS)
def test_every_net(name, optimiser):
    build, source = NETS[name]
    assert_equals_alone(Replicas(build, LOSSES, SEEDS), source, recipe_of(optimiser=optimiser))


@pytest.mark.parametrize("name", ["mlp", "tabnet", "tabm", "resnet"])
def test_weights_of_rows(name):
    """Which end elsewhere than the same rows without weights."""
    build, source = NETS[name]
    weighted = TableRows(X, Y, WEIGHTS)
    if source is IMAGES:
        weighted = ImageRows(PIXELS, Y, mean=(0.5,) * 3, std=(0.3,) * 3, padding=1, weights=WEIGHTS)
    replicas, plain = (Replicas(build, LOSSES, SEEDS) for _ in range(2))
    assert_equals_alone(replicas, weighted, recipe_of())
    train(plain, source, recipe_of(), progress=False)
    assert (plain.net.head.weight - replicas.net.head.weight).flatten(1).abs().amax(1).min() > 1e-5


def test_weights_of_rows_of_several_classes():
    replicas = Replicas(partial(MLP, 6, hidden=(7,), outputs=4), CLASS_LOSSES, range(len(CLASS_LOSSES)))
    assert_equals_alone(replicas, TableRows(X, CLASSES, WEIGHTS), recipe_of(clip=1.0, drw_epoch=None))


def test_every_loss_of_a_score():
    replicas = Replicas(partial(MLP, 6, hidden=(7,)), BINARY_LOSSES, [5] * len(BINARY_LOSSES))
    assert_equals_alone(replicas, TABLE, recipe_of(clip=1.0, drw_epoch=None))


def test_every_loss_of_class_logits():
    replicas = Replicas(partial(MLP, 6, hidden=(7,), outputs=4), CLASS_LOSSES, range(len(CLASS_LOSSES)))
    assert_equals_alone(replicas, TableRows(X, CLASSES), recipe_of(clip=1.0, drw_epoch=None))


@pytest.mark.parametrize("clip", [0.05, 1000.0])
def test_clipping_is_that_of_torch(clip):
    build, source = NETS["mlp"]
    assert_equals_alone(Replicas(build, LOSSES, SEEDS), source, recipe_of(clip=clip))


def test_deferred_weights_reach_ldam_alone():
    counts = (int((Y == 0).sum()), int(Y.sum()))
    losses = [LDAM(counts, scale=3.0), CrossEntropy(), LDAM(counts, scale=3.0)]
    number = [(1 - 0.9999**count) / (1 - 0.9999) for count in counts]
    scale = 2 / sum(1 / n for n in number)

    def weights_of(k, epoch):
        return [scale / n for n in number] if k != 1 and epoch >= 2 else [1.0, 1.0]

    replicas = Replicas(NETS["mlp"][0], losses, (1, 1, 2))
    assert_equals_alone(replicas, TABLE, recipe_of(drw_epoch=2), weights_of)
    # The class weights make a difference, so that the comparison has something to see.
    other = Replicas(NETS["mlp"][0], losses, (1, 1, 2))
    train(other, TABLE, recipe_of(drw_epoch=None), progress=False)
    gap = (other.net.head.weight - replicas.net.head.weight).abs().amax((1, 2))
    assert gap[0] > 1e-5
    assert gap[1] == 0


@pytest.mark.parametrize("source", [TABLE, TableRows(X, Y, WEIGHTS)], ids=["plain", "weighted rows"])
def test_deferred_replicas_can_be_named(source):
    def weights_of(k, epoch):
        number = [(1 - 0.9999**count) / (1 - 0.9999) for count in ((Y == 0).sum(), Y.sum())]
        return [2 / sum(1 / n for n in number) / n for n in number] if k == 0 else [1.0, 1.0]

    replicas = Replicas(NETS["mlp"][0], ["crossentropy", "crossentropy"])
    assert_equals_alone(replicas, source, recipe_of(drw_epoch=0, deferred=(True, False)), weights_of)


def test_each_replica_may_have_its_own_rate_and_limit():
    together = Replicas(NETS["mlp"][0], ["crossentropy"] * 3, (4, 4, 4))
    train(together, TABLE, recipe_of(lr=(0.005, 0.01, 0.005), clip=(None, 0.1, 0.1)), progress=False)
    for k, (rate, clip) in enumerate(((0.005, None), (0.01, 0.1), (0.005, 0.1))):
        alone = Replicas(NETS["mlp"][0], ["crossentropy"], (4,))
        train(alone, TABLE, recipe_of(lr=rate, clip=clip), progress=False)
        for one, stack in zip(alone.net.parameters(), together.net.parameters()):
            torch.testing.assert_close(stack[k], one[0], rtol=0, atol=1e-12)
