"""What `train` and its rows refuse or put right before anything is trained."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from raresight.nn import Recipe, Replicas, train
from raresight.nn.nets import MLP, TabNet
from reproduction.images import Images
from reproduction.images.imbalance import halves
from reproduction.images.rows import ImageRows
from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)

RECIPE = Recipe(epochs=1, batch=32, warmup_epochs=0)
NET = partial(MLP, 4, hidden=(8,), batch_norm=True)


def rows_of(count=120):
    random = np.random.default_rng(0)
    y = (np.arange(count) % 5 == 0).astype(int)
    return random.normal(size=(count, 4)) + y[:, None], y


def test_seeds_that_would_start_alike_are_refused():
    # torch's generator of the CPU takes 32 bits of a seed.
    for seed in (2**32, 2**40, 2**64 - 1):
        with pytest.raises(ValueError, match=r"seeds must be at least 0 and below 2\*\*32"):
            NET(replicas=2, seeds=(0, seed))
    net = NET(replicas=2, seeds=(0, 2**32 - 1))
    assert not torch.equal(net.head.weight[0], net.head.weight[1])


def test_a_trained_net_is_in_the_mode_of_use():
    X, y = rows_of()
    replicas = Replicas(NET, ["crossentropy", "erf"])
    train(replicas, (X, y), RECIPE, progress=False)
    x = torch.tensor(X, dtype=torch.float32)
    for k in range(2):
        torch.testing.assert_close(replicas.replica(k)(x)[0], replicas.scores(x)[k])


def test_within_no_grad_it_trains_the_same():
    found = []
    for around in (torch.no_grad, torch.enable_grad):
        replicas = Replicas(NET, ["crossentropy"])
        with around():
            train(replicas, rows_of(), RECIPE, progress=False)
        found.append(replicas.net.head.weight.clone())
    assert torch.equal(*found)


def test_a_report_says_that_weights_are_spoilt():
    """The update of a step may itself overflow: the next step freezes what is infinite already."""
    random = np.random.default_rng(0)
    y = (random.random(400) < 0.2).astype(int)
    X = random.normal(size=(400, 4)) + y[:, None]
    net = partial(MLP, 4, hidden=(8, 8))
    replicas = Replicas(net, ["crossentropy", "focal(gamma=2.0)", "crossentropy"], (0, 5, 0))
    recipe = Recipe(epochs=1, batch=32, optimiser="sgd", lr=(0.01, 1e3, 1e9), warmup_epochs=0, clip=None)
    result = train(replicas, (X, y), recipe, progress=False)
    is_sound = [all(weight[k].isfinite().all() for weight in replicas.net.parameters()) for k in range(3)]
    assert is_sound == [True, False, True]
    assert result.frozen[1].endswith("its last step spoilt the weights")
    assert result.frozen[2].endswith("frozen with its last sound weights")


def test_wrong_arguments():
    replicas, data = Replicas(NET, ["crossentropy"]), rows_of()
    for folder in ("", 3):
        with pytest.raises(TypeError, match="folder must be the path of a folder, or None for none, but is"):
            train(replicas, data, RECIPE, folder=folder, progress=False)
    if not torch.cuda.is_available():
        with pytest.raises(
            ValueError, match="device is 'cuda', but there is no GPU that this PyTorch could use"
        ):
            train(replicas, data, RECIPE, device="cuda", progress=False)
    for device in ("gpu", "", 3.5):
        with pytest.raises(ValueError, match="device must be one such as 'cpu' or 'cuda', but is"):
            train(replicas, data, RECIPE, device=device, progress=False)
    with pytest.raises(
        ValueError, match="checkpoint_every must be a whole number of at least 1, but is True"
    ):
        train(replicas, data, RECIPE, checkpoint_every=True, progress=False)
    for name in ("resume", "progress"):
        with pytest.raises(TypeError, match=f"{name} must be True or False, but is 'no'"):
            train(replicas, data, RECIPE, **{"progress": False, name: "no"})
    with pytest.raises(ValueError, match="device is 'meta', on which nothing is computed"):
        train(replicas, data, RECIPE, device="meta", progress=False)
    with pytest.raises(TypeError, match="best_by must be the name of a metric, or None, but is 3"):
        replace(RECIPE, best_by=3)
    # Also where nothing is evaluated: it was meant for something.
    with pytest.raises(ValueError, match=r"best_by must be one of roc_auc, .* but is 'auc'"):
        train(replicas, data, replace(RECIPE, best_by="auc"), progress=False)
    for name in ("gamma", "momentum"):
        with pytest.raises(TypeError, match=f"{name} must be a number, but is 'a'"):
            TabNet(4, **{name: "a"})
    for cosine in ("ab", 1, (True, 0)):
        with pytest.raises(TypeError, match="cosine must be a bool, or one for each replica, but is"):
            MLP(4, cosine=cosine, replicas=2)
    with pytest.raises(ValueError, match="cosine has 3 for 2 replicas"):
        MLP(4, cosine=(True,) * 3, replicas=2)
    assert MLP(4, cosine=np.array([True, False]), replicas=2).cosine == (True, False)
    stacked = torch.zeros(1, 5, 4)
    with pytest.raises(ValueError, match=r"rows first and 2 axes in all, but has shape \(1, 5, 4\)"):
        replicas.scores(stacked)
    images = Replicas(partial(resnet_cifar, 8, width=4), ["crossentropy"])
    with pytest.raises(ValueError, match=r"4 axes in all, but has shape \(1, 2, 3, 8, 8\)"):
        images.scores(torch.zeros(1, 2, 3, 8, 8))


def test_tables_of_bfloat16():
    X, y = rows_of()
    half = torch.tensor(X).bfloat16()
    found = []
    for table in (half, half.float()):
        replicas = Replicas(NET, ["crossentropy"])
        train(replicas, (table, y), RECIPE, progress=False)
        found.append(replicas.net.head.weight.clone())
    assert torch.equal(*found)


def test_numbers_of_numpy_will_do(tmp_path):
    trained = Replicas(NET, ["crossentropy"])
    result = train(
        *(trained, rows_of(), RECIPE),
        folder=tmp_path,
        checkpoint_every=np.int64(2),
        resume=np.True_,
        progress=False,
    )
    assert result.epochs == RECIPE.epochs


def test_inference_mode_is_refused_in_words():
    replicas = Replicas(NET, ["crossentropy"])
    with torch.inference_mode():
        made_there = Replicas(NET, ["crossentropy"])
        with pytest.raises(RuntimeError, match=r"nothing can be trained within torch.inference_mode\(\)"):
            train(replicas, rows_of(), RECIPE, progress=False)
    with pytest.raises(RuntimeError, match="nor weights that were made there: build"):
        train(made_there, rows_of(), RECIPE, progress=False)


def test_a_description_that_is_damaged(tmp_path):
    train(Replicas(NET, ["crossentropy"]), rows_of(), RECIPE, folder=tmp_path, progress=False)
    pointer = tmp_path / "training.json"
    described = json.loads(pointer.read_text())
    for name, wrong in (("epoch", "x"), ("state", 3), ("journal_entries", None), ("identity", [])):
        pointer.write_text(json.dumps({**described, name: wrong}))
        with pytest.raises(ValueError, match=f"training.json is damaged: {name} is"):
            Replicas(NET, ["crossentropy"]).load_weights(tmp_path)
        with pytest.raises(ValueError, match=f"training.json is damaged: {name} is"):
            train(Replicas(NET, ["crossentropy"]), rows_of(), RECIPE, folder=tmp_path, progress=False)
    pointer.write_text(json.dumps(described))
    again = train(Replicas(NET, ["crossentropy"]), rows_of(), RECIPE, folder=tmp_path, progress=False)
    assert again.epochs == RECIPE.epochs


def test_a_file_in_place_of_a_folder(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder: give the name of a file in it"):
        Replicas(NET, ["crossentropy"]).save(tmp_path)
    assert not list(tmp_path.parent.glob(".*.unfinished"))


def images_of(count, seed):
    random = np.random.default_rng(seed)
    labels = random.permutation(np.arange(count) % 4)
    names = ("a", "b", "c", "d")
    return Images(random.integers(0, 256, size=(count, 3, 8, 8), dtype=np.uint8), labels, names)


def test_a_task_belongs_to_its_images():
    images = images_of(40, 0)
    task = halves(images.labels, 0.5, 0)
    assert len(ImageRows.training(images, task)) == len(task.indices)
    for others in (images_of(40, 1), images_of(20, 0)):
        with pytest.raises(ValueError, match="the task is one of other images"):
            ImageRows.training(others, task)
    with pytest.raises(ValueError, match="padding must be at most 16383, but is 20000"):
        ImageRows.training(images, task, padding=20_000)
