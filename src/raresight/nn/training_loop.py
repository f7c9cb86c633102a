"""The epochs of a training, its checkpoints, and the mean of its weights.

The caller runs the loop and decides what happens between epochs. `train` evaluates all replicas there, and
`raresight.deep` stops them early.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..common.journal import Journal
from .batches import RowSource
from .checkpoint import OURS, Checkpoint, TrainingFolder
from .recipe import Recipe
from .replicas import Replicas
from .step import REASONS, TrainingStep

__all__ = ["Failure", "MeanWeights", "TrainingLoop", "deterministic", "training_session"]


@dataclass(frozen=True)
class Failure:
    """Why and when a replica was frozen.

    Attributes:
        reason: The value that was not finite, one of `raresight.nn.step.REASONS`.
        epoch: The epoch, from 1.
        step: The step within that epoch, from 1.
        is_spoilt: Whether its weights are not finite, or give scores that are NaN.

    >>> str(Failure("gradient", 3, 17)), Failure("gradient", 3, 17).outcome
    ('gradient not finite at epoch 3, step 17', 'frozen with its last sound weights')
    """

    reason: str
    epoch: int
    step: int
    is_spoilt: bool = False

    def __str__(self) -> str:
        return f"{self.reason} not finite at epoch {self.epoch}, step {self.step}"

    @property
    def outcome(self) -> str:
        """Say which weights the replica has."""
        return "its last step spoilt the weights" if self.is_spoilt else "frozen with its last sound weights"


@contextmanager
def training_session(
    replicas: Replicas,
    rows: RowSource,
    recipe: Recipe,
    *,
    place: TrainingFolder | None = None,
    resume: bool = True,
    rows_of: Sequence[Tensor] | None = None,
) -> Iterator[TrainingLoop]:
    """Open the loop of a training, with cuDNN as deterministic as the recipe demands.

    Replicas and rows must be on the device of the training. If `place` holds a training, the replicas take
    its weights. A new training starts at the prior if the recipe's `start_at_prior` is set. `rows_of` are the
    rows of each replica, see `TrainingStep`.
    """
    with deterministic(recipe.deterministic):
        loop = TrainingLoop(replicas, rows, recipe, place, resume=resume, rows_of=rows_of)
        with contextlib.closing(loop):
            yield loop


class TrainingLoop:
    """The loop of a training, which `training_session` opens.

    Attributes:
        step: The training step, whose buffers have the losses and norms of the newest epoch.
        epoch: Number of finished epochs.
        seconds: Their duration. The caller adds to it and so decides whether evaluation counts.
        history: The results so far, one entry per replica and epoch.
        is_new: Whether the training started here, instead of resuming from a folder.
    """

    def __init__(
        self,
        replicas: Replicas,
        rows: RowSource,
        recipe: Recipe,
        place: TrainingFolder | None,
        *,
        resume: bool,
        rows_of: Sequence[Tensor] | None = None,
    ) -> None:
        self._replicas, self._rows, self._recipe, self._place = replicas, rows, recipe, place
        outputs = replicas.net.outputs
        checkpoint = Checkpoint() if place is None else place.open(resume=resume)
        # Before the step is made: its optimiser copies the weights.
        if checkpoint.tensors is None and recipe.start_at_prior:
            _start_at_prior(replicas, rows.class_shares(outputs))
        self.step = TrainingStep(replicas, rows, recipe, rows.class_counts(outputs), rows_of)
        self._extra: dict[str, Tensor] = {}
        self._read = checkpoint.tensors or {}
        if checkpoint.tensors is not None:
            self._restore(checkpoint.tensors)
        self.epoch, self.seconds = checkpoint.epoch, checkpoint.seconds
        self.is_new = checkpoint.tensors is None
        self._journal = None if place is None else Journal(place.journal, checkpoint.journal_entries)
        self.history: list[dict[str, Any]] = [] if self._journal is None else list(self._journal.entries)

    @property
    def is_done(self) -> bool:
        """Return whether all epochs are finished, or every replica is frozen."""
        return self.epoch >= self._recipe.epochs or bool(self.step.frozen.all())

    def run_epoch(self, after_step: Callable[[], None] | None = None) -> None:
        """Train all replicas for the next epoch; `after_step` is called after each of its steps."""
        self.step.run_epoch(self.epoch, after_step)
        self.epoch += 1
        if self.epoch == self._recipe.epochs:
            # The next step notices an update that overflows. The last step has no next one: the scores of one
            # batch are checked instead.
            some = self._replicas.scores(self._rows.part(slice(0, self._recipe.batch)))
            is_known = self.step.optimiser.weights.isfinite().all(1)
            self.step.give_up(some.flatten(1).isnan().any(1) | ~is_known)

    def failures(self) -> dict[int, Failure]:
        """Return why each frozen replica was frozen, by its number."""
        found = {}
        # The update of a step may itself overflow. The next step then freezes weights that are useless.
        is_sound = self.step.optimiser.weights.isfinite().all(1).tolist()
        for k, (at, reason) in enumerate(zip(self.step.frozen_at.tolist(), self.step.reason.tolist())):
            if reason:
                # Scores are checked after the step has been counted, the other values before.
                is_late = REASONS[reason] == "scores"
                epoch, step = divmod(at - is_late, self.step.steps)
                found[k] = Failure(REASONS[reason], epoch + 1, step + 1, is_late or not is_sound[k])
        return found

    @property
    def none_learned(self) -> bool:
        """Return whether every replica was frozen within its first epoch."""
        failed = self.failures()
        return len(failed) == len(self._replicas) and all(one.epoch == 1 for one in failed.values())

    @torch.no_grad()
    def add_to_checkpoints(self, tensors: Mapping[str, Tensor]) -> None:
        """Save these tensors with each checkpoint; a resumed training fills them from its checkpoint."""
        if not self.is_new:
            for name, tensor in tensors.items():
                tensor.copy_(self._read[f"{OURS}{name}"])
        self._read = {}
        self._extra.update(tensors)

    def note(self, results: Sequence[dict[str, Any]]) -> None:
        """Add results to the history, and to the journal of the folder."""
        self.history += results
        if self._journal is not None:
            self._journal.append(results)

    def save(self, metadata: Mapping[str, str]) -> None:
        """Write the current state as the checkpoint of the folder, if there is a folder."""
        if self._place is None or self._journal is None:
            return
        own = {f"{OURS}{name}": tensor for name, tensor in self._own_tensors().items()}
        tensors = {**self._replicas.net.state_dict(), **own}
        # The journal is synced first: the checkpoint names how many of its entries belong to it.
        checkpoint = Checkpoint(self.epoch, tensors, self._journal.sync(), self.seconds)
        self._place.save(checkpoint, metadata)

    def close(self) -> None:
        """Close the journal and set the net to evaluation mode."""
        self._replicas.net.eval()
        if self._journal is not None:
            self._journal.close()

    def _own_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the training that are not stacks of the net."""
        step = self.step
        slots = {f"optimiser_{name}": slot for name, slot in step.optimiser.slots.items()}
        guards = {"frozen": step.frozen, "frozen_at": step.frozen_at, "reason": step.reason}
        return {**slots, **guards, **self._extra}

    @torch.no_grad()
    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name, stack in self._replicas.net.state_dict().items():
            stack.copy_(tensors[name])
        for name, tensor in self._own_tensors().items():
            tensor.copy_(tensors[f"{OURS}{name}"])
        self.step.optimiser.reread()


