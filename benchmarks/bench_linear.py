"""Linear classifiers on rare events: time to a gradient norm, against scikit-learn and glum.

    python benchmarks/bench_linear.py [--out benchmarks/results/linear.csv] [--rounds 3] [--rows N] [--small]

Every solver minimises the same objective, mean cross entropy + (l2/2)|b|^2 with a free intercept, on features
that are already standardised, so that the penalties mean the same: scikit-learn's C is 1/(n l2), glum's alpha
is l2. A solver is run with ever smaller tolerances until the gradient norm, computed here in float64, is at
most the target; the time is that of the loosest tolerance that gets there (best of `rounds`). Rivals are
given float32 rows and float64 rows, and the faster counts. `reached` and `objective_gap` (above the best
objective found by anyone) say how good the answer was; a solver that never gets to the target has its closest
try recorded with `ok` = no.

Then our own losses: TBL against cross entropy, and a path of 20 settings of TBL against one fit.
glum is optional: without it its rows are left out, and that is printed.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from machine import describe
from raresight.linear import LinearClassifier, fit_path

L2 = 1e-4
TARGETS = (1e-6, 1e-8)
TOLERANCES = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
PATH = [f"tbl(alpha={alpha},C={C})" for alpha in (0.5, 0.6, 0.7, 0.8, 0.9) for C in (0.0, 0.4, 0.8, 1.2)]
Fit = Callable[[float], tuple[np.ndarray, float]]


def rare_data(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised float32 features and 0.3 % positives."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X -= X.mean(axis=0, dtype=np.float64).astype(np.float32)
    X /= X.std(axis=0, dtype=np.float64).astype(np.float32)
    beta = rng.normal(size=d)
    beta *= 1.5 / np.linalg.norm(beta)
    z = X @ beta.astype(np.float32)
    low, high = -20.0, 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if expit(z + middle).mean() < 0.003 else (low, middle)
    return X, (rng.random(n) < expit(z + low)).astype(np.int64)


def evaluate(X: np.ndarray, y: np.ndarray, coef: np.ndarray, intercept: float) -> tuple[float, float]:
    """Gradient norm and objective, in float64, block by block."""
    gradient, value = np.zeros(X.shape[1] + 1), 0.0
    for begin in range(0, len(y), 65_536):
        block, labels = X[begin : begin + 65_536].astype(np.float64), y[begin : begin + 65_536]
        z = block @ coef + intercept
        pull = expit(z) - labels
        gradient += np.append(pull @ block, pull.sum())
        value += float(np.logaddexp(0, np.where(labels == 1, -z, z)).sum())
    gradient /= len(y)
    gradient[:-1] += L2 * coef
    return float(np.linalg.norm(gradient)), value / len(y) + L2 / 2 * float(coef @ coef)


def scikit_learn(X: np.ndarray, y: np.ndarray, solver: str) -> Fit:
    def fit(tolerance: float) -> tuple[np.ndarray, float]:
        model = LogisticRegression(C=1 / (len(y) * L2), solver=solver, tol=tolerance, max_iter=1000).fit(X, y)
        return model.coef_[0].astype(np.float64), float(model.intercept_[0])

    return fit


def glum(X: np.ndarray, y: np.ndarray) -> Fit:
    from glum import GeneralizedLinearRegressor

    labels = y.astype(X.dtype)

    def fit(tolerance: float) -> tuple[np.ndarray, float]:
        model = GeneralizedLinearRegressor(
            family="binomial",
            alpha=L2,
            l1_ratio=0,
            solver="irls-ls",
            gradient_tol=tolerance,
            max_iter=200,
        ).fit(X, labels)
        return np.asarray(model.coef_, dtype=np.float64), float(model.intercept_)

    return fit


def ours(X: np.ndarray, y: np.ndarray, loss: str) -> Fit:
    def fit(tolerance: float) -> tuple[np.ndarray, float]:
        model = LinearClassifier(loss, l2=L2, tol=tolerance).fit(X, y)
        return model.coef_[0], float(model.intercept_[0])

    return fit


def timed(work: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    best, result = np.inf, None
    for _ in range(rounds):
        start = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - start)
    return best, result


def race(X: np.ndarray, y: np.ndarray, fit: Fit, rounds: int) -> dict[float, dict[str, Any]]:
    """For each target the loosest tolerance whose answer gets there, and its time."""
    tries: list[dict[str, Any]] = []
    for tolerance in TOLERANCES:
        seconds, (coef, intercept) = timed(lambda tolerance=tolerance: fit(tolerance), 1)
        norm, objective = evaluate(X, y, coef, intercept)
        tries.append({"tolerance": tolerance, "seconds": seconds, "reached": norm, "objective": objective})
        if norm <= min(TARGETS):
            break
    found = {}
    for target in TARGETS:
        there = [attempt for attempt in tries if attempt["reached"] <= target]
        chosen = there[0] if there else min(tries, key=lambda attempt: attempt["reached"])
        if there and rounds > 1:
            again = timed(lambda chosen=chosen: fit(chosen["tolerance"]), rounds - 1)[0]
            chosen["seconds"] = min(chosen["seconds"], again)
        found[target] = chosen | {"ok": "yes" if there else "no"}
    return found


def rivals(X: np.ndarray, y: np.ndarray) -> dict[tuple[str, str], Fit]:
    found: dict[tuple[str, str], Fit] = {("raresight", "float32"): ours(X, y, "crossentropy")}
    try:
        import glum as _  # noqa: F401

        has_glum = True
    except ImportError:
        has_glum = False
        print("glum is not installed: its rows are left out")
    for kind in (np.float32, np.float64):
        rows = X.astype(kind, copy=False)
        name = np.dtype(kind).name
        for solver in ("newton-cholesky", "lbfgs"):
            found["scikit-learn " + solver, name] = scikit_learn(rows, y, solver)
        if has_glum:
            found["glum irls-ls", name] = glum(rows, y)
    return found


def measure(n: int, d: int, rounds: int) -> list[dict[str, Any]]:
    X, y = rare_data(n, d)
    size = {"rows": n, "features": d, "positives": int(y.sum())}
    results: list[dict[str, Any]] = []
    contestants = rivals(X, y)
    for (solver, kind), fit in contestants.items():
        for target, found in race(X, y, fit, rounds).items():
            results.append(
                {"work": "cross entropy", "solver": solver, "dtype": kind, **size, "target": target} | found
            )
            print(
                f"{n:>9} x {d}  {solver:28} {kind:8} to {target:.0e}: {found['seconds']:7.3f} s  "
                f"|g| {found['reached']:.1e}  {found['ok']}",
                flush=True,
            )
    best = min(row["objective"] for row in results)
    for row in results:
        row["objective_gap"] = f"{row.pop('objective') - best:.2e}"
        row["reached"] = f"{row['reached']:.2e}"
    for name, work in {
        "one fit of cross entropy": lambda: LinearClassifier("crossentropy", l2=L2).fit(X, y).gradient_norm_,
        "one fit of TBL": lambda: LinearClassifier("tbl", l2=L2).fit(X, y).gradient_norm_,
        "path of 20 settings of TBL": lambda: max(fit.gradient_norm for fit in fit_path(X, y, PATH, L2)),
    }.items():
        seconds, norm = timed(work, max(rounds, 3))
        results.append(
            {"work": name, "solver": "raresight", "dtype": "float32", **size, "target": 1e-8}
            | {"seconds": seconds, "tolerance": 1e-8, "reached": f"{norm:.2e}", "ok": "yes"}
        )
        print(f"{n:>9} x {d}  {name:34} {seconds:7.3f} s  |g| {norm:.1e}", flush=True)
    report(results)
    return results


def report(results: list[dict[str, Any]]) -> None:
    """The ratios that matter."""
    for target in TARGETS:
        fits = [row for row in results if row["work"] == "cross entropy" and row["target"] == target]
        own = next(row["seconds"] for row in fits if row["solver"] == "raresight")
        for rival in ("scikit-learn", "glum"):
            times = [row["seconds"] for row in fits if row["solver"].startswith(rival) and row["ok"] == "yes"]
            if times:
                print(f"  to {target:.0e}: {min(times) / own:.1f} times as fast as {rival}'s best")
    cross, tbl, path = (row["seconds"] for row in results[-3:])
    print(f"  TBL / cross entropy: {tbl / cross:.2f};  path of 20 / one fit: {path / tbl:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "linear.csv")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, help="one size only; the other's results in the file are kept")
    parser.add_argument("--small", action="store_true", help="a quick look: 200 000 x 10, nothing is written")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=sklearn.exceptions.ConvergenceWarning)
    sizes = [(200_000, 10)] if arguments.small else [(1_000_000, 30), (2_000_000, 50)]
    kept: list[dict[str, Any]] = []
    if arguments.rows:
        sizes = [size for size in sizes if size[0] == arguments.rows]
        if arguments.out.exists():
            with arguments.out.open(newline="") as file:
                kept = [row for row in csv.DictReader(file) if int(row["rows"]) != arguments.rows]
    rows: list[dict[str, Any]] = []
    for n, d in sizes:
        rows += measure(n, d, arguments.rounds)
    if arguments.small:
        return
    facts = describe() | {"scikit_learn": sklearn.__version__, "numpy": np.__version__}
    facts["load"] = f"{os.getloadavg()[0]:.1f}"  # of the machine at the end: others may have been at work
    columns = "work solver dtype rows features positives target tolerance seconds reached objective_gap ok"
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*columns.split(), *facts], restval="", lineterminator="\n")
        writer.writeheader()
        fresh = [row | {"seconds": f"{row['seconds']:.3f}"} | facts for row in rows]
        writer.writerows(sorted([*kept, *fresh], key=lambda row: int(row["rows"])))


if __name__ == "__main__":
    main()
