"""Training the paper's trials in stacks: rows, resuming, skipping, and with torch and numpy alone."""

from __future__ import annotations

import json
import lzma
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import deep_job
from deep_records import record as known_record
from raresight.common.journal import read_journal, write_journal
from reproduction.__main__ import main
from reproduction.experiments import runs, stack
from reproduction.experiments.net_trial import SIZES, NetTrial, Setup, folder_name, size_of
from reproduction.experiments.stack import hold_out_validation, task_rows
from reproduction.experiments.trials import Cell, NetExperiment, paper_trials
from reproduction.images import read_cifar10
from reproduction.images.imbalance import exponential, halves
from reproduction.training_records import add_records, journal_path, read_records
from tiny_cifar import write_tiny_cifar10

torch.set_num_threads(1)

EXPERIMENT = NetExperiment("table2", (Cell("halves", 0.1),), (0,))
SETUP = Setup(size=size_of("1,2"), depth=8, width=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tiny_cifar10(tmp_path_factory.mktemp("images"), train_images=20, test_images=4)


def without_times(records):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


# ---- rows --------------------------------------------------------------------------------------


def test_validation_rows_are_not_trained_on():
    categories = np.random.default_rng(0).permutation(np.arange(10).repeat(100))
    for task in (halves(categories, 0.05, 3), exponential(categories, 0.05)):
        left, rows, labels = hold_out_validation(task, categories, 0.1, 3)
        assert not set(rows) & set(left.indices)
        assert set(left.indices) <= set(task.indices)
        # As many of every category, and no rare row is given up where others are unused.
        assert (np.bincount(categories[rows]) == 10).all()
        assert all(task.label_of[c] == label for c, label in zip(categories[rows], labels, strict=True))
        rare = [c for c in task.label_of if np.sum(categories[task.indices] == c) <= 90]
        assert rare
        for category in rare:
            assert np.sum(categories[left.indices] == category) == np.sum(
                categories[task.indices] == category
            )
        assert left.class_counts == tuple(np.bincount(left.labels))
    assert np.array_equal(hold_out_validation(task, categories, 0.1, 3)[1], rows)
    assert not np.array_equal(hold_out_validation(task, categories, 0.1, 4)[1], rows)


def test_rows_of_a_trial(data):
    images = read_cifar10(data, complete=False)
    trial = deep_job.make_trials()[0]
    rows = task_rows(images, trial)
    # 100 negatives less a tenth of each category; 20 positives at rho 0.2.
    assert rows.class_counts == (90, 20)
    assert (len(rows.training), len(rows.validation), len(rows.test)) == (110, 20, 40)
    assert torch.equal(rows.validation.mean, rows.training.mean)
    whole = task_rows(images, replace(trial, held_out=False))
    assert whole.class_counts == (100, 20)
    assert whole.validation is None
    pair = task_rows(images, replace(trial, task="pair"))
    assert (pair.class_counts, len(pair.validation), len(pair.test)) == ((16, 4), 8, 8)
    step = task_rows(images, replace(trial, task="step"))
    assert step.class_counts == (18,) * 5 + (4,) * 5
    with pytest.raises(ValueError, match="task must be halves"):
        task_rows(images, replace(trial, task="quarters"))


# ---- a stack -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return deep_job.run(data, tmp_path_factory.mktemp("whole") / "stack")


def test_a_record_says_everything(undisturbed):
    trials = deep_job.make_trials()
    assert [record["trial"] for record in undisturbed] == [trial.to_dict() for trial in trials]
    for record in undisturbed:
        assert record["class_counts"] == [90, 20]
        assert record["curve"]["epoch"] == list(range(1, 13))
        columns = {name for name in record["curve"] if name.startswith(("validation_", "test_"))}
        assert len(columns) == 20
        assert all(len(column) == 12 for column in record["curve"].values())
        assert (record["frozen"], record["stack"], record["precision"]) == (None, 3, "float32")
        assert record["kernels"] == "layers"
        assert record["versions"]["torch"] == torch.__version__
        assert (record["recipe"]["epochs"], record["recipe"]["momentum"]) == (12, 0.9)
        json.dumps(record, allow_nan=False)
    assert undisturbed[0]["loss"].startswith("logitadjusted(base=crossentropy,prior=0.1818")
    losses = [record["curve"]["train_loss"] for record in undisturbed]
    assert losses[0][-1] < losses[0][0]


def test_out_of_time_it_goes_on_to_the_same_result(data, tmp_path, undisturbed):
    for epochs, reached in ((3, 3), (6, 9)):
        left = iter([1e9] * epochs + [0.0])
        assert deep_job.run(data, tmp_path / "stack", seconds_left=left.__next__) is None
        pointer = json.loads((tmp_path / "stack" / "training.json").read_text())
        assert pointer["epoch"] == reached
    records = deep_job.run(data, tmp_path / "stack")
    assert without_times(records) == without_times(undisturbed)


def test_judging_beside_the_next_epoch_changes_nothing(data, tmp_path, undisturbed):
    """Without checkpoints, before which metrics are waited for, they are found while the next is trained."""
    found = deep_job.run(data, tmp_path / "stack", checkpoint_seconds=float("inf"))
    assert without_times(found) == without_times(undisturbed)


def test_an_error_in_judging_ends_the_training(data, tmp_path, monkeypatch):
    def broken(*args):
        raise ValueError("no such metric")

    monkeypatch.setattr(stack, "metrics_of", broken)
    with pytest.raises(ValueError, match="no such metric"):
        deep_job.run(data, tmp_path / "stack", checkpoint_seconds=float("inf"))


def test_killed_it_goes_on_to_the_same_result(data, tmp_path, undisturbed, monkeypatch):
    processes = multiprocessing.get_context("forkserver")
    here = str(Path(deep_job.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])]))
    processes.set_forkserver_preload(["deep_job"])
    pointer = tmp_path / "stack" / "training.json"
    for least in (2, 7):
        process = processes.Process(target=deep_job.run, args=(data, tmp_path / "stack"))
        process.start()
        while not (pointer.exists() and json.loads(pointer.read_text())["epoch"] >= least):
            assert process.is_alive(), "the training ended before it was killed"
            time.sleep(0.001)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert json.loads(pointer.read_text())["epoch"] < 12
    assert without_times(deep_job.run(data, tmp_path / "stack")) == without_times(undisturbed)


