"""What every metric is given: checked labels, scores and weights, whatever library they come from.

Nothing is copied that need not be: labels become a boolean array (a view where they are one byte wide),
scores keep their width, and checks run over blocks that fit a cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 18  # rows looked at together: a few megabytes of temporaries, whatever the input's size
LARGEST_EXACT_INTEGER = 2**53  # beyond this, neighbouring integers become one float64


@dataclass(frozen=True)
class ScoredRows:
    """Labels (boolean), finite-or-infinite scores (float32 or float64) and weights of the same length."""

    labels: NDArray[np.bool_]
    scores: NDArray[np.floating[Any]]
    weights: NDArray[np.floating[Any]] | None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def positives(self) -> float:
        """How many positives there are, or how much they weigh."""
        if self.weights is None:
            return int(np.count_nonzero(self.labels))
        return float(np.sum(self.weights, where=self.labels, dtype=np.float64))

    @property
    def negatives(self) -> float:
        """How many negatives there are, or how much they weigh."""
        if self.weights is None:
            return len(self.labels) - int(np.count_nonzero(self.labels))
        return float(np.sum(self.weights, where=~self.labels, dtype=np.float64))


def blocks(rows: int) -> Iterator[slice]:
    """Slices that cover the rows, each of at most `BLOCK` of them."""
    return (slice(start, start + BLOCK) for start in range(0, rows, BLOCK))


def is_tensor(values: object) -> bool:
    """Whether the values are a torch tensor, asked without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def to_numpy(values: Any, name: str) -> NDArray[Any]:
    """A one-dimensional NumPy array of an array, a series, a list or a tensor (wherever it is)."""
    if is_tensor(values):
        tensor = values.detach()
        if str(tensor.dtype) in ("torch.bfloat16", "torch.float16"):
            tensor = tensor.float()
        values = tensor.cpu().numpy()
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        row = first_row(np.ma.getmaskarray(values).ravel())
        raise ValueError(f"{name} is masked at row {row}; leave masked rows out first.")
    if hasattr(values, "__next__"):
        raise TypeError(f"{name} is an iterator, which can be read only once; pass a list or an array.")
    array = np.asarray(values)
    if array.dtype == object and array.ndim == 1:
        array = _plain(array, name)
    if array.ndim == 2 and array.shape[1] == 2:
        raise ValueError(
            f"{name} has two columns; pass one score a row, such as the column of the positive class: "
            f"{name}[:, 1]."
        )
    if array.ndim != 1:
        raise ValueError(f"{name} must have one dimension, but has shape {array.shape}.")
    return array


def _plain(array: NDArray[Any], name: str) -> NDArray[Any]:
    """Objects as numbers or strings where they are such; a missing one is an error that names the row."""
    for row, value in enumerate(array):
        # None, NaN and pandas' NA are the values that do not equal themselves, or refuse to say.
        if value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value):
            raise ValueError(f"{name} has a missing value ({value}) at row {row}.")
    kinds = {type(value) for value in array}
    if kinds <= {bool, np.bool_}:
        return array.astype(bool)
    if all(issubclass(kind, (bool, int, np.bool_, np.integer)) for kind in kinds):
        return array.astype(np.int64)
    if all(issubclass(kind, (bool, int, float, np.bool_, np.integer, np.floating)) for kind in kinds):
        return array.astype(np.float64)
    return array


def first_row(bad: NDArray[np.bool_]) -> int:
    return int(np.argmax(bad))


def check_labels(y_true: Any) -> NDArray[np.bool_]:
    """Labels 0 and 1 (or False and True) as booleans; anything else is an error that names it."""
    values = to_numpy(y_true, "y_true")
    if len(values) == 0:
        raise ValueError("y_true is empty: a metric needs at least one positive and one negative row.")
    kind = values.dtype.kind
    if kind == "b":
        return values
    if kind == "f":
        for rows in blocks(len(values)):
            part = values[rows]
            bad = (part != 0) & (part != 1)
            if bad.any():
                _refuse_label(values, rows.start + first_row(bad))
        return np.asarray(values != 0)
    if kind in "iu":
        # Extremes first: they tell in one pass that no row has to be looked at.
        if values.min() < 0 or values.max() > 1:
            _refuse_label(values, first_row((values < 0) | (values > 1)))
        return values.view(np.bool_) if values.dtype.itemsize == 1 else values != 0
    raise TypeError(
        f"y_true must hold the labels 0 and 1, but its type is {values.dtype}; "
        "compare it with the positive value first, as in y_true == 'fraud'."
    )


