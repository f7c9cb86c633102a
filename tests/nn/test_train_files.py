"""A training may stop at any operation on a file: what is on the disk then always goes on to the same end."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from raresight.nn import Recipe, Replicas, read_journal, train
from raresight.nn.nets import MLP

torch.set_num_threads(1)

RECIPE = Recipe(epochs=2, batch=32, optimiser="sgd", lr=0.1, warmup_epochs=1)
Y = (np.arange(64) % 4 == 0).astype(int)
X = np.random.default_rng(0).normal(size=(64, 3)) + Y[:, None]


class Stopped(BaseException):
    """The process ends here."""


class Disk:
    """Counts the operations that put something on the disk, and stops before one of them."""

    def __init__(self, folder, stop_at=None):
        self.folder, self.stop_at = folder, stop_at
        self.operations = []

    def __enter__(self):
        self._patch = pytest.MonkeyPatch()
        for owner, name in ((os, "fsync"), (os, "replace"), (os, "unlink"), (Path, "write_bytes")):
            self._patch.setattr(owner, name, self._watched(name, getattr(owner, name)))
        return self

    def __exit__(self, *error):
        self._patch.undo()

    def _watched(self, name, operation):
        def watched(*arguments, **options):
            target = self._name_of(arguments[name == "replace"])
            if len(self.operations) == self.stop_at:
                if name == "write_bytes":
                    path, content = arguments
                    operation(path, content[: len(content) // 2])
                raise Stopped
            self.operations.append(f"{name} {target}")
            return operation(*arguments, **options)

        return watched

    def _name_of(self, target):
        if not isinstance(target, int):
            found = [Path(target).name]
        else:
            number = os.fstat(target).st_ino
            found = [path.name for path in self.folder.iterdir() if path.stat().st_ino == number]
        # Files that are not finished yet have the number of their process in the name.
        return found[0].replace(f".{os.getpid()}.", ".") if found else "folder"


def make_replicas():
    return Replicas(partial(MLP, 3, hidden=(4,), batch_norm=True), ["crossentropy", "tbl(alpha=0.8,C=0.5)"])


def train_in(folder, replicas):
    result = train(replicas, (X, Y), RECIPE, evaluation=(X, Y), folder=folder, progress=False)
    return without_times(result.history)


def without_times(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def whole(name):
    """What puts a file on the disk as a whole."""
    aside = f".{name}.unfinished"
    return [f"write_bytes {aside}", f"fsync {aside}", f"replace {name}", "fsync folder", f"unlink {aside}"]


def test_what_a_checkpoint_relies_on_is_on_the_disk_before_it(tmp_path):
    with Disk(tmp_path) as disk:
        train_in(tmp_path, make_replicas())
    pointer = whole("training.json")
    expected = list(pointer)
    for epoch in range(3):
        expected += ["fsync journal.jsonl", *whole(f"state-{epoch:06d}.safetensors"), *pointer]
        expected += [f"unlink state-{epoch - 1:06d}.safetensors"] if epoch else []
    assert disk.operations == expected


def test_it_goes_on_from_every_operation(tmp_path):
    whole = make_replicas()
    with Disk(tmp_path / "whole") as disk:
        history = train_in(tmp_path / "whole", whole)
    assert len(disk.operations) == 40
    for stop_at in range(len(disk.operations)):
        folder = tmp_path / str(stop_at)
        replicas = make_replicas()
        with Disk(folder, stop_at), pytest.raises(Stopped):
            train_in(folder, replicas)
        # The same object goes on, half trained as it is, or one that another process would build.
        resumed = replicas if stop_at % 2 else make_replicas()
        assert train_in(folder, resumed) == history, disk.operations[stop_at]
        for (name, stack), there in zip(resumed.net.state_dict().items(), whole.net.state_dict().values()):
            assert torch.equal(stack, there), f"{name} after {disk.operations[stop_at]}"
        assert without_times(read_journal(folder / "journal.jsonl")) == history
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["journal.jsonl", "lock", "state-000002.safetensors", "training.json"]
