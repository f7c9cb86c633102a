"""Training once more on all rows, once held-out ones have said for how long and with which loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss
from ..nn import Recipe, Replicas
from .fitting import TrainingRows, train_ensembles, warn_of_failures
from .nets import NetPlan
from .telling import Tell, quiet
from .trained_nets import TrainedNets

__all__ = ["refit_nets"]


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

    A net whose loss or gradient is not finite before that keeps the weights of before.
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
        judge=_Until(epochs).merits,
        tell=tell,
    )
    warn_of_failures(found.trained)
    return found.nets[0]


class _Until:
    """A judge to whom each epoch is better than the last, up to the one that a net is to have."""

    def __init__(self, epochs: Sequence[int]) -> None:
        self._wanted, self._done = np.array(epochs), 0

    def merits(self, _: Replicas, frozen: NDArray[np.bool_]) -> NDArray[np.float64]:
        self._done += 1
        return np.where(frozen | (self._done > self._wanted), np.nan, float(self._done))
