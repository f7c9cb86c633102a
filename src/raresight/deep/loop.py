"""Training a stack of nets with an eye on validation rows: each keeps the weights of its own best epoch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..nn import Recipe, Replicas, TableRows
from ..nn.step import REASONS, TrainingStep
from .row_weights import weighted_gradients

__all__ = ["Trained", "train_nets"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trained:
    """What became of a stack.

    Attributes:
        epochs: Epochs that were trained.
        best_epochs: The epoch, from 1, whose weights each replica has in the end.
        merits: (epochs, K), what the judge said; None without one.
        failures: What befell replicas whose loss or gradient was not finite.
    """

    epochs: int
    best_epochs: tuple[int, ...]
    merits: Floats | None
    failures: tuple[str, ...]


def train_nets(
    replicas: Replicas,
    inputs: NDArray[np.float32],
    codes: NDArray[np.int64],
    weights: Floats | None,
    recipe: Recipe,
    *,
    judge: Callable[[Replicas], Floats] | None = None,
    patience: int = 10,
) -> Trained:
    """Train the replicas in place, on their device.

    Args:
        replicas: The nets.
        inputs: (N, features).
        codes: (N,), 0 and 1 or class numbers.
        weights: (N,), or None for equal ones.
        recipe: How; its epochs are the most there are.
        judge: One number a replica, the larger the better, after each epoch. Each replica ends with the
            weights of the epoch that had its largest.
        patience: Training ends when no replica has become better for so many epochs.
    """
    with ExitStack() as held:
        if weights is not None:
            scaled = (weights / weights.mean()).astype(np.float32)
            inputs = np.column_stack([inputs, scaled])
            held.enter_context(weighted_gradients(replicas.net))
        rows = TableRows(inputs, codes).to(replicas.device, replicas.dtype)
        step = TrainingStep(replicas, rows, recipe, rows.class_counts(replicas.net.outputs))
        best = _Best(replicas)
        for epoch in range(recipe.epochs):
            step.run_epoch(epoch)
            if judge is not None:
                best.note(judge(replicas), epoch + 1)
                if epoch + 1 - max(best.epochs) >= patience:
                    break
            if bool(step.frozen.all()):
                break
    if judge is None:
        epochs = (epoch + 1,) * len(replicas)
        return Trained(epoch + 1, epochs, None, _failures(replicas, step))
    best.restore()
    return Trained(epoch + 1, tuple(best.epochs), np.array(best.merits), _failures(replicas, step))


class _Best:
    """The weights of each replica's best epoch so far; those it started with count as epoch 0."""

    def __init__(self, replicas: Replicas) -> None:
        self._state = replicas.net.state_dict()
        self._kept = {name: stack.clone() for name, stack in self._state.items()}
        self._best = np.full(len(replicas), -np.inf)
        self.epochs = [0] * len(replicas)
        self.merits: list[Floats] = []

    def note(self, merits: Floats, epoch: int) -> None:
        self.merits.append(merits)
        # Of equal epochs the later one: a ranking is often perfect long before the probabilities are right.
        better = merits >= self._best  # never where a merit is NaN
        self._best = np.where(better, merits, self._best)
        places = np.flatnonzero(better).tolist()
        if not places:
            return
        for name, stack in self._state.items():
            self._kept[name][places] = stack[places]
        for place in places:
            self.epochs[place] = epoch

    @torch.no_grad()
    def restore(self) -> None:
        stack: Tensor
        for name, stack in self._state.items():
            stack.copy_(self._kept[name])


def _failures(replicas: Replicas, step: TrainingStep) -> tuple[str, ...]:
    reasons, places = step.reason.tolist(), step.frozen_at.tolist()
    return tuple(
        f"{name}: {REASONS[reason]} not finite in epoch {at // step.steps + 1}, the net keeps the weights of "
        "before: lower learning_rate"
        for name, reason, at in zip(replicas.names, reasons, places)
        if reason
    )
