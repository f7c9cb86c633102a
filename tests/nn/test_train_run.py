"""Training as a whole: learning, evaluation, best and last epoch, progress, and what is refused."""

from __future__ import annotations

import contextlib
import math
import os
import pty
import re
import subprocess
import sys
import threading
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from broken_streams import BrokenStream
from raresight import nn
from raresight.metrics import (
    average_precision,
    balanced_accuracy,
    class_accuracy,
    minority_accuracy,
    partial_auc,
    recall_at_fpr,
    roc_auc,
)
from raresight.nn import Recipe, Replicas, ScheduleWarning, TableRows, nets, train
from raresight.nn.batches import draw_epoch
from raresight.nn.nets import MLP
from raresight.nn.replica_metrics import evaluate_replicas
from reproduction.images import Images
from reproduction.images.imbalance import halves
from reproduction.images.rows import ImageRows
from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)

RANDOM = np.random.default_rng(2)
LOSSES = ["crossentropy", "tbl(alpha=0.8,C=0.5)", "focal(gamma=2.0)"]
NET = partial(MLP, 3, hidden=(8,))


def rows_of(count, seed=0):
    random = np.random.default_rng(seed)
    y = (np.arange(count) % 10 == 0).astype(int)
    return random.normal(size=(count, 3)) + 1.5 * y[:, None], y


def quick(**changes):
    options = {"epochs": 4, "batch": 64, "optimiser": "sgd", "lr": 0.1, "warmup_epochs": 1}
    return Recipe(**{**options, **changes})


def run(recipe, *, losses=LOSSES, net=NET, data=None, evaluation=None, **options):
    replicas = Replicas(net, losses)
    data = rows_of(640) if data is None else data
    return replicas, train(replicas, data, recipe, evaluation=evaluation, progress=False, **options)


def test_it_learns():
    _, result = run(quick(epochs=8), evaluation=rows_of(500, seed=1))
    assert min(row["roc_auc"] for row in result.last) > 0.95
    losses = [row["train_loss"] for row in result.history if row["replica"] == 0]
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("precision", ["float32", "bf16", "float64"])
def test_the_same_seed_gives_the_same_curve(precision):
    recipe = quick(precision=precision)
    one, first = run(recipe, evaluation=rows_of(500, seed=1))
    two, second = run(recipe, evaluation=rows_of(500, seed=1))
    assert all(torch.equal(a, b) for a, b in zip(one.net.parameters(), two.net.parameters()))
    curves = [[{**row, "seconds": 0} for row in result.history] for result in (first, second)]
    assert curves[0] == curves[1]
    assert one.dtype == (torch.float64 if precision == "float64" else torch.float32)
    assert first.last[0]["roc_auc"] > 0.9


def test_best_and_last_epoch_are_kept_apart():
    _, result = run(quick(epochs=5, best_by="recall_0.01"), evaluation=rows_of(500, seed=1))
    for k in range(3):
        rows = [row for row in result.history if row["replica"] == k]
        assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5]
        top = max(row["recall_0.01"] for row in rows)
        assert result.best[k] == next(row for row in rows if row["recall_0.01"] == top)
        assert result.last[k] == rows[-1]
    assert result.best_by == "recall_0.01"
    assert result.to_rows() == list(result.history)
    assert "recall_0.01" in str(result)


def test_metrics_are_those_of_the_scores():
    X, y = rows_of(500, seed=1)
    recipe = quick(epochs=1, fprs=(0.1, 0.02))
    replicas, result = run(recipe, evaluation=(X, y))
    scores = replicas.scores(X).numpy()
    for k, row in enumerate(result.last):
        assert row["roc_auc"] == roc_auc(y, scores[k])
        assert row["average_precision"] == average_precision(y, scores[k])
        assert row["partial_auc_0.02"] == partial_auc(y, scores[k], 0.02)
        assert row["recall_0.1"] == recall_at_fpr(y, scores[k], 0.1)
    assert result.best_by == "partial_auc_0.1"


def test_evaluation_every_few_epochs_and_at_the_end():
    _, result = run(quick(epochs=7, evaluate_every=3), evaluation=rows_of(500, seed=1))
    assert {row["epoch"] for row in result.history if "roc_auc" in row} == {3, 6, 7}
    _, without = run(quick())
    assert without.best == without.last == (None, None, None)
    assert without.best_by is None


