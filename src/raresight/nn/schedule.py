"""The schedule of a training: learning rates and class weights by epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..losses import Loss, effective_number_weights
from .modules import LossModule
from .recipe import Recipe

__all__ = ["DeferredReweighting", "class_weights", "deferred_replicas", "learning_rates"]


@dataclass(frozen=True)
class DeferredReweighting:
    """Class weights of one until `start_epoch`, then by the effective number of samples.

    The schedule of Cao et al. (2019). `weights(epoch)` returns the class weights of an epoch.
    `apply_(module, epoch)` writes them into a loss module: into `weight` for class logits, and as the ratio
    w_pos/w_neg into `pos_weight` for a binary score.

    >>> schedule = DeferredReweighting((5000, 50), start_epoch=160)
    >>> schedule.weights(0), [round(w, 3) for w in schedule.weights(160)]
    ((1.0, 1.0), [0.025, 1.975])
    """

    class_counts: Sequence[float]
    start_epoch: int
    beta: float = 0.9999

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_counts", tuple(self.class_counts))
        effective_number_weights(self.class_counts, self.beta)  # raises an error for unusable ones
        if self.start_epoch < 0:
            raise ValueError(f"start_epoch must not be negative, got {self.start_epoch}")

    def weights(self, epoch: int) -> tuple[float, ...]:
        """Return the class weights of this epoch, with a mean of one."""
        if epoch < self.start_epoch:
            return (1.0,) * len(self.class_counts)
        return effective_number_weights(self.class_counts, self.beta)

    def apply_(self, module: LossModule, epoch: int) -> LossModule:
        """Write this epoch's weights into the module's buffer; returns the module."""
        weights = self.weights(epoch)
        if module.weight is not None and tuple(module.weight.shape) == (len(weights),):
            module.weight.copy_(torch.tensor(weights, dtype=torch.float64))
        elif module.pos_weight is not None and module.pos_weight.numel() == 1 and len(weights) == 2:
            module.pos_weight.fill_(weights[1] / weights[0])
        else:
            raise ValueError(
                f"the module has no place for {len(weights)} class weights: build it with "
                f"weight=torch.ones({len(weights)}), or for a binary score with pos_weight=torch.ones(())"
            )
        return module


def learning_rates(recipe: Recipe, replicas: int, epoch: int, steps: int) -> Tensor:
    """Return the learning rate of each step of an epoch and each replica: (steps, K), float64.

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
    """Return which replicas are reweighted: those the recipe names, or those whose loss prefers it."""
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
    """Return the class weights of an epoch, (K, classes) in float64; 1 for plain replicas."""
    weights = torch.ones(len(deferred), len(class_counts), dtype=torch.float64)
    if recipe.drw_epoch is not None and any(deferred):
        schedule = DeferredReweighting(class_counts, recipe.drw_epoch)
        weights[torch.tensor(deferred)] = torch.tensor(schedule.weights(epoch), dtype=torch.float64)
    return weights