def test_several_classes(data, tmp_path):
    trials = deep_job.make_trials(2, task="exponential", held_out=False)
    records = deep_job.run(data, tmp_path / "stack", trials)
    assert records[0]["curve"]["epoch"] == [1, 2]
    assert {"test_accuracy_linked", "test_rare_accuracy"} <= records[2]["curve"].keys()
    assert not any(name.startswith("validation_") for name in records[0]["curve"])
    assert records[1]["class_counts"] == [20, 16, 13, 11, 9, 8, 6, 5, 4, 4]


# ---- an experiment -----------------------------------------------------------------------------


def test_an_experiment_is_trained_once(tmp_path):
    """Search, choice and result; a second run finds nothing to do."""
    data = write_tiny_cifar10(tmp_path / "images", train_images=10, test_images=2)
    told = []
    options = {"complete": False, "device": "cpu", "stack": 64}
    outcome = runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, tell=told.append, **options)
    assert (outcome.trained, outcome.left) == (45 + 27 + 27, 0)
    journal = journal_path(tmp_path, "table2", "cifar10")
    before = journal.read_bytes()
    records = read_journal(journal)
    assert len(read_records(journal)) == len(records) == 99
    assert [text.split(",")[0] for text in told if "trainings left" in text] == ["search", "final", "paper"]
    # Once a run, before the first epoch, which may take longer than whoever forgot the GPU expects.
    assert [place for place, text in enumerate(told) if text == runs.NO_GPU] == [1]
    assert not list((tmp_path / "unfinished").iterdir())
    again = runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, **options)
    assert (again.trained, again.left) == (0, 0)
    assert journal.read_bytes() == before
    # Other images have no results yet, though all else is the same; the first journals do not say of which.
    others = write_tiny_cifar10(tmp_path / "others", train_images=15, test_images=2)
    with pytest.raises(
        ValueError, match=r"99 results of other images than those in .*others.*, perhaps of a part"
    ):
        runs.run_experiment(EXPERIMENT, SETUP, others, tmp_path, **options)
    journal.unlink()
    add_records(journal, [{**one, "images": "another"} for one in records[:1]])
    with pytest.raises(ValueError, match="1 results of other images"):
        runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, **options)
    journal.unlink()
    add_records(journal, [{name: one[name] for name in one if name != "images"} for one in records])
    assert runs.run_experiment(EXPERIMENT, SETUP, others, tmp_path, **options).trained == 0
    # A trial that is lost is trained again, alone.
    write_journal(journal, records[:-1])
    whole = journal.stat().st_size
    add_records(journal, records[-1:])
    journal.write_bytes(journal.read_bytes()[: whole + 40])
    assert runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, **options).trained == 1
    assert read_records(journal).keys() == {NetTrial.from_dict(record["trial"]).key for record in records}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there(data, tmp_path):
    for device, words in (("cuda", "PyTorch sees no GPU here"), ("foo", "cpu, cuda or one such as")):
        with pytest.raises(ValueError, match=words):
            runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, complete=False, device=device)


