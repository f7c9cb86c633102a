"""What every reader of images returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Images:
    """Images of one size with their classes.

    Attributes:
        pixels: uint8 of shape (n, 3, height, width): red, green and blue planes.
        labels: int64 of shape (n,), positions in `class_names`.
        class_names: One name a class.

    Example:
        >>> images = Images(np.full((2, 3, 4, 4), 51, np.uint8), np.array([1, 0]), ("cat", "dog"))
        >>> images.channel_means()
        (0.2, 0.2, 0.2)
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.pixels.dtype != np.uint8 or self.pixels.ndim != 4 or self.pixels.shape[1] != 3:
            raise ValueError(
                "pixels must be uint8 of shape (n, 3, height, width), "
                f"but are {self.pixels.dtype} of shape {self.pixels.shape}"
            )
        if self.labels.shape != (len(self.pixels),) or self.labels.dtype != np.int64:
            raise ValueError(
                f"labels must be int64 of shape ({len(self.pixels)},), one an image, "
                f"but are {self.labels.dtype} of shape {self.labels.shape}"
            )
        outside = np.flatnonzero((self.labels < 0) | (self.labels >= len(self.class_names)))
        if len(outside):
            raise ValueError(
                f"image {outside[0]} has label {self.labels[outside[0]]}, but there are "
                f"{len(self.class_names)} class names: labels must be 0 to {len(self.class_names) - 1}"
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def channel_means(self) -> tuple[float, float, float]:
        """Mean of each colour over all images and places, on the scale from 0 to 1."""
        mean, _ = self._channel_moments()
        return mean

    def channel_deviations(self) -> tuple[float, float, float]:
        """Standard deviation of each colour over all images and places, on the scale from 0 to 1."""
        _, deviation = self._channel_moments()
        return deviation

    def _channel_moments(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        # Counting the 256 byte values is exact and needs no float copy of the images.
        values = np.arange(256) / 255
        means, deviations = [], []
        for colour in range(3):
            counts = np.bincount(self.pixels[:, colour].reshape(-1), minlength=256)
            share = counts / counts.sum()
            mean = float(share @ values)
            means.append(mean)
            deviations.append(float(np.sqrt(share @ (values - mean) ** 2)))
        return (means[0], means[1], means[2]), (deviations[0], deviations[1], deviations[2])


@dataclass(frozen=True)
class ImageSet:
    """The training images and the test images of one published set."""

    train: Images
    test: Images


def find_folder(path: str | Path, name: str, mark: str, advice: str) -> Path:
    """The folder with the file `mark`: the given one or the folder `name` inside it."""
    given = Path(path)
    for folder in (given, given / name):
        if (folder / mark).is_file():
            return folder
    raise FileNotFoundError(f"neither {given} nor {given / name} has the file {mark}: {advice}")


def read_lines(path: Path) -> tuple[str, ...]:
    """The lines of a small text file, without the empty ones."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}, which belongs to the published set")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8: it is damaged, or of another set") from None
    return tuple(line.strip() for line in text.splitlines() if line.strip())
