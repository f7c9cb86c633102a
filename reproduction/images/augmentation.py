"""Random crops and flips of a whole batch at once, on the device that holds the images.

The whole set lies on the device as bytes. A batch of K replicas is one gather from it: each output pixel
knows which image, row and column it comes from. The random numbers are K small draws from K generators, so
that a replica sees the same images whether it trains alone or beside others, on any device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

__all__ = ["Moves", "augment", "crop_and_flip", "draw_moves", "normalise"]


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
        generators: One a replica, see `raresight.nn.batches.generators`; each is left where its draws end.
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
