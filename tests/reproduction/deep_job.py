"""A small stack of the paper's trials that another process can train and be killed in."""

from __future__ import annotations

from pathlib import Path

import torch

from reproduction.experiments.net_trial import NetTrial
from reproduction.experiments.stack import task_rows, train_stack
from reproduction.images import read_cifar10

TBL = (("alpha", 0.7), ("C", 0.5))


def make_trials(epochs: int = 12, *, task: str = "halves", role: str = "final", held_out: bool = True):
    methods = (("CE+LA", (), 0.02, 0), ("LDAM-DRW", (), 0.02, 0), ("TBL", TBL, 0.006, 1))
    return tuple(
        NetTrial("cifar10", task, 0.2, 0, held_out, 8, 2, method, parameters, lr, seed, epochs, role)
        for method, parameters, lr, seed in methods
    )


def run(data: Path, folder: Path, trials=None, *, checkpoint_seconds: float = 0.0, **options):
    torch.set_num_threads(1)
    trials = trials or make_trials()
    rows = task_rows(read_cifar10(data, complete=False), trials[0])
    return train_stack(trials, rows, folder, checkpoint_seconds=checkpoint_seconds, **options)
