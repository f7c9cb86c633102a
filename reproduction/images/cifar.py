"""CIFAR-10 and CIFAR-100 in their binary version: 60,000 colour images of 32 x 32.

Collected by Krizhevsky, "Learning multiple layers of features from tiny images" (2009). A file is a row of
records: one label byte (CIFAR-100: two, coarse and fine), then 3,072 pixel bytes, the red, green and blue
planes row by row. The Python version of the sets is pickled and is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .sets import Images, ImageSet, find_folder, read_lines

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE


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
    length = len(label_sizes) + _PIXELS
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
        pixels=np.concatenate([part[:, -_PIXELS:] for part in parts]).reshape(-1, 3, _SIDE, _SIDE),
        labels=np.concatenate([part[:, position] for part in parts]).astype(np.int64),
        class_names=names,
    )


def _class_names(path: Path, count: int) -> tuple[str, ...]:
    names = read_lines(path)
    if len(names) != count:
        raise ValueError(f"{path} names {len(names)} classes, but the set has {count}")
    return names
