"""Train a stack of trials that share net, rows and length, and judge it on validation and test rows.

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
from .methods import build_loss, is_cosine
from .metrics import BINARY_METRICS, CLASS_METRICS, binary_metrics, class_metrics, undefined
from .plan import evaluated_epochs
from .settings import NetTrial, validation_share
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
    """What a trial is trained and judged on.

    Attributes:
        training: The imbalanced training rows.
        validation: Rows of the training images that are not trained on, equally many of each category; None
            where none were kept back.
        test: The published test images that take part.
        class_counts: Training rows of each label.
    """

    training: ImageRows
    validation: ImageRows | None
    test: ImageRows
    class_counts: tuple[int, ...]


def read_images(dataset: str, folder: Path, *, complete: bool = True) -> ImageSet:
    """Read a published set; with `complete=False` also a part of one."""
    return _READERS[dataset](folder, complete=complete)


def set_digest(images: ImageSet) -> str:
    """A number that tells whether two image sets are the same, in pixels and labels."""
    parts = (images.train, images.test)
    return digest_of_arrays("image set", *(array for part in parts for array in (part.pixels, part.labels)))


def make_task(images: Images, trial: NetTrial) -> Imbalanced:
    """The imbalanced task of a trial on the training images."""
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


def keep_back(
    task: Imbalanced, categories: NDArray[np.int64], share: float, seed: int
) -> tuple[Imbalanced, NDArray[np.intp], NDArray[np.int64]]:
    """The task without its validation rows, those rows and their labels.

    `share` of every category validates: rows that the task leaves unused as far as there are enough, which
    is all of them for a rare category, and else rows that would have been trained on. The rare side so trains
    on all its rows, and a category that the task uses whole on the share less.

    Example:
        >>> categories = np.arange(4).repeat(50)
        >>> task, rows, labels = keep_back(halves(categories, 0.1, 0), categories, 0.2, 0)
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
    """The rows of a trial; all trials of a stack have the same."""
    task = make_task(images.train, trial)
    if not trial.held_out:
        training = ImageRows.training(images.train, task)
        return TaskRows(training, None, training.test(images.test, task), task.class_counts)
    task, rows, labels = keep_back(task, images.train.labels, validation_share(trial.task), trial.draw)
    training = ImageRows.training(images.train, task)
    validation = training.like(images.train.pixels[rows], labels)
    return TaskRows(training, validation, training.test(images.test, task), task.class_counts)


# ---- The stack ---------------------------------------------------------------------------------------------

