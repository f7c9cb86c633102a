"""Means of weights over the last steps of a training: what small steps at its end would give, at any moment.

Weights that are moved by batches never rest: those of an epoch's end are as good as its last batches were
kind. A mean over many steps is nearer to where they are going, and training itself need not slow down for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .step import TrainingStep

__all__ = ["MeanWeights"]

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
