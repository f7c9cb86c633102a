"""Compare `DeepClassifier` with other nets for tables, all with their defaults.

    python benchmarks/bench_deep.py --out benchmarks/results/deep.csv [--seeds 3] [--sizes 0 1 2] [--summary]

All models are fitted to the same rows and evaluated on others: 100,000 rows of the four kinds of simulated
tables of measure_early_stopping.py, or the other half of a real table. Real tables are the bundled card-fraud
sample and those of `--table Caravan=Caravan.csv,Purchase,Yes`: a name, its CSV file, the column and value of
the event. The two in the results are from the package ISLP on PyPI.

The rivals are:

- scikit-learn's `MLPClassifier` behind a `StandardScaler`, without and with early stopping;
- pytorch-tabnet's `TabNetClassifier`, given a fifth of the rows for early stopping, as its documentation
does;
- LightGBM, for comparison.

All have cross entropy. A plain net is also fitted with TBL, the default of `DeepClassifier`.

Each result is written at once; a second call resumes. `--summary` only prints the results of the file.
"""

from __future__ import annotations

import contextlib
import io
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from machine import describe
from measure_early_stopping import KINDS, MAX_FPR, Table, append, read, table_arguments, tables
from raresight.deep import DeepClassifier
from raresight.metrics import partial_auc, recall_at_fpr
from raresight.tables import load_sample

FPR = 0.001
SAMPLE = "card-fraud sample"
Predict = Callable[[NDArray[Any]], NDArray[Any]]
Fit = Callable[[NDArray[Any], NDArray[Any], int], Predict]
"""Maps rows, labels and a seed to a function that returns the probability of the event."""


def ours(net: str, loss: str = "crossentropy") -> Fit:
    def fit(X: NDArray[Any], y: NDArray[Any], seed: int) -> Predict:
        model = DeepClassifier(loss, net=net, random_state=seed).fit(X, y)
        return lambda rows: model.predict_proba(rows)[:, 1]

    return fit


def scikit_learn(**options: Any) -> Fit:
    def fit(X: NDArray[Any], y: NDArray[Any], seed: int) -> Predict:
        model = make_pipeline(StandardScaler(), MLPClassifier(random_state=seed, **options))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about 200 iterations, the default, that did not converge
            model.fit(X, y)
        return lambda rows: model.predict_proba(rows)[:, 1]

    return fit


def pytorch_tabnet(X: NDArray[Any], y: NDArray[Any], seed: int) -> Predict:
    from pytorch_tabnet.tab_model import TabNetClassifier

    train, valid = train_test_split(np.arange(len(y)), test_size=0.2, stratify=y, random_state=seed)
    model = TabNetClassifier(seed=seed, verbose=0)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # about taking the best weights
        model.fit(X[train], y[train], eval_set=[(X[valid], y[valid])], eval_metric=["auc"])
    return lambda rows: np.asarray(model.predict_proba(rows)[:, 1])


def lightgbm(X: NDArray[Any], y: NDArray[Any], seed: int) -> Predict:
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(random_state=seed, verbose=-1).fit(X, y)
    return lambda rows: np.asarray(model.predict_proba(rows)[:, 1])


MODELS: dict[str, Fit] = {
    "raresight mlp": ours("mlp"),
    "raresight mlp, TBL": ours("mlp", "tbl"),
    "raresight tabm": ours("tabm"),
    "raresight tabnet": ours("tabnet"),
    "scikit-learn MLPClassifier": scikit_learn(),
    "scikit-learn MLPClassifier, early_stopping": scikit_learn(early_stopping=True),
    "pytorch-tabnet": pytorch_tabnet,
    "LightGBM": lightgbm,
}
# Each pair is compared, the first model minus the second.
PAIRS = (
    ("raresight mlp", "scikit-learn MLPClassifier"),
    ("raresight mlp", "scikit-learn MLPClassifier, early_stopping"),
    ("raresight tabnet", "pytorch-tabnet"),
    ("raresight mlp", "LightGBM"),
    ("raresight tabm", "raresight mlp"),
    ("raresight mlp, TBL", "raresight mlp"),
)


def main() -> None:
    parser = table_arguments(str(__doc__), seeds=3, sizes=[0, 1, 2])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--table", nargs="*", default=[], help="NAME=FILE,COLUMN,EVENT")
    parser.add_argument("--summary", action="store_true")
    chosen = parser.parse_args()
    if not chosen.summary:
        for about, train, test in every_table(chosen):
            for name in chosen.models:
                measure(chosen.out, {"model": name, **about}, MODELS[name], train, test)
    print(summary(read(chosen.out)))


