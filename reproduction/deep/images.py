"""The rows of a trial: a published image set made imbalanced, with validation rows kept back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raresight.nn.row_values import digest_of_arrays

from ..images import Images, ImageSet, read_cifar10, read_cifar100, read_tiny_imagenet
from ..images.imbalance import Imbalanced, exponential, halves, pair, step
from ..images.rows import ImageRows
from .settings import Trial, validation_share

__all__ = ["TaskRows", "keep_back", "make_task", "read_images", "set_digest", "task_rows"]

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


def make_task(images: Images, trial: Trial) -> Imbalanced:
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


def task_rows(images: ImageSet, trial: Trial) -> TaskRows:
    """The rows of a trial; all trials of a stack have the same."""
    task = make_task(images.train, trial)
    if not trial.held_out:
        training = ImageRows.training(images.train, task)
        return TaskRows(training, None, training.test(images.test, task), task.class_counts)
    task, rows, labels = keep_back(task, images.train.labels, validation_share(trial.task), trial.draw)
    training = ImageRows.training(images.train, task)
    validation = training.like(images.train.pixels[rows], labels)
    return TaskRows(training, validation, training.test(images.test, task), task.class_counts)
