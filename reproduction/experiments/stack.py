"""Train a stack of trials that share net, rows and length, and evaluate it on validation and test rows.

A stack that is killed or runs out of time resumes from its folder and reaches the same weights.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from raresight.losses import ClassWeighted, Loss, effective_number_weights
from raresight.nn import Recipe, Replicas
from raresight.nn.batches import steps_of
from raresight.nn.checkpoint import TrainingFolder
from raresight.nn.recipe import DEFAULT_CLIP
from raresight.nn.row_values import digest_of_arrays
from raresight.nn.schedule import deferred_replicas
from raresight.nn.training_loop import TrainingLoop, training_session

from ..images import Images, ImageSet, read_cifar10, read_cifar100, read_tiny_imagenet
from ..images.imbalance import Imbalanced, exponential, halves, pair, step
from ..images.rows import ImageRows
from ..resnet import resnet_cifar
from ..resnet.trunk import kernels_for
from ..training_records import Record, provenance
from .balanced_metrics import BINARY_METRICS, CLASS_METRICS, binary_metrics, class_metrics, undefined
from .budget import evaluated_epochs
from .methods import build_loss, is_cosine
from .net_trial import NetTrial, validation_share
from .trials import DECAYS, PAPER_EPOCHS

# ---- Rows of a trial ---------------------------------------------------------------------------------------

MINORITY, MAJORITY = "deer", "horse"
_READERS: dict[str, Callable[..., ImageSet]] = {
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "tinyimagenet": read_tiny_imagenet,
}


@dataclass(frozen=True)
class TaskRows:
    """The rows on which a trial is trained and evaluated.

    Attributes:
        training: Imbalanced training rows.
        validation: Rows held out from the training images, equally many of each category; None if there are
            none.
        test: Published test images of the categories of the task.
        class_counts: Training rows of each label.
    """

    training: ImageRows
    validation: ImageRows | None
    test: ImageRows
    class_counts: tuple[int, ...]


def read_images(dataset: str, folder: Path, *, complete: bool = True) -> ImageSet:
    """Read a published set; with `complete=False`, also a part of one."""
    return _READERS[dataset](folder, complete=complete)


def set_digest(images: ImageSet) -> str:
    """Return a digest of the pixels and labels of an image set."""
    parts = (images.train, images.test)
    return digest_of_arrays("image set", *(array for part in parts for array in (part.pixels, part.labels)))


def make_task(images: Images, trial: NetTrial) -> Imbalanced:
    """Return the imbalanced task of a trial on the training images."""
    labels, rho, draw = images.labels, trial.rho, trial.draw
    if trial.task == "halves":
        return halves(labels, rho, draw)
    if trial.task == "pair":
        return pair(labels, MINORITY, MAJORITY, rho, seed=draw, class_names=images.class_names)
    if trial.task == "exponential":
        return exponential(labels, rho, seed=draw)
    if trial.task == "step":
        return step(labels, rho, seed=draw)
    raise ValueError(f"task must be halves, pair, exponential or step, but is {trial.task!r}")


def hold_out_validation(
    task: Imbalanced, categories: NDArray[np.int64], share: float, seed: int
) -> tuple[Imbalanced, NDArray[np.intp], NDArray[np.int64]]:
    """Hold out validation rows; return the task without them, these rows and their labels.

    A `share` of every category is held out. Rows that the task leaves unused come first, then training rows.
    Rare categories have enough unused rows, so they keep all their training rows. A category that the task
    uses completely has fewer training rows.

    Example:
        >>> categories = np.arange(4).repeat(50)
        >>> task, rows, labels = hold_out_validation(halves(categories, 0.1, 0), categories, 0.2, 0)
        >>> task.class_counts, np.bincount(labels), np.bincount(categories[rows])
        ((80, 10), array([20, 20]), array([10, 10, 10, 10]))
    """
    generator = np.random.default_rng([seed, len(categories)])
    kept = []
    for category in sorted(task.label_of):
        spare = generator.permutation(task.unused[categories[task.unused] == category])
        used = generator.permutation(task.indices[categories[task.indices] == category])
        wanted = round(share * (len(spare) + len(used)))
        kept += [spare[:wanted], used[: max(0, wanted - len(spare))]]
    rows = np.sort(np.concatenate(kept))
    label_of = np.zeros(max(task.label_of) + 1, dtype=np.int64)
    label_of[list(task.label_of)] = list(task.label_of.values())
    stays = ~np.isin(task.indices, rows)
    labels = task.labels[stays]
    counts = np.bincount(labels, minlength=len(task.class_counts))
    left = replace(
        task,
        indices=task.indices[stays],
        labels=labels,
        class_counts=tuple(int(count) for count in counts),
        unused=np.setdiff1d(task.unused, rows, assume_unique=True),
        unused_labels=task.unused_labels[~np.isin(task.unused, rows)],
    )
    return left, rows, label_of[categories[rows]]


def task_rows(images: ImageSet, trial: NetTrial) -> TaskRows:
    """Return the rows of a trial, which all trials of its stack share."""
    task = make_task(images.train, trial)
    if not trial.held_out:
        training = ImageRows.training(images.train, task)
        return TaskRows(training, None, training.test(images.test, task), task.class_counts)
    task, rows, labels = hold_out_validation(
        task, images.train.labels, validation_share(trial.task), trial.draw
    )
    training = ImageRows.training(images.train, task)
    validation = training.like(images.train.pixels[rows], labels)
    return TaskRows(training, validation, training.test(images.test, task), task.class_counts)


# ---- The stack ---------------------------------------------------------------------------------------------

# Epochs of the warm-up in the paper's 250.
_WARMUP = 10
# Losses with unbounded gradients, which need a limit; see `DEFAULT_CLIP`.
_STEEP = ("alpha+LA", "TBL", "TBL+LA")
# A killed training loses at most this time. A checkpoint of 48 nets takes about a second.
CHECKPOINT_SECONDS = 60.0
REMOVED = ".removed"
"""Suffix of the name of a folder while it is removed."""


def image_recipe(**changes: Any) -> Recipe:
    """Return the paper's recipe for CIFAR; its learning rate for Tiny ImageNet is 0.01.

    Example:
        >>> image_recipe(lr=0.01).decay_epochs
        (160, 180)
    """
    paper: dict[str, Any] = {
        "epochs": PAPER_EPOCHS,
        "optimiser": "sgd",
        "lr": 0.002,
        "warmup_epochs": _WARMUP,
        "decay_epochs": DECAYS,
        "drw_epoch": DECAYS[0],
    }
    return Recipe(**{**paper, **changes})


def recipe_of(trials: Sequence[NetTrial], precision: str = "float32") -> Recipe:
    """Return the paper's recipe with the learning rate of each trial, its schedule scaled to their length.

    Example:
        >>> trial = NetTrial("cifar10", "step", 0.1, 0, True, 32, 16, "CE", (), 0.006, 0, 25, "final")
        >>> recipe = recipe_of([trial])
        >>> recipe.warmup_epochs, recipe.decay_epochs, recipe.drw_epoch
        (1.0, (16, 18), 16)
    """
    epochs = trials[0].epochs
    if trials[0].role == "anchor":
        return _anchor_recipe(trials, precision)
    # A shorter training has the same shares of warm-up and decay.
    scale = epochs / PAPER_EPOCHS
    decays = tuple(round(start * scale) for start in DECAYS)
    return image_recipe(
        epochs=epochs,
        lr=tuple(trial.lr for trial in trials),
        warmup_epochs=_WARMUP * scale,
        decay_epochs=decays,
        drw_epoch=decays[0],
        precision=precision,
        # Evaluation in float32 takes longer than training in bfloat16, and changes an AUC in the fourth digit
        # only (benchmarks/measure_evaluation.py).
        bf16_evaluation=precision == "bf16",
    )


def _anchor_recipe(trials: Sequence[NetTrial], precision: str) -> Recipe:
    """Return the recipe of LDAM's authors (their `cifar_train.py`), its schedule scaled to another length.

    They do not limit gradient norms; here losses with unbounded gradients keep our limit. There are two other
    differences: their warm-up rises by epochs, ours by steps; and they also train on the last batch of an
    epoch, which is not full.
    """
    epochs = trials[0].epochs
    decays = (round(0.8 * epochs), round(0.9 * epochs))
    return image_recipe(
        epochs=epochs,
        lr=tuple(trial.lr for trial in trials),
        weight_decay=2e-4,
        warmup_epochs=epochs / 40,
        decay_epochs=decays,
        decay_factor=0.01,
        drw_epoch=decays[0],
        deferred=tuple(trial.method == "LDAM-DRW" for trial in trials),
        clip=tuple(DEFAULT_CLIP if trial.method in _STEEP else None for trial in trials),
        precision=precision,
        bf16_evaluation=precision == "bf16",
    )


def train_stack(
    trials: Sequence[NetTrial],
    rows: TaskRows,
    folder: Path,
    *,
    device: str = "cpu",
    precision: str = "float32",
    seconds_left: Callable[[], float] = lambda: float("inf"),
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    tell: Callable[[str], None] = lambda message: None,
) -> list[Record] | None:
    """Train trials as one stack; return their records, or None if time ran out and a checkpoint was saved.

    Args:
        trials: Trials with the same `NetTrial.stack_key`.
        rows: Rows of the trials.
        folder: Folder of checkpoints, which the caller holds against other processes. After the records are
            written, the caller removes it by `remove_folder`.
        device: Such as "cpu" or "cuda".
        precision: See `Recipe`.
        seconds_left: Called before every epoch. An epoch that would take longer does not start.
        checkpoint_seconds: Time between checkpoints.
        tell: Called with each line of progress.
    """
    recipe = recipe_of(trials, precision)
    sets = {"validation": rows.validation, "test": rows.test}
    given = {name: part for name, part in sets.items() if part is not None}
    identity = {
        "trials": [trial.key for trial in trials],
        "recipe": recipe.to_dict(),
        "rows": rows.training.fingerprint(),
        "sets": {name: part.fingerprint() for name, part in given.items()},
    }
    replicas = _replicas_of(trials, rows.class_counts).to(device, torch.float32)
    training = rows.training.to(device, torch.float32)
    with (
        training_session(replicas, training, recipe, place=TrainingFolder(folder, identity)) as loop,
        ThreadPoolExecutor(1) as beside,
    ):
        evaluated = {name: part.to(device, torch.float32) for name, part in given.items()}
        run = _StackTraining(tuple(trials), replicas, recipe, evaluated, rows.class_counts, loop, beside)
        return run.records() if run.go(seconds_left, checkpoint_seconds, tell) else None


def remove_folder(folder: Path) -> None:
    """Remove the folder of a stack whose records are written. This also releases the hold on the folder."""
    # Rename it first, with its lock: another process finds all of it or nothing.
    gone = folder.with_name(f"{folder.name}{REMOVED}")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    # Files may be left: another process may remove it, too, and some file systems keep a lock file while it
    # is open. The next run removes them.
    shutil.rmtree(gone, ignore_errors=True)


def _replicas_of(trials: Sequence[NetTrial], class_counts: Sequence[int]) -> Replicas:
    first = trials[0]
    net = partial(
        resnet_cifar,
        first.depth,
        width=first.width,
        outputs=1 if len(class_counts) == 2 else len(class_counts),
        cosine=tuple(is_cosine(trial.method) for trial in trials),
    )
    losses = [build_loss(trial.method, trial.parameters, class_counts) for trial in trials]
    return Replicas(net, losses, [trial.seed for trial in trials])


class _StackTraining:
    """The training of a stack: runs and evaluates epochs while time is left, and makes the records.

    The metrics of an epoch are computed in a second thread during the next epoch. Links and ranks of dozens
    of nets take a CPU up to a tenth of the time in which a GPU trains them.
    """

    def __init__(
        self,
        trials: tuple[NetTrial, ...],
        replicas: Replicas,
        recipe: Recipe,
        sets: Mapping[str, ImageRows],
        class_counts: Sequence[int],
        loop: TrainingLoop,
        beside: ThreadPoolExecutor,
    ) -> None:
        self._trials, self._replicas, self._recipe = trials, replicas, recipe
        self._sets, self._counts, self._loop = sets, class_counts, loop
        self._labels = {name: _labels(part) for name, part in sets.items()}
        self._beside = beside
        self._pending: Future[list[dict[str, Any]]] | None = None
        self._saved = time.monotonic()

    def go(
        self, seconds_left: Callable[[], float], checkpoint_seconds: float, tell: Callable[[str], None]
    ) -> bool:
        """Train to the end; return False if time ran out before it."""
        evaluated, loop = set(evaluated_epochs(self._trials[0])), self._loop
        longest = 0.0
        while not loop.is_done:
            left = seconds_left()
            if left <= 0 or left < 1.2 * longest:
                self._save()
                return False
            begun = time.monotonic()
            loop.run_epoch()
            if loop.epoch in evaluated or loop.is_done:
                self._evaluate()
            took = time.monotonic() - begun
            longest = max(longest, took)
            loop.seconds += took
            if time.monotonic() - self._saved >= checkpoint_seconds and not loop.is_done:
                self._save()
            tell(f"epoch {loop.epoch} of {self._recipe.epochs}, {took:.1f} s")
        self._record_evaluation()
        return True

    def records(self) -> list[Record]:
        """Return the record of each trial."""
        failures = {k: str(failure) for k, failure in self._loop.failures().items()}
        facts = {
            "class_counts": list(self._counts),
            "seconds": round(self._loop.seconds / len(self._trials), 3),
            "stack": len(self._trials),
            "precision": self._recipe.precision,
            "kernels": self._kernels(),
            "recipe": {
                name: value for name, value in self._recipe.to_dict().items() if name not in ("lr", "clip")
            },
            **provenance(self._replicas.device),
        }
        found: list[Record] = []
        for k, trial in enumerate(self._trials):
            own = [row for row in self._loop.history if row["replica"] == k]
            curve = {name: [row[name] for row in own] for name in own[0] if name != "replica"}
            loss = str(self._replicas.losses[k])
            clip = self._recipe.clip[k] if isinstance(self._recipe.clip, tuple) else self._recipe.clip
            own_facts = {"loss": loss, "curve": curve, "frozen": failures.get(k), "clip": clip}
            found.append({"trial": trial.to_dict(), **own_facts, **facts})
        return found

    def _kernels(self) -> str:
        """Return which kernels trained the nets: our own or PyTorch's layers."""
        if self._recipe.compiled:
            return "layers"
        kind = torch.bfloat16 if self._recipe.precision == "bf16" else self._replicas.dtype
        _, batch = steps_of(sum(self._counts), self._recipe.batch)
        shape = (batch, *self._sets["test"].pixels.shape[1:])
        return kernels_for(self._replicas.device, kind, shape, self._trials[0].width)

    def _evaluate(self) -> None:
        self._record_evaluation()
        step = self._loop.step
        norms, losses = step.norms.double().cpu().numpy(), step.losses.double().cpu().numpy()
        rows: list[dict[str, Any]] = [
            {
                "epoch": self._loop.epoch,
                "replica": k,
                "train_loss": _mean(losses[:, k]),
                "gradient_norm_max": _largest(norms[:, k]),
            }
            for k in range(len(self._trials))
        ]
        losses_now = [self._loss_now(k) for k in range(len(self._trials))]
        bf16 = self._recipe.bf16_evaluation
        scores = {name: self._replicas.scores(part, bf16=bf16).cpu() for name, part in self._sets.items()}
        self._pending = self._beside.submit(self._with_metrics, rows, scores, losses_now)

    def _with_metrics(
        self, rows: list[dict[str, Any]], scores: Mapping[str, Tensor], losses: Sequence[Loss]
    ) -> list[dict[str, Any]]:
        """Return the rows of an epoch with the metrics of its scores."""
        for name, labels in self._labels.items():
            metrics = metrics_of(scores[name], labels, losses, self._counts)
            for row, found in zip(rows, metrics, strict=True):
                row.update({f"{name}_{metric}": value for metric, value in found.items()})
        return rows

    def _record_evaluation(self) -> None:
        """Wait for the metrics of the epoch evaluated last, and keep them."""
        if self._pending is not None:
            self._loop.note(self._pending.result())
            self._pending = None

    def _loss_now(self, k: int) -> Loss:
        """Return the loss of replica k in the finished epoch, with class weights after `drw_epoch`."""
        loss, late = self._replicas.losses[k], self._recipe.drw_epoch
        deferred = deferred_replicas(self._recipe, self._replicas.losses)[k]
        if not deferred or late is None or self._loop.epoch <= late:
            return loss
        return ClassWeighted(loss, effective_number_weights(self._counts))

    def _save(self) -> None:
        self._record_evaluation()
        self._loop.save({})
        self._saved = time.monotonic()


