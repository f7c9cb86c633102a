"""Training of nets: one epoch loop, whether epochs are chosen or given, for one stack of nets or several.

Losses and seeds are replicas of one stack. After each epoch a judge says which epoch is the best so far, and
training ends once it has not found a better one for some epochs.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..common.progress import Display, Silent, Status
from ..losses import Loss
from ..nn import Recipe, Replicas, TableRows
from ..nn.best_weights import BestWeights
from ..nn.training_loop import MeanWeights, training_session
from .nets import NetPlan
from .scoring import score_rows
from .trained_nets import TrainedNets
from .validation import Validation

__all__ = [
    "SILENT",
    "CodedRows",
    "DivergedWarning",
    "NetStack",
    "TrainedEnsembles",
    "TrainingProgress",
    "best_merit",
    "check_texts",
    "new_replicas",
    "refit_nets",
    "run_epochs",
    "train_best_loss",
    "train_ensembles",
    "train_nets",
    "warn_of_equal_scores",
]

Floats = NDArray[np.float64]

Judge = Callable[[Replicas, NDArray[np.bool_]], Floats]
"""Replicas, and which of them are frozen since an earlier epoch, to one merit each, the larger the better.

A frozen net cannot become better: its merit is NaN, or else it would tie with itself and never be waited out.
"""

# Rows by which the second training sees whether the scores of an epoch are finite.
_SOME_ROWS = 256


class DivergedWarning(UserWarning):
    """A net did not learn: its loss or gradient was not finite, or it scores all rows the same."""


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Coded rows, class numbers, weights or None for equal ones, and the weighted class shares."""

    inputs: NDArray[np.float32]
    codes: NDArray[np.int64]
    weights: Floats | None
    shares: Floats

    def on(self, device: torch.device | str, dtype: torch.dtype) -> TableRows:
        """The rows as a source of batches on a device."""
        return TableRows(self.inputs, self.codes, self.weights).to(device, dtype)


@dataclass(frozen=True)
class TrainingProgress:
    """Shows how far one training is.

    Attributes:
        display: Where.
        subject: What is trained, such as "training on all rows".
    """

    display: Display
    subject: str

    def show(self, text: str, share: float, *, urgent: bool = False) -> None:
        """Show a text with the share of the training that is done; see `Status`."""
        self.display.show(Status(f"{self.subject}: {text}", share, urgent=urgent))


SILENT = TrainingProgress(Silent(), "")


@dataclass(frozen=True, eq=False)
class TrainedStack:
    """What became of a stack.

    Attributes:
        epochs: Epochs that were trained.
        best_epochs: The epoch, from 1, whose weights each replica has in the end.
        merits: (epochs, K), what the judge said, NaN once a net is frozen; None without one.
        failures: What befell replicas whose loss or gradient was not finite.
        none_learned: Whether that befell all of them before their first epoch was over.
    """

    epochs: int
    best_epochs: tuple[int, ...]
    merits: Floats | None
    failures: tuple[str, ...]
    none_learned: bool = False


@dataclass(frozen=True, eq=False)
class TrainedEnsembles:
    """The nets of every loss.

    Attributes:
        nets: Of each loss those of all seeds.
        merits: Of each loss on the validation rows, its seeds taken together; None without such rows.
        best_epochs: For each loss the epochs whose weights its nets have.
        stack: What became of the whole stack, loss by loss.
    """

    nets: tuple[TrainedNets, ...]
    merits: tuple[float, ...] | None
    best_epochs: tuple[tuple[int, ...], ...]
    stack: TrainedStack


