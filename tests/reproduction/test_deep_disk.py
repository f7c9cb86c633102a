"""Results of nets on a disk that is full or read-only: nothing is trained in vain, and files are named."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys

import pytest
import torch

from deep_records import record
from raresight.common import atomic_files
from raresight.common.atomic_files import hold_folder
from reproduction import reproduce
from reproduction.__main__ import main
from reproduction.experiments import runs
from reproduction.experiments.net_trial import Setup, folder_name, size_of
from reproduction.experiments.trials import Cell, NetExperiment, paper_trials
from reproduction.fraud import net_training as fraud_nets
from reproduction.training_records import add_records, journal_path, read_records
from tiny_cifar import write_tiny_cifar10
from tiny_fraud import write_tiny_fraud

torch.set_num_threads(1)

CELL = Cell("halves", 0.1)
EXPERIMENT = NetExperiment("table2", (CELL,), (0,))
SETUP = Setup(size=size_of("1,1"), depth=8, width=2)
TRIALS = tuple(paper_trials(EXPERIMENT, CELL, SETUP))
OPTIONS = {"complete": False, "device": "cpu", "roles": ("paper",)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tiny_cifar10(tmp_path_factory.mktemp("images"), train_images=10, test_images=2)


def test_on_a_full_disk_the_journal_is_named_and_what_it_has_is_kept(tmp_path):
    journal = journal_path(tmp_path, "table2", "cifar10")
    add_records(journal, [record(TRIALS[0], 0.7)])
    before = journal.read_bytes()
    script = f"""
import os, resource, signal
from pathlib import Path
from reproduction.training_records import add_records
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 100},) * 2)
try:
    add_records(Path({str(journal)!r}), [{{"bytes": os.urandom(9000).hex()}}])
except OSError as error:
    print(error.filename)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == str(journal), run.stderr
    assert journal.read_bytes()[: len(before)] == before
    # What is torn is mended by the next addition.
    add_records(journal, [record(TRIALS[1], 0.7)])
    assert list(read_records(journal)) == [trial.key for trial in TRIALS[:2]]


