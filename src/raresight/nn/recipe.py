"""The settings of a training: all that decides the weights apart from net, losses, seeds and data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch

from ..common.checks import check_range, check_whole

__all__ = ["DEFAULT_CLIP", "Recipe", "ScheduleWarning"]

# The default limit of a replica's gradient norm. Losses with an unbounded gradient need one. Measured by
# benchmarks/measure_clipping.py (results/clipping.csv), on four trainings with alpha loss or TBL per limit:
# - none: 3 of 4 ended in NaN;
# - 1: clips half of all steps and has the lowest AUC;
# - 5: clips 1 to 4 % of the steps, and no training was spoilt;
# - 20: an explosion spoilt one of 4.
DEFAULT_CLIP: float | None = 5.0

_OPTIMISERS = ("sgd", "adamw")
_SWITCHES = ("start_at_prior", "augment", "bf16_evaluation", "compiled", "cuda_graph", "deterministic")
_PRECISIONS = ("float32", "bf16", "float64")
_SEQUENCES = {"betas": "(0.9, 0.999)", "decay_epochs": "(160, 180)", "fprs": "(0.01,)"}


class ScheduleWarning(UserWarning):
    """A training ends before a part of its schedule begins, or before the warm-up is over."""


@dataclass(frozen=True)
class Recipe:
    """The settings of a training. The defaults are the paper's for tables: AdamW at a constant rate.

    The learning rate of step t (of all steps, from 0) in epoch e (from 0), with n(e) decay epochs <= e, is

        lr * min(1, (t + 1) / (warmup_epochs * steps per epoch)) * decay_factor^n(e)

    Attributes:
        epochs: Passes over the training rows.
        batch: Rows per step. A last batch that is not full is omitted. Fewer rows than this make one batch.
        optimiser: "sgd" (with momentum) or "adamw".
        lr: The base learning rate, or one per replica.
        momentum: Momentum of SGD.
        weight_decay: Added to the gradient by SGD, decoupled by AdamW.
        betas: Decay rates (b1, b2) of AdamW's means of gradients and of squares.
        epsilon: Added to the denominator of AdamW.
        warmup_epochs: Length of the warm-up, in which the learning rate rises linearly, step by step.
        decay_epochs: Epochs (from 0) from which the learning rate is multiplied by `decay_factor`.
        decay_factor: Factor of each decay.
        clip: The largest gradient norm of a replica, or one per replica. A longer gradient is scaled down to
            it. None: no limit.
        precision: "float32"; "bf16" runs the net under autocast, with weights, loss and optimiser in float32;
            "float64".
        drw_epoch: Epoch (from 0) from which classes are weighted by their effective numbers (deferred
            reweighting). None: never.
        deferred: Whether each replica is reweighted, one boolean per replica. Default: those whose loss
            prefers it.
        start_at_prior: Whether the head's bias starts at the loss-optimal constant score for the prior.
        augment: Whether the row source changes training rows at random. Images, for example, are cropped and
            flipped.
        evaluate_every: Epochs between evaluations. The last epoch is always evaluated.
        bf16_evaluation: Whether the evaluation runs under autocast, too, except for the head. It is faster,
            with scores as exact as those in bf16 training, about 1 %.
        fprs: False-positive rates of the partial AUC and the recall of binary nets.
        best_by: The metric that chooses the best epoch. Default: the partial AUC at the first of `fprs`, for
            several classes the balanced accuracy.
        compiled: Whether the forward pass of training goes through `torch.compile`.
        cuda_graph: Whether the step is recorded as a CUDA graph on a GPU. Otherwise it runs operation by
            operation, with the same result.
        deterministic: Whether cuDNN is held to deterministic algorithms, so that a seed gives the same curve
            twice.

    Example:
        >>> recipe = Recipe(epochs=30, optimiser="sgd", lr=0.002)
        >>> recipe.batch, recipe.warmup_epochs
        (128, 15)
        >>> Recipe.from_dict(recipe.to_dict()) == recipe
        True
    """

    epochs: int = 100
    batch: int = 128
    optimiser: str = "adamw"
    lr: float | Sequence[float] = 1e-3
    momentum: float = 0.9
    weight_decay: float = 2.5e-4
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    warmup_epochs: float = 15
    decay_epochs: Sequence[int] = ()
    decay_factor: float = 0.1
    clip: float | Sequence[float | None] | None = DEFAULT_CLIP
    precision: str = "float32"
    drw_epoch: int | None = None
    deferred: Sequence[bool] | None = None
    start_at_prior: bool = False
    augment: bool = True
    evaluate_every: int = 1
    bf16_evaluation: bool = False
    fprs: Sequence[float] = (0.01, 0.001)
    best_by: str | None = None
    compiled: bool = False
    cuda_graph: bool = True
    deterministic: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _plain(getattr(self, field.name)))
        for name, example in _SEQUENCES.items():
            if not isinstance(getattr(self, name), tuple):
                raise TypeError(
                    f"{name} must be a sequence of numbers such as {example}, but is {getattr(self, name)!r}"
                )
        for name in ("epochs", "batch", "evaluate_every"):
            check_whole(getattr(self, name), name)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, but is {getattr(self, name)!r}")
        if self.optimiser not in _OPTIMISERS:
            raise ValueError(f"optimiser must be one of {', '.join(_OPTIMISERS)}, but is {self.optimiser!r}")
        if self.precision not in _PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(_PRECISIONS)}, but is {self.precision!r}")
        for rate in _each(self.lr):
            check_range(rate, "lr", above=0.0)
        for limit in _each(self.clip):
            if limit is not None:
                check_range(limit, "clip", above=0.0)
        check_range(self.momentum, "momentum", least=0.0, below=1.0)
        check_range(self.weight_decay, "weight_decay", least=0.0)
        if len(self.betas) != 2:
            raise ValueError(f"betas must be two numbers, but are {self.betas}")
        for beta in self.betas:
            check_range(beta, "betas", least=0.0, below=1.0)
        check_range(self.epsilon, "epsilon", above=0.0)
        check_range(self.warmup_epochs, "warmup_epochs", least=0.0)
        check_range(self.decay_factor, "decay_factor", above=0.0)
        for epoch in self.decay_epochs:
            check_whole(epoch, "decay_epochs", least=0)
        if self.drw_epoch is not None:
            check_whole(self.drw_epoch, "drw_epoch", least=0)
        self._check_deferred()
        if self.best_by is not None and not isinstance(self.best_by, str):
            raise TypeError(f"best_by must be the name of a metric, or None, but is {self.best_by!r}")
        if not self.fprs:
            raise ValueError("fprs must hold at least one false-positive rate, but is empty")
        for fpr in self.fprs:
            check_range(fpr, "fprs", above=0.0, most=1.0)
        # Metrics are named after the rates in this format: equal names would overwrite each other.
        names = [f"{fpr:g}" for fpr in self.fprs]
        twins = sorted({name for name in names if names.count(name) > 1})
        if twins:
            raise ValueError(
                f"fprs must differ in their first six digits, but {self.fprs} has {twins[0]} twice"
            )

    def _check_deferred(self) -> None:
        if self.deferred is None:
            return
        if not isinstance(self.deferred, tuple) or not all(isinstance(one, bool) for one in self.deferred):
            raise TypeError(
                "deferred must be None or a sequence of True and False, one per replica, "
                f"but is {self.deferred!r}"
            )
        if self.drw_epoch is None:
            raise ValueError(
                "deferred chooses replicas for deferred reweighting, but drw_epoch is None, which is for "
                "never: give drw_epoch, or omit deferred"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values, ready for JSON."""
        return {
            field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value
            for field in fields(self)
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a recipe from the values of `to_dict`."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"a recipe has no {', '.join(unknown)}: it was written by another version")
        return cls(**values)

    @property
    def dtype(self) -> torch.dtype:
        """Return the precision of weights and loss."""
        return torch.float64 if self.precision == "float64" else torch.float32

    def rates_of(self, replicas: int) -> list[float]:
        """Return the base learning rate of each replica."""
        return _spread("lr", self.lr, replicas)

    def clips_of(self, replicas: int) -> list[float] | None:
        """Return the limit of each gradient norm, infinity for none; None if no replica has a limit."""
        limits = [math.inf if limit is None else limit for limit in _spread("clip", self.clip, replicas)]
        return limits if min(limits) < math.inf else None


def _plain(value: Any) -> Any:
    """Convert sequences to tuples and NumPy's numbers to Python's, so that recipes hash and compare."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_plain(entry) for entry in value)
    return value


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _spread(name: str, value: Any, replicas: int) -> list[Any]:
    if not isinstance(value, tuple):
        return [value] * replicas
    if len(value) != replicas:
        raise ValueError(
            f"the recipe gives {len(value)} values of {name} for {replicas} replicas: "
            "give one number, or one per replica"
        )
    return list(value)
