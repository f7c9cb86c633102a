"""Gradient and Hessian for boosters: plans traced from phi against the same formulas without a plan.

Each round takes the derivatives of all rows in float32, in one thread, by three ways:

    plan        what `raresight.boosting` does
    blocks      the loss's own operations, in blocks of the same size
    array       `loss.derivatives` of the whole array

and, for cross entropy, the few lines that people write by hand. Times are the best of the rounds, taken in
turns; the ratio is plan over blocks.

    OMP_NUM_THREADS=1 python benchmarks/bench_plans.py [--out benchmarks/results/plans.csv]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from machine import describe, write_rows
from raresight.boosting.gradients import Gradients
from raresight.losses import Loss, parse

LOSSES = [
    "crossentropy",
    "tbl(alpha=0.8,C=0.5)",
    "alpha(alpha=0.8)",
    "focal(gamma=2.0)",
    "poly(epsilon=1.0)",
    "squared",
    "erf",
    "vectorscaling(delta=0.5)",
    "ldam(class_counts=(990,10),scale=1.0)",
    "logitadjusted(tbl,prior=0.01)",
]


def without_plan(loss: Loss, labels: np.ndarray[Any, Any]) -> Gradients:
    made = Gradients(loss, labels, None, n_classes=1)
    made._plan = None
    return made


def by_hand(z: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    p = 1 / (1 + np.exp(-z))
    return p - y, p * (1 - p)


def best_times(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(ways, np.inf)
    for _ in range(rounds):
        for name, work in ways.items():
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "plans.csv")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    y = (random.random(arguments.rows) < 0.01).astype(np.float32)
    z = (random.normal(size=arguments.rows) * 2 - 4).astype(np.float32)
    rows, machine = [], describe()
    for text in LOSSES:
        loss = parse(text)
        planned, formulas = Gradients(loss, y, None, n_classes=1), without_plan(loss, y)
        ways: dict[str, Callable[[], object]] = {
            "plan": lambda planned=planned: planned(z),
            "blocks": lambda formulas=formulas: formulas(z),
            "array": lambda loss=loss: loss.derivatives(z, y),
        }
        if text == "crossentropy":
            ways["by hand"] = lambda: by_hand(z, y)
        times = {name: 1e9 * t / len(z) for name, t in best_times(ways, arguments.rounds).items()}
        ratio = times["plan"] / times["blocks"]
        shown = "  ".join(f"{name} {t:5.2f}" for name, t in times.items())
        print(f"{text:40} {shown}  ns a row, plan/blocks {ratio:.2f}")
        for name, t in times.items():
            rows.append({"loss": text, "way": name, "ns_per_row": f"{t:.2f}", "rows": len(z), **machine})
    write_rows(arguments.out, rows)


if __name__ == "__main__":
    main()
