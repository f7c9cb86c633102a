"""Methods of calibration by out-of-fold scores, on held-out rows of eight tables and a simulated one.

A model is fitted to half of the rows, and five models of folds score that half out of fold. Each method
learns from those scores and is evaluated on the other half: log-loss, Brier score, and the ratio of predicted
to observed probability among the top 1 % and the top 0.1 % of the rows.

    link        the loss's link alone
    line        slope and level (`raresight.common.calibration`), which `raresight fit` uses
    beta        beta calibration (Kull, Silva Filho and Flach 2017): log-odds' = a log p - b log(1 - p) + c
    isotonic    isotonic regression
    venn_abers  inductive Venn-Abers (Vovk, Petej and Fedorova 2015): p = p1 / (1 - p0 + p1)

The simulated table has a truth that saturates, which a linear score cannot follow. Its ratios are to the true
probabilities.

    OMP_NUM_THREADS=1 python benchmarks/bench_calibration_methods.py FOLDER [--out rows.csv]

FOLDER holds `creditcard.parquet` and `tables/`.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import StratifiedKFold, train_test_split

from machine import describe, write_rows
from raresight.boosting import LightGBMClassifier
from raresight.common.calibration import held_out_calibrator, two_columns
from raresight.linear import LinearClassifier
from raresight.model.linear_family import LinearFeatures

SEEDS = (0, 1, 2)
FOLDS = 5
MOST_ROWS = 60_000
# Thirty positives in all: here every row is needed.
WHOLE = ("smtp",)
TABLES = (
    "creditcard",
    "mammography",
    "http",
    "smtp",
    "cover",
    "w7a",
    "unsw_nb15_backdoor",
    "kdd99_10percent",
)
ATTACKS = {
    "buffer_overflow", "loadmodule", "perl", "rootkit", "guess_passwd", "ftp_write", "imap", "phf",
    "multihop", "warezmaster", "spy",
}  # fmt: skip
LINEAR = ("crossentropy", "tbl(alpha=0.8,C=0.5)", "alpha(alpha=0.5)")
TREES = LINEAR[:2]
SHARES = {"top_1": 0.01, "top_01": 0.001}

Array = np.ndarray[Any, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", default=",".join(("saturating", *TABLES)))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    found: list[dict[str, Any]] = []
    for name in chosen.tables.split(","):
        for seed in SEEDS:
            begun = time.perf_counter()
            X, y, truth = saturating(seed) if name == "saturating" else read(chosen.folder, name, seed)
            rows = np.arange(len(y))
            train, test = train_test_split(rows, test_size=0.5, stratify=y, random_state=seed)
            for family, loss in [("linear", one) for one in LINEAR] + [("lightgbm", one) for one in TREES]:
                if name == "saturating" and family != "linear":
                    continue
                seen, new = log_odds(family, loss, X, y, train, test, seed)
                observed = y[test] if truth is None else truth[test]
                for method, learn in METHODS.items():
                    before = {"table": name, "family": family, "loss": loss, "seed": seed, "method": method}
                    found.append(before | evaluated(learn(seen, y[train])(new), new, observed) | describe())
            print(f"{name} {seed}: {time.perf_counter() - begun:.0f} s", flush=True)
            if chosen.out:
                write_rows(chosen.out, found)
    summarise(pd.DataFrame(found))


def read(folder: Path, name: str, seed: int) -> tuple[Array, Array, None]:
    """Return a sample of a table: columns as floats, and labels."""
    path = folder / f"{name}.parquet"
    table = pd.read_parquet(path if path.exists() else folder / "tables" / path.name)
    target = next(column for column in ("Class", "class", "label") if column in table)
    if name == "kdd99_10percent":
        table = table.drop_duplicates()
        table[target] = table[target].str.rstrip(".").isin(ATTACKS)
    if len(table) > MOST_ROWS and name not in WHOLE:
        table = table.sample(MOST_ROWS, random_state=seed)
    y = table.pop(target).to_numpy().astype(np.int64)
    return pd.get_dummies(table).to_numpy(dtype=np.float64), y, None


def saturating(seed: int, rows: int = 400_000) -> tuple[Array, Array, Array]:
    """Return a table in which the probability rises with the first column up to 2 %, and no further."""
    random = np.random.default_rng(seed)
    X = random.standard_t(4, size=(rows, 2))
    truth = np.minimum(expit(X[:, 0] - 6.5), 0.02)
    return X, (random.random(rows) < truth).astype(np.int64), truth


def log_odds(
    family: str, loss: str, X: Array, y: Array, train: Array, test: Array, seed: int
) -> tuple[Array, Array]:
    """Return the log-odds by the loss's link: of the training rows out of fold, and of the test rows."""

    def scores(rows: Array, others: Array) -> Array:
        if family == "lightgbm":
            model: Any = LightGBMClassifier(loss, n_jobs=1, random_state=seed).fit(X[rows], y[rows])
            return np.asarray(model.loss_.log_odds(model.decision_function(X[others]).astype(np.float64)))
        features = LinearFeatures.learn(X[rows], (), ())
        model = LinearClassifier(loss, l2=1e-4).fit(features.apply(X[rows]), y[rows])
        found = model.decision_function(features.apply(X[others])).astype(np.float64)
        return np.asarray(model.loss_.log_odds(found))

    seen = np.empty(len(train))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    for inside, outside in folds.split(train, y[train]):
        seen[outside] = scores(train[inside], train[outside])
    return seen, scores(train, test)


