"""Ranking metrics: AUC, partial AUC, recall at a false-positive rate, precision at a recall.

All of them read the same curve (`_roc_steps.py`). Over a group of equal scores the ROC curve runs along the
diagonal, as in scikit-learn. Scores may have any range and may be infinite.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import check_rate
from raresight.metrics._inputs import LabelledScores, scored
from raresight.metrics._roc_steps import RocSteps, steps_of
from raresight.metrics._tail import tail_rows

PartialKind = Literal["mcclish", "mean", "area"]
Floats = NDArray[np.float64]

# Sums of weights have rounding errors; a rate that exceeds its limit by less than this is at the limit.
WEIGHT_ROUNDING = 1e-12


def roc_auc(y_true: Any, y_score: Any, *, sample_weight: Any = None) -> float:
    r"""Return the area under the ROC curve.

    .. math:: P(S_1 > S_0) + P(S_1 = S_0) / 2

    for the score of a random positive and of a random negative. Equals scikit-learn's `roc_auc_score`.

    Args:
        y_true: Labels 0 and 1 (or booleans): an array, a pandas or polars series, a tensor.
        y_score: One score per row, higher for the positive class; any range, not NaN. A tensor on a GPU is
            ranked there.
        sample_weight: A weight for each row, or None.

    Example:
        >>> roc_auc([0, 0, 1, 0, 1], [0.1, 0.4, 0.35, 0.2, 0.8])
        0.8333333333333334
    """
    return float(auc_of(steps_of(y_true, y_score, sample_weight)))


def partial_auc(
    y_true: Any,
    y_score: Any,
    max_fpr: float = 0.01,
    *,
    kind: PartialKind = "mcclish",
    sample_weight: Any = None,
) -> float:
    r"""Return the area under the ROC curve where the false-positive rate is at most `max_fpr`.

    With A the area between rates 0 and f = `max_fpr`:

    - `"mcclish"`: :math:`\tfrac12\bigl[1 + (A - f^2/2)/(f - f^2/2)\bigr]`, 0.5 for a random score and 1
      for a perfect one; scikit-learn's `roc_auc_score(max_fpr=f)` and the paper's opAUC (McClish 1989).
    - `"mean"`: A / f, the mean recall over those rates, in [0, 1].
    - `"area"`: A itself, in [0, f].

    Example:
        >>> partial_auc([0, 0, 1, 0, 1], [0.1, 0.4, 0.35, 0.2, 0.8], max_fpr=0.5, kind="mean")
        0.6666666666666667
    """
    max_fpr, kind = check_rate(max_fpr, "max_fpr"), check_kind(kind)
    steps = steps_of(y_true, y_score, sample_weight, max_fpr)
    return float(partial_auc_of(steps, max_fpr, kind))


def recall_at_fpr(
    y_true: Any,
    y_score: Any,
    fpr: float = 0.001,
    *,
    interpolate: bool = False,
    sample_weight: Any = None,
) -> float:
    """Return the largest recall of a threshold with a false-positive rate of at most `fpr`.

    With `interpolate=True` it is the height of the ROC line at `fpr`. A threshold that flips a coin among
    equal scores attains it. It is never lower, and has no jumps in small samples.

    Example:
        >>> recall_at_fpr([0, 0, 1, 0, 1], [0.1, 0.4, 0.35, 0.2, 0.8], fpr=0.1)
        0.5
    """
    fpr = check_rate(fpr, "fpr")
    steps = steps_of(y_true, y_score, sample_weight, fpr)
    return float(recall_at_fpr_of(steps, fpr, interpolate))


def average_precision(y_true: Any, y_score: Any, *, sample_weight: Any = None) -> float:
    r"""Return the mean precision over the positives, :math:`\sum_k (R_k - R_{k-1}) P_k` over thresholds k.

    Equals scikit-learn's `average_precision_score`. It depends on the share of positives, so compare only
    scores of the same sample.

    Example:
        >>> average_precision([0, 0, 1, 0, 1], [0.1, 0.4, 0.35, 0.2, 0.8])
        0.8333333333333333
    """
    return float(average_precision_of(steps_of(y_true, y_score, sample_weight)))


def precision_at_recall(
    y_true: Any, y_score: Any, recall: float = 0.5, *, sample_weight: Any = None
) -> float:
    """Return the largest precision of a threshold that catches at least this share of the positives.

    Example:
        >>> precision_at_recall([0, 0, 1, 0, 1], [0.1, 0.4, 0.35, 0.2, 0.8], recall=0.75)
        0.6666666666666666
    """
    recall = check_rate(recall, "recall")
    return float(precision_at_recall_of(steps_of(y_true, y_score, sample_weight), recall))


class RocPoints(NamedTuple):
    """Points of the ROC curve: alerts are the scores at or above the threshold."""

    fpr: Floats
    tpr: Floats
    thresholds: NDArray[np.floating[Any]]


def roc_points(
    y_true: Any,
    y_score: Any,
    *,
    max_fpr: float = 1.0,
    drop_intermediate: bool = False,
    sample_weight: Any = None,
) -> RocPoints:
    """Return every attainable point of the ROC curve with a false-positive rate of at most `max_fpr`.

    The points are those of scikit-learn's `roc_curve`, starting with (0, 0) at threshold infinity. With a
    small `max_fpr` only the necessary rows are sorted. `drop_intermediate=True` omits points inside a
    straight piece.

    Example:
        >>> fpr, tpr, thresholds = roc_points([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
        >>> fpr.tolist(), tpr.tolist(), thresholds.tolist()
        ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0], [inf, 0.8, 0.4, 0.35, 0.1])
    """
    max_fpr = check_rate(max_fpr, "max_fpr")
    data = scored(y_true, y_score, sample_weight)
    positives, negatives = data.positives, data.negatives
    if max_fpr < 1:
        data = tail_rows(data, max_fpr * negatives)
    false, true, thresholds = _curve(data)
    kept = np.flatnonzero(within(false, negatives, max_fpr, weighted=data.weights is not None))
    if drop_intermediate:
        kept = kept[_corners(false[kept], true[kept])]
    return RocPoints(
        np.minimum(false[kept] / negatives, 1.0), np.minimum(true[kept] / positives, 1.0), thresholds[kept]
    )


def _corners(false: Floats, true: Floats) -> NDArray[np.bool_]:
    """Return a mask of the points where the line bends, and its ends; with weights a bend may be rounding."""
    if len(false) < 3:
        return np.ones(len(false), dtype=bool)
    right, up = np.diff(false), np.diff(true)
    # Slopes as cross products: a vertical or horizontal piece needs no division.
    bends = right[:-1] * up[1:] != right[1:] * up[:-1]
    return np.concatenate([[True], bends, [True]])


def _curve(data: LabelledScores) -> tuple[Floats, Floats, NDArray[np.floating[Any]]]:
    """Return false and true positives at each distinct score from the top, after a first point of zero."""
    if data.weights is not None:
        weighty = data.weights > 0
        data = LabelledScores(data.labels[weighty], data.scores[weighty], data.weights[weighty])
    order = np.argsort(data.scores)[::-1]
    scores, labels = data.scores[order], data.labels[order]
    # A threshold takes equal scores together, so only the last row of each group is a point.
    last_of_group = np.flatnonzero(np.concatenate([scores[1:] != scores[:-1], [True]]))
    if data.weights is None:
        true = np.cumsum(labels, dtype=np.float64)[last_of_group]
        false = last_of_group + 1 - true
    else:
        weights = data.weights[order]
        true = np.cumsum(np.where(labels, weights, 0), dtype=np.float64)[last_of_group]
        false = np.cumsum(np.where(labels, 0, weights), dtype=np.float64)[last_of_group]
    start = np.array([np.inf], dtype=scores.dtype)
    return (
        np.concatenate([[0.0], false]),
        np.concatenate([[0.0], true]),
        np.concatenate([start, scores[last_of_group]]),
    )


def check_kind(kind: str) -> PartialKind:
    if kind not in get_args(PartialKind):
        raise ValueError(f"kind must be one of {', '.join(get_args(PartialKind))}, but is {kind!r}.")
    return kind  # type: ignore[return-value]


def within(false: Floats, negatives: Any, fpr: float, *, weighted: bool) -> NDArray[np.bool_]:
    """Return which numbers of false positives keep the rate. Counts are compared as exact quotients."""
    rate: Floats = false / negatives
    return np.asarray(rate <= fpr * (1 + WEIGHT_ROUNDING) if weighted else rate <= fpr)


def auc_of(steps: RocSteps) -> Floats:
    """Return the AUC: a positive is above all negatives that are not above it; ties count half."""
    # Shares before products: otherwise weights of 1e200 would overflow, and weights of 1e-200 vanish.
    below = 1 - (steps.above / steps.negatives + steps.through / steps.negatives) / 2
    area = np.sum(steps.gain / steps.positives * below, axis=-1)
    # Rounding of weights may pass the ends by a unit in the last place.
    return np.asarray(np.clip(area, 0.0, 1.0))


def partial_auc_of(steps: RocSteps, max_fpr: float, kind: PartialKind) -> Floats:
    width = width_inside(steps.above / steps.negatives, steps.through / steps.negatives, max_fpr)
    area = np.sum(steps.gain / steps.positives * width, axis=-1)
    return standardised(np.clip(area, 0.0, max_fpr), max_fpr, kind)


def width_inside(start: Floats, end: Floats, limit: float) -> Floats:
    """Return the mean width of the area to the right of a step from `start` to `end`, up to `limit`.

    For a step inside the limit this is the width from its middle on. For a step that the limit cuts, it is
    the triangle under its diagonal.
    """
    tied = np.where(end > start, end - start, 1.0)
    cut = np.maximum(limit - start, 0) ** 2 / (2 * tied)
    return np.where(end <= limit, limit - (start + end) / 2, cut)


def standardised(area: Any, max_fpr: float, kind: PartialKind) -> Floats:
    """Convert the area between rates 0 and `max_fpr` to the given convention."""
    if kind == "area":
        return np.asarray(area)
    if kind == "mean":
        return np.asarray(area / max_fpr)
    # McClish: the diagonal becomes 1/2 and the largest area 1.
    chance = max_fpr**2 / 2
    return np.asarray((1 + (area - chance) / (max_fpr - chance)) / 2)


def recall_at_fpr_of(steps: RocSteps, fpr: float, interpolate: bool = False) -> Floats:
    inside = within(steps.through, steps.negatives, fpr, weighted=steps.weighted)
    caught = np.sum(np.where(inside, steps.gain, 0.0), axis=-1)
    if interpolate:
        # For a tied step that the rate cuts: the share of its negatives that still fits.
        reach = fpr * steps.negatives - steps.above
        cut = ~inside & (reach > 0)
        tied = np.where(cut, steps.through - steps.above, 1.0)
        caught = caught + np.sum(np.where(cut, steps.gain * np.minimum(reach / tied, 1.0), 0.0), axis=-1)
    return np.asarray(np.minimum(caught / steps.positives, 1.0))


def average_precision_of(steps: RocSteps) -> Floats:
    caught = steps.caught
    # No division by zero: each step has a positive, so caught > 0.
    precision = caught / (caught + steps.through)
    return np.asarray(np.sum(steps.gain / steps.positives * precision, axis=-1))


def precision_at_recall_of(steps: RocSteps, recall: float) -> Floats:
    caught = steps.caught
    share = caught / steps.positives
    enough = share >= recall * (1 - WEIGHT_ROUNDING) if steps.weighted else share >= recall
    return np.asarray(np.max(np.where(enough, caught / (caught + steps.through), 0.0), axis=-1))
