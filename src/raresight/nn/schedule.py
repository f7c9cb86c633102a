"""What changes from epoch to epoch: the learning rate and the class weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..losses import Loss
from .deferred_reweighting import DeferredReweighting
from .recipe import Recipe

__all__ = ["class_weights", "deferred_replicas", "learning_rates"]


def learning_rates(recipe: Recipe, replicas: int, epoch: int, steps: int) -> Tensor:
    """The learning rate of each step of an epoch and each replica: (steps, K), float64.

    >>> recipe = Recipe(lr=0.1, warmup_epochs=1, decay_epochs=(2,))
    >>> [learning_rates(recipe, 1, epoch, 2).flatten().tolist() for epoch in range(3)]
    [[0.05, 0.1], [0.1, 0.1], [0.010000000000000002, 0.010000000000000002]]
    """
    step = torch.arange(1, steps + 1, dtype=torch.float64) + epoch * steps
    rise = (step / (recipe.warmup_epochs * steps)).clamp(max=1.0) if recipe.warmup_epochs else step**0
    decay = recipe.decay_factor ** sum(start <= epoch for start in recipe.decay_epochs)
    base = torch.tensor(recipe.rates_of(replicas), dtype=torch.float64)
    return (rise * decay)[:, None] * base


def deferred_replicas(recipe: Recipe, losses: Sequence[Loss]) -> tuple[bool, ...]:
    """Which replicas are reweighted late: those the recipe names, or those whose loss asks for it."""
    if recipe.drw_epoch is None:
        return (False,) * len(losses)
    if recipe.deferred is None:
        return tuple(loss.prefers_deferred_weights for loss in losses)
    if len(recipe.deferred) != len(losses):
        raise ValueError(
            f"the recipe's deferred has {len(recipe.deferred)} entries for {len(losses)} replicas: "
            "give one per replica"
        )
    return tuple(bool(entry) for entry in recipe.deferred)


def class_weights(
    recipe: Recipe, deferred: Sequence[bool], class_counts: Sequence[int], epoch: int
) -> Tensor:
    """The class weights of an epoch, (K, classes) in float64: one, or by the effective number of samples."""
    weights = torch.ones(len(deferred), len(class_counts), dtype=torch.float64)
    if recipe.drw_epoch is not None and any(deferred):
        schedule = DeferredReweighting(class_counts, recipe.drw_epoch)
        weights[torch.tensor(deferred)] = torch.tensor(schedule.weights(epoch), dtype=torch.float64)
    return weights
