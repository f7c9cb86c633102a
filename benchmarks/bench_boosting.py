"""What a loss of ours costs in XGBoost and LightGBM, against their built-in logistic objectives.

Two million rows, 30 float32 columns, one row in a hundred positive, 100 rounds; the same data, bins and
parameters for all objectives, in turns. CPU time of training alone is compared, of all threads together. One
thread is the default: a second one waits in a loop while the other works, and its waiting counts as CPU time.

    OMP_NUM_THREADS=1 python benchmarks/bench_boosting.py [--rows 2000000] [--rounds 100] [--repeats 3]
        [--threads 1] [--libraries xgboost lightgbm] [--out benchmarks/results/boosting.csv]
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import lightgbm as lgb
import numpy as np
import xgboost as xgb

from machine import describe, write_rows
from raresight.boosting import objective, start_of
from raresight.losses import parse

OBJECTIVES = ("built-in logistic", "crossentropy", "tbl")
LIMITS = {"crossentropy": 1.05, "tbl": 1.1}


def table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, 30), dtype=np.float32)
    log_odds = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] ** 2 - 6.5
    return X, (rng.random(rows) < 1 / (1 + np.exp(-log_odds))).astype(np.float32)


def xgboost_runs(X: np.ndarray, y: np.ndarray, rounds: int, threads: int) -> dict[str, Callable[[], object]]:
    data = xgb.QuantileDMatrix(X, y, nthread=threads)
    prior = float(y.mean(dtype=np.float64))
    parameters = {"max_depth": 6, "eta": 0.1, "nthread": threads}

    def built_in() -> object:
        own = {"objective": "binary:logistic", "base_score": prior}
        return xgb.train({**parameters, **own}, data, rounds)

    def custom(text: str) -> Callable[[], object]:
        start = start_of(parse(text), (1 - prior, prior)).scores[0]
        return lambda: xgb.train(
            {**parameters, "base_score": start}, data, rounds, obj=objective(text, "xgboost")
        )

    return {"built-in logistic": built_in, "crossentropy": custom("crossentropy"), "tbl": custom("tbl")}


def lightgbm_runs(X: np.ndarray, y: np.ndarray, rounds: int, threads: int) -> dict[str, Callable[[], object]]:
    prior = float(y.mean(dtype=np.float64))
    # One l2 for all, without which rare leaves explode and trees differ in size.
    parameters = {"num_threads": threads, "verbose": -1, "metric": "None", "lambda_l2": 1.0}
    data = lgb.Dataset(X, y, params=parameters, free_raw_data=False).construct()

    def built_in() -> object:
        # The start that LightGBM would take itself; a dataset keeps the one that was set last.
        data.set_init_score(np.full(len(y), np.log(prior / (1 - prior))))
        return lgb.train({**parameters, "objective": "binary"}, data, rounds)

    def custom(text: str) -> Callable[[], object]:
        start = start_of(parse(text), (1 - prior, prior)).scores[0]

        def run() -> object:
            data.set_init_score(np.full(len(y), start))
            return lgb.train({**parameters, "objective": objective(text, "lightgbm")}, data, rounds)

        return run

    return {"built-in logistic": built_in, "crossentropy": custom("crossentropy"), "tbl": custom("tbl")}


def kept_rows(path: Path, library: str) -> list[dict[str, object]]:
    """An earlier run's rows for a library that is not measured this time."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [dict(row) for row in csv.DictReader(file) if row["library"] == library]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--libraries", nargs="+", default=["xgboost", "lightgbm"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "boosting.csv")
    arguments = parser.parse_args()
    X, y = table(arguments.rows)
    results: list[dict[str, object]] = []
    for library, version, make in (
        ("xgboost", xgb.__version__, xgboost_runs),
        ("lightgbm", lgb.__version__, lightgbm_runs),
    ):
        if library not in arguments.libraries:
            results += kept_rows(arguments.out, library)
            continue
        runs = make(X, y, arguments.rounds, arguments.threads)
        cpu: dict[str, list[float]] = {name: [] for name in OBJECTIVES}
        wall: dict[str, list[float]] = {name: [] for name in OBJECTIVES}
        for _ in range(arguments.repeats):
            for name in OBJECTIVES:
                cpu_start, wall_start = time.process_time(), time.perf_counter()
                runs[name]()
                cpu[name].append(time.process_time() - cpu_start)
                wall[name].append(time.perf_counter() - wall_start)
        for name in OBJECTIVES:
            # The least is what the work takes; the rest is what neighbours on the machine took from it.
            ratio = min(cpu[name]) / min(cpu["built-in logistic"])
            results.append(
                {
                    "library": library,
                    "version": version,
                    "objective": name,
                    "rows": arguments.rows,
                    "columns": X.shape[1],
                    "rounds": arguments.rounds,
                    "threads": arguments.threads,
                    "repeats": arguments.repeats,
                    "cpu_s": round(min(cpu[name]), 2),
                    "median_cpu_s": round(statistics.median(cpu[name]), 2),
                    "wall_s": round(min(wall[name]), 2),
                    "cpu_ratio": round(ratio, 3),
                    "allowed": LIMITS.get(name, ""),
                }
                | describe()
            )
            print(
                f"{library:9} {name:18} {min(cpu[name]):7.2f} s CPU, {min(wall[name]):7.2f} s wall, "
                f"{ratio:.3f}x"
            )
    write_rows(arguments.out, results)


if __name__ == "__main__":
    main()
