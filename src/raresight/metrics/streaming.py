"""Metrics that are updated batch by batch, for training loops and for files larger than memory."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from raresight.common.array_files import pack, unpack
from raresight.common.atomic_files import regular_file, write_file
from raresight.common.checks import blocks, check_lengths, check_rate
from raresight.metrics._inputs import LabelledScores, check_scores
from raresight.metrics.calibration_metrics import probabilities, squared_error, surprise
from raresight.metrics.sketch import CAPACITY, RESOLUTION, RankSketch, checked_batch


class ExactSum:
    """A sum of numbers >= 0 without rounding error, so that the order of the numbers does not matter.

    The sum is kept as numbers that do not overlap (Shewchuk 1997, the method of `math.fsum`).
    """

    def __init__(self, parts: Iterable[float] = ()) -> None:
        self.parts: list[float] = []
        for part in parts:
            self.add(part)

    def add(self, number: float) -> None:
        # A certain and wrong prediction makes the log loss infinite. It stays so, without NaN from inf - inf.
        if math.isinf(number) or math.inf in self.parts:
            self.parts = [math.inf]
            return
        kept = []
        for part in self.parts:
            # Two-sum: large + small and its rounding error add up to both numbers exactly.
            large, small = (number, part) if abs(number) >= abs(part) else (part, number)
            number = large + small
            lost = small - (number - large)
            if lost:
                kept.append(lost)
        self.parts = [*kept, number]

    @property
    def value(self) -> float:
        return math.fsum(self.parts)


class StreamingMetrics:
    r"""Ranking and probability metrics of all batches seen so far, at any time.

    Ranking metrics come from a `RankSketch` (`sketch`). They are exact at false-positive rates up to its
    `exact_fpr`, with a certain bound elsewhere. The Brier score :math:`\overline{(p-y)^2}` and the log loss
    are sums over rows, added without rounding error from batch to batch.

    Args:
        max_fpr: The limit of `partial_auc` (kind "mcclish").
        fpr: The false-positive rate of `recall_at_fpr` and `threshold_at_fpr`.
        capacity: Highest scores of each class that the sketch keeps.
        resolution: Scores that the sketch keeps at each level of thinning below them.

    Example:
        >>> metrics = StreamingMetrics(max_fpr=0.5, fpr=0.34)
        >>> _ = metrics.update([0, 0, 1], [0.1, 0.4, 0.35]).update([0, 1], [0.2, 0.8])
        >>> for name, value in metrics.compute().items():
        ...     print(f"{name:17} {value:.4g}")
        rows              5
        positives         2
        prior             0.4
        roc_auc           0.8333
        partial_auc       0.7778
        recall_at_fpr     1
        threshold_at_fpr  0.2
        average_precision 0.8333
        exact_fpr         1
        auc_error         0
    """

    def __init__(
        self,
        max_fpr: float = 0.01,
        fpr: float = 0.001,
        capacity: int = CAPACITY,
        resolution: int = RESOLUTION,
    ) -> None:
        self.max_fpr = check_rate(max_fpr, "max_fpr")
        self.fpr = check_rate(fpr, "fpr")
        self._start(RankSketch(capacity, resolution))

    def _start(self, sketch: RankSketch) -> None:
        self._sketch = sketch
        self._with_probability: bool | None = None  # not known before the first row
        self._brier = ExactSum()
        self._log_loss = ExactSum()

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[tuple[Any, ...]],
        max_fpr: float = 0.01,
        fpr: float = 0.001,
        capacity: int = CAPACITY,
        resolution: int = RESOLUTION,
    ) -> Self:
        """Return the metrics of batches `(y_true, y_score)` or `(y_true, y_score, probability)`.

        Example:
            >>> batches = (([0, 1], [0.1 * i, 0.5]) for i in range(4))
            >>> StreamingMetrics.from_batches(batches).compute()["roc_auc"]
            1.0
        """
        metrics = cls(max_fpr, fpr, capacity, resolution)
        for batch in batches:
            if not 2 <= len(batch) <= 3:
                raise ValueError(
                    "A batch must be (y_true, y_score) or (y_true, y_score, probability), "
                    f"but has {len(batch)} parts."
                )
            metrics.update(*batch)
        return metrics

    @property
    def sketch(self) -> RankSketch:
        """The summary of the scores, for other ranking metrics."""
        return self._sketch

    def update(self, y_true: Any, y_score: Any, probability: Any = None, sample_weight: Any = None) -> Self:
        """Add a batch of rows. One class alone, or no row, is a batch too.

        Args:
            y_true: Labels 0 and 1.
            y_score: One score per row, higher for the positive class.
            probability: The probability of label 1 for each row, or None. Pass it with all batches or with
                none.
            sample_weight: Weights of the rows. Default: 1. A row of weight 3 counts as three equal rows.

        Returns:
            The metrics themselves. A batch that raises an error changes nothing.
        """
        labels, scores = checked_batch(y_true, y_score)
        if probability is not None and len(labels) == 0:
            check_lengths(0, len(check_scores(probability, "probability")), "probability")
        if len(labels) == 0:
            return self
        weights = self._sketch._checked_weights(sample_weight, len(labels))
        if weights is not None and not weights.any():  # like a batch without rows
            return self
        data = None if probability is None else probabilities(labels, probability, weights)
        # Checked before anything is added, so that a refused batch changes nothing.
        self._check_same_kind(probability is not None, "This batch", "the batches before")
        self._with_probability = data is not None
        if data is not None:
            self._add_errors(data)
        self._sketch._absorb(labels, scores, weights)
        return self

    def _add_errors(self, data: LabelledScores) -> None:
        for rows in blocks(len(data)):
            labels, p = data.labels[rows], data.scores[rows].astype(np.float64)
            for total, error in (
                (self._brier, squared_error(labels, p)),
                (self._log_loss, surprise(labels, p)),
            ):
                if data.weights is None:
                    total.add(float(error.sum()))
                else:
                    weight = data.weights[rows]
                    # A row of weight zero is absent, even where its error is infinite.
                    total.add(float(np.sum(np.where(weight > 0, error, 0.0) * weight)))

    def _check_same_kind(self, given: bool, new: str, old: str) -> None:
        if self._with_probability in (None, given):
            return
        has, had = ("has", "had none") if given else ("has no", "had")
        raise ValueError(
            f"{new} {has} probabilities, but {old} {had}; pass them with every batch or with none."
        )

    def merge(self, other: StreamingMetrics) -> Self:
        """Add all rows of other metrics, which do not change.

        Raises:
            ValueError: If the settings differ, or only one of the two was given probabilities.
        """
        if not isinstance(other, StreamingMetrics):
            raise TypeError(f"Only StreamingMetrics can be merged, but got {type(other).__name__}.")
        for name in ("max_fpr", "fpr"):
            if getattr(self, name) != getattr(other, name):
                raise ValueError(
                    f"The metrics have {name} {getattr(self, name)} and {getattr(other, name)}; "
                    "only metrics made with the same settings can be merged."
                )
        if other._with_probability is not None:
            self._check_same_kind(other._with_probability, "What is merged", "the batches before")
        self._sketch.merge(other._sketch)
        if other._with_probability is not None:
            self._with_probability = other._with_probability
        for part in other._brier.parts:
            self._brier.add(part)
        for part in other._log_loss.parts:
            self._log_loss.add(part)
        return self

    def reset(self) -> Self:
        """Forget all rows, as at the start of an epoch."""
        self._start(RankSketch(self._sketch.capacity, self._sketch.resolution))
        return self

    def compute(self) -> dict[str, float]:
        """Return the metrics of all rows so far.

        Returns:
            - rows (their weight if there are weights), positives, prior (positives / rows);
            - roc_auc, partial_auc, recall_at_fpr, threshold_at_fpr, average_precision;
            - brier_score and log_loss, if probabilities were given;
            - exact_fpr and auc_error, the exactness of the ranking metrics.

        Raises:
            ValueError: If there is no positive or no negative row yet.
        """
        sketch = self._sketch
        rows = sketch.positives + sketch.negatives
        found: dict[str, float] = {
            "rows": rows,
            "positives": sketch.positives,
            "prior": sketch.positives / (rows or 1),
            "roc_auc": sketch.roc_auc(),
            "partial_auc": sketch.partial_auc(self.max_fpr),
            "recall_at_fpr": sketch.recall_at_fpr(self.fpr),
            "threshold_at_fpr": sketch.threshold_at_fpr(self.fpr),
            "average_precision": sketch.average_precision(),
        }
        if self._with_probability:
            found |= {"brier_score": self._brier.value / rows, "log_loss": self._log_loss.value / rows}
        return found | {"exact_fpr": sketch.exact_fpr, "auc_error": sketch.auc_error}

    def __repr__(self) -> str:
        return f"StreamingMetrics(max_fpr={self.max_fpr:g}, fpr={self.fpr:g}, sketch={self._sketch!r})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file (a compressed .npz of plain arrays), whole or not at all."""
        write_file(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`; ValueError if it is damaged, of another kind or newer."""
        return cls.from_bytes(regular_file(Path(path)).read_bytes(), source=os.fspath(path))

    def to_bytes(self) -> bytes:
        """Return the content of the file that `save` writes, to send between processes."""
        given = self._with_probability
        own = {
            "rates": np.array([self.max_fpr, self.fpr]),
            "with_probability": np.array(-1 if given is None else int(given)),
            "brier_parts": np.array(self._brier.parts, dtype=np.float64),
            "log_loss_parts": np.array(self._log_loss.parts, dtype=np.float64),
        }
        return pack("StreamingMetrics", {**self._sketch._to_arrays(), **own})

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str = "The data") -> Self:
        """Return the metrics of `to_bytes`; errors call the data `source`."""
        return unpack("StreamingMetrics", data, source, cls._from_arrays)

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        sketch = RankSketch._from_arrays(arrays)
        max_fpr, fpr = (float(rate) for rate in arrays["rates"])
        new = cls(max_fpr, fpr, sketch.capacity, sketch.resolution)
        new._sketch = sketch
        new._with_probability = {-1: None, 0: False, 1: True}[int(arrays["with_probability"])]
        new._brier = ExactSum(arrays["brier_parts"].tolist())
        new._log_loss = ExactSum(arrays["log_loss_parts"].tolist())
        return new
