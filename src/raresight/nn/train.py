"""Train a stack of replicas, with checkpoints from which a stopped training resumes."""

from __future__ import annotations

import contextlib
import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..common.atomic_files import hold_folder
from ..common.checks import check_whole
from ..common.progress import Display, Status, duration, show_progress
from ..losses import Loss, parse
from .batches import RowSource, as_source
from .best_weights import BestWeights
from .checkpoint import TrainingFolder
from .recipe import Recipe, ScheduleWarning
from .replica_metrics import check_evaluation, default_metric, evaluate_replicas
from .replicas import Replicas
from .schedule import deferred_replicas, learning_rates
from .training_loop import Failure, TrainingLoop, training_session
from .training_record import Row, TrainingRecord

__all__ = ["train"]

# Rows of the progress table, one per replica, the best first.
_TABLE_ROWS = 8


def train(
    replicas: Replicas,
    data: Any,
    recipe: Recipe,
    *,
    evaluation: Any = None,
    folder: str | os.PathLike[str] | None = None,
    resume: bool = True,
    checkpoint_every: int = 1,
    keep: str = "last",
    device: torch.device | str | None = None,
    progress: bool = True,
) -> TrainingRecord:
    """Train all replicas together, each on the batches of its own seed and by its own loss.

    A replica ends with the weights that the same net would have alone, up to rounding. The objective is the
    sum of K mean losses, and each loss depends on the weights of one replica only. A seed gives the same
    weights every time on the same device. On a GPU the step is recorded once as a CUDA graph and replayed.

    A replica is frozen and reported once its loss, gradient or running statistics are not finite. It keeps
    the weights from before that step, and the other replicas train as if it were sound. The kept weights may
    be poor: a training that diverges goes wrong some steps before its numbers overflow. Randomness in a net,
    such as dropout, must follow from its buffers, so that a resumed training repeats it.

    Args:
        replicas: The stack, trained in place. It is moved to the device and to the recipe's precision.
        data: The training rows: a pair (X, y), `TableRows` or another `RowSource`. Columns are not scaled;
            `TableRows.standardised` does that. Rows may have weights w, with a mean of 1 over all training
            rows. The loss of a batch of N rows is then sum_i w_i loss_i / N, also in the history.
            `start_at_prior` uses the weighted prior. Deferred reweighting counts rows, and multiplies their
            weights by its own.
        recipe: Schedule, optimiser and precision.
        evaluation: Rows to evaluate on, in one of the forms of `data`. Default: no evaluation. The metrics
            of a best epoch that these rows choose are optimistic; see `TrainingRecord.best`.
        folder: Folder for checkpoints and for the journal of results. Default: none is written. If it holds
            this training (same net, losses, seeds, recipe and data), the training resumes from its weights.
            Only the recipe's `epochs` may be larger than before. Any other training in it is an error. A loss
            made from a function has no identity on disk: train it without a folder.
        resume: False refuses a folder that holds a training.
        checkpoint_every: Epochs between checkpoints. The last epoch always has one.
        keep: Which weights the replicas end with.

            * "last": those of the last epoch.
            * "best": for each replica those of its best epoch, see `TrainingRecord.best`. A frozen replica
              without one gets its first weights. A replica whose metric was never defined keeps its last.

            A training that resumes with more epochs starts from the last weights in both cases.
        device: Device to train on. Default: the device of the replicas.
        progress: Whether to show the progress on standard error.

    Returns:
        The history, with the metrics of the best and of the last epoch.

    Warns:
        ScheduleWarning: The training ends before the warm-up does, or before deferred reweighting begins.
        UserWarning: With keep="best" the metric that chooses was not defined in any epoch of a replica.

    Example:
        >>> from functools import partial
        >>> from raresight.nn.nets import MLP
        >>> random = np.random.default_rng(0)
        >>> y = (np.arange(400) % 10 == 0).astype(int)
        >>> X = random.normal(size=(400, 2)) + 2 * y[:, None]
        >>> replicas = Replicas(partial(MLP, 2, hidden=(8,)), ["crossentropy", "tbl(alpha=0.8,C=0.5)"])
        >>> recipe = Recipe(epochs=5, lr=0.01, warmup_epochs=1)
        >>> result = train(replicas, (X, y), recipe, evaluation=(X, y), progress=False)
        >>> [row["epoch"] for row in result.last], result.best[0]["roc_auc"] > 0.8
        ([5, 5], True)
    """
    checkpoint_every = _check_arguments(replicas, recipe, checkpoint_every, folder, device)
    for name, switch in (("resume", resume), ("progress", progress)):
        if not isinstance(switch, bool | np.bool_):
            raise TypeError(f"{name} must be True or False, but is {switch!r}")
    if keep not in ("last", "best"):
        raise ValueError(f"keep must be 'last' or 'best', but is {keep!r}")
    if keep == "best" and evaluation is None:
        raise ValueError("keep='best' needs evaluation, rows by which the best epoch is found")
    rows = as_source(data, "data")
    judged = None if evaluation is None else as_source(evaluation, "evaluation")
    outputs = replicas.net.outputs
    rows.class_counts(outputs)  # refuses labels that the net does not have
    _check_fit(replicas, rows, "data")
    best_by: str | None = default_metric(recipe, outputs)  # an unknown name is an error, also without rows
    if judged is None:
        best_by = None
    else:
        check_evaluation(judged, outputs, str(best_by))
        _check_fit(replicas, judged, "evaluation")
    if folder is not None:
        _check_written(replicas.losses)
    for text in _unreached(recipe, replicas.losses):
        warnings.warn(text, ScheduleWarning, stacklevel=2)
    with contextlib.ExitStack() as held:
        place = None
        if folder is not None:
            held.enter_context(hold_folder(Path(folder), "training"))
            # Before rows and weights move: on another device the same call has the same identity.
            place = TrainingFolder(Path(folder), _identity(replicas, rows, judged, recipe, keep))
        replicas.to(replicas.device if device is None else device, recipe.dtype)
        rows = rows.to(replicas.device, recipe.dtype)
        judged = None if judged is None else judged.to(replicas.device, recipe.dtype)
        loop = held.enter_context(training_session(replicas, rows, recipe, place=place, resume=resume))
        # Of equal epochs the first, as in `TrainingRecord.best`.
        best = BestWeights(replicas, later_of_equals=False) if keep == "best" else None
        if best is not None:
            loop.add_to_checkpoints(best.tensors())
        run = _TrainingRun(replicas, judged, recipe, best_by, loop, best)
        run.go(held.enter_context(show_progress(bool(progress))), checkpoint_every)
        return run.result()


