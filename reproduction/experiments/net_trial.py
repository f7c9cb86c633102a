"""A training of a net in plain values: image set, task, net, method, learning rate, seed and length."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

Parameters = tuple[tuple[str, float], ...]
"""The parameters of a loss by name, in a fixed order."""

PAPER_WIDTH = 16
"""Channels of the first stage of the paper's nets."""

CLASS_TASKS = ("exponential", "step")
"""Tasks that keep all classes."""

ROLES = ("search", "final", "paper", "beyond", "ablation", "anchor")
"""Why a net is trained.

search: a candidate setting; final: the chosen setting; paper: the paper's fixed setting; beyond: a learning
rate above those of the search; ablation: one point of a series; anchor: the recipe of other authors."""


@dataclass(frozen=True)
class Dataset:
    """A published image set with its net and learning rates.

    Attributes:
        title: Name for tables and figures.
        depth: Layers of the residual net.
        paper_lr: The paper's learning rate.
        lrs: Learning rates of the search; the paper's is one of them.
        classes: Number of categories.
        side: Height and width of an image in pixels.
        train_images: Training images per category.
        test_images: Test images per category.
    """

    title: str
    depth: int
    paper_lr: float
    lrs: tuple[float, ...]
    classes: int
    side: int
    train_images: int
    test_images: int


DATASETS = {
    "cifar10": Dataset("CIFAR-10", 32, 0.002, (0.002, 0.006, 0.02), 10, 32, 5000, 1000),
    "cifar100": Dataset("CIFAR-100", 44, 0.002, (0.002, 0.006, 0.02), 100, 32, 500, 100),
    "tinyimagenet": Dataset("Tiny ImageNet", 56, 0.01, (0.003, 0.01, 0.03), 200, 64, 500, 50),
}


@dataclass(frozen=True)
class Size:
    """The length of trainings, and the number of parameter settings that are tried.

    Attributes:
        name: Name of the size.
        search_epochs: Epochs of trainings of the search.
        final_epochs: Epochs of trainings that are reported; the paper has 250.
        candidates: Parameter settings per loss that has parameters, each tried with every learning rate.
    """

    name: str
    search_epochs: int
    final_epochs: int
    candidates: int = 2


SIZES = {size.name: size for size in (Size("short", 7, 14), Size("medium", 25, 50), Size("full", 50, 250, 3))}


def size_of(text: str) -> Size:
    """Return a size by its name, or by two lengths such as "2,4": epochs of the search and of results.

    >>> size_of("full").final_epochs, size_of("2,4")
    (250, Size(name='2,4', search_epochs=2, final_epochs=4, candidates=2))
    """
    if text in SIZES:
        return SIZES[text]
    parts = text.split(",")
    if len(parts) == 2 and all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        search, final = map(int, parts)
        return Size(f"{search},{final}", search, final)
    raise ValueError(
        f"size must be one of {', '.join(SIZES)}, or two numbers of epochs such as '8,16', but is {text!r}"
    )


@dataclass(frozen=True)
class Setup:
    """The image set, the net and the length of an experiment.

    Attributes:
        dataset: One of `DATASETS`.
        size: Length of the trainings.
        depth: Layers of the net. Default: the paper's.
        width: Channels of the first stage. Default: the paper's 16.
    """

    dataset: str = "cifar10"
    size: Size = SIZES["short"]
    depth: int | None = None
    width: int = PAPER_WIDTH

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise ValueError(f"dataset must be one of {', '.join(DATASETS)}, but is {self.dataset!r}")
        # The net itself would refuse these values, too, but only after images are read and folders made.
        if self.layers < 8 or self.layers % 6 != 2:
            raise ValueError(f"depth must be 6n + 2, such as 8, 20, 32, 44 or 56, but is {self.layers}")
        if self.width < 1:
            raise ValueError(f"width must be at least 1, but is {self.width}")

    @property
    def layers(self) -> int:
        """The depth of the net."""
        return DATASETS[self.dataset].depth if self.depth is None else self.depth

    @property
    def net(self) -> str:
        """The name of the net."""
        return format_net(self.layers, self.width)

    @property
    def stem(self) -> str:
        """The part of file names for this setup: the set, and the net if it is not the paper's.

        >>> Setup().stem, Setup("cifar100", depth=8, width=4).stem
        ('cifar10', 'cifar100-resnet8-width4')
        """
        if (self.layers, self.width) == (DATASETS[self.dataset].depth, PAPER_WIDTH):
            return self.dataset
        return f"{self.dataset}-resnet{self.layers}-width{self.width}"

    def at(self, size: Size) -> Setup:
        """Return the same set and net at another size."""
        return replace(self, size=size)

    def has(self, trial: Mapping[str, Any]) -> bool:
        """Return whether a trial, as a dict, has this set and net; its length does not matter."""
        of_trial = (trial["dataset"], trial["depth"], trial["width"])
        return of_trial == (self.dataset, self.layers, self.width)


