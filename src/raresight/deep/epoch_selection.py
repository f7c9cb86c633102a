"""Cross-validated epoch selection: how long to train, and with which loss, where positives are few.

A fifth of a hundred positives is too few to validate on: the best of many epochs is then mostly luck. K-fold
cross-validation evaluates every row by nets that did not see it. Afterwards all rows train the final nets.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..losses import Loss
from ..nn import Recipe, TableRows
from ..nn.batches import steps_of
from .ensemble_scores import ensemble_score, score_rows
from .net_calibration import NetScores, calibrated_likelihood, mean_log_probability
from .net_plans import NetPlan
from .training import (
    SILENT,
    CodedRows,
    DivergedWarning,
    NetStack,
    TrainingProgress,
    check_distinct_texts,
    index_of_best,
    new_replicas,
    open_stack,
    run_epochs,
)
from .validation import Validation

__all__ = ["EpochChoice", "cross_validate_epochs"]

# Epochs without a better likelihood. Fewer than for a partial AUC, because a likelihood that has begun to
# fall does not recover, and a partial AUC may.
_PATIENCE = 5
# The most numbers in the widest layer of a stack, for one batch. Below this the time of a step is the
# overhead of its calls, and several folds as one stack take hardly longer than one fold. Above it the layer
# does not fit the cache of a CPU.
_CPU_STACK_NUMBERS, _GPU_STACK_NUMBERS = 1 << 16, 1 << 24


@dataclass(frozen=True, eq=False)
class EpochChoice:
    """The result of the cross-validation.

    Attributes:
        loss: The best loss.
        epochs: Its best number of epochs.
        validation_scores: `Validation.metric` of the out-of-fold scores of each loss at its best epoch, by
            the text of the loss. NaN where its nets failed.
        rows: All rows with the out-of-fold scores of the best loss.
    """

    loss: Loss
    epochs: int
    validation_scores: dict[str, float]
    rows: NetScores


@dataclass(frozen=True, eq=False)
class _BestEpoch:
    """The best epoch of a loss: its likelihood, its number, and the out-of-fold scores after it."""

    likelihood: float
    epoch: int
    scores: NDArray[Any]


def cross_validate_epochs(
    plan: NetPlan,
    losses: Sequence[Loss],
    seeds: Sequence[int],
    rows: CodedRows,
    recipe: Recipe,
    folds: NDArray[np.int64],
    *,
    max_fpr: float,
    event: int,
    with_slope: bool,
    average_epochs: float,
    device: str,
    progress: TrainingProgress = SILENT,
) -> EpochChoice:
    """Choose the number of epochs of each loss, and the best loss, by cross-validation.

    The epoch of a loss has the largest mean log-probability of the true class, as a weighted mean over all
    rows. Each row is scored by nets that were trained on the other folds, with all seeds as one ensemble. The
    best loss has the largest `Validation.metric` at its epoch.

    Args:
        plan: The architecture.
        losses: The losses to compare.
        seeds: One net per loss, seed and fold.
        rows: All training rows.
        recipe: The recipe of a training on all rows; its epochs are the most that are tried.
        folds: (n,) the fold of each row.
        max_fpr: See `Validation`.
        event: See `Validation`.
        with_slope: Whether log-odds are calibrated with a slope before the likelihood is taken.
        average_epochs: See `open_stack`.
        device: Such as "cpu".
        progress: The display.
    """
    check_distinct_texts(losses)
    train = rows.on(device, recipe.dtype)
    best = [_BestEpoch(-np.inf, 1, np.full(len(rows.codes), np.nan)) for _ in losses]
    with contextlib.ExitStack() as opened:
        stacks = [
            _open_fold_stack(
                plan, losses, seeds, rows, train, replace(recipe, batch=batch), own, average_epochs, opened
            )
            for batch, own in _plan_stacks(plan, len(losses) * len(seeds), rows, recipe, folds, device)
        ]

        def newest_best(epoch: int) -> int:
            for i, (loss, scores) in enumerate(zip(losses, _out_of_fold_scores(stacks), strict=True)):
                # The likelihood, not the partial AUC of the final comparison. Every row contributes to it,
                # while the ranking of a few positives is much noisier from epoch to epoch.
                likelihood = _likelihood(loss, NetScores(scores, rows.codes, rows.weights), rows, with_slope)
                if likelihood > best[i].likelihood:
                    best[i] = _BestEpoch(likelihood, epoch, scores)
            return max(one.epoch for one in best)

        # All folds are trained side by side until no loss improves. A fold that stopped on its own would have
        # no scores for later epochs, where the likelihood of all rows still needs them.
        run_epochs(
            [stack.nets for stack in stacks],
            recipe.epochs,
            newest_best,
            patience=_PATIENCE,
            progress=progress,
            labels=_fold_labels([len(stack.held_out) for stack in stacks]),
        )
        failed = [failure for stack in stacks for failure in stack.failures()]
        none_learned = all(stack.nets.loop.none_learned for stack in stacks)
    if failed:
        count = sum(len(stack.nets.replicas) for stack in stacks)
        warnings.warn(
            f"{len(failed)} of {count} nets that choose the number of epochs failed, such as {failed[0]}: "
            "lower learning_rate",
            DivergedWarning,
            stacklevel=5,
        )
    if none_learned:
        raise ValueError(f"no net learned anything: {failed[0]}: lower learning_rate")
    validation = Validation(rows.inputs, rows.codes, rows.weights, max_fpr, event)
    metrics = [validation.metric(loss, one.scores) for loss, one in zip(losses, best, strict=True)]
    # A single loss is trained even where its nets failed: there is no other, and a warning was given.
    place = index_of_best(metrics) if len(losses) > 1 else 0
    by_text = {str(loss): metric for loss, metric in zip(losses, metrics)}
    scored = NetScores(best[place].scores, rows.codes, rows.weights)
    return EpochChoice(losses[place], best[place].epoch, by_text, scored)


def _fold_labels(sizes: Sequence[int]) -> list[str]:
    """Return the text that names the folds of each stack, for stacks with these numbers of folds.

    >>> _fold_labels([5]), _fold_labels([4, 1])
    ([''], [', folds 1 to 4 of 5', ', fold 5 of 5'])
    """
    if len(sizes) == 1:
        return [""]
    last = np.cumsum(sizes).tolist()
    firsts = [end - size + 1 for end, size in zip(last, sizes)]
    spans = [f"fold {a}" if a == b else f"folds {a} to {b}" for a, b in zip(firsts, last)]
    return [f", {span} of {last[-1]}" for span in spans]


def _likelihood(loss: Loss, scored: NetScores, rows: CodedRows, with_slope: bool) -> float:
    """Return the mean log-probability of the true class, of two classes after calibration."""
    if scored.scores.ndim == 1:
        return calibrated_likelihood(loss, scored, rows.shares, with_slope=with_slope)
    if not scored.is_finite:
        return float("nan")
    # The calibration of several classes takes too long to be repeated after each epoch.
    return mean_log_probability(loss.log_posterior(scored.scores), scored)


def _batch(rows: int, steps: int, least: int) -> int:
    """Return the batch size with which `rows` rows take about `steps` steps per epoch.

    At least `least`, since batch norm needs two rows.

    >>> _batch(8_000, 78, 2), _batch(240, 150, 2), _batch(240, 300, 1)
    (102, 2, 1)
    """
    sizes = [max(least, size) for size in (rows // steps, rows // steps + 1)]
    return min(sizes, key=lambda size: abs(np.log(max(1, rows // size) / steps)))


def _plan_stacks(
    plan: NetPlan,
    nets: int,
    rows: CodedRows,
    recipe: Recipe,
    folds: NDArray[np.int64],
    device: str,
) -> list[tuple[int, list[NDArray[np.bool_]]]]:
    """Decide which folds are trained as one stack.

    Returns:
        For each stack its batch size, and for each of its folds a mask of the rows that are held out.
    """
    # A fold takes as many steps per epoch as all rows do, with smaller batches. So the number of epochs that
    # is best here is also best for the final training.
    steps, _ = steps_of(len(rows.codes), recipe.batch)
    alike: dict[tuple[int, int], list[NDArray[np.bool_]]] = {}
    for fold in set(folds):
        held_out = folds == fold
        count = int((~held_out).sum())
        batch = _batch(count, steps, least=min(2, recipe.batch))
        # Replicas of a stack share the number of steps and the batch size.
        alike.setdefault(steps_of(count, batch), []).append(held_out)
    row = plan.build(replicas=1, seeds=(0,)).numbers_per_row(plan.features)
    most = _GPU_STACK_NUMBERS if torch.device(device).type == "cuda" else _CPU_STACK_NUMBERS
    found = []
    for (_, batch), own in alike.items():
        together = max(1, most // (nets * batch * row))
        found += [(batch, own[first : first + together]) for first in range(0, len(own), together)]
    return found


@dataclass(frozen=True, eq=False)
class _FoldStack:
    """Nets of some folds as one stack, each trained on the rows of all other folds.

    Attributes:
        nets: The nets: those of the first fold, loss by loss and seed by seed, then those of the next.
        held_out: For each fold a mask of its rows.
        inputs: The held-out rows of each net, (K, N, features), or (N, features) for a single fold. A fold
            with fewer than N rows repeats its first one.
        losses: The losses.
        n_seeds: Nets per loss and fold.
    """

    nets: NetStack
    held_out: Sequence[NDArray[np.bool_]]
    inputs: Tensor
    losses: tuple[Loss, ...]
    n_seeds: int

    def failures(self) -> list[str]:
        """Describe the nets that failed."""
        names = self.nets.replicas.names
        return [f"{names[k]} ({failure})" for k, failure in self.nets.loop.failures().items()]

    def scores(self) -> list[list[NDArray[Any]]]:
        """Return for each fold and loss the scores of the held-out rows, all seeds as one ensemble.

        NaN once a net of the ensemble has failed.
        """
        shape = (len(self.held_out), len(self.losses), self.n_seeds)
        is_lost = self.nets.loop.step.frozen.cpu().numpy().reshape(shape).any(2)
        with self.nets.with_means():
            scores = score_rows(self.nets.replicas, self.inputs)
        of_folds = scores.reshape(*shape, *scores.shape[1:])
        found = []
        for held_out, of_losses, lost in zip(self.held_out, of_folds, is_lost, strict=True):
            own = [
                # Without the repeated rows that fill up a smaller fold.
                ensemble_score(loss, torch.from_numpy(one[:, : int(held_out.sum())])).numpy()
                for loss, one in zip(self.losses, of_losses, strict=True)
            ]
            found.append([np.full_like(one, np.nan) if gone else one for one, gone in zip(own, lost)])
        return found


def _open_fold_stack(
    plan: NetPlan,
    losses: Sequence[Loss],
    seeds: Sequence[int],
    rows: CodedRows,
    train: TableRows,
    recipe: Recipe,
    held_out: Sequence[NDArray[np.bool_]],
    average_epochs: float,
    opened: contextlib.ExitStack,
) -> _FoldStack:
    """Build the nets of some folds; `train` holds all rows on the device, `opened` closes the training."""
    device, per_fold = str(train.labels.device), len(losses) * len(seeds)
    replicas = new_replicas(plan, losses, seeds, rows.shares, device, recipe.dtype, copies=len(held_out))
    others = [torch.from_numpy(np.flatnonzero(~own)) for own in held_out]
    rows_of = [own for own in others for _ in range(per_fold)]
    nets = opened.enter_context(open_stack(replicas, train, recipe, average_epochs, rows_of))
    places = [np.flatnonzero(own) for own in held_out]
    # A stack scores arrays of one length: smaller folds repeat a row, whose extra scores `scores` drops.
    longest = max(map(len, places))
    filled = [np.append(own, np.full(longest - len(own), own[0])) for own in places]
    chosen = filled[0] if len(filled) == 1 else np.repeat(filled, per_fold, axis=0)
    return _FoldStack(nets, held_out, torch.from_numpy(rows.inputs[chosen]), tuple(losses), len(seeds))


def _out_of_fold_scores(stacks: Sequence[_FoldStack]) -> list[NDArray[Any]]:
    """Return for each loss the scores of all rows, each by nets that did not see it."""
    held_out = [own for stack in stacks for own in stack.held_out]
    of_folds = [scores for stack in stacks for scores in stack.scores()]
    found = []
    for of_loss in zip(*of_folds, strict=True):
        scores = np.empty((len(held_out[0]), *of_loss[0].shape[1:]))
        for own, part in zip(held_out, of_loss, strict=True):
            scores[own] = part
        found.append(scores)
    return found
