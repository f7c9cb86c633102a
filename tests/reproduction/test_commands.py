"""The commands of the paper's parts: an error is one line, and a plan is of what is asked for."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from broken_streams import BrokenStream
from commands import run
from deep_journals import write_journal
from reproduction import ALL, PARTS, options_of
from reproduction.__main__ import main
from reproduction.experiments.budget import plan_text
from reproduction.experiments.net_trial import Setup


def printed(*words):
    ended = run(*words)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


def refused(*words):
    ended = run(*words)
    assert ended.exit_code == 2, ended.stdout
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1
    return ended.stderr.removeprefix("error: ").removesuffix("\n")


def test_the_plan_of_fraud_is_of_the_families_asked_for():
    text = printed("fraud", "--plan", "--families", "tabm", "--repeats", "2")
    assert "tabm: 9 splits" in text
    assert "tabnet" not in text
    assert printed("fraud", "--plan", "--families", "deep") == printed("fraud", "--plan")
    assert "not linear" in refused("fraud", "--plan", "--families", "linear", "tabm")
    assert "unknown family 'forest'" in refused("fraud", "--plan", "--families", "forest")
    assert "repeats must be at least 1, not 0" in refused("fraud", "--plan", "--repeats", "0")


def test_the_plan_of_nets_is_of_the_imbalances_asked_for(tmp_path):
    here = ["--out", str(tmp_path)]
    every, one = printed("table2", "--plan", *here), printed("table2", "--plan", "--rho", "0.01", *here)
    count = {text: int(text.splitlines()[-1].split()[1]) for text in (every, one)}
    assert count[every] == 3 * count[one]
    assert one.rstrip() == plan_text(["table2"], Setup(), rhos=[0.01])
    assert "table2 has no imbalance 0.3; rho is one of 0.01, 0.05, 0.1" in refused(
        "table2", "--plan", "--rho", "0.01", "0.3"
    )


@pytest.mark.parametrize("words", [["--plan"], []])
def test_numbers_that_cannot_be_are_refused(words, tmp_path):
    for stack in ("0", "-3"):
        message = refused("table2", *words, "--stack", stack, "--out", str(tmp_path))
        assert message == f"--stack must be at least 1, but is {stack}"
    for minutes in ("-1", "nan"):
        message = refused("table2", *words, "--minutes", minutes, "--out", str(tmp_path))
        assert message == f"--minutes must be at least 0, but is {minutes}"
    assert "argument --rho: invalid float value: 'abc'" in refused(
        "table2", *words, "--rho", "abc", "--out", str(tmp_path)
    )


def test_a_plan_names_what_was_typed():
    message = refused("minority", "--plan", "--dataset", "cifar100")
    assert message == "minority is about the deer and horses of cifar10: it cannot be run on cifar100"
    assert "brier has no imbalance 0.1; rho is one of" in refused("brier", "--plan", "--rho", "0.1")


def test_a_plan_refuses_what_the_training_would(tmp_path):
    here = ["--plan", "--out", str(tmp_path)]
    message = refused("table2", *here, "--families", "deep", "--jobs", "3")
    assert message.startswith("table2 takes no --families, --jobs; its options are --data, --dataset")
    message = refused("fraud", *here, "--rho", "0.01", "--size", "full")
    assert message.startswith("fraud takes no --rho, --size; its options are --data, --families")
    assert refused("table2", *here, "--seed", "5").startswith("table2 takes no seed: its draws and trainings")
    assert refused("all", *here) == "all takes no --plan"
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
        (["--minutes", "nan"], "--minutes must be at least 0, but is nan"),
        (["--minutes=-1"], "--minutes must be at least 0, but is -1"),
    ],
)
@pytest.mark.parametrize("way", [["--plan"], ["--data", "nowhere"]])
def test_nets_and_times_that_cannot_be_are_refused_before_anything_is_done(
    words, message, way, capsys, tmp_path
):
    assert main(["table2", *way, *words, "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
    assert not list(tmp_path.iterdir())


def test_an_experiment_named_twice_is_one(capsys, tmp_path):
    words = ["--plan", "--out", str(tmp_path)]
    assert main(["table2", *words]) == 0
    once = capsys.readouterr().out
    assert main(["table2", "table2", *words]) == 0
    assert capsys.readouterr().out == once


def test_a_plan_names_the_net(capsys, tmp_path):
    assert main(["table2", "--plan", "--depth", "8", "--width", "4", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("cifar10, ResNet-8 of width 4, size short, ")


def test_steps_in_a_log_have_a_line_each_however_long(tmp_path):
    """And brackets are no markup there."""
    folder = tmp_path / ("a [red]long name " * 6)
    folder.mkdir()
    told = run("overview", "--out", str(folder)).stderr.splitlines()
    assert told[0] == f"reading {folder / 'deep' / 'table2-cifar10.jsonl.xz'}"
    assert len(told) == 5


@pytest.mark.parametrize("is_terminal", [True, False])
def test_work_goes_on_where_nobody_hears_of_it(is_terminal, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "stderr", BrokenStream(is_terminal))
    assert main(["table1", "--out", str(tmp_path)]) == 0
    assert sorted(capsys.readouterr().out.split()) == [str(path) for path in sorted(tmp_path.iterdir())]
    assert main(["table2", "--data", str(tmp_path / "absent"), "--out", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "table2",
            "interrupted: finished nets are kept, others as of about a minute or an epoch ago; run the same "
            "command to resume\n",
        ),
        ("figure2", "interrupted: figure2 starts anew when it is run again\n"),
        ("all", "interrupted: table1 starts anew when it is run again\n"),
        (
            "fraud",
            "interrupted: finished families and splits are kept; run the same command to resume\n",
        ),
    ],
)
def test_ctrl_c_is_one_line(monkeypatch, tmp_path, name, said):
    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("reproduction.__main__.reproduce", interrupted)
    ended = run(name, "--out", str(tmp_path))
    assert (ended.exit_code, ended.stderr) == (130, said)


def test_time_that_ran_out_is_an_exit_code_of_its_own(monkeypatch, tmp_path):
    """Also where there are results to show, as of the cells that are complete."""
    monkeypatch.setattr("reproduction.__main__.reproduce", lambda *given, **named: [tmp_path / "page.md"])
    words = ["table2", "--out", str(tmp_path), "--data", str(tmp_path), "--minutes", "1"]

    def again(*more):
        return run(*words, *more)

    write_journal(tmp_path, "table2", leave_out=lambda trial: trial.rho == 0.05 and trial.seed == 2)
    out_of_time = again()
    assert (out_of_time.exit_code, out_of_time.stdout) == (3, f"{tmp_path / 'page.md'}\n")
    # Of two draws, and of one at the paper's setting.
    assert out_of_time.stderr.splitlines()[-1] == (
        "out of time: 27 trainings are left; run the same command to resume"
    )
    assert again("--rho", "0.05").exit_code == 3
    assert again("--rho", "0.01", "0.1").exit_code == 0
    assert again("--results-only").exit_code == 0
    assert again("--size", "full").exit_code == 3


def test_options_of_other_parts_are_refused_as_they_were_typed(tmp_path):
    here = ["--out", str(tmp_path)]
    assert refused("table1", "--net-seeds", "2", *here) == "table1 takes no --net-seeds"
    assert refused("all", "--rho", "0.01", *here) == "all takes no --rho"
    assert (
        refused("overview", "--size", "full", "--results-only", *here)
        == "overview takes no --size, --results-only; its options are --dataset"
    )
    message = refused("table2", "--families", "deep", *here)
    assert message.startswith("table2 takes no --families; its options are --data, --dataset, --size")
    assert "--rho" in message
    assert "--depth" in message
    assert "unknown part of the paper 'table9'" in refused("table9", "--size", "full", *here)
    assert refused("table9", *here).endswith("brier, overview, docs, anchor, simulate, all")
    for jobs in ("0", "-3"):
        message = refused("fraud", "--data", "nowhere.csv", "--jobs", jobs, *here)
        assert message == f"jobs must be at least 1, not {jobs}"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fraud", "--train-only", "--data", "nowhere.csv"], "no file nowhere.csv"),
        (["fraud", "--train-only", "--data", "nowhere.csv", "--net-seeds", "0"], "seeds must be at least 1"),
        (["fraud", "--plan", "--net-seeds", "0"], "seeds must be at least 1, not 0"),
        (["fraud", "--plan", "--repeats", "0"], "repeats must be at least 1, not 0"),
        (["fraud", "--plan", "--minutes", "nan"], "minutes must be at least 0, but is nan"),
        (["fraud", "--data", "nowhere.csv", "--minutes=-1"], "minutes must be at least 0, but is -1"),
        (["table2", "--train-only", "--data", "nowhere"], "nowhere"),
        (["table2", "--plan", "--size", "huge"], "size must be one of short"),
        (["table2", "--plan", "--stack", "0"], "stack must be at least 1, but is 0"),
        (["table2", "--plan", "--rho", "0.3"], "has no imbalance 0.3"),
        (["table2", "--train-only", "--data", "nowhere", "--rho", "0.3"], "has no imbalance 0.3"),
        (["table2", "--nonsense"], "unrecognized arguments: --nonsense"),
        ([], "the following arguments are required: NAME"),
    ],
)
def test_an_error_is_one_line(words, message, tmp_path):
    assert message in refused(*words, "--out", str(tmp_path))


def test_simulate(tmp_path):
    """The lines that losses learn on Gaussian clusters, the paper's or the user's own."""
    shown = printed("simulate", "--losses", "crossentropy", "alpha(0.5)", "--out", str(tmp_path / "new"))
    assert "0.974511" in shown  # cross entropy at 1 to 500
    assert "189.34" in shown  # the angle of alpha = 1/2
    assert (tmp_path / "new" / "simulation.png").stat().st_size > 10_000
    clusters = tmp_path / "clusters.toml"
    clusters.write_text(
        "[minority]\nweights=[1.0]\nmeans=[[1.0,1.0]]\ncovariances=[[[1.0,0.3],[0.3,0.5]]]\n"
        "[majority]\nweights=[1.0]\nmeans=[[0.0,0.0]]\ncovariances=[[[1.0,-0.2],[-0.2,2.0]]]\n"
    )
    words = ["simulate", "--losses", "alpha(0.5)", "--clusters", str(clusters), "--out", str(tmp_path)]
    assert "0.823372" in printed(*words)
    clusters.write_text("[minority]\nweights=[1.0]\n")
    assert "needs a section [minority] with weights, means, covariances" in refused(*words)


def test_the_command_starts_where_only_the_libraries_of_training_are(tmp_path):
    absent = ("typer", "rich", "matplotlib", "plotly", "polars", "lightgbm", "xgboost")
    script = (
        f"import sys\nfor name in {absent}: sys.modules[name] = None\n"
        "from reproduction.__main__ import main\n"
        f"sys.exit(main(['table2', '--plan', '--out', {str(tmp_path)!r}]))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "table2" in ended.stdout


def test_help_names_every_part_and_shows_the_options_of_the_part_asked_for(capsys):
    assert set(PARTS) <= set(_help(capsys).split())
    for name in PARTS:
        options = set(re.findall("--[a-z-]+", _help(capsys, name).partition("examples:")[0]))
        own = () if name == ALL else options_of(name)
        assert options - {"--help"} == {f"--{_typed(option)}" for option in ("out", "seed", *own)}


def _help(capsys, *words):
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    return capsys.readouterr().out


def _typed(option):
    spelled = {"rhos": "rho", "roles": "role", "complete": "part-of-set", "figures": "no-figures"}
    return spelled.get(option, option.replace("_", "-"))
