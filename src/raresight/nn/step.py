"""One training step of K replicas, on buffers whose addresses do not change.

A step never reads a value back from the device, so that a GPU can record it as a CUDA graph and replay it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .batches import RowSource, draw_epoch, steps_of
from .optimiser import FlatStacks, StackOptimiser, clip_factors
from .recipe import Recipe
from .replicas import Replicas
from .schedule import class_weights, deferred_replicas, learning_rates

__all__ = ["REASONS", "TrainingStep", "record_graph"]

# Why a replica was frozen. The device stores the position; 0 is a replica that trains.
REASONS = ("", "loss", "gradient", "running statistics", "scores")

# Steps before a CUDA graph is recorded, as PyTorch's documentation advises.
_WARM_UP = 3


class TrainingStep:
    """The state of a training and the step that changes it.

    A replica is frozen if its loss, gradient norm or batch-norm statistics are not finite. Its weights, its
    optimiser state and its statistics keep their values from before the step, and no later step changes them.
    An update that overflows is noticed by the next step. After the last step `give_up` does this, for the
    replicas whose scores are NaN.

    Args:
        replicas: The stack to train.
        source: The rows.
        recipe: Schedule, optimiser and precision.
        class_counts: Number of rows of each class.
        rows_of: For each replica the numbers of its training rows, int64 on the CPU; replicas with the same
            rows pass the same tensor. Default: all rows. The weights of each set of rows have a mean of 1.

    Attributes:
        steps: Number of steps in an epoch.
        optimiser: The optimiser, which holds the weights and its own state.
        statistics: Running statistics of layers such as batch norm, None for a net without them.
        frozen: (K,), bool.
        frozen_at: (K,), the step of all steps (from 0) at which a replica was frozen, or -1.
        reason: (K,), why: a position in `REASONS`.
        norms: (steps, K), float64, the gradient norms of the epoch before clipping. NaN once frozen.
        losses: (steps, K), the mean losses of the batches, with row weights. NaN once frozen.
    """

    def __init__(
        self,
        replicas: Replicas,
        source: RowSource,
        recipe: Recipe,
        class_counts: Sequence[int],
        rows_of: Sequence[Tensor] | None = None,
    ) -> None:
        net, count = replicas.net, len(replicas)
        fixed = [name for name, parameter in net.named_parameters() if not parameter.requires_grad]
        if fixed:
            raise ValueError(
                f"all weights of a stack are trained, but {', '.join(fixed)} has requires_grad=False: "
                "call net.requires_grad_(True) first"
            )
        self._net, self._table, self._source, self._recipe = net, replicas.table, source, recipe
        self._forward: Callable[[Tensor], Tensor] = net.training_scores
        if recipe.compiled:
            self._forward = torch.compile(net.training_scores, dynamic=False)
        self._parameters = list(net.parameters())
        self._device, self._dtype = self._parameters[0].device, self._parameters[0].dtype
        self.optimiser = StackOptimiser(self._parameters, count, recipe)
        statistics = list(replicas.statistics().values())
        self.statistics = FlatStacks(statistics, count) if statistics else None

        place: dict[str, Any] = {"device": self._device}
        rows = [None] * count if rows_of is None else list(rows_of)
        drawn = [(seed, id(own)) for seed, own in zip(replicas.seeds, rows, strict=True)]
        different = dict(zip(drawn, rows))
        # Which of the different draws each replica has: rows are gathered once for each of them.
        owner = [list(different).index(key) for key in drawn]
        self._owner = None if owner == list(range(count)) else torch.tensor(owner, **place)
        self._seeds = tuple(seed for seed, _ in different)
        self._rows = None if rows_of is None else [own for own in different.values() if own is not None]
        self._weight_factors = _weight_factors(source, self._rows)
        fewest = len(source) if self._rows is None else min(map(len, self._rows))
        self.steps, _ = steps_of(fewest, recipe.batch)
        draws = self._draws(0)
        self._order = draws.order.to(self._device)
        self._changes = tuple(change.to(self._device) for change in draws.changes)
        self._position = torch.zeros(1, dtype=torch.int64, **place)
        self._done = torch.zeros((), dtype=torch.int64, **place)
        self._rates = torch.zeros(self.steps, count, dtype=self._dtype, **place)
        limits = recipe.clips_of(count)
        self._limits = None if limits is None else torch.tensor(limits, dtype=torch.float64, **place)
        # Squares of clipped gradients must be finite, too, in an optimiser that sums them up.
        keeps_squares = recipe.optimiser == "adamw"
        self._largest_norm = math.sqrt(torch.finfo(self._dtype).max) if keeps_squares else math.inf
        self._class_counts = tuple(class_counts)
        self._deferred = deferred_replicas(recipe, replicas.losses)
        self._weights: Tensor | None = None
        if any(self._deferred):
            self._weights = class_weights(recipe, self._deferred, class_counts, 0).to(
                self._device, self._dtype
            )

        self.frozen = torch.zeros(count, dtype=torch.bool, **place)
        self.frozen_at = torch.full((count,), -1, dtype=torch.int64, **place)
        self.reason = torch.zeros(count, dtype=torch.int64, **place)
        self.norms = torch.zeros(self.steps, count, dtype=torch.float64, **place)
        self.losses = torch.zeros(self.steps, count, dtype=self._dtype, **place)
        self._replay: Callable[[], None] | None = None

    def run_epoch(self, epoch: int, after_step: Callable[[], None] | None = None) -> None:
        """Run all steps of an epoch (from 0), and call `after_step` after each."""
        self._prepare(epoch)
        self._net.train()
        # The caller may be inside `torch.no_grad`.
        with torch.enable_grad():
            if self._device.type == "cuda" and self._recipe.cuda_graph and self._replay is None:
                self._replay = record_graph(self._step, self._state(), self._device)
            step = self._replay or self._step
            for _ in range(self.steps):
                step()
                if after_step is not None:
                    after_step()

    @torch.no_grad()
    def give_up(self, broken: Tensor) -> None:
        """Freeze replicas, (K,) bool, whose scores are NaN after the newest step; their weights stay."""
        fresh = broken & ~self.frozen
        self.frozen_at.copy_(torch.where(fresh, self._done, self.frozen_at))
        self.reason.masked_fill_(fresh, REASONS.index("scores"))
        self.frozen.logical_or_(fresh)

    def class_weights(self, epochs: Sequence[int]) -> Tensor | None:
        """Return the class weights (K, classes), for each replica those of its own epoch, from 0.

        They are 1 for the epoch -1. None if no replica is reweighted.
        """
        if not any(self._deferred):
            return None
        rows = [
            class_weights(self._recipe, self._deferred, self._class_counts, epoch)[k]
            for k, epoch in enumerate(epochs)
        ]
        return torch.stack(rows)

    def last_moved(self, epoch: int) -> list[int]:
        """Return the epoch (from 0) of each replica's last update, after `epoch`; -1 without one."""
        return [epoch if at < 0 else (at - 1) // self.steps for at in self.frozen_at.tolist()]

    def _draws(self, epoch: int) -> Any:
        return draw_epoch(
            self._source,
            self._seeds,
            epoch,
            self._recipe.batch,
            augment=self._recipe.augment,
            rows=self._rows,
        )

    def _prepare(self, epoch: int) -> None:
        """Write batches, learning rates and class weights of an epoch into the buffers of the step."""
        draws = self._draws(epoch)
        self._order.copy_(draws.order)
        for buffer, change in zip(self._changes, draws.changes, strict=True):
            buffer.copy_(change)
        self._rates.copy_(learning_rates(self._recipe, len(self.frozen), epoch, self.steps))
        if self._weights is not None:
            self._weights.copy_(class_weights(self._recipe, self._deferred, self._class_counts, epoch))
        self._position.zero_()
        self._done.fill_(epoch * self.steps)

    def _step(self) -> None:
        x, labels, row_weights = self._next_batch()
        before = None if self.statistics is None else self.statistics.gather()
        # Without autocast's cache of cast weights: a graph would replay with those of its recording.
        with torch.autocast(
            self._device.type, torch.bfloat16, enabled=self._recipe.precision == "bf16", cache_enabled=False
        ):
            scores = self._forward(x)
        labels = self._net.training_labels(labels)
        if row_weights is not None:
            row_weights = self._net.training_labels(row_weights)
        losses = self._table(scores.to(self._dtype), labels, self._weights, row_weights)
        # Each loss depends on the weights of one replica, so the gradient of the sum is K gradients at once.
        gradients = torch.autograd.grad(losses.sum(), self._parameters, materialize_grads=True)
        with torch.no_grad():
            self._update(losses.detach().to(self._dtype), self.optimiser.gather(gradients), before)

    def _next_batch(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return rows, labels and row weights: (N, ...) for all replicas, or (K, N, ...) for each."""
        # By a position on the device: a number from Python would be fixed in the graph.
        index, *changes = (
            drawn.index_select(0, self._position).squeeze(0) for drawn in (self._order, *self._changes)
        )
        x = self._source.batch(index, tuple(changes))
        weights = None if self._source.weights is None else _at(self._source.weights, index)
        if weights is not None and self._weight_factors is not None:
            weights = weights * self._weight_factors
        return (
            self._of_replicas(x),
            self._of_replicas(_at(self._source.labels, index)),
            None if weights is None else self._of_replicas(weights),
        )

    def _of_replicas(self, drawn: Tensor) -> Tensor:
        """Spread the U different draws over the replicas; one draw for all stays without that axis."""
        if len(self._seeds) == 1:
            return drawn[0]
        return drawn if self._owner is None else drawn.index_select(0, self._owner)

    def _update(self, losses: Tensor, gradient: Tensor, before: Tensor | None) -> None:
        # In float64: in float32 the square of a gradient of 1e20 is infinite.
        norms = torch.linalg.vector_norm(gradient, dim=1, dtype=torch.float64)
        statistics = None if self.statistics is None else self.statistics.gather()
        self.norms.index_copy_(0, self._position, norms.masked_fill(self.frozen, torch.nan)[None])
        self.losses.index_copy_(0, self._position, losses.masked_fill(self.frozen, torch.nan)[None])
        clipped = norms if self._limits is None else torch.minimum(norms, self._limits)
        # AdamW keeps squares of gradients. An infinite one would make every later step 0, and no check would
        # see a replica that has stopped.
        usable = norms.masked_fill(clipped > self._largest_norm, torch.inf)
        found = _why_it_fails(losses, usable, statistics).masked_fill(self.frozen, 0)
        fails = found > 0
        self.frozen_at.copy_(torch.where(fails, self._done, self.frozen_at))
        self.reason.copy_(torch.where(fails, found, self.reason))
        self.frozen.logical_or_(fails)
        # A mask instead of a branch, whose condition would have to be read from the device.
        alive = ~self.frozen
        factor = None if self._limits is None else clip_factors(norms, self._limits).to(gradient.dtype)
        rate = self._rates.index_select(0, self._position).squeeze(0)
        self._done.add_(1)
        self._position.add_(1)
        self.optimiser.step(gradient, rate, alive, self._done, factor)
        if self.statistics is not None and statistics is not None and before is not None:
            self.statistics.write(torch.where(alive.unsqueeze(1), statistics, before))

    def _state(self) -> list[Tensor]:
        """Return every tensor that a step changes."""
        return [
            *(parameter.detach() for parameter in self._parameters),
            *self._net.buffers(),
            self.optimiser.weights,
            *self.optimiser.slots.values(),
            *(self._position, self._done, self.frozen, self.frozen_at, self.reason, self.norms, self.losses),
        ]


def _at(values: Tensor, index: Tensor) -> Tensor:
    """Return the entries of a vector at an index of any shape."""
    return values.index_select(0, index.reshape(-1)).view_as(index)


def _weight_factors(source: RowSource, rows: Sequence[Tensor] | None) -> Tensor | None:
    """Return the factors (U, 1) that give the row weights of each draw a mean of 1."""
    if source.weights is None or rows is None:
        return None
    means = [source.weights[own.to(source.weights.device)].double().mean() for own in rows]
    return torch.stack(means).reciprocal().to(source.weights).unsqueeze(1)


def _why_it_fails(losses: Tensor, norms: Tensor, statistics: Tensor | None) -> Tensor:
    """Return the positions in `REASONS`, (K,): 0 for a replica whose values are all finite."""
    # The earliest cause is written last: a loss that is not finite makes the gradient so, too.
    found = torch.zeros_like(losses, dtype=torch.int64)
    if statistics is not None:
        found.masked_fill_(~torch.isfinite(statistics).all(1), REASONS.index("running statistics"))
    found.masked_fill_(~torch.isfinite(norms), REASONS.index("gradient"))
    return found.masked_fill_(~torch.isfinite(losses), REASONS.index("loss"))


def record_graph(
    step: Callable[[], None], state: Sequence[Tensor], device: torch.device
) -> Callable[[], None]:
    """Record a step as a CUDA graph and return the function that replays it.

    A few steps run first, on a side stream as recording demands: they choose and compile kernels and reserve
    their memory. `state` is every tensor that a step changes; its values are restored.
    """
    saved = [tensor.clone() for tensor in state]

    def restore() -> None:
        with torch.no_grad():
            for tensor, value in zip(state, saved, strict=True):
                tensor.copy_(value)

    with torch.cuda.device(device):
        side = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                step()
                restore()
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        # Recording runs no kernel, but a layer of the user may change its state from Python meanwhile.
        restore()
        torch.cuda.synchronize(device)
    return graph.replay
