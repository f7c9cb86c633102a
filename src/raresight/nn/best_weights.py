"""The weights of each replica's best epoch, saved while training continues."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .checkpoint import BEST, BEST_EPOCHS
from .replicas import Replicas

__all__ = ["BestWeights"]


class BestWeights:
    """A copy of the stacks of replicas, with the weights of each from the epoch of its largest merit.

    Args:
        replicas: The replicas. Their current weights are those of epoch 0.
        later_of_equals: Whether the later of two epochs of equal merit is the better one.
    """

    def __init__(self, replicas: Replicas, *, later_of_equals: bool) -> None:
        self._later_of_equals = later_of_equals
        # The state dict refers to the net's own tensors, so that it shows the newest weights at any time.
        self._state = replicas.net.state_dict()
        self._kept = {name: stack.clone() for name, stack in self._state.items()}
        count = len(replicas)
        self._merits = torch.full((count,), -torch.inf, dtype=torch.float64)
        self._epochs = torch.zeros(count, dtype=torch.int64)

    @property
    def epochs(self) -> tuple[int, ...]:
        """Return the best epoch of each replica so far, from 1; 0 for a replica without one."""
        return tuple(self._epochs.tolist())

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors that a checkpoint must save and restore."""
        stacks = {f"{BEST}{name}": stack for name, stack in self._kept.items()}
        return {**stacks, "best_merits": self._merits, BEST_EPOCHS: self._epochs}

    @torch.no_grad()
    def note(self, merits: Tensor, epoch: int) -> None:
        """Save the weights of replicas with a better merit than before; a merit of NaN is never better."""
        found = merits.to(self._merits)
        better = found >= self._merits if self._later_of_equals else found > self._merits
        # Copied in place: a checkpoint, and a training that resumes, hold these tensors.
        places = better.nonzero().flatten().tolist()
        if not places:
            return
        for name, stack in self._state.items():
            self._kept[name][places] = stack[places]
        self._merits[places] = found[places]
        self._epochs[places] = epoch

    @torch.no_grad()
    def restore(self, where: Sequence[bool] | None = None) -> None:
        """Give the replicas of `where` (default: all) the weights of their best epoch, or of epoch 0."""
        places = [k for k in range(len(self._epochs)) if where is None or where[k]]
        for name, stack in self._state.items():
            if len(places) == len(stack):
                stack.copy_(self._kept[name])
            else:
                stack[places] = self._kept[name][places]
