"""Training a stack of replicas, so that it can be killed at any moment and go on."""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..losses import Loss, parse
from .batches import RowSource, as_source
from .checkpoint import Checkpoint, TrainingFolder, held_folder
from .evaluation import check_evaluation, default_metric, evaluate_replicas
from .journal import Journal
from .progress import Listener, Moment, shown
from .recipe import Recipe, ScheduleWarning
from .replicas import Replicas
from .schedule import deferred_replicas, learning_rates
from .step import REASONS, TrainingStep
from .training import Row, Training

__all__ = ["train"]

# What the file of a checkpoint holds beside the stacks of the net, whose names have no slash.
_OURS = "training/"


def train(
    replicas: Replicas,
    data: Any,
    recipe: Recipe,
    *,
    evaluation: Any = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
    checkpoint_every: int = 1,
    device: torch.device | str | None = None,
    progress: bool = True,
) -> Training:
    """Train all replicas together, each on the batches of its own seed and by its own loss.

    A replica ends with the weights that the same net alone would have, up to rounding: the objective is the
    sum of K mean losses, of which each depends on the weights of one replica only. A seed gives the same
    weights every time on the same device. On a GPU the step is recorded once as a CUDA graph and replayed.

    A replica whose loss, gradient or running statistics are not finite is frozen with the weights it had
    before that step, and reported; the others do not notice. Those weights may be poor already: a training
    that diverges goes wrong some steps before its numbers end. What is random in a net, such as dropout, must
    follow from its buffers, so that a training that resumes repeats it.

    Args:
        replicas: What is trained, in place. It is moved to the device and to the recipe's precision.
        data: The training rows: a pair (X, y), `TableRows` or `ImageRows`. Tables are taken as they are; see
            `TableRows.standardised`. The class counts and the prior are those of its labels.
        recipe: How.
        evaluation: Rows to be judged on, likewise; None for no evaluation. Where it chooses the best epoch,
            the metrics of that epoch are optimistic; see `Training.best`.
        folder: Where checkpoints and the journal of results are kept; None for none. If it holds this very
            training (same net, losses, seeds, recipe and data) the weights there replace those of `replicas`
            and training goes on from them; a folder with another training is refused. Losses made of a
            function cannot be told apart on the disk and need to be trained without a folder.
        resume: With False a folder that holds a training is refused.
        checkpoint_every: Epochs between checkpoints; the last epoch always has one.
        device: Where; by default where the replicas are.
        progress: Whether to show how it goes, on stderr.

    Returns:
        The history, with the metrics of the best and of the last epoch.

    Warns:
        ScheduleWarning: The training ends before the warm-up does, or before deferred reweighting begins.

    Example:
        >>> from functools import partial
        >>> from raresight.nn.nets import MLP
        >>> random = np.random.default_rng(0)
        >>> y = (np.arange(400) % 10 == 0).astype(int)
        >>> X = random.normal(size=(400, 2)) + 2 * y[:, None]
        >>> replicas = Replicas(partial(MLP, 2, hidden=(8,)), ["crossentropy", "tbl(alpha=0.8,C=0.5)"])
        >>> recipe = Recipe.tables(epochs=5, lr=0.01, warmup_epochs=1)
        >>> result = train(replicas, (X, y), recipe, evaluation=(X, y), progress=False)
        >>> [row["epoch"] for row in result.last], result.best[0]["roc_auc"] > 0.8
        ([5, 5], True)
    """
    _check_arguments(replicas, recipe, checkpoint_every)
    rows = as_source(data, "data")
    judged = None if evaluation is None else as_source(evaluation, "evaluation")
    outputs = replicas.net.outputs
    class_counts = rows.class_counts(outputs)
    _check_fit(replicas, rows, "data")
    best_by = None
    if judged is not None:
        check_evaluation(judged, outputs)
        _check_fit(replicas, judged, "evaluation")
        best_by = default_metric(recipe, outputs)
    if folder is not None:
        _check_written(replicas.losses)
    for text in _unreached(recipe, replicas.losses):
        warnings.warn(text, ScheduleWarning, stacklevel=2)
    with contextlib.ExitStack() as held:
        place = None
        if folder is not None:
            held.enter_context(held_folder(Path(folder)))
            place = TrainingFolder(Path(folder), _identity(replicas, rows, judged, recipe))
        held.enter_context(_deterministic(recipe.deterministic))
        dtype = torch.float64 if recipe.precision == "float64" else torch.float32
        replicas.to(replicas.device if device is None else device, dtype)
        run = _Run(
            replicas,
            rows.to(replicas.device, dtype),
            None if judged is None else judged.to(replicas.device, dtype),
            recipe,
            class_counts,
            best_by,
            place,
            resume=resume,
        )
        try:
            listener = held.enter_context(shown(progress))
            run.go(listener, checkpoint_every)
        finally:
            run.close()
        return run.result()


