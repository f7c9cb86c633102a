"""The epochs of a training, one after the other, kept in a folder so that it can be killed at any moment.

The caller runs the loop and decides what happens between epochs, such as an evaluation.
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
        reason: What was not finite, one of `raresight.nn.step.REASONS`.
        epoch: From 1.
        step: Within that epoch, from 1.
        is_spoilt: Whether its weights are not finite, or give no scores.

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
        """Which weights the replica has."""
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
    """The loop of a training while it lasts, with cuDNN as deterministic as the recipe demands.

    Replicas and rows are where they are trained. Where `place` holds a training, the replicas take its
    weights over; a training that is new starts at the prior if the recipe says so. `rows_of` are the rows of
    each replica, see `TrainingStep`.
    """
    with deterministic(recipe.deterministic):
        loop = TrainingLoop(replicas, rows, recipe, place, resume=resume, rows_of=rows_of)
        with contextlib.closing(loop):
            yield loop


class TrainingLoop:
    """A training under way; see `training_session`.

    Attributes:
        step: What trains: its buffers have the losses and norms of the newest epoch.
        epoch: Epochs that are finished.
        seconds: How long they took. The caller adds to it and so decides what counts.
        history: What was noted so far, one entry a result.
        is_new: Whether it began here, and not where a folder stood.
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
        if checkpoint.tensors is None and recipe.start_at_prior:
            _start_at_prior(replicas, rows.class_shares(outputs))
        self.step = TrainingStep(replicas, rows, recipe, rows.class_counts(outputs), rows_of)
        self._also: dict[str, Tensor] = {}
        self._read = checkpoint.tensors or {}
        if checkpoint.tensors is not None:
            self._restore(checkpoint.tensors)
        self.epoch, self.seconds = checkpoint.epoch, checkpoint.seconds
        self.is_new = checkpoint.tensors is None
        self._journal = None if place is None else Journal(place.journal, checkpoint.journal_entries)
        self.history: list[dict[str, Any]] = [] if self._journal is None else list(self._journal.entries)

    @property
    def is_done(self) -> bool:
        """Whether all epochs are finished, or every replica is frozen."""
        return self.epoch >= self._recipe.epochs or bool(self.step.frozen.all())

    def run_epoch(self, after_step: Callable[[], None] | None = None) -> None:
        """Train all replicas for the next epoch; `after_step` is called after each of its steps."""
        self.step.run_epoch(self.epoch, after_step)
        self.epoch += 1
        if self.epoch == self._recipe.epochs:
            # A step is guarded by the next one; the last has none.
            some = self._replicas.scores(self._rows.part(slice(0, self._recipe.batch)))
            is_known = self.step.optimiser.weights.isfinite().all(1)
            self.step.give_up(some.flatten(1).isnan().any(1) | ~is_known)

    def failures(self) -> dict[int, Failure]:
        """What befell the replicas that are frozen, by their numbers."""
        found = {}
        # A step may overflow in its very update: what the next one then freezes is of no use.
        is_sound = self.step.optimiser.weights.isfinite().all(1).tolist()
        for k, (at, reason) in enumerate(zip(self.step.frozen_at.tolist(), self.step.reason.tolist())):
            if reason:
                # Scores are looked at once the step is done.
                is_late = REASONS[reason] == "scores"
                epoch, step = divmod(at - is_late, self.step.steps)
                found[k] = Failure(REASONS[reason], epoch + 1, step + 1, is_late or not is_sound[k])
        return found

    @property
    def none_learned(self) -> bool:
        """Whether every replica was frozen before its first epoch was over."""
        failed = self.failures()
        return len(failed) == len(self._replicas) and all(one.epoch == 1 for one in failed.values())

    @torch.no_grad()
    def also_keep(self, tensors: Mapping[str, Tensor]) -> None:
        """Add tensors to checkpoints; a training that resumes fills them in as they were."""
        if not self.is_new:
            for name, tensor in tensors.items():
                tensor.copy_(self._read[f"{OURS}{name}"])
        self._read = {}
        self._also.update(tensors)

    def note(self, results: Sequence[dict[str, Any]]) -> None:
        """Add results to the history, and to the journal of the folder."""
        self.history += results
        if self._journal is not None:
            self._journal.append(results)

    def save(self, metadata: Mapping[str, str]) -> None:
        """Make where it stands the checkpoint of the folder; nothing where there is none."""
        if self._place is None or self._journal is None:
            return
        own = {f"{OURS}{name}": tensor for name, tensor in self._own_tensors().items()}
        tensors = {**self._replicas.net.state_dict(), **own}
        checkpoint = Checkpoint(self.epoch, tensors, self._journal.sync(), self.seconds)
        self._place.save(checkpoint, metadata)

    def close(self) -> None:
        """Let go of the journal; the net is left as it is to be used, not trained."""
        self._replicas.net.eval()
        if self._journal is not None:
            self._journal.close()

    def _own_tensors(self) -> dict[str, Tensor]:
        """What a training has beside the stacks of the net."""
        step = self.step
        slots = {f"optimiser_{name}": slot for name, slot in step.optimiser.slots.items()}
        guards = {"frozen": step.frozen, "frozen_at": step.frozen_at, "reason": step.reason}
        return {**slots, **guards, **self._also}

    @torch.no_grad()
    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name, stack in self._replicas.net.state_dict().items():
            stack.copy_(tensors[name])
        for name, tensor in self._own_tensors().items():
            tensor.copy_(tensors[f"{OURS}{name}"])
        self.step.optimiser.reread()


# Steps beyond which none is forgotten.
_LONGEST = 1e15


class MeanWeights:
    """The mean of each replica's weights, and of the running statistics of its layers, since it began.

        mean_t = sum_i b^(t - i) w_i / sum_i b^(t - i),    i = 1 ... t,    b = exp(-1 / (epochs * steps))

    with w_i the weights after step i, of which an epoch has `steps`: one counts for 1/e of the newest once it
    is `epochs` old. The sum below the line makes it a mean from the first step on.

    Args:
        step: What trains; nothing may have been trained before.
        epochs: How long steps are remembered; 0 for the newest weights alone.
    """

    def __init__(self, step: TrainingStep, epochs: float) -> None:
        # In steps; none is forgotten long before the limit, above which one counts for nothing.
        self._step, self._memory, self._count = step, min(epochs * step.steps, _LONGEST), 0
        self._weights = torch.zeros_like(step.optimiser.weights)
        self._statistics = None if step.statistics is None else torch.zeros_like(step.statistics.gather())

    @torch.no_grad()
    def note(self) -> None:
        """Take in the weights as they are now; to be called after every step."""
        if not self._memory:
            return
        self._count += 1
        share = math.expm1(-1 / self._memory) / math.expm1(-self._count / self._memory)
        self._weights.lerp_(self._step.optimiser.weights, share)
        if self._statistics is not None and self._step.statistics is not None:
            self._statistics.lerp_(self._step.statistics.gather(), share)

    @torch.no_grad()
    def write(self) -> None:
        """Give the net the means; a further step would go on from its own weights."""
        if not self._memory:
            return
        self._step.optimiser.show(self._weights)
        if self._statistics is not None and self._step.statistics is not None:
            self._step.statistics.write(self._statistics)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The net with the means, and afterwards as it was."""
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
    """cuDNN held to deterministic algorithms, and not choosing by timing."""
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