_WARMUP = 10
# Their gradients have no bound; see `DEFAULT_CLIP`.
_STEEP = ("alpha+LA", "TBL", "TBL+LA")
# What a killed training loses at most; a checkpoint of 48 nets takes about a second.
CHECKPOINT_SECONDS = 60.0
REMOVED = ".removed"
"""How the name of a folder ends while it is removed."""


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
    """The paper's recipe with the learning rate of each trial, its schedule scaled to their length.

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
        # Judging in float32 takes longer than training in bfloat16, and changes an AUC in the fourth digit
        # (benchmarks/measure_judging.py).
        bf16_evaluation=precision == "bf16",
    )


def _anchor_recipe(trials: Sequence[NetTrial], precision: str) -> Recipe:
    """The recipe of LDAM's authors (their `cifar_train.py`), its schedule scaled to another length.

    They have no limit of the gradient norm. Losses with an unbounded gradient keep ours. Apart from that,
    their warm-up rises by epochs, ours by steps, and they train on the last batch of an epoch, too, which is
    not full.
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
    """Train trials as one stack; returns their records, or None if time ran out and a checkpoint is kept.

    Args:
        trials: They share what `NetTrial.together` says.
        rows: Theirs.
        folder: For checkpoints, held by the caller against other processes; `remove_folder` removes it once
            the records are on the disk.
        device: Where.
        precision: See `Recipe`.
        seconds_left: Asked before every epoch; an epoch that would take longer is not begun.
        checkpoint_seconds: The time between checkpoints.
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
        judged = {name: part.to(device, torch.float32) for name, part in given.items()}
        run = _StackTraining(tuple(trials), replicas, recipe, judged, rows.class_counts, loop, beside)
        return run.records() if run.go(seconds_left, checkpoint_seconds, tell) else None


def remove_folder(folder: Path) -> None:
    """Remove what a stack kept, once its records are on the disk; who holds the folder holds it no longer."""
    # Away at once, with its lock: another process finds all of it or nothing.
    gone = folder.with_name(f"{folder.name}{REMOVED}")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    # Another process may be at it, too, and some file systems keep the lock while it is open: the next run
    # removes what stays.
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
    """A stack under way: which epochs are judged, whether time is left, and what is written of each trial.

    The scores of an epoch are turned into metrics beside the next one: links and ranks of dozens of nets take
    a CPU up to a tenth of the time in which a GPU trains them.
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
        """Train to the end; False if time ran out before it."""
        judged, loop = set(evaluated_epochs(self._trials[0])), self._loop
        longest = 0.0
        while not loop.is_done:
            left = seconds_left()
            if left <= 0 or left < 1.2 * longest:
                self._save()
                return False
            begun = time.monotonic()
            loop.run_epoch()
            if loop.epoch in judged or loop.is_done:
                self._judge()
            took = time.monotonic() - begun
            longest = max(longest, took)
            loop.seconds += took
            if time.monotonic() - self._saved >= checkpoint_seconds and not loop.is_done:
                self._save()
            tell(f"epoch {loop.epoch} of {self._recipe.epochs}, {took:.1f} s")
        self._note_judged()
        return True

    def records(self) -> list[Record]:
        """What is written of each trial."""
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
        """What trained the nets: kernels of our own or PyTorch's layers."""
        if self._recipe.compiled:
            return "layers"
        kind = torch.bfloat16 if self._recipe.precision == "bf16" else self._replicas.dtype
        _, batch = steps_of(sum(self._counts), self._recipe.batch)
        shape = (batch, *self._sets["test"].pixels.shape[1:])
        return kernels_for(self._replicas.device, kind, shape, self._trials[0].width)

    def _judge(self) -> None:
        self._note_judged()
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
        """The rows of an epoch with the metrics of its scores."""
        for name, labels in self._labels.items():
            judged = metrics_of(scores[name], labels, losses, self._counts)
            for row, found in zip(rows, judged, strict=True):
                row.update({f"{name}_{metric}": value for metric, value in found.items()})
        return rows

    def _note_judged(self) -> None:
        """Wait for the metrics of the epoch judged last, and keep them."""
        if self._pending is not None:
            self._loop.note(self._pending.result())
            self._pending = None

    def _loss_now(self, k: int) -> Loss:
        """The loss of replica k in the epoch that ended: with class weights once they are switched on."""
        loss, late = self._replicas.losses[k], self._recipe.drw_epoch
        deferred = deferred_replicas(self._recipe, self._replicas.losses)[k]
        if not deferred or late is None or self._loop.epoch <= late:
            return loss
        return ClassWeighted(loss, effective_number_weights(self._counts))

    def _save(self) -> None:
        self._note_judged()
        self._loop.save({})
        self._saved = time.monotonic()


def judge(
    replicas: Replicas,
    rows: ImageRows,
    losses: Sequence[Loss],
    class_counts: Sequence[int],
    *,
    bf16: bool = False,
) -> list[Mapping[str, float | None]]:
    """The metrics of each replica, its calibrated probabilities by the link of its loss in `losses`."""
    return metrics_of(replicas.scores(rows, bf16=bf16).cpu(), _labels(rows), losses, class_counts)


def metrics_of(
    scores: Tensor, labels: NDArray[np.int64], losses: Sequence[Loss], class_counts: Sequence[int]
) -> list[Mapping[str, float | None]]:
    """The metrics of scores (K, N) or (K, N, classes) on the CPU, each replica by the link of its loss."""
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
