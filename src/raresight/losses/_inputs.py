"""Reading scores and labels: which array library, which shape rule, and clear errors."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._numpy_ops import Array, NumpyOps, Ops


@dataclass(frozen=True)
class Problem:
    """Checked input: scores in the precision of the computation, labels, and their relation."""

    ops: Ops
    z: Array
    y: Array
    multiclass: bool


def is_tensor(a: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(a, torch.Tensor)


def read_scores(z: Any, *, name: str = "z") -> tuple[Ops, Array]:
    """The array operations for `z`, and `z` in the precision in which it is computed.

    float64 and float32 keep their precision, float16 and bfloat16 are computed in float32, whole
    numbers in float64. Infinite scores stand for the largest finite number.
    """
    if is_tensor(z):
        ops, array = _read_tensor(z, name)
    else:
        ops, array = NumpyOps, _read_numpy(z, name)
    if 0 in array.shape:
        raise ValueError(f"{name} is empty: shape {tuple(array.shape)}")
    missing = array != array
    if missing.any():
        raise ValueError(f"{name} has a missing value: {locate(missing, array, name)}")
    return ops, ops.finite(array)


def read_problem(z: Any, y: Any) -> Problem:
    """Apply the shape rule: labels of the scores' shape are 0/1, one axis less are classes."""
    ops, scores = read_scores(z)
    if is_tensor(z):
        if not is_tensor(y):
            raise TypeError(f"z is a torch tensor but y is {type(y).__name__}; pass both as tensors")
        labels = y.detach().to(scores.device)
    elif is_tensor(y):
        raise TypeError(f"y is a torch tensor but z is {type(z).__name__}; pass both as tensors")
    else:
        labels = np.asarray(y)
        if labels.dtype == object:
            raise TypeError("y holds Python objects; pass an array of numbers or booleans")
    if tuple(labels.shape) == tuple(scores.shape):
        check_binary_labels(labels)
        return Problem(ops, scores, ops.like(labels, scores), multiclass=False)
    axis = ops.class_axis(scores)
    remaining = tuple(n for i, n in enumerate(scores.shape) if i != axis)
    if labels.ndim == scores.ndim - 1 and tuple(labels.shape) == remaining:
        check_class_labels(labels, scores.shape[axis])
        return Problem(ops, scores, labels, multiclass=True)
    raise ValueError(
        f"y of shape {tuple(labels.shape)} does not fit z of shape {tuple(scores.shape)}: pass y of the "
        f"same shape (0/1 labels) or of shape {remaining} (class numbers)"
    )


def check_binary_labels(labels: Array) -> None:
    wrong = (labels != 0) & (labels != 1)
    if wrong.any():
        raise ValueError(f"labels must be 0 or 1: {locate(wrong, labels, 'y')}")


def check_class_labels(labels: Array, n_classes: int) -> None:
    if n_classes < 2:
        raise ValueError(
            "z has a single class along its class axis; for a binary score pass z and y of the same shape"
        )
    if not _is_integer(labels):
        raise TypeError(f"class labels must be integers, got {labels.dtype}")
    # A narrow type cannot even be compared with a large number of classes.
    labels = labels.long() if is_tensor(labels) else labels.astype(np.int64)
    wrong = (labels < 0) | (labels >= n_classes)
    if wrong.any():
        raise ValueError(f"labels must lie in 0..{n_classes - 1}: {locate(wrong, labels, 'y')}")


def locate(wrong: Array, array: Array, name: str) -> str:
    """`y[3] is 7` and how many more there are."""
    mask = wrong.detach().cpu().numpy() if is_tensor(wrong) else np.asarray(wrong)
    if mask.ndim == 0:
        return f"{name} is {array.item()}"
    index = tuple(int(i) for i in np.argwhere(mask)[0])
    rest = int(mask.sum()) - 1
    place = ", ".join(map(str, index))
    more = f" (and {rest} more)" if rest else ""
    return f"{name}[{place}] is {array[index].item()}{more}"


def _read_numpy(z: Any, name: str) -> Array:
    array = np.asarray(z)
    if array.dtype.kind == "f" and array.dtype.itemsize in (2, 4, 8):
        return array.astype(np.float64 if array.dtype.itemsize == 8 else np.float32, copy=False)
    if array.dtype.kind in "iub":
        return array.astype(np.float64)
    raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")


def _read_tensor(z: Any, name: str) -> tuple[Ops, Array]:
    import torch

    from ._torch_ops import TorchOps

    z = z.detach()
    if z.dtype in (torch.float16, torch.bfloat16):
        return TorchOps, z.to(torch.float32)
    if z.dtype in (torch.float32, torch.float64):
        return TorchOps, z
    if z.is_complex():
        raise TypeError(f"{name} must hold real numbers, got dtype {z.dtype}")
    return TorchOps, z.to(torch.float64)


def _is_integer(labels: Array) -> bool:
    if is_tensor(labels):
        return not (labels.is_floating_point() or labels.is_complex())
    return bool(labels.dtype.kind in "iub")
