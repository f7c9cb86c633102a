"""The main job from Python and through the command, with real processes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import raresight
from hostile_tables import frame
from raresight.automl import choice, evaluation, fold_evaluation
from raresight.automl.wording import no_alert_note, search_summary
from raresight.cli.fit import _Narrator
from raresight.common.calibration import held_out_calibrator, two_columns
from raresight.common.progress import Silent
from raresight.metrics import recall_at_fpr

SMALL = {"families": "linear,lightgbm", "losses": "crossentropy,tbl", "fpr": 0.01, "max_fpr": 0.1}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    data = frame(rows=3000, positives=90)
    return data.assign(shop=np.where(data.a + data.index % 3 > 1, "north", "south"))


@pytest.fixture(scope="module")
def result(table):
    return raresight.fit(table, target="label", trials=6, jobs=1, **SMALL)


def outcome(folder):
    """What must not depend on interruptions: everything but the clock."""
    found = json.loads((folder / "evaluation.json").read_text())
    for name in ("made", "seconds"):
        found.pop(name)
    found["search"].pop("seconds")
    model = json.loads((folder / "model" / "model.json").read_text())
    board = pd.read_csv(folder / "leaderboard.csv").drop(columns="seconds").astype(str)
    return found, model["parts"], board.to_dict()


def test_result_is_whole(result):
    assert result.evaluation.rows == 750
    y, log_odds = result.held_out.y, result.held_out.log_odds
    assert result.evaluation["recall_at_fpr"].estimate == recall_at_fpr(y, log_odds, fpr=0.01)
    threshold = result.held_out.threshold
    assert np.mean(log_odds[y == 0] >= threshold.log_odds) == threshold.fpr_seen <= 0.01 < threshold.fpr_bound
    assert result.model.policy().threshold == threshold.log_odds
    assert {row.candidate.loss for row in result.leaderboard} >= {"crossentropy"}
    assert set(result.chosen) <= {row.candidate for row in result.leaderboard}
    assert result.winner in result.chosen
    assert result.loss_sentence.endswith(".")


def test_model_scores_any_kind_of_table(result, table, tmp_path):
    result.save(tmp_path / "saved")
    model = raresight.load(tmp_path / "saved" / "model")
    expected = result.model.log_odds(table)
    np.testing.assert_array_equal(model.log_odds(table), expected)
    np.testing.assert_array_equal(model.log_odds(pl.from_pandas(table)), expected)
    np.testing.assert_array_equal(model.alert(table), expected >= model.policy().threshold)
    assert (tmp_path / "saved" / "report.html").exists()


def test_probabilities_are_calibrated(result, table):
    mean = result.model.probability(table).mean()
    assert mean == pytest.approx(0.03, rel=0.15)


def test_probabilities_of_a_model_that_overfits_are_calibrated(monkeypatch):
    """By rows that it did not see: its own say that it is right."""
    seen = []
    pulling = evaluation.influential_rows
    monkeypatch.setattr(evaluation, "influential_rows", lambda *given: seen.append(given) or pulling(*given))
    # One look, after far too many rounds.
    monkeypatch.setattr(fold_evaluation, "_step", lambda rounds: 200)
    monkeypatch.setattr(fold_evaluation, "MOST_ROUNDS", 200)
    random = np.random.default_rng(0)
    X = random.normal(size=(3000, 6))
    y = random.random(3000) < 1 / (1 + np.exp(3 - X[:, 0]))
    table = pd.DataFrame(X, columns=list("abcdef")).assign(label=y)
    result = raresight.fit(
        table, target="label", families="lightgbm", losses="crossentropy", trials=1, jobs=1, fpr=0.05
    )
    slope, level = (result.model.facts["calibration"][name] for name in ("slope", "level"))
    assert slope < 0.7
    # So are those of the rows that pull.
    _, task, _, odds = seen[0]
    assert held_out_calibrator(two_columns(odds), task.y).slope == pytest.approx(1, abs=0.02)
    assert result.model.calibrator.slope == slope
    after = result.held_out.log_odds
    before = (after - level) / slope

    def log_loss(odds):
        return np.logaddexp(0, np.where(result.held_out.y == 1, -odds, odds)).mean()

    assert log_loss(after) < 0.97 * log_loss(before)
    share = result.held_out.y.mean()
    assert log_loss(after) < -share * np.log(share) - (1 - share) * np.log(1 - share)


def test_a_blend_is_one_model(table, monkeypatch, tmp_path):
    """Fitted, saved, shown and scored as one; `single` forbids it."""
    # Whatever the out-of-fold rows say, so that there is one.
    monkeypatch.setattr(choice, "simplest", lambda found, task: found.trials[1])
    monkeypatch.setattr(choice, "blend", lambda found, task: (list(found.trials[:2]), [0.75, 0.25]))
    blended, alone = (
        raresight.fit(table, target="label", trials=2, jobs=1, single=single, **SMALL)
        for single in (False, True)
    )
    assert [one.family for one in blended.chosen] == ["lightgbm", "linear"]
    assert [one.family for one in alone.chosen] == ["linear"]
    assert (blended.held_out.against_single is None, alone.held_out.against_single is None) == (False, True)
    assert "--single" in alone.command
    assert "--single" not in blended.command
    # The heavier one has the name; slopes of its members moved the weights.
    described = blended.to_dict()["model"]["members"]
    assert sum(one["weight"] for one in described) == pytest.approx(1)
    assert max(described, key=lambda one: one["weight"])["family"] == blended.winner.family
    assert blended.verdict.kind.startswith("blend_")
    assert {"linear", "lightgbm"} == {
        row.candidate.family for row in blended.leaderboard if row.candidate in blended.chosen
    }
    assert blended.model.importance().sum() == pytest.approx(1)
    blended.save(tmp_path / "saved")
    loaded = raresight.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.log_odds(table), blended.model.log_odds(table))
    assert loaded.probability(table).mean() == pytest.approx(0.03, rel=0.25)
    # The comparison with the single candidate is that of the two models.
    difference = blended.held_out.against_single.difference
    areas = [one.evaluation["partial_auc"].estimate for one in (blended, alone)]
    assert difference == pytest.approx(areas[0] - areas[1], abs=1e-9)


def test_a_budget_holds_the_search_and_the_fits(table):
    begin = time.monotonic()
    result = raresight.fit(table, target="label", budget="6s", jobs=1, **SMALL)
    assert result.search.stopped_by == "budget"
    assert result.search.planned is None
    assert result.search.done >= 2
    assert result.search.seconds < 10  # one candidate more
    assert time.monotonic() - begin < 6 + 20  # a busy machine


@pytest.mark.slow
def test_a_quick_fit_of_the_sample_takes_about_its_time(tmp_path):
    out = tmp_path / "out"
    begin = time.monotonic()
    run = command("fit", "sample", "--target", "Class", "--preset", "quick", "--jobs", "2", "--out", out)
    assert run.returncode == 0, run.stderr
    assert time.monotonic() - begin < 4 * 30  # the machine may be busy
    assert "the fit takes about 30" in run.stderr
    found = json.loads((out / "evaluation.json").read_text())
    assert found["search"]["stopped_by"] == "budget"
    assert found["search"]["complete"] >= 2
    assert found["seconds"] < 2 * 30


@pytest.mark.slow
def test_same_seed_same_outcome(table, result):
    again = raresight.fit(table, target="label", trials=6, jobs=2, **SMALL)
    np.testing.assert_array_equal(again.held_out.log_odds, result.held_out.log_odds)
    assert [row.candidate for row in again.leaderboard] == [row.candidate for row in result.leaderboard]


def test_large_tables_are_sampled_in_the_search(table, monkeypatch):
    from raresight.tables import splits

    monkeypatch.setattr(splits, "MOST_NEGATIVES", 500)
    sampled = raresight.fit(table, target="label", trials=2, jobs=1, **SMALL)
    # The final model has seen all rows, and so has its level.
    assert sampled.model.probability(table).mean() == pytest.approx(0.03, rel=0.15)
    assert sampled.model.facts["data"]["training_rows"] == 2250


def test_a_search_without_time_has_its_first_candidate(table, tmp_path):
    result = raresight.fit(table, target="label", budget=0.01, jobs=1, **SMALL)
    assert result.search.stopped_by == "budget"
    assert result.search.done == 1
    assert "--trials 1 " in result.command + " "
    assert "--budget" not in result.command
    page = result.report(tmp_path / "report.html").read_text()
    assert search_summary(result.search) in page


def test_a_budget_no_threshold_keeps(tmp_path):
    generator = np.random.default_rng(0)
    y = np.arange(2000) % 20 == 0
    word = np.where(generator.random(2000) < np.where(y, 0.9, 0.1), "often", "seldom")
    result = raresight.fit(
        pd.DataFrame({"word": word, "y": y}), target="y", trials=1, jobs=1, families="linear", fpr=0.01
    )
    assert "nan" not in str(result)
    assert no_alert_note(result.held_out) in str(result)
    assert result.evaluation.alerts == 0
    assert "nan" not in (result.report(tmp_path / "page.html").read_text().lower().split("<script")[0])


def test_class_counts_are_those_of_all_rows(table, monkeypatch):
    from raresight.tables import splits

    monkeypatch.setattr(splits, "MOST_NEGATIVES", 500)
    found = raresight.fit(
        table, target="label", trials=3, jobs=1, families="linear", losses="ldam", fpr=0.01, max_fpr=0.1
    )
    (ldam,) = [row.candidate.loss for row in found.leaderboard if "ldam" in row.candidate.loss]
    assert "class_counts=(2182,68)" in ldam or "class_counts=(2183,67)" in ldam


def test_a_place_that_cannot_be_written_is_refused_first(table, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        raresight.fit(table, target="label", out=tmp_path / "file" / "run", **SMALL)


# ---- the command -------------------------------------------------------------------------


def command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "raresight", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"COLUMNS": "200"},
        **options,
    )


def fit_arguments(source, out, *more):
    return [
        "fit", source, "--target", "label", "--families", "linear,lightgbm", "--losses", "crossentropy,tbl",
        "--fpr", "0.01", "--max-fpr", "0.1", "--trials", "8", "--out", out, *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def source(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "table.csv"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def uninterrupted(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "whole"
    run = command(*fit_arguments(source, out, "--jobs", "1"))
    assert run.returncode == 0, run.stderr
    return out, run


def test_command_tells_and_writes(uninterrupted):
    out, run = uninterrupted
    assert "catches" in run.stdout
    assert run.stdout.splitlines()[-1] == f"report: {out / 'report.html'}"
    assert "Searching" in run.stderr
    for name in ("model/model.json", "report.html", "leaderboard.csv", "evaluation.json", "run.json"):
        assert (out / name).exists()


def test_killed_at_random_moments_it_goes_on_to_the_same_outcome(source, uninterrupted, tmp_path):
    out = tmp_path / "killed"
    arguments = [sys.executable, "-m", "raresight", *map(str, fit_arguments(source, out, "--jobs", "2"))]
    generator = random.Random(0)
    scores = out / "search" / "scores"
    kills = 0
    # So many candidates are finished when it is killed, a random moment later; the last one is left alone.
    for finished in (0, 3, None):
        resume = ["--resume"] if (out / "run.json").exists() else []
        process = subprocess.Popen([*arguments, *resume], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        while finished is not None and process.poll() is None:
            if (out / "run.json").exists() and len(list(scores.glob("*.npy"))) >= finished:
                time.sleep(generator.uniform(0.0, 0.3))
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.02)
        told = process.communicate(timeout=300)[1]
        assert process.returncode in (0, -signal.SIGKILL), told.decode()
    assert process.returncode == 0
    assert kills >= 2
    assert outcome(out) == outcome(uninterrupted[0])


def test_interrupted_it_saves_the_best_so_far(source, tmp_path):
    out = tmp_path / "interrupted"
    arguments = [*fit_arguments(source, out, "--jobs", "2")]
    arguments[arguments.index("--trials") + 1] = "4000"
    process = subprocess.Popen(
        [sys.executable, "-m", "raresight", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Once two candidates are done.
    scores = out / "search" / "scores"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(scores.glob("[0-9].npy"))) < 2:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert "catches" in printed
    assert "Traceback" not in told
    assert json.loads((out / "evaluation.json").read_text())["search"]["stopped_by"] == "interrupted"
    raresight.load(out / "model")


def test_a_folder_with_a_run_is_not_overwritten(source, uninterrupted):
    out, _ = uninterrupted
    run = command(*fit_arguments(source, out))
    assert run.returncode == 1
    assert "--resume" in run.stderr


def test_resuming_something_else_is_refused(source, uninterrupted, table, tmp_path):
    out, _ = uninterrupted
    changed = tmp_path / "changed.csv"
    table.assign(a=table.a + 1).to_csv(changed, index=False)
    assert "data" in command(*fit_arguments(changed, out, "--resume")).stderr
    assert "seed" in command(*fit_arguments(source, out, "--resume", "--seed", "1")).stderr


def test_ctrl_c_while_reading_says_how_to_go_on(tmp_path):
    frame(rows=400_000, positives=900).to_csv(tmp_path / "large.csv", index=False)
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "raresight",
            *map(str, fit_arguments(tmp_path / "large.csv", tmp_path / "out")),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().strip() == "Reading the table"
    process.send_signal(signal.SIGINT)
    told = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "stopped; " in told
    assert "Traceback" not in told


def test_ctrl_c_after_the_search_waits_for_the_result(source, tmp_path):
    out = tmp_path / "out"
    arguments = fit_arguments(source, out, "--jobs", "1")
    arguments[arguments.index("--trials") + 1] = "2"
    process = subprocess.Popen(
        [sys.executable, "-m", "raresight", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("Fitting "):
        assert line, "it ended before the final fits"
    process.send_signal(signal.SIGINT)
    printed, told = process.communicate(timeout=120)
    assert process.returncode == 0, told
    assert "catches" in printed
    raresight.load(out)


def test_a_first_file_cut_short_does_not_block_the_folder(tmp_path):
    from raresight.automl.options import Options
    from raresight.automl.run_identity import open_run

    options = Options(target="y", trials=1, jobs=1)
    (tmp_path / ".run.json.123").write_text("{")
    open_run(tmp_path, options, "", resume=True)
    assert (tmp_path / "run.json").exists()
    (tmp_path / "run.json").unlink()
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(ValueError, match="not empty"):
        open_run(tmp_path, options, "", resume=True)


def test_score_and_show(source, uninterrupted, tmp_path):
    out, _ = uninterrupted
    scores = tmp_path / "scores.parquet"
    run = command("score", out, source, "--out", scores, "--keep", "shop")
    assert run.returncode == 0, run.stderr
    assert "3,000 rows" in run.stdout
    written = pd.read_parquet(scores)
    assert list(written.columns) == ["shop", "log_odds", "probability", "alert"]
    model = raresight.load(out)  # the run's folder will do
    np.testing.assert_array_equal(written.log_odds, model.log_odds(source))
    # What was held out is kept, so that other policies can be read from it.
    labels, held_out_scores, _ = model.held_out.rows()
    assert evaluation.find_threshold(labels, held_out_scores, 0.01).log_odds == model.policy().threshold
    shown = command("show", out)
    assert shown.returncode == 0, shown.stderr
    for word in (
        "label = 1",
        "false-positive rate",
        "by out-of-fold rows",
        "recall at fpr",
        "shop (categorical)",
    ):
        assert word in shown.stdout
    assert json.loads(command("show", out, "--json").stdout)["format"] == "raresight.model"


def test_score_refuses_a_damaged_model(source, uninterrupted, tmp_path):
    import shutil

    shutil.copytree(uninterrupted[0] / "model", tmp_path / "model")
    native = next((tmp_path / "model" / "member-1").iterdir())
    native.write_bytes(native.read_bytes()[:-10])
    run = command("score", tmp_path / "model", source, "--out", tmp_path / "scores.csv")
    assert run.returncode == 1
    assert "changed or truncated" in run.stderr
    assert not (tmp_path / "scores.csv").exists()


def test_columns_that_are_left_out_are_not_learnt_from(tmp_path):
    generator = np.random.default_rng(0)
    rare = np.arange(2000) % 40 == 0
    table = pa.table(
        {
            "x": generator.normal(size=2000) + rare,
            "leak": rare * 1.0 + 0.01 * generator.random(2000),
            "y": rare,
        }
    )
    options = {"target": "y", "families": "linear", "losses": "crossentropy", "trials": 1, "jobs": 1}
    options |= {"fpr": 0.01, "out": tmp_path / "run"}
    result = raresight.fit(table, **options, drop=["leak"])
    schema = result.model.schema
    assert [column.name for column in schema.columns] == ["x"]
    assert ("leak", "left out as asked for") in [(one.name, one.reason) for one in schema.dropped]
    # Nor is it asked for in scoring; a run without the option is another one.
    assert np.isfinite(result.model.log_odds(table.drop_columns(["leak", "y"]))).all()
    with pytest.raises(ValueError, match=r"holds a run with drop = \[\"leak\"\], not \[\]"):
        raresight.fit(table, **options, resume=True)
    assert (
        raresight.fit(table, **options, drop="leak", resume=True).model.policy().threshold
        == result.model.policy().threshold
    )
    with pytest.raises(ValueError, match="no column to leave out 'leek'; did you mean 'leak'"):
        raresight.fit(table, **options | {"out": tmp_path / "other"}, drop="leek")


def test_a_column_that_gives_the_target_away_is_in_the_headline(capsys):
    generator = np.random.default_rng(0)
    rare = np.arange(2000) % 40 == 0
    columns = {"x": generator.normal(size=2000) + rare, "paid_back": rare * 1, "y": rare}
    options = {"target": "y", "families": "linear", "losses": "crossentropy", "trials": 1, "jobs": 1}
    options |= {"fpr": 0.01, "listener": _Narrator(Silent(), quiet=True)}
    result = raresight.fit(pa.table(columns), **options)
    assert [column.name for column in result.model.schema.columns] == ["x"]
    first = str(result).splitlines()[0]
    assert first.startswith("Left out, because it gives the target away: 'paid_back'.")
    assert first.startswith(result.to_dict()["headline"])
    # Quiet hides no warning.
    assert "warning: 'paid_back' gives the target away" in capsys.readouterr().err
    kept = raresight.fit(pa.table(columns), **options, keep="paid_back")
    assert [column.name for column in kept.model.schema.columns] == ["x", "paid_back"]
    assert str(kept).startswith("Doubtful")
    assert "paid_back" in str(kept).splitlines()[0]


def test_time_and_group_together():
    generator = np.random.default_rng(0)
    rare = np.arange(4000) % 40 == 0
    columns = {"x": generator.normal(size=4000) + rare, "day": np.arange(4000), "y": rare}
    columns["customer"] = generator.integers(0, 900, 4000)
    options = {
        "target": "y",
        "families": "linear",
        "losses": "crossentropy",
        "trials": 1,
        "jobs": 1,
        "fpr": 0.01,
    }
    result = raresight.fit(pa.table(columns), **options, time="day", group="customer")
    assert [column.name for column in result.model.schema.columns] == ["x"]
    said = result.to_dict()
    assert "day" in said["split"]
    assert "customer" in said["split"]
    assert any("rows are left out" in text for text in said["warnings"])
    assert "--time day --group customer" in said["command"]