# ---- methods: each learns from log-odds and labels and returns a function of log-odds --------------------


def link(z: Array, y: Array) -> Callable[[Array], Array]:
    return expit  # type: ignore[no-any-return]


def line(z: Array, y: Array) -> Callable[[Array], Array]:
    found = held_out_calibrator(two_columns(z), y)
    return lambda new: expit(found.log_odds(new))  # type: ignore[no-any-return]


def beta(z: Array, y: Array) -> Callable[[Array], Array]:
    """Slopes of log p and -log(1 - p), each with the prior that `held_out_calibrator` gives its one slope."""
    start = held_out_calibrator(two_columns(z), y)

    def moved(p: Array, z: Array) -> Array:
        return np.exp(p[0]) * log_expit(z) - np.exp(p[1]) * log_expit(-z) + p[2]

    def cost(p: Array) -> float:
        found = moved(p, z)
        penalty = (p[0] ** 2 + p[1] ** 2) / (2 * len(z))
        return float(np.mean(np.logaddexp(0.0, np.where(y == 1, -found, found))) + penalty)

    slope = np.log(start.slope)
    best = minimize(cost, [slope, slope, start.levels[0]], method="L-BFGS-B", options={"ftol": 1e-13}).x
    return lambda new: expit(moved(best, new))  # type: ignore[no-any-return]


def isotonic(z: Array, y: Array) -> Callable[[Array], Array]:
    # A probability of 0 or 1 has an infinite log-loss: half a row is the least that the rows can tell apart.
    half = 0.5 / len(z)
    found = IsotonicRegression(y_min=half, y_max=1 - half, out_of_bounds="clip").fit(z, y)
    return lambda new: found.predict(new)  # type: ignore[no-any-return]


def venn_abers(z: Array, y: Array) -> Callable[[Array], Array]:
    values, places = np.unique(z, return_inverse=True)
    counts = np.bincount(places).astype(float)
    sums = np.bincount(places, weights=y.astype(float))
    p1 = np.append(with_one(counts, sums), 1.0)
    p0 = np.append(0.0, 1 - with_one(counts[::-1], (counts - sums)[::-1])[::-1])

    def probability(new: Array) -> Array:
        # Between two scores a new positive row pools with the score above, a negative one with that below.
        one = p1[np.searchsorted(values, new, side="left")]
        zero = p0[np.searchsorted(values, new, side="right")]
        return np.asarray(one / (1 - zero + one))

    return probability


