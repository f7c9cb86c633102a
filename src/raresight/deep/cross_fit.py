"""How long to train where positives are too few to hold some out: by parts that take turns in judging."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..losses import Loss
from ..nn import Recipe, TableRows
from ..nn.batches import steps_of
from ..nn.course import underway
from .fitting import DivergedWarning, TrainingRows, new_replicas
from .nets import NetPlan
from .scoring import score_rows
from .validation import mean_log_probability

__all__ = ["cross_fitted_epochs", "parts_of"]

PARTS = 5
# Epochs without a better mean: a likelihood does not come back once it falls, as a partial AUC may.
_PATIENCE = 5


def parts_of(codes: NDArray[np.int64], random: np.random.RandomState) -> NDArray[np.int64] | None:
    """The part of each row, classes spread evenly: five, or as many as the rarest class has rows.

    None where a class has one row only.

    >>> codes = np.array([0] * 7 + [1] * 2)
    >>> parts = parts_of(codes, np.random.RandomState(0))
    >>> np.bincount(parts[codes == 1]).tolist(), np.bincount(parts[codes == 0]).tolist()
    ([1, 1], [4, 3])
    """
    counts = np.bincount(codes)
    number = min(PARTS, int(counts.min()))
    if number < 2:
        return None
    parts = np.empty(len(codes), dtype=np.int64)
    for k, count in enumerate(counts):
        parts[random.permutation(np.flatnonzero(codes == k))] = np.arange(count) % number
    return parts


def cross_fitted_epochs(
    plan: NetPlan,
    loss: Loss,
    seeds: Sequence[int],
    rows: TrainingRows,
    recipe: Recipe,
    parts: NDArray[np.int64],
    *,
    device: str,
) -> int:
    """The epoch with the largest mean log-probability of the true class, of each part by nets of the others.

    The mean is over all rows by their weights, and over the seeds. All parts are trained side by side until
    it has not become better for some epochs: one that ended earlier would have to be guessed from then on.
    They take as many steps an epoch as all rows do, in smaller batches.
    """
    steps, _ = steps_of(len(rows.codes), recipe.batch)
    best, best_epoch = -np.inf, 1
    with contextlib.ExitStack() as held:
        turns = [
            _Turn(plan, loss, seeds, rows, recipe, parts == part, steps, device, held) for part in set(parts)
        ]
        for epoch in range(1, recipe.epochs + 1):
            merit = sum(turn.next_epoch() for turn in turns)
            if merit > best:
                best, best_epoch = merit, epoch
            if epoch - best_epoch >= _PATIENCE or any(turn.course.is_done for turn in turns):
                break
        failed = [str(failure) for turn in turns for failure in turn.course.failures().values()]
    if failed:
        warnings.warn(
            f"{len(failed)} of the nets that choose the number of epochs failed ({failed[0]}), so that it is "
            f"at most {best_epoch}: lower learning_rate",
            DivergedWarning,
            stacklevel=5,
        )
    return best_epoch


class _Turn:
    """Nets that are trained on the other parts, and judged by one."""

    def __init__(
        self,
        plan: NetPlan,
        loss: Loss,
        seeds: Sequence[int],
        rows: TrainingRows,
        recipe: Recipe,
        inside: NDArray[np.bool_],
        steps: int,
        device: str,
        held: contextlib.ExitStack,
    ) -> None:
        weights = None if rows.weights is None else rows.weights[~inside]
        self._replicas = new_replicas(plan, [loss], seeds, rows.shares, device)
        train = TableRows(rows.inputs[~inside], rows.codes[~inside], weights)
        batch = max(1, len(train) // steps)
        self.course = held.enter_context(
            underway(self._replicas, train.to(device, torch.float32), replace(recipe, batch=batch))
        )
        self._inputs, self._codes = torch.from_numpy(rows.inputs[inside]), rows.codes[inside]
        self._weights = None if rows.weights is None else rows.weights[inside]
        self._total = float(len(self._codes) if self._weights is None else self._weights.sum())

    def next_epoch(self) -> float:
        """Train one more; the sum of log-probabilities of the rows, the mean of the seeds'.

        An epoch in which a net is not finite is as bad as can be.
        """
        self.course.run_epoch()
        if bool(self.course.step.frozen.any()):
            return -np.inf
        scores = score_rows(self._replicas, self._inputs)
        pairs = zip(self._replicas.losses, scores)
        each = [mean_log_probability(loss, one, self._codes, self._weights) for loss, one in pairs]
        return self._total * float(np.mean(each)) if np.isfinite(each).all() else -np.inf
