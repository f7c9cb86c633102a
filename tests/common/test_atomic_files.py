"""Files appear whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from raresight.common.atomic_files import (
    hold_folder,
    regular_file,
    replacing,
    replacing_folder,
    write_file,
    write_files,
    write_json,
)


def test_a_file_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    assert write_file(path, "ü\r\n") == path
    assert path.read_bytes() == "ü\r\n".encode()
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    write_json(path, {"a": [1, "ü"]})
    assert path.read_text() == '{\n "a": [\n  1,\n  "ü"\n ]\n}'
    assert os.listdir(tmp_path) == ["a.txt"]


def test_what_cannot_be_written_leaves_the_old_files(tmp_path):
    old, gone = tmp_path / "old", tmp_path / "gone"
    old.write_text("old")
    gone.write_text("gone")
    with pytest.raises(FileNotFoundError, match="no folder/new"):
        write_files({old: "new", tmp_path / "no folder" / "new": "new"}, obsolete=[gone])
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(old, float("nan"))
    assert (old.read_text(), gone.read_text()) == ("old", "gone")
    assert sorted(os.listdir(tmp_path)) == ["gone", "old"]
    write_files({old: "new"}, obsolete=[gone, gone])
    assert os.listdir(tmp_path) == ["old"]


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder"):
        write_file(tmp_path, "text")


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "scores"
    path.write_text("old")

    def fail():
        with replacing(path) as aside:
            aside.write_text("half")
            raise KeyError("broken")

    with pytest.raises(KeyError):
        fail()
    assert path.read_text() == "old"
    with replacing(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["scores"]


def test_nothing_that_is_read_may_be_a_pipe(tmp_path):
    from raresight.boosting.classifier import read_model
    from raresight.common.journal import Journal, read_journal
    from raresight.metrics import RankSketch

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "pipe.raresight.json").write_text("{}")
    for read in (Journal, read_journal, RankSketch.load, lambda path: read_model(path, "xgboost")):
        with pytest.raises(ValueError, match="is not a regular file but a pipe"):
            read(pipe)


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "model"
    path.write_text("old")
    script = (
        "import os, pathlib, signal\n"
        "from raresight.common.atomic_files import replacing\n"
        f"with replacing(pathlib.Path({str(path)!r})) as aside:\n"
        "    aside.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert path.read_text() == "old"
    assert len(os.listdir(tmp_path)) == 2
    # What a running process writes stays, and so does what belongs to a file with a longer name.
    others = [f".model.{os.getppid()}.unfinished", ".model.x.999999999.unfinished", ".model.unfinished"]
    for name in others:
        (tmp_path / name).write_text("half")
    write_file(path, "new")
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "model"])


def test_a_folder_with_a_longer_name_stays_while_it_is_written(tmp_path):
    with replacing_folder(tmp_path / "model.new") as other, replacing_folder(tmp_path / "model") as new:
        (new / "a.txt").write_text("a")
        assert other.is_dir()
    assert sorted(os.listdir(tmp_path)) == ["model", "model.new"]


def _write_array(path):
    with path.open("wb") as file:
        np.save(file, np.zeros(10_000))


def _write_parquet(path):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pytest.importorskip("pyarrow").table({"a": np.random.default_rng(0).normal(size=10_000)})
    parquet.write_table(table, path)


@pytest.mark.parametrize(
    "write", [lambda path: path.write_bytes(bytes(10_000)), _write_array, _write_parquet]
)
def test_a_full_disk_leaves_the_old_file_and_is_named(tmp_path, write):
    path = tmp_path / "scores"
    path.write_text("old")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        with pytest.raises(OSError, match=r"scores'") as caught, replacing(path) as aside:
            write(aside)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["scores"]


def test_a_pipe_or_a_device_is_neither_read_nor_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link, Path("/dev/null")):
        with pytest.raises(ValueError, match=r"is not a regular file but a (pipe|device)"):
            regular_file(path)
    for path in (pipe, link):
        with pytest.raises(ValueError, match="is not a regular file but a pipe"):
            write_file(path, "text")
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]
    with pytest.raises(ValueError, match="is not a regular file but a folder"):
        regular_file(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing'"):
        regular_file(tmp_path / "nothing")


def test_a_folder_is_held_by_one_process(tmp_path):
    script = (
        "import pathlib\n"
        "from raresight.common.atomic_files import hold_folder\n"
        f"with hold_folder(pathlib.Path({str(tmp_path)!r}), 'searching'): pass\n"
    )

    def other():
        return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    with hold_folder(tmp_path, "searching"):
        assert "another process is searching in" in other().stderr
    assert other().returncode == 0


def test_a_folder_takes_the_place_of_the_old_one_or_leaves_it(tmp_path):
    target = tmp_path / "inner" / "model"
    with replacing_folder(target) as new:
        (new / "part").mkdir()
        (new / "part" / "a.txt").write_text("first")
    with pytest.raises(FileNotFoundError), replacing_folder(target) as new:
        (new / "no folder" / "b.txt").write_text("second")
    assert [path.name for path in target.rglob("*.txt")] == ["a.txt"]
    with replacing_folder(target) as new:
        (new / "b.txt").write_text("second")
    assert os.listdir(target) == ["b.txt"]
    assert os.listdir(target.parent) == ["model"]
