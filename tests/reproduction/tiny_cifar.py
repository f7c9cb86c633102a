"""A small CIFAR-10 in the official binary format, whose classes a net can learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def write_tiny_cifar10(folder: Path, *, train_images: int = 50, test_images: int = 10) -> Path:
    """Files with so many images of each class: noise around a colour that the class decides."""
    home = folder / "cifar-10-batches-bin"
    home.mkdir(parents=True)
    generator = np.random.default_rng(0)
    colours = generator.integers(60, 200, (10, 3))
    for name, count in [
        *((f"data_batch_{n}", train_images // 5) for n in range(1, 6)),
        ("test_batch", test_images),
    ]:
        labels = generator.permutation(np.arange(10).repeat(count))
        planes = colours[labels].repeat(1024, axis=1) + generator.normal(0, 60, (len(labels), 3072))
        records = np.column_stack([labels, planes.clip(0, 255)]).astype(np.uint8)
        records.tofile(home / f"{name}.bin")
    (home / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    return home
