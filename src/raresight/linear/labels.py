"""Labels of any kind as class numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from ..common.labels import plain_numbers

__all__ = ["encode_labels", "encode_with", "need_every_class", "sorted_classes"]

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
            # Unsigned numbers may lie above int64 and are shifted first; a signed difference may overflow.
            shifted = (y - y.min()).astype(np.int64) if y.dtype.kind == "u" else y.astype(np.int64) - lowest
            present = np.flatnonzero(np.bincount(shifted, minlength=1))
            numbers = np.zeros(highest - lowest + 1, dtype=np.int64)
            numbers[present] = np.arange(len(present))
            if y.dtype.kind == "u":
                classes = present.astype(y.dtype) + y.min()
            else:
                classes = (present + lowest).astype(y.dtype)
            return classes, shifted if len(present) == len(numbers) else numbers[shifted]
    if y.dtype.kind == "O":
        refuse_missing(y)
        if not any(isinstance(label, str) for label in y):
            return encode_labels(plain_numbers(y))
    try:
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
    except TypeError as error:
        raise _unordered(y) from error
    return classes, codes.astype(np.int64)


def sorted_classes(labels: NDArray[Any]) -> NDArray[Any]:
    """The classes among labels, or of a list of them."""
    if labels.dtype.kind == "O":
        refuse_missing(labels)
    try:
        return np.unique(labels)
    except TypeError as error:
        raise _unordered(labels) from error


def _unordered(labels: NDArray[Any]) -> ValueError:
    kinds = sorted({type(label).__name__ for label in labels.tolist()})
    return ValueError(f"labels that cannot be ordered, of types {', '.join(kinds)}: use one type")


def refuse_missing(y: Any) -> None:
    """None, NaN and the like are no labels."""
    for row, label in enumerate(y):
        if label is None or type(label).__name__ in ("NAType", "NaTType") or label != label:
            raise ValueError(f"missing label at row {row}: {label!r}")


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
