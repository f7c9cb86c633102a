"""Checks of what a user passes: one set for all rooms, with NumPy alone.

Each error says what is wrong, the value seen with its row, and what to do. Nothing is copied that need not
be, and large arrays are looked at in blocks that fit a cache.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from numbers import Integral, Number, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BLOCK",
    "WrongTypeError",
    "as_vector",
    "blocks",
    "check_arrow",
    "check_lengths",
    "check_penalty",
    "check_probabilities",
    "check_range",
    "check_rate",
    "check_weights",
    "check_whole",
    "first_row",
    "is_missing",
    "is_tensor",
    "plain_objects",
    "real_numbers",
    "refuse_masked",
]

Floats = NDArray[np.float64]

BLOCK = 1 << 18  # rows looked at together: a few megabytes of temporaries, whatever the input's size


def blocks(rows: int) -> Iterator[slice]:
    """Return slices that cover the rows, each of at most `BLOCK` of them."""
    return (slice(start, start + BLOCK) for start in range(0, rows, BLOCK))


def first_row(bad: NDArray[np.bool_]) -> int:
    """Return the first row that is marked."""
    return int(np.argmax(bad))


def is_tensor(values: object) -> bool:
    """Return whether the values are a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


# ---- vectors -------------------------------------------------------------------------------


def refuse_masked(values: Any, name: str) -> None:
    """Refuse masked values: what NumPy hides behind a mask is no label, score or weight.

    >>> refuse_masked(np.ma.masked_array([0, 1], mask=[False, True]), "y")
    Traceback (most recent call last):
    ValueError: y is masked at row 1; leave masked rows out first
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        row = first_row(np.ma.getmaskarray(values).ravel())
        raise ValueError(f"{name} is masked at row {row}; leave masked rows out first")


def is_missing(value: Any) -> bool:
    """Return whether one value is None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (Number, np.generic)) and bool(value != value)


def as_vector(values: Any, name: str) -> NDArray[Any]:
    """Return a one-dimensional NumPy array of an array, a series, a list or a tensor (wherever it is)."""
    if is_tensor(values):
        tensor = values.detach()
        if str(tensor.dtype) in ("torch.bfloat16", "torch.float16"):
            tensor = tensor.float()
        values = tensor.cpu().numpy()
    refuse_masked(values, name)
    if hasattr(values, "__next__"):
        raise TypeError(f"{name} is an iterator, which can be read only once; pass a list or an array")
    array = np.asarray(values)
    if array.dtype == object and array.ndim == 1:
        array = plain_objects(array, name)
    if array.ndim == 2 and array.shape[1] == 2:
        raise ValueError(
            f"{name} has two columns; pass one score per row, such as the column of the positive class: "
            f"{name}[:, 1]"
        )
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, but has shape {array.shape}")
    return array


