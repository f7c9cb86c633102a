"""How tight a limit of the gradient norm keeps alpha and TBL from exploding, and what it costs.

CIFAR-10 with a random half of the categories positive at 1 to 100, ResNet-32, the paper's recipe in bfloat16
without the decay of its learning rate: all trainings in one stack. Needs a GPU, PyTorch, NumPy and the binary
version of CIFAR-10:

    PYTHONPATH=src:. python benchmarks/measure_clipping.py cifar-10-batches-bin [--epochs 150] [--out x.csv]
"""

from __future__ import annotations

import argparse
import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from machine import write_rows
from raresight.nn import Replicas, TrainingRecord, train
from reproduction.experiments.stack import image_recipe
from reproduction.images import read_cifar10
from reproduction.images.imbalance import halves
from reproduction.images.rows import ImageRows
from reproduction.resnet import resnet_cifar

LOSSES = ("tbl(alpha=0.7,C=0.5)", "alpha(alpha=0.6)")
CLIPS = (None, 1.0, 5.0, 20.0)
SEEDS = (0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cifar", type=Path)
    parser.add_argument("--epochs", type=int, default=150)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    trials: list[tuple[str, float | None, int]] = [
        (loss, clip, seed) for loss in LOSSES for clip in CLIPS for seed in SEEDS
    ]
    trials += [("crossentropy", None, seed) for seed in SEEDS]
    images = read_cifar10(chosen.cifar)
    task = halves(images.train.labels, 0.01, 0)
    rows = ImageRows.training(images.train, task)
    replicas = Replicas(
        partial(resnet_cifar, 32), [loss for loss, _, _ in trials], [seed for _, _, seed in trials]
    )
    recipe = image_recipe(
        epochs=chosen.epochs,
        decay_epochs=(),
        precision="bf16",
        clip=tuple(clip for _, clip, _ in trials),
        evaluate_every=10,
        bf16_evaluation=True,
    )
    test = rows.test(images.test, task)
    training = train(replicas, rows, recipe, evaluation=test, device="cuda")
    setting = {
        "epochs": chosen.epochs,
        "test_images": len(test),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }
    found = [{**summary(training, place, *trial), **setting} for place, trial in enumerate(trials)]
    print(torch.cuda.get_device_name(), f"{training.seconds:.0f} s")
    for row in found:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    if chosen.out:
        write_rows(chosen.out, found)


def summary(training: TrainingRecord, place: int, loss: str, clip: float | None, seed: int) -> dict[str, Any]:
    """One training in a line."""
    own = [row for row in training.history if row["replica"] == place]
    norms = [row["gradient_norm_max"] for row in own if row["gradient_norm_max"] is not None]
    last = training.last[place] or {}
    return {
        "loss": loss,
        "clip": clip,
        "seed": seed,
        "frozen_at_epoch": next((row["epoch"] for row in own if row["frozen"]), None),
        "largest_norm": float(np.max(norms)),
        "clipped_share": float(np.mean([row["clipped"] for row in own if row["clipped"] is not None])),
        "roc_auc": last.get("roc_auc"),
        "partial_auc_0.01": last.get("partial_auc_0.01"),
        "recall_0.01": last.get("recall_0.01"),
    }


if __name__ == "__main__":
    main()