def _refuse_label(values: NDArray[Any], row: int) -> None:
    if np.isnan(values[row]):
        raise ValueError(f"y_true has a missing label (NaN) at row {row}.")
    raise ValueError(
        f"y_true must hold the labels 0 and 1, but row {row} holds {values[row]}; "
        "compare it with the positive value first, as in y_true == 1."
    )


def check_scores(y_score: Any, name: str = "y_score") -> NDArray[np.floating[Any]]:
    """Scores as float32 or float64, whichever holds them exactly; NaN is an error that names the row."""
    values = to_numpy(y_score, name)
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f" and size <= 8:
        scores = values if size >= 4 else values.astype(np.float32)
    elif kind == "b":
        scores = values.astype(np.float32)
    elif kind in "iu":
        if (
            size == 8
            and len(values)
            and (values.max() > LARGEST_EXACT_INTEGER or values.min() < -LARGEST_EXACT_INTEGER)
        ):
            raise ValueError(
                f"{name} has integers beyond 2**53, which float64 cannot tell apart; "
                "pass their ranks instead, as from scipy.stats.rankdata."
            )
        scores = values.astype(np.float64)
    else:
        raise TypeError(f"{name} must hold numbers of at most 64 bits, but its type is {values.dtype}.")
    if not scores.dtype.isnative:
        scores = scores.astype(scores.dtype.newbyteorder("="))
    for rows in blocks(len(scores)):
        # The maximum passes a NaN on, and is several times faster than asking each value.
        if np.isnan(scores[rows].max()):
            row = rows.start + first_row(np.isnan(scores[rows]))
            raise ValueError(f"{name} has a missing score (NaN) at row {row}.")
    return scores


def check_weights(sample_weight: Any, rows: int) -> NDArray[np.floating[Any]] | None:
    """Weights as finite floats of at least zero, or None where there are none."""
    if sample_weight is None:
        return None
    weights = to_numpy(sample_weight, "sample_weight")
    if weights.dtype.kind in "biu":
        weights = weights.astype(np.float64)
    if weights.dtype.kind != "f":
        raise TypeError(f"sample_weight must hold numbers, but its type is {weights.dtype}.")
    check_lengths(rows, len(weights), "sample_weight")
    if weights.dtype.itemsize not in (4, 8) or not weights.dtype.isnative:
        weights = weights.astype(np.float64)
    for part in blocks(rows):
        if not (weights[part].min() >= 0 and weights[part].max() < np.inf):
            bad = ~((weights[part] >= 0) & (weights[part] < np.inf))
            row = part.start + first_row(bad)
            raise ValueError(
                f"sample_weight must be finite and not negative, but row {row} holds {weights[row]}."
            )
    return weights


def check_lengths(rows: int, others: int, name: str) -> None:
    if rows != others:
        raise ValueError(f"y_true has {rows} rows, but {name} has {others}.")


def scored(
    y_true: Any, y_score: Any, sample_weight: Any = None, name: str = "y_score", need: str = "both"
) -> ScoredRows:
    """Checked labels, scores and weights; `need` says which classes must be there."""
    labels = check_labels(y_true)
    scores = check_scores(y_score, name)
    check_lengths(len(labels), len(scores), name)
    data = ScoredRows(labels, scores, check_weights(sample_weight, len(labels)))
    need_classes(data, need)
    return data


def need_classes(data: ScoredRows, need: str = "both") -> None:
    """An error where a class that is needed ("positive", "negative", "both") is absent or weighs nothing."""
    for total, kind, label in ((data.positives, "positive", 1), (data.negatives, "negative", 0)):
        if not np.isfinite(total):
            raise ValueError(
                f"The weights of the {kind} rows sum to {total}; divide all weights by a constant."
            )
        if need not in ("both", kind) or total > 0:
            continue
        if data.weights is not None and np.any(data.labels == label):
            raise ValueError(f"Every {kind} row has weight zero, so no rate over that class is defined.")
        raise ValueError(
            f"y_true has no {kind} row (label {label}) among its {len(data)}, "
            "so no rate over that class is defined."
        )


def check_rate(value: float, name: str) -> float:
    """A fraction in (0, 1]."""
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number above 0 and at most 1, but is {value!r}.") from None
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, but is {value}.")
    return value
