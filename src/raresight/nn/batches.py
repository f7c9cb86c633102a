"""Sources of training rows, which lie on the device completely, and the batches drawn from them.

One generator per seed draws the order of rows and their random changes for a whole epoch. It follows from
seed and epoch alone. So replicas with the same seed see the same batches, and a training that resumes needs
no generator's state. The draws are made on the CPU, so that they are the same for every device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .row_values import as_labels, as_table, as_weights, digest_of, row_not_finite

__all__ = [
    "EpochDraws",
    "RowSource",
    "TableRows",
    "as_source",
    "draw_epoch",
    "generators",
    "steps_of",
]


class EpochDraws(NamedTuple):
    """The random draws of an epoch, for each of the U different seeds.

    Attributes:
        order: (steps, U, batch), int64: the numbers of the rows in each batch.
        changes: Each (steps, U, batch): the random numbers that change each row. Empty for a source that
            changes none.
    """

    order: Tensor
    changes: tuple[Tensor, ...]


class RowSource(ABC):
    """Rows with labels, all of them on one device. Subclass it for rows of your own, such as images.

    Attributes:
        labels: (n,): uint8, or int64 for more than 256 classes.
        weights: (n,), the weight of each row in training, with a mean of 1. None for equal weights.
    """

    labels: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    @abstractmethod
    def row_numbers(self) -> int:
        """Return the number of values per row."""

    @abstractmethod
    def to(self, device: torch.device | str, dtype: torch.dtype) -> Self:
        """Return the same rows on a device, in a precision."""

    @abstractmethod
    def draw(self, by: torch.Generator, count: int) -> tuple[Tensor, ...]:
        """Draw the numbers that change `count` rows in training, on the CPU; an empty tuple for none."""

    @abstractmethod
    def batch(self, index: Tensor, changes: tuple[Tensor, ...]) -> Tensor:
        """Return the rows (U, N, ...) at an index (U, N), changed. A CUDA graph records this call."""

    @abstractmethod
    def part(self, rows: slice) -> Tensor:
        """Return some rows (N, ...) for evaluation, unchanged."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a digest that is equal for equal sources, by which a folder knows its data again."""

    def class_counts(self, outputs: int) -> tuple[int, ...]:
        """Count the rows of each label; raise an error for labels beyond those of the net's outputs."""
        classes = max(outputs, 2)
        largest = int(self.labels.max())
        # Before counting: bincount reserves as many counts as the largest label, which may exceed memory.
        if largest >= classes:
            raise ValueError(
                f"the labels go to {largest}, but the net has outputs={outputs}, which is for labels "
                f"0 to {classes - 1}"
            )
        return tuple(torch.bincount(self.labels.to(torch.int64), minlength=classes).tolist())

    def class_shares(self, outputs: int) -> tuple[float, ...]:
        """Return the share of each label, weighted if the rows have weights."""
        counts = self.class_counts(outputs)
        if self.weights is None:
            return tuple(count / len(self) for count in counts)
        labels, weights = self.labels.cpu().to(torch.int64), self.weights.cpu().to(torch.float64)
        totals = torch.bincount(labels, weights, minlength=len(counts))
        return tuple((totals / totals.sum()).tolist())

    def weights_on(self, device: torch.device | str, dtype: torch.dtype) -> Tensor | None:
        """Return the row weights on a device, None without weights."""
        return None if self.weights is None else self.weights.to(device, dtype)

    def weights_given(self) -> tuple[Tensor, ...]:
        """Return the weights as an argument of the fingerprint's digest, nothing without weights."""
        return () if self.weights is None else (self.weights,)

    def replaced(self, **attributes: Any) -> Self:
        """Return a copy with other values of these attributes, such as tensors on another device."""
        found = copy(self)
        found.__dict__.update(attributes)
        return found


# The mean and the deviation of each column.
_Scaling = tuple[NDArray[np.float64], NDArray[np.float64]]