def with_one(counts: Array, sums: Array) -> Array:
    """Return the isotonic value of a row called positive, for each score that it may have.

    Of the points (number of rows, number of positives) up to each score, isotonic regression is the slope of
    the greatest convex minorant. The row adds a step of slope 1, which moves up from score to score. The hull
    to its right is kept on a stack; `P[i]` are the points, shifted by the step once it has passed them.
    """
    x, s = np.append(0.0, np.cumsum(counts)), np.append(0.0, np.cumsum(sums))
    points = [(-1.0, -1.0), *zip(x.tolist(), s.tolist())]

    def turns(a: Any, b: Any, c: Any) -> bool:
        """Whether a, b, c fail to turn left, so that b is not on the hull."""
        return bool((b[0] - a[0]) * (c[1] - a[1]) <= (c[0] - a[0]) * (b[1] - a[1]))

    stack: list[tuple[float, float]] = []
    for point in points:
        while len(stack) > 1 and turns(stack[-2], stack[-1], point):
            stack.pop()
        stack.append(point)
    stack.reverse()  # the leftmost on top
    found = np.empty(len(counts))
    for i in range(len(counts)):
        (x0, y0), (x1, y1) = stack[-1], stack[-2]
        found[i] = (y1 - y0) / (x1 - x0)
        # The step passes score i: the point between the two moves.
        before, between, after = points[i], points[i + 1], points[i + 2]
        moved = (before[0] + after[0] - between[0], before[1] + after[1] - between[1])
        points[i + 1] = moved
        if (moved[1] - y0) * (x1 - x0) >= (y1 - y0) * (moved[0] - x0):
            continue
        stack.pop()
        while len(stack) > 1 and turns(moved, stack[-1], stack[-2]):
            stack.pop()
        stack.append(moved)
    return found


METHODS = {one.__name__: one for one in (link, line, beta, isotonic, venn_abers)}


# ---- evaluation ------------------------------------------------------------------------------------------


def evaluated(probability: Array, z: Array, observed: Array) -> dict[str, Any]:
    """Measure probabilities; `observed` are labels, or the true probabilities where they are known."""
    p = np.clip(probability, 1e-300, 1 - 1e-16)
    result: dict[str, Any] = {
        "log_loss": f"{-np.mean(observed * np.log(p) + (1 - observed) * np.log1p(-p)):.6g}",
        "brier": f"{np.mean((p - observed) ** 2):.6g}",
    }
    order = np.argsort(-z, kind="stable")
    for name, share in SHARES.items():
        top = order[: max(1, round(share * len(z)))]
        seen = float(observed[top].sum())
        result[f"positives_{name}"] = round(seen)
        result[f"ratio_{name}"] = f"{p[top].sum() / seen:.4g}" if seen else ""
    return result


def summarise(rows: pd.DataFrame) -> None:
    """Print, for each method, the errors relative to the line, and how far the ratios are from 1.

    The relative errors are geometric means over seeds and tables; the ratios are means of |log ratio|.
    """
    measures = ["log_loss", "brier", *(f"ratio_{name}" for name in SHARES)]
    rows = rows[rows.table != "saturating"].copy()
    rows[measures] = np.log(rows[measures].apply(pd.to_numeric))
    rows[measures[2:]] = rows[measures[2:]].abs()
    by_table = rows.groupby(["family", "loss", "method", "table"])[measures].mean()
    for family, loss in dict.fromkeys(zip(rows.family, rows.loss)):
        print(family, loss)
        base = by_table.loc[family, loss, "line"]
        for method in METHODS:
            own = by_table.loc[family, loss, method]
            gap = own - base
            print(
                f"  {method:10} log-loss x {np.exp(gap.log_loss.mean()):.3f}, lower on "
                f"{(gap.log_loss < 0).sum()} of {len(own)} tables; Brier x {np.exp(gap.brier.mean()):.3f}, "
                f"lower on {(gap.brier < 0).sum()}; |log ratio| in the top 1 % {own.ratio_top_1.mean():.3f}, "
                f"nearer on {(gap.ratio_top_1 < 0).sum()}; in the top 0.1 % {own.ratio_top_01.mean():.3f}, "
                f"nearer on {(gap.ratio_top_01 < 0).sum()}"
            )


if __name__ == "__main__":
    main()
