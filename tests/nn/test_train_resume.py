"""A training can be killed at any moment: it goes on to the weights of the undisturbed run."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import training_job
from loss_cases import BINARY_LOSSES, CLASS_LOSSES
from raresight.common.atomic_files import FolderInUseError, hold_folder
from raresight.common.journal import Journal, read_journal
from raresight.losses import CrossEntropy, LogitAdjusted, from_callable
from raresight.nn import Replicas, TableRows, train
from raresight.nn.nets import MLP, TabM

torch.set_num_threads(1)
RECIPE = replace(training_job.RECIPE, epochs=6)
SHORT = replace(RECIPE, epochs=1, warmup_epochs=0)


class FailingRows(TableRows):
    """Rows whose draws fail once, as a broken disk would."""

    def __init__(self, X, y, *, epochs):
        super().__init__(X, y)
        # One draw a seed and epoch, and those that give the buffers their shape.
        self.draws_left = 2 * (epochs + 1)

    def draw(self, by, count):
        self.draws_left -= 1
        if self.draws_left < 0:
            raise OSError("the disk is gone")
        return super().draw(by, count)


def without_times(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def assert_same(one, other):
    """The same weights, bit by bit."""
    there = other.net.state_dict()
    assert all(torch.equal(value, there[name]) for name, value in one.net.state_dict().items())


@pytest.fixture(scope="module")
def undisturbed():
    replicas = training_job.make_replicas()
    evaluation = training_job.make_data(400)
    result = train(replicas, training_job.make_data(), RECIPE, evaluation=evaluation, progress=False)
    return replicas, result


def train_here(folder, *, rows=None, recipe=RECIPE, **options):
    replicas = training_job.make_replicas()
    data = training_job.make_data() if rows is None else rows
    evaluation = training_job.make_data(400)
    result = train(replicas, data, recipe, evaluation=evaluation, folder=folder, progress=False, **options)
    return replicas, result


def stop_after(folder, epochs, **options):
    """Leave a training that broke off in the epoch after these."""
    with pytest.raises(OSError, match="the disk is gone"):
        train_here(folder, rows=FailingRows(*training_job.make_data(), epochs=epochs), **options)


@pytest.mark.parametrize(("epochs", "every"), [(0, 1), (1, 1), (4, 1), (4, 3), (5, 100)])
def test_goes_on_where_it_stopped(tmp_path, undisturbed, epochs, every):
    stop_after(tmp_path, epochs, checkpoint_every=every)
    assert len(read_journal(tmp_path / "journal.jsonl")) == 8 * epochs
    assert json.loads((tmp_path / "training.json").read_text())["epoch"] == epochs // every * every
    replicas, result = train_here(tmp_path, checkpoint_every=every)
    assert_same(replicas, undisturbed[0])
    assert without_times(result.history) == without_times(undisturbed[1].history)
    assert without_times(result.best) == without_times(undisturbed[1].best)
    # Each epoch once in the journal, and one state on the disk.
    assert without_times(read_journal(tmp_path / "journal.jsonl")) == without_times(result.history)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["journal.jsonl", "lock", "state-000006.safetensors", "training.json"]


class Interruption(BaseException):
    """Stands for the interrupt key in a notebook, where the half-trained replicas live on."""


@pytest.mark.parametrize("start_at_prior", [False, True])
def test_half_trained_replicas_begin_again(tmp_path, start_at_prior):
    """Interrupted before the first checkpoint, the same object is trained from its first weights."""
    recipe = replace(RECIPE, epochs=2, warmup_epochs=0, start_at_prior=start_at_prior)
    data = training_job.make_data()
    whole, result = train_here(tmp_path / "whole", recipe=recipe)
    replicas, seen = training_job.make_replicas(), 0
    start = {name: stack.clone() for name, stack in replicas.net.state_dict().items()}

    def interrupt(module, inputs):
        nonlocal seen
        seen += 1
        if seen == 7:
            raise Interruption

    hook = replicas.net.head.register_forward_pre_hook(interrupt)
    options = {"evaluation": training_job.make_data(400), "folder": tmp_path / "cut", "progress": False}
    with pytest.raises(Interruption):
        train(replicas, data, recipe, **options)
    hook.remove()
    assert not torch.equal(replicas.net.head.weight, start["head.weight"])
    with pytest.raises(ValueError, match="has no weights yet: it was stopped before its first checkpoint"):
        training_job.make_replicas().load_weights(tmp_path / "cut")
    again = train(replicas, data, recipe, **options)
    assert_same(replicas, whole)
    assert without_times(again.history) == without_times(result.history)


def test_a_training_that_began_is_not_begun_again_unasked(tmp_path):
    stop_after(tmp_path, 0)
    with pytest.raises(ValueError, match="holds a training already"):
        train_here(tmp_path, resume=False)


def test_losses_that_cannot_be_written_down_need_no_folder(tmp_path):
    """Two functions may have one name, so that one training would go on with the other's weights."""
    own = from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * z), name="mine")
    for loss in (own, LogitAdjusted(own, prior=0.1)):
        replicas = Replicas(partial(MLP, 5, hidden=(4,)), [CrossEntropy(), loss])
        with pytest.raises(ValueError, match=r"the loss .*mine.* cannot be written down.* without a folder"):
            train(replicas, training_job.make_data(), SHORT, folder=tmp_path / "here", progress=False)
        assert not (tmp_path / "here").exists()
        assert train(replicas, training_job.make_data(), SHORT, progress=False).epochs == 1


