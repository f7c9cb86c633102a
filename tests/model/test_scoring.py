"""Scores of whole files: order, formats, memory, and what happens when something goes wrong."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, feather, parquet
from scipy.special import expit

from model.model_tables import plain_columns
from raresight.model import model
from raresight.model.families import Candidate, fit_candidates
from raresight.model.model import Model
from raresight.model.policies import Policy
from raresight.model.scoring import ScoringProgress, score_file
from raresight.tables.schema import learn_schema

TABLE = pa.table(plain_columns(3000))


def make_model(table: pa.Table = TABLE, family: str = "linear") -> Model:
    schema = learn_schema(table, "fraud")
    X, y = schema.matrix(table), schema.labels(table)
    candidate = Candidate(family, "tbl", () if family == "linear" else (("n_estimators", 10),))
    (fitted,) = fit_candidates([candidate], X, y, schema.categorical, schema.n_categories)
    policies = {"default": Policy("fpr", -2.0, {"fpr": 0.01}), "strict": Policy("fixed", 0.0)}
    return Model.of(schema, [fitted], policies=policies)


MODEL = make_model()
EXPECTED = MODEL.log_odds(TABLE)
READERS = {".parquet": parquet.read_table, ".csv": csv.read_csv, ".arrow": feather.read_table}


def write_source(folder: Path, kind: str) -> Path:
    path = folder / f"rows.{kind}"
    if kind == "parquet":
        parquet.write_table(TABLE, path, row_group_size=700)
    elif kind == "csv":
        TABLE.to_pandas().to_csv(path, index=False)
    elif kind == "csv.gz":
        TABLE.to_pandas().to_csv(path, index=False, sep=";")
    elif kind == "db":
        with closing(sqlite3.connect(path)) as connection:
            TABLE.to_pandas().to_sql("rows", connection, index=False)
    elif kind == "arrow":
        feather.write_feather(TABLE, path, chunksize=800)
    else:
        path.mkdir()
        for part in range(4):
            parquet.write_table(TABLE.slice(750 * part, 750), path / f"part-{part}.parquet")
    return path


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz", "arrow", "db", "parts"])
def test_scores_in_exact_row_order(kind, suffix, tmp_path):
    out = tmp_path / f"scores{suffix}"
    scored = score_file(MODEL, write_source(tmp_path, kind), out, keep=["id"], batch_rows=400)
    made = READERS[suffix](out)
    assert made.column_names == ["id", "log_odds", "probability", "alert"]
    assert made["id"].to_pylist() == TABLE["id"].to_pylist()
    assert np.array_equal(made["log_odds"].to_numpy(), EXPECTED)
    assert np.array_equal(made["probability"].to_numpy(), expit(EXPECTED))
    assert np.array_equal(made["alert"].to_numpy(), EXPECTED >= -2.0)
    assert [str(field.type) for field in made.schema][1:] == ["double", "double", "bool"]
    assert (scored.rows, scored.alerts, scored.unknown) == (3000, int((EXPECTED >= -2.0).sum()), {})
    assert scored.out == out
    assert 0 < scored.alerts < 1000


def test_alerts_follow_the_policy_that_is_named(tmp_path):
    out = tmp_path / "scores.parquet"
    scored = score_file(MODEL, TABLE, out, policy="strict")
    assert np.array_equal(parquet.read_table(out)["alert"].to_numpy(), EXPECTED >= 0.0)
    assert scored.alerts == (EXPECTED >= 0.0).sum() != (EXPECTED >= -2.0).sum()
    with pytest.raises(ValueError, match="no policy 'night'; it has 'default', 'strict'"):
        score_file(MODEL, TABLE, out, policy="night")


@pytest.mark.parametrize("family", ["lightgbm", "xgboost"])
def test_boosters_score_batches_as_the_whole(family, tmp_path):
    model = make_model(family=family)
    score_file(model, TABLE, tmp_path / "scores.parquet", batch_rows=333)
    made = parquet.read_table(tmp_path / "scores.parquet")["log_odds"].to_numpy()
    assert np.array_equal(made, model.log_odds(TABLE))


def test_frames_are_taken_as_they_are(tmp_path):
    score_file(MODEL, pd.DataFrame(TABLE.to_pydict()), tmp_path / "scores.parquet")
    assert np.array_equal(parquet.read_table(tmp_path / "scores.parquet")["log_odds"].to_numpy(), EXPECTED)


def test_kept_columns_are_as_in_the_file(tmp_path):
    frame = TABLE.to_pandas().assign(account=[f"{number:05d}" for number in range(3000)])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    keep = ["account", "amount", "account"]
    score_file(MODEL, str(tmp_path / "rows.csv"), str(tmp_path / "scores.parquet"), keep=keep)
    made = parquet.read_table(tmp_path / "scores.parquet")
    assert made.column_names == ["account", "amount", "log_odds", "probability", "alert"]
    assert made["account"].to_pylist() == frame["account"].tolist()
    assert made["amount"].cast(pa.float64()).to_pylist() == frame["amount"].tolist()


def test_unknown_categories_are_counted_and_scored_as_missing(tmp_path):
    changed = TABLE.to_pandas()
    changed.loc[10:29, "country"] = "Atlantis"
    score_file(MODEL, changed, tmp_path / "unknown.parquet", batch_rows=16)
    scored = score_file(MODEL, changed, tmp_path / "unknown.parquet", batch_rows=16)
    assert (scored.unknown, scored.unknown_values) == ({"country": 20}, {"country": 1})
    changed.loc[10:29, "country"] = None
    assert score_file(MODEL, changed, tmp_path / "missing.parquet").unknown == {}
    unknown, missing = (parquet.read_table(tmp_path / f"{name}.parquet") for name in ("unknown", "missing"))
    assert unknown["log_odds"].equals(missing["log_odds"])


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_infinite_values_are_counted_and_large_ones_are_not(tmp_path, kind):
    changed = TABLE.to_pandas()
    changed["amount"] = changed["amount"].astype(float)
    changed.loc[5:9, "amount"] = [np.inf, -np.inf, 1e39, 3.4028234663852886e38, -1e300]
    source = tmp_path / f"rows.{kind}"
    changed.to_parquet(source) if kind == "parquet" else changed.to_csv(source, index=False)
    scored = score_file(MODEL, source, tmp_path / "scores.parquet", batch_rows=100)
    assert scored.infinite == {"amount": 2}
    found = parquet.read_table(tmp_path / "scores.parquet")["log_odds"].to_numpy()
    # Beyond what float32 holds is its largest number, and only what is infinite is missing.
    alike = changed.iloc[[7]].assign(amount=3.4028234663852886e38)
    assert found[7] == MODEL.log_odds(pa.Table.from_pandas(alike))[0]
    missing = changed.iloc[[5, 6]].assign(amount=None)
    assert np.array_equal(found[5:7], MODEL.log_odds(pa.Table.from_pandas(missing)))


def test_the_listener_hears_how_far_it_is(tmp_path):
    heard: list[ScoringProgress] = []
    source = write_source(tmp_path, "parquet")
    score_file(MODEL, source, tmp_path / "scores.csv", listener=heard.append, batch_rows=1000)
    assert [progress.rows for progress in heard][-1] == 3000
    assert len(heard) >= 3
    shares = [progress.bytes_read / progress.total_bytes for progress in heard]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_behind_when_it_is_stopped(error, tmp_path):
    def stop(progress):
        if progress.rows > 1000:
            raise error

    source = write_source(tmp_path, "parquet")
    for suffix in READERS:
        out = tmp_path / f"scores{suffix}"
        out.write_text("earlier scores")
        with pytest.raises(error):
            score_file(MODEL, source, out, listener=stop, batch_rows=400)
        assert out.read_text() == "earlier scores"
        out.unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]


def test_a_bad_value_is_named_by_its_row_in_the_file(tmp_path):
    frame = TABLE.to_pandas().astype({"amount": object})
    frame.loc[2345, "amount"] = "much"
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(ValueError, match="column 'amount' holds 'much' in row 2346"):
        score_file(MODEL, tmp_path / "rows.csv", tmp_path / "scores.parquet", batch_rows=500)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


MARKS = {
    "training's, then others": (["1.500"] * 300 + ["2,5"] * 300, "'2,5' in row 301"),
    "others, then training's": (["2,5"] * 300 + ["1.500"] * 300, "'2,5' in row 1,"),
    "others, sure at the end": (["7"] * 300 + ["1,234"] * 299 + ["2,5"], None),
    "others, never sure": (["7"] * 300 + ["1,234"] * 300, "'1,234' in row 301, which may have"),
    "a word at the end": (["2,5"] * 599 + ["many"], "'2,5' in row 1,"),
}


@pytest.mark.parametrize(("values", "error"), MARKS.values(), ids=MARKS)
def test_decimal_marks_are_decided_once_however_rows_are_cut(values, error, tmp_path, monkeypatch):
    rows = 600
    table = TABLE.slice(0, rows).set_column(TABLE.column_names.index("amount"), "amount", [values])
    out = tmp_path / "scores.parquet"
    runs = {f"batches of {n}": partial(score_file, MODEL, table, out, batch_rows=n) for n in (1, 250, rows)}
    chunks = pa.concat_tables([table.slice(start, 50) for start in range(0, rows, 50)])
    runs |= {"whole": partial(MODEL.log_odds, table), "chunks": partial(MODEL.log_odds, chunks)}
    monkeypatch.setattr(model, "cached_blocks", lambda n: [slice(i, i + 100) for i in range(0, n, 100)])
    if error is not None:
        for run in runs.values():
            with pytest.raises(ValueError, match=error):
                run()
        return
    expected = MODEL.log_odds(
        table.set_column(
            TABLE.column_names.index("amount"), "amount", [[float(v.replace(",", ".")) for v in values]]
        )
    )
    for name, run in runs.items():
        made = run()
        scores = made if isinstance(made, np.ndarray) else parquet.read_table(out)["log_odds"].to_numpy()
        np.testing.assert_array_equal(scores, expected, err_msg=name)


def test_refused(tmp_path):
    source = write_source(tmp_path, "parquet")
    out = tmp_path / "scores.parquet"
    with pytest.raises(ValueError, match=r"ends in \.parquet, \.csv, .*got 'scores\.xlsx'"):
        score_file(MODEL, source, tmp_path / "scores.xlsx")
    with pytest.raises(ValueError, match="would overwrite"):
        score_file(MODEL, str(source), source)
    with pytest.raises(ValueError, match="would overwrite or join"):
        score_file(MODEL, write_source(tmp_path, "parts"), tmp_path / "rows.parts" / "scores.parquet")
    with pytest.raises(ValueError, match="does not exist: make it first"):
        score_file(MODEL, source, tmp_path / "new" / "scores.parquet")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ValueError, match="is a folder: name a file"):
        score_file(MODEL, source, tmp_path / "folder.csv")
    with pytest.raises(ValueError, match="'alert' cannot be kept"):
        score_file(MODEL, source, out, keep=["alert"])
    with pytest.raises(ValueError, match="lacks the column 'customer'"):
        score_file(MODEL, source, out, keep=["customer"])
    with pytest.raises(ValueError, match="lacks the column 'amount'"):
        score_file(MODEL, TABLE.drop_columns(["amount"]), out)
    with pytest.raises(ValueError, match="no rows"):
        score_file(MODEL, TABLE.slice(0, 0), out)
    parquet.write_table(TABLE.slice(0, 0), tmp_path / "empty.parquet")
    with pytest.raises(ValueError, match="no rows"):
        score_file(MODEL, tmp_path / "empty.parquet", out)
    assert not out.exists()


MEASURE = """
import json, resource, sys
from raresight.model import load
from raresight.model.scoring import score_file

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