def every_table(chosen: Any) -> Iterator[tuple[dict[str, Any], Table, Table]]:
    """Yield the simulated tables, and halves of the real ones."""
    for about, train, test in tables(chosen):
        yield {name: value for name, value in about.items() if name != "loss"}, train, test
    given = {SAMPLE: as_numbers(load_sample().to_pandas(), "Class", 1)}
    for text in chosen.table:
        name, place = text.split("=")
        path, target, event = place.split(",")
        given[name] = as_numbers(pd.read_csv(path), target, event)
    for name, (X, y) in given.items():
        for seed in range(chosen.seeds):
            train, test = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed)
            about = {"kind": name, "rows": len(train), "seed": seed}
            yield about, (X[train], y[train]), (X[test], y[test])


def as_numbers(frame: pd.DataFrame, target: str, event: Any) -> Table:
    """Return features and labels, with text columns one-hot for all models."""
    X = pd.get_dummies(frame.drop(columns=target)).to_numpy(dtype=np.float64)
    return X, (frame[target] == event).to_numpy().astype(int)


def measure(out: Any, about: dict[str, Any], fit: Fit, train: Table, test: Table) -> None:
    """Fit and evaluate a model and append the result, unless the file has it."""
    named = {**about, "positives": int(train[1].sum())}
    if any(all(row[name] == str(value) for name, value in named.items()) for row in read(out)):
        return
    began = time.perf_counter()
    predict = fit(*train, about["seed"])
    seconds = time.perf_counter() - began
    rows, labels = test
    began = time.perf_counter()
    p = predict(rows).astype(np.float64)
    scored = time.perf_counter() - began
    row = {
        **named,
        "partial_auc_0.01": round(partial_auc(labels, p, MAX_FPR), 5),
        "recall_0.001": round(recall_at_fpr(labels, p, FPR), 4),
        # Rivals may predict 0 or 1: a single wrong one would make the log-loss infinite.
        "log_loss": round(log_loss(labels, p.clip(1e-7, 1 - 1e-7)), 6),
        "mean_probability_by_share": round(float(p.mean() / labels.mean()), 3),
        "seconds": round(seconds, 2),
        "seconds_to_score": round(scored, 3),
        **describe(),
    }
    print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    append(out, row)


@dataclass(frozen=True)
class Compared:
    """Two models on the tables that both were fitted to: mean and standard error of first minus second."""

    tables: int
    partial_auc: tuple[float, float]
    log_loss: tuple[float, float]
    slower: float


def compared(rows: list[dict[str, str]], first: str, second: str) -> Compared | None:
    def of(name: str) -> dict[tuple[str, ...], dict[str, str]]:
        return {
            tuple(row[key] for key in ("kind", "rows", "seed")): row for row in rows if row["model"] == name
        }

    ones, others = of(first), of(second)
    both = [(ones[key], others[key]) for key in ones if key in others]
    if len(both) < 2:
        return None
    points = [100 * (float(a["partial_auc_0.01"]) - float(b["partial_auc_0.01"])) for a, b in both]
    relative = [100 * (float(a["log_loss"]) / float(b["log_loss"]) - 1) for a, b in both]
    times = [math.log(float(a["seconds"]) / float(b["seconds"])) for a, b in both]
    return Compared(len(both), _mean(points), _mean(relative), math.exp(float(np.mean(times))))


def _mean(values: list[float]) -> tuple[float, float]:
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values)))


def summary(rows: list[dict[str, str]]) -> str:
    """Return a Markdown table: one row per pair, one column per kind of table.

    A cell has the differences in partial AUC (points) and log-loss (%), first minus second, with standard
    errors over the tables, and the ratio of the times.
    """
    parts: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        few = "simulated, few" if int(row["positives"]) < 50 else "simulated, more"
        parts.setdefault(few if row["kind"] in KINDS else row["kind"], []).append(row)
    titles = []
    for name, own in parts.items():
        counts = sorted({int(row["positives"]) for row in own})
        words = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        tables = len({(row["kind"], row["rows"], row["seed"]) for row in own})
        titles.append(f"{name.split(',')[0]}, {words} positives, {tables} tables")
    lines = [f"| | less | {' | '.join(titles)} |", "|" + "---|" * (len(titles) + 2)]
    for first, second in PAIRS:
        cells = [_cell(compared(own, first, second)) for own in parts.values()]
        lines.append(f"| {first} | {second} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: Compared | None) -> str:
    if found is None:
        return ""
    (points, error), (relative, of_relative) = found.partial_auc, found.log_loss
    return f"{points:+.1f} ± {error:.1f}; {relative:+.0f} ± {of_relative:.0f} %; {found.slower:.1f} times"


if __name__ == "__main__":
    main()
