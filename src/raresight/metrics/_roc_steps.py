"""The steps of the ROC curve at the positives' scores, from which every ranking metric follows.

Each distinct score of a positive is a step of the curve. A step has the number of positives at its score, of
negatives above it, and of negatives at or above it. Between steps the curve is flat. Over a step with ties it
is the diagonal, as in scikit-learn. So a million negatives between two positives are one number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import is_tensor
from raresight.metrics._counting import negatives_above
from raresight.metrics._inputs import LabelledScores, scored
from raresight.metrics._tail import tail_rows

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class RocSteps:
    """Steps of the curve from the highest positive down, with the totals of both classes.

    For resampled data the arrays have a leading axis of curves; the last axis is the step. With weights, the
    numbers are weights instead of counts.
    """

    gain: Counts  # positives at the step's score
    above: Counts  # negatives above it
    through: Counts  # negatives at or above it
    positives: float
    negatives: float
    weighted: bool = False

    @property
    def caught(self) -> Counts:
        """Positives at or above each step's score."""
        return np.cumsum(self.gain, axis=-1)


def steps_of(y_true: Any, y_score: Any, sample_weight: Any = None, max_fpr: float = 1.0) -> RocSteps:
    """Return the steps of the curve up to a false-positive rate, computed on the device of the scores."""
    if is_tensor(y_score) and y_score.device.type != "cpu":
        from raresight.metrics._torch_roc_steps import torch_steps

        return torch_steps(y_true, y_score, sample_weight, max_fpr)
    return steps_from(scored(y_true, y_score, sample_weight), max_fpr)


def steps_from(data: LabelledScores, max_fpr: float = 1.0) -> RocSteps:
    """Return the steps of checked rows: at least those that begin at or below `max_fpr`, all exact."""
    positives, negatives = data.positives, data.negatives
    if max_fpr < 1:
        # At a rate of 1e-3 only a thousandth of the negatives matters, so the others are not sorted or
        # counted.
        data = tail_rows(data, max_fpr * negatives)
    values, gain = distinct_positives(data)
    above, through = negatives_above(data, values)
    return RocSteps(
        gain[::-1], above[::-1], through[::-1], positives, negatives, weighted=data.weights is not None
    )


def distinct_positives(data: LabelledScores) -> tuple[NDArray[np.floating[Any]], Counts]:
    """Return the distinct scores of the positives, ascending, and the weight of each."""
    where = np.flatnonzero(data.labels)
    if data.weights is not None:
        where = where[data.weights[where] > 0]
    scores = data.scores[where]
    if data.weights is None:
        values, counts = np.unique(scores, return_counts=True)
        return values, counts.astype(np.float64)
    values, inverse = np.unique(scores, return_inverse=True)
    weight = np.bincount(inverse, weights=data.weights[where], minlength=len(values))
    return values, weight.astype(np.float64)
