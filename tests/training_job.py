"""A small training that another process can run and be killed in."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from raresight.nn import Recipe, Replicas, train
from raresight.nn.nets import MLP

LOSSES = ["crossentropy", "tbl(alpha=0.8,C=0.5)", "focal(gamma=2.0)", "alpha(alpha=0.8)"]
RECIPE = Recipe(epochs=60, batch=32, optimiser="sgd", lr=0.05, warmup_epochs=5, decay_epochs=(40,), clip=2.0)


def make_data(rows=320):
    random = np.random.default_rng(0)
    y = (np.arange(rows) % 8 == 0).astype(int)
    return (random.normal(size=(rows, 5)) + y[:, None]).astype(np.float32), y


def make_replicas():
    """Eight small nets."""
    return Replicas.grid(partial(MLP, 5, hidden=(16,), batch_norm=True), LOSSES, seeds=(0, 7))


def run(folder):
    torch.set_num_threads(1)
    replicas = make_replicas()
    result = train(replicas, make_data(), RECIPE, evaluation=make_data(400), folder=folder, progress=False)
    return replicas, result