class NetStack:
    """Nets in training as one stack, with means of their weights; within `open_stack`.

    Attributes:
        replicas: The nets.
        frozen_before: Which of them were frozen before the newest epoch.
    """

    def __init__(self, replicas: Replicas, loop: Any, average_epochs: float) -> None:
        self.replicas, self.loop = replicas, loop
        self._means = MeanWeights(loop.step, average_epochs)
        self.frozen_before = np.zeros(len(replicas), dtype=bool)

    def run_epoch(self, after_step: Callable[[int], None]) -> None:
        """Train one more; `after_step` is called with the number of steps that are done."""
        self.frozen_before = self.loop.step.frozen.cpu().numpy().copy()
        done = 0

        def note() -> None:
            nonlocal done
            done += 1
            self._means.note()
            after_step(done)

        self.loop.run_epoch(note)

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return int(self.loop.step.steps)

    def with_means(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the nets have the means of their weights."""
        return self._means.in_place()

    def keep_means(self) -> None:
        """Give the nets the means for good."""
        self._means.write()


@contextmanager
def open_stack(
    replicas: Replicas,
    rows: TableRows,
    recipe: Recipe,
    average_epochs: float,
    rows_of: Sequence[Tensor] | None = None,
) -> Iterator[NetStack]:
    """A stack while it is trained on rows that lie on its device.

    Args:
        replicas: The nets; they are trained in place.
        rows: The rows.
        recipe: How.
        average_epochs: What is judged and kept are means of the weights over about so many of the last
            epochs, see `MeanWeights`; with 0 the weights themselves.
        rows_of: The rows of each replica. Default: all.
    """
    with training_session(replicas, rows, recipe, rows_of=rows_of) as loop:
        yield NetStack(replicas, loop, average_epochs)


def run_epochs(
    stacks: Sequence[NetStack],
    most: int,
    judge: Callable[[int], int],
    *,
    patience: int,
    progress: TrainingProgress,
    names: Sequence[str] = ("",),
    may_stop: bool = True,
) -> int:
    """Train stacks side by side, epoch by epoch; returns how many epochs were trained.

    They end together: stacks that stopped at different epochs could not be judged together afterwards.

    Args:
        stacks: What is trained.
        most: The most epochs.
        judge: Called after each epoch with its number, from 1; returns the newest epoch that was the best one
            of any net.
        patience: Training ends when that was so many epochs ago.
        progress: Shows how far it is, also within an epoch, which may take minutes.
        names: What is said of each stack while it is trained, such as ", part 1 of 5".
        may_stop: Whether the judge may end the training, for the text alone.
    """
    bound = f"at most {most}" if may_stop else str(most)

    def show_step(epoch: int, place: int, done: int) -> None:
        steps = stacks[place].steps
        share = (epoch - 1 + (place + done / steps) / len(stacks)) / most
        progress.show(f"epoch {epoch} of {bound}{names[place]}, step {done} of {steps}", share)

    epoch = 0
    while epoch < most and not any(stack.loop.is_done for stack in stacks):
        epoch += 1
        for place, stack in enumerate(stacks):
            stack.run_epoch(partial(show_step, epoch, place))
        newest = judge(epoch)
        so_far = f", the best so far {newest}" if may_stop else ""
        progress.show(f"epoch {epoch} of {bound}{so_far}", epoch / most, urgent=epoch == 1)
        if epoch - newest >= patience:
            break
    return epoch


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


def train_nets(
    replicas: Replicas,
    rows: CodedRows,
    recipe: Recipe,
    *,
    judge: Judge | None = None,
    patience: int = 10,
    average_epochs: float = 0.0,
    progress: TrainingProgress = SILENT,
) -> TrainedStack:
    """Train replicas in place, on their device.

    With a judge each replica ends with the weights of the epoch that had its largest merit; without one, with
    those of the last epoch. Of equal epochs it is the later one: a ranking is often perfect long before the
    probabilities are right.
    """
    best, merits = BestWeights(replicas, later_of_equals=True), []
    source = rows.on(replicas.device, replicas.dtype)
    with open_stack(replicas, source, recipe, average_epochs) as stack:

        def newest_best(epoch: int) -> int:
            if judge is None:
                return epoch
            with stack.with_means():
                merits.append(judge(replicas, stack.frozen_before))
                best.note(torch.from_numpy(merits[-1]), epoch)
            return max(best.epochs)

        epochs = run_epochs(
            [stack],
            recipe.epochs,
            newest_best,
            patience=patience,
            progress=progress,
            may_stop=judge is not None,
        )
        if judge is None:
            stack.keep_means()
        failures = tuple(
            f"{replicas.names[k]}: {failure.reason} not finite in epoch {failure.epoch}, {failure.outcome}: "
            "lower learning_rate"
            for k, failure in stack.loop.failures().items()
        )
        none_learned = stack.loop.none_learned
    if judge is None:
        return TrainedStack(epochs, (epochs,) * len(replicas), None, failures, none_learned)
    best.restore()
    return TrainedStack(epochs, best.epochs, np.array(merits), failures, none_learned)


def train_ensembles(
    plan: NetPlan,
    losses: Sequence[Loss],
    seeds: Sequence[int],
    rows: CodedRows,
    recipe: Recipe,
    *,
    validation: Validation | None,
    patience: int,
    average_epochs: float,
    device: str,
    judge: Judge | None = None,
    progress: TrainingProgress = SILENT,
) -> TrainedEnsembles:
    """Train every loss with every seed at once, from the score that is right for the class shares alone.

    `judge` finds the best epoch of each net. Default: the one of the validation rows, if there are some.
    """
    replicas = new_replicas(plan, losses, seeds, rows.shares, device, recipe.dtype)
    stack = train_nets(
        replicas,
        rows,
        recipe,
        judge=judge if judge is not None or validation is None else validation.judge,
        patience=patience,
        average_epochs=average_epochs,
        progress=progress,
    )
    groups = [range(i * len(seeds), (i + 1) * len(seeds)) for i in range(len(losses))]
    nets = tuple(TrainedNets.of(plan, replicas, list(group)) for group in groups)
    merits = None
    if validation is not None:
        merits = tuple(validation.merit(one.loss, one.scores(validation.inputs, device)) for one in nets)
    best_epochs = tuple(tuple(stack.best_epochs[k] for k in group) for group in groups)
    return TrainedEnsembles(nets, merits, best_epochs, stack)


def train_best_loss(
    plan: NetPlan,
    losses: Sequence[Loss],
    seeds: Sequence[int],
    rows: CodedRows,
    recipe: Recipe,
    *,
    validation: Validation | None,
    patience: int,
    average_epochs: float,
    device: str,
    progress: TrainingProgress = SILENT,
) -> tuple[int, TrainedEnsembles]:
    """Train every loss with every seed at once; returns the place of the best loss, too."""
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
        progress=progress,
    )
    _warn_of_failures(found.stack)
    return 0 if found.merits is None else best_merit(found.merits), found


def refit_nets(
    plan: NetPlan,
    loss: Loss,
    seeds: Sequence[int],
    rows: CodedRows,
    recipe: Recipe,
    epochs: Sequence[int],
    *,
    average_epochs: float,
    device: str,
    progress: TrainingProgress = SILENT,
) -> TrainedNets:
    """The net of each seed after its own number of epochs, from the same first weights as before.

    A net whose loss, gradient or scores are not finite before that keeps the last weights that were sound.
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
        judge=_LaterIsBetter(epochs, rows.inputs[:_SOME_ROWS]).merits,
        progress=progress,
    )
    _warn_of_failures(found.stack, "once more on all rows: ")
    return found.nets[0]


