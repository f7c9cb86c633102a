"""Images as rows to train and evaluate nets on, cropped and flipped at random in training.

The whole set lies on the device as bytes. A batch of K replicas is one gather from it: each output pixel
knows which image, row and column it comes from. The random numbers are K small draws from K generators, so a
replica sees the same images whether it trains alone or beside others, on any device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from raresight.common.checks import check_whole
from raresight.nn import RowSource
from raresight.nn.row_values import as_array, as_labels, as_weights, digest_of

from .imbalance import Imbalanced
from .readers import Images

# ---- Augmentation ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moves:
    """How each image of a batch is moved: all three of shape (K, N).

    Attributes:
        down: int64, how many rows the crop lies below the padded image's top, 0 to 2 * padding.
        right: int64, how many columns it lies to the right of the padded image's left side.
        mirrored: bool, whether the crop is then mirrored left to right.
        padding: How many black pixels are put around the image before it is cropped to its old size.
    """

    down: torch.Tensor
    right: torch.Tensor
    mirrored: torch.Tensor
    padding: int

    def to(self, device: torch.device | str) -> Moves:
        """The same moves on a device."""
        return Moves(self.down.to(device), self.right.to(device), self.mirrored.to(device), self.padding)


def draw_moves(generators: Sequence[torch.Generator], count: int, *, padding: int = 4) -> Moves:
    """The random moves of `count` images a replica; drawn for many batches at once, they can be cut up."""
    if padding < 0:
        raise ValueError(f"padding must not be negative, but is {padding}")
    if not generators:
        raise ValueError("one generator a replica is needed, but there is none")
    down, right, mirrored = [], [], []
    for generator in generators:
        place = {"generator": generator, "device": generator.device}
        down.append(torch.randint(0, 2 * padding + 1, (count,), **place))  # type: ignore[call-overload]
        right.append(torch.randint(0, 2 * padding + 1, (count,), **place))  # type: ignore[call-overload]
        mirrored.append(torch.randint(0, 2, (count,), **place) == 1)  # type: ignore[call-overload]
    return Moves(torch.stack(down), torch.stack(right), torch.stack(mirrored), padding)


def augment(
    pixels: torch.Tensor,
    generators: Sequence[torch.Generator],
    *,
    mean: torch.Tensor | Sequence[float],
    std: torch.Tensor | Sequence[float],
    index: torch.Tensor | None = None,
    padding: int = 4,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Pad with black and crop, mirror every second image, and normalise; each replica by its own generator.

    Args:
        pixels: uint8 of shape (n, 3, height, width), the images on their device.
        generators: One per replica, see `raresight.nn.batches.generators`; each is left where its draws end.
        mean: Of each colour, on the scale from 0 to 1.
        std: Of each colour, on the scale from 0 to 1.
        index: Which images: (N,) for all replicas or (K, N), one row a replica; by default all in order.
        padding: Black pixels around the image.
        dtype: Of the result.

    Returns:
        (K, N, 3, height, width).

    Example:
        >>> from raresight.nn.batches import generators
        >>> pixels = torch.zeros(5, 3, 8, 8, dtype=torch.uint8)
        >>> batch = augment(pixels, generators((7, 8)), mean=(0.5,) * 3, std=(0.5,) * 3)
        >>> batch.shape, batch.unique()
        (torch.Size([2, 5, 3, 8, 8]), tensor([-1.]))
    """
    count = len(pixels) if index is None else index.shape[-1]
    moves = draw_moves(generators, count, padding=padding).to(pixels.device)
    return normalise(crop_and_flip(pixels, moves, index), mean=mean, std=std, dtype=dtype)


def crop_and_flip(pixels: torch.Tensor, moves: Moves, index: torch.Tensor | None = None) -> torch.Tensor:
    """The moved images as bytes, (K, N, 3, height, width): one gather, no random number."""
    if pixels.dtype != torch.uint8 or pixels.dim() != 4:
        raise ValueError(
            "pixels must be uint8 of shape (n, channels, height, width), "
            f"but are {pixels.dtype} of shape {tuple(pixels.shape)}"
        )
    n, channels, height, width = pixels.shape
    replicas, count = moves.down.shape
    image = torch.arange(n, device=pixels.device) if index is None else index
    if image.shape not in ((count,), (replicas, count)):
        raise ValueError(
            f"index must have shape ({count},) or ({replicas}, {count}) as the moves do, "
            f"but has {tuple(image.shape)}"
        )
    row = torch.arange(height, device=pixels.device) + (moves.down - moves.padding).unsqueeze(-1)
    column = torch.arange(width, device=pixels.device)
    column = torch.where(moves.mirrored.unsqueeze(-1), column.flip(0), column)
    column = column + (moves.right - moves.padding).unsqueeze(-1)
    inside_row, inside_column = (row >= 0) & (row < height), (column >= 0) & (column < width)
    moved = pixels[
        image.expand(replicas, count)[:, :, None, None, None],
        torch.arange(channels, device=pixels.device)[:, None, None],
        row.clamp(0, height - 1)[:, :, None, :, None],
        column.clamp(0, width - 1)[:, :, None, None, :],
    ]
    return moved * (inside_row[:, :, None, :, None] & inside_column[:, :, None, None, :])


def normalise(
    pixels: torch.Tensor,
    *,
    mean: torch.Tensor | Sequence[float],
    std: torch.Tensor | Sequence[float],
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """(pixels / 255 - mean) / std for each colour; bytes of shape (..., 3, height, width) in."""
    # In float32 at least, then rounded once.
    wide = torch.promote_types(dtype, torch.float32)
    centre = torch.as_tensor(mean, dtype=wide, device=pixels.device)[:, None, None]
    scale = torch.as_tensor(std, dtype=wide, device=pixels.device)[:, None, None]
    return ((pixels.to(wide) / 255 - centre) / scale).to(dtype)


# ---- Rows --------------------------------------------------------------------------------------------------

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
        padding = check_whole(padding, "padding", least=0)
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