def test_on_a_full_disk_the_folder_of_a_training_is_named(data, tmp_path):
    """Its journal of results grows with every epoch."""
    script = f"""
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from reproduction.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
words = "table2 --train-only --size 1,9 --depth 8 --width 2 --rho 0.1 --role paper --part-of-set --stack 3"
sys.exit(main([*words.split(), "--data", {str(data)!r}, "--out", {str(tmp_path)!r}, "--device", "cpu"]))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 2, run.stderr
    assert "error: [Errno 27] File too large: " in run.stderr
    assert run.stderr.endswith("/journal.jsonl'\n")
    assert "Traceback" not in run.stderr


def test_a_folder_that_cannot_be_written_is_named_by_the_file_asked_for(tmp_path, monkeypatch):
    """Not by the one aside, which on a read-only disk can neither be written nor removed."""

    def read_only(path, *given, **named):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(atomic_files.Path, "write_bytes", read_only)
    monkeypatch.setattr(atomic_files.Path, "unlink", read_only)
    with pytest.raises(OSError, match="Read-only") as refused:
        atomic_files.write_file(tmp_path / "some.md", "text")
    assert refused.value.filename == str(tmp_path / "some.md")


def test_a_stack_whose_records_are_in_the_journal_leaves_no_folder(data, tmp_path):
    """Who was killed between the one and the other left it."""
    for place in (0, 3, 6):
        folder = tmp_path / "unfinished" / folder_name(TRIALS[place : place + 3])
        folder.mkdir(parents=True)
        runs.write_json(folder / "trials.json", [trial.to_dict() for trial in TRIALS[place : place + 3]])
    add_records(journal_path(tmp_path, "table2", "cifar10"), [record(trial, 0.7) for trial in TRIALS[:6]])
    held = tmp_path / "unfinished" / folder_name(TRIALS[3:6])
    with hold_folder(held, "training"):
        outcome = runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, minutes=0, **OPTIONS)
    assert (outcome.trained, outcome.left) == (0, 21)
    left = {path.name for path in (tmp_path / "unfinished").iterdir()}
    assert left == {held.name, folder_name(TRIALS[6:9])}


def test_the_last_stack_leaves_no_folder_either(data, tmp_path):
    """Nor does one that was half removed, with the list of its nets or without."""
    add_records(journal_path(tmp_path, "table2", "cifar10"), [record(trial, 0.7) for trial in TRIALS])
    for name in (folder_name(TRIALS[:3]), f"{folder_name(TRIALS[3:6])}.removed", "other.removed"):
        (tmp_path / "unfinished" / name).mkdir(parents=True)
        (tmp_path / "unfinished" / name / "lock").touch()
        if not name.startswith("other"):
            path = tmp_path / "unfinished" / name / "trials.json"
            runs.write_json(path, [trial.to_dict() for trial in TRIALS[:3]])
    outcome = runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, **OPTIONS)
    assert (outcome.trained, outcome.left) == (0, 0)
    assert not list((tmp_path / "unfinished").iterdir())


def test_two_may_remove_a_folder_at_once(tmp_path, monkeypatch):
    """One finds what the other is about to remove, and is the first to be done."""
    folder = tmp_path / "some"
    folder.mkdir()
    runs.write_json(folder / "trials.json", [TRIALS[0].to_dict()])
    remove = shutil.rmtree

    def slow(path, **options):
        if path.exists():
            assert list(runs._under_way(tmp_path)) == []
            remove(path)
        remove(path, **options)

    monkeypatch.setattr("reproduction.experiments.stack.shutil.rmtree", slow)
    runs.remove_folder(folder)
    assert not list(tmp_path.iterdir())


def test_a_stack_begun_with_other_images_is_not_thrown_away_unasked(data, tmp_path):
    others = write_tiny_cifar10(tmp_path / "others", train_images=15, test_images=2)
    setup = Setup(size=size_of("1,3"), depth=8, width=2)
    left = iter([1.0, 1.0, 0.0])

    def run(images, **options):
        return runs.run_experiment(EXPERIMENT, setup, images, tmp_path, **OPTIONS, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs._TimeBudget, "left", lambda clock: next(left))
        assert run(data).trained == 0
    (folder,) = (tmp_path / "unfinished").iterdir()
    with pytest.raises(
        ValueError,
        match=rf"{folder} holds another training: rows .* by --checkpoints, or continue .* or remove it",
    ):
        run(others)
    assert run(data, checkpoints=tmp_path / "unfinished").trained == 27


def test_a_folder_that_goes_as_it_is_looked_at_is_no_error(tmp_path, monkeypatch):
    folder = tmp_path / "some"
    folder.mkdir()
    runs.write_json(folder / "trials.json", [TRIALS[0].to_dict()])
    assert len(list(runs._under_way(tmp_path))) == 1
    found = runs._trials_of

    def late(path):
        shutil.rmtree(folder)
        return found(path)

    monkeypatch.setattr(runs, "_trials_of", late)
    assert list(runs._under_way(tmp_path)) == []


def test_commands_that_fail_make_no_folder(tmp_path):
    for words in (
        ["table2", "--data", str(tmp_path / "nowhere")],
        ["fraud", "--data", str(tmp_path / "nowhere.csv")],
        ["fraud", "--data", str(tmp_path / "nowhere.csv"), "--families", "forest"],
        ["table2", "--data", str(tmp_path / "nowhere"), "--device", "tpu"],
    ):
        assert main([*words, "--out", str(tmp_path / "new")]) == 2
    assert not list(tmp_path.iterdir())


def test_fraud_is_not_fitted_for_nothing(tmp_path, monkeypatch, capsys):
    table = write_tiny_fraud(tmp_path, rows=200, share=0.1, shift=3)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(fraud_nets, "_trained", lambda *given: pytest.fail("trained for nothing"))
    words = ["fraud", "--train-only", "--data", str(table), "--families", "tabnet", "--net-seeds", "1"]
    words += ["--net-epochs", "1", "--device", "cpu"]
    assert main([*words, "--out", str(tmp_path / "file")]) == 2
    assert "error: " in capsys.readouterr().err
    told = []
    with pytest.raises(OSError, match="file"):
        reproduce("fraud", tmp_path / "file", data=table, families=["linear"], jobs=1, tell=told.append)
    assert told == []


@pytest.mark.parametrize(
    ("name", "options", "command"),
    [
        ("table2", {}, "table2"),
        ("minority", {"size": "full", "rhos": [0.01, 0.05]}, "minority --size full --rho 0.01 0.05"),
        ("table2", {"dataset": "cifar100", "size": "1,2"}, "table2 --dataset cifar100 --size 1,2"),
        ("ablation-c", {"depth": 8, "width": 4}, "ablation-c --depth 8 --width 4"),
    ],
)
def test_what_is_missing_comes_with_the_command_that_trains_it(name, options, command, tmp_path):
    with pytest.raises(ValueError, match="no complete cell yet") as raised:
        reproduce(name, tmp_path, **options)
    assert str(raised.value).endswith(f" Train them with python -m reproduction {command} --data FOLDER")


def test_what_is_missing_is_of_the_imbalances_asked_for(tmp_path):
    with pytest.raises(ValueError, match=r"missing are halves, rho 0\.05: 90 of 90 search .*, and 2 more"):
        reproduce("table2", tmp_path, rhos=[0.05])
