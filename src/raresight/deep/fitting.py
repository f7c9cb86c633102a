"""From coded rows to trained nets: all losses and seeds as one stack, the best loss kept."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..losses import Loss
from ..nn import Recipe, Replicas
from .loop import Judge, Trained, train_nets
from .nets import NetPlan
from .telling import Tell, quiet
from .trained_nets import TrainedNets
from .validation import Validation

__all__ = [
    "DivergedWarning",
    "Ensembles",
    "Outcome",
    "TrainingRows",
    "best_merit",
    "check_texts",
    "fit_nets",
    "importances",
    "new_replicas",
    "tell_failures",
    "train_ensembles",
    "warn_of_equal_scores",
]

Floats = NDArray[np.float64]

# Rows of each class whose slopes make the importances.
_SLOPE_ROWS = 512


class DivergedWarning(UserWarning):
    """A net did not learn: its loss or gradient was not finite, or it scores all rows the same."""


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Coded rows, class numbers, weights or None for equal ones, and the weighted class shares."""

    inputs: NDArray[np.float32]
    codes: NDArray[np.int64]
    weights: Floats | None
    shares: Floats


@dataclass(frozen=True, eq=False)
class Ensembles:
    """The nets of every loss.

    Attributes:
        nets: Of each loss those of all seeds.
        merits: Of each loss on the validation rows, its seeds taken together.
        best_epochs: For each loss the epochs whose weights its nets have.
        trained: What became of the whole stack, loss by loss.
    """

    nets: tuple[TrainedNets, ...]
    merits: tuple[float, ...] | None
    best_epochs: tuple[tuple[int, ...], ...]
    trained: Trained


@dataclass(frozen=True, eq=False)
class Outcome:
    """The nets of the loss that was kept.

    Attributes:
        nets: Those nets.
        validation_scores: The merit of each loss, its seeds taken together; None without validation rows.
        best_epochs: The epochs whose weights the nets have, one a seed.
        trained: What became of the whole stack, loss by loss.
    """

    nets: TrainedNets
    validation_scores: dict[str, float] | None
    best_epochs: tuple[int, ...]
    trained: Trained


def new_replicas(
    plan: NetPlan,
    losses: Sequence[Loss],
    seeds: Sequence[int],
    shares: Floats,
    device: str,
    dtype: torch.dtype = torch.float32,
    copies: int = 1,
) -> Replicas:
    """A net for every loss and seed, or `copies` of it, at the score right for the class shares alone."""
    pairs = [(loss, seed) for loss in losses for seed in seeds] * copies
    replicas = Replicas(plan.build, [loss for loss, _ in pairs], [seed for _, seed in pairs])
    priors: Any = float(shares[1]) if plan.outputs == 1 else shares.tolist()
    replicas.net.start_at_(replicas.table.start(priors))
    return replicas.to(device, dtype)


def train_ensembles(
    plan: NetPlan,
    losses: Sequence[Loss],
    seeds: Sequence[int],
    rows: TrainingRows,
    recipe: Recipe,
    *,
    validation: Validation | None,
    patience: int,
    average_epochs: float,
    device: str,
    judge: Judge | None = None,
    tell: Tell = quiet,
) -> Ensembles:
    """Train every loss with every seed at once, from the score that is right for the class shares alone.

    `judge` finds each net's best epoch; None for the one of the validation rows. For `average_epochs` see
    `raresight.deep.loop.train_nets`.
    """
    replicas = new_replicas(plan, losses, seeds, rows.shares, device, recipe.dtype)
    asked = judge if judge is not None or validation is None else validation.judge
    trained = train_nets(
        replicas,
        rows.inputs,
        rows.codes,
        rows.weights,
        recipe,
        judge=asked,
        patience=patience,
        average_epochs=average_epochs,
        tell=tell,
    )
    groups = [range(i * len(seeds), (i + 1) * len(seeds)) for i in range(len(losses))]
    nets = tuple(TrainedNets.of(plan, replicas, list(group)) for group in groups)
    merits = None
    if validation is not None:
        merits = tuple(validation.merit(one.loss, one.scores(validation.inputs, device)) for one in nets)
    best_epochs = tuple(tuple(trained.best_epochs[k] for k in group) for group in groups)
    return Ensembles(nets, merits, best_epochs, trained)