class _TrainingRun:
    """Run the loop of a training, and report each epoch to the display and the journal."""

    def __init__(
        self,
        replicas: Replicas,
        judged: RowSource | None,
        recipe: Recipe,
        best_by: str | None,
        loop: TrainingLoop,
        best: BestWeights | None,
    ) -> None:
        self._replicas, self._judged, self._recipe, self._best_by = replicas, judged, recipe, best_by
        self._loop, self._best = loop, best
        self._reports = self._frozen_reports()
        self._newest: list[Row] = []
        if loop.epoch:
            self._note_class_weights()

    def go(self, display: Display, checkpoint_every: int) -> None:
        """Train to the end, or until every replica is frozen."""
        loop = self._loop
        if loop.is_new:
            # The first weights are part of the training: a call that resumes it before its first epoch may
            # pass replicas with other ones.
            self._save()
        here, first = 0.0, loop.epoch
        while not loop.is_done:
            begun = time.monotonic()
            news = self._train_epoch(begun)
            took = time.monotonic() - begun
            here += took
            loop.seconds += took
            if loop.epoch % checkpoint_every == 0 or loop.is_done:
                self._save()
            for text in news:
                display.note(text, warning=True)
            display.show(self._status(here / (loop.epoch - first)))

    def result(self) -> TrainingRecord:
        """Return the record, after giving the replicas the weights that `keep` names."""
        if self._best is not None:
            self._best.restore(self._has_best())
            self._replicas.class_weights = self._best_class_weights()
            undefined = [name for name, has in zip(self._replicas.names, self._has_best()) if not has]
            if undefined:
                warnings.warn(
                    f"keep='best', but {self._best_by} was not defined in any epoch of {len(undefined)} of "
                    f"{len(self._replicas)} replicas, which have the weights of the last: "
                    f"{'; '.join(undefined[:5])}{'; ...' if len(undefined) > 5 else ''}",
                    stacklevel=3,
                )
        history, seconds = tuple(self._loop.history), self._loop.seconds
        return TrainingRecord(self._replicas.names, history, dict(self._reports), self._best_by, seconds)

    def _train_epoch(self, begun: float) -> list[str]:
        """Train and evaluate one epoch, and write its rows; returns warnings to show."""
        loop = self._loop
        loop.run_epoch()
        self._note_class_weights()
        reports = self._frozen_reports()
        news = [text for k, text in reports.items() if k not in self._reports]
        self._reports = reports
        metrics: list[dict[str, float]] = [{}] * len(self._replicas)
        every = self._recipe.evaluate_every
        if self._judged is not None and (loop.epoch % every == 0 or loop.is_done):
            metrics = evaluate_replicas(self._replicas, self._judged, self._recipe)
        rows = self._rows(metrics, time.monotonic() - begun)
        if metrics[0]:
            self._newest = rows
            if self._best is not None:
                self._best.note(self._merits(rows), loop.epoch)
        loop.note(rows)
        return news

    def _merits(self, rows: Sequence[Row]) -> Tensor:
        """Return the metric that chooses the best epoch, NaN for a frozen replica."""
        merits = [None if row["frozen"] else row[str(self._best_by)] for row in rows]
        return torch.tensor([math.nan if merit is None else merit for merit in merits], dtype=torch.float64)

    def _save(self) -> None:
        weights = None if self._best is None else self._best_class_weights()
        self._loop.save(self._replicas.metadata(weights))

    def _has_best(self) -> list[bool]:
        """Return which replicas end with the weights of a best epoch, or with their first ones."""
        epochs = () if self._best is None else self._best.epochs
        return [epoch > 0 or k in self._reports for k, epoch in enumerate(epochs)]

    def _best_class_weights(self) -> Tensor | None:
        """Return the class weights of the epochs whose weights the replicas end with."""
        if self._best is None:
            return None
        step = self._loop.step
        last = step.last_moved(self._loop.epoch - 1)
        chosen = zip(self._has_best(), self._best.epochs, last)
        return step.class_weights([epoch - 1 if has else moved for has, epoch, moved in chosen])

    def _note_class_weights(self) -> None:
        """Give the replicas the class weights of their last epoch, which their links undo."""
        step = self._loop.step
        self._replicas.class_weights = step.class_weights(step.last_moved(self._loop.epoch - 1))

    def _rows(self, metrics: Sequence[Mapping[str, float]], seconds: float) -> list[Row]:
        step, epoch, count = self._loop.step, self._loop.epoch, len(self._replicas)
        norms, losses = step.norms.cpu().double().numpy(), step.losses.cpu().double().numpy()
        rates = learning_rates(self._recipe, count, epoch - 1, step.steps)[-1].tolist()
        limits = self._recipe.clips_of(count) or [math.inf] * count
        rows = []
        for k in range(count):
            # The step that froze a replica has a norm that is not finite, and those after it NaN.
            sound = norms[np.isfinite(norms[:, k]), k]
            row = {
                "epoch": epoch,
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
        return {
            k: f"replica {k}, {self._replicas.names[k]}: {failure}; {self._outcome(k, failure)}"
            for k, failure in self._loop.failures().items()
        }

    def _outcome(self, k: int, failure: Failure) -> str:
        if self._best is None:
            return failure.outcome
        best = self._best.epochs[k]
        return f"it has the weights of epoch {best}" if best else "it has the weights it began with"

    def _status(self, seconds_an_epoch: float) -> Status:
        loop, names = self._loop, self._replicas.names
        done, epochs = loop.epoch, self._recipe.epochs
        seconds_left = 0.0 if loop.is_done else seconds_an_epoch * (epochs - done)
        parts = [f"epoch {done}/{epochs}", f"{duration(seconds_left)} left"]
        best = self._best_first()
        if best:
            first = best[0]
            value = f"{first[str(self._best_by)]:.4f}"
            parts.append(
                f"best {self._best_by} {value} (replica {first['replica']}, {names[first['replica']]})"
            )
        if self._reports:
            parts.append(f"{len(self._reports)} of {len(names)} frozen")
        metrics = [name for name in best[0] if _is_shown(name)] if best else []
        rows = [(names[row["replica"]], *(_in_digits(row[name]) for name in metrics)) for row in best]
        header = ("replica", *metrics) if best else ()
        return Status(", ".join(parts), done / epochs, header, rows[:_TABLE_ROWS], urgent=loop.is_done)

    def _best_first(self) -> list[Row]:
        """Return the newest rows with metrics, the best first, without frozen replicas."""
        name = self._best_by or ""
        sound = [row for row in self._newest if row.get(name) is not None and not row["frozen"]]
        return sorted(sound, key=lambda row: -row[name])


def _check_arguments(replicas: Any, recipe: Any, checkpoint_every: Any, folder: Any, device: Any) -> int:
    """Raise an error for an unusable argument; return `checkpoint_every` as an int."""
    if not isinstance(replicas, Replicas):
        raise TypeError(
            "train needs Replicas, such as Replicas(partial(MLP, 30), losses), but got a "
            f"{type(replicas).__name__}"
        )
    if not isinstance(recipe, Recipe):
        raise TypeError(
            f"recipe must be a Recipe, such as Recipe(epochs=30), but is a {type(recipe).__name__}"
        )
    if torch.is_inference_mode_enabled() or any(one.is_inference() for one in replicas.net.parameters()):
        raise RuntimeError(
            "nothing can be trained within torch.inference_mode(), nor weights that were made there: build "
            "and train the replicas outside"
        )
    every = check_whole(checkpoint_every, "checkpoint_every")
    if folder is not None and (not isinstance(folder, (str, os.PathLike)) or not os.fspath(folder)):
        raise TypeError(f"folder must be the path of a folder, or None for none, but is {folder!r}")
    try:
        kind = None if device is None else torch.device(device).type
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"device must be one such as 'cpu' or 'cuda', but is {device!r}") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {device!r}, but there is no GPU that this PyTorch could use")
    if kind == "meta":
        raise ValueError("device is 'meta', on which nothing is computed: choose one such as 'cpu' or 'cuda'")
    return every


