"""The weights of each replica's best epoch, kept while training goes on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .checkpoint import BEST, BEST_EPOCHS
from .replicas import Replicas

__all__ = ["BestWeights"]


class BestWeights:
    """A copy of the stacks of replicas, each as it was in the epoch of its largest merit.

    Args:
        replicas: Whose weights; those they have now count as epoch 0.
        later_of_equals: Whether of two epochs of equal merit the later one is the better.
    """

    def __init__(self, replicas: Replicas, *, later_of_equals: bool) -> None:
        self._later_of_equals = later_of_equals
        self._state = replicas.net.state_dict()
        self._kept = {name: stack.clone() for name, stack in self._state.items()}
        count = len(replicas)
        self._merits = torch.full((count,), -torch.inf, dtype=torch.float64)
        self._epochs = torch.zeros(count, dtype=torch.int64)

    @property
    def epochs(self) -> tuple[int, ...]:
        """The best epoch of each replica so far, from 1; 0 for one that had none."""
        return tuple(self._epochs.tolist())

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint has to keep, and to fill in when it is read."""
        stacks = {f"{BEST}{name}": stack for name, stack in self._kept.items()}
        return {**stacks, "best_merits": self._merits, BEST_EPOCHS: self._epochs}

    @torch.no_grad()
    def note(self, merits: Tensor, epoch: int) -> None:
        """Keep the weights of replicas that are better now; one whose merit is NaN never is."""
        found = merits.to(self._merits)
        better = found >= self._merits if self._later_of_equals else found > self._merits
        places = better.nonzero().flatten().tolist()
        if not places:
            return
        for name, stack in self._state.items():
            self._kept[name][places] = stack[places]
        self._merits[places] = found[places]
        self._epochs[places] = epoch

    @torch.no_grad()
    def restore(self, where: Sequence[bool] | None = None) -> None:
        """Give each replica the weights of its best epoch, epoch 0 if it had none; only those of `where`."""
        places = [k for k in range(len(self._epochs)) if where is None or where[k]]
        for name, stack in self._state.items():
            if len(places) == len(stack):
                stack.copy_(self._kept[name])
            else:
                stack[places] = self._kept[name][places]