def test_only_what_is_asked_for_and_unfinished_stacks_first(data, tmp_path):
    trials = paper_trials(EXPERIMENT, Cell("halves", 0.1), SETUP)
    options = {"complete": False, "device": "cpu", "roles": ("paper",), "tell": (told := []).append}
    # A stack that an earlier run began: the last two.
    folder = tmp_path / "unfinished" / folder_name(tuple(trials[-2:]))
    folder.mkdir(parents=True)
    (folder / "trials.json").write_text(json.dumps([trial.to_dict() for trial in trials[-2:]]))
    # All but six are finished.
    journal = journal_path(tmp_path, "table2", "cifar10")
    add_records(journal, [known_record(trial, 0.7) for trial in trials[:-6]])
    none = runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, rhos=(0.5,), **options)
    assert (none.trained, none.left) == (0, 0)
    stopped = runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, minutes=0, **options)
    assert (stopped.trained, stopped.left) == (0, 6)
    outcome = runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, stack=3, **options)
    assert (outcome.trained, outcome.left) == (6, 0)
    sizes = [text.split(": ")[1] for text in told if "trainings left" in text]
    assert sizes == ["2 nets, 6 trainings left", "2 nets, 4 trainings left", "2 nets, 2 trainings left"]
    with pytest.raises(ValueError, match="roles must be of search, final"):
        runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, roles=("last",))
    with pytest.raises(ValueError, match="stack must be at least 1"):
        runs.run_experiment(EXPERIMENT, SETUP, data, tmp_path, stack=0)


def test_a_stack_is_made_to_fit_into_the_time_left(tmp_path):
    trials = paper_trials(EXPERIMENT, Cell("halves", 0.01), Setup(size=SIZES["full"]))
    needed = runs.stack_seconds(trials[:10])

    def chosen(seconds, **options):
        clock = runs._TimeBudget(time.monotonic(), (seconds + 1) / 60, 1.0)
        return len(runs._next_stack(trials, tmp_path, 16, clock, **options))

    assert chosen(1e6, is_first=False) == 14  # 27 in two stacks
    # As long as planned, a little slower, and thirty seconds to compile: one that misses the end is lost.
    assert chosen(1.07 * needed + 30, is_first=False) == 10
    assert chosen(needed, is_first=False) < 10
    assert chosen(10, is_first=False) == 0
    clock = runs._TimeBudget(time.monotonic(), (1.5 * 1.07 * needed + 1) / 60, 1.0)
    clock.learn(planned=2.0, took=3.0)
    assert len(runs._next_stack(trials, tmp_path, 16, clock, is_first=False)) == 10
    # A run that would do nothing at all begins a stack, and keeps it as a checkpoint.
    assert chosen(10, is_first=True) == 14


def test_damaged_journals_are_named(tmp_path):
    path = journal_path(tmp_path, "table2", "cifar10")
    assert read_records(path) == {}
    trial = deep_job.make_trials()[0]
    add_records(path, [known_record(trial, 0.7)])
    whole = path.read_bytes()
    add_records(path, [known_record(replace(trial, seed=5), 0.7)])
    assert len(read_records(path)) == 2
    # What is torn is left out, and follows again.
    path.write_bytes(path.read_bytes()[:-40])
    assert list(read_records(path)) == [trial.key]
    add_records(path, [known_record(replace(trial, seed=5), 0.7)])
    assert len(read_records(path)) == 2
    path.write_bytes(lzma.compress(b"nonsense\n") + whole)
    with pytest.raises(ValueError, match=r"is damaged at line 1"):
        read_records(path)


