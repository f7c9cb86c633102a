"""Readers of CIFAR-10, CIFAR-100 and Tiny ImageNet, from folders that users bring.

CIFAR-10 and CIFAR-100 are read in their binary version: 60,000 colour images of 32 x 32, collected by
Krizhevsky, "Learning multiple layers of features from tiny images" (2009). A file is a series of records: one
label byte (CIFAR-100: two, coarse and fine), then 3,072 pixel bytes, the red, green and blue planes row by
row. The Python version of the sets is pickled and is not read.

Tiny ImageNet has 200 classes of ImageNet, 64 x 64, in folders of JPEG files:

    tiny-imagenet-200/
        wnids.txt, words.txt                          the classes, and the words for every class of WordNet
        train/<class>/images/*.JPEG                   500 per class
        val/images/*.JPEG, val/val_annotations.txt    50 per class

The labels of its test images were never published. As everywhere, its validation images are the test set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# ---- Image sets --------------------------------------------------------------------------------------------


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


# ---- CIFAR -------------------------------------------------------------------------------------------------

_CIFAR_SIDE = 32
_CIFAR_PIXELS = 3 * _CIFAR_SIDE * _CIFAR_SIDE


def read_cifar10(folder: str | Path, *, complete: bool = True) -> ImageSet:
    """Read `cifar-10-batches-bin`, given that folder or the one that holds it.

    Args:
        folder: Where the unpacked `cifar-10-binary.tar.gz` is.
        complete: Whether each file must have the published 10,000 images. A part of the set, with whole
            records, is read with False.

    Raises:
        FileNotFoundError: If a file is not there.
        ValueError: If a file is not of the published length, or a label not of the published range.

    Example:
        >>> read_cifar10("/nowhere")
        Traceback (most recent call last):
        FileNotFoundError: neither /nowhere nor /nowhere/cifar-10-batches-bin has the file
        data_batch_1.bin: unpack the binary version of the set, cifar-10-binary.tar.gz
    """
    advice = "unpack the binary version of the set, cifar-10-binary.tar.gz"
    home = find_folder(folder, "cifar-10-batches-bin", "data_batch_1.bin", advice)
    names = _class_names(home / "batches.meta.txt", 10)
    count = 10_000 if complete else None
    train = [_read_records(home / f"data_batch_{number}.bin", (10,), count) for number in range(1, 6)]
    return ImageSet(
        train=_as_images(train, 0, names),
        test=_as_images([_read_records(home / "test_batch.bin", (10,), count)], 0, names),
    )


def read_cifar100(folder: str | Path, *, coarse: bool = False, complete: bool = True) -> ImageSet:
    """Read `cifar-100-binary`, given that folder or the one that holds it.

    Args:
        folder: Where the unpacked `cifar-100-binary.tar.gz` is.
        coarse: Whether the labels are the 20 groups of classes instead of the 100 classes.
        complete: Whether the files must have the published 50,000 and 10,000 images.

    Raises:
        FileNotFoundError: If a file is not there.
        ValueError: If a file is not of the published length, or a label not of the published range.
    """
    advice = "unpack the binary version of the set, cifar-100-binary.tar.gz"
    home = find_folder(folder, "cifar-100-binary", "train.bin", advice)
    kind, size, position = ("coarse", 20, 0) if coarse else ("fine", 100, 1)
    names = _class_names(home / f"{kind}_label_names.txt", size)
    train = _read_records(home / "train.bin", (20, 100), 50_000 if complete else None)
    test = _read_records(home / "test.bin", (20, 100), 10_000 if complete else None)
    return ImageSet(train=_as_images([train], position, names), test=_as_images([test], position, names))


def _read_records(path: Path, label_sizes: tuple[int, ...], count: int | None) -> NDArray[np.uint8]:
    """The records of a file as rows, each label byte below its size."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}, which belongs to the published set")
    length = len(label_sizes) + _CIFAR_PIXELS
    found = path.stat().st_size
    if count is not None and found != count * length:
        raise ValueError(
            f"{path} has {found:,} bytes, but {count:,} images take {count * length:,}: "
            "the file is cut off or of another set"
        )
    if found == 0 or found % length:
        raise ValueError(f"{path} has {found:,} bytes, which is not a whole number of records of {length:,}")
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, length)
    for position, size in enumerate(label_sizes):
        strange = np.flatnonzero(records[:, position] >= size)
        if len(strange):
            raise ValueError(
                f"{path}: image {strange[0]} has label {records[strange[0], position]}, "
                f"but labels are 0 to {size - 1}: the file is damaged or of another set"
            )
    return records


