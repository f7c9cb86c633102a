"""Ranking metrics on 20 million scores with 0.1 % positives: ours, scikit-learn's and torchmetrics'.

All get the same float32 scores and int64 labels in one process. Values are compared with scikit-learn's; a
ratio above 1 means that ours is that many times faster. The last column puts the time beside one read of
the scores (their maximum), below which nothing that looks at every score can go. Memory is the peak of the
process above what it held before the call. Ours alone also runs on 100 million scores.

    python benchmarks/bench_metrics.py [--rows 20000000] [--large 100000000] [--out ...]
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import sklearn
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from machine import describe
from raresight import metrics

FPR = 0.001
MAX_FPR = 0.01


def rows_of(rows: int, dtype: type) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities of a rare class; in (0, 1), so that torchmetrics leaves them as they are."""
    generator = np.random.default_rng(0)
    labels = (generator.random(rows, dtype=np.float32) < 0.001).astype(dtype)
    scores = generator.standard_normal(rows, dtype=np.float32)
    scores += 2 * labels.astype(np.float32)
    np.divide(1, 1 + np.exp(4 - scores, out=scores), out=scores)
    return labels, scores


def sklearn_recall(y: np.ndarray, s: np.ndarray) -> float:
    fpr, tpr, _ = roc_curve(y, s)
    return float(tpr[fpr <= FPR].max())


def rivals(y: np.ndarray, s: np.ndarray) -> dict[str, dict[str, Callable[[], float]]]:
    from torchmetrics.functional.classification import (
        binary_auroc,
        binary_average_precision,
        binary_sensitivity_at_specificity,
    )

    target, preds = torch.from_numpy(y), torch.from_numpy(s)
    return {
        "AUC": {
            "scikit-learn": lambda: float(roc_auc_score(y, s)),
            "torchmetrics": lambda: float(binary_auroc(preds, target)),
            "raresight": lambda: metrics.roc_auc(y, s),
        },
        "partial AUC": {
            "scikit-learn": lambda: float(roc_auc_score(y, s, max_fpr=MAX_FPR)),
            "torchmetrics": lambda: float(binary_auroc(preds, target, max_fpr=MAX_FPR)),
            "raresight": lambda: metrics.partial_auc(y, s, MAX_FPR),
        },
        "recall at FPR": {
            "scikit-learn": lambda: sklearn_recall(y, s),
            "torchmetrics": lambda: float(
                binary_sensitivity_at_specificity(preds, target, min_specificity=1 - FPR)[0]
            ),
            "raresight": lambda: metrics.recall_at_fpr(y, s, FPR),
        },
        "average precision": {
            "scikit-learn": lambda: float(average_precision_score(y, s)),
            "torchmetrics": lambda: float(binary_average_precision(preds, target)),
            "raresight": lambda: metrics.average_precision(y, s),
        },
    }


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def give_back_memory() -> None:
    """Return freed memory to the system, so that the next call's growth is its own."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)


def measured(work: Callable[[], float], rounds: int) -> tuple[float, float, float]:
    """Value, least seconds and largest growth of the process in bytes."""
    seconds, growth, value = [], 0, 0.0
    for _ in range(rounds):
        give_back_memory()
        before, stop = resident(), threading.Event()
        highest = [before]

        def watch(highest: list[int] = highest, stop: threading.Event = stop) -> None:
            while not stop.wait(0.002):
                highest[0] = max(highest[0], resident())

        watcher = threading.Thread(target=watch)
        watcher.start()
        start = time.perf_counter()
        value = work()
        seconds.append(time.perf_counter() - start)
        stop.set()
        watcher.join()
        growth = max(growth, highest[0] - before)
    return value, min(seconds), growth


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--large", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "metrics.csv")
    arguments = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    y, s = rows_of(arguments.rows, np.int64)
    _, read, _ = measured(lambda: float(s.max()), 9)
    print(f"one read of {arguments.rows:,} float32 scores: {read * 1e3:.1f} ms")
    found = []
    for metric, ways in rivals(y, s).items():
        times: dict[str, float] = {}
        truth = 0.0
        for who, work in ways.items():
            value, seconds, growth = measured(work, arguments.rounds)
            truth = value if who == "scikit-learn" else truth
            times[who] = seconds
            found.append(
                {
                    "metric": metric,
                    "rows": arguments.rows,
                    "library": who,
                    "value": f"{value:.15f}",
                    "difference": f"{abs(value - truth):.1e}",
                    "seconds": round(seconds, 4),
                    "extra_memory_over_scores": round(growth / s.nbytes, 2),
                    "times_one_read": round(seconds / read, 1),
                    "ours_is_faster_by": round(seconds / times["raresight"], 1) if who == "raresight" else "",
                }
            )
        for row in found[-len(ways) :]:
            row["ours_is_faster_by"] = round(times[row["library"]] / times["raresight"], 1)
            print(
                f"{metric:<18}{row['library']:<14}{row['seconds']:>9.3f} s {row['ours_is_faster_by']:>7}x"
                f"  memory {row['extra_memory_over_scores']:>5} x scores  off by {row['difference']}"
                f"  {row['times_one_read']} reads"
            )
    del y, s
    y, s = rows_of(arguments.large, np.int64)
    for metric, work in {
        "AUC": lambda: metrics.roc_auc(y, s),
        "partial AUC": lambda: metrics.partial_auc(y, s, MAX_FPR),
        "recall at FPR": lambda: metrics.recall_at_fpr(y, s, FPR),
        "interval of recall at FPR": lambda: metrics.interval("recall_at_fpr", y, s, fpr=FPR).low,
    }.items():
        value, seconds, growth = measured(work, 2)
        print(f"{arguments.large:,} scores, {metric}: {seconds:.3f} s")
        found.append(
            {
                "metric": metric,
                "rows": arguments.large,
                "library": "raresight",
                "value": f"{value:.15f}",
                "difference": "",
                "seconds": round(seconds, 4),
                "extra_memory_over_scores": round(growth / s.nbytes, 2),
                "times_one_read": round(seconds / read * arguments.rows / arguments.large, 1),
                "ours_is_faster_by": "",
            }
        )
    versions = {**describe(), "numpy": np.__version__, "scikit-learn": sklearn.__version__}
    arguments.out.parent.mkdir(exist_ok=True)
    with open(arguments.out, "w", newline="") as file:
        writer = csv.DictWriter(file, [*found[0], *versions])
        writer.writeheader()
        writer.writerows({**row, **versions} for row in found)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