class _Run:
    """A training under way: the step, the history, and what is on the disk."""

    def __init__(
        self,
        replicas: Replicas,
        rows: RowSource,
        judged: RowSource | None,
        recipe: Recipe,
        class_counts: Sequence[int],
        best_by: str | None,
        place: TrainingFolder | None,
        *,
        resume: bool,
    ) -> None:
        self._replicas, self._judged, self._recipe, self._best_by = replicas, judged, recipe, best_by
        self._place = place
        checkpoint = Checkpoint() if place is None else place.open(resume=resume)
        if checkpoint.tensors is None and recipe.start_at_prior:
            _start_at_prior(replicas, class_counts)
        self._step = TrainingStep(replicas, rows, recipe, class_counts)
        if checkpoint.tensors is not None:
            self._restore(checkpoint.tensors)
        self._epoch, self._seconds = checkpoint.epoch, checkpoint.seconds
        self._journal = None if place is None else Journal(place.journal, checkpoint.journal_bytes)
        self._history: list[Row] = [] if self._journal is None else self._journal.rows
        self._reports = self._frozen_reports()
        self._newest: list[Row] = []
        self._is_new = checkpoint.tensors is None
        if self._epoch:
            self._note_class_weights()

    def go(self, listener: Listener, checkpoint_every: int) -> None:
        """Train to the end, or until every replica is frozen."""
        if self._is_new:
            # The weights of before the first step: who resumes may bring others, such as half-trained ones.
            self._save()
        here, first = 0.0, self._epoch
        while not self._is_done():
            begun = time.monotonic()
            news = self._train_epoch(begun)
            took = time.monotonic() - begun
            here, self._seconds = here + took, self._seconds + took
            if self._epoch % checkpoint_every == 0 or self._is_done():
                self._save()
            listener(self._moment(here / (self._epoch - first), news))

    def result(self) -> Training:
        return Training(
            self._replicas.names, tuple(self._history), dict(self._reports), self._best_by, self._seconds
        )

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _is_done(self) -> bool:
        return self._epoch >= self._recipe.epochs or len(self._reports) == len(self._replicas)

    def _train_epoch(self, begun: float) -> list[str]:
        """One epoch, its evaluation and its rows; returns what there is to tell."""
        self._step.run_epoch(self._epoch)
        self._epoch += 1
        self._note_class_weights()
        reports = self._frozen_reports()
        news = [text for k, text in reports.items() if k not in self._reports]
        self._reports = reports
        metrics: list[dict[str, float]] = [{}] * len(self._replicas)
        every = self._recipe.evaluate_every
        if self._judged is not None and (self._epoch % every == 0 or self._is_done()):
            metrics = evaluate_replicas(self._replicas, self._judged, self._recipe)
        rows = self._rows(metrics, time.monotonic() - begun)
        self._history += rows
        if metrics[0]:
            self._newest = rows
        if self._journal is not None:
            self._journal.append(rows)
        return news

    def _note_class_weights(self) -> None:
        """Tell the replicas under which class weights they were trained last: their links undo them."""
        self._replicas.class_weights = self._step.class_weights(self._epoch - 1)

    def _rows(self, metrics: Sequence[Mapping[str, float]], seconds: float) -> list[Row]:
        norms, losses = self._step.norms.cpu().double().numpy(), self._step.losses.cpu().double().numpy()
        count = len(self._replicas)
        rates = learning_rates(self._recipe, count, self._epoch - 1, self._step.steps)[-1].tolist()
        limits = self._recipe.clips_of(count) or [math.inf] * count
        rows = []
        for k in range(count):
            sound = norms[np.isfinite(norms[:, k]), k]
            row = {
                "epoch": self._epoch,
                "replica": k,
                "loss": str(self._replicas.losses[k]),
                "seed": self._replicas.seeds[k],
                "train_loss": _mean(losses[np.isfinite(losses[:, k]), k]),
                "learning_rate": rates[k],
                "gradient_norm_mean": _mean(sound),
                "gradient_norm_max": float(sound.max()) if len(sound) else None,
                "clipped": _mean(sound > limits[k]),
                "frozen": k in self._reports,
                "seconds": round(seconds, 4),
            }
            rows.append({**row, **{name: _defined(value) for name, value in metrics[k].items()}})
        return rows

    def _frozen_reports(self) -> dict[int, str]:
        places, reasons = self._step.frozen_at.tolist(), self._step.reason.tolist()
        found = {}
        for k, (at, reason) in enumerate(zip(places, reasons)):
            if reason:
                epoch, step = divmod(at, self._step.steps)
                found[k] = (
                    f"replica {k}, {self._replicas.names[k]}: {REASONS[reason]} not finite at epoch "
                    f"{epoch + 1}, step {step + 1}; frozen with the weights of before"
                )
        return found

    def _moment(self, seconds_an_epoch: float, news: Sequence[str]) -> Moment:
        return Moment(
            epoch=self._epoch,
            epochs=self._recipe.epochs,
            seconds_left=seconds_an_epoch * (self._recipe.epochs - self._epoch),
            rows=self._newest,
            best_by=self._best_by,
            names=self._replicas.names,
            frozen=len(self._reports),
            news=news,
        )

    # ---- the state on the disk -------------------------------------------------------------

    def _own_tensors(self) -> dict[str, Tensor]:
        """What a training has beside the stacks of the net."""
        step = self._step
        slots = {f"optimiser_{name}": slot for name, slot in step.optimiser.slots.items()}
        return {**slots, "frozen": step.frozen, "frozen_at": step.frozen_at, "reason": step.reason}

    def _save(self) -> None:
        if self._place is None or self._journal is None:
            return
        own = {f"{_OURS}{name}": tensor for name, tensor in self._own_tensors().items()}
        tensors = {**self._replicas.net.state_dict(), **own}
        checkpoint = Checkpoint(self._epoch, tensors, self._journal.sync(), self._seconds)
        self._place.save(checkpoint, self._replicas.metadata())

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, stack in self._replicas.net.state_dict().items():
                stack.copy_(tensors[name])
            for name, tensor in self._own_tensors().items():
                tensor.copy_(tensors[f"{_OURS}{name}"])
        self._step.optimiser.reread()


