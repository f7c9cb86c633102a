"""How long to train where positives are too few to hold some out: by parts that take turns in judging."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..losses import Loss
from ..nn import Recipe, Replicas
from .fitting import TrainingRows, train_ensembles
from .nets import NetPlan
from .scoring import score_rows
from .validation import mean_log_probability

__all__ = ["cross_fitted_epochs", "parts_of"]

Floats = NDArray[np.float64]

PARTS = 5
# A likelihood falls soon after its best and does not come back, as a partial AUC of few positives may.
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

    The mean is over all rows by their weights, and over the seeds. A part whose training has ended counts
    with its last value: it had fallen for some epochs.
    """
    number = int(parts.max()) + 1
    found: list[tuple[float, Floats]] = []
    for part in range(number):
        inside = parts == part
        judged = _Judged(
            rows.inputs[inside], rows.codes[inside], None if rows.weights is None else rows.weights[inside]
        )
        train = TrainingRows(
            rows.inputs[~inside],
            rows.codes[~inside],
            None if rows.weights is None else rows.weights[~inside],
            rows.shares,
        )
        shorter = replace(recipe, batch=min(recipe.batch, len(train.codes)))
        trained = train_ensembles(
            plan,
            [loss],
            seeds,
            train,
            shorter,
            validation=None,
            patience=_PATIENCE,
            device=device,
            judge=judged.judge,
        ).trained
        if trained.merits is None:
            raise RuntimeError("a judge was given, but nothing was judged")
        # An epoch in which a net is not finite is as bad as can be.
        merits = np.where(np.isfinite(trained.merits), trained.merits, -np.inf).mean(1)
        found.append((judged.total, merits))
    longest = max(len(merits) for _, merits in found)
    whole = np.array([np.append(merits, np.full(longest - len(merits), merits[-1])) for _, merits in found])
    return 1 + int(np.argmax(np.array([total for total, _ in found]) @ whole))


class _Judged:
    """Rows of one part."""

    def __init__(self, inputs: NDArray[np.float32], codes: NDArray[np.int64], weights: Any) -> None:
        self._inputs, self._codes, self._weights = inputs, codes, weights
        self.total = float(len(codes) if weights is None else weights.sum())

    def judge(self, replicas: Replicas, frozen: NDArray[np.bool_]) -> Floats:
        scores = score_rows(replicas, torch.from_numpy(self._inputs))
        merits = np.full(len(replicas), np.nan)
        for k in np.flatnonzero(~frozen):
            merits[k] = mean_log_probability(replicas.losses[k], scores[k], self._codes, self._weights)
        return merits
