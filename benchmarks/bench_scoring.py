"""What scoring a table costs, against the native library's own prediction on a matrix that is ready.

300,000 rows, 30 columns, 100 trees of the default size. A raresight model gets an Arrow table: it codes the
columns, predicts, and applies the loss's link. The library gets the coded float32 matrix: LightGBM's
`Booster.predict(raw_score=True)`, and the faster of XGBoost's `inplace_predict` and `DMatrix` with `predict`.
Numbers are 30 columns of float32; mixed are 24 of float64 with missing values and 6 of text categories. In
turns; all threads, CPU and wall time.

    python benchmarks/bench_scoring.py [--rows 300000] [--trees 100] [--repeats 5] [--threads 2]
        [--out benchmarks/results/scoring.csv]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pyarrow as pa
import xgboost as xgb

from machine import describe, write_rows
from raresight.model.families import Candidate, fit_candidates
from raresight.model.model import Model
from raresight.tables.schema import learn_schema

ALLOWED = 1.25
TRAINING_ROWS = 100_000
VERSIONS = {"lightgbm": lgb.__version__, "xgboost": xgb.__version__}


def make_table(rows: int, kind: str) -> pa.Table:
    rng = np.random.default_rng(0)
    texts = np.array([f"category {number:03d}" for number in range(50)], dtype=object)
    columns: dict[str, object] = {}
    score = np.zeros(rows)
    for j in range(30):
        if kind == "mixed" and j % 5 == 4:
            codes = rng.integers(0, 50, rows)
            score += 0.5 * (codes == 7)
            columns[f"x{j}"] = pa.array(texts[codes])
            continue
        values = rng.standard_normal(rows)
        score += 0.5 * values * (j % 3 == 0)
        if kind == "mixed":
            columns[f"x{j}"] = pa.array(np.where(rng.random(rows) < 0.05, np.nan, values), from_pandas=True)
        else:
            columns[f"x{j}"] = pa.array(values.astype(np.float32))
    columns["fraud"] = pa.array((rng.random(rows) < 1 / (1 + np.exp(6 - score))).astype(np.int8))
    return pa.table(columns)


def make_model(table: pa.Table, family: str, trees: int, threads: int) -> Model:
    part = table.slice(0, TRAINING_ROWS)
    schema = learn_schema(part, "fraud")
    candidate = Candidate(family, "tbl", (("n_estimators", trees),))
    (fitted,) = fit_candidates(
        [candidate],
        schema.matrix(part),
        schema.labels(part),
        schema.categorical,
        schema.n_categories,
        threads=threads,
    )
    return Model.of(schema, [fitted])


def native_ways(model: Model, X: np.ndarray, threads: int) -> dict[str, Callable[[], object]]:
    fitted = model.members[0].fitted
    booster = fitted.part.classifier.booster_
    if fitted.candidate.family == "lightgbm":
        return {"predict": lambda: booster.predict(X, raw_score=True, num_threads=threads)}
    booster.set_param({"nthread": threads})
    types = booster.feature_types

    def by_matrix() -> object:
        data = xgb.DMatrix(X, feature_types=types, enable_categorical=True, nthread=threads)
        return booster.predict(data, output_margin=True, validate_features=False)

    return {
        "inplace_predict": lambda: booster.inplace_predict(X, predict_type="margin", validate_features=False),
        "DMatrix": by_matrix,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "scoring.csv")
    arguments = parser.parse_args()
    results: list[dict[str, object]] = []
    for kind in ("numbers", "mixed"):
        table = make_table(arguments.rows, kind)
        for family in ("lightgbm", "xgboost"):
            model = make_model(table, family, arguments.trees, arguments.threads)
            X = model.schema.matrix(table)
            ways = native_ways(model, X, arguments.threads)
            ways["raresight"] = lambda model=model, table=table: model.log_odds(table)
            cpu: dict[str, list[float]] = {name: [] for name in ways}
            wall: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(arguments.repeats):
                for name, run in ways.items():
                    cpu_start, wall_start = time.process_time(), time.perf_counter()
                    run()
                    cpu[name].append(time.process_time() - cpu_start)
                    wall[name].append(time.perf_counter() - wall_start)
            # The least is what the work takes; the rest is what neighbours on the machine took from it.
            native = min(min(times) for name, times in wall.items() if name != "raresight")
            native_cpu = min(min(times) for name, times in cpu.items() if name != "raresight")
            for name in ways:
                ratio, cpu_ratio = min(wall[name]) / native, min(cpu[name]) / native_cpu
                results.append(
                    {
                        "library": family,
                        "version": VERSIONS[family],
                        "table": kind,
                        "way": name,
                        "rows": arguments.rows,
                        "trees": arguments.trees,
                        "threads": arguments.threads,
                        "repeats": arguments.repeats,
                        "wall_s": round(min(wall[name]), 3),
                        "median_wall_s": round(statistics.median(wall[name]), 3),
                        "cpu_s": round(min(cpu[name]), 3),
                        "wall_ratio": round(ratio, 3),
                        "cpu_ratio": round(cpu_ratio, 3),
                        "allowed": ALLOWED if name == "raresight" else "",
                    }
                    | describe()
                )
                taken = f"{min(wall[name]):6.3f} s wall, {ratio:.3f}x, CPU {cpu_ratio:.3f}x"
                print(f"{kind:8} {family:9} {name:16} {taken}")
    write_rows(arguments.out, results)


if __name__ == "__main__":
    main()