@dataclass(frozen=True)
class NetTrial:
    """One training: everything that decides its result, except device and rounding.

    Attributes:
        dataset: One of `DATASETS`.
        task: "halves", "pair", "exponential" or "step", of `reproduction.images.imbalance`.
        rho: The imbalance.
        draw: Seed of the task: which categories are positive, and which rows are kept.
        held_out: Whether validation rows are held out from the training images.
        depth: Layers of the net.
        width: Channels of its first stage.
        method: A loss with its treatment of the prior; see `reproduction.experiments.methods`.
        parameters: Parameters of the loss.
        lr: Base learning rate.
        seed: Seed of initial weights and batches.
        epochs: Length of the training.
        role: One of `ROLES`.

    Example:
        >>> trial = NetTrial("cifar10", "halves", 0.01, 0, True, 32, 16, "TBL", (("alpha", 0.7), ("C", 0.5)),
        ...     0.002, 0, 16, "final")
        >>> NetTrial.from_dict(trial.to_dict()) == trial
        True
        >>> trial.setting
        'alpha=0.7 C=0.5'
    """

    dataset: str
    task: str
    rho: float
    draw: int
    held_out: bool
    depth: int
    width: int
    method: str
    parameters: Parameters
    lr: float
    seed: int
    epochs: int
    role: str

    @cached_property
    def key(self) -> str:
        """Text that is the same for equal trials, in every process and version."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @property
    def stack_key(self) -> tuple[Any, ...]:
        """Values that trials must share to be trained in one stack."""
        return (
            *(self.dataset, self.task, self.rho, self.draw, self.held_out),
            *(self.depth, self.width, self.epochs, self.role),
        )

    @property
    def setting(self) -> str:
        """The parameters as text; empty for a loss without parameters."""
        return format_parameters(self.parameters)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "parameters": dict(self.parameters)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> NetTrial:
        """Return the trial that `to_dict` wrote."""
        named = {**values, "parameters": tuple((name, float(x)) for name, x in values["parameters"].items())}
        return cls(**named)


def refuse_seed(name: str, seed: int) -> None:
    """Raise an error for a seed other than 0: experiments have fixed seeds of their own."""
    if seed != 0:
        raise ValueError(f"{name} takes no seed: its draws and trainings have seeds 0, 1 and 2 of their own")


def format_net(depth: int, width: int) -> str:
    """Format the name of a residual net, with its width if that is not the paper's.

    >>> format_net(32, 16), format_net(8, 4)
    ('ResNet-32', 'ResNet-8 of width 4')
    """
    return f"ResNet-{depth}" if width == PAPER_WIDTH else f"ResNet-{depth} of width {width}"


def format_parameters(parameters: Parameters) -> str:
    """Format the parameters of a loss; empty if there are none.

    >>> format_parameters((("alpha", 0.7), ("C", 0.5)))
    'alpha=0.7 C=0.5'
    """
    return " ".join(f"{name}={value:g}" for name, value in parameters)


def validation_share(task: str) -> float:
    """Return the share of each category's training images that is held out for validation.

    It is larger for two categories than for all, because a tenth of them would be few rows.
    """
    return 0.2 if task == "pair" else 0.1


def folder_name(trials: tuple[NetTrial, ...]) -> str:
    """Return a short name for a stack of trials: a digest of their keys."""
    return hashlib.sha256("\n".join(trial.key for trial in trials).encode()).hexdigest()[:16]
