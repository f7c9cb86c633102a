"""Labels of any kind as class numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

__all__ = ["encode_labels", "encode_with", "need_every_class"]

_WIDEST = 1000


def encode_labels(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The sorted classes and each row's class number.

    >>> encode_labels(np.array(["ok", "fraud", "ok"]))[1].tolist()
    [1, 0, 1]
    """
    if y.dtype.kind in "biu" and y.size:
        lowest, highest = int(y.min()), int(y.max())
        if highest - lowest < _WIDEST:
            # Counted instead of sorted.
            shifted = y.astype(np.int64) - lowest
            present = np.flatnonzero(np.bincount(shifted, minlength=1))
            numbers = np.zeros(highest - lowest + 1, dtype=np.int64)
            numbers[present] = np.arange(len(present))
            classes = (present + lowest).astype(y.dtype)
            return classes, shifted if len(present) == len(numbers) else numbers[shifted]
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    return classes, codes.astype(np.int64)


def encode_with(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Each row's number among known classes; an unknown label is an error."""
    found, codes = encode_labels(y)
    places = np.searchsorted(classes, found)
    unknown = (places >= len(classes)) | (classes[np.minimum(places, len(classes) - 1)] != found)
    if unknown.any():
        label = found[np.flatnonzero(unknown)[0]]
        raise ValueError(f"y holds {label!r}, which is not among the classes {classes.tolist()[:10]}")
    return np.asarray(places[codes], dtype=np.int64)


def need_every_class(classes: NDArray[Any], counts: NDArray[Any]) -> None:
    """At least two classes, each with some weight."""
    if len(classes) < 2:
        raise ValueError(f"y holds one class only, {classes.tolist()[0]!r}; a classifier needs at least two")
    if not (counts > 0).all():
        label = classes[int(np.argmin(counts))].tolist()
        raise ValueError(f"every row of class {label!r} has weight zero; each class needs some")
