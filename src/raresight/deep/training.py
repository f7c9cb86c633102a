"""The epoch loop of `DeepClassifier`, for one stack of nets or several, with early stopping or without.

Losses and seeds are replicas of one stack. After each epoch the nets are evaluated. Training ends when no net
has improved for `patience` epochs.
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
from .ensemble_scores import score_rows
from .net_plans import NetPlan
from .trained_nets import TrainedNets
from .validation import Validation

__all__ = [
    "SILENT",
    "CodedRows",
    "DivergedWarning",
    "NetStack",
    "TrainedEnsembles",
    "TrainingProgress",
    "check_distinct_texts",
    "index_of_best",
    "new_replicas",
    "refit_nets",
    "run_epochs",
    "train_best_loss",
    "train_ensembles",
    "train_nets",
    "warn_of_equal_scores",
]

Floats = NDArray[np.float64]

Evaluate = Callable[[Replicas, NDArray[np.bool_]], Floats]
"""Maps replicas, and a mask of those frozen since an earlier epoch, to one metric per replica.

Larger is better. The metric of a frozen net is NaN. Otherwise it would tie with itself after every epoch,
equal epochs count as better, and training would never end.
"""

# After each epoch of a refit only this many rows are checked for finite scores, enough to notice weights that
# are not finite.
_CHECKED_ROWS = 256


class DivergedWarning(UserWarning):
    """A net did not learn: its loss or gradient was not finite, or all rows have the same score."""


@dataclass(frozen=True, eq=False)
class CodedRows:
    """Training rows of nets.

    Attributes:
        inputs: (n, features) coded rows.
        codes: (n,) class numbers.
        weights: (n,) weights; None for equal ones.
        shares: (classes,) weighted class shares of all rows of `fit`.
    """

    inputs: NDArray[np.float32]
    codes: NDArray[np.int64]
    weights: Floats | None
    shares: Floats

    def on(self, device: torch.device | str, dtype: torch.dtype) -> TableRows:
        """Return the rows as a source of batches on a device."""
        return TableRows(self.inputs, self.codes, self.weights).to(device, dtype)


@dataclass(frozen=True)
class TrainingProgress:
    """Show the progress of one training.

    Attributes:
        display: The display of the fit.
        subject: The stage of the fit, such as "training on all rows".
    """

    display: Display
    subject: str

    def show(self, text: str, share: float, *, urgent: bool = False) -> None:
        """Show a text and the finished share of the training, in 0 to 1; see `Status`."""
        self.display.show(Status(f"{self.subject}: {text}", share, urgent=urgent))


SILENT = TrainingProgress(Silent(), "")


@dataclass(frozen=True, eq=False)
class TrainedStack:
    """The result of training one stack.

    Attributes:
        epochs: Epochs that were trained.
        best_epochs: For each replica the epoch, from 1, whose weights it keeps.
        metrics: (epochs, K) metric after each epoch, NaN once a net is frozen; None without an evaluation.
        failures: Messages about replicas whose loss or gradient was not finite.
        none_learned: Whether all replicas failed within their first epoch.
    """

    epochs: int
    best_epochs: tuple[int, ...]
    metrics: Floats | None
    failures: tuple[str, ...]
    none_learned: bool = False


@dataclass(frozen=True, eq=False)
class TrainedEnsembles:
    """The trained nets of all losses.

    Attributes:
        nets: For each loss the ensemble of its seeds.
        metrics: For each loss the validation metric of that ensemble; None without validation rows.
        best_epochs: For each loss the epochs whose weights its nets keep.
        stack: The result of the whole stack, loss by loss.
    """

    nets: tuple[TrainedNets, ...]
    metrics: tuple[float, ...] | None
    best_epochs: tuple[tuple[int, ...], ...]
    stack: TrainedStack


class NetStack:
    """Nets in training as one stack, with running means of their weights; made by `open_stack`.

    Attributes:
        replicas: The nets.
        frozen_before: Mask of the nets that were frozen before the newest epoch.
    """

    def __init__(self, replicas: Replicas, loop: Any, average_epochs: float) -> None:
        self.replicas, self.loop = replicas, loop
        self._means = MeanWeights(loop.step, average_epochs)
        self.frozen_before = np.zeros(len(replicas), dtype=bool)

    def run_epoch(self, after_step: Callable[[int], None]) -> None:
        """Train one more epoch; `after_step` is called with the number of finished steps."""
        # Before the epoch: a net that fails in it is evaluated a last time, with its last finite weights.
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
        """Steps per epoch."""
        return int(self.loop.step.steps)

    def with_means(self) -> contextlib.AbstractContextManager[None]:
        """Return a context within which the nets have the means of their weights."""
        return self._means.in_place()

    def keep_means(self) -> None:
        """Replace the weights of the nets by their means."""
        self._means.write()


@contextmanager
def open_stack(
    replicas: Replicas,
    rows: TableRows,
    recipe: Recipe,
    average_epochs: float,
    rows_of: Sequence[Tensor] | None = None,
) -> Iterator[NetStack]:
    """Open a stack for training on rows that lie on its device.

    Args:
        replicas: The nets, trained in place.
        rows: The rows.
        recipe: The training recipe.
        average_epochs: Nets are evaluated and kept with means of their weights over about this many of the
            last epochs (see `MeanWeights`). 0 takes the newest weights.
        rows_of: The rows of each replica. Default: all.
    """
    with training_session(replicas, rows, recipe, rows_of=rows_of) as loop:
        yield NetStack(replicas, loop, average_epochs)


def run_epochs(
    stacks: Sequence[NetStack],
    most: int,
    newest_best: Callable[[int], int],
    *,
    patience: int,
    progress: TrainingProgress,
    labels: Sequence[str] = ("",),
    may_stop: bool = True,
) -> int:
    """Train stacks side by side, epoch by epoch, and return the number of trained epochs.

    Args:
        stacks: The stacks. They all train for the same number of epochs.
        most: The most epochs.
        newest_best: Called after each epoch with its number, from 1. Returns the newest epoch that improved
            any net.
        patience: Training ends when that epoch is this many epochs ago.
        progress: Shows epochs, and steps within them, since an epoch may take minutes.
        labels: A text for each stack in the display, such as ", fold 1 of 5".
        may_stop: Whether training may end before `most` epochs. Only the display depends on it.
    """
    bound = f"at most {most}" if may_stop else str(most)

    def show_step(epoch: int, place: int, done: int) -> None:
        steps = stacks[place].steps
        share = (epoch - 1 + (place + done / steps) / len(stacks)) / most
        progress.show(f"epoch {epoch} of {bound}{labels[place]}, step {done} of {steps}", share)

    epoch = 0
    while epoch < most and not any(stack.loop.is_done for stack in stacks):
        epoch += 1
        for place, stack in enumerate(stacks):
            stack.run_epoch(partial(show_step, epoch, place))
        newest = newest_best(epoch)
        so_far = f", the best so far {newest}" if may_stop else ""
        # The first epoch is shown at once: it tells the user how long the others take.
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
    """Build `copies` nets for every loss and seed, with the bias at the best constant score of the loss."""
    pairs = [(loss, seed) for loss in losses for seed in seeds] * copies
    replicas = Replicas(plan.build, [loss for loss, _ in pairs], [seed for _, seed in pairs])
    # Otherwise the first epochs are spent on learning that positives are rare.
    priors: Any = float(shares[1]) if plan.outputs == 1 else shares.tolist()
    replicas.net.start_at_(replicas.table.start(priors))
    return replicas.to(device, dtype)


def train_nets(
    replicas: Replicas,
    rows: CodedRows,
    recipe: Recipe,
    *,
    evaluate: Evaluate | None = None,
    patience: int = 10,
    average_epochs: float = 0.0,
    progress: TrainingProgress = SILENT,
) -> TrainedStack:
    """Train replicas in place, on their device.

    With `evaluate` each replica keeps the weights of the epoch with its largest metric. Without, it keeps
    those of the last epoch. See `run_epochs` and `open_stack` for the other arguments.
    """
    # Of equal epochs the later one: a ranking is often perfect long before the probabilities are right.
    best, metrics = BestWeights(replicas, later_of_equals=True), []
    source = rows.on(replicas.device, replicas.dtype)
    with open_stack(replicas, source, recipe, average_epochs) as stack:

        def newest_best(epoch: int) -> int:
            if evaluate is None:
                return epoch
            with stack.with_means():
                metrics.append(evaluate(replicas, stack.frozen_before))
                best.note(torch.from_numpy(metrics[-1]), epoch)
            return max(best.epochs)

        epochs = run_epochs(
            [stack],
            recipe.epochs,
            newest_best,
            patience=patience,
            progress=progress,
            may_stop=evaluate is not None,
        )
        if evaluate is None:
            stack.keep_means()
        failures = tuple(
            f"{replicas.names[k]}: {failure.reason} not finite in epoch {failure.epoch}, {failure.outcome}: "
            "lower learning_rate"
            for k, failure in stack.loop.failures().items()
        )
        none_learned = stack.loop.none_learned
    if evaluate is None:
        return TrainedStack(epochs, (epochs,) * len(replicas), None, failures, none_learned)
    best.restore()
    return TrainedStack(epochs, best.epochs, np.array(metrics), failures, none_learned)


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
    evaluate: Evaluate | None = None,
    progress: TrainingProgress = SILENT,
) -> TrainedEnsembles:
    """Train every loss with every seed at once, as one stack.

    `evaluate` finds the best epoch of each net. Default: `Validation.evaluate`, given validation rows.
    """
    replicas = new_replicas(plan, losses, seeds, rows.shares, device, recipe.dtype)
    stack = train_nets(
        replicas,
        rows,
        recipe,
        evaluate=evaluate if evaluate is not None or validation is None else validation.evaluate,
        patience=patience,
        average_epochs=average_epochs,
        progress=progress,
    )
    groups = [range(i * len(seeds), (i + 1) * len(seeds)) for i in range(len(losses))]
    nets = tuple(TrainedNets.of(plan, replicas, list(group)) for group in groups)
    metrics = None
    if validation is not None:
        # Of the ensemble, as it will predict: the mean of the metrics of its nets would be lower.
        metrics = tuple(validation.metric(one.loss, one.scores(validation.inputs, device)) for one in nets)
    best_epochs = tuple(tuple(stack.best_epochs[k] for k in group) for group in groups)
    return TrainedEnsembles(nets, metrics, best_epochs, stack)


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
    """Train every loss with every seed at once, and return the index of the best loss with all results."""
    if validation is None and len(losses) > 1:
        raise ValueError(
            f"{len(losses)} losses need rows to choose by: pass eval_set=(X, y) to fit, or set "
            "early_stopping=True"
        )
    check_distinct_texts(losses)
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
    return 0 if found.metrics is None else index_of_best(found.metrics), found


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
    """Train again on all rows: each seed for its own number of epochs, from its first weights.

    A net whose loss, gradient or scores become infinite or NaN before that keeps its last finite weights.
    """
    # One stack of the longest training: a net that needs fewer epochs keeps the weights of its own last one.
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
        evaluate=_LastWantedEpoch(epochs, rows.inputs[:_CHECKED_ROWS]).evaluate,
        progress=progress,
    )
    _warn_of_failures(found.stack, "in the training on all rows: ")
    return found.nets[0]


class _LastWantedEpoch:
    """An evaluation by which each net keeps the weights of a given epoch.

    The metric is the number of the epoch, so that later is better. It is NaN after the wanted epoch of a net,
    and where scores are not finite.
    """

    def __init__(self, epochs: Sequence[int], inputs: NDArray[np.float32]) -> None:
        self._wanted, self._done, self._inputs = np.array(epochs), 0, torch.from_numpy(inputs)

    def evaluate(self, replicas: Replicas, frozen: NDArray[np.bool_]) -> Floats:
        self._done += 1
        scores = score_rows(replicas, self._inputs).reshape(len(frozen), -1)
        is_usable = np.isfinite(scores).all(1) & ~frozen & (self._done <= self._wanted)
        return np.where(is_usable, float(self._done), np.nan)


def index_of_best(metrics: Sequence[float]) -> int:
    """Return the index of the largest metric; raise a ValueError where none is finite."""
    if not np.isfinite(metrics).any():
        raise ValueError("the scores of rows that choose the loss are not finite: lower learning_rate")
    return int(np.nanargmax(metrics))


def check_distinct_texts(losses: Sequence[Loss]) -> None:
    """Refuse different losses with the same text, which is the key of their scores and of the saved file."""
    seen: dict[str, Loss] = {}
    for loss in losses:
        if seen.setdefault(str(loss), loss) != loss:
            raise ValueError(
                f"two different losses have the same text {loss}, which is the key of their scores: give "
                "one of them another name"
            )


def warn_of_equal_scores(scores: NDArray[Any], inputs: NDArray[np.float32]) -> None:
    """Issue a `DivergedWarning` where different rows all have the same score."""
    if len(scores) > 1 and not np.ptp(scores, axis=0).any() and np.ptp(inputs, axis=0).any():
        warnings.warn(
            "the nets give all training rows the same score, for example because too large steps set every "
            "unit to zero: lower learning_rate or weight_decay, or train for more epochs",
            DivergedWarning,
            stacklevel=4,  # the line of the user's `fit`
        )


def _warn_of_failures(stack: TrainedStack, where: str = "") -> None:
    """Warn about each failed net; raise a ValueError where none survived its first epoch."""
    if stack.none_learned:
        raise ValueError(f"{where}no net learned anything: {'; '.join(stack.failures[:3])}")
    for failure in stack.failures:
        warnings.warn(f"{where}{failure}", DivergedWarning, stacklevel=5)  # the line of the user's `fit`
