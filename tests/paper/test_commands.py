"""The commands of the paper's parts: an error is one line, and a plan is of what is asked for."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from broken_streams import BrokenStream
from deep_journals import write_journal
from raresight.cli import app
from raresight.paper.deep.__main__ import main as deep
from raresight.paper.deep.plan import plan_text
from raresight.paper.deep.settings import Setup
from raresight.paper.fraud_deep import main as fraud_deep


def printed(*words):
    run = CliRunner().invoke(app, ["paper", *words])
    assert run.exit_code == 0, run.output
    return run.output


def refused(*words):
    run = CliRunner().invoke(app, ["paper", *words])
    assert isinstance(run.exception, ValueError), run.output
    return str(run.exception)


def test_the_plan_of_fraud_is_of_the_families_asked_for():
    text = printed("fraud", "--plan", "--families", "tabm", "--repeats", "2")
    assert "tabm: 9 splits" in text
    assert "tabnet" not in text
    assert printed("fraud", "--plan", "--families", "deep") == printed("fraud", "--plan")
    assert "have a plan, not linear" in refused("fraud", "--plan", "--families", "linear,tabm")
    assert "unknown family 'forest'" in refused("fraud", "--plan", "--families", "forest")
    assert "repeats must be at least 1, not 0" in refused("fraud", "--plan", "--repeats", "0")


def test_the_plan_of_nets_is_of_the_imbalances_asked_for(tmp_path):
    here = ["--out", str(tmp_path)]
    every, one = printed("table2", "--plan", *here), printed("table2", "--plan", "--rho", "0.01", *here)
    count = {text: int(text.splitlines()[-1].split()[1]) for text in (every, one)}
    assert count[every] == 3 * count[one]
    assert one.rstrip() == plan_text(["table2"], Setup(), rhos=[0.01])
    assert "table2 has no imbalance 0.3; rho is one of 0.01, 0.05, 0.1" in refused(
        "table2", "--plan", "--rho", "0.01,0.3"
    )


@pytest.mark.parametrize("words", [["--plan"], []])
def test_numbers_that_cannot_be_are_refused(words, tmp_path):
    for stack in ("0", "-3"):
        message = refused("table2", *words, "--stack", stack, "--out", str(tmp_path))
        assert message == f"--stack must be at least 1, but is {stack}"
    for minutes in ("-1", "nan"):
        message = refused("table2", *words, "--minutes", minutes, "--out", str(tmp_path))
        assert message == f"--minutes must be at least 0, but is {minutes}"
    assert "--rho must be numbers such as 0.01,0.05, but is 'abc'" in refused(
        "table2", *words, "--rho", "abc", "--out", str(tmp_path)
    )


def test_a_plan_names_what_was_typed():
    message = refused("minority", "--plan", "--dataset", "cifar100")
    assert message == "minority is about the deer and horses of cifar10: it cannot be run on cifar100"
    assert "brier has no imbalance 0.1; rho is one of" in refused("brier", "--plan", "--rho", "0.1")


def test_a_plan_refuses_what_the_training_would(tmp_path):
    here = ["--plan", "--out", str(tmp_path)]
    message = refused("table2", *here, "--families", "deep", "--jobs", "3")
    assert message.startswith("paper table2 takes no --families, --jobs; its options are --data, --dataset")
    message = refused("fraud", *here, "--rho", "0.01", "--size", "full")
    assert message.startswith("paper fraud takes no --size, --rho; its options are --data, --families")
    assert refused("table2", *here, "--seed", "5").startswith("table2 takes no seed: its draws and trainings")
    assert "have a plan, and the nets of fraud, not all" in refused("all", *here)
    # What the training takes is no error, though it changes nothing here.
    plain = printed("table2", *here)
    assert printed("table2", *here, "--device", "cuda", "--minutes", "3", "--results-only") == plain


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--depth", "9"], "depth must be 6n + 2, such as 8, 20, 32, 44 or 56, but is 9"),
        (["--depth", "2"], "depth must be 6n + 2, such as 8, 20, 32, 44 or 56, but is 2"),
        (["--depth", "-4"], "depth must be 6n + 2, such as 8, 20, 32, 44 or 56, but is -4"),
        (["--width", "0"], "width must be at least 1, but is 0"),
        (["--minutes", "nan"], "minutes must be at least 0, but is nan"),
        (["--minutes=-1"], "minutes must be at least 0, but is -1"),
    ],
)
@pytest.mark.parametrize("way", [["--plan"], ["--data", "nowhere"]])
def test_nets_and_times_that_cannot_be_are_refused_before_anything_is_done(
    words, message, way, capsys, tmp_path
):
    assert deep(["--experiment", "table2", *way, *words, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
    assert not list(tmp_path.iterdir())


def test_an_experiment_named_twice_is_one(capsys, tmp_path):
    words = ["--plan", "--out", str(tmp_path)]
    assert deep(["--experiment", "table2", *words]) == 0
    once = capsys.readouterr().out
    assert deep(["--experiment", "table2", "table2", *words]) == 0
    assert capsys.readouterr().out == once


def test_a_plan_names_the_net(capsys, tmp_path):
    assert (
        deep(["--experiment", "table2", "--plan", "--depth", "8", "--width", "4", "--out", str(tmp_path)])
        == 0
    )
    assert capsys.readouterr().out.startswith("cifar10, ResNet-8 of width 4, size short, ")


def test_steps_in_a_log_have_a_line_each_however_long(tmp_path):
    """And brackets are no markup there."""
    folder = tmp_path / ("a [red]long name " * 6)
    folder.mkdir()
    run = CliRunner().invoke(app, ["paper", "overview", "--out", str(folder)])
    told = run.stderr.splitlines()
    assert told[0] == f"reading {folder / 'deep' / 'table2-cifar10.jsonl.gz'}"
    assert len(told) == 4


@pytest.mark.parametrize("is_terminal", [True, False])
def test_work_goes_on_where_nobody_hears_of_it(is_terminal, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "stderr", BrokenStream(is_terminal))
    app(["paper", "table1", "--out", str(tmp_path)], standalone_mode=False)
    assert sorted(capsys.readouterr().out.split()) == [str(path) for path in sorted(tmp_path.iterdir())]
    assert deep(["--experiment", "table2", "--data", str(tmp_path / "absent"), "--out", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "table2",
            "interrupted: what was finished is kept, of nets under way what they were about a minute ago or "
            "an epoch before, and the same command goes on\n",
        ),
        ("figure2", "interrupted: figure2 begins anew when it is called again\n"),
        ("all", "interrupted: table1 begins anew when it is called again\n"),
        (
            "fraud",
            "interrupted: families and splits that were finished are kept, and the same command goes on\n",
        ),
    ],
)
def test_ctrl_c_is_one_line(monkeypatch, tmp_path, name, said):
    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("raresight.paper.reproduce", interrupted)
    run = CliRunner().invoke(app, ["paper", name, "--out", str(tmp_path)])
    assert (run.exit_code, run.stderr) == (130, said)


def test_time_that_ran_out_is_an_exit_code_of_its_own(monkeypatch, tmp_path):
    """Also where there are results to show, as of the cells that are complete."""
    monkeypatch.setattr("raresight.paper.reproduce", lambda *given, **named: [tmp_path / "page.md"])
    words = ["paper", "table2", "--out", str(tmp_path), "--data", str(tmp_path), "--minutes", "1"]

    def run(*more):
        return CliRunner().invoke(app, [*words, *more])

    write_journal(tmp_path, "table2", leave_out=lambda trial: trial.rho == 0.05 and trial.seed == 2)
    out_of_time = run()
    assert (out_of_time.exit_code, out_of_time.stdout) == (3, f"{tmp_path / 'page.md'}\n")
    # Of two draws, and of one at the paper's setting.
    assert out_of_time.stderr.splitlines()[-1] == (
        "out of time: 27 trainings are left, with which the same command goes on"
    )
    assert run("--rho", "0.05").exit_code == 3
    assert run("--rho", "0.01,0.1").exit_code == 0
    assert run("--results-only").exit_code == 0
    assert run("--size", "full").exit_code == 3


def test_options_of_other_parts_are_refused_as_they_were_typed(tmp_path):
    here = ["--out", str(tmp_path)]
    assert refused("table1", "--net-seeds", "2", *here) == "paper table1 takes no --net-seeds"
    assert refused("all", "--rho", "0.01", *here) == "paper all takes no --rho"
    assert (
        refused("overview", "--size", "full", "--results-only", *here)
        == "paper overview takes no --size, --results-only; its options are --dataset"
    )
    message = refused("table2", "--families", "deep", *here)
    assert message.startswith("paper table2 takes no --families; its options are --data, --dataset, --size")
    assert "--rho" in message
    assert "depth" not in message
    assert "unknown part of the paper 'table9'" in refused("table9", "--size", "full", *here)
    assert refused("table9", *here).endswith("brier, overview, all")
    for jobs in ("0", "-3"):
        message = refused("fraud", "--data", "nowhere.csv", "--jobs", jobs, *here)
        assert message == f"jobs must be at least 1, not {jobs}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        (fraud_deep, ["--data", "nowhere.csv"], "no file nowhere.csv"),
        (fraud_deep, ["--data", "nowhere.csv", "--seeds", "0"], "seeds must be at least 1, not 0"),
        (fraud_deep, ["--plan", "--seeds", "0"], "seeds must be at least 1, not 0"),
        (fraud_deep, ["--plan", "--repeats", "0"], "repeats must be at least 1, not 0"),
        (fraud_deep, ["--plan", "--minutes", "nan"], "minutes must be at least 0, but is nan"),
        (fraud_deep, ["--data", "nowhere.csv", "--minutes=-1"], "minutes must be at least 0, but is -1"),
        (deep, ["--experiment", "table2", "--data", "nowhere"], "nowhere"),
        (deep, ["--experiment", "table2", "--plan", "--size", "huge"], "size must be one of short"),
        (deep, ["--experiment", "table2", "--plan", "--stack", "0"], "stack must be at least 1, but is 0"),
        (deep, ["--experiment", "table2", "--plan", "--rho", "0.3"], "has no imbalance 0.3"),
        (deep, ["--experiment", "table2", "--data", "nowhere", "--rho", "0.3"], "has no imbalance 0.3"),
    ],
)
def test_an_error_is_one_line(command, words, message, capsys, tmp_path):
    assert command([*words, "--out", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert message in said.err
    assert said.err.count("\n") == 1