@pytest.mark.parametrize("outputs", [1, 4])
def test_every_loss_of_ours_can_be_written_down(tmp_path, outputs):
    """None of them is refused with a folder."""
    X, y = training_job.make_data(64)
    labels = y if outputs == 1 else np.arange(64) % 4
    losses = BINARY_LOSSES if outputs == 1 else CLASS_LOSSES
    replicas = Replicas(partial(MLP, 5, hidden=(4,), outputs=outputs), losses)
    recipe = replace(SHORT, drw_epoch=None)
    assert train(replicas, (X, labels), recipe, folder=tmp_path, progress=False).epochs == 1


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "here").write_text("")
    with pytest.raises(NotADirectoryError, match=r"here is a file"):
        train_here(tmp_path / "here")


def test_adamw_goes_on_too(tmp_path):
    recipe = replace(RECIPE, optimiser="adamw", lr=0.01)
    whole, _ = train_here(tmp_path / "whole", recipe=recipe)
    stop_after(tmp_path / "cut", 3, recipe=recipe)
    assert_same(train_here(tmp_path / "cut", recipe=recipe)[0], whole)


def test_what_a_kill_may_leave_is_cleared_away(tmp_path, undisturbed):
    stop_after(tmp_path, 3)
    journal = tmp_path / "journal.jsonl"
    # A newer state without its pointer, files half written, and results whose epoch was not kept.
    (tmp_path / "state-000004.safetensors").write_bytes(b"half")
    killed = subprocess.Popen(["true"])
    killed.wait()
    (tmp_path / f".state-000005.safetensors.{killed.pid}.unfinished").write_bytes(b"half")
    (tmp_path / f".training.json.{killed.pid}.unfinished").write_text('{"format"')
    with Journal(journal) as written:
        written.append([{"epoch": 4, "replica": 0}])
    journal.write_bytes(journal.read_bytes() + b'{"epoch": 4, "repl')
    assert len(read_journal(journal)) == 8 * 3 + 1
    replicas, _ = train_here(tmp_path)
    assert_same(replicas, undisturbed[0])
    assert without_times(read_journal(journal)) == without_times(undisturbed[1].history)
    assert not list(tmp_path.glob("*unfinished"))


def test_a_finished_training_is_read_back(tmp_path, undisturbed):
    train_here(tmp_path)
    state = next(tmp_path.glob("state-*"))
    before = state.stat().st_mtime_ns
    replicas, result = train_here(tmp_path)
    assert_same(replicas, undisturbed[0])
    assert result.epochs == 6
    assert state.stat().st_mtime_ns == before
    assert_same(training_job.make_replicas().load_weights(tmp_path), undisturbed[0])