# The longest memory of `MeanWeights`, in steps: an infinite one would make the share of a step 0/0. All steps
# of any real training weigh the same long before.
_LONGEST = 1e15


class MeanWeights:
    """An exponentially weighted mean of each replica's weights and running statistics over its steps.

        mean_t = sum_i b^(t - i) w_i / sum_i b^(t - i),    i = 1 ... t,    b = exp(-1 / (epochs * steps))

    with w_i the weights after step i and `steps` steps per epoch. The weight of a step falls by a factor e
    every `epochs` epochs. The denominator corrects the start-up bias.

    Args:
        step: The training step, before its first epoch.
        epochs: Length of the memory in epochs. 0 takes the newest weights alone.
    """

    def __init__(self, step: TrainingStep, epochs: float) -> None:
        self._step, self._memory, self._count = step, min(epochs * step.steps, _LONGEST), 0
        self._weights = torch.zeros_like(step.optimiser.weights)
        self._statistics = None if step.statistics is None else torch.zeros_like(step.statistics.gather())

    @torch.no_grad()
    def note(self) -> None:
        """Add the current weights to the mean; call it after every step."""
        if not self._memory:
            return
        self._count += 1
        # (1 - b) / (1 - b^t), the share of the newest weights. By expm1, since b is close to 1 and the
        # differences would lose their digits.
        share = math.expm1(-1 / self._memory) / math.expm1(-self._count / self._memory)
        self._weights.lerp_(self._step.optimiser.weights, share)
        if self._statistics is not None and self._step.statistics is not None:
            self._statistics.lerp_(self._step.statistics.gather(), share)

    @torch.no_grad()
    def write(self) -> None:
        """Give the net the means. The optimiser keeps its own weights, from which a further step starts."""
        if not self._memory:
            return
        self._step.optimiser.show(self._weights)
        if self._statistics is not None and self._step.statistics is not None:
            self._step.statistics.write(self._statistics)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the net the means for the length of the block."""
        if not self._memory:
            yield
            return
        statistics = self._step.statistics
        before = None if statistics is None else statistics.gather()
        self.write()
        try:
            yield
        finally:
            self._step.optimiser.write()
            if statistics is not None and before is not None:
                statistics.write(before)


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Hold cuDNN to deterministic algorithms, chosen without timing."""
    if not wanted:
        yield
        return
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


def _start_at_prior(replicas: Replicas, shares: Sequence[float]) -> None:
    if 0 in shares:
        raise ValueError(
            "start_at_prior needs rows of every class, with weights above zero, but the class shares are "
            f"{tuple(shares)}"
        )
    replicas.net.start_at_(replicas.table.start(shares[1] if replicas.net.outputs == 1 else shares))
