"""A small table and a search of it, as a program too: run by tests that kill it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from raresight.automl.fold_evaluation import Aim
from raresight.automl.records import Limits, SearchResult, SearchTask
from raresight.automl.search import search
from raresight.automl.space import Space, make_space
from raresight.engines import LocalEngine
from raresight.tables.splits import make_folds

TRIALS = 17
AIM = Aim(max_fpr=0.1, fpr=0.05, seed=0)


def table(rows: int = 1200, positives: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Four numbers with missing values and a category; the first two tell something."""
    random = np.random.default_rng(seed)
    y = np.zeros(rows, dtype=np.int8)
    y[random.choice(rows, positives, replace=False)] = 1
    X = random.normal(size=(rows, 5)).astype(np.float32)
    X[:, 0] += 1.2 * y
    X[:, 1] += 0.8 * y
    X[random.random((rows, 5)) < 0.02] = np.nan
    X[:, 4] = random.integers(0, 3, rows)
    return X, y


def small_task(**changes: Any) -> SearchTask:
    X, y = table()
    values: dict[str, Any] = {
        "X": X,
        "y": y,
        "categorical": (4,),
        "n_categories": (3,),
        "folds": make_folds(y, 3, seed=0),
        "weights": None,
        "aim": AIM,
    }
    return SearchTask(**{**values, **changes})


def small_space() -> Space:
    """With a loss that fails: its curvature is infinite."""
    return make_space("linear,lightgbm", "focal,poly(epsilon=1e308)")


def facts(found: SearchResult) -> dict[str, Any]:
    """All of an outcome that must repeat."""
    trials = [
        {
            "number": trial.number,
            "candidate": trial.candidate.to_dict(),
            "state": trial.state,
            "partial_auc": trial.partial_auc,
            "recall": trial.recall,
            "message": trial.message,
            "origin": trial.origin,
            "warnings": trial.warnings,
            "scores": found.out_of_fold(trial.number).tobytes().hex() if trial.state == "complete" else "",
        }
        for trial in found.trials
    ]
    result: dict[str, Any] = json.loads(json.dumps({"trials": trials, "best": found.best.number}))
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args()

    def say(progress: Any) -> None:
        sys.stdout.write(f"{progress.done}\n")
        sys.stdout.flush()

    folder = asked.folder / "search"
    with LocalEngine(asked.jobs, folder) as engine:
        found = search(
            small_task(), small_space(), Limits(asked.trials), folder=folder, engine=engine, listener=say
        )
    outcome = {**facts(found), "stopped_by": found.stopped_by}
    (asked.folder / "facts.json").write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
