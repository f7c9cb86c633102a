"""Images as rows that replicas are trained on and judged by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from raresight.nn import RowSource
from raresight.nn.nets import whole_number
from raresight.nn.row_values import as_array, as_labels, as_weights, digest_of

from .augmentation import Moves, crop_and_flip, draw_moves, normalise
from .imbalance import Imbalanced
from .sets import Images

__all__ = ["ImageRows"]

# Moves by up to twice of it are kept in 16 bits.
_MOST_PADDING = 2**14 - 1


class ImageRows(RowSource):
    """Images as bytes, normalised when they are used, and in training cropped and flipped at random.

    Args:
        pixels: uint8, (n, 3, height, width). They are copied.
        y: (n,), labels 0 and 1 or class numbers.
        mean: Of each colour, on the scale from 0 to 1.
        std: Of each colour, on the scale from 0 to 1.
        padding: Black pixels around an image before it is cropped.
        weights: (n,), as those of `TableRows`.

    Example:
        >>> images = Images(np.zeros((4, 3, 8, 8), np.uint8), np.array([0, 1, 1, 0]), ("cat", "dog"))
        >>> rows = ImageRows(images.pixels, images.labels, mean=(0.5,) * 3, std=(0.25,) * 3)
        >>> rows.part(slice(0, 2)).unique()
        tensor([-2.])
    """

    def __init__(
        self,
        pixels: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        *,
        mean: Sequence[float],
        std: Sequence[float],
        padding: int = 4,
        weights: ArrayLike | Tensor | None = None,
    ) -> None:
        values = as_array(pixels, "pixels")
        if values.dtype != np.uint8 or values.ndim != 4 or 0 in values.shape:
            raise ValueError(
                "pixels must be uint8 of shape (n, channels, height, width), "
                f"but are {values.dtype} of shape {values.shape}"
            )
        fits = len(mean) == len(std) == values.shape[1] and all(map(math.isfinite, (*mean, *std)))
        if not fits or min(std) <= 0:
            raise ValueError(
                f"mean and std must have {values.shape[1]} finite entries, one a channel, and std must be "
                f"above 0, but they are {tuple(mean)} and {tuple(std)}"
            )
        padding = whole_number("padding", padding, least=0)
        if padding > _MOST_PADDING:
            raise ValueError(f"padding must be at most {_MOST_PADDING}, but is {padding}")
        self.labels = as_labels(y, len(values))
        self.weights = as_weights(weights, len(values))
        self.pixels = torch.from_numpy(np.array(values, order="C"))
        # As tensors of the device: a CUDA graph cannot copy numbers from the host.
        self.mean = torch.tensor(tuple(mean), dtype=torch.float64)
        self.std = torch.tensor(tuple(std), dtype=torch.float64)
        self.padding, self.dtype = padding, torch.float32

    @classmethod
    def training(cls, images: Images, task: Imbalanced | None = None, **options: Any) -> ImageRows:
        """The training images of a task, or all, normalised by their own means and deviations."""
        chosen = images
        if task is not None:
            _check_task(images, task)
            pixels = images.pixels[task.indices]
            names = tuple(str(label) for label in range(len(task.class_counts)))
            chosen = Images(pixels, task.labels, names)
        deviations = tuple(max(deviation, 1 / 255) for deviation in chosen.channel_deviations())
        return cls(chosen.pixels, chosen.labels, mean=chosen.channel_means(), std=deviations, **options)

    def test(self, images: Images, task: Imbalanced | None = None) -> ImageRows:
        """The images of another set that take part in the task, normalised as these are."""
        if task is None:
            return self.like(images.pixels, images.labels)
        rows, labels = task.relabel(images.labels)
        return self.like(images.pixels[rows], labels)

    def like(self, pixels: ArrayLike | Tensor, y: ArrayLike | Tensor) -> ImageRows:
        """Other images, such as those of the evaluation, normalised as these are."""
        shape = np.shape(pixels)
        if len(shape) == 4 and shape[1] != len(self.mean):
            raise ValueError(f"pixels must have {len(self.mean)} channels as these do, but have {shape[1]}")
        return ImageRows(pixels, y, mean=self.mean.tolist(), std=self.std.tolist(), padding=self.padding)

    @property
    def row_numbers(self) -> int:
        return self.pixels[0].numel()

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Self:
        wide = torch.promote_types(dtype, torch.float32)
        return self.replaced(
            labels=self.labels.to(device),
            weights=self.weights_on(device, wide),
            pixels=self.pixels.to(device),
            mean=self.mean.to(device, wide),
            std=self.std.to(device, wide),
            dtype=dtype,
        )

    def draw(self, by: torch.Generator, count: int) -> tuple[Tensor, ...]:
        moves = draw_moves([by], count, padding=self.padding)
        return tuple(moved[0].to(torch.int16) for moved in (moves.down, moves.right, moves.mirrored))

    def batch(self, index: Tensor, changes: tuple[Tensor, ...]) -> Tensor:
        if changes:
            down, right, mirrored = changes
            moves = Moves(down.to(torch.int64), right.to(torch.int64), mirrored != 0, self.padding)
            chosen = crop_and_flip(self.pixels, moves, index)
        else:
            chosen = self.pixels.index_select(0, index.reshape(-1)).view(*index.shape, *self.pixels.shape[1:])
        return self._normalised(chosen)

    def part(self, rows: slice) -> Tensor:
        return self._normalised(self.pixels[rows])

    def _normalised(self, pixels: Tensor) -> Tensor:
        return normalise(pixels, mean=self.mean, std=self.std, dtype=self.dtype)

    def fingerprint(self) -> str:
        described = f"images, padding {self.padding}"
        return digest_of(described, self.pixels, self.labels, self.mean, self.std, *self.weights_given())


def _check_task(images: Images, task: Imbalanced) -> None:
    """An error where a task is not one of these images."""
    labels = np.full(len(images.labels), -1)
    rows, found = task.relabel(images.labels)
    labels[rows] = found
    if task.indices.max() >= len(labels) or not np.array_equal(labels[task.indices], task.labels):
        raise ValueError("the task is one of other images: its rows and labels are not those of these")
