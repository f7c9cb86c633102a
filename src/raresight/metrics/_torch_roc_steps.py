"""The steps of the ROC curve of a tensor, counted on the device of the tensor.

A GPU searches faster than it sorts. So each negative looks up its place among the distinct positive scores,
and the places are counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from raresight.common.checks import check_lengths
from raresight.metrics._inputs import LARGEST_EXACT_INTEGER
from raresight.metrics._roc_steps import RocSteps

PIECE = 1 << 25  # rows looked up together, so that their places (eight bytes each) stay small


def torch_steps(y_true: Any, y_score: torch.Tensor, sample_weight: Any, max_fpr: float) -> RocSteps:
    """Return `steps_of` for a tensor; labels and weights are moved to its device."""
    scores = _checked_scores(y_score.detach())
    labels = _checked_labels(_on_device(y_true, scores.device, "y_true"))
    check_lengths(len(labels), len(scores), "y_score")
    weights = None
    if sample_weight is not None:
        weights = _on_device(sample_weight, scores.device, "sample_weight").double()
        check_lengths(len(labels), len(weights), "sample_weight")
        bad = ~((weights >= 0) & torch.isfinite(weights))
        if bad.any():
            row = int(bad.int().argmax())
            raise ValueError(
                f"sample_weight must be finite and not negative, but row {row} holds {float(weights[row])}."
            )
    positives, negatives = _total(labels, weights), _total(~labels, weights)
    for total, kind, label in ((positives, "positive", 1), (negatives, "negative", 0)):
        if not total > 0:
            raise ValueError(f"y_true has no {kind} row (label {label}) with weight among its {len(labels)}.")
    if max_fpr < 1:
        labels, scores, weights = _tail(labels, scores, weights, max_fpr * negatives)
    return _steps(labels, scores, weights, positives, negatives)


def _steps(
    labels: torch.Tensor,
    scores: torch.Tensor,
    weights: torch.Tensor | None,
    positives: float,
    negatives: float,
) -> RocSteps:
    chosen = labels if weights is None else labels & (weights > 0)
    values, inverse, counts = torch.unique(scores[chosen], return_inverse=True, return_counts=True)
    if weights is None:
        gain = counts.double()
    else:
        gain = torch.zeros(len(values), dtype=torch.float64, device=scores.device)
        gain.index_add_(0, inverse, weights[chosen])
    # place = the number of positive scores below (left) or not above (right) a negative. For a positive at
    # ascending index i, the negatives with right > i are at or above it, and those with left > i above it.
    left = torch.zeros(len(values) + 1, dtype=torch.float64, device=scores.device)
    right = torch.zeros_like(left)
    for start in range(0, len(scores), PIECE):
        rows = slice(start, start + PIECE)
        negative = ~labels[rows]
        part = scores[rows][negative]
        weight = None if weights is None else weights[rows][negative]
        for counted, side in ((left, "left"), (right, "right")):
            place = torch.searchsorted(values, part, side=side)
            counted += torch.bincount(place, weights=weight, minlength=len(values) + 1)
    above, through = _sums_beyond(left), _sums_beyond(right)
    return RocSteps(
        _host(gain.flip(0)), _host(above.flip(0)), _host(through.flip(0)), positives, negatives,
        weighted=weights is not None,
    )  # fmt: skip


def _sums_beyond(counted: torch.Tensor) -> torch.Tensor:
    return counted.flip(0).cumsum(0).flip(0)[1:]


def _host(tensor: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float64]]:
    array: np.ndarray[Any, np.dtype[np.float64]] = tensor.cpu().numpy()
    return array


def _total(chosen: torch.Tensor, weights: torch.Tensor | None) -> float:
    return int(chosen.sum()) if weights is None else float(weights[chosen].sum())


def _tail(
    labels: torch.Tensor, scores: torch.Tensor, weights: torch.Tensor | None, negatives: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Rows at or above a score that has at least this many negatives at or above it."""
    share = min(1.0, negatives / _total(~labels, weights) * (1.0 if weights is None else 1.5))
    sample = scores[:: max(1, len(scores) // (1 << 16))].sort(descending=True).values
    wanted = int(len(sample) * share + 4 * (len(sample) * share) ** 0.5 + 4)
    while wanted < len(sample):
        where = (scores >= sample[wanted]).nonzero().squeeze(1)
        kept_weights = None if weights is None else weights[where]
        if _total(~labels[where], kept_weights) >= negatives:
            return labels[where], scores[where], kept_weights
        wanted = 2 * wanted + 16
    return labels, scores, weights


def _on_device(values: Any, device: torch.device, name: str) -> torch.Tensor:
    tensor = values.detach() if isinstance(values, torch.Tensor) else torch.as_tensor(np.asarray(values))
    if tensor.ndim != 1:
        raise ValueError(f"{name} must have one dimension, but has shape {tuple(tensor.shape)}.")
    return tensor.to(device)


def _checked_scores(scores: torch.Tensor) -> torch.Tensor:
    if scores.ndim != 1:
        raise ValueError(f"y_score must have one dimension, but has shape {tuple(scores.shape)}.")
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    elif not scores.is_floating_point():
        if len(scores) and max(int(scores.max()), -int(scores.min())) > LARGEST_EXACT_INTEGER:
            raise ValueError(
                "y_score has integers beyond 2**53, which float64 cannot tell apart; pass their ranks."
            )
        scores = scores.double()
    if len(scores) and torch.isnan(scores.max()):
        row = int(torch.isnan(scores).int().argmax())
        raise ValueError(f"y_score has a missing score (NaN) at row {row}.")
    return scores.contiguous()


def _checked_labels(labels: torch.Tensor) -> torch.Tensor:
    if len(labels) == 0:
        raise ValueError("y_true is empty: a metric needs at least one positive and one negative row.")
    if labels.dtype == torch.bool:
        return labels
    bad = (labels != 0) & (labels != 1)
    if bad.any():
        row = int(bad.int().argmax())
        if torch.isnan(labels[row]):
            raise ValueError(f"y_true has a missing label (NaN) at row {row}.")
        raise ValueError(
            f"y_true must hold the labels 0 and 1, but row {row} holds {labels[row].item()}; "
            "compare it with the positive value first, as in y_true == 1."
        )
    return labels != 0
