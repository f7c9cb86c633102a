"""How often 95 % intervals cover the truth: simulated normal classes, 100 positives.

Positives are N(shift, 1) and negatives N(0, 1), so the population's AUC, partial AUC and recall are known.
With 2,000 repetitions a share of 0.95 has a standard error of 0.005.

    OMP_NUM_THREADS=1 python benchmarks/bench_coverage.py [--repetitions 2000] [--out ...]
"""

from __future__ import annotations

import argparse
import csv
from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import norm

from machine import describe
from raresight.metrics import interval

POSITIVES = 100


@cache
def truth(metric: str, shift: float, rate: float) -> float:
    if metric == "roc_auc":
        return float(norm.cdf(shift / np.sqrt(2)))
    if metric == "recall_at_fpr":
        return float(norm.cdf(shift + norm.ppf(rate)))
    rates = (np.arange(100_000) + 0.5) / 100_000 * rate
    return float(np.mean(norm.cdf(shift + norm.ppf(rates))))


CASES = [
    ("roc_auc", {}, 1.0),
    ("partial_auc", {"max_fpr": 0.01, "kind": "mean"}, 0.01),
    ("recall_at_fpr", {"fpr": 0.01}, 0.01),
    ("recall_at_fpr", {"fpr": 0.001}, 0.001),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "coverage.csv")
    arguments = parser.parse_args()
    found = []
    for negatives in (2_000, 20_000):
        y = np.repeat([0, 1], [negatives, POSITIVES])
        for shift in (1.0, 2.0, 3.0, 4.0):
            generator = np.random.default_rng(0)
            hit, under, over, width = (np.zeros(len(CASES)) for _ in range(4))
            for seed in range(arguments.repetitions):
                s = generator.normal(size=len(y)) + shift * y
                for place, (metric, params, rate) in enumerate(CASES):
                    one = interval(metric, y, s, draws=500, seed=seed, **params)
                    value = truth(metric, shift, rate)
                    hit[place] += one.low <= value <= one.high
                    under[place] += value < one.low
                    over[place] += value > one.high
                    width[place] += one.high - one.low
            for place, (metric, _, rate) in enumerate(CASES):
                row = {
                    "metric": metric,
                    "rate": rate,
                    "negatives": negatives,
                    "shift": shift,
                    "truth": round(truth(metric, shift, rate), 4),
                    "covered": hit[place] / arguments.repetitions,
                    "truth_below": under[place] / arguments.repetitions,
                    "truth_above": over[place] / arguments.repetitions,
                    "mean_width": round(width[place] / arguments.repetitions, 4),
                    "repetitions": arguments.repetitions,
                }
                found.append(row)
                print(*row.values(), flush=True)
    versions = describe()
    with open(arguments.out, "w", newline="") as file:
        writer = csv.DictWriter(file, [*found[0], *versions])
        writer.writeheader()
        writer.writerows({**row, **versions} for row in found)
    print(f"written to {arguments.out}")


if __name__ == "__main__":
    main()
