"""The comparison on the fraud table, on a small table of its form."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from deep_journals import tables
from raresight import __version__
from raresight.tables import sample_path
from reproduction import reproduce
from reproduction.fraud.experiment import UNFINISHED_FITS
from reproduction.fraud.methods import (
    METHODS,
    METRICS,
    SETTINGS,
    booster,
    prior_shift,
    run_method,
    summarise,
    undersampled,
)
from reproduction.fraud.report import read_results, table_text
from reproduction.fraud.table import read_card_fraud, read_origin, splits
from reproduction.output import write_rows
from tiny_fraud import write_tiny_fraud


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_tiny_fraud(tmp_path_factory.mktemp("fraud"), rows=4000, share=0.03, shift=2.5)


@pytest.fixture(scope="module")
def results(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    told = []
    paths = reproduce(
        "fraud", out, 0, told.append, data=table,
        families=["linear"], methods=["cross entropy", "TBL", "undersampling"], repeats=2, jobs=1,
    )  # fmt: skip
    return paths, told


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_every_file_is_written(results):
    paths, told = results
    assert [path.name for path in paths] == [
        "fraud_splits.csv", "fraud.csv", "fraud.md", "fraud.svg", "fraud.png", "fraud_about.json",
    ]  # fmt: skip
    assert all(path.stat().st_size > 70 for path in paths)
    assert told[-1].startswith("27 of 27: linear, undersampling, time")


def test_each_fold_and_the_future_are_tested(results):
    rows = read(results[0][0])
    assert len(rows) == 3 * (2 * 4 + 1)
    for repeat in ("0", "1"):
        folds = {
            row["fold"]: int(row["positives"])
            for row in rows
            if row["split"] == "random" and row["repeat"] == repeat
        }
        assert set(folds) == {"0", "1", "2", "3"}
        assert sum(folds.values()) == pytest.approx(120, abs=25)
    chosen = {row["chosen"].split(",")[0] for row in rows if row["method"] == "cross entropy"}
    assert chosen == {"crossentropy"}
    assert all(0.7 < float(row["roc_auc"]) <= 1 for row in rows)
    assert all(float(row["brier_score"]) < 0.03 for row in rows)


def test_differences_are_to_cross_entropy(results):
    rows = read(results[0][1])
    assert {row["metric"] for row in rows} == set(METRICS)
    for row in rows:
        if row["method"] == "cross entropy":
            assert float(row["difference"]) == 0
        else:
            mate = next(
                other for other in rows
                if other["method"] == "cross entropy"
                and all(other[key] == row[key] for key in ("split", "family", "metric"))
            )  # fmt: skip
            gap = float(row["mean"]) - float(mate["mean"])
            assert float(row["difference"]) == pytest.approx(gap, abs=1e-9)
            assert float(row["low"]) <= gap <= float(row["high"])


def test_table_is_readable(results):
    text = results[0][2].read_text()
    assert "#### linear, 2 times 4 folds" in text
    assert "| TBL |" in text
    assert "paired 95% interval" in text


def measured(gaps_of_repeats):
    """What `summarise` reads, for one method whose folds differ by these gaps, each of variance 4."""
    name = {"split": "random", "family": "f", "method": "m", "device": "CPU", "seeds": 1}
    places = [(repeat, gap) for repeat, gaps in enumerate(gaps_of_repeats) for gap in gaps]
    each = [{**name, "repeat": repeat, **dict.fromkeys(METRICS, 0.5), "seconds": 1.0} for repeat, _ in places]
    pairs = [
        {**name, "repeat": repeat, "metric": metric, "difference": gap, "variance": 4.0}
        for metric in METRICS
        for repeat, gap in places
    ]
    return each, pairs


def test_folds_add_up_as_disjoint_rows():
    row = summarise(*measured([(1.0, 2.0, 3.0, 4.0)]))[0]
    assert row["difference"] == 2.5
    assert row["high"] - row["difference"] == pytest.approx(1.959964 * np.sqrt(4 * 4.0) / 4)


def test_repetitions_test_the_same_rows_again():
    # Equal repetitions say nothing new; different ones show the luck of the split.
    same = summarise(*measured([(1.0, 2.0, 3.0, 4.0)] * 3))[0]
    assert (same["repeats"], same["tests"]) == (3, 12)
    assert same["high"] - same["difference"] == pytest.approx(1.959964 * np.sqrt(1.0))
    other = summarise(*measured([(1.0,) * 4, (2.0,) * 4, (6.0,) * 4]))[0]
    assert other["difference"] == 3.0
    # Three repetitions know their luck with two degrees of freedom: (1 + 7/3)^2 / ((7/3)^2 / 2) in all.
    freedom = (10 / 3) ** 2 / ((7 / 3) ** 2 / 2)
    assert other["high"] - other["difference"] == pytest.approx(
        stats.t.ppf(0.975, freedom) * np.sqrt(1.0 + 7.0 / 3)
    )


def test_repetitions_are_drawn_anew_and_from_the_seed(table):
    fraud = read_card_fraud(table)
    first, again, other = splits(fraud, 0, 2), splits(fraud, 0, 2), splits(fraud, 1, 2)
    assert list(first) == [("random", r, f) for r in range(2) for f in range(4)] + [("time", 0, 0)]
    for repeat in range(2):
        tested = np.concatenate([first["random", repeat, fold][1] for fold in range(4)])
        np.testing.assert_array_equal(np.sort(tested), np.arange(len(fraud.y)))
    assert not np.array_equal(first["random", 0, 0][1], first["random", 1, 0][1])
    assert not np.array_equal(first["random", 0, 0][1], other["random", 0, 0][1])
    np.testing.assert_array_equal(first["random", 1, 3][0], again["random", 1, 3][0])


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_is_calibrated(method):
    generator = np.random.default_rng(1)
    X = generator.normal(size=(6000, 4)).astype(np.float32)
    y = (generator.random(6000) < 1 / (1 + np.exp(4 - 2 * X[:, 0]))).astype(np.int8)
    found = run_method("linear", method, X[:3000], y[:3000], X[3000:], 0)
    assert found.probability.mean() == pytest.approx(y[3000:].mean(), rel=0.5)
    assert np.corrcoef(found.score, X[3000:, 0])[0, 1] > 0.8
    if method in SETTINGS:
        assert found.chosen


@pytest.mark.parametrize("family", ["xgboost", "lightgbm"])
def test_boosters_choose_their_loss_inside_the_training_rows(family):
    generator = np.random.default_rng(2)
    X = generator.normal(size=(1200, 3)).astype(np.float32)
    y = (generator.random(1200) < 1 / (1 + np.exp(2 - 2 * X[:, 0]))).astype(np.int8)
    found = run_method(family, "alpha", X[:900], y[:900], X[900:], 0)
    assert found.chosen in SETTINGS["alpha"]
    assert np.corrcoef(found.score, X[900:, 0])[0, 1] > 0.6


def test_undersampling_and_its_correction():
    y = np.repeat([0, 1], [1000, 10])
    kept = undersampled(y, 10, np.random.default_rng(0))
    assert y[kept].sum() == 10
    assert len(kept) == 110
    assert prior_shift(y, y[kept]) == pytest.approx(np.log(10 / 1000) - np.log(10 / 100))


def test_bad_requests_are_refused(table, tmp_path):
    with pytest.raises(ValueError, match="--data"):
        reproduce("fraud", tmp_path)
    with pytest.raises(ValueError, match="unknown family 'forest'"):
        reproduce("fraud", tmp_path, data=table, families=["forest"])
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        reproduce("fraud", tmp_path, data=table, repeats=0)
    with pytest.raises(ValueError, match="unknown family"):
        booster("forest", "crossentropy", 0)
    with pytest.raises(ValueError, match="table1 takes no data"):
        reproduce("table1", tmp_path, data=table)

    with pytest.raises(ValueError, match=r"--minutes .* linear .* --families deep"):
        reproduce("fraud", tmp_path, data=table, families=["tabm", "linear"], minutes=1.0)


def copied(results, to):
    for path in results[0]:
        shutil.copy(path, to)
    return {path.name: path.read_bytes() for path in to.iterdir()}


def test_results_of_another_table_or_seed_are_refused(results, table, tmp_path):
    before = copied(results, tmp_path)
    quick = {"methods": ["undersampling"], "repeats": 2, "jobs": 1}
    frame = pd.read_csv(table)
    # As many rows and frauds, and all that the folder has would be written anew.
    frame["V3"] += 1
    frame.to_csv(tmp_path / "shifted.csv", index=False)
    with pytest.raises(ValueError, match=r"but this one has other values: write to another folder by --out"):
        tables("fraud", tmp_path, data=tmp_path / "shifted.csv", families=["linear"], jobs=1)
    # As many frauds, fewer rows.
    kept = pd.concat([frame[frame["Class"] == 1], frame[frame["Class"] == 0][:2000]])
    kept.to_csv(tmp_path / "fewer.csv", index=False)
    frauds = int(frame["Class"].sum())
    with pytest.raises(
        ValueError, match=rf"4,000 rows, {frauds} frauds, but this one has {len(kept):,} rows"
    ):
        tables("fraud", tmp_path, data=tmp_path / "fewer.csv", families=["xgboost"], **quick)
    with pytest.raises(ValueError, match="have seed 0, but this run has seed 1: write to another folder"):
        tables("fraud", tmp_path, 1, data=table, families=["linear"], **quick)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    about = json.loads(before["fraud_about.json"])
    assert (about["rows"], about["frauds"], about["seed"]) == (4000, frauds, 0)


def test_results_that_do_not_say_their_table_are_refused(results, table, tmp_path):
    copied(results, tmp_path)
    (tmp_path / "fraud_about.json").unlink()
    with pytest.raises(ValueError, match=r"has no fraud_about\.json"):
        reproduce(
            "fraud", tmp_path, data=table, families=["linear"], methods=["undersampling"], repeats=2, jobs=1
        )


def test_the_sample_does_not_overwrite_the_committed_results(tmp_path):
    # Both have 473 frauds.
    committed = Path(__file__).parents[2] / "results"
    for name in ("fraud_splits.csv", "fraud.csv", "fraud.md", "fraud_about.json"):
        shutil.copy(committed / name, tmp_path)
    with pytest.raises(ValueError, match=r"283,726 rows, 473 frauds, but this one has 49,135 rows"):
        tables("fraud", tmp_path, data=sample_path())


def test_the_committed_page_is_of_the_committed_numbers():
    committed = Path(__file__).parents[2] / "results"
    about = read_origin(committed)
    assert (about.rows, about.frauds, about.duplicates) == (283_726, 473, 1081)
    page = table_text(read_results(committed / "fraud.csv"), about)
    assert page == (committed / "fraud.md").read_text()


def test_methods_not_asked_for_are_kept(results, table, tmp_path):
    copied(results, tmp_path)
    reproduce(
        "fraud", tmp_path, data=table, families=["linear"], methods=["class weights"], repeats=2, jobs=1
    )
    for name in ("fraud_splits.csv", "fraud.csv"):
        before, after = read(next(path for path in results[0] if path.name == name)), read(tmp_path / name)
        assert {row["method"] for row in after} == {
            "cross entropy", "TBL", "undersampling", "class weights"
        }  # fmt: skip
        others = [row for row in after if row["method"] not in ("cross entropy", "class weights")]
        assert others == [row for row in before if row["method"] != "cross entropy"]
    with pytest.raises(ValueError, match=r"linear with TBL have 2 repetitions.* --repeats"):
        tables("fraud", tmp_path, data=table, families=["linear"], methods=["poly"], repeats=1, jobs=1)


def test_results_only_fits_nothing(results, table, tmp_path):
    before = copied(results, tmp_path)
    told = []
    shown = {"data": table, "results_only": True, "repeats": 2}
    tables("fraud", tmp_path, 0, told.append, **shown)
    assert told == []
    for name in ("fraud_splits.csv", "fraud.csv", "fraud.md", "fraud_about.json"):
        assert (tmp_path / name).read_bytes() == before[name]
    # The folder knows its table: who does not have it can show its results, too.
    without = {**shown, "data": None}
    (tmp_path / "fraud.md").unlink()
    tables("fraud", tmp_path, **without)
    for name in ("fraud_splits.csv", "fraud.csv", "fraud.md", "fraud_about.json"):
        assert (tmp_path / name).read_bytes() == before[name]
    with pytest.raises(ValueError, match="have seed 0, but this run has seed 5"):
        tables("fraud", tmp_path, 5, **without)
    with pytest.raises(ValueError, match="has no result of xgboost: fit it, without --results-only"):
        tables("fraud", tmp_path, families=["linear", "xgboost"], **shown)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no result of linear"):
        tables("fraud", tmp_path / "empty", **shown)
    with pytest.raises(ValueError, match=r"has no fraud_about.json, .*: give the table, too, by --data"):
        tables("fraud", tmp_path / "empty", **without)
    assert list((tmp_path / "empty").iterdir()) == []
    rows = read(tmp_path / "fraud_splits.csv")
    assert all(date.fromisoformat(row["date"]) <= datetime.now(UTC).date() for row in rows)
    assert all(f"raresight {__version__}, python" in row["versions"] for row in rows)
    assert all("scikit-learn" in row["versions"] for row in rows)
    (tmp_path / "fraud_about.json").write_text("[]")
    with pytest.raises(ValueError, match="is damaged"):
        tables("fraud", tmp_path, **without)


def test_command_tells_how_far_it_is(table, tmp_path):
    run = subprocess.run(
        [
            sys.executable, "-m", "reproduction", "fraud", "--data", str(table), "--out", str(tmp_path),
            "--families", "linear", "--methods", "cross entropy", "undersampling", "--jobs", "1",
            "--repeats", "1",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "10 of 10: linear, undersampling, time 0.0" in run.stderr
    assert str(tmp_path / "fraud.csv") in run.stdout.replace("\n", "")


@pytest.mark.parametrize("cut", [1, 30, 400])
def test_a_torn_file_of_results_is_refused(tmp_path, cut):
    """Its rows are the only copy of what was fitted: what is left of them must not pass for all."""
    whole = (Path(__file__).parents[2] / "results" / "fraud_splits.csv").read_bytes()
    (tmp_path / "splits.csv").write_bytes(whole[:-cut])
    with pytest.raises(ValueError, match=r"splits.csv is incomplete, its last rows are missing"):
        read_results(tmp_path / "splits.csv")


def test_a_file_that_cannot_be_written_leaves_the_one_of_before(tmp_path):
    write_rows(tmp_path / "some.csv", [{"a": 1}])
    script = f"""
