"""Check tables, labels and weights of rows and convert them to one form."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

__all__ = [
    "as_array",
    "as_labels",
    "as_table",
    "as_weights",
    "digest_of",
    "digest_of_arrays",
    "row_not_finite",
]


def as_array(values: ArrayLike | Tensor, name: str) -> NDArray[Any]:
    """Return numbers as an array, possibly the caller's own."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        # NumPy has no bfloat16, and float32 holds all of its values.
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    array = np.asarray(values)
    if array.dtype == object and array.size:
        raise TypeError(f"{name} must hold numbers, but holds objects such as {array.flat[0]!r}")
    return array


def as_table(X: ArrayLike | Tensor) -> NDArray[Any]:
    """Return a table of finite numbers as an array, possibly the caller's own."""
    values = as_array(X, "X")
    if values.ndim != 2 or values.dtype.kind not in "biuf" or 0 in values.shape:
        raise ValueError(
            f"X must hold numbers in rows and columns, but has type {values.dtype} and shape {values.shape}"
        )
    row = row_not_finite(values)
    if row is not None:
        raise ValueError(f"X must be finite, but row {row} is not: fill in missing values first")
    return values


def row_not_finite(values: NDArray[Any]) -> int | None:
    """Return the first row with a number that is not finite, None without one."""
    finite = np.isfinite(values)
    return None if finite.all() else int(np.argmax(~finite.all(1)))


def as_labels(y: ArrayLike | Tensor, rows: int) -> Tensor:
    """Copy labels to uint8, or to int64 if one is above 255."""
    labels = as_array(y, "y")
    if labels.shape != (rows,):
        raise ValueError(f"y must hold one label per row, {rows} in all, but has shape {labels.shape}")
    if labels.dtype.kind not in "biuf":
        raise TypeError(
            f"y must hold 0 and 1 or class numbers, but holds {labels.dtype} such as {str(labels[0])!r}: "
            "number the classes first"
        )
    with np.errstate(invalid="ignore"):  # the comparison below finds NaN and infinity
        whole = labels.astype(np.int64)
    strange = np.flatnonzero((whole != labels) | (whole < 0))
    if len(strange):
        raise ValueError(
            f"y must hold 0 and 1 or class numbers, but row {strange[0]} holds {labels[strange[0]]}"
        )
    return torch.from_numpy(whole.astype(np.uint8) if whole.max() < 256 else whole)


def as_weights(weights: ArrayLike | Tensor | None, rows: int) -> Tensor | None:
    """Divide row weights by their mean, in float64; None stays None.

    >>> as_weights([1, 0, 5], 3).tolist()
    [0.5, 0.0, 2.5]
    """
    if weights is None:
        return None
    values = as_array(weights, "weights")
    if values.shape != (rows,):
        raise ValueError(
            f"weights must hold one number per row, {rows} in all, but have shape {values.shape}"
        )
    if values.dtype.kind not in "biuf":
        raise TypeError(f"weights must hold numbers, but hold {values.dtype} such as {str(values[0])!r}")
    values = values.astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(wrong):
        raise ValueError(
            f"weights must be finite and not negative, but row {wrong[0]} has {values[wrong[0]]}: give a row "
            "that should be ignored the weight 0"
        )
    if not values.any():
        raise ValueError(f"weights must not all be zero, but those of all {rows} rows are")
    # First by a power of two, which changes no digit: the sum of very large weights would be infinite.
    values = np.ldexp(values, -np.frexp(values.max())[1])
    return torch.from_numpy(values / values.mean())


def digest_of(kind: str, *tensors: Tensor) -> str:
    """Return a digest that is equal for tensors of equal types, shapes and values."""
    return digest_of_arrays(kind, *(tensor.cpu().numpy() for tensor in tensors))


def digest_of_arrays(kind: str, *arrays: NDArray[Any]) -> str:
    """Return a digest that is equal for arrays of equal types, shapes and values."""
    digest = hashlib.sha256(kind.encode())
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data.cast("B"))
    return digest.hexdigest()
