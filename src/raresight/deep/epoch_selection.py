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
from ..nn.averaging import MeanWeights
from ..nn.batches import steps_of
from ..nn.training_loop import training_session
from .fitting import DivergedWarning, TrainingRows, best_merit, check_texts, new_replicas
from .loop import noted_and_told
from .nets import NetPlan
from .scale import ScoredRows, calibrated_log_probability
from .scoring import ensemble_score, score_rows
from .telling import Tell, quiet
from .validation import Validation, mean_log_probability

__all__ = ["Choice", "choose_by_turns", "parts_of"]

PARTS = 5
# Epochs without a better mean: a likelihood does not come back once it falls, as a partial AUC may.
_PATIENCE = 5
# Numbers that the widest layer of a stack may have in a batch. With fewer a step costs its calls, so that the
# nets of several parts take hardly longer than those of one; with more they do not fit a CPU's cache.
_NUMBERS_OF_A_STACK, _NUMBERS_ON_A_GPU = 1 << 16, 1 << 24


@dataclass(frozen=True, eq=False)
class Choice:
    """What the parts found.

    Attributes:
        loss: The best one.
        epochs: How long it is trained best.
        validation_scores: Of each loss at its best, by its text: what `Validation.merit` says of the scores
            of all rows by nets that did not see them; NaN where such nets failed.
        rows: The rows with those scores, of the best loss.
    """

    loss: Loss
    epochs: int
    validation_scores: dict[str, float]
    rows: ScoredRows


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
    rows: TrainingRows,
    recipe: Recipe,
    parts: NDArray[np.int64],
    *,
    max_fpr: float,
    event: int,
    scaled: bool,
    average_epochs: float,
    device: str,
    tell: Tell = quiet,
) -> Choice:
    """The loss with the largest merit, as held-out rows would judge it, and its number of epochs.

    For each loss that is the epoch with the largest mean log-probability of the true class, once scores are
    calibrated as they will be (with a factor if `scaled`): of few positives a better judge than their
    ranking. The mean is over all rows by their weights, each scored by nets of the other parts, the seeds
    taken together. All parts are trained side by side until no loss has become better for some epochs: one
    that ended earlier would have to be guessed from then on. They take about as many steps an epoch as all
    rows do, in smaller batches; those of small nets as one stack. Weights are averaged as in
    `raresight.deep.loop.train_nets`.
    """
    check_texts(losses)
    train = TableRows(rows.inputs, rows.codes, rows.weights).to(device, recipe.dtype)
    with contextlib.ExitStack() as held:
        turns = [
            _Turns(plan, losses, seeds, rows, train, replace(recipe, batch=batch), own, average_epochs, held)
            for batch, own in _stacks(plan, len(losses) * len(seeds), rows, recipe, parts, device)
        ]
        found = _best_epochs(turns, losses, rows, recipe.epochs, scaled, tell)
        failed = [failure for turn in turns for failure in turn.failures()]
    if failed:
        count = sum(turn.count for turn in turns)
        warnings.warn(
            f"{len(failed)} of {count} nets that choose the number of epochs failed, such as {failed[0]}: "
            "lower learning_rate",
            DivergedWarning,
            stacklevel=5,
        )
    if all(turn.course.none_learned for turn in turns):
        raise ValueError(f"no net learned anything: {failed[0]}: lower learning_rate")
    judge = Validation(rows.inputs, rows.codes, rows.weights, max_fpr, event)
    merits = [judge.merit(loss, one.scores) for loss, one in zip(losses, found, strict=True)]
    # A single loss is trained also where its nets failed: the warning that they did says enough.
    best = best_merit(merits) if len(losses) > 1 else 0
    scores = {str(loss): merit for loss, merit in zip(losses, merits)}
    judged = ScoredRows(found[best].scores, rows.codes, rows.weights)
    return Choice(losses[best], found[best].epoch, scores, judged)


def _best_epochs(
    turns: Sequence[_Turns],
    losses: Sequence[Loss],
    rows: TrainingRows,
    most: int,
    scaled: bool,
    tell: Tell,
) -> list[_Best]:
    """Train for at most so many epochs; of each loss the one with the largest `_likelihood` of all rows."""
    best = [_Best(-np.inf, 1, np.full(len(rows.codes), np.nan)) for _ in losses]
    for epoch in range(1, most + 1):
        done = 0
        for turn in turns:
            which = _which_words(done, len(turn.inside), sum(len(one.inside) for one in turns))
            turn.next_epoch(tell, f"epoch {epoch} of at most {most}{which}")
            done += len(turn.inside)
        for i, loss in enumerate(losses):
            scores = _put_together(
                [inside for turn in turns for inside in turn.inside],
                [own[i] for turn in turns for own in turn.scores],
            )
            judged = ScoredRows(scores, rows.codes, rows.weights)
            likelihood = _likelihood(loss, judged, rows.shares, scaled)
            if likelihood > best[i].likelihood:
                best[i] = _Best(likelihood, epoch, scores)
        newest = max(one.epoch for one in best)
        tell(f"epoch {epoch} of at most {most}, the best so far {newest}")
        if epoch - newest >= _PATIENCE or any(turn.course.is_done for turn in turns):
            break
    return best


