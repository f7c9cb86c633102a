"""Training on a GPU: CUDA graphs, determinism, frozen replicas, and resumption where safetensors is there."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from run import skipped

from raresight.nn import Recipe, Replicas, TableRows, evaluate_replicas, train
from raresight.nn.nets import MLP, TabNet
from raresight.nn.training_loop import MeanWeights, training_session
from reproduction.images.rows import ImageRows
from reproduction.resnet import resnet_cifar

LOSSES = ["crossentropy", "tbl(alpha=0.8,C=0.5)", "focal(gamma=2.0)", "alpha(alpha=0.8)"]
RANDOM = np.random.default_rng(0)
Y = (np.arange(1100) % 10 == 0).astype(int)
X = RANDOM.normal(size=(1100, 6)) + Y[:, None]
PIXELS = RANDOM.integers(0, 200, size=(1100, 3, 32, 32), dtype=np.uint8)
PIXELS[Y == 1, 0] += 40
TABLE = TableRows(X, Y)
image_rows = partial(ImageRows, PIXELS, mean=(0.4,) * 3, std=(0.25,) * 3)
IMAGES = image_rows(Y)

RECIPE = Recipe(epochs=3, optimiser="sgd", lr=0.02, warmup_epochs=1, decay_epochs=(2,))
MLP_NET = partial(MLP, 6, hidden=(32, 32), batch_norm=True)
TABNET = partial(TabNet, 6, ghost_batch=64)
RESNET = partial(resnet_cifar, 32)
# Small enough for float64 and for a CPU.
SMALL_RESNET = partial(resnet_cifar, 8, width=4)
SMALL_IMAGES = ImageRows(PIXELS[:384, :, :8, :8], Y[:384], mean=(0.4,) * 3, std=(0.25,) * 3)


def trained(net, rows, recipe=RECIPE, *, device="cuda", seeds=(3, 4, 3, 5), losses=LOSSES, **options):
    replicas = Replicas(net, losses, seeds)
    result = train(replicas, rows, recipe, device=device, progress=False, **options)
    return replicas, result


def weights_of(replicas):
    return {name: value.detach().cpu() for name, value in replicas.net.state_dict().items()}


def assert_equal(one, other):
    there = weights_of(other)
    for name, value in weights_of(one).items():
        gap = (value.double() - there[name].double()).abs().max().item()
        assert torch.equal(value, there[name]), f"{name} differs by up to {gap:g}"


def assert_close(one, other, limit):
    there = weights_of(other)
    for name, value in weights_of(one).items():
        gap = (value.double() - there[name].double()).abs().max().item()
        assert gap < limit, f"{name} differs by {gap:g}"


def assert_moved(replicas, net, seeds=(3, 4, 3, 5), losses=LOSSES):
    start = weights_of(Replicas(net, losses, seeds))["head.weight"]
    moved = (weights_of(replicas)["head.weight"].double() - start.double()).abs().amax((1, 2))
    assert moved.min() > 1e-4, f"a replica did not train: {moved.tolist()}"


def without_times(result):
    return [{**row, "seconds": None} for row in result.history]


def check_graph_equals_the_step_without_it_mlp():
    one, first = trained(MLP_NET, TABLE, evaluation=TABLE)
    two, second = trained(MLP_NET, TABLE, replace(RECIPE, cuda_graph=False), evaluation=TABLE)
    assert_moved(one, MLP_NET)
    assert_equal(one, two)
    assert without_times(first) == without_times(second)


def check_graph_equals_the_step_without_it_tabnet():
    recipe = replace(RECIPE, optimiser="adamw", lr=0.005)
    one, _ = trained(TABNET, TABLE, recipe)
    two, _ = trained(TABNET, TABLE, replace(recipe, cuda_graph=False))
    assert_moved(one, TABNET)
    assert_equal(one, two)


def check_graph_equals_the_step_without_it_resnet_bf16():
    """Nine nets are worked on in two groups side by side."""
    recipe = replace(RECIPE, precision="bf16")
    stack = {"seeds": tuple(range(3, 12)), "losses": (LOSSES * 3)[:9]}
    one, _ = trained(RESNET, IMAGES, recipe, **stack)
    two, _ = trained(RESNET, IMAGES, replace(recipe, cuda_graph=False), **stack)
    assert_moved(one, RESNET, **stack)
    assert_equal(one, two)


def means_of(net, recipe, device="cuda"):
    """A stack with the means of its weights over an epoch, and one with the weights it was trained to."""
    replicas = Replicas(net, LOSSES, (3, 4, 3, 5)).to(device)
    with training_session(replicas, TABLE.to(device, torch.float32), recipe) as course:
        means = MeanWeights(course.step, 1.0)
        while not course.is_done:
            course.run_epoch(means.note)
            before = weights_of(replicas)
            with means.in_place():
                lent = weights_of(replicas)
            after = weights_of(replicas)
            assert all(torch.equal(after[name], value) for name, value in before.items())
        means.write()
    assert all(torch.equal(lent[name], value) for name, value in weights_of(replicas).items())
    return replicas


def check_the_graph_leaves_the_means_of_weights_as_they_are():
    """Noted between the replays of a graph, and lent to the net between epochs: training is not touched."""
    for net in (MLP_NET, TABNET):
        one, other = means_of(net, RECIPE), means_of(net, replace(RECIPE, cuda_graph=False))
        assert_equal(one, other)
        trained_alone, _ = trained(net, TABLE)
        gap = max(
            (value - there).abs().max().item()
            for value, there in zip(weights_of(one).values(), weights_of(trained_alone).values())
        )
        assert gap > 1e-4, "the means are the newest weights"


def check_the_same_seed_gives_the_same_weights_mlp():
    for precision in ("float32", "bf16"):
        recipe = replace(RECIPE, precision=precision)
        one, first = trained(MLP_NET, TABLE, recipe, evaluation=TABLE)
        two, second = trained(MLP_NET, TABLE, recipe, evaluation=TABLE)
        assert_equal(one, two)
        assert without_times(first) == without_times(second)


def check_the_same_seed_gives_the_same_weights_resnet():
    for precision in ("float32", "bf16"):
        recipe = replace(RECIPE, precision=precision)
        one, first = trained(RESNET, IMAGES, recipe, evaluation=IMAGES)
        two, second = trained(RESNET, IMAGES, recipe, evaluation=IMAGES)
        assert_equal(one, two)
        assert without_times(first) == without_times(second)


def check_the_gpu_trains_as_the_cpu_does():
    for net, rows in ((MLP_NET, TABLE), (SMALL_RESNET, SMALL_IMAGES)):
        for optimiser in ("sgd", "adamw"):
            recipe = replace(RECIPE, precision="float64", optimiser=optimiser, lr=0.005)
            one, first = trained(net, rows, recipe, evaluation=rows)
            two, second = trained(net, rows, recipe, device="cpu", evaluation=rows)
            assert_close(one, two, 1e-8)
            for here, there in zip(first.last, second.last):
                assert abs(here["roc_auc"] - there["roc_auc"]) < 1e-6


def check_classes_and_deferred_weights():
    labels = np.arange(1100) % 3
    rows = TableRows(X + labels[:, None], labels)
    losses = ["crossentropy", "tbl(alpha=0.8,C=0.5)", "ldam(class_counts=[367,367,366],scale=5.0)"]
    net = partial(MLP, 6, hidden=(32,), outputs=3)
    recipe = replace(RECIPE, drw_epoch=1, start_at_prior=True, precision="float64")
    options = {"seeds": (1, 2, 3), "losses": losses, "evaluation": rows}
    one, first = trained(net, rows, recipe, **options)
    two, _ = trained(net, rows, recipe, device="cpu", **options)
    assert_close(one, two, 1e-8)
    assert first.last[0]["balanced_accuracy"] > 0.4


def check_the_graph_of_a_weighted_step_is_the_step():
    """With the graph as without it, bit by bit; in float64 as on the CPU; and not as without weights."""
    labels = np.arange(1100) % 3
    for y, outputs in ((Y, 1), (labels, 3)):
        rows = TableRows(X + y[:, None], y, RANDOM.exponential(size=1100) * (np.arange(1100) % 4 > 0))
        net = partial(MLP, 6, hidden=(32,), outputs=outputs)
        losses = [*LOSSES[:3], f"ldam(class_counts={np.bincount(y).tolist()},scale=5.0)"]
        for precision in ("float32", "bf16"):
            recipe = replace(RECIPE, drw_epoch=1, precision=precision)
            one, first = trained(net, rows, recipe, losses=losses)
            two, second = trained(net, rows, replace(recipe, cuda_graph=False), losses=losses)
            assert_moved(one, net, losses=losses)
            assert_equal(one, two)
            assert without_times(first) == without_times(second)
            plain, _ = trained(net, TableRows(X + y[:, None], y), recipe, losses=losses)
            apart = weights_of(plain)["head.weight"] - weights_of(one)["head.weight"]
            assert apart.abs().amax((1, 2)).min() > 1e-4, "the weights made no difference"
        recipe = replace(RECIPE, drw_epoch=1, precision="float64")
        here, first = trained(net, rows, recipe, losses=losses)
        there, second = trained(net, rows, recipe, losses=losses, device="cpu")
        assert_close(here, there, 1e-8)
        for row, other in zip(first.history, second.history):
            assert abs(row["train_loss"] - other["train_loss"]) < 1e-8, (row, other)


def check_a_training_becomes_longer():
    if find_spec("safetensors") is None:
        return skipped("weights on disk need safetensors")
    with tempfile.TemporaryDirectory() as folder:
        trained(MLP_NET, TABLE, replace(RECIPE, epochs=2), folder=folder)
        one, first = trained(MLP_NET, TABLE, folder=folder)
        two, second = trained(MLP_NET, TABLE)
        assert_equal(one, two)
        assert without_times(first) == without_times(second)
    return None


def check_the_best_epoch_is_kept():
    """Each replica ends with the weights that a training as long as its best epoch gives it."""
    pictures = replace(RECIPE, epochs=6, decay_epochs=(), precision="bf16")
    tables = replace(pictures, precision="float32")
    for net, rows, recipe in ((MLP_NET, TABLE, tables), (RESNET, IMAGES, pictures)):
        judged = judged_by_chance(rows)
        for cuda_graph in (True, False):
            chosen = replace(recipe, cuda_graph=cuda_graph)
            kept, result = trained(net, rows, chosen, evaluation=judged, keep="best")
            epochs = [row["epoch"] for row in result.best]
            assert min(epochs) < recipe.epochs, f"the last epoch is the best of all: {epochs}"
            found = weights_of(kept)
            for epoch in set(epochs):
                shorter = weights_of(trained(net, rows, replace(chosen, epochs=epoch))[0])
                places = [k for k, best in enumerate(epochs) if best == epoch]
                for name, value in found.items():
                    assert torch.equal(value[places], shorter[name][places]), (name, places, epoch)


def judged_by_chance(rows):
    """The same rows with labels of others: which epoch is the best is luck, and hardly the last for all."""
    labels = np.random.default_rng(2).permutation(Y)
    return TableRows(X, labels) if rows is TABLE else image_rows(labels)


def check_the_best_epoch_is_kept_by_a_training_that_goes_on():
    if find_spec("safetensors") is None:
        return skipped("weights on disk need safetensors")
    recipe = replace(RECIPE, epochs=6, decay_epochs=())
    options = {"evaluation": judged_by_chance(TABLE), "keep": "best"}
    with tempfile.TemporaryDirectory() as folder:
        trained(MLP_NET, TABLE, replace(recipe, epochs=4), folder=folder, **options)
        one, first = trained(MLP_NET, TABLE, recipe, folder=folder, **options)
        assert min(row["epoch"] for row in first.best) <= 4, "none of them was there before"
        two, second = trained(MLP_NET, TABLE, recipe, **options)
        assert_equal(one, two)
        assert without_times(first) == without_times(second)
        loaded = Replicas(MLP_NET, LOSSES, (3, 4, 3, 5)).load_weights(folder)
        assert_equal(loaded, two)
    return None


def check_a_replica_that_diverges_is_frozen_on_the_device():
    for net, rows, precision in ((MLP_NET, TABLE, "float32"), (RESNET, IMAGES, "bf16")):
        exploding = replace(RECIPE, lr=(0.02, 1e30, 0.02, 0.02), precision=precision, clip=None)
        sound = replace(exploding, lr=0.02)
        one, result = trained(net, rows, exploding, evaluation=rows)
        two, calm = trained(net, rows, sound, evaluation=rows)
        assert list(result.frozen) == [1], result.frozen
        assert not calm.frozen, calm.frozen
        there = weights_of(two)
        for name, value in weights_of(one).items():
            assert torch.equal(value[[0, 2, 3]], there[name][[0, 2, 3]]), f"{name} of another replica changed"
            assert value[1].isfinite().all(), f"{name} of the frozen replica is not finite"


def check_a_training_goes_on_where_it_stopped():
    if find_spec("safetensors") is None:
        return skipped("weights on disk need safetensors")

    class Failing(ImageRows):
        draws_left = 3 * 3  # three seeds: the buffers, and two epochs

        def draw(self, by, count):
            self.draws_left -= 1
            if self.draws_left < 0:
                raise OSError("the disk is gone")
            return super().draw(by, count)

    recipe = replace(RECIPE, precision="bf16", epochs=4)
    failing = Failing(PIXELS, Y, mean=(0.4,) * 3, std=(0.25,) * 3)
    with tempfile.TemporaryDirectory() as folder:
        whole, first = trained(RESNET, IMAGES, recipe, evaluation=IMAGES, folder=Path(folder) / "whole")
        try:
            trained(RESNET, failing, recipe, evaluation=IMAGES, folder=Path(folder) / "cut")
        except OSError:
            pass
        else:
            raise AssertionError("the training should have broken off")
        rest, second = trained(RESNET, IMAGES, recipe, evaluation=IMAGES, folder=Path(folder) / "cut")
        assert second.epochs == 4
        assert_equal(whole, rest)
        assert without_times(first) == without_times(second)
    return None


def check_a_gradient_whose_square_overflows_is_clipped():
    rows = np.full((128, 1), 1e30, dtype=np.float32)
    for cuda_graph in (True, False):
        replicas = Replicas(partial(MLP, 1, hidden=()), ["crossentropy", "crossentropy"])
        with torch.no_grad():
            replicas.net.head.weight.zero_()
        recipe = replace(
            RECIPE, epochs=1, lr=0.1, warmup_epochs=0, weight_decay=0.0, clip=3.0, cuda_graph=cuda_graph
        )
        result = train(replicas, (rows, np.arange(128) < 120), recipe, device="cuda", progress=False)
        assert not result.frozen, result.frozen
        moved = replicas.net.head.weight.flatten().tolist()
        assert all(abs(weight - 0.3) < 1e-5 for weight in moved), moved


def check_statistics_that_are_not_finite_freeze_a_replica():
    for cuda_graph in (True, False):
        replicas = Replicas(MLP_NET, LOSSES, (3, 4, 3, 5))
        with torch.no_grad():
            replicas.net.layers[0].weight[2] = 1e25
        recipe = replace(RECIPE, cuda_graph=cuda_graph)
        result = train(replicas, TABLE, recipe, device="cuda", progress=False)
        assert list(result.frozen) == [2], result.frozen
        assert "running statistics not finite at epoch 1, step 1" in result.frozen[2], result.frozen
        assert all(value.isfinite().all() for value in weights_of(replicas).values())


def check_class_metrics_are_those_of_the_cpu():
    labels = np.arange(1100) % 3
    rows, net = TableRows(X + labels[:, None], labels), partial(MLP, 6, hidden=(32,), outputs=4)
    replicas = Replicas(net, LOSSES).to("cuda", torch.float64)
    one = evaluate_replicas(replicas, rows, RECIPE)
    two = evaluate_replicas(replicas.to("cpu"), rows, RECIPE)
    for here, there in zip(one, two):
        assert here.keys() == there.keys()
        for name, value in here.items():
            assert value == there[name] or name == "accuracy_3", f"{name}: {value} and {there[name]}"


def check_compiled_training():
    recipe = replace(RECIPE, epochs=1)
    one, _ = trained(MLP_NET, TABLE, replace(recipe, compiled=True))
    two, _ = trained(MLP_NET, TABLE, recipe)
    assert_close(one, two, 1e-3)
    assert_moved(one, MLP_NET)