def test_a_score_that_is_nan_has_no_metrics():
    replicas = Replicas(NET, LOSSES)
    with torch.no_grad():
        replicas.net.head.bias[1] = torch.nan
    found = evaluate_replicas(replicas, TableRows(*rows_of(100)), quick())
    assert [math.isnan(metrics["roc_auc"]) for metrics in found] == [False, True, False]
    assert found[1].keys() == found[0].keys()


def test_classes():
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [300, 150, 30])
    X = random.normal(size=(480, 3)) + 3 * np.eye(3)[labels]
    losses = [*LOSSES, "ldam(class_counts=[300,150,30],scale=5.0)"]
    replicas, result = run(
        quick(epochs=6, drw_epoch=4), losses=losses, net=partial(NET, outputs=3), data=(X, labels),
        evaluation=(X, labels),
    )  # fmt: skip
    assert replicas.scores(X).shape == (4, 480, 3)
    guess = replicas.scores(X).argmax(-1).numpy()
    for k, row in enumerate(result.last):
        shares = [(guess[k][labels == label] == label).mean() for label in range(3)]
        assert [row[f"accuracy_{label}"] for label in range(3)] == pytest.approx(shares)
        assert row["balanced_accuracy"] == pytest.approx(np.mean(shares))
        assert row["minority_accuracy"] == pytest.approx(shares[2])
        assert row["accuracy"] == pytest.approx((guess[k] == labels).mean())
        assert row["balanced_accuracy"] > 0.7
    assert result.best_by == "balanced_accuracy"
    chance = replicas.probabilities(X)
    torch.testing.assert_close(chance.sum(-1), torch.ones(4, 480), rtol=0, atol=1e-5)


def test_class_metrics_are_those_of_the_labels():
    """Counted on the device; a class that is not there has no accuracy, and equally rare ones share."""
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 3, 4], [200, 100, 20, 20])
    X = random.normal(size=(340, 3)) + np.eye(5)[labels][:, :3]
    replicas = Replicas(partial(NET, outputs=5), LOSSES)
    guess = replicas.scores(X).argmax(-1).numpy()
    found = evaluate_replicas(replicas, TableRows(X, labels), quick())
    for row, own in zip(found, guess, strict=True):
        assert math.isnan(row.pop("accuracy_2"))
        each = {f"accuracy_{label}": share for label, share in class_accuracy(labels, own).items()}
        assert row == pytest.approx(
            {
                "accuracy": (labels == own).mean(),
                "balanced_accuracy": balanced_accuracy(labels, own),
                "minority_accuracy": minority_accuracy(labels, own),
                **each,
            }
        )
    with pytest.raises(ValueError, match="labels go to 5, but the net has outputs=5"):
        evaluate_replicas(replicas, TableRows(X, labels + 1), quick())


@pytest.mark.parametrize("outputs", [1, 3])
def test_start_at_the_prior(outputs):
    X = RANDOM.normal(size=(400, 3))
    labels = np.repeat([0, 1, 2], [360, 30, 10]) if outputs == 3 else np.repeat([0, 1], [360, 40])
    net = partial(MLP, 3, hidden=(), outputs=outputs)
    recipe = quick(epochs=1, lr=1e-12, start_at_prior=True)
    replicas, _ = run(recipe, net=net, data=(X, labels))
    with torch.no_grad():
        replicas.net.head.weight.zero_()
    expected = torch.tensor([0.9, 0.075, 0.025]) if outputs == 3 else torch.tensor(0.1)
    for chance in replicas.probabilities(X[:5]):
        torch.testing.assert_close(chance, expected.expand_as(chance), rtol=0, atol=1e-6)
    plain, _ = run(quick(epochs=1, lr=1e-12), net=net, data=(X, labels))
    assert plain.net.head.bias.abs().max() < 1e-6


