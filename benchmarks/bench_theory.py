"""The cost of the theory: Bayes risk, statistical information, population minimisers.

There is no rival to compare with; the figures are absolute, one thread.

    OMP_NUM_THREADS=1 python benchmarks/bench_theory.py [--out benchmarks/results/theory.csv]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from machine import describe, write_rows
from raresight.losses import TBL, Alpha, CrossEntropy, Erf, Focal
from raresight.theory import GaussianExperiment, bayes_risk, statistical_information
from raresight.theory.gaussian import GaussianMixture, population_minimiser


def best_of(work: Callable[[], object], rounds: int = 3) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def mixtures(dim: int) -> tuple[GaussianMixture, GaussianMixture]:
    rng = np.random.default_rng(0)

    def covariance() -> np.ndarray:
        root = rng.normal(size=(dim, dim)) / np.sqrt(dim)
        return root @ root.T + 0.5 * np.eye(dim)

    minority = GaussianMixture([0.6, 0.4], rng.normal(size=(2, dim)) + 0.7, [covariance(), covariance()])
    majority = GaussianMixture([0.5, 0.5], rng.normal(size=(2, dim)), [covariance(), covariance()])
    return minority, majority


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "theory.csv")
    arguments = parser.parse_args()
    etas = np.random.default_rng(0).uniform(1e-6, 0.5, 1_000_000)
    priors = np.logspace(-1, -12, 200)
    minority, majority = mixtures(10)
    rows = []
    for loss in (CrossEntropy(), Focal(2.0), TBL(), Alpha(0.5), Erf()):
        work: dict[str, Callable[[], object]] = {
            "Bayes risk at a million values of eta": lambda loss=loss: bayes_risk(loss, etas),
            "information on N(1,1) v N(0,1) at 200 priors": lambda loss=loss: statistical_information(
                loss, GaussianExperiment(1.0), priors
            ),
            "information on N(1,4) v N(0,1) at 200 priors": lambda loss=loss: statistical_information(
                loss, GaussianExperiment(1.0, 2.0), priors
            ),
            "population minimiser in 10 dimensions, prior 1e-4": lambda loss=loss: population_minimiser(
                loss, minority, majority, 1e-4
            ),
        }
        for name, run in work.items():
            rows.append({"work": name, "loss": str(loss), "seconds": round(best_of(run), 4)} | describe())
            print(f"{name:52} {loss!s:24} {rows[-1]['seconds']:.4f} s")
    write_rows(arguments.out, rows)


if __name__ == "__main__":
    main()