def _check_arguments(replicas: Any, recipe: Any, checkpoint_every: Any) -> None:
    if not isinstance(replicas, Replicas):
        raise TypeError(
            "train needs Replicas, such as Replicas(partial(MLP, 30), losses), but got a "
            f"{type(replicas).__name__}"
        )
    if not isinstance(recipe, Recipe):
        raise TypeError(
            f"recipe must be a Recipe, such as Recipe.tables(epochs=30), but is a {type(recipe).__name__}"
        )
    if not isinstance(checkpoint_every, int) or checkpoint_every < 1:
        raise ValueError(
            f"checkpoint_every must be a whole number of at least 1, but is {checkpoint_every!r}"
        )


def _check_fit(replicas: Replicas, rows: RowSource, name: str) -> None:
    """An error where the net does not take such rows, before anything is trained."""
    try:
        replicas.scores(rows.part(slice(0, 1)))
    except ValueError as error:
        raise ValueError(f"the rows of {name} do not fit the net: {error}") from None


def _check_written(losses: Sequence[Loss]) -> None:
    """An error where a loss cannot be known again by its text, as a training that resumes must know it."""
    for loss in losses:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is to be said was said when the loss was built
                is_same = parse(str(loss)) == loss
        except (TypeError, ValueError):
            is_same = False
        if not is_same:
            raise ValueError(
                f"the loss {loss} cannot be written down, as one made of a function, so that a folder could "
                "not tell it from another: train without a folder"
            )


def _unreached(recipe: Recipe, losses: Sequence[Loss]) -> list[str]:
    """What the recipe plans for after the end of the training, in words."""
    found = []
    if recipe.warmup_epochs > recipe.epochs:
        found.append(
            f"the learning rate never reaches lr: the warm-up takes {recipe.warmup_epochs:g} epochs, but "
            f"there are {recipe.epochs}: lower warmup_epochs"
        )
    late = recipe.drw_epoch
    if late is not None and late >= recipe.epochs and any(deferred_replicas(recipe, losses)):
        found.append(
            f"deferred reweighting never begins: drw_epoch is {late}, but there are {recipe.epochs} epochs: "
            "lower drw_epoch, or let it be None for none"
        )
    return found


def _start_at_prior(replicas: Replicas, class_counts: Sequence[int]) -> None:
    if 0 in class_counts:
        raise ValueError(
            f"start_at_prior needs rows of every class, but the class counts are {tuple(class_counts)}"
        )
    total = sum(class_counts)
    priors = [count / total for count in class_counts]
    replicas.net.start_at_(replicas.table.start(priors[1] if replicas.net.outputs == 1 else priors))


def _identity(
    replicas: Replicas, rows: RowSource, judged: RowSource | None, recipe: Recipe
) -> dict[str, Any]:
    """What decides the weights and the results, in plain values."""
    described = replicas.description()
    stacks = {name: list(stack.shape) for name, stack in replicas.net.state_dict().items()}
    return {
        **described,
        "net": {**described["net"], "stacks": stacks},
        "recipe": recipe.to_dict(),
        "data": rows.fingerprint(),
        "evaluation": None if judged is None else judged.fingerprint(),
    }


@contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    """cuDNN held to deterministic algorithms, and not choosing by timing."""
    if not wanted:
        yield
        return
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _defined(value: float) -> float | None:
    return value if math.isfinite(value) else None
