"""Losses at a rate beyond those that were chosen from, from journals whose numbers are known."""

from __future__ import annotations

import pytest

from deep_journals import SHORT, one, rows_of, tables, write_journal
from reproduction.__main__ import main
from reproduction.experiments.budget import plan
from reproduction.experiments.net_trial import DATASETS, SIZES
from reproduction.experiments.report import beyond_lines, not_trained
from reproduction.experiments.results import find_results, missing_lines
from reproduction.experiments.trials import BEYOND_METHODS, EXPERIMENTS, Cell, beyond_rate, cell_trials
from reproduction.training_records import add_records, journal_path, read_records
from tiny_cifar import write_tiny_cifar10

FULL = SHORT.at(SIZES["full"])
TABLE2 = EXPERIMENTS["table2"]
TITLE = "#### One rate beyond those that were chosen from"
# What three times the rate adds to each loss: cross entropy gains what TBL has, and TBL nothing.
GAINS = {"CE": 0.02, "CE+LA": 0.04, "alpha+LA": 0.01, "TBL": 0.0, "TBL+LA": -0.05}


def write_both(folder, gains=GAINS, leave_out=lambda trial: False):
    """A journal of the full length in which the rate beyond adds so much on test and validation rows."""
    finished = write_journal(folder, "table2", FULL, leave_out=lambda trial: trial.role == "beyond")
    further = [trial for cell in TABLE2.cells for trial in beyond_of(cell, finished) if not leave_out(trial)]
    same = {
        (
            record["trial"]["rho"],
            record["trial"]["draw"],
            record["trial"]["method"],
            record["trial"]["seed"],
        ): (record)
        for record in finished.values()
        if record["trial"]["role"] == "final"
    }
    records = []
    for trial in further:
        found = same[trial.rho, trial.draw, trial.method, trial.seed]
        # The luck of a seed is not quite the same at another rate, so that intervals have a width.
        more = gains[trial.method] + {0: 0.001, 1: 0.0, 2: -0.001}[trial.seed]
        curve = {
            name: [value + more for value in values] if name.startswith(("test", "validation")) else values
            for name, values in found["curve"].items()
        }
        records.append({**found, "trial": trial.to_dict(), "curve": curve})
    add_records(journal_path(folder / "deep", "table2", "cifar10"), records)
    return finished


def part_of(finished):
    """The part of the page, as the journal's records have it."""
    return "\n".join(
        beyond_lines(*(find_results(TABLE2, SHORT, finished, role) for role in ("final", "beyond")))
    )


def beyond_of(cell, finished, setup=FULL):
    return cell_trials(TABLE2, cell, setup, finished).get("beyond", [])


def test_trials_beyond_have_the_chosen_parameters_and_three_times_the_largest_rate(tmp_path):
    finished = write_journal(tmp_path, "table2", FULL, leave_out=lambda trial: trial.role == "beyond")
    assert beyond_rate("cifar10") == 3 * max(DATASETS["cifar10"].lrs)
    for rho in (0.01, 0.1):
        cell = Cell("halves", rho)
        trials = beyond_of(cell, finished)
        # Two draws, three seeds.
        assert len(trials) == 6 * len(BEYOND_METHODS)
        assert {trial.lr for trial in trials} == {0.06}
        final = cell_trials(TABLE2, cell, FULL, finished)["final"]
        chosen = {(trial.method, trial.draw, trial.seed): trial.parameters for trial in final}
        for trial in trials:
            assert trial.parameters == chosen[trial.method, trial.draw, trial.seed]
            assert (trial.epochs, trial.held_out, trial.role) == (250, True, "beyond")
    assert beyond_of(Cell("halves", 0.05), finished) == []
    # Before the search they are counted, and not known.
    assert beyond_of(Cell("halves", 0.01), {}) == []
    counted = {line.role: (line.trainings, line.left) for line in plan("table2", FULL)}
    assert counted["beyond"] == (60, 60)
    assert [line.role for line in plan("table2", SHORT)] == ["search", "final", "paper"]
    assert [line.role for line in plan("table4", FULL)] == ["search", "final", "paper"]


