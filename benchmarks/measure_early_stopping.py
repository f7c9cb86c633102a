"""Compare ways to choose the number of epochs of `DeepClassifier`, on simulated tables of four kinds.

Each way is fitted to the same rows and evaluated on 100,000 other rows of the same kind. Each result is
written at once; a second call resumes:

    python benchmarks/measure_early_stopping.py --out rows.csv [--net mlp] [--seeds 4] [--part 0/2]
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from machine import describe
from raresight.deep import DeepClassifier, validation
from raresight.metrics import partial_auc

Table = tuple[NDArray[Any], NDArray[Any]]

MAX_FPR = 0.01
# Its name in the results, from before this was called cross-validation.
CROSS_VALIDATED = "parts in turn"
WAYS: dict[str, dict[str, Any]] = {
    CROSS_VALIDATED: {},
    "held out": {"early_stopping": True},
    "held out, last weights, no second training": {
        "early_stopping": True,
        "average_epochs": 0,
        "refit": False,
    },
    "epochs given": {"early_stopping": False},
}
# Rows with about 25, 100, 400 and 1200 positives.
SIZES = {
    "interaction": (2_500, 10_000, 40_000, 120_000),
    "linear": (5_000, 20_000, 80_000, 220_000),
    "bumps": (1_500, 6_000, 25_000, 70_000),
    "clusters": (2_500, 10_000, 40_000, 120_000),
}


def interaction(count: int, random: np.random.Generator) -> Table:
    """Draw six columns, with a linear effect and one product of two columns."""
    X = random.normal(size=(count, 6))
    return X, drawn(1.5 * X[:, 0] - X[:, 1] + 0.7 * X[:, 2] * X[:, 3] - 6.3, random)


def linear(count: int, random: np.random.Generator) -> Table:
    """Draw fifteen columns of decreasing importance, with a linear effect only."""
    X = random.normal(size=(count, 15))
    return X, drawn(X @ np.linspace(0.9, 0, 15) - 7.2, random)


def bumps(count: int, random: np.random.Generator) -> Table:
    """Draw twenty heavy-tailed columns; five have an effect: a sine, a switch and a product."""
    X = random.normal(size=(count, 20))
    switch = 2 * (np.abs(X[:, 1]) > 1) * X[:, 2]
    y = drawn(3.5 * np.sin(2 * X[:, 0]) + switch + 1.5 * X[:, 3] * X[:, 4] - 7.5, random)
    return np.sign(X) * np.abs(X) ** 1.7, y


def clusters(count: int, random: np.random.Generator) -> Table:
    """Draw ten columns; three of five positives are clustered, the others more scattered than negatives."""
    X = random.normal(size=(count, 10))
    y = random.random(count) < 0.01
    together = y & (random.random(count) < 0.6)
    X[together] = X[together] * 0.5 + np.repeat([1.5, 0.0], [4, 6])
    X[y & ~together] *= 1.5
    return X, y.astype(int)


def drawn(log_odds: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    return (random.random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))).astype(int)


KINDS: dict[str, Callable[[int, np.random.Generator], Table]] = {
    "interaction": interaction,
    "linear": linear,
    "bumps": bumps,
    "clusters": clusters,
}


def main() -> None:
    parser = table_arguments(str(__doc__), seeds=4, sizes=[0, 1, 2, 3])
    parser.add_argument("--net", default="mlp")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    chosen = parser.parse_args()
    for about, train, test in tables(chosen):
        for way in chosen.ways:
            # This forces the way whatever the number of positives, which decides by default.
            validation.MIN_VALIDATION_ROWS = len(train[1]) if way == CROSS_VALIDATED else 0
            model = DeepClassifier(
                chosen.loss, net=chosen.net, random_state=about["seed"], n_jobs=1, **WAYS[way]
            )
            measure(chosen.out, {"net": chosen.net, **about, "way": way}, model, train, test)


def table_arguments(doc: str, seeds: int, sizes: list[int]) -> argparse.ArgumentParser:
    """Return a parser with the options that `tables` reads."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--loss", default="tbl")
    parser.add_argument("--seeds", type=int, default=seeds, help="tables of each kind and size")
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes, help="which of the four")
    parser.add_argument("--part", default="0/1", help="only every n-th table: 0/2 and 1/2 share the work")
    return parser


def tables(chosen: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Table, Table]]:
    """Yield a description of each table, its rows, and 100,000 other rows of its kind."""
    mine, parts = (int(number) for number in chosen.part.split("/"))
    every = [(seed, kind, size) for size in chosen.sizes for seed in range(chosen.seeds) for kind in KINDS]
    for seed, kind, size in every[mine::parts]:
        train = KINDS[kind](SIZES[kind][size], np.random.default_rng([1, seed]))
        test = KINDS[kind](100_000, np.random.default_rng([2, seed]))
        about = {"loss": chosen.loss, "kind": kind, "rows": len(train[1]), "seed": seed}
        yield about, train, test


def measure(out: Path, about: dict[str, Any], model: DeepClassifier, train: Table, test: Table) -> None:
    """Fit and evaluate a model and append the result, unless the file has it."""
    named = {**about, "positives": int(train[1].sum())}
    if any(all(row[name] == str(value) for name, value in named.items()) for row in read(out)):
        return
    row = {**named, **evaluated(model, train, test), **describe()}
    print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    append(out, row)


def evaluated(model: DeepClassifier, train: Table, test: Table) -> dict[str, Any]:
    """Fit the model to one table and return its metrics on the other."""
    began = time.perf_counter()
    model.fit(*train)
    seconds = time.perf_counter() - began
    rows, labels = test
    log_p = model.predict_log_proba(rows)[np.arange(len(labels)), labels]
    return {
        "partial_auc_0.01": round(partial_auc(labels, model.decision_function(rows), MAX_FPR), 5),
        "log_loss": round(float(-np.mean(log_p)), 6),
        "epochs": model.best_epochs_[0],
        "slope": round(model.calibrator_.slope, 3),
        "seconds": round(seconds, 1),
    }


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: dict[str, Any]) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    main()