class TableRows(RowSource):
    """Rows of a table of numbers, unscaled; `standardised` scales the columns first.

    Args:
        X: (n, features), finite numbers. They are copied.
        y: (n,), labels 0 and 1 or class numbers.
        weights: (n,), the weight of each row in training. They are divided by their mean. Default: equal.

    Example:
        >>> rows = TableRows.standardised([[1.0, 10.0], [3.0, 30.0]], [0, 1])
        >>> rows.part(slice(0, 2))
        tensor([[-1., -1.],
                [ 1.,  1.]], dtype=torch.float64)
        >>> rows.like([[2.0, 40.0]], [1]).part(slice(0, 1))
        tensor([[0., 2.]], dtype=torch.float64)
        >>> TableRows([[1.0], [2.0]], [0, 1], weights=[1, 3]).weights.tolist()
        [0.5, 1.5]
    """

    def __init__(
        self, X: ArrayLike | Tensor, y: ArrayLike | Tensor, weights: ArrayLike | Tensor | None = None
    ) -> None:
        values = as_table(X)
        wanted = values.dtype if values.dtype in (np.float32, np.float64) else np.float64
        self._take(np.array(values, dtype=wanted, order="C"), y, weights, None)

    def _take(
        self,
        values: NDArray[Any],
        y: ArrayLike | Tensor,
        weights: ArrayLike | Tensor | None,
        scaling: _Scaling | None,
    ) -> None:
        """Take an array of floats as the rows, without a copy: no one else may hold it."""
        self.labels = as_labels(y, len(values))
        self.weights = as_weights(weights, len(values))
        self.values = torch.from_numpy(values)
        self._scaling = scaling

    @classmethod
    def standardised(
        cls, X: ArrayLike | Tensor, y: ArrayLike | Tensor, weights: ArrayLike | Tensor | None = None
    ) -> TableRows:
        """Subtract each column's mean and divide by its standard deviation (1 for a constant column).

        Both are unweighted, whatever the weights in training. A column is a constant if its variance is
        within the rounding error of n numbers of its size, as in scikit-learn's `StandardScaler`:

            variance <= n eps variance + (n eps mean)^2,   eps = 2^-52
        """
        values = as_table(X)
        rounding = len(values) * np.finfo(np.float64).eps
        with np.errstate(over="ignore", invalid="ignore"):
            mean, variance = values.mean(0, dtype=np.float64), values.var(0, dtype=np.float64)
            is_constant = variance <= rounding * variance + (rounding * mean) ** 2
        if not np.isfinite(variance).all():
            column = int(np.argmax(~np.isfinite(variance)))
            raise ValueError(
                f"the numbers of column {column} are too large to be standardised: divide them by a constant "
                "first"
            )
        return _scaled(values, y, weights, (mean, np.where(is_constant, 1.0, np.sqrt(variance))))

    def like(
        self, X: ArrayLike | Tensor, y: ArrayLike | Tensor, weights: ArrayLike | Tensor | None = None
    ) -> TableRows:
        """Scale other rows, such as those of the evaluation, by the means and deviations of these."""
        values = as_table(X)
        if values.shape[1] != self.row_numbers:
            raise ValueError(
                f"X must have the {self.row_numbers} columns of these rows, but has {values.shape[1]}"
            )
        if self._scaling is None:
            return TableRows(values, y, weights)
        return _scaled(values, y, weights, self._scaling)

    @property
    def row_numbers(self) -> int:
        return self.values.shape[1]

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Self:
        values = self.values.to(device, dtype)
        if not torch.isfinite(values).all():
            row = int((~torch.isfinite(values)).any(1).to(torch.uint8).argmax())
            raise ValueError(
                f"row {row} of X is too large for {str(dtype).removeprefix('torch.')}: standardise the "
                'columns, or train with precision="float64"'
            )
        return self.replaced(
            labels=self.labels.to(device), weights=self.weights_on(device, dtype), values=values
        )

    def draw(self, by: torch.Generator, count: int) -> tuple[Tensor, ...]:
        return ()

    def batch(self, index: Tensor, changes: tuple[Tensor, ...]) -> Tensor:
        # One gather for all seeds, and no look at the index, so that a CUDA graph can hold it.
        return self.values.index_select(0, index.reshape(-1)).view(*index.shape, -1)

    def part(self, rows: slice) -> Tensor:
        return self.values[rows]

    def fingerprint(self) -> str:
        return digest_of("table", self.values, self.labels, *self.weights_given())