def _which_words(before: int, parts: int, all_parts: int) -> str:
    """Which parts are trained, so many, after so many others.

    >>> _which_words(0, 5, 5), _which_words(0, 4, 5), _which_words(4, 1, 5)
    ('', ', parts 1 to 4 of 5', ', part 5 of 5')
    """
    if parts == all_parts:
        return ""
    which = f"part {before + 1}" if parts == 1 else f"parts {before + 1} to {before + parts}"
    return f", {which} of {all_parts}"


def _likelihood(loss: Loss, rows: ScoredRows, shares: NDArray[np.float64], scaled: bool) -> float:
    """The mean log-probability of the true class, of two classes with the calibration that follows.

    Of several that would take long: theirs is of the scores as they are.
    """
    if rows.scores.ndim == 1:
        return calibrated_log_probability(loss, rows, shares, scaled=scaled)
    return mean_log_probability(loss, rows.scores, rows.codes, rows.weights)


def _put_together(places: Sequence[NDArray[np.bool_]], scores: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Scores of some rows each as those of all rows."""
    found = np.empty((len(places[0]), *scores[0].shape[1:]))
    for inside, own in zip(places, scores, strict=True):
        found[inside] = own
    return found


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
    rows: TrainingRows,
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


class _Turns:
    """Nets of some parts, each trained on the rows of all other parts, and judged by those of its own.

    Attributes:
        inside: Of each part which rows judge.
        count: How many nets there are.
        scores: Of each part and loss those of its rows after the newest epoch, its seeds taken together; NaN
            once a net of it has failed.
    """

    def __init__(
        self,
        plan: NetPlan,
        losses: Sequence[Loss],
        seeds: Sequence[int],
        rows: TrainingRows,
        train: TableRows,
        recipe: Recipe,
        inside: Sequence[NDArray[np.bool_]],
        average_epochs: float,
        held: contextlib.ExitStack,
    ) -> None:
        """`train` are the rows as they are trained on, on their device."""
        self.inside, self._losses, self._seeds = inside, tuple(losses), len(seeds)
        device = str(train.labels.device)
        self._replicas = new_replicas(
            plan, losses, seeds, rows.shares, device, recipe.dtype, copies=len(inside)
        )
        self.count = len(self._replicas)
        others = [torch.from_numpy(np.flatnonzero(~own)) for own in inside]
        self.course = held.enter_context(
            training_session(
                self._replicas,
                train,
                recipe,
                rows_of=[own for own in others for _ in range(self._nets_of_a_part)],
            )
        )
        self._means = MeanWeights(self.course.step, average_epochs)
        self._inputs = self._own_rows(rows.inputs)
        self.scores: list[list[NDArray[Any]]] = []

    @property
    def _nets_of_a_part(self) -> int:
        return len(self._losses) * self._seeds

    def _own_rows(self, inputs: NDArray[np.float32]) -> Tensor:
        """The rows that judge each net, (K, N, features); of fewer than N the first fills the places left."""
        longest = max(int(own.sum()) for own in self.inside)
        places = [np.flatnonzero(own) for own in self.inside]
        filled = [np.append(own, np.full(longest - len(own), own[0])) for own in places]
        if len(filled) == 1:
            return torch.from_numpy(inputs[filled[0]])
        return torch.from_numpy(inputs[np.repeat(filled, self._nets_of_a_part, axis=0)])

    def failures(self) -> list[str]:
        """What befell the nets that failed."""
        found = self.course.failures()
        return [f"{self._replicas.names[k]} ({failure})" for k, failure in found.items()]

    def next_epoch(self, tell: Tell, begun: str) -> None:
        """Train one more, and score the rows that judge it."""
        self.course.run_epoch(noted_and_told(self._means, self.course, tell, begun))
        shape = (len(self.inside), len(self._losses), self._seeds)
        frozen = self.course.step.frozen.cpu().numpy().reshape(shape)
        with self._means.in_place():
            scores = score_rows(self._replicas, self._inputs)
        self.scores = []
        for inside, of_part, lost in zip(
            self.inside, scores.reshape(*shape, *scores.shape[1:]), frozen, strict=True
        ):
            own = [
                ensemble_score(loss, torch.from_numpy(one[:, : int(inside.sum())])).numpy()
                for loss, one in zip(self._losses, of_part, strict=True)
            ]
            for i in np.flatnonzero(lost.any(1)):
                own[i] = np.full_like(own[i], np.nan)
            self.scores.append(own)
