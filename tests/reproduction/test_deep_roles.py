"""Training some roles of an experiment: the final trainings have no settings before the search has chosen."""

from __future__ import annotations

import pytest
import torch

from deep_records import record
from reproduction.__main__ import main
from reproduction.experiments.net_trial import Setup, size_of
from reproduction.experiments.trials import EXPERIMENTS, cell_trials, search_trials
from reproduction.training_records import add_records, journal_path, read_records
from tiny_cifar import write_tiny_cifar10

torch.set_num_threads(1)

EXPERIMENT = EXPERIMENTS["table2"]
SETUP = Setup(size=size_of("1,1"), depth=8, width=2)
RARE, _, COMMON = EXPERIMENT.cells
SEARCH = search_trials(EXPERIMENT, COMMON, SETUP)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_tiny_cifar10(tmp_path_factory.mktemp("images"), train_images=10, test_images=2)


@pytest.fixture
def train(data, tmp_path):
    words = ["table2", "--train-only", "--data", str(data), "--out", str(tmp_path), "--part-of-set"]
    words += ["--size", "1,1", "--depth", "8", "--width", "2", "--device", "cpu"]
    return lambda *more: main([*words, *more])


def test_before_the_search_final_trainings_are_an_error(train, tmp_path, capsys):
    assert train("--role", "final") == 2
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("table2: 0 trained in")
    assert told[1].startswith("error: the search, which chooses the settings ")
    for rho in ("0.01", "0.05", "0.1"):
        assert f"table2, halves, rho {rho}: 90 of 90 search trainings of 1 epochs" in told[1]
    assert told[1].endswith("train them with --role search, or all with --role search final")
    assert not (tmp_path / "deep" / "unfinished").exists()


def test_the_search_that_is_missing_is_that_of_the_imbalances_asked_for(train, tmp_path, capsys):
    journal = journal_path(tmp_path / "deep", "table2", "cifar10")
    add_records(journal, [record(trial, 0.7) for trial in SEARCH[:-7]])
    assert train("--role", "final", "--rho", "0.1") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "missing are table2, halves, rho 0.1: 7 of 90 search trainings of 1 epochs: train" in error
    assert "rho 0.01" not in error
    # With time for the search there is nothing to wait for: it is left, as all the rest.
    assert train("--role", "search", "final", "--rho", "0.1", "--minutes", "0") == 3
    assert "--role search" not in capsys.readouterr().err


def test_what_can_be_trained_is_before_it_is_said_what_waits(train, tmp_path, capsys):
    journal = journal_path(tmp_path / "deep", "table2", "cifar10")
    add_records(journal, [record(trial, 0.7) for trial in SEARCH])
    final = cell_trials(EXPERIMENT, COMMON, SETUP, read_records(journal))["final"]
    add_records(journal, [record(trial, 0.7) for trial in final[:-2]])
    # Out of time it is to be called again; with nothing left that it could train, it would be for ever.
    assert train("--role", "final", "--minutes", "0") == 3
    assert "train them with --role search" in capsys.readouterr().err
    assert train("--role", "final") == 2
    told = capsys.readouterr().err
    assert "table2: 2 trained in" in told
    assert "rho 0.05: 90 of 90 search trainings" in told
    assert "rho 0.1" not in told.splitlines()[-1]
    assert read_records(journal).keys() >= {trial.key for trial in final}
    assert train("--role", "final", "--rho", "0.1") == 0


@pytest.mark.parametrize(
    ("experiment", "role", "known"),
    [("ablation-c", "final", "ablation"), ("table2", "ablation", "search, final, paper, beyond")],
)
@pytest.mark.parametrize("way", ["--plan", "--data"])
def test_trainings_that_an_experiment_does_not_have(data, tmp_path, capsys, experiment, role, known, way):
    words = ["--plan"] if way == "--plan" else ["--train-only", "--data", str(data), "--part-of-set"]
    assert main([experiment, "--role", role, "--out", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err == f"error: {experiment} has no {role} trainings; its own are {known}\n"
    assert main(["table2", "ablation-c", "--role", role, "--out", str(tmp_path), "--plan"]) == 0
