"""The inputs of every metric, from any library: checked labels, scores and weights.

Labels become a boolean array (a view where they are one byte wide), and scores keep their width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import as_vector, blocks, check_lengths, check_weights, first_row

LARGEST_EXACT_INTEGER = 2**53  # beyond this, neighbouring integers become one float64


@dataclass(frozen=True)
class LabelledScores:
    """Boolean labels, float scores without NaN, and weights, of one length."""

    labels: NDArray[np.bool_]
    scores: NDArray[np.floating[Any]]
    weights: NDArray[np.floating[Any]] | None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def positives(self) -> float:
        """Number of positives, or their weight."""
        if self.weights is None:
            return int(np.count_nonzero(self.labels))
        return float(np.sum(self.weights, where=self.labels, dtype=np.float64))

    @property
    def negatives(self) -> float:
        """Number of negatives, or their weight."""
        if self.weights is None:
            return len(self.labels) - int(np.count_nonzero(self.labels))
        return float(np.sum(self.weights, where=~self.labels, dtype=np.float64))


def check_labels(y_true: Any) -> NDArray[np.bool_]:
    """Return labels 0 and 1 (or False and True) as booleans; errors name any other value."""
    values = as_vector(y_true, "y_true")
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
        # Minimum and maximum first: one pass shows that no single row has to be checked.
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
    """Return scores as float32 or float64, whichever is exact; NaN is an error that names the row."""
    values = as_vector(y_score, name)
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
        # The maximum propagates a NaN and is several times faster than a test of each value.
        if np.isnan(scores[rows].max()):
            row = rows.start + first_row(np.isnan(scores[rows]))
            raise ValueError(f"{name} has a missing score (NaN) at row {row}.")
    return scores


def scored(
    y_true: Any, y_score: Any, sample_weight: Any = None, name: str = "y_score", need: str = "both"
) -> LabelledScores:
    """Check labels, scores and weights; `need` names the classes that must be present."""
    labels = check_labels(y_true)
    scores = check_scores(y_score, name)
    check_lengths(len(labels), len(scores), name)
    data = LabelledScores(labels, scores, check_weights(sample_weight, len(labels)))
    need_classes(data, need)
    return data


def need_classes(data: LabelledScores, need: str = "both") -> None:
    """Refuse rows that lack a needed class ("positive", "negative", "both") or give it no weight."""
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
