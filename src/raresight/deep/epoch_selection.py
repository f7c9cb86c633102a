"""How long to train, and with which loss, where positives are few: by parts that take turns in judging.

A fifth of a hundred positives is too few to judge by: the best of many epochs is then the luckiest one. Here
every row judges, by nets that did not see it, and every row trains the nets that are kept.
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
from .net_calibration import NetScores, calibrated_likelihood, mean_log_probability
from .nets import NetPlan
from .scoring import ensemble_score, score_rows
from .training import (
    SILENT,
    CodedRows,
    DivergedWarning,
    NetStack,
    TrainingProgress,
    best_merit,
    check_texts,
    new_replicas,
    open_stack,
    run_epochs,
)
from .validation import Validation

__all__ = ["EpochChoice", "choose_by_turns", "parts_of"]

PARTS = 5
# Epochs without a better mean: a likelihood does not come back once it falls, as a partial AUC may.
_PATIENCE = 5
# Numbers that the widest layer of a stack may have in a batch. Below, a step costs its calls, and the nets of
# several parts take hardly longer than those of one. Above, they do not fit the cache of a CPU.
_NUMBERS_OF_A_STACK, _NUMBERS_ON_A_GPU = 1 << 16, 1 << 24


@dataclass(frozen=True, eq=False)
class EpochChoice:
    """What the parts found.

    Attributes:
        loss: The best one.
        epochs: How long it is trained best.
        validation_scores: The `Validation.merit` of each loss at its best epoch, by its text, of all rows by
            nets that did not see them; NaN where such nets failed.
        rows: The rows with those scores, of the best loss.
    """

    loss: Loss
    epochs: int
    validation_scores: dict[str, float]
    rows: NetScores


@dataclass(frozen=True, eq=False)
class _Best:
    """The best epoch of a loss: how likely it makes the rows, its number, and the scores of all rows then."""

    likelihood: float
    epoch: int
    scores: NDArray[Any]


def parts_of(
    codes: NDArray[np.int64], random: np.random.RandomState, groups: NDArray[np.int64] | None = None
) -> NDArray[np.int64] | None:
    """The part of each row, classes spread evenly: five, or as many as the rarest class has rows.

    Rows with the same number in `groups` are of one class and in one part, and are one row in that. Groups of
    a class are dealt out in turn, the largest first: so parts differ by no more rows than its largest group
    has, and groups of equal size, as rows without copies are, by their number as if dealt at random.

    None where a class has one row only.

    >>> codes = np.array([0] * 7 + [1] * 2)
    >>> parts = parts_of(codes, np.random.RandomState(0))
    >>> np.bincount(parts[codes == 1]).tolist(), np.bincount(parts[codes == 0]).tolist()
    ([1, 1], [4, 3])
    >>> codes, groups = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 2, 2, 3])
    >>> parts_of(codes, np.random.RandomState(0), groups).tolist()
    [0, 0, 1, 0, 0, 1]
    """
    sizes, places = np.ones(len(codes), np.int64), np.arange(len(codes))
    units = codes
    if groups is not None:
        _, first, places, sizes = np.unique(
            groups, return_index=True, return_inverse=True, return_counts=True
        )
        units = codes[first]
    counts = np.bincount(units)
    number = min(PARTS, int(counts.min()))
    if number < 2:
        return None
    parts = np.empty(len(units), dtype=np.int64)
    for k, count in enumerate(counts):
        drawn = random.permutation(np.flatnonzero(units == k))
        largest_first = drawn[np.argsort(-sizes[drawn], kind="stable")]
        parts[largest_first] = np.arange(count) % number
    return parts[places.ravel()]


def choose_by_turns(
    plan: NetPlan,
    losses: Sequence[Loss],
    seeds: Sequence[int],
    rows: CodedRows,
    recipe: Recipe,
    parts: NDArray[np.int64],
    *,
    max_fpr: float,
    event: int,
    with_slope: bool,
    average_epochs: float,
    device: str,
    progress: TrainingProgress = SILENT,
) -> EpochChoice:
    """The loss with the largest merit, as held-out rows would judge it, and its number of epochs.

    For each loss that is the epoch with the largest mean log-probability of the true class, once the log-odds
    are calibrated as they will be (with a slope if `with_slope`): of few positives a better judge than their
    ranking. The mean is over all rows by their weights, each scored by nets of the other parts, the seeds
    taken together.

    All parts are trained side by side until no loss has become better for some epochs: one that ended earlier
    would have to be guessed from then on. They take about as many steps an epoch as all rows do, in smaller
    batches; those of small nets as one stack.
    """
    check_texts(losses)
    train = rows.on(device, recipe.dtype)
    best = [_Best(-np.inf, 1, np.full(len(rows.codes), np.nan)) for _ in losses]
    with contextlib.ExitStack() as held:
        turns = [
            _open_parts(
                plan, losses, seeds, rows, train, replace(recipe, batch=batch), own, average_epochs, held
            )
            for batch, own in _stacks(plan, len(losses) * len(seeds), rows, recipe, parts, device)
        ]

        def newest_best(epoch: int) -> int:
            for i, (loss, scores) in enumerate(zip(losses, _scores_of_all_rows(turns), strict=True)):
                likelihood = _likelihood(loss, NetScores(scores, rows.codes, rows.weights), rows, with_slope)
                if likelihood > best[i].likelihood:
                    best[i] = _Best(likelihood, epoch, scores)
            return max(one.epoch for one in best)

        run_epochs(
            [turn.stack for turn in turns],
            recipe.epochs,
            newest_best,
            patience=_PATIENCE,
            progress=progress,
            names=_names([len(turn.inside) for turn in turns]),
        )
        failed = [failure for turn in turns for failure in turn.failures()]
        none_learned = all(turn.stack.loop.none_learned for turn in turns)
    if failed:
        count = sum(len(turn.stack.replicas) for turn in turns)
        warnings.warn(
            f"{len(failed)} of {count} nets that choose the number of epochs failed, such as {failed[0]}: "
            "lower learning_rate",
            DivergedWarning,
            stacklevel=5,
        )
    if none_learned:
        raise ValueError(f"no net learned anything: {failed[0]}: lower learning_rate")
    judge = Validation(rows.inputs, rows.codes, rows.weights, max_fpr, event)
    merits = [judge.merit(loss, one.scores) for loss, one in zip(losses, best, strict=True)]
    # A single loss is trained even where its nets failed: there is no other, and a warning was given.
    place = best_merit(merits) if len(losses) > 1 else 0
    merit_of = {str(loss): merit for loss, merit in zip(losses, merits)}
    judged = NetScores(best[place].scores, rows.codes, rows.weights)
    return EpochChoice(losses[place], best[place].epoch, merit_of, judged)


def _names(sizes: Sequence[int]) -> list[str]:
    """Which parts each stack has, in words, of stacks of so many parts.

    >>> _names([5]), _names([4, 1])
    ([''], [', parts 1 to 4 of 5', ', part 5 of 5'])
    """
    if len(sizes) == 1:
        return [""]
    last = np.cumsum(sizes).tolist()
    firsts = [end - size + 1 for end, size in zip(last, sizes)]
    spans = [f"part {a}" if a == b else f"parts {a} to {b}" for a, b in zip(firsts, last)]
    return [f", {span} of {last[-1]}" for span in spans]


def _likelihood(loss: Loss, judged: NetScores, rows: CodedRows, with_slope: bool) -> float:
    """The mean log-probability of the true class, of two classes with the calibration that follows.

    Of several that would take long: theirs is of the scores as they are.
    """
    if judged.scores.ndim == 1:
        return calibrated_likelihood(loss, judged, rows.shares, with_slope=with_slope)
    if not judged.is_finite:
        return float("nan")
    return mean_log_probability(loss.log_posterior(judged.scores), judged)


def _batch(rows: int, steps: int, least: int) -> int:
    """The batch size with which so many rows take so many steps an epoch, as nearly as whole numbers can.

    Not below `least`: batch norm needs two rows.

    >>> _batch(8_000, 78, 2), _batch(240, 150, 2), _batch(240, 300, 1)
    (102, 2, 1)
    """
    sizes = [max(least, size) for size in (rows // steps, rows // steps + 1)]
    return min(sizes, key=lambda size: abs(np.log(max(1, rows // size) / steps)))


def _stacks(
    plan: NetPlan,
    nets: int,
    rows: CodedRows,
    recipe: Recipe,
    parts: NDArray[np.int64],
    device: str,
) -> list[tuple[int, list[NDArray[np.bool_]]]]:
    """Parts whose nets, so many of each, are trained as one, with the batch size of their steps.

    Each part is given as where its rows are. Those with the same batches are put together, as many as make
    a stack that is still quick.
    """
    steps, _ = steps_of(len(rows.codes), recipe.batch)
    alike: dict[tuple[int, int], list[NDArray[np.bool_]]] = {}
    for part in set(parts):
        inside = parts == part
        count = int((~inside).sum())
        batch = _batch(count, steps, least=min(2, recipe.batch))
        alike.setdefault(steps_of(count, batch), []).append(inside)
    row = plan.build(replicas=1, seeds=(0,)).numbers_per_row(plan.features)
    most = _NUMBERS_ON_A_GPU if torch.device(device).type == "cuda" else _NUMBERS_OF_A_STACK
    found = []
    for (_, batch), own in alike.items():
        together = max(1, most // (nets * batch * row))
        found += [(batch, own[first : first + together]) for first in range(0, len(own), together)]
    return found


@dataclass(frozen=True, eq=False)
class _Parts:
    """Nets of some parts as one stack, each trained on the rows of all other parts.

    Attributes:
        stack: The nets: those of the first part, loss by loss and seed by seed, then those of the next.
        inside: Of each part which rows judge.
        inputs: The rows that judge each net, (K, N, features), or (N, features) where there is one part; of
            fewer than N the first fills the places left.
        losses: The losses.
        n_seeds: Nets of each loss.
    """

    stack: NetStack
    inside: Sequence[NDArray[np.bool_]]
    inputs: Tensor
    losses: tuple[Loss, ...]
    n_seeds: int

    def failures(self) -> list[str]:
        """What befell the nets that failed."""
        names = self.stack.replicas.names
        return [f"{names[k]} ({failure})" for k, failure in self.stack.loop.failures().items()]

    def scores(self) -> list[list[NDArray[Any]]]:
        """Of each part and loss those of its own rows, the seeds together; NaN once a net has failed."""
        shape = (len(self.inside), len(self.losses), self.n_seeds)
        is_lost = self.stack.loop.step.frozen.cpu().numpy().reshape(shape).any(2)
        with self.stack.with_means():
            scores = score_rows(self.stack.replicas, self.inputs)
        of_parts = scores.reshape(*shape, *scores.shape[1:])
        found = []
        for inside, of_losses, lost in zip(self.inside, of_parts, is_lost, strict=True):
            own = [
                ensemble_score(loss, torch.from_numpy(one[:, : int(inside.sum())])).numpy()
                for loss, one in zip(self.losses, of_losses, strict=True)
            ]
            found.append([np.full_like(one, np.nan) if gone else one for one, gone in zip(own, lost)])
        return found


def _open_parts(
    plan: NetPlan,
    losses: Sequence[Loss],
    seeds: Sequence[int],
    rows: CodedRows,
    train: TableRows,
    recipe: Recipe,
    inside: Sequence[NDArray[np.bool_]],
    average_epochs: float,
    held: contextlib.ExitStack,
) -> _Parts:
    """The nets of some parts; `train` are the rows as they are trained on, on their device."""
    device, nets = str(train.labels.device), len(losses) * len(seeds)
    replicas = new_replicas(plan, losses, seeds, rows.shares, device, recipe.dtype, copies=len(inside))
    others = [torch.from_numpy(np.flatnonzero(~own)) for own in inside]
    rows_of = [own for own in others for _ in range(nets)]
    stack = held.enter_context(open_stack(replicas, train, recipe, average_epochs, rows_of))
    places = [np.flatnonzero(own) for own in inside]
    longest = max(map(len, places))
    filled = [np.append(own, np.full(longest - len(own), own[0])) for own in places]
    chosen = filled[0] if len(filled) == 1 else np.repeat(filled, nets, axis=0)
    return _Parts(stack, inside, torch.from_numpy(rows.inputs[chosen]), tuple(losses), len(seeds))


def _scores_of_all_rows(turns: Sequence[_Parts]) -> list[NDArray[Any]]:
    """Of each loss the scores of all rows, each by the nets that did not see it."""
    inside = [own for turn in turns for own in turn.inside]
    of_parts = [scores for turn in turns for scores in turn.scores()]
    found = []
    for of_loss in zip(*of_parts, strict=True):
        scores = np.empty((len(inside[0]), *of_loss[0].shape[1:]))
        for own, part in zip(inside, of_loss, strict=True):
            scores[own] = part
        found.append(scores)
    return found