def _check_fit(replicas: Replicas, rows: RowSource, name: str) -> None:
    """Raise an error unless the net takes such rows, before anything is trained."""
    try:
        replicas.scores(rows.part(slice(0, 1)))
    except ValueError as error:
        raise ValueError(f"the rows of {name} do not fit the net: {error}") from None


def _check_written(losses: Sequence[Loss]) -> None:
    """Raise an error for a loss that its text does not give back: a folder has texts alone."""
    for loss in losses:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the loss has warned already, when it was built
                is_same = parse(str(loss)) == loss
        except (TypeError, ValueError):
            is_same = False
        if not is_same:
            raise ValueError(
                f"the loss {loss} cannot be written down, like one made from a function, so a folder could "
                "not identify it: train without a folder"
            )


def _unreached(recipe: Recipe, losses: Sequence[Loss]) -> list[str]:
    """Return a warning for each part of the schedule that lies beyond the last epoch."""
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
            "lower drw_epoch, or set it to None"
        )
    return found


def _identity(
    replicas: Replicas, rows: RowSource, judged: RowSource | None, recipe: Recipe, keep: str
) -> dict[str, Any]:
    """Return everything that decides the weights and the results, in plain values."""
    described = replicas.description()
    stacks = {name: list(stack.shape) for name, stack in replicas.net.state_dict().items()}
    return {
        **described,
        "net": {**described["net"], "stacks": stacks},
        "recipe": recipe.to_dict(),
        "data": rows.fingerprint(),
        "evaluation": None if judged is None else judged.fingerprint(),
        "keep": keep,
    }


def _is_shown(name: str) -> bool:
    """Return whether the progress table shows a metric: not that of each class, so that it fits a screen."""
    starts = ("roc_auc", "partial_auc", "recall", "balanced_accuracy", "minority_accuracy")
    return name == "accuracy" or name.startswith(starts)


def _in_digits(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _mean(values: NDArray[Any]) -> float | None:
    return float(values.mean()) if len(values) else None


def _defined(value: float) -> float | None:
    return value if math.isfinite(value) else None
