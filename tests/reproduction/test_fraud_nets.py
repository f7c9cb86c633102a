"""The deep families on the fraud table: the journal is gone on with, and no family's results are lost."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from dataclasses import asdict
from types import SimpleNamespace

import pandas as pd
import pytest

from commands import run
from deep_journals import tables
from raresight.common.journal import read_journal, write_journal
from raresight.deep.net_plans import NET_SIZES
from raresight.tables.sample import sample_path
from reproduction import reproduce
from reproduction.__main__ import main
from reproduction.fraud import net_training as fraud_nets
from reproduction.fraud.methods import LOSS_METHODS, METRICS
from reproduction.fraud.net_stack import NetSetup
from reproduction.fraud.net_training import NO_GPU, SETUPS, planned_seconds, train_cells
from reproduction.fraud.table import read_card_fraud, save_card_fraud
from tiny_fraud import write_tiny_fraud


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_tiny_fraud(tmp_path_factory.mktemp("fraud"), rows=640, share=0.08, shift=3)


def arguments(table, out):
    few = ["--families", "tabnet", "--net-seeds", "1", "--net-epochs", "2", "--repeats", "1"]
    return ["fraud", "--train-only", "--data", str(table), "--out", str(out), "--device", "cpu", *few]


@pytest.fixture(scope="module")
def journal(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    assert main([*arguments(table, out), "--minutes", "0"]) == 3
    assert not (out / "deep" / "fraud.jsonl.xz").exists()
    assert main(arguments(table, out)) == 0
    return out / "deep" / "fraud.jsonl.xz"


def timeless(record):
    methods = {
        name: {key: value for key, value in found.items() if key != "seconds"}
        for name, found in record["methods"].items()
    }
    return {**record, "methods": methods, "seconds": None, "date": None}


def test_a_line_says_all_of_a_split(journal):
    lines = read_journal(journal)
    places = [(line["fit"]["split"], line["fit"]["fold"]) for line in lines]
    assert places == [("random", 0), ("random", 1), ("random", 2), ("random", 3), ("time", 0)]
    for line in lines:
        assert line["nets"] == 22
        assert list(line["methods"]) == list(LOSS_METHODS)
        assert {"setup", "settings", "seed", "table"} < set(line["fit"])
        assert {"device", "versions", "date", "failures"} < set(line)
        assert all(len(net) == line["epochs"] for nets in line["history"].values() for net in nets)
        for method, found in line["methods"].items():
            scores = found["validation_scores"]
            assert scores[found["chosen"]] == max(scores.values())
            assert 1 <= found["best_epochs"][0] <= line["epochs"]
            gaps = {gap["metric"]: gap["difference"] for gap in found["differences"]["cross entropy"]}
            reference = line["methods"]["cross entropy"]
            assert gaps == pytest.approx({name: found[name] - reference[name] for name in METRICS}, abs=1e-12)
            if method == "TBL":
                assert all(gap["difference"] == 0 for gap in found["differences"]["TBL"])
        assert line["methods"]["class weights"]["brier_score"] < 0.15


def test_finished_splits_are_not_trained_again(journal, table, tmp_path):
    (tmp_path / "deep").mkdir()
    copy = tmp_path / "deep" / "fraud.jsonl.xz"
    content = journal.read_bytes()
    copy.write_bytes(content)
    assert main(arguments(table, tmp_path)) == 0
    assert copy.read_bytes() == content
    # What is torn is trained again, to the same numbers.
    copy.write_bytes(content[:-200])
    assert main(arguments(table, tmp_path)) == 0
    before, after = read_journal(journal), read_journal(copy)
    assert after[:-1] == before[:-1]
    assert timeless(after[-1]) == timeless(before[-1])


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def of_family(rows, family):
    return [row for row in rows if row["family"] == family]


@pytest.fixture(scope="module")
def together(journal, table, tmp_path_factory):
    """A folder with a linear family, then with nets beside it."""
    out = tmp_path_factory.mktemp("together")
    shown = {"data": table, "methods": ["cross entropy", "TBL", "undersampling"], "repeats": 1}
    reproduce("fraud", out, families=["linear"], jobs=1, **shown)
    before = {name: read(out / name) for name in ("fraud.csv", "fraud_splits.csv")}
    shutil.copy(journal, out / "deep" / "fraud.jsonl.xz")
    nets = {**shown, "families": ["tabnet"], "net_seeds": 1, "net_epochs": 2, "results_only": True}
    paths = reproduce("fraud", out, **nets)
    written = {path: path.read_bytes() for path in paths if path.suffix not in (".png", ".svg")}
    reproduce("fraud", out, **{**nets, "data": None})
    assert {path: path.read_bytes() for path in written} == written  # without the table, too
    return out, before, paths, shown


def test_other_families_are_kept(together):
    out, before, paths, shown = together
    assert [path.name for path in paths] == [
        "fraud_splits.csv", "fraud.csv", "fraud.md", "fraud.svg", "fraud.png",
        "fraud_rivals.csv", "fraud_rivals.md", "fraud_about.json",
    ]  # fmt: skip
    after = {name: read(out / name) for name in before}
    for name, rows in before.items():
        assert of_family(after[name], "linear") == rows
    assert {row["method"] for row in of_family(after["fraud.csv"], "tabnet")} == {"cross entropy", "TBL"}
    assert {row["seeds"] for row in of_family(after["fraud.csv"], "tabnet")} == {"1"}
    # The other way round nothing changes at all: the linear fits are the same again.
    tables("fraud", out, families=["linear"], jobs=1, **shown)
    again = {name: read(out / name) for name in before}
    for name in before:
        assert [{**row, "seconds": ""} for row in again[name]] == [
            {**row, "seconds": ""} for row in after[name]
        ]


def test_table_says_how_nets_were_trained(together, journal):
    out, *_ = together
    text = (out / "fraud.md").read_text()
    device = read_journal(journal)[0]["device"]
    assert f"#### tabnet, 4 folds\n\nFor each loss setting one net on {device}.\n" in text
    assert "#### linear, the last quarter in time\n\n|" in text


def test_tables_say_for_how_many_epochs_nets_were_trained(together, journal, table, tmp_path):
    """Of a method whose patience ended fewer than of its stack, by what the journal says of each."""
    out, *_ = together
    lines = read_journal(journal)
    for line in lines:
        tbl = line["methods"]["TBL"]
        tbl["best_epochs"] = [1]
        if line["fit"]["fold"] == 0:
            for loss in tbl["validation_scores"]:
                line["history"][loss] = [[0.5, None]]
    for name in ("fraud.csv", "fraud_splits.csv", "fraud_about.json"):
        shutil.copy(out / name, tmp_path)
    (tmp_path / "deep").mkdir()
    write_journal(tmp_path / "deep" / "fraud.jsonl.xz", lines)
    few = {"families": ["tabnet"], "net_seeds": 1, "net_epochs": 2, "repeats": 1, "results_only": True}
    tables("fraud", tmp_path, **few)
    text = (tmp_path / "fraud.md").read_text()
    assert (
        "Epochs of nets are those that a method was trained for, over the splits, until its patience" in text
    )
    nets = text.split("#### tabnet, 4 folds")[1].split("####")[0]
    assert "| Brier score x 1e6 | epochs | best epochs |" in nets
    cells = {row.split(" | ")[0].strip("| "): row.split(" | ")[-2:] for row in nets.splitlines()}
    assert cells["TBL"] == ["1 to 2", "1 |"]
    assert cells["cross entropy"][0] == "2"
    # What is no net has none.
    linear = text.split("#### linear, 4 folds")[1].split("####")[0]
    assert "Brier score x 1e6 |\n" in linear
    splits = read(tmp_path / "fraud_splits.csv")
    assert {row["epochs"] for row in of_family(splits, "linear")} == {""}
    own = [row for row in of_family(splits, "tabnet") if row["method"] == "TBL"]
    assert [(row["split"], row["fold"], row["epochs"], row["best_epochs"]) for row in own] == [
        *(("random", str(fold), "2" if fold else "1", "1") for fold in range(4)),
        ("time", "0", "1", "1"),
    ]
    assert (
        "Epochs that methods were trained for: tabnet 1 to 2.\n" in (tmp_path / "fraud_rivals.md").read_text()
    )
    rival = next(row for row in read(tmp_path / "fraud_rivals.csv") if row["rival"] == "poly")
    assert (rival["epochs"], rival["TBL epochs"]) == ("2", "1 to 2")


def test_rivals_stand_beside_the_paper(together, journal):
    out, *_ = together
    text = (out / "fraud_rivals.md").read_text()
    # 39.14 - 38.44 points of recall, standard error sqrt((0.32^2 + 0.07^2) / 3) = 0.189 with 2.19 degrees of
    # freedom, whose quantile is 3.96.
    assert "| LDAM | -0.31 [-0.94, +0.32] | +0.70 [-0.05, +1.45] |" in text
    assert "a loss that wants another step size is at a disadvantage" in text
    once = "4 folds; the last quarter in time"
    assert f"Intervals of splits that were drawn once ({once}) leave out the luck of training." in text
    rows = [
        row
        for row in read(out / "fraud_rivals.csv")
        if (row["split"], row["rival"], row["metric"]) == ("time", "focal", "roc_auc")
    ]
    time = read_journal(journal)[-1]["methods"]
    assert float(rows[0]["difference"]) == pytest.approx(time["TBL"]["roc_auc"] - time["focal"]["roc_auc"])


def test_what_does_not_belong_is_refused(together, table, tmp_path):
    out, *_ = together
    other = pd.read_csv(table).iloc[:500]
    other.to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(ValueError, match="are of a table with"):
        tables("fraud", out, data=tmp_path / "other.csv", families=["xgboost"], repeats=1)
    few = {"net_seeds": 1, "net_epochs": 2, "results_only": True}
    with pytest.raises(ValueError, match="has no result of tabm"):
        tables("fraud", out, data=table, families=["deep"], repeats=1, **few)
    # What differs is said: here the epochs.
    with pytest.raises(ValueError, match="of tabnet with 1 nets per setting and at most 3 epochs"):
        tables("fraud", out, families=["tabnet"], repeats=1, **{**few, "net_epochs": 3})
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        tables("fraud", out, data=table, families=["tabm"], net_seeds=0)


def test_command_shows_what_is_at_hand(together, table, tmp_path):
    out, *_ = together
    shutil.copytree(out / "deep", tmp_path / "deep")
    words = ["fraud", "--data", str(table), "--out", str(tmp_path), "--families", "tabnet"]
    shown = run(*words, "--repeats", "1", "--net-seeds", "1", "--net-epochs", "2")
    assert shown.exit_code == 0, shown.stderr
    assert len(of_family(read(tmp_path / "fraud_splits.csv"), "tabnet")) == 5 * len(LOSS_METHODS)
    assert "left, 22 losses x 3 seeds" in run("fraud", "--plan").stdout


def as_if_tabm(line):
    """The line of a TabNet as if a TabM had been trained to the same numbers."""
    fit = {**line["fit"], "family": "tabm", "sizes": dict(NET_SIZES["tabm"])}
    fit["setup"] = {**asdict(SETUPS["tabm"]), "seeds": 1, "epochs": 2}
    return {**line, "fit": fit}


def test_rivals_are_of_all_nets_in_the_journal(journal, table, tmp_path):
    lines = read_journal(journal)
    (tmp_path / "deep").mkdir()
    write_journal(tmp_path / "deep" / "fraud.jsonl.xz", [*map(as_if_tabm, lines), *lines])
    shown = {"data": table, "repeats": 1, "net_seeds": 1, "net_epochs": 2, "results_only": True}
    tables("fraud", tmp_path, families=["tabnet"], **shown)
    rivals = read(tmp_path / "fraud_rivals.csv")
    assert list(dict.fromkeys(row["family"] for row in rivals)) == ["tabnet", "tabm"]
    assert {row["family"] for row in read(tmp_path / "fraud.csv")} == {"tabnet"}
    # Methods shown before stay, from the journal.
    tables("fraud", tmp_path, families=["tabm"], methods=["TBL"], **shown)
    tables("fraud", tmp_path, families=["tabm"], methods=["poly"], **shown)
    methods = {row["method"] for row in of_family(read(tmp_path / "fraud.csv"), "tabm")}
    assert methods == {"cross entropy", "TBL", "poly"}


def test_minutes_stop_the_nets(journal, table, tmp_path):
    words = ["fraud", "--data", str(table), "--out", str(tmp_path), "--families", "tabnet"]
    words += ["--repeats", "1", "--net-seeds", "1", "--net-epochs", "2", "--device", "cpu", "--minutes", "0"]
    (tmp_path / "deep").mkdir()
    copy = tmp_path / "deep" / "fraud.jsonl.xz"
    write_journal(copy, read_journal(journal)[:3])
    before = copy.read_bytes()
    stopped = run(*words)
    assert stopped.exit_code == 0, stopped.stderr
    assert copy.read_bytes() == before
    assert "#### tabnet, 3 folds of 1 times 4" in (tmp_path / "fraud.md").read_text()
    # With nothing to show it is not an error, but not the end either.
    copy.unlink()
    stopped = run(*words)
    assert stopped.exit_code == 3
    assert "out of time" in stopped.stderr
    assert "no split of tabnet was finished; --minutes must be enough for one" in stopped.stderr


def test_the_plan_counts_what_the_journal_has(journal, table, tmp_path):
    (tmp_path / "deep").mkdir()
    write_journal(tmp_path / "deep" / "fraud.jsonl.xz", read_journal(journal)[:3])
    words = ["fraud", "--plan", "--families", "tabnet", "--repeats", "1", "--out", str(tmp_path)]
    few = ["--net-seeds", "1", "--net-epochs", "2"]
    assert "tabnet: 5 splits, 2 left" in run(*words, *few).stdout
    assert "tabnet: 5 splits, 5 left" in run(*words).stdout
    assert "tabnet: 5 splits, 5 left" in run(*words, *few, "--seed", "1").stdout
    # Of a table that is given only its own results count.
    for given, left in ((table, 2), (sample_path(), 5)):
        assert f"tabnet: 5 splits, {left} left" in run(*words, *few, "--data", str(given)).stdout


def test_what_would_not_end_in_time_is_not_begun(journal, table, tmp_path, monkeypatch):
    """Where nobody knows how long a cell takes it is expected to take as long as the longest of the run."""
    (first, *_), told = read_journal(journal), []
    monkeypatch.setattr(fraud_nets, "_trained", lambda *_: {**first, "device": "another", "seconds": 100.0})
    setup = NetSetup("tabnet", seeds=1, epochs=2)
    left = train_cells(
        read_card_fraud(table), tmp_path / "fraud.jsonl.xz", [setup],
        repeats=1, device="cpu", minutes=1.5, tell=told.append,
    )  # fmt: skip
    assert left == 4
    assert told[-1].startswith("tabnet, random 0.1: not started, ")


def test_a_family_that_is_too_slow_leaves_the_time_to_another(journal, table, tmp_path, monkeypatch):
    """Else a time that is too short for the first would never bring anything, however often it is called."""
    (first, *_), told = read_journal(journal), []
    setups = [NetSetup("tabm", seeds=1, epochs=2), NetSetup("tabnet", seeds=1, epochs=2)]
    seconds = {"tabm": 300.0, "tabnet": 40.0}
    monkeypatch.setattr(fraud_nets, "planned_seconds", lambda setup, *_: seconds[setup.net])

    def trained(cell, table, rows, about, seed, *_):
        return {**first, "fit": fraud_nets._fit_of(cell, about, seed)}

    monkeypatch.setattr(fraud_nets, "_trained", trained)
    left = train_cells(
        read_card_fraud(table), tmp_path / "deep" / "fraud.jsonl.xz", setups,
        repeats=1, device="cpu", minutes=2, tell=told.append,
    )  # fmt: skip
    assert left == 5
    assert [line for line in told if "not started" in line] == [told[0]]
    assert told[0].startswith("tabm, random 0.0: not started, 1")
    lines = read_journal(tmp_path / "deep" / "fraud.jsonl.xz")
    assert [line["fit"]["family"] for line in lines] == 5 * ["tabnet"]
    # What there is of the other is shown, though time ran out.
    reproduce(
        "fraud", tmp_path, data=table, families=["deep"], repeats=1, net_seeds=1, net_epochs=2,
        device="cpu", minutes=2,
    )  # fmt: skip
    assert {row["family"] for row in read(tmp_path / "fraud.csv")} == {"tabnet"}


def test_an_epoch_that_would_end_too_late_is_not_begun(table, tmp_path, monkeypatch):
    now, epochs = [0.0], []

    def three_epochs(*_, after_epoch, **__):
        for epoch in (1, 2, 3):
            now[0] += 40
            epochs.append(epoch)
            after_epoch(epoch)

    monkeypatch.setattr(fraud_nets, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(fraud_nets, "fit_methods", three_epochs)
    told = []
    left = train_cells(
        read_card_fraud(table), tmp_path / "fraud.jsonl.xz", [NetSetup("tabnet", seeds=1, epochs=3)],
        repeats=1, device="cpu", minutes=1.9, tell=told.append,
    )  # fmt: skip
    # The second ends after 80 seconds of 114; a third would after 120.
    assert (left, epochs, told[-1]) == (5, [1, 2], "1 of 5: tabnet, random 0.0: stopped, out of time")


def test_a_line_that_is_no_result_is_named(journal, table, tmp_path, capsys):
    lines = read_journal(journal)
    (tmp_path / "deep").mkdir()
    write_journal(tmp_path / "deep" / "fraud.jsonl.xz", [lines[0], {"nets": 3}, *lines[2:]])
    assert main(arguments(table, tmp_path)) == 2
    error = capsys.readouterr().err
    assert "has no result in line 2 (it has no 'fit'): unpack it, remove that line" in error
    assert error.count("\n") == 1


def test_without_a_gpu_the_time_is_said_to_be_unknown(journal, table, tmp_path):
    told = []
    with pytest.raises(_StopError):
        train_cells(
            read_card_fraud(table), tmp_path / "fraud.jsonl.xz", [NetSetup("tabnet", seeds=1, epochs=1)],
            repeats=1, device="cpu", tell=lambda text: told.append(text) or stop(),
        )  # fmt: skip
    assert told == [f"1 of 5: tabnet, random 0.0; {NO_GPU}"]
    assert "one epoch of TabM took six minutes" in NO_GPU


class _StopError(Exception):
    """Ends a training at its first word."""


def stop():
    raise _StopError


def test_time_is_known_from_the_journal(journal):
    line = read_journal(journal)[0]
    setup = SETUPS["tabnet"].__class__(**line["fit"]["setup"])
    assert planned_seconds(setup, line["device"], [line]) == line["seconds"]
    assert planned_seconds(setup, "another", [line]) is None
    assert planned_seconds(SETUPS["tabnet"], "NVIDIA H200", [line]) > 1


def test_arrays_and_torch_suffice(table, tmp_path):
    written = save_card_fraud(read_card_fraud(table), tmp_path / "table.npz")
    absent = ("pandas", "pyarrow", "typer", "rich", "matplotlib")
    script = (
        f"import sys\nfor name in {absent}: sys.modules[name] = None\n"
        "from reproduction.__main__ import main\n"
        f"sys.exit(main({[*arguments(written, tmp_path), '--minutes', '0']}))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 3, ended.stderr
    assert "5 left" in ended.stderr
