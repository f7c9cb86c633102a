"""`raresight fit` with default options on the ULB card-fraud table, against what people use.

    python benchmarks/bench_fit.py creditcard.parquet [--out benchmarks/results/fit.csv] [--seeds 0]

The command runs as a user would run it, in processes of its own: its wall-clock time, and the peak of the
memory that all its processes hold together (the sum of their proportional shares, read every 50 ms). Rivals
are fitted to the same training rows and evaluated on the same held-out rows: LightGBM and XGBoost with their
defaults, scikit-learn's logistic regression with balanced class weights on standardised columns, and
imbalanced-learn's balanced random forest. Differences are ours less theirs with paired 95 % intervals.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import raresight
from machine import describe
from raresight.automl.options import Options
from raresight.metrics import compare, partial_auc, recall_at_fpr
from raresight.tables.splits import Data, read_data

FPR, MAX_FPR = 0.001, 0.01


def command(data: Path, out: Path, seed: int) -> tuple[float, float]:
    """Run the command; seconds and peak memory in GiB."""
    arguments = [sys.executable, "-m", "raresight", "fit", str(data), "--target", "Class", "--out", str(out)]
    started = time.perf_counter()
    process = subprocess.Popen([*arguments, "--seed", str(seed), "--quiet", "--json"], stdout=subprocess.PIPE)
    peak = [0.0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], memory_of(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.communicate()
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"raresight fit ended with {process.returncode}")
    return seconds, peak[0] / 2**30


def memory_of(root: int) -> float:
    """Bytes held by a process and all it started, shared pages counted once."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    total, waiting = 0.0, [root]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += float(line.split()[1]) * 1024
        except OSError:
            continue
    return total


def lightgbm_default(rows: Data, seed: int) -> np.ndarray:
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(random_state=seed, verbose=-1).fit(rows.X, rows.y)
    return np.asarray(model.predict(rows.test.X, raw_score=True))


def xgboost_default(rows: Data, seed: int) -> np.ndarray:
    from xgboost import XGBClassifier

    model = XGBClassifier(random_state=seed).fit(rows.X, rows.y)
    return np.asarray(model.predict(rows.test.X, output_margin=True))


def balanced_logistic(rows: Data, seed: int) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=1000))
    return np.asarray(model.fit(rows.X, rows.y).decision_function(rows.test.X))


def balanced_forest(rows: Data, seed: int) -> np.ndarray:
    from imblearn.ensemble import BalancedRandomForestClassifier

    model = BalancedRandomForestClassifier(
        random_state=seed, n_jobs=-1, sampling_strategy="all", replacement=True, bootstrap=False
    )
    return np.asarray(model.fit(rows.X, rows.y).predict_proba(rows.test.X)[:, 1])


RIVALS: dict[str, Callable[[Data, int], np.ndarray]] = {
    "LightGBM, defaults": lightgbm_default,
    "XGBoost, defaults": xgboost_default,
    "scikit-learn logistic regression, balanced": balanced_logistic,
    "imbalanced-learn balanced random forest": balanced_forest,
}


def measure(data: Path, seed: int) -> list[dict[str, Any]]:
    options = Options(target="Class", fpr=FPR, max_fpr=MAX_FPR, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        seconds, memory = command(data, out, seed)
        outcome = json.loads((out / "evaluation.json").read_text())
        model = raresight.load(out / "model")
        rows = read_data(
            data, target=options.target, test_size=options.test_size, seed=seed, fpr=FPR, max_fpr=MAX_FPR
        )
        ours = model.log_odds_of_matrix(rows.test.X)
    y = rows.test.y
    results = [
        {"seed": seed, "method": "raresight fit", "what": outcome["model"]["text"], "seconds": seconds}
        | {"memory_gib": memory, "opauc": partial_auc(y, ours, max_fpr=MAX_FPR)}
        | {"recall": recall_at_fpr(y, ours, fpr=FPR)}
    ]
    for name, fit in RIVALS.items():
        started = time.perf_counter()
        scores = fit(rows, seed)
        found = compare("partial_auc", y, ours, scores, max_fpr=MAX_FPR)
        caught = compare("recall_at_fpr", y, ours, scores, fpr=FPR)
        results.append(
            {"seed": seed, "method": name, "seconds": time.perf_counter() - started}
            | {"opauc": found.b, "recall": caught.b}
            | {"opauc_difference": found.difference, "opauc_low": found.low, "opauc_high": found.high}
            | {"recall_difference": caught.difference, "recall_low": caught.low, "recall_high": caught.high}
        )
    for row in results:
        gap = f"  ours less theirs {row['opauc_difference']:+.4f}" if "opauc_difference" in row else ""
        print(
            f"seed {seed}  {row['method']:44} opAUC {row['opauc']:.4f}  recall {row['recall']:.4f}  "
            f"{row['seconds']:6.1f} s{gap}",
            flush=True,
        )
    print(f"seed {seed}  {results[0]['what']}; {memory:.2f} GiB", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="creditcard.csv or its Parquet form")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "fit.csv")
    parser.add_argument("--seeds", default="0", help="such as 0,1,2")
    arguments = parser.parse_args()
    results = [row for seed in arguments.seeds.split(",") for row in measure(arguments.data, int(seed))]
    facts = describe()
    columns = ["seed", "method", "what", "seconds", "memory_gib", "opauc", "recall"]
    columns += [
        "opauc_difference",
        "opauc_low",
        "opauc_high",
        "recall_difference",
        "recall_low",
        "recall_high",
        *facts,
    ]
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        for row in results:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()} | facts)


if __name__ == "__main__":
    main()