def _as_images(parts: Sequence[NDArray[np.uint8]], position: int, names: tuple[str, ...]) -> Images:
    return Images(
        pixels=np.concatenate([part[:, -_CIFAR_PIXELS:] for part in parts]).reshape(
            -1, 3, _CIFAR_SIDE, _CIFAR_SIDE
        ),
        labels=np.concatenate([part[:, position] for part in parts]).astype(np.int64),
        class_names=names,
    )


def _class_names(path: Path, count: int) -> tuple[str, ...]:
    names = read_lines(path)
    if len(names) != count:
        raise ValueError(f"{path} names {len(names)} classes, but the set has {count}")
    return names


# ---- Tiny ImageNet -----------------------------------------------------------------------------------------

_TINY_SIDE = 64


def read_tiny_imagenet(folder: str | Path, *, complete: bool = True) -> ImageSet:
    """Read `tiny-imagenet-200`, given that folder or the one that holds it.

    Classes are numbered in the order of their WordNet numbers; their names are the words for them.

    Args:
        folder: Where the unpacked `tiny-imagenet-200.zip` is.
        complete: Whether there must be the published 200 classes with 500 and 50 images each.

    Raises:
        FileNotFoundError: If a file or folder is not there.
        ImportError: If Pillow, which decodes the JPEG files, is not installed.
        ValueError: If a count, the size of an image or a class is not the published one.
    """
    _import_pillow()
    home = find_folder(folder, "tiny-imagenet-200", "wnids.txt", "unpack tiny-imagenet-200.zip")
    classes = tuple(sorted(read_lines(home / "wnids.txt")))
    if len(set(classes)) != len(classes):
        twice = next(name for name in classes if classes.count(name) > 1)
        raise ValueError(f"{home / 'wnids.txt'} names the class {twice} twice")
    if complete and len(classes) != 200:
        raise ValueError(f"{home / 'wnids.txt'} names {len(classes)} classes, but the set has 200")
    words = dict(line.split("\t", 1) for line in read_lines(home / "words.txt") if "\t" in line)
    names = tuple(words.get(name, name) for name in classes)
    train = [(path, label) for label, name in enumerate(classes) for path in _train_files(home, name)]
    test = _test_files(home, classes)
    return ImageSet(
        train=_decode_all(train, names, home / "train", 500 if complete else None),
        test=_decode_all(test, names, home / "val", 50 if complete else None),
    )


def _train_files(home: Path, name: str) -> list[Path]:
    folder = home / "train" / name / "images"
    # By length first: in the order of the numbers at the end of the names.
    return sorted(folder.glob("*.JPEG"), key=lambda path: (len(path.name), path.name))


def _test_files(home: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    label_of = {name: label for label, name in enumerate(classes)}
    source = home / "val" / "val_annotations.txt"
    files = []
    for line in read_lines(source):
        file, _, rest = line.partition("\t")
        name = rest.split("\t", 1)[0]
        if name not in label_of:
            raise ValueError(f"{source}: image {file} has class {name!r}, which wnids.txt does not name")
        files.append((home / "val" / "images" / file, label_of[name]))
    return files


def _decode_all(
    files: Sequence[tuple[Path, int]], names: tuple[str, ...], folder: Path, each: int | None
) -> Images:
    labels = np.array([label for _, label in files], dtype=np.int64)
    counts = np.bincount(labels, minlength=len(names))
    wrong = np.flatnonzero(counts == 0 if each is None else counts != each)
    if len(wrong):
        needed = "at least 1" if each is None else str(each)
        raise ValueError(
            f"{folder} has {counts[wrong[0]]} images of the class {names[wrong[0]]!r}, but needs {needed}"
        )
    pixels = np.empty((len(files), 3, _TINY_SIDE, _TINY_SIDE), dtype=np.uint8)
    # Decoding leaves Python's lock, so that threads are enough.
    with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as pool:
        for row, image in enumerate(pool.map(_decode, (path for path, _ in files))):
            pixels[row] = image
    return Images(pixels=pixels, labels=labels, class_names=names)


def _decode(path: Path) -> NDArray[np.uint8]:
    from PIL import Image

    if not path.is_file():
        raise FileNotFoundError(f"no file {path}, which belongs to the published set")
    try:
        with Image.open(path) as image:
            # Some of the images are grey; all come back with three colours.
            decoded = np.asarray(image.convert("RGB"))
    except OSError as error:
        raise ValueError(f"{path} cannot be decoded as an image: {error}") from error
    if decoded.shape != (_TINY_SIDE, _TINY_SIDE, 3):
        height, width = decoded.shape[:2]
        raise ValueError(
            f"{path} is {height} x {width}, but images of the set are {_TINY_SIDE} x {_TINY_SIDE}"
        )
    return decoded.transpose(2, 0, 1)


def _import_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ImportError("decoding JPEG files needs Pillow: pip install pillow") from error