def fit_nets(
    plan: NetPlan,
    losses: Sequence[Loss],
    seeds: Sequence[int],
    rows: TrainingRows,
    recipe: Recipe,
    *,
    validation: Validation | None,
    patience: int,
    average_epochs: float,
    device: str,
    tell: Tell = quiet,
) -> Outcome:
    """Train every loss with every seed at once, and keep the nets of the best loss."""
    if validation is None and len(losses) > 1:
        raise ValueError(
            f"{len(losses)} losses need rows to choose by: pass eval_set=(X, y) to fit, or set "
            "early_stopping=True"
        )
    check_texts(losses)
    found = train_ensembles(
        plan,
        losses,
        seeds,
        rows,
        recipe,
        validation=validation,
        patience=patience,
        average_epochs=average_epochs,
        device=device,
        tell=tell,
    )
    tell_failures(found.trained)
    if found.merits is None:
        return Outcome(found.nets[0], None, found.best_epochs[0], found.trained)
    best = best_merit(found.merits)
    scores = {str(loss): merit for loss, merit in zip(losses, found.merits)}
    return Outcome(found.nets[best], scores, found.best_epochs[best], found.trained)


def tell_failures(trained: Trained, where: str = "") -> None:
    """A `DivergedWarning` for each net whose loss or gradient was not finite, where `fit` was called.

    An error where that befell every net within its first epoch: such a model would know nothing.
    """
    if trained.none_learned:
        raise ValueError(f"{where}no net learned anything: {'; '.join(trained.failures[:3])}")
    for failure in trained.failures:
        warnings.warn(f"{where}{failure}", DivergedWarning, stacklevel=5)


def warn_of_equal_scores(scores: NDArray[Any], inputs: NDArray[np.float32]) -> None:
    """A `DivergedWarning` where rows that differ all have the same score."""
    if len(scores) > 1 and not np.ptp(scores, axis=0).any() and np.ptp(inputs, axis=0).any():
        warnings.warn(
            "the nets score all training rows the same, as where too large steps put every unit to rest: "
            "lower learning_rate or weight_decay, or train for more epochs",
            DivergedWarning,
            stacklevel=4,
        )


def check_texts(losses: Sequence[Loss]) -> None:
    """The scores of the losses are told by their texts, as the file of a model does."""
    seen: dict[str, Loss] = {}
    for loss in losses:
        if seen.setdefault(str(loss), loss) != loss:
            raise ValueError(
                f"two different losses have the same text {loss}, by which their scores are told apart: give "
                "one of them another name"
            )


def best_merit(merits: Sequence[float]) -> int:
    """The place of the largest; an error where none is finite."""
    if not np.isfinite(merits).any():
        raise ValueError("the scores of rows that choose the loss are not finite: lower learning_rate")
    return int(np.nanargmax(merits))


def importances(
    nets: TrainedNets,
    rows: TrainingRows,
    scores: NDArray[Any],
    origins: NDArray[np.intp],
    columns: int,
    device: str,
) -> Floats:
    """The share of each column: how much a score would move if its inputs had their means, to first order.

        share of a column ~ sum over classes y of sqrt(mean d_y^2),   d_y = sum_i (x_i - mean_i) dm_y/dx_i

    where i are its inputs, means are by the weights of the rows, the one under the root over up to 512 rows
    of class y, spread over the order of their `scores` by the nets, and m_y is the score of two classes, or
    of several the logit of y minus the mean of the others. The inputs of a column are taken together, since
    of those of its categories one is on in a row: many categories are not many times as important. Shares sum
    to one, or are all zero.
    """
    weights = np.ones(len(rows.codes)) if rows.weights is None else rows.weights
    # Not by a product, which would copy all inputs.
    means = np.einsum("i,ij->j", weights, rows.inputs, dtype=np.float64) / weights.sum()
    found = np.zeros(columns)
    for k in range(len(rows.shares)):
        some = np.flatnonzero(rows.codes == k)
        if len(some) > _SLOPE_ROWS:
            # By their scores, so that it does not matter in which order the rows came.
            own = scores[some] if scores.ndim == 1 else scores[some, k]
            some = some[np.argsort(own, kind="stable")][:: -(-len(some) // _SLOPE_ROWS)]
        moves = (nets.slopes(rows.inputs[some], k, device) * (rows.inputs[some] - means))[:, : len(origins)]
        of_columns = np.zeros((columns, len(some)))
        np.add.at(of_columns, origins, moves.T)
        found += np.sqrt(np.square(of_columns) @ weights[some] / weights[some].sum())
    total = found.sum()
    return np.asarray(found / total) if total > 0 else found