def test_what_is_missing_beyond_is_told_where_the_length_is_asked_for(tmp_path):
    finished = write_journal(tmp_path, "table2", FULL, leave_out=lambda trial: trial.role == "beyond")
    lines = [f"halves, rho {rho:g}: 30 of 30 beyond trainings of 250 epochs" for rho in (0.01, 0.1)]
    assert missing_lines(TABLE2, FULL, finished) == lines
    assert not_trained(TABLE2, FULL, finished, is_asked=True) == lines
    # It is not begun, and nobody asked for it.
    assert not_trained(TABLE2, SHORT, finished, is_asked=False) == []
    assert part_of(finished) == ""


def test_each_loss_has_its_choice_of_the_two_rates(tmp_path):
    write_both(tmp_path)
    numbers, page = tables("table2", tmp_path)[:2]
    text = page.read_text()
    part = text.split(TITLE)[1].split("####")[0]
    assert "at a learning rate of 0.06, three times the largest" in part
    assert part.count("**halves, rho") == 2
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in part.splitlines() if "|" in line}
    # In the epoch chosen on validation: 0.7, the gains, 0.01 of that epoch and 0.055 of luck; the interval is
    # t(4) 0.001 / sqrt(6) wide to each side.
    assert rows["CE+LA"][1:5] == ["lr=0.02", "76.50", "80.50", "**+4.00** [+3.89, +4.11]"]
    assert rows["TBL"][1:5] == ["alpha=0.7 C=0.5 lr=0.02", "78.50", "78.50", "+0.00 [-0.11, +0.11]"]
    assert rows["TBL+LA"][4] == "**-5.00** [-5.11, -4.89]"
    last = {method: cells[-1].strip(" |") for method, cells in rows.items()}
    assert [last[method] for method in ("CE", "CE+LA", "alpha+LA", "TBL+LA")] == [
        "0.06",
        "0.06",
        "0.06",
        "0.02",
    ]
    # TBL+LA stays at 0.02 and has 79.5; CE+LA has 80.5 at 0.06.
    assert part.count(": contradicted.") == 2
    assert (
        "With loss, rate and epoch chosen on validation rows: TBL+LA at alpha=0.7 C=0.5 lr=0.02 less CE+LA "
        "at lr=0.06, **-1.00** "
    ) in part
    found = one(
        rows_of(numbers),
        settings="beyond the rates chosen from",
        rho=0.1,
        method="CE+LA",
        metric="roc_auc",
        when="validation",
    )
    assert float(found["mean"]) == pytest.approx(0.805)
    assert found["setting"] == "lr=0.06"


def test_a_lead_that_a_larger_rate_does_not_close_is_held(tmp_path):
    write_both(tmp_path, dict.fromkeys(GAINS, 0.01), leave_out=lambda trial: trial.rho == 0.1)
    finished = read_records(journal_path(tmp_path / "deep", "table2", "cifar10"))
    part = part_of(finished)
    assert part.startswith(TITLE)
    assert part.count("**halves, rho") == 1
    assert (
        "TBL+LA at alpha=0.7 C=0.5 lr=0.06 less CE+LA at lr=0.06, **+3.00** [+2.66, +3.34]: confirmed."
        in part
    )
    # The cell that was not begun is not asked for.
    assert not_trained(TABLE2, SHORT, finished, is_asked=False) == []