def test_another_training_is_refused_with_what_differs(tmp_path):
    recipe = SHORT
    train_here(tmp_path, recipe=recipe)
    X, y = training_job.make_data()
    with pytest.raises(ValueError, match=r"recipe\.lr is 0\.05 there and 0\.06 here\. Choose another folder"):
        train_here(tmp_path, recipe=replace(recipe, lr=0.06))
    with pytest.raises(ValueError, match=r"holds another training: data is "):
        train_here(tmp_path, recipe=recipe, rows=(X + 1, y))
    with pytest.raises(ValueError, match=r"holds another training: data is "):
        train_here(tmp_path, recipe=recipe, rows=(X, 1 - y))
    normed, losses = {"hidden": (16,), "batch_norm": True}, training_job.LOSSES
    for net, chosen, seeds, differs in (
        ({**normed, "hidden": (17,)}, losses, (0, 7), r"net\.stacks\.layers\.0\.weight is"),
        ({"hidden": (16,)}, losses, (0, 7), r"net\.stacks\.layers\.0\.bias is null there"),
        (normed, [*losses[:3], "erf"], (0, 7), "losses is"),
        (normed, losses, (0, 8), r"seeds is \[0, 7, .*\[0, 8"),
    ):
        other = Replicas.grid(partial(MLP, 5, **net), chosen, seeds)
        judged = training_job.make_data(400)
        with pytest.raises(ValueError, match=differs):
            train(other, (X, y), recipe, evaluation=judged, folder=tmp_path, progress=False)
    with pytest.raises(ValueError, match=r"evaluation is .* there and null here"):
        train(training_job.make_replicas(), (X, y), recipe, folder=tmp_path, progress=False)
    with pytest.raises(ValueError, match="holds a training already"):
        train_here(tmp_path, recipe=recipe, resume=False)


@pytest.mark.parametrize("reached", [2, 4])
def test_a_training_becomes_longer(tmp_path, reached):
    """Whether it was finished or not: weights and results are those of the longer one."""
    shorter = replace(RECIPE, epochs=4, warmup_epochs=3, decay_epochs=(5,))
    longer = replace(shorter, epochs=6)
    if reached < shorter.epochs:
        stop_after(tmp_path / "here", reached, recipe=shorter)
    else:
        train_here(tmp_path / "here", recipe=shorter)
    replicas, result = train_here(tmp_path / "here", recipe=longer)
    whole, expected = train_here(tmp_path / "whole", recipe=longer)
    assert_same(replicas, whole)
    assert without_times(result.history) == without_times(expected.history)
    journal = read_journal(tmp_path / "here" / "journal.jsonl")
    assert without_times(journal) == without_times(expected.history)
    # From then on the folder is that of the longer one.
    with pytest.raises(ValueError, match=r"recipe\.epochs is 6 there and 4 here"):
        train_here(tmp_path / "here", recipe=shorter)


def test_a_training_that_becomes_longer_differs_in_nothing_else(tmp_path):
    train_here(tmp_path, recipe=SHORT)
    with pytest.raises(ValueError, match=r"epochs is 1 there and 2 here; recipe\.lr is 0\.05 there"):
        train_here(tmp_path, recipe=replace(SHORT, epochs=2, lr=0.06))
    with pytest.raises(ValueError, match="holds a training already"):
        train_here(tmp_path, recipe=replace(SHORT, epochs=2), resume=False)
    assert train_here(tmp_path, recipe=SHORT)[1].epochs == 1


def test_a_training_that_failed_at_once_does_not_stand_in_the_way(tmp_path):
    with pytest.raises(ValueError, match="2 values of lr for 8 replicas"):
        train_here(tmp_path, recipe=replace(SHORT, lr=(0.1, 0.2)))
    stop_after(tmp_path, 0, recipe=replace(SHORT, batch=64))
    replicas, result = train_here(tmp_path, recipe=SHORT, resume=False)
    assert result.epochs == 1
    assert_same(replicas, train_here(tmp_path / "whole", recipe=SHORT)[0])


def test_a_damaged_folder_is_refused(tmp_path):
    recipe = SHORT
    train_here(tmp_path, recipe=recipe)
    journal, pointer = tmp_path / "journal.jsonl", tmp_path / "training.json"
    state = next(tmp_path.glob("state-*"))
    whole = journal.read_bytes()
    journal.write_bytes(whole[:-5])
    with pytest.raises(ValueError, match="it was cut since"):
        train_here(tmp_path, recipe=recipe)
    journal.write_bytes(b"x" + whole[1:])
    with pytest.raises(ValueError, match="damaged at line 1"):
        train_here(tmp_path, recipe=recipe)
    journal.write_bytes(whole)
    stored = state.read_bytes()
    state.write_bytes(stored[:-100])
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        train_here(tmp_path, recipe=recipe)
    state.unlink()
    with pytest.raises(FileNotFoundError, match="there is no file"):
        train_here(tmp_path, recipe=recipe)
    text = pointer.read_text()
    pointer.write_text(text[:-20])
    with pytest.raises(ValueError, match="cannot be read as JSON"):
        train_here(tmp_path, recipe=recipe)
    pointer.write_text(text.replace('"format_version": 1', '"format_version": 9'))
    with pytest.raises(ValueError, match="format version 9"):
        train_here(tmp_path, recipe=recipe)
    pointer.unlink()
    with pytest.raises(ValueError, match=r"a journal\.jsonl but no training\.json"):
        train_here(tmp_path, recipe=recipe)