def as_source(data: Any, name: str) -> RowSource:
    """Return rows given as a source or as a pair (X, y) as a source."""
    if isinstance(data, RowSource):
        return data
    if isinstance(data, tuple) and len(data) == 2:
        return TableRows(*data)
    raise TypeError(
        f"{name} must be a pair (X, y), TableRows or another RowSource, but is of type {type(data).__name__}"
    )


def steps_of(rows: int, batch: int) -> tuple[int, int]:
    """Return the steps per epoch and the rows per batch, without a last batch that is not full.

    All batches then have one shape, as a CUDA graph needs. The order is drawn anew in each epoch, so that the
    omitted rows differ.

    >>> steps_of(1000, 128), steps_of(100, 128)
    ((7, 128), (1, 100))
    """
    batch = min(batch, rows)
    return rows // batch, batch


def generators(
    seeds: Sequence[int], *, epoch: int = 0, device: torch.device | str = "cpu"
) -> list[torch.Generator]:
    """Return one generator per seed, which follows from the seed and the epoch alone.

    A training that resumes at an epoch need not repeat the draws of those before it. Generators of the CPU
    give the same numbers everywhere; those of a GPU differ from them.
    """
    made = []
    for seed in seeds:
        # Hashed: with seed + epoch, a replica would repeat the batches of its neighbour one epoch later.
        state = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0]
        # torch takes seeds of 63 bits.
        made.append(torch.Generator(device).manual_seed(int(state >> np.uint64(1))))
    return made


def draw_epoch(
    source: RowSource,
    seeds: Sequence[int],
    epoch: int,
    batch: int,
    *,
    augment: bool = True,
    rows: Sequence[Tensor] | None = None,
) -> EpochDraws:
    """Draw the order of the rows and their changes in an epoch, for different seeds, on the CPU.

    `rows` has the numbers of the rows that each seed draws from, int64 on the CPU. Default: all rows. The
    shortest set of rows decides the number of steps.
    """
    lengths = [len(source)] * len(seeds) if rows is None else [len(own) for own in rows]
    steps, batch = steps_of(min(lengths), batch)
    count = steps * batch
    orders, changes = [], []
    for place, generator in enumerate(generators(seeds, epoch=epoch)):
        drawn = torch.randperm(lengths[place], generator=generator)[:count]
        orders.append(drawn if rows is None else rows[place][drawn])
        changes.append(source.draw(generator, count) if augment else ())
    return EpochDraws(
        _in_steps(orders, steps, batch), tuple(_in_steps(parts, steps, batch) for parts in zip(*changes))
    )


def _in_steps(draws: Sequence[Tensor], steps: int, batch: int) -> Tensor:
    """Stack U draws of (steps * batch,) to (steps, U, batch)."""
    return torch.stack([draw.view(steps, batch) for draw in draws], dim=1)


def _scaled(
    values: NDArray[Any],
    y: ArrayLike | Tensor,
    weights: ArrayLike | Tensor | None,
    scaling: _Scaling,
) -> TableRows:
    with np.errstate(over="ignore"):
        scaled = np.ascontiguousarray((values - scaling[0]) / scaling[1])
    row = row_not_finite(scaled)
    if row is not None:
        raise ValueError(f"X is too large in row {row} for the deviations by which it is divided")
    rows = TableRows.__new__(TableRows)
    rows._take(scaled, y, weights, scaling)
    return rows
