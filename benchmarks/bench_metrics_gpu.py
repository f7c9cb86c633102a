"""Ranking metrics of tensors on a GPU, and whether they equal those of the CPU. Needs torch and numpy alone.

PYTHONPATH=src python benchmarks/bench_metrics_gpu.py --out metrics_gpu.csv
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import torch

from machine import describe
from raresight.metrics import partial_auc, recall_at_fpr, roc_auc


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "metrics_gpu.csv")
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    rows = []
    for count in (20_000_000, 100_000_000):
        y = generator.random(count, dtype=np.float32) < 0.001
        s = generator.standard_normal(count, dtype=np.float32) + 2 * y
        labels, scores = torch.tensor(y).cuda(), torch.tensor(s).cuda()
        for metric in (roc_auc, partial_auc, recall_at_fpr):
            seconds = []
            for _ in range(5):
                torch.cuda.synchronize()
                start = time.perf_counter()
                value = metric(labels, scores)
                seconds.append(time.perf_counter() - start)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            metric(labels, scores)
            memory = torch.cuda.max_memory_allocated() - before
            rows.append(
                {
                    "metric": metric.__name__,
                    "rows": count,
                    "milliseconds": round(1e3 * min(seconds), 2),
                    "difference_to_cpu": abs(value - metric(y, s)),
                    "extra_memory_over_scores": round(memory / scores.nbytes, 2),
                    "gpu": torch.cuda.get_device_name(),
                }
            )
            print(*rows[-1].values(), flush=True)
    versions = describe()
    with open(arguments.out, "w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *versions])
        writer.writeheader()
        writer.writerows({**row, **versions} for row in rows)


if __name__ == "__main__":
    main()
