"""`raresight fit` on tables as they come: a good model or one clear sentence, never a traceback."""

from __future__ import annotations

import json
import sys

import pytest

import raresight
from hostile_tables import CASES
from raresight import cli

SLOW = {"5,000 columns"}


def run(monkeypatch, capsys, arguments):
    """The command in this process: what it printed, and its exit status."""
    monkeypatch.setattr(sys, "argv", ["raresight", *arguments])
    status = 0
    try:
        cli.main()
    except SystemExit as stop:
        status = stop.code or 0
    printed = capsys.readouterr()
    return status, printed.out, printed.err


@pytest.mark.filterwarnings("default")  # the command shows warnings; it must not die of one
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.slow) if case.name in SLOW else case for case in CASES],
    ids=lambda case: case.name,
)
def test_hostile_table(case, tmp_path, monkeypatch, capsys):
    source = case.write(tmp_path)
    out = tmp_path / "out"
    arguments = ["fit", str(source), "--target", case.target, "--out", str(out), "--jobs", "1", "--json"]
    options = [str(tmp_path / "test.csv") if option == "TEST" else option for option in case.options]
    if "--families" not in options:
        arguments += ["--families", case.families]
    if "--losses" not in options:
        arguments += ["--losses", "crossentropy,tbl"]
    if "--budget" not in options:
        arguments += ["--trials", str(case.trials)]
    status, printed, told = run(monkeypatch, capsys, [*arguments, *options])
    assert "Traceback" not in printed + told
    if case.error is not None:
        assert status != 0
        lines = [line for line in told.strip().splitlines() if line.startswith("error:")]
        assert len(lines) == 1, told
        assert case.error in lines[0]
        assert len(lines[0]) < 400
        assert not (out / "model").exists()
        return
    assert status == 0, told
    outcome = json.loads(printed)
    recall = outcome["evaluation"]["intervals"]["recall_at_fpr"]
    assert 0 <= recall["low"] <= recall["estimate"] <= recall["high"] <= 1
    assert (out / "report.html").stat().st_size < 3_000_000
    model = raresight.load(out / "model")
    dropped = " ".join(f"{column.name} {column.reason}" for column in model.schema.dropped)
    notes = " ".join(column["note"] for column in outcome["columns"])
    assert case.says in dropped + notes + " ".join(outcome["warnings"])


def test_there_are_enough_cases():
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
