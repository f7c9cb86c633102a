"""Measure how evaluating nets in bfloat16 instead of float32 changes their metrics, and the time it takes.

CIFAR-10 with half of the categories positive at the given imbalance, ResNet-32, the paper's losses at its own
setting. Nets are trained in bfloat16 and evaluated in both precisions on the test images after every epoch.
Differences are in points (hundredths). Needs a GPU, PyTorch, NumPy and the binary version of CIFAR-10:

    PYTHONPATH=src:. python benchmarks/measure_evaluation.py cifar-10-batches-bin [--epochs 14] [--out OUT]

With `--most X` it fails where the AUC of a net differs by more than X points in one of the epochs after the
learning rate fell for the first time.
"""

from __future__ import annotations

import argparse
import datetime
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from machine import write_rows
from raresight.nn import Replicas
from raresight.nn.training_loop import training_session
from reproduction.experiments.methods import build_loss, is_cosine
from reproduction.experiments.net_trial import Setup, Size
from reproduction.experiments.stack import evaluate_replicas, read_images, recipe_of, task_rows
from reproduction.experiments.trials import EXPERIMENTS, Cell, paper_trials
from reproduction.resnet import resnet_cifar

METRICS = ("roc_auc", "accuracy", "accuracy_linked", "minority_accuracy", "brier")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cifar", type=Path)
    parser.add_argument("--rho", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--most", type=float)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    setup = Setup("cifar10", Size("measured", 1, chosen.epochs))
    trials = paper_trials(EXPERIMENTS["table2"], Cell("halves", chosen.rho), setup)
    trials = [trial for trial in trials if trial.seed == 0]
    rows = task_rows(read_images("cifar10", chosen.cifar), trials[0])
    losses = [build_loss(trial.method, trial.parameters, rows.class_counts) for trial in trials]
    net = partial(resnet_cifar, 32, cosine=tuple(is_cosine(trial.method) for trial in trials))
    replicas = Replicas(net, losses, [trial.seed for trial in trials]).to("cuda", torch.float32)
    recipe, test = recipe_of(trials, "bf16"), rows.test.to("cuda", torch.float32)
    differences: list[dict[str, Any]] = []
    with training_session(replicas, rows.training.to("cuda", torch.float32), recipe) as loop:
        while not loop.is_done:
            loop.run_epoch()
            exact = evaluate_replicas(replicas, test, losses, rows.class_counts)
            coarse = evaluate_replicas(replicas, test, losses, rows.class_counts, bf16=True)
            for trial, one, other in zip(trials, exact, coarse, strict=True):
                apart = {name: _points(one[name], other[name]) for name in METRICS if name in one}
                differences.append({"method": trial.method, "epoch": loop.epoch, **apart})
    seconds = {word: _scoring_seconds(replicas, test, bf16=word == "bf16") for word in ("float32", "bf16")}
    setting = {
        **{f"milliseconds_{word}": 1e3 * value * 128 / len(test) for word, value in seconds.items()},
        "nets": len(trials),
        "rho": chosen.rho,
        "epochs": chosen.epochs,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }
    late = [row for row in differences if row["epoch"] > recipe.decay_epochs[0]]
    found = []
    for phase, part in (("all epochs", differences), ("after the decay", late)):
        for name in [name for name in METRICS if name in part[0]]:
            values = np.array([row[name] for row in part], dtype=float)
            found.append(
                {
                    "epochs_of": phase,
                    "metric": name,
                    "mean_difference": round(float(values.mean()), 4),
                    "deviation": round(float(values.std()), 4),
                    "largest": round(float(np.abs(values).max()), 4),
                    **setting,
                }
            )
    for row in found:
        print(", ".join(f"{name} {value}" for name, value in list(row.items())[:5]))
    print(", ".join(f"{name} {value}" for name, value in setting.items()))
    if chosen.out:
        write_rows(chosen.out, found)
    largest = max(abs(row["roc_auc"]) for row in late)
    if chosen.most is not None and not largest <= chosen.most:
        raise SystemExit(f"an AUC differs by {largest:g} points, more than {chosen.most:g}")


def _points(one: float | None, other: float | None) -> float:
    return float("nan") if one is None or other is None else 100 * (other - one)


def _scoring_seconds(replicas: Replicas, rows: Any, *, bf16: bool, times: int = 5) -> float:
    """The median of seconds that the scores of all rows take, for one net."""
    taken = []
    for _ in range(times):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        replicas.scores(rows, bf16=bf16)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    return float(np.median(taken)) / len(replicas)


if __name__ == "__main__":
    main()
