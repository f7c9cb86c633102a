"""A save that is killed, or fails, at any step leaves the model of before or the new one."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import saving_job
from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier, files

X, Y = ring_table(300)
MOST_STEPS = 60


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The folders of two models."""
    found = [tmp_path_factory.mktemp("models") / name for name in ("old", "new")]
    for seed, folder in enumerate(found):
        DeepClassifier(net="mlp", width=4, max_epochs=1, random_state=seed, n_jobs=1).fit(X, Y).save(folder)
    return found


@pytest.fixture
def processes(monkeypatch):
    found = multiprocessing.get_context("forkserver")
    # So that PyTorch is imported once for all of them.
    monkeypatch.syspath_prepend(str(Path(saving_job.__file__).parent))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    found.set_forkserver_preload(["saving_job"])
    return found


def scores(folder):
    return DeepClassifier.load(folder).decision_function(X)


def which(folder, models):
    """The number of the model that is in the folder."""
    found = scores(folder)
    same = [k for k, model in enumerate(models) if np.array_equal(found, scores(model))]
    assert len(same) == 1, "it is neither of them"
    return same[0]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def put(model, folder, state):
    """The old model in a folder, in one of the states in which a save may find it."""
    shutil.copytree(model, folder)
    if state == "saved twice":
        DeepClassifier.load(model).save(folder)
        assert names(folder) == ["deep-2.safetensors", "deep.json"]


@pytest.mark.parametrize("how", ["killed", "failed"])
@pytest.mark.parametrize("state", ["saved once", "saved twice"])
def test_at_every_step(how, state, models, processes, tmp_path):
    old, new = models
    ends = []
    for step in range(1, MOST_STEPS):
        folder = tmp_path / str(step)
        put(old, folder, state)
        process = processes.Process(target=saving_job.save_until, args=(new, folder, step, how))
        process.start()
        process.join()
        if process.exitcode == 4:
            # What only tidies up may fail: the next save does it.
            assert which(folder, models) == 1
            continue
        ends.append(which(folder, models))
        if process.exitcode == 0:
            break
        assert process.exitcode == (-signal.SIGKILL if how == "killed" else 3)
        # What is left over beside a model is one file of weights, and one that is not finished.
        assert len(names(folder)) <= 4
        DeepClassifier.load(new).save(folder)
        assert which(folder, models) == 1
        assert len(names(folder)) == 2
    assert process.exitcode == 0
    assert len(names(folder)) == 2
    # The old one up to some step, and from then on the new one.
    assert ends == sorted(ends)
    assert 0 < sum(ends) < len(ends)
    assert len(ends) > 10


def test_at_random_moments(models, processes, tmp_path):
    shutil.copytree(models[0], tmp_path / "model")
    moments = random.Random(int.from_bytes(os.urandom(4)))
    for _ in range(3):
        process = processes.Process(target=saving_job.save_in_turn, args=(models, tmp_path / "model"))
        process.start()
        before = (tmp_path / "model" / "deep.json").stat().st_ino
        while (tmp_path / "model" / "deep.json").stat().st_ino == before:
            assert process.is_alive(), "it ended before it was killed"
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        which(tmp_path / "model", models)
        # Nothing under other names, which no later save would know and remove.
        known = [files.DESCRIPTION_FILE, *files.WEIGHTS_FILES]
        unfinished = [f".{name}.{process.pid}.unfinished" for name in known]
        assert {*names(tmp_path / "model")} <= {*known, *unfinished}


def test_a_disk_that_is_full_keeps_nothing_of_the_new_one(models, tmp_path, monkeypatch):
    shutil.copytree(models[0], tmp_path / "model")

    write = Path.write_bytes

    def half(path, content):
        write(path, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match=r"No space left on device: .*deep-2\.safetensors"):
        DeepClassifier.load(models[1]).save(tmp_path / "model")
    assert names(tmp_path / "model") == names(models[0])
    assert which(tmp_path / "model", models) == 0


@pytest.mark.parametrize("saves", [1, 2, 3])
def test_read_while_another_is_saved(saves, models, tmp_path, monkeypatch):
    """The weights of the description that was read are gone then, or are another's."""
    folder = tmp_path / "model"
    shutil.copytree(models[0], folder)
    others, read = [DeepClassifier.load(models[1 - k % 2]) for k in range(saves)], files._read_weights

    def late(place, described):
        while others:
            others.pop(0).save(folder)
        return read(place, described)

    monkeypatch.setattr(files, "_read_weights", late)
    assert which(folder, models) == saves % 2


def test_a_description_that_is_damaged_does_not_stand_in_the_way(models, tmp_path):
    shutil.copytree(models[0], tmp_path / "model")
    for text in ("{", "[]", '{"weights": 3}', '{"weights": "deep-3.safetensors"}'):
        (tmp_path / "model" / "deep.json").write_text(text)
        DeepClassifier.load(models[1]).save(tmp_path / "model")
        assert which(tmp_path / "model", models) == 1
        assert len(names(tmp_path / "model")) == 2