def test_a_training_beyond_that_never_had_a_score_is_not_chosen(tmp_path):
    finished = write_both(tmp_path, leave_out=lambda trial: True)
    trials = [trial for rho in (0.01, 0.1) for trial in beyond_of(Cell("halves", rho), finished)]
    some = next(record for record in finished.values() if record["trial"]["role"] == "final")
    nothing = {
        name: [None] * len(values) if name.startswith(("test", "validation")) else values
        for name, values in some["curve"].items()
    }
    lost = [{**some, "trial": trial.to_dict(), "curve": nothing, "frozen": "loss"} for trial in trials]
    part = part_of({**finished, **{trial.key: one for trial, one in zip(trials, lost, strict=True)}})
    lost = "| CE+LA (6 not finite at 0.06) | lr=0.02 | 76.50 | - | - [-, -] | 75.50 | - | - [-, -] | 0.02 |"
    assert lost in part
    assert (
        "TBL+LA at alpha=0.7 C=0.5 lr=0.02 less CE+LA at lr=0.02, **+3.00** [+2.66, +3.34]: confirmed."
        in part
    )


def test_a_rate_at_which_some_trainings_fail_is_not_chosen(tmp_path):
    """Though those that did not are better."""
    write_both(tmp_path, dict.fromkeys(GAINS, 0.2))
    finished = read_records(journal_path(tmp_path / "deep", "table2", "cifar10"))
    for record in finished.values():
        trial = record["trial"]
        if (trial["role"], trial["method"], trial["seed"]) == ("beyond", "TBL+LA", 1):
            record["frozen"] = "gradient not finite"
    part = part_of(finished)
    assert "| TBL+LA (2 not finite at 0.06) | alpha=0.7 C=0.5 lr=0.02 |" in part
    assert "rows: TBL at alpha=0.7 C=0.5 lr=0.06 less CE+LA at lr=0.06" in part


def test_a_search_that_they_do_not_need_is_not_asked_for(tmp_path, capsys):
    """At rho 0.05 nothing is trained beyond the rates, so that its search need not be there."""
    write_both(tmp_path)
    journal = journal_path(tmp_path / "deep", "table2", "cifar10")
    kept = [record for record in read_records(journal).values() if record["trial"]["rho"] != 0.05]
    journal.unlink()
    add_records(journal, kept)
    write_tiny_cifar10(tmp_path / "images")
    words = ["table2", "--train-only", "--size", "full", "--data", str(tmp_path / "images"), "--part-of-set"]
    assert main([*words, "--role", "beyond", "--out", str(tmp_path)]) == 0
    assert "table2: 0 trained" in capsys.readouterr().err
    assert main([*words, "--role", "beyond", "final", "--out", str(tmp_path)]) == 2
    assert "rho 0.05: 126 of 126 search trainings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["table2"], "--role beyond needs --size full (250 epochs)"),
        (
            ["table2", "--size", "full", "--rho", "0.05"],
            "and rho 0.01 and 0.1: there are no",
        ),
        (["table4", "--size", "full"], "table4 has no beyond trainings"),
    ],
)
def test_trainings_beyond_that_do_not_exist_are_an_error(tmp_path, capsys, words, told):
    assert main([*words, "--role", "beyond", "--out", str(tmp_path), "--plan"]) == 2
    assert told in capsys.readouterr().err


def test_before_the_search_they_wait(tmp_path, capsys):
    words = ["table2", "--size", "full", "--role", "beyond", "--out", str(tmp_path)]
    assert main([*words, "--plan"]) == 0
    assert "beyond        60        60    250" in capsys.readouterr().out
    write_tiny_cifar10(tmp_path / "images")
    assert main([*words, "--train-only", "--data", str(tmp_path / "images"), "--part-of-set"]) == 2
    told = capsys.readouterr().err
    assert "or all with --role search beyond" in told


def test_the_journal_keeps_them_apart_from_the_final_ones(tmp_path):
    write_both(tmp_path)
    roles = [
        record["trial"]["role"]
        for record in read_records(journal_path(tmp_path / "deep", "table2", "cifar10")).values()
    ]
    assert (roles.count("beyond"), roles.count("final")) == (60, 162)
