"""Tiny ImageNet: 200 classes of ImageNet, 64 x 64, in folders of JPEG files.

    tiny-imagenet-200/
        wnids.txt, words.txt                    the classes, and the words for every class of WordNet
        train/<class>/images/*.JPEG             500 a class
        val/images/*.JPEG, val/val_annotations.txt    50 a class

The labels of its test images were never published; as everywhere, its validation images are the test set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .sets import Images, ImageSet, find_folder, read_lines

_SIDE = 64


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
    pixels = np.empty((len(files), 3, _SIDE, _SIDE), dtype=np.uint8)
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
    if decoded.shape != (_SIDE, _SIDE, 3):
        height, width = decoded.shape[:2]
        raise ValueError(f"{path} is {height} x {width}, but images of the set are {_SIDE} x {_SIDE}")
    return decoded.transpose(2, 0, 1)


def _import_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ImportError("decoding JPEG files needs Pillow: pip install pillow") from error