def test_frozen_replicas_stay_frozen(tmp_path):
    recipe = replace(RECIPE, lr=(0.05,) * 3 + (1e25,) + (0.05,) * 4, clip=None)
    whole, undisturbed = train_here(tmp_path / "whole", recipe=recipe)
    assert list(undisturbed.frozen) == [3]
    stop_after(tmp_path / "cut", 3, recipe=recipe)
    stored = load_file(next((tmp_path / "cut").glob("state-*")))
    assert stored["training/frozen"].tolist() == [False] * 3 + [True] + [False] * 4
    replicas, result = train_here(tmp_path / "cut", recipe=recipe)
    assert result.frozen == undisturbed.frozen
    assert_same(replicas, whole)


def test_one_process_at_a_time(tmp_path):
    import fcntl

    with (tmp_path / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(FolderInUseError, match="another process is training in"):
            train_here(tmp_path)


def test_killed_three_times_it_ends_with_the_same_weights(tmp_path, monkeypatch):
    """A stack of 8 nets in a process of its own, killed by the system at random moments."""
    processes = multiprocessing.get_context("forkserver")
    # A new life need not import torch again: it is forked from a server that has, and finds the module there.
    monkeypatch.syspath_prepend(str(Path(training_job.__file__).parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    processes.set_forkserver_preload(["training_job"])
    moments = random.Random(int.from_bytes(os.urandom(4)))
    journal, folder = tmp_path / "cut" / "journal.jsonl", tmp_path / "cut"
    epochs = training_job.RECIPE.epochs
    for life in range(3):
        # Somewhere in this third of the training, by the journal: no machine is too fast for it.
        lines = 8 * moments.randrange(life * epochs // 3 + 2, (life + 1) * epochs // 3 - 6)
        process = processes.Process(target=training_job.run, args=(folder,))
        process.start()
        while not (journal.exists() and journal.read_bytes().count(b"\n") >= lines):
            assert process.is_alive(), "the training ended before it was killed"
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.015))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert json.loads((folder / "training.json").read_text())["epoch"] < epochs
    replicas, result = training_job.run(folder)
    whole, undisturbed = training_job.run(tmp_path / "whole")
    assert_same(replicas, whole)
    assert result.epochs == epochs
    assert without_times(result.history) == without_times(undisturbed.history)
    assert without_times(read_journal(journal)) == without_times(undisturbed.history)
    start = training_job.make_replicas().net.head.weight
    assert (whole.net.head.weight - start).abs().amax((1, 2)).min() > 0.01


def test_dropout_goes_on_too(tmp_path):
    def run(folder, rows):
        replicas = Replicas(partial(TabM, 5, members=2, width=8, blocks=1, dropout=0.2), ["erf", "squared"])
        recipe = replace(RECIPE, epochs=4, warmup_epochs=1, start_at_prior=True)
        train(replicas, rows, recipe, folder=folder, progress=False)
        return replicas

    whole = run(tmp_path / "whole", training_job.make_data())
    with pytest.raises(OSError, match="the disk is gone"):
        run(tmp_path / "cut", FailingRows(*training_job.make_data(), epochs=2))
    assert json.loads((tmp_path / "cut" / "training.json").read_text())["epoch"] == 2
    assert_same(run(tmp_path / "cut", training_job.make_data()), whole)


def test_a_folder_that_its_holder_removes_is_made_anew_and_held(tmp_path, monkeypatch):
    """The lock that was waited at went with the folder: held alone, it would keep out nobody."""
    import fcntl

    folder, lock = tmp_path / "some", fcntl.flock

    def after_its_holder(file, how):
        if not moved:
            moved.append(folder.rename(tmp_path / "removed"))
        lock(file, how)

    moved = []
    monkeypatch.setattr(fcntl, "flock", after_its_holder)
    with hold_folder(folder, "training"):
        assert (folder / "lock").exists()
        with (
            pytest.raises(FolderInUseError, match="another process is training in"),
            hold_folder(folder, "training"),
        ):
            pass
    with hold_folder(folder, "training"):
        assert moved