def evaluate_replicas(
    replicas: Replicas,
    rows: ImageRows,
    losses: Sequence[Loss],
    class_counts: Sequence[int],
    *,
    bf16: bool = False,
) -> list[Mapping[str, float | None]]:
    """Compute the metrics of each replica, with probabilities by the link of its loss in `losses`."""
    return metrics_of(replicas.scores(rows, bf16=bf16).cpu(), _labels(rows), losses, class_counts)


def metrics_of(
    scores: Tensor, labels: NDArray[np.int64], losses: Sequence[Loss], class_counts: Sequence[int]
) -> list[Mapping[str, float | None]]:
    """Compute metrics of scores (K, N) or (K, N, classes) on the CPU, by the link of each replica's loss."""
    several = scores.dim() > 2
    names = CLASS_METRICS if several else BINARY_METRICS
    found: list[Mapping[str, float | None]] = []
    for loss, row in zip(losses, scores, strict=True):
        if not bool(torch.isfinite(row).all()):
            found.append(undefined(names))
            continue
        z = row.double()
        if several:
            posterior = loss.probability(z, multiclass=True).clamp_min(1e-300).log()
            metrics = class_metrics(labels, z.numpy(), posterior.numpy(), class_counts)
        else:
            rho = class_counts[1] / class_counts[0]
            metrics = binary_metrics(labels, z.numpy(), loss.log_odds(z).numpy(), rho)
        found.append({name: round(value, 7) for name, value in metrics.items()})
    return found


def _labels(rows: ImageRows) -> NDArray[np.int64]:
    return rows.labels.cpu().numpy().astype(np.int64)


def _mean(values: Any) -> float | None:
    sound = values[np.isfinite(values)]
    return float(f"{sound.mean():.6g}") if len(sound) else None


def _largest(values: Any) -> float | None:
    sound = values[np.isfinite(values)]
    return float(f"{sound.max():.6g}") if len(sound) else None
