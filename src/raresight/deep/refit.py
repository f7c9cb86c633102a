"""Training once more on all rows, once held-out ones have said for how long and with which loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from ..losses import Loss
from ..nn import Recipe, Replicas
from .fitting import TrainingRows, tell_failures, train_ensembles
from .nets import NetPlan
from .scoring import score_rows
from .telling import Tell, quiet
from .trained_nets import TrainedNets

__all__ = ["refit_nets"]

# Rows by which an epoch is seen to be usable.
_SOME_ROWS = 256


def refit_nets(
    plan: NetPlan,
    loss: Loss,
    seeds: Sequence[int],
    rows: TrainingRows,
    recipe: Recipe,
    epochs: Sequence[int],
    *,
    average_epochs: float,
    device: str,
    tell: Tell = quiet,
) -> TrainedNets:
    """The net of each seed after its own number of epochs, from the same first weights as before.

    A net whose loss, gradient or scores are not finite before that keeps the weights of before.
    """
    longest = max(1, *epochs)
    found = train_ensembles(
        plan,
        [loss],
        seeds,
        rows,
        replace(recipe, epochs=longest),
        validation=None,
        patience=longest,
        average_epochs=average_epochs,
        device=device,
        judge=_Until(epochs, rows.inputs[:_SOME_ROWS]).merits,
        tell=tell,
    )
    tell_failures(found.trained, "once more on all rows: ")
    return found.nets[0]


class _Until:
    """A judge to whom each epoch is better than the last, up to the one that a net is to have.

    None is in which some rows have no score.
    """

    def __init__(self, epochs: Sequence[int], inputs: NDArray[np.float32]) -> None:
        self._wanted, self._done, self._inputs = np.array(epochs), 0, torch.from_numpy(inputs)

    def merits(self, replicas: Replicas, frozen: NDArray[np.bool_]) -> NDArray[np.float64]:
        self._done += 1
        scores = score_rows(replicas, self._inputs).reshape(len(frozen), -1)
        is_usable = np.isfinite(scores).all(1) & ~frozen & (self._done <= self._wanted)
        return np.where(is_usable, float(self._done), np.nan)