import resource
from pathlib import Path
from reproduction.output import write_rows
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    write_rows(Path({str(tmp_path / "some.csv")!r}), [{{"a": i}} for i in range(100_000)])
except OSError as error:
    print(error.filename)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == str(tmp_path / "some.csv"), run.stderr
    assert (tmp_path / "some.csv").read_text() == "a\n1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["some.csv"]


def test_killed_it_goes_on_to_the_same_result(results, table, tmp_path):
    script = f"""
from pathlib import Path
from reproduction import reproduce
def tell(message):
    print(message, flush=True)
reproduce("fraud", Path({str(tmp_path)!r}), 0, tell, data=Path({str(table)!r}), families=["linear"],
          methods=["cross entropy", "TBL", "undersampling"], repeats=2, jobs=1)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        for line in run.stdout:
            if line.startswith("8 of 27"):
                run.kill()
                break
        run.wait()
    assert run.returncode == -signal.SIGKILL
    assert not (tmp_path / "fraud.csv").exists()
    assert (tmp_path / UNFINISHED_FITS).exists()
    told = []
    methods = ["cross entropy", "TBL", "undersampling"]
    # In two processes, which end their fits in any order, as in one.
    shown = {"data": table, "families": ["linear"], "repeats": 2, "jobs": 2}
    reproduce("fraud", tmp_path, 0, told.append, methods=methods, **shown)
    assert told[0].startswith("6 of 27 fits ")
    counts, fits = zip(*(line.split(": ") for line in told[1:]), strict=True)
    assert list(counts) == [f"{done} of 27" for done in range(7, 28)]
    places = [*(f"random {place // 4}.{place % 4}" for place in range(8)), "time 0.0"]
    assert set(fits) == {f"linear, {method}, {place}" for place in places[2:] for method in methods}
    assert list((tmp_path / UNFINISHED_FITS).parent.glob("arrays-*")) == []
    assert not (tmp_path / UNFINISHED_FITS).exists()
    for name in ("fraud_splits.csv", "fraud.csv"):
        before, after = (
            [{column: value for column, value in row.items() if column != "seconds"} for row in read(path)]
            for path in (results[0][0].parent / name, tmp_path / name)
        )
        assert before == after


@pytest.mark.parametrize(
    ("seed", "methods", "begins"),
    [
        (0, ["undersampling"], "2 of 10 fits are in the journal"),
        (1, ["undersampling"], "1 of 10: linear, cross entropy, random 0.0"),
        (0, ["TBL"], "1 of 10: linear, cross entropy, random 0.0"),
    ],
)
def test_only_the_same_fits_are_gone_on_with(table, tmp_path, seed, methods, begins):
    told = []

    def stop(message):
        told.append(message)
        if message.startswith(("3 of", "4 of")):
            raise KeyboardInterrupt

    shown = {"data": table, "families": ["linear"], "repeats": 1, "jobs": 1}
    with pytest.raises(KeyboardInterrupt):
        tables("fraud", tmp_path, 0, stop, methods=["undersampling"], **shown)
    told.clear()
    with pytest.raises(KeyboardInterrupt):
        tables("fraud", tmp_path, seed, stop, methods=methods, **shown)
    assert told[0].startswith(begins)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": ["linear", "tabnet"], "net_seeds": 0}, "seeds must be at least 1, not 0"),
        ({"families": ["linear", "deep"], "net_epochs": 0}, "epochs must be at least 1, not 0"),
        ({"families": ["linear", "deep"], "device": "nowhere"}, "device"),
        ({"families": ["linear"], "net_seeds": 2}, "--net-seeds applies to nets only, but linear"),
        ({"net_epochs": 0}, "--net-epochs applies to nets only.*: give --families deep, too"),
        ({"families": ["linear"], "device": "cpu"}, "--device applies to nets only"),
    ],
)
def test_what_is_wrong_with_nets_is_said_before_other_fits(table, tmp_path, options, message):
    told = []
    with pytest.raises(ValueError, match=message):
        tables("fraud", tmp_path / "new", 0, told.append, data=table, **options)
    assert told == []
    assert not (tmp_path / "new").exists()
