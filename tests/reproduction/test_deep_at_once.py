"""Two processes that train one experiment: nothing is trained twice, and no folder belongs to both."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from deep_records import record as known_record
from raresight.common.atomic_files import FolderInUseError, hold_folder
from reproduction.experiments import runs
from reproduction.experiments.net_trial import Setup, folder_name, size_of
from reproduction.experiments.trials import Cell, NetExperiment, paper_trials
from reproduction.training_records import add_records, journal_path, read_records
from tiny_cifar import write_tiny_cifar10

torch.set_num_threads(1)

CELL = Cell("halves", 0.1)
EXPERIMENT = NetExperiment("table2", (CELL,), (0,))
SETUP = Setup(size=size_of("1,1"), depth=8, width=2)
TRIALS = paper_trials(EXPERIMENT, CELL, SETUP)
OPTIONS = {"complete": False, "device": "cpu", "roles": ("paper",)}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tiny_cifar10(tmp_path_factory.mktemp("images"), train_images=10, test_images=2)


@pytest.fixture
def journal(tmp_path):
    """All but three nets are trained."""
    path = journal_path(tmp_path, "table2", "cifar10")
    add_records(path, [known_record(trial, 0.7) for trial in TRIALS[:-3]])
    return path


def test_a_stack_is_held_until_its_records_are_in_the_journal(data, tmp_path, journal, monkeypatch):
    folder, tried = tmp_path / "unfinished" / folder_name(tuple(TRIALS[-3:])), []

    def watched(path, records):
        with (
            pytest.raises(FolderInUseError, match="another process is training in"),
            hold_folder(folder, "training"),
        ):
            pass
        tried.append(len(records))
        add_records(path, records)

    monkeypatch.setattr(runs, "add_records", watched)
    outcome = runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, **OPTIONS)
    assert (outcome.trained, outcome.left, tried) == (3, 0, [3])
    assert not list((tmp_path / "unfinished").iterdir())


@pytest.mark.parametrize("was_under_way", [False, True])
def test_what_another_process_finished_meanwhile_is_not_trained_again(
    data, tmp_path, journal, monkeypatch, was_under_way
):
    """Between the reading of the journal and the holding of the folder."""
    folder = tmp_path / "unfinished" / folder_name(tuple(TRIALS[-3:]))
    if was_under_way:
        folder.mkdir(parents=True)
        runs.write_json(folder / "trials.json", [trial.to_dict() for trial in TRIALS[-3:]])

    @contextmanager
    def late(path, activity):
        if not added:
            added.append(path)
            add_records(journal, [known_record(trial, 0.9) for trial in TRIALS[-3:]])
            if was_under_way:
                runs.remove_folder(folder)
        with hold_folder(path, "training"):
            yield

    added = []
    monkeypatch.setattr(runs, "hold_folder", late)
    monkeypatch.setattr(runs, "train_stack", lambda *given, **named: pytest.fail("trained again"))
    outcome = runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, **OPTIONS)
    assert (outcome.trained, outcome.left, added) == (0, 0, [folder])
    assert not list((tmp_path / "unfinished").iterdir())
    assert read_records(journal).keys() == {trial.key for trial in TRIALS}


def test_a_stack_of_another_process_is_named(data, tmp_path, journal):
    folder = tmp_path / "unfinished" / folder_name(tuple(TRIALS[-3:]))
    with (
        hold_folder(folder, "training"),
        pytest.raises(FolderInUseError, match=f"another process .*{folder.name}"),
    ):
        runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, **OPTIONS)
    # Its own, not ours to write: the other process has yet to say which nets it trains.
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_a_journal_that_cannot_be_written_is_said_before_anything_is_trained(data, tmp_path, monkeypatch):
    """Also where the checkpoints of the stacks could be."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(runs, "train_stack", lambda *given, **named: pytest.fail("trained for nothing"))
    for out in (tmp_path / "file", tmp_path / "file" / "deep"):
        with pytest.raises(OSError, match="file"):
            runs.run_experiment(EXPERIMENT, SETUP, data, out, checkpoints=tmp_path / "kept", **OPTIONS)
    assert not (tmp_path / "kept").exists()