def test_images_with_random_crops():
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 60)
    pixels = random.integers(0, 120, size=(240, 3, 8, 8), dtype=np.uint8)
    pixels[np.isin(labels, (1, 3)), 0] += 100
    images = Images(pixels, labels, ("a", "b", "c", "d"))
    task = halves(labels, rho=0.25, seed=1)
    rows = ImageRows.training(images, task)
    assert rows.class_counts(1) == task.class_counts
    judged = rows.test(images, task)
    assert len(judged) == 240
    net = partial(resnet_cifar, 8, width=4)
    recipe = quick(epochs=3, batch=32, lr=0.02)
    replicas, result = run(recipe, losses=LOSSES[:2], net=net, data=rows, evaluation=judged)
    again, _ = run(recipe, losses=LOSSES[:2], net=net, data=rows, evaluation=judged)
    still, _ = run(quick(epochs=3, batch=32, lr=0.02, augment=False), losses=LOSSES[:2], net=net, data=rows)
    assert not result.frozen
    first, second, third = (one.net.head.weight for one in (replicas, again, still))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


@pytest.mark.parametrize("wanted", [True, False])
def test_cudnn_is_deterministic_while_training_and_as_before_afterwards(monkeypatch, wanted):
    seen = []

    class Watching(TableRows):
        def draw(self, by, count):
            seen.append((torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark))
            return super().draw(by, count)

    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    run(quick(epochs=1, deterministic=wanted), data=Watching(*rows_of(100)))
    assert set(seen) == {(wanted, not wanted)}
    assert not torch.backends.cudnn.deterministic
    assert torch.backends.cudnn.benchmark


def test_batches_depend_on_seed_and_epoch_alone():
    source = TableRows(*rows_of(100))
    one, other = (draw_epoch(source, seeds, 3, 32).order for seeds in ((5, 6), (6,)))
    assert one.shape == (3, 2, 32)
    assert torch.equal(one[:, 1], other[:, 0])
    assert not torch.equal(one[:, 0], one[:, 1])
    assert not torch.equal(one, draw_epoch(source, (5, 6), 4, 32).order)
    assert one[:, 0].unique().numel() == 96
    # Fewer rows than a batch: all of them.
    assert draw_epoch(source, (5,), 0, 1000).order.flatten().sort().values.tolist() == list(range(100))


def test_every_row_is_left_out_as_often_as_any_other():
    """Of 100 rows an epoch of batches of 60 has one batch: other rows in each epoch."""
    source, epochs = TableRows(*rows_of(100)), 1000
    orders = [draw_epoch(source, (5,), epoch, 60).order.flatten() for epoch in range(epochs)]
    assert all(order.unique().numel() == 60 for order in orders)
    counts = torch.bincount(torch.cat(orders), minlength=100).double()
    # Means of coins that fall 600 times in 1000, with a standard deviation of 15.5 each.
    assert counts.mean() == 600
    assert 12 < counts.std() < 19
    assert (counts - 600).abs().max() < 75


@pytest.mark.slow
def test_compiled_training_is_the_same_up_to_rounding():
    plain, _ = run(quick(epochs=1, precision="float64"), losses=LOSSES[:2])
    compiled, _ = run(quick(epochs=1, precision="float64", compiled=True), losses=LOSSES[:2])
    for one, other in zip(plain.net.parameters(), compiled.net.parameters()):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_progress_is_lines_where_there_is_no_terminal(capsys):
    train(Replicas(NET, LOSSES), rows_of(640), quick(), evaluation=rows_of(500, seed=1))
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0].startswith("epoch 1/4, ")
    assert " s left, best partial_auc_0.01 0." in lines[0]
    assert "(replica " in lines[-1]
    assert lines[-1].startswith("epoch 4/4, 0 s left")
    train(Replicas(NET, LOSSES), rows_of(640), quick(), progress=False)
    assert capsys.readouterr().err == ""


