"""`raresight fit` with default options on tables of rare events, against what people use.

    python benchmarks/bench_tables.py DATA [--tables card mammography] [--seeds 0 1 2] [--methods raresight]

DATA is a folder with creditcard.parquet and tables/ (see `TABLES`). The command runs as a user would run it,
in processes of its own: its wall-clock time, and the peak of the memory that all its processes hold together
(the sum of their proportional shares, read every 50 ms). Rivals are fitted to the same training rows, coded
in the same way, and evaluated on the same held-out rows. They may use all cores.

Each cell (table, seed, method) is written as soon as it is done, and a cell that is there is not done again.
Differences are ours less theirs with paired 95 % intervals; in tables split by time by stretches of time.

AutoGluon has heavy requirements and runs in an environment of its own: --autogluon /path/to/its/python.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import raresight
from machine import describe
from raresight.metrics import compare, log_loss, partial_auc, recall_at_fpr, time_blocks
from raresight.tables.splits import Data, read_data

FPR, MAX_FPR = 0.001, 0.01
Floats = NDArray[np.float64]

# ---- tables ------------------------------------------------------------------------------

_KDD_RARE = "buffer_overflow loadmodule perl rootkit guess_passwd ftp_write imap phf multihop warezmaster spy"


@dataclass(frozen=True)
class Table:
    """A table: its file, its target, and the options of the fit. `chosen_on`: defaults were chosen on it."""

    file: str
    target: str = "class"
    options: tuple[str, ...] = ()
    chosen_on: bool = False


TABLES = {
    "card": Table("creditcard.parquet", "Class", ("--drop", "Time"), chosen_on=True),
    "card by time": Table("creditcard.parquet", "Class", ("--time", "Time")),
    "mammography": Table("tables/mammography.parquet", chosen_on=True),
    "kdd99": Table("tables/kdd99_10percent.parquet", "label", chosen_on=True),
    "unsw": Table("tables/unsw_nb15_backdoor.parquet"),
    "w7a": Table("tables/w7a.parquet", chosen_on=True),
    "cover": Table("tables/cover.parquet"),
    "http": Table("tables/http.parquet"),
    "smtp": Table("tables/smtp.parquet"),
}


def prepared(name: str, data: Path, scratch: Path) -> Path:
    """Return the file of a table; of KDD without copies of rows and with two classes."""
    path = data / TABLES[name].file
    if name != "kdd99":
        return path
    import pandas as pd

    frame = pd.read_parquet(path).drop_duplicates()
    frame["label"] = frame["label"].str.rstrip(".").isin(_KDD_RARE.split()).astype(int)
    made = scratch / "kdd99.parquet"
    frame.to_parquet(made)
    return made


# ---- methods: log-odds of the held-out rows, or a score that stands for them -------------


def lightgbm(rounds: int | None) -> Callable[[Data, int], Floats]:
    """LightGBM with so many trees, or as many as early stopping on a fifth of the rows finds."""

    def fit(rows: Data, seed: int) -> Floats:
        from lightgbm import LGBMClassifier, early_stopping
        from sklearn.model_selection import train_test_split

        categorical = list(rows.schema.categorical) or "auto"
        model = LGBMClassifier(n_estimators=rounds or 2000, random_state=seed, verbose=-1)
        if rounds is not None:
            model.fit(rows.X, rows.y, categorical_feature=categorical)
        else:
            latest = rows.times is not None
            kept, watched = train_test_split(
                np.arange(len(rows.y)) if rows.times is None else np.argsort(rows.times, kind="stable"),
                test_size=0.2,
                shuffle=not latest,
                stratify=None if latest else rows.y,
                random_state=None if latest else seed,
            )
            model.fit(
                rows.X[kept],
                rows.y[kept],
                eval_set=[(rows.X[watched], rows.y[watched])],
                eval_metric="auc",
                categorical_feature=categorical,
                callbacks=[early_stopping(50, verbose=False)],
            )
        return np.asarray(model.predict(rows.test.X, raw_score=True))

    return fit


def xgboost(rounds: int) -> Callable[[Data, int], Floats]:
    """XGBoost with so many rounds, from the prior."""

    def fit(rows: Data, seed: int) -> Floats:
        from xgboost import XGBClassifier

        model = XGBClassifier(n_estimators=rounds, random_state=seed, base_score=float(rows.y.mean()))
        return np.asarray(model.fit(rows.X, rows.y).predict(rows.test.X, output_margin=True), dtype=float)

    return fit


def balanced_logistic(rows: Data, seed: int) -> Floats:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Categories as 0 and 1, as someone would write by hand; missing values as zero.
    columns = [rows.X[:, [j]] for j in range(rows.X.shape[1]) if j not in rows.schema.categorical]
    held = [rows.test.X[:, [j]] for j in range(rows.X.shape[1]) if j not in rows.schema.categorical]
    for j, count in zip(rows.schema.categorical, rows.schema.n_categories):
        columns.append(rows.X[:, [j]] == np.arange(count))
        held.append(rows.test.X[:, [j]] == np.arange(count))
    train, test = (np.nan_to_num(np.hstack(one).astype(np.float32)) for one in (columns, held))
    model = make_pipeline(StandardScaler(), LogisticRegression(class_weight="balanced", max_iter=300))
    return np.asarray(model.fit(train, rows.y).decision_function(test))


def balanced_forest(rows: Data, seed: int) -> Floats:
    from imblearn.ensemble import BalancedRandomForestClassifier

    model = BalancedRandomForestClassifier(
        500, random_state=seed, n_jobs=-1, sampling_strategy="all", replacement=True, bootstrap=False
    )
    train, test = (np.nan_to_num(X, nan=-1e9) for X in (rows.X, rows.test.X))
    p = np.clip(model.fit(train, rows.y).predict_proba(test)[:, 1], 1e-6, 1 - 1e-6)
    return np.asarray(np.log(p / (1 - p)))


def autogluon(python: str, seconds: float) -> Callable[[Data, int], Floats]:
    """AutoGluon with `medium_quality` in its own environment."""
    program = (
        "import sys, numpy as np, pandas as pd\n"
        "from autogluon.tabular import TabularPredictor\n"
        "d = np.load(sys.argv[1]); X = pd.DataFrame(d['X']); X.columns = [f'c{i}' for i in X.columns]\n"
        "T = pd.DataFrame(d['T'], columns=X.columns)\n"
        "for j in d['categorical']:\n"
        "    X[f'c{j}'] = X[f'c{j}'].astype('category'); T[f'c{j}'] = T[f'c{j}'].astype('category')\n"
        "X['y'] = d['y']\n"
        "p = TabularPredictor('y', eval_metric='roc_auc', path=sys.argv[3], verbosity=0)\n"
        "p.fit(X, time_limit=float(sys.argv[4]), presets='medium_quality')\n"
        "q = p.predict_proba(T)[1].to_numpy().clip(1e-9, 1 - 1e-9)\n"
        "np.save(sys.argv[2], np.log(q / (1 - q)))\n"
    )

    def fit(rows: Data, seed: int) -> Floats:
        with tempfile.TemporaryDirectory() as folder:
            given, made = Path(folder) / "rows.npz", Path(folder) / "scores.npy"
            categorical = np.array(rows.schema.categorical, dtype=int)
            np.savez(given, X=rows.X, T=rows.test.X, y=rows.y, categorical=categorical)
            arguments = [python, "-c", program, str(given), str(made), f"{folder}/models", str(seconds)]
            subprocess.run(arguments, check=True)
            return np.asarray(np.load(made), dtype=float)

    return fit


def rivals(autogluon_python: str | None, seconds: float) -> dict[str, Callable[[Data, int], Floats]]:
    found: dict[str, Callable[[Data, int], Floats]] = {
        "LightGBM, defaults": lightgbm(100),
        "LightGBM, 500 trees": lightgbm(500),
        "LightGBM, early stopping": lightgbm(None),
        "XGBoost, defaults": xgboost(100),
        "XGBoost, 500 rounds": xgboost(500),
        "logistic regression, balanced": balanced_logistic,
        "balanced random forest": balanced_forest,
    }
    if autogluon_python:
        found["AutoGluon, medium quality"] = autogluon(autogluon_python, seconds)
    return found


# ---- ours ---------------------------------------------------------------------------------


def command(data: Path, table: Table, out: Path, seed: int, more: list[str]) -> tuple[float, float]:
    """Run the command; seconds and peak memory in GiB."""
    arguments = [sys.executable, "-m", "raresight", "fit", str(data), "--target", table.target]
    arguments += [*table.options, "--out", str(out), "--seed", str(seed), "--quiet", "--json", *more]
    started = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE)
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


# ---- cells --------------------------------------------------------------------------------

COLUMNS = ["table", "seed", "method", "what", "seconds", "memory_gib", "partial_auc", "recall", "log_loss"]
COLUMNS += ["top_ratio", "difference", "low", "high", "recall_difference", "recall_low", "recall_high"]
COLUMNS += ["train_rows", "train_positives", "test_rows", "test_positives", "chosen_on"]


def measures(y: NDArray[Any], log_odds: Floats) -> dict[str, float]:
    """Figures of scores; `top_ratio`: mean probability of the highest 1 % over their share of positives."""
    p = np.clip(expit(log_odds.astype(np.float64)), 1e-15, 1 - 1e-15)
    top = np.argsort(-log_odds, kind="stable")[: max(len(y) // 100, 1)]
    return {
        "partial_auc": partial_auc(y, log_odds, max_fpr=MAX_FPR),
        "recall": recall_at_fpr(y, log_odds, fpr=FPR),
        "log_loss": log_loss(y, p),
        "top_ratio": float(p[top].mean() / max(y[top].mean(), 1e-12)),
    }


def against(rows: Data, ours: Floats, theirs: Floats) -> dict[str, float]:
    y = rows.test.y
    units = None if rows.test.times is None else time_blocks(rows.test.times)
    area = compare("partial_auc", y, ours, theirs, max_fpr=MAX_FPR, groups=units)
    caught = compare("recall_at_fpr", y, ours, theirs, fpr=FPR, groups=units)
    found = {"difference": area.difference, "low": area.low, "high": area.high}
    named = {"recall_difference": caught.difference, "recall_low": caught.low, "recall_high": caught.high}
    return found | named


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", help="default: all")
    parser.add_argument("--autogluon", help="Python of an environment with autogluon.tabular")
    parser.add_argument("--autogluon-seconds", type=float, default=180)
    parser.add_argument(
        "--option", action="append", default=[], help="of raresight fit, such as --preset=quick"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "tables.csv")
    arguments = parser.parse_args()
    facts = describe()
    done = set()
    if arguments.out.exists():
        with arguments.out.open() as file:
            done = {(row["table"], int(row["seed"]), row["method"]) for row in csv.DictReader(file)}
    else:
        arguments.out.write_text(",".join([*COLUMNS, *facts]) + "\n")
    others = rivals(arguments.autogluon, arguments.autogluon_seconds)
    methods = arguments.methods or ["raresight", *others]
    # Kept beside the result, so that a rival that comes later is compared with the same fit.
    kept = arguments.out.with_suffix(".scores")
    kept.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for seed in arguments.seeds:
            for name in arguments.tables:
                missing = [one for one in methods if (name, seed, one) not in done]
                if missing:
                    for row in cells(name, seed, missing, others, arguments, Path(scratch), kept):
                        with arguments.out.open("a", newline="") as file:
                            writer = csv.DictWriter(file, [*COLUMNS, *facts], restval="", lineterminator="\n")
                            text = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
                            writer.writerow(text | facts)


def cells(
    name: str, seed: int, methods: list[str], others: Any, arguments: Any, scratch: Path, kept: Path
) -> Any:
    """Yield the row of each method; ours comes first."""
    table = TABLES[name]
    path = prepared(name, arguments.data, scratch)
    option = dict(zip(table.options[::2], table.options[1::2]))
    rows = read_data(
        path,
        target=table.target,
        seed=seed,
        fpr=FPR,
        max_fpr=MAX_FPR,
        time=option.get("--time"),
        drop=[option["--drop"]] if "--drop" in option else [],
    )
    y = rows.test.y
    about = {"table": name, "seed": seed, "chosen_on": int(table.chosen_on)}
    about |= {"train_rows": len(rows.y), "train_positives": int(rows.y.sum())}
    about |= {"test_rows": len(y), "test_positives": int(y.sum())}
    stored = kept / f"{name}-{seed}.npy"
    if "raresight" in methods or not stored.exists():
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            seconds, memory = command(path, table, out, seed, arguments.option)
            text = json.loads((out / "evaluation.json").read_text())["model"]["text"]
            ours = raresight.load(out / "model").log_odds_of_matrix(rows.test.X)
        np.save(stored, ours)
        row = about | {"method": "raresight", "what": text, "seconds": seconds, "memory_gib": memory}
        yield said(row | measures(y, ours))
    ours = np.load(stored)
    for method in methods:
        if method != "raresight":
            started = time.perf_counter()
            scores = others[method](rows, seed)
            row = about | {"method": method, "seconds": time.perf_counter() - started}
            yield said(row | measures(y, scores) | against(rows, ours, scores))


def said(row: dict[str, Any]) -> dict[str, Any]:
    gap = (
        ""
        if "difference" not in row
        else f"  ours less theirs {row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]"
    )
    print(
        f"{row['table']:13} seed {row['seed']}  {row['method']:30} partial AUC {row['partial_auc']:.4f}  "
        f"recall {row['recall']:.4f}  log loss {row['log_loss']:.6f}  {row['seconds']:6.1f} s"
        + (gap or f"  {row['what']}"),
        flush=True,
    )
    return row


if __name__ == "__main__":
    main()
