"""Tables for the tests of models."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Coded(NamedTuple):
    """A coded matrix as `Schema.matrix` gives it."""

    X: Any
    y: Any
    categorical: tuple[int, ...]
    n_categories: tuple[int, ...]


def coded_table(
    rows: int,
    *,
    prior: float = 0.05,
    seed: int = 0,
    categories: bool = True,
    missing: bool = True,
    kind=np.float32,
) -> Coded:
    """Positives are shifted in two columns and prefer some of 6 categories; 40 others mean nothing."""
    rng = np.random.default_rng(seed)
    y = np.zeros(rows, dtype=np.int8)
    y[: max(round(prior * rows), 1)] = 1
    y = rng.permutation(y)
    X = rng.normal(size=(rows, 5))
    X[:, 0] += 1.5 * y
    X[:, 1] = 50 + 10 * (X[:, 1] - y)
    X[:, 3] = np.where(y & (rng.random(rows) < 0.6), 4, rng.integers(0, 6, rows))
    X[:, 4] = rng.integers(0, 40, rows)
    if missing:
        X[rng.random(rows) < 0.1 + 0.2 * y, 0] = np.nan
        X[rng.random(rows) < 0.1, 3] = np.nan
    if not categories:
        return Coded(X[:, :3].astype(kind), y, (), ())
    return Coded(X.astype(kind), y, (3, 4), (6, 40))


def plain_columns(rows: int, *, prior: float = 0.05, seed: int = 0) -> dict[str, list[Any]]:
    """The same as named columns with text, None and dates, and the target `fraud`."""
    rng = np.random.default_rng(seed)
    coded = coded_table(rows, prior=prior, seed=seed)
    countries = np.array(["DE", "FR", "IT", "ES", "Österreich", "PL"], dtype=object)
    days = np.datetime64("2024-01-01") + rng.integers(0, 300, rows).astype("timedelta64[D]")
    return {
        "id": [f"row-{number:09d}" for number in range(rows)],
        "score": [None if np.isnan(value) else float(value) for value in coded.X[:, 0]],
        "amount": coded.X[:, 1].astype(float).tolist(),
        "country": [None if np.isnan(code) else countries[int(code)] for code in coded.X[:, 3]],
        "day": days.astype(object).tolist(),
        "fraud": coded.y.tolist(),
    }
