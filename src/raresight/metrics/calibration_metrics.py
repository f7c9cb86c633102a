"""Metrics of probabilities: Brier score, log loss, calibration error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import blocks, first_row
from raresight.metrics._inputs import LabelledScores, check_labels, scored

Scale = Literal["linear", "log"]
Floats = NDArray[np.float64]


def brier_score(y_true: Any, probability: Any, *, sample_weight: Any = None) -> float:
    r"""Return the mean squared difference :math:`\overline{(p - y)^2}` of probability and outcome.

    Example:
        >>> round(brier_score([0, 0, 1], [0.1, 0.2, 0.7]), 6)
        0.046667
    """
    data = probabilities(y_true, probability, sample_weight)
    return float(_mean(data, squared_error))


def log_loss(y_true: Any, probability: Any, *, sample_weight: Any = None) -> float:
    r"""Return the mean of :math:`-\log p` over positives and :math:`-\log(1-p)` over negatives.

    Nothing is clipped: a probability of 0 for an event that happened makes it infinite.

    Example:
        >>> round(log_loss([0, 0, 1], [0.1, 0.2, 0.7]), 6)
        0.228393
    """
    data = probabilities(y_true, probability, sample_weight)
    return float(_mean(data, surprise))


def calibration_error(
    y_true: Any,
    probability: Any,
    *,
    bins: int | None = None,
    scale: Scale = "linear",
    sample_weight: Any = None,
) -> float:
    r"""Return the mean distance of predicted probability and observed frequency over bins of equal mass.

    - `scale="linear"`: bins with equal numbers of rows, and
      :math:`\sum_b \tfrac{n_b}{n} |\bar y_b - \bar p_b|` (expected calibration error). For rare events this
      is small for every model: predicting 1e-4 everywhere for a prior of 2e-4 is "1e-4 off".
    - `scale="log"`: bins with equal numbers of *expected events* :math:`E_b = \sum p`. It is the mean of
      :math:`|\log((Y_b + \tfrac12)/(E_b + \tfrac12))|` over bins weighted by :math:`E_b + \tfrac12`. Here
      :math:`Y_b` are the observed events, with weights scaled to a mean of one. exp of it is the typical
      factor between probability and frequency. For the model above it is 0.69, a factor of two. Chance alone
      makes it about :math:`0.8\sqrt{b/Y}` with Y events in b bins.

    Equal probabilities share a bin, so the order of the rows does not matter.

    Args:
        y_true: Labels 0 and 1.
        probability: The predicted probability of 1.
        bins: Number of bins. Default: 15, on the log scale fewer if a bin would have less than 20 observed
            events on average.
        scale: `"linear"` or `"log"`. Default: `"linear"`.
        sample_weight: A weight for each row, or None.

    Example:
        >>> import numpy as np
        >>> y = np.repeat([0, 1], [999_800, 200])
        >>> p = np.full(1_000_000, 1e-4)
        >>> round(calibration_error(y, p), 6), round(calibration_error(y, p, scale="log"), 2)
        (0.0001, 0.69)
    """
    if scale not in get_args(Scale):
        raise ValueError(f"scale must be one of {', '.join(get_args(Scale))}, but is {scale!r}.")
    if bins is None:
        bins = 15 if scale == "linear" else max(1, min(15, _events(y_true) // 20))
    table = calibration_bins(y_true, probability, bins=bins, by=_MASS[scale], sample_weight=sample_weight)
    if scale == "linear":
        gap = np.abs(table.observed - table.expected)
        return float(np.sum(gap) / np.sum(table.weight))
    unit = np.sum(table.rows) / np.sum(table.weight)  # weights of mean one, so that a half means half a row
    # Half an event on both sides. Without it the logarithm of a bin without events would be infinite.
    # A bin that expects almost nothing would count as much as one that expects hundreds.
    expected = table.expected * unit + 0.5
    factor = np.abs(np.log((table.observed * unit + 0.5) / expected))
    return float(np.sum(factor * expected) / np.sum(expected))


def _events(y_true: Any) -> int:
    return int(np.count_nonzero(check_labels(y_true)))


_MASS: dict[str, Literal["rows", "events"]] = {"linear": "rows", "log": "events"}


@dataclass(frozen=True)
class CalibrationBins:
    """Bins of ascending probability with rows, weight, expected and observed events in each."""

    low: Floats
    high: Floats
    rows: Floats
    weight: Floats
    expected: Floats
    observed: Floats


def calibration_bins(
    y_true: Any,
    probability: Any,
    *,
    bins: int = 15,
    by: Literal["rows", "events"] = "rows",
    sample_weight: Any = None,
) -> CalibrationBins:
    """Return bins of equal mass, in rows or in expected events; equal probabilities share a bin.

    There may be fewer than `bins` if many rows have one probability.
    """
    if bins != int(bins) or bins < 1:
        raise ValueError(f"bins must be a whole number of at least 1, but is {bins}.")
    data = probabilities(y_true, probability, sample_weight)
    order = np.argsort(data.scores)
    p = data.scores[order].astype(np.float64)
    weight = np.ones(len(p)) if data.weights is None else data.weights[order].astype(np.float64)
    expected = weight * p
    mass = np.cumsum(expected if by == "events" else weight)
    # If all probabilities are zero, bins by events have no mass, so rows are counted.
    if mass[-1] <= 0:
        mass = np.arange(1.0, len(p) + 1)
    # The middle of a group's mass decides its bin, so that equal probabilities stay together.
    first = np.flatnonzero(np.concatenate([[True], p[1:] != p[:-1]]))
    last = np.concatenate([first[1:], [len(p)]]) - 1
    before = np.concatenate([[0.0], mass[last[:-1]]])
    middle = (before + mass[last]) / 2
    bin_of_group = np.minimum((middle / mass[-1] * bins).astype(np.intp), bins - 1)
    starts = first[np.flatnonzero(np.concatenate([[True], np.diff(bin_of_group) > 0]))]
    ends = np.concatenate([starts[1:], [len(p)]]) - 1
    return CalibrationBins(
        low=p[starts],
        high=p[ends],
        rows=np.add.reduceat((weight > 0).astype(np.float64), starts),
        weight=np.add.reduceat(weight, starts),
        expected=np.add.reduceat(expected, starts),
        observed=np.add.reduceat(weight * data.labels[order], starts),
    )


def probabilities(y_true: Any, probability: Any, sample_weight: Any) -> LabelledScores:
    """Check labels and probabilities; one class alone is enough for an average."""
    data = scored(y_true, probability, sample_weight, "probability", need="neither")
    if data.scores.min() < 0 or data.scores.max() > 1:
        row = first_row((data.scores < 0) | (data.scores > 1))
        raise ValueError(
            f"probability must be in [0, 1], but row {row} holds {data.scores[row]}; "
            "turn scores into probabilities first (a loss's probability(z) does)."
        )
    if data.weights is not None and data.positives + data.negatives <= 0:
        raise ValueError("All weights are zero, so no mean is defined.")
    return data


def squared_error(labels: NDArray[np.bool_], p: Floats) -> Floats:
    return np.square(np.where(labels, 1 - p, p))


def surprise(labels: NDArray[np.bool_], p: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        # 1 - p loses the digits of a small p; log1p keeps them.
        return np.where(labels, -np.log(p), -np.log1p(-p))


def _mean(data: LabelledScores, error: Any) -> float:
    """Return the weighted mean of the rows' errors, block by block in double precision."""
    total = mass = 0.0
    for rows in blocks(len(data)):
        each = error(data.labels[rows], data.scores[rows].astype(np.float64))
        if data.weights is None:
            total += float(each.sum())
            mass += len(each)
        else:
            weight = data.weights[rows].astype(np.float64)
            # A row of weight zero is absent, even where its error is infinite.
            total += float(np.sum(np.where(weight > 0, each, 0.0) * weight))
            mass += float(weight.sum())
    return total / mass