def _without(name):
    return lambda whole: {key: value for key, value in whole.items() if key != name}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_without("device"), "it lacks device"),
        (_without("curve"), "it lacks curve, curve.epoch"),
        (
            lambda whole: {**whole, "curve": _without("test_roc_auc")(whole["curve"])},
            "it lacks curve.test_roc_auc",
        ),
        (
            lambda whole: {**whole, "curve": {**whole["curve"], "test_brier": [0.5]}},
            "the columns of its curve are not equally long",
        ),
        (_without("trial"), "'trial'"),
        *(
            (
                lambda whole, epochs=epochs: {**whole, "trial": {**whole["trial"], "epochs": epochs}},
                "its epochs are no whole number, or its images no digest",
            )
            for epochs in ("7", 7.5, None)
        ),
        (lambda whole: {**whole, "images": ["a"]}, "its epochs are no whole number, or its images no digest"),
        (lambda whole: {**whole, "clip": None}, "its curve or its clip are no numbers"),
        (
            lambda whole: {**whole, "curve": {**whole["curve"], "test_brier": ["a", "b", "c"]}},
            "its curve or its clip are no numbers",
        ),
    ],
)
def test_a_record_that_tables_could_not_use_is_named(tmp_path, spoil, words):
    path = journal_path(tmp_path, "table2", "cifar10")
    whole = known_record(replace(deep_job.make_trials()[0], role="final"), 0.7)
    add_records(path, [whole, spoil(whole)])
    with pytest.raises(
        ValueError, match=f"has no result in line 2 .*{words}.*remove that line, and write it anew"
    ):
        read_records(path)


def test_the_command_needs_data_and_tells_when_time_is_out(data, tmp_path, capsys):
    assert main(["table2", "--train-only"]) == 2
    assert "--train-only needs --data" in capsys.readouterr().err
    arguments = ["table2", "--train-only", "--data", str(data), "--out", str(tmp_path), "--minutes", "0"]
    assert main([*arguments, "--part-of-set", "--device", "cpu"]) == 3
    assert "table2: 0 trained in" in capsys.readouterr().err


def test_training_needs_torch_numpy_and_safetensors_alone(data, tmp_path):
    script = f"""
import sys
for name in ("scipy", "sklearn", "matplotlib", "typer", "rich", "pandas", "joblib", "threadpoolctl"):
    sys.modules[name] = None
sys.path.insert(0, {str(Path(deep_job.__file__).parent)!r})
from pathlib import Path
import deep_job
import reproduction.__main__, reproduction.experiments.runs
records = deep_job.run(Path({str(data)!r}), Path({str(tmp_path / "stack")!r}), deep_job.make_trials(1))
print(len(records), records[0]["curve"]["epoch"])
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "3 [1]"


def test_what_is_missing_is_said_before_anything_is_trained(data, tmp_path, monkeypatch, capsys):
    arguments = ["table2", "--train-only", "--size", "1,2", "--depth", "8", "--width", "2", "--part-of-set"]
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    assert main([*arguments, "--data", str(data), "--out", str(tmp_path)]) == 2
    assert "need safetensors: pip install 'raresight[torch]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["", "[{}]", '{"a": 1}', "[3]"])
def test_a_folder_under_way_that_cannot_be_read_is_named(data, tmp_path, capsys, content):
    folder = tmp_path / "deep" / "unfinished" / "some"
    folder.mkdir(parents=True)
    (folder / "trials.json").write_text(content)
    arguments = ["table2", "--train-only", "--size", "1,2", "--depth", "8", "--width", "2", "--part-of-set"]
    assert main([*arguments, "--data", str(data), "--out", str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert f"{folder / 'trials.json'} does not list the nets of its stack" in told
    assert f"remove {folder} to train them anew" in told


def test_ctrl_c_is_one_line(data, tmp_path, monkeypatch, capsys):
    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "run_experiment", interrupted)
    assert main(["table2", "--train-only", "--data", str(data), "--out", str(tmp_path)]) == 130
    told = capsys.readouterr().err
    assert told.startswith("interrupted: finished nets are kept, ")
    assert told.count("\n") == 1