def plain_objects(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Return objects as bools or numbers if all of them are; a missing one is an error with its row."""
    for row, value in enumerate(array):
        if is_missing(value):
            raise ValueError(f"{name} has a missing value ({value}) at row {row}")
    kinds = {type(value) for value in array}
    if kinds <= {bool, np.bool_}:
        return array.astype(bool)
    if all(issubclass(kind, (bool, int, np.bool_, np.integer)) for kind in kinds):
        numbers = [int(value) for value in array]
        low, high = min(numbers, default=0), max(numbers, default=0)
        if low >= -(2**63) and high < 2**63:
            return np.array(numbers, dtype=np.int64)
        # NumPy's own choice would be float64, in which neighbours beyond 2^53 are one number.
        return np.array(numbers, dtype=np.uint64) if low >= 0 and high < 2**64 else array
    if all(issubclass(kind, (bool, int, float, np.bool_, np.integer, np.floating)) for kind in kinds):
        return array.astype(np.float64)
    return array


def check_arrow(table: Any, where: str) -> Any:
    """Return an Arrow table or batch; refuse one whose buffers do not hold what its types promise.

    Arrow trusts offsets and indices, also those of a file: a wrong one ends the process. All checks take
    0.03 s for a million rows of 28 columns.

    >>> import pyarrow as pa
    >>> wrong = pa.DictionaryArray.from_arrays(pa.array([0, 7]), pa.array(["a", "b"]), safe=False)
    >>> check_arrow(pa.table({"shop": wrong}), "the table")
    Traceback (most recent call last):
    ValueError: the table is damaged: column 'shop' holds offsets or indices out of range
    """
    for name, column in zip(table.schema.names, table.columns):
        try:
            column.validate(full=True)
        except (ValueError, IndexError) as error:
            what = "text that is not UTF-8" if "UTF8" in str(error) else "offsets or indices out of range"
            raise ValueError(f"{where} is damaged: column {name!r} holds {what}") from error
    return table


def check_lengths(rows: int, others: int, name: str, of: str = "y_true") -> None:
    """Refuse `name` unless it has as many rows as `of`."""
    if rows != others:
        raise ValueError(f"{of} has {rows} rows, but {name} has {others}")


def check_weights(
    sample_weight: Any, rows: int, of: str = "y_true", name: str = "sample_weight"
) -> NDArray[np.floating[Any]] | None:
    """Return weights as finite floats of at least 0, or None for None; float32 stays float32."""
    if sample_weight is None:
        return None
    weights = as_vector(sample_weight, name)
    if weights.dtype.kind in "biu":
        weights = weights.astype(np.float64)
    if weights.dtype.kind != "f":
        raise TypeError(f"{name} must hold numbers, but its type is {weights.dtype}")
    check_lengths(rows, len(weights), name, of)
    if weights.dtype.itemsize not in (4, 8) or not weights.dtype.isnative:
        weights = weights.astype(np.float64)
    for part in blocks(rows):
        # The extremes first: they pass a NaN on, and are several times faster than asking each value.
        if not (weights[part].min() >= 0 and weights[part].max() < np.inf):
            bad = ~((weights[part] >= 0) & (weights[part] < np.inf))
            row = part.start + first_row(bad)
            raise ValueError(f"{name} must be finite and not negative, but row {row} holds {weights[row]}")
    return weights


# ---- numbers -------------------------------------------------------------------------------


def real_numbers(values: Any, name: str) -> Floats:
    """Return an array of any shape in float64; refuse missing values."""
    array = np.asarray(values, dtype=np.float64)
    if np.isnan(array).any():
        raise ValueError(f"{name} has a missing value")
    return array


def check_probabilities(values: Any, name: str) -> Floats:
    """Return numbers strictly between 0 and 1."""
    array = real_numbers(values, name)
    wrong = ~((array > 0) & (array < 1))
    if wrong.any():
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {array[wrong].flat[0]}")
    return array


class WrongTypeError(TypeError, ValueError):
    """A parameter of the wrong type: a TypeError, and a ValueError for those who check values."""


def check_whole(value: Any, name: str, least: int = 1, most: int | None = None) -> int:
    """Return a whole number of at least `least` and at most `most`. Default: no upper bound.

    >>> check_whole(3, "trials")
    3
    >>> check_whole(0, "trials")
    Traceback (most recent call last):
    ValueError: trials must be a whole number of at least 1, but is 0
    """
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    wrong = f"{name} must be a whole number {bounds}, but is {value!r}"
    # For Python True is a whole number; as a parameter it is a slip.
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise WrongTypeError(wrong)
    if int(value) < least or (most is not None and int(value) > most):
        raise ValueError(wrong)
    return int(value)


def check_range(
    value: Any,
    name: str,
    *,
    least: float | None = None,
    above: float | None = None,
    below: float = math.inf,
    most: float | None = None,
) -> float:
    """Return a finite number within the bounds that are given.

    >>> check_range(0.5, "test_size", above=0, below=1)
    0.5
    >>> check_range(1, "test_size", above=0, below=1)
    Traceback (most recent call last):
    ValueError: test_size must be above 0 and below 1, but is 1
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise WrongTypeError(f"{name} must be a number, but is {value!r}")
    number = float(value)
    # NaN fails every comparison.
    fits = -math.inf < number < below and (most is None or number <= most)
    if not (fits and (least is None or number >= least) and (above is None or number > above)):
        bounds = [f"at least {least:g}"] if least is not None else []
        bounds += [f"above {above:g}"] if above is not None else []
        bounds += [f"at most {most:g}"] if most is not None else []
        bounds += [f"below {below:g}"] if below < math.inf else ["finite"] if most is None else []
        raise ValueError(f"{name} must be {' and '.join(bounds)}, but is {value!r}")
    return number


def check_rate(value: Any, name: str) -> float:
    """Return a fraction in (0, 1]."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number above 0 and at most 1, but is {value!r}") from None
    if not 0 < number <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, but is {number}")
    return number


def check_penalty(value: Any, name: str) -> float:
    """Return a finite number of at least 0."""
    return check_range(value, name, least=0)