def test_progress_without_stderr_is_quiet(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert train(Replicas(NET, LOSSES), rows_of(640), quick()).epochs == 4


@pytest.mark.parametrize("is_terminal", [True, False])
def test_training_outlives_what_it_tells_of_itself(is_terminal, monkeypatch):
    monkeypatch.setattr(sys, "stderr", BrokenStream(is_terminal))
    recipe = quick(lr=(1e30, *[0.01] * (len(LOSSES) - 1)), clip=None, warmup_epochs=0)
    result = train(Replicas(NET, LOSSES), rows_of(640), recipe, evaluation=rows_of(500, seed=1))
    assert (result.epochs, list(result.frozen)) == (4, [0])


def test_progress_ends_where_all_are_frozen(capsys):
    recipe = quick(lr=1e30, clip=None, warmup_epochs=0)
    result = train(Replicas(NET, LOSSES), rows_of(640), recipe, evaluation=rows_of(500, seed=1))
    assert len(result.frozen) == len(LOSSES)
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"epoch {result.epochs}/4, 0 s left, {len(LOSSES)} of {len(LOSSES)} frozen"


def test_progress_is_a_table_on_a_terminal(monkeypatch):
    ours, theirs = pty.openpty()
    seen = []

    def read():
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(ours, 4096):
                seen.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    recipe = quick(lr=(1e30, 0.01, 0.01), clip=None, warmup_epochs=0, best_by="roc_auc")
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        result = train(Replicas(NET, LOSSES), rows_of(640), recipe, evaluation=rows_of(500, seed=1))
    reader.join()
    os.close(ours)
    text = b"".join(seen).decode()
    assert f"warning: {result.frozen[0]}" in re.sub("\x1b\\[[0-9;]*m", "", text)
    table = text[text.rindex("epoch 4/4, 0 s left, best roc_auc ") :]
    assert "1 of 3 frozen" in table
    worse, better = sorted(f"{row['roc_auc']:.4f}" for row in result.last[1:])
    assert table.rindex(better) < table.rindex(worse)
    assert "train_loss" not in table


def test_torch_numpy_and_safetensors_suffice(tmp_path):
    """As on a bare GPU machine."""
    script = f"""
import sys
for name in ("scipy", "sklearn", "rich", "pyarrow", "pandas", "joblib", "matplotlib", "typer"):
    sys.modules[name] = None
from functools import partial
import numpy as np
from reproduction.images import Images
from reproduction.images.imbalance import halves
from raresight.nn import Recipe, Replicas, train
from reproduction.images.rows import ImageRows
from raresight.nn.nets import MLP
from reproduction.resnet import resnet_cifar
X = np.random.default_rng(0).normal(size=(200, 3))
y = (np.arange(200) % 10 == 0).astype(int)
losses = ["crossentropy", "tbl(alpha=0.8,C=0.5)", "squared", "focal(gamma=2.0)", "poly(epsilon=1.0)"]
for outputs, labels in ((1, y), (3, np.arange(200) % 3)):
    replicas = Replicas(partial(MLP, 3, hidden=(4,), outputs=outputs), losses)
    recipe = Recipe(epochs=1, warmup_epochs=0, start_at_prior=True)
    train(replicas, (X, labels), recipe, evaluation=(X, labels), folder=r"{tmp_path}/%d" % outputs)
    replicas.probabilities(X)
labels = np.arange(40) % 4
images = Images(np.zeros((40, 3, 8, 8), np.uint8), labels, ("a", "b", "c", "d"))
rows = ImageRows.training(images, halves(labels, 0.5, 0))
train(Replicas(partial(resnet_cifar, 8, width=2), ["crossentropy"]), rows, Recipe(epochs=1, warmup_epochs=0))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (([[1.0, 2.0, np.nan]], [1]), "row 0 is not: fill in missing values"),
        (([[1.0, 2.0, 3.0]], [1, 0]), r"one label per row, 1 in all, but has shape \(2,\)"),
        (([[1.0, 2.0, 3.0]], [0.5]), r"row 0 holds 0\.5"),
        (([[1.0, 2.0, 3.0]], [-1]), "row 0 holds -1"),
        (([[1.0, 2.0, 3.0]], [np.nan]), "row 0 holds nan"),
        (([[1.0, 2.0, 3.0]], [1e300]), "row 0 holds 1e"),
        (([[1.0, 2.0, 3.0]], [2]), "labels go to 2, but the net has outputs=1"),
        (([[1.0, 2.0, 3.0]], [10**12]), "labels go to 1000000000000, but the net has outputs=1"),
        (([[1.0, 2.0]], [1]), r"rows of data do not fit the net: .* shape \(N, 3\) .* but has \(1, 2\)"),
        (([[1.0, 2e39, 3.0]], [1]), r"row 0 of X is too large for float32: .* precision=\"float64\""),
        (([1.0, 2.0], [0, 1]), r"rows and columns, but has type float64 and shape \(2,\)"),
        (([["a", "b", "c"]], [0]), "X must hold numbers"),
    ],
)
def test_data_that_cannot_be_used(data, message):
    with pytest.raises(ValueError, match=message):
        run(quick(), data=data)


def test_large_numbers_are_trained_in_float64():
    X, y = rows_of(100)
    _, result = run(quick(precision="float64"), data=(X * 1e40, y), losses=LOSSES[:1])
    assert not result.frozen


def test_labels_that_are_text_are_refused():
    for y in (["a"] * 100, ["1"] * 100):
        with pytest.raises(TypeError, match="y must hold 0 and 1 or class numbers, but holds <U1 such as"):
            run(quick(), data=(rows_of(100)[0], y))


@pytest.mark.parametrize(
    ("recipe", "losses", "message"),
    [
        (Recipe(epochs=10), LOSSES, "warm-up takes 15 epochs, but there are 10: lower warmup_epochs"),
        (
            Recipe(epochs=2, warmup_epochs=1, drw_epoch=160),
            ["erf", "ldam(class_counts=[576,64])"],
            "deferred reweighting never begins: drw_epoch is 160, but there are 2 epochs",
        ),
        (quick(drw_epoch=4, deferred=(False, False, True)), LOSSES, "drw_epoch is 4, but there are 4"),
    ],
)
def test_plans_for_after_the_end_are_told(recipe, losses, message):
    with pytest.warns(ScheduleWarning, match=message) as told:
        run(recipe, losses=losses)
    assert len(told) == 1
    assert Path(told[0].filename).name == Path(__file__).name


def test_plans_that_come_true_are_not_told():
    ldam = ["ldam(class_counts=[576,64])"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(quick(epochs=2, warmup_epochs=2, drw_epoch=1), losses=ldam)
        run(quick(epochs=2, drw_epoch=None), losses=ldam)
        run(quick(epochs=2, drw_epoch=9, deferred=(False,)), losses=ldam)


def test_what_does_not_fit_is_refused():
    with pytest.raises(TypeError, match=r"pair \(X, y\), TableRows or another RowSource, but is"):
        run(quick(), data=rows_of(100)[0])
    X, y = rows_of(100)
    with pytest.raises(ValueError, match="no row with label 1 among its 100"):
        run(quick(), evaluation=(X, y * 0))
    with pytest.raises(ValueError, match=r"best_by must be one of roc_auc, .*, but is 'f1'"):
        run(quick(best_by="f1"), evaluation=(X, y))
    with pytest.raises(ValueError, match="2 values of lr for 3 replicas"):
        run(quick(lr=(0.1, 0.2)))
    with pytest.raises(ValueError, match="deferred has 1 entries for 3 replicas"):
        run(quick(drw_epoch=2, deferred=(True,)))
    with pytest.raises(TypeError, match=r"train needs Replicas, such as .*, but got a MLP"):
        train(MLP(3), (X, y), quick())
    for wrong in (None, {"epochs": 3}):
        with pytest.raises(TypeError, match=r"must be a Recipe, such as .*, but is a (NoneType|dict)"):
            run(wrong)
    with pytest.raises(ValueError, match=r"rows of evaluation do not fit the net: .*\(N, 3\)"):
        run(quick(), evaluation=(X[:, :2], y))
    with pytest.raises(ValueError, match="checkpoint_every must be a whole number of at least 1"):
        run(quick(), checkpoint_every=0)
    with pytest.raises(ValueError, match=r"class shares are \(1.0, 0.0\)"):
        run(quick(start_at_prior=True), data=(X, y * 0))
    with pytest.raises(ValueError, match="std must be above 0"):
        ImageRows(np.zeros((2, 3, 4, 4), np.uint8), [0, 1], mean=(0,) * 3, std=(0,) * 3)
    with pytest.raises(ValueError, match="3 finite entries"):
        ImageRows(np.zeros((2, 3, 4, 4), np.uint8), [0, 1], mean=(0,) * 3, std=(1, 1, float("nan")))
    with pytest.raises(ValueError, match="padding must be a whole number"):
        ImageRows(np.zeros((2, 3, 4, 4), np.uint8), [0, 1], mean=(0,) * 3, std=(1,) * 3, padding=1.5)
    with pytest.raises(ValueError, match="pixels must be uint8"):
        ImageRows(np.zeros((2, 3, 4, 4)), [0, 1], mean=(0,) * 3, std=(1,) * 3)


def test_what_a_user_needs_is_exported():
    for module, names in (
        (nn, ("LossTable", "ScheduleWarning", "evaluate_replicas", "read_journal")),
        (nets, ("mean_probability",)),
    ):
        for name in names:
            assert name in module.__all__
            assert hasattr(module, name)