model_folder, small, large, out = sys.argv[1:]
model = load(model_folder)
peaks = []
for source in (small, large):
    scored = score_file(model, source, out, batch_rows=8192)
    peaks.append(peak())
print(json.dumps({"rows": scored.rows, "growth": peaks[1] - peaks[0]}))
"""


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_memory_does_not_grow_with_the_file(kind, tmp_path):
    rng = np.random.default_rng(0)
    rows, columns = 32_768, 30
    block = pa.table({f"x{j}": rng.normal(size=rows).astype(np.float32) for j in range(columns)})
    labels = pa.array((rng.random(rows) < 0.05).astype(np.int8))
    make_model(block.append_column("fraud", labels)).save(tmp_path / "model")
    times = 16
    if kind == "parquet":
        with parquet.ParquetWriter(tmp_path / "large.parquet", block.schema) as writer:
            for _ in range(times):
                writer.write_table(block)
        parquet.write_table(block, tmp_path / "small.parquet")
    else:
        csv.write_csv(block, tmp_path / "small.csv")
        header, body = (tmp_path / "small.csv").read_bytes().split(b"\n", 1)
        with (tmp_path / "large.csv").open("wb") as file:
            file.write(header + b"\n")
            for _ in range(times):
                file.write(body)
    arguments = [
        str(tmp_path / name) for name in ("model", f"small.{kind}", f"large.{kind}", "scores.parquet")
    ]
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, *arguments], capture_output=True, text=True, check=True
    )
    seen = json.loads(run.stdout)
    assert seen["rows"] == times * rows
    # All rows have 63 MB as a matrix; as text they have 171 MB, of which Arrow reads some blocks ahead.
    assert seen["growth"] < {"parquet": 24e6, "csv": 160e6}[kind]
