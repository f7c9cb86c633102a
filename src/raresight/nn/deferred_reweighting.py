"""Deferred reweighting: train plainly first, weigh the classes late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..losses import effective_number_weights
from .modules import LossModule

__all__ = ["DeferredReweighting"]


@dataclass(frozen=True)
class DeferredReweighting:
    """Class weights of one until `start_epoch`, then by the effective number of samples.

    The schedule of Cao et al. (2019). `weights(epoch)` gives the class weights of an epoch;
    `apply_(module, epoch)` writes them into a loss module: into `weight` for class logits, and as
    the ratio w_pos/w_neg into `pos_weight` for a binary score.

    >>> schedule = DeferredReweighting((5000, 50), start_epoch=160)
    >>> schedule.weights(0), [round(w, 3) for w in schedule.weights(160)]
    ((1.0, 1.0), [0.025, 1.975])
    """

    class_counts: Sequence[float]
    start_epoch: int
    beta: float = 0.9999

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_counts", tuple(self.class_counts))
        effective_number_weights(self.class_counts, self.beta)  # refuses what it cannot use
        if self.start_epoch < 0:
            raise ValueError(f"start_epoch must not be negative, got {self.start_epoch}")

    def weights(self, epoch: int) -> tuple[float, ...]:
        """The class weights of this epoch, with a mean of one."""
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