class _LaterIsBetter:
    """A judge to whom each epoch is better than the last, up to the one whose weights a net is to have.

    Epochs in which some rows have no score are none. So nets that are wanted for different numbers of epochs
    are trained as one stack.
    """

    def __init__(self, epochs: Sequence[int], inputs: NDArray[np.float32]) -> None:
        self._wanted, self._done, self._inputs = np.array(epochs), 0, torch.from_numpy(inputs)

    def merits(self, replicas: Replicas, frozen: NDArray[np.bool_]) -> Floats:
        self._done += 1
        scores = score_rows(replicas, self._inputs).reshape(len(frozen), -1)
        is_usable = np.isfinite(scores).all(1) & ~frozen & (self._done <= self._wanted)
        return np.where(is_usable, float(self._done), np.nan)


def best_merit(merits: Sequence[float]) -> int:
    """The place of the largest; an error where none is finite."""
    if not np.isfinite(merits).any():
        raise ValueError("the scores of rows that choose the loss are not finite: lower learning_rate")
    return int(np.nanargmax(merits))


def check_texts(losses: Sequence[Loss]) -> None:
    """Refuse different losses of one text: their scores are told apart by it, as in the file of a model."""
    seen: dict[str, Loss] = {}
    for loss in losses:
        if seen.setdefault(str(loss), loss) != loss:
            raise ValueError(
                f"two different losses have the same text {loss}, by which their scores are told apart: give "
                "one of them another name"
            )


def warn_of_equal_scores(scores: NDArray[Any], inputs: NDArray[np.float32]) -> None:
    """A `DivergedWarning` where rows that differ all have the same score."""
    if len(scores) > 1 and not np.ptp(scores, axis=0).any() and np.ptp(inputs, axis=0).any():
        warnings.warn(
            "the nets score all training rows the same, as where too large steps put every unit to rest: "
            "lower learning_rate or weight_decay, or train for more epochs",
            DivergedWarning,
            stacklevel=4,
        )


def _warn_of_failures(stack: TrainedStack, where: str = "") -> None:
    """A `DivergedWarning` for each net whose loss or gradient was not finite, where `fit` was called.

    An error where that befell every net within its first epoch: such a model would know nothing.
    """
    if stack.none_learned:
        raise ValueError(f"{where}no net learned anything: {'; '.join(stack.failures[:3])}")
    for failure in stack.failures:
        warnings.warn(f"{where}{failure}", DivergedWarning, stacklevel=5)
