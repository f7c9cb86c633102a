"""A summary of scores by class that merges: exact at small false-positive rates, bounded elsewhere."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from raresight.common.array_files import pack, unpack
from raresight.common.atomic_files import regular_file, write_file
from raresight.common.checks import as_vector, check_lengths, check_rate, check_weights
from raresight.metrics._compactor import ClassScores
from raresight.metrics._inputs import LabelledScores, check_labels, check_scores
from raresight.metrics._roc_steps import RocSteps, steps_from
from raresight.metrics.ranking import (
    PartialKind,
    RocPoints,
    auc_of,
    average_precision_of,
    check_kind,
    partial_auc_of,
    recall_at_fpr_of,
    roc_points,
)
from raresight.metrics.threshold import (
    above_negative,
    allowed_false_positives,
    false_positives_within,
    threshold_at_fpr,
)

Floats = NDArray[np.floating[Any]]

CAPACITY = 2_000_000  # 2 % of a hundred million negatives
RESOLUTION = 65_536
WEIGHT_SLACK = 1e-9  # more than the rounding of sums of millions of weights
CHUNK = 1 << 20  # rows taken in together: a huge batch needs no more memory than a large one


class RankError(NamedTuple):
    """Bound on the error of the number of rows at or above any score, by class."""

    positives: float
    negatives: float


class RankSketch:
    r"""Summary of the scores of each class in a few megabytes, from which ranking metrics are computed.

    The sketch keeps the `capacity` highest scores of each class. So every answer equals that of all rows
    together, at false-positive rates up to

    .. math:: \texttt{exact\_fpr} \ge \texttt{capacity} / \texttt{negatives}.

    With the default these are rates up to 0.02 for a hundred million negatives, and all rates for two
    million. Positives beyond `capacity` are thinned out too; `exact_fpr` then ends where the known positives
    end. The exact part does not depend on the order of batches and merges.

    Lower scores are thinned out without randomness, and the possible error is counted. For n rows of a class
    and a `resolution` of r, the number of rows above any score is off by at most

    .. math:: E \approx \frac{n}{2r} \log_2\frac{n}{r},

    for any data in any order. With the default this is 8e-5 of a hundred million rows. It is 3e-5 in batches
    of a million, which are thinned out together. `rank_error` is the certain bound of this one sketch, in
    rows. Define :math:`e_0 = E_0 / n_0` for the negatives (`fpr_error`) and :math:`e_1 = E_1 / n_1` for the
    positives (`recall_error`, zero while they all fit). Then:

    - the rates of any threshold are off by at most e0 and e1, and `roc_auc` by at most e0 + e1 (`auc_error`);
    - `partial_auc(f, kind="area")` beyond the exact part by at most e0 + f e1;
    - `recall_at_fpr(f)` beyond it is at least the recall at rate f - e0, less e1, and at most that at
      f + e0, plus e1;
    - `average_precision` is off by at most the fraction E0 / `capacity` of itself, while all positives are
      kept: only precisions with at least `capacity` false positives change.

    Rows may have weights: a whole number counts as that many equal rows. Counts and errors are then in units
    of weight, and the bound of the errors is at most twice as large.

    Args:
        capacity: Highest scores kept of each class.
        resolution: Scores kept at each level of thinning below them; twice as many halve the error.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> y = rng.random(20_000) < 0.01
        >>> s = rng.normal(size=20_000) + 2 * y
        >>> sketch = RankSketch(capacity=400, resolution=1024)
        >>> for part in np.split(np.arange(20_000), 10):
        ...     sketch = sketch.add(y[part], s[part])
        >>> sketch
        RankSketch(positives=197, negatives=19803, exact_fpr=0.0202, auc_error=0.0011)
        >>> from raresight.metrics.ranking import recall_at_fpr, roc_auc
        >>> sketch.recall_at_fpr(0.01) == recall_at_fpr(y, s, 0.01)
        True
        >>> abs(sketch.roc_auc() - roc_auc(y, s)) <= sketch.auc_error
        True
    """

    def __init__(self, capacity: int = CAPACITY, resolution: int = RESOLUTION) -> None:
        self._capacity = _whole_number(capacity, "capacity", 1)
        self._resolution = _whole_number(resolution, "resolution", 2)
        self._positives = ClassScores(self._capacity, self._resolution)
        self._negatives = ClassScores(self._capacity, self._resolution)

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def resolution(self) -> int:
        return self._resolution

    @property
    def positives(self) -> float:
        """Number of positive rows added, exact; their total weight if there are weights."""
        return self._positives.weight

    @property
    def negatives(self) -> float:
        """Number of negative rows added, exact; their total weight if there are weights."""
        return self._negatives.weight

    @property
    def weighted(self) -> bool:
        """Whether weights were added."""
        return self._positives.weighted or self._negatives.weighted

    @property
    def exact(self) -> bool:
        """Whether every row is kept, so that every answer is exact."""
        return self._positives.complete and self._negatives.complete

    @property
    def exact_fpr(self) -> float:
        """The false-positive rate up to which every answer is exact; 1 while every row is kept."""
        if self.exact:
            return 1.0
        lowest = [kind.lowest_known() for kind in (self._positives, self._negatives)]
        # Above the higher of the two ends both classes are complete, so the known part of the curve ends
        # there.
        end = max(score for score in lowest if score is not None)
        # Beyond that end the curve is unknown, so the rate of the end itself does not count.
        known = self._negatives.known_at_or_above(end)
        if self.weighted:
            # A rate below that of the end, by more than the rounding of a sum of weights.
            return known * (1 - WEIGHT_SLACK) / self.negatives if known else 0.0
        return max(known - 1, 0) / max(self.negatives, 1)

    @property
    def rank_error(self) -> RankError:
        """Certain bound on the error of the number of rows above any score, by class."""
        return RankError(self._positives.rank_error, self._negatives.rank_error)

    @property
    def fpr_error(self) -> float:
        """Certain bound on the error of the false-positive rate of any threshold."""
        return self._negatives.rank_error / (self.negatives or 1)

    @property
    def recall_error(self) -> float:
        """Certain bound on the error of the recall of any threshold."""
        return self._positives.rank_error / (self.positives or 1)

    @property
    def auc_error(self) -> float:
        """Certain bound on the error of `roc_auc`."""
        return self.fpr_error + self.recall_error

    def __repr__(self) -> str:
        return (
            f"RankSketch(positives={self.positives}, negatives={self.negatives}, "
            f"exact_fpr={self.exact_fpr:.3g}, auc_error={self.auc_error:.2g})"
        )

    # ---- adding rows --------------------------------------------------------------------------

    def add(self, y_true: Any, y_score: Any, sample_weight: Any = None) -> Self:
        """Add a batch of rows. One class alone, or no row, is a batch too.

        Args:
            y_true: Labels 0 and 1: an array, a pandas or polars series, a tensor.
            y_score: One score per row, on the scale of all other batches; not NaN.
            sample_weight: Weights of the rows. Default: 1. A row of weight 3 counts as three equal rows, a
                row of weight 0 not at all.

        Returns:
            The sketch itself. A batch that raises an error changes nothing.

        Example:
            >>> rows = RankSketch().add([0, 0, 0, 1], [0.1, 0.4, 0.4, 0.35])
            >>> weighted = RankSketch().add([0, 0, 1], [0.1, 0.4, 0.35], sample_weight=[1, 2, 1])
            >>> rows.roc_auc() == weighted.roc_auc()
            True
        """
        labels, scores = checked_batch(y_true, y_score)
        return self._absorb(labels, scores, self._checked_weights(sample_weight, len(labels)))

    def _checked_weights(self, sample_weight: Any, rows: int) -> Floats | None:
        """Return weights in float64, or None; refuse weights whose sum is infinite."""
        weights = check_weights(sample_weight, rows) if rows else None
        if weights is None:
            return None
        weights = weights.astype(np.float64)
        with np.errstate(over="ignore"):
            total = self.positives + self.negatives + weights.sum()
        if not np.isfinite(total):
            raise ValueError("The weights sum to infinity; divide all weights by a constant.")
        return weights

    def _absorb(self, labels: NDArray[np.bool_], scores: Floats, weights: Floats | None = None) -> Self:
        if weights is not None:
            counted = weights > 0
            labels, scores, weights = labels[counted], scores[counted], weights[counted]
        for start in range(0, len(labels), CHUNK):
            rows = slice(start, start + CHUNK)
            for kind, own in ((self._positives, labels[rows]), (self._negatives, ~labels[rows])):
                # Selecting copies, so the caller's array is neither kept nor reordered.
                kind.add(scores[rows][own], None if weights is None else weights[rows][own])
        return self

    def merge(self, other: RankSketch) -> Self:
        """Add all rows of another sketch, which does not change.

        Raises:
            ValueError: If capacity or resolution differ, or a sketch is merged with itself.
        """
        self._check_mergeable(other)
        self._positives.merge(other._positives)
        self._negatives.merge(other._negatives)
        return self

    def _check_mergeable(self, other: RankSketch) -> None:
        if not isinstance(other, RankSketch):
            raise TypeError(f"Only a RankSketch can be merged, but got {type(other).__name__}.")
        if other is self:
            raise ValueError("A sketch merged with itself would count every row twice.")
        for name in ("capacity", "resolution"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(
                    f"The sketches have {name} {mine} and {theirs}; only sketches made with the same "
                    "settings can be merged."
                )

    @classmethod
    def merged(cls, sketches: Iterable[RankSketch]) -> Self:
        """Return a new sketch of all rows of the given ones, which do not change."""
        total: Self | None = None
        for sketch in sketches:
            if not isinstance(sketch, RankSketch):
                raise TypeError(f"Only RankSketches can be merged, but got {type(sketch).__name__}.")
            if total is None:
                total = cls(sketch.capacity, sketch.resolution)
            total.merge(sketch)
        if total is None:
            raise ValueError("There is no sketch to merge.")
        return total

    # ---- metrics ------------------------------------------------------------------------------

    def rows(self) -> tuple[NDArray[np.bool_], Floats, NDArray[np.float64] | None]:
        """Return labels, scores and weights for any function of `(y_true, y_score, sample_weight=...)`.

        The weights add up to those of the classes. They are whole numbers unless weights were added, and None
        while every row is kept and weighs 1.
        """
        positive, positive_weight = self._positives.rows()
        negative, negative_weight = self._negatives.rows()
        labels = np.arange(len(positive) + len(negative)) < len(positive)
        dtype = np.promote_types(self._positives.dtype, self._negatives.dtype)
        scores = np.concatenate([positive, negative]).astype(dtype, copy=False)
        if self.exact and not self.weighted:
            return labels, scores, None
        return labels, scores, np.concatenate([positive_weight, negative_weight])

    def roc_auc(self) -> float:
        """Return the area under the ROC curve; off by at most `auc_error`."""
        return float(auc_of(self._steps()))

    def partial_auc(self, max_fpr: float = 0.01, *, kind: PartialKind = "mcclish") -> float:
        """Return the area under the ROC curve up to `max_fpr`, as `raresight.metrics.partial_auc`."""
        max_fpr, kind = check_rate(max_fpr, "max_fpr"), check_kind(kind)
        return float(partial_auc_of(self._steps(max_fpr), max_fpr, kind))

    def recall_at_fpr(self, fpr: float = 0.001, *, interpolate: bool = False) -> float:
        """Return the largest recall of a threshold that keeps the rate, as `metrics.recall_at_fpr`."""
        fpr = check_rate(fpr, "fpr")
        return float(recall_at_fpr_of(self._steps(fpr), fpr, interpolate))

    def average_precision(self) -> float:
        """Return the precision averaged over the positives, as `raresight.metrics.average_precision`."""
        return float(average_precision_of(self._steps()))

    def roc_points(self, max_fpr: float = 1.0) -> RocPoints:
        """Return points of the ROC curve: all of them up to `exact_fpr`, those of the summary beyond."""
        max_fpr = check_rate(max_fpr, "max_fpr")
        self._need("positive", "negative")
        labels, scores, weights = self.rows()
        if weights is None:
            return roc_points(labels, scores, max_fpr=max_fpr)
        if self.weighted:
            return roc_points(labels, scores, sample_weight=weights, max_fpr=max_fpr)
        # Whole weights make exact rates, so they are compared without the slack that other weights need.
        points = roc_points(labels, scores, sample_weight=weights)
        inside = points.fpr <= max_fpr
        return RocPoints(points.fpr[inside], points.tpr[inside], points.thresholds[inside])

    def threshold_at_fpr(self, fpr: float, *, confidence: float | None = None) -> float:
        """Return the lowest threshold that keeps the rate at or below `fpr`. Alerts are scores >= threshold.

        As `raresight.metrics.threshold_at_fpr`, with the same guarantee for `confidence`. Beyond the exact
        part the rate of the threshold is at most `fpr` + `fpr_error`. There `confidence` is refused, because
        its bound counts rows.
        """
        fpr = check_rate(fpr, "fpr")
        self._need("negative")
        if self.exact or self.weighted:
            labels, scores, weights = self.rows()
            return threshold_at_fpr(labels, scores, fpr, confidence=confidence, sample_weight=weights)
        negatives = int(self.negatives)
        if confidence is None:
            allowed = false_positives_within(negatives, fpr)
        else:
            allowed = allowed_false_positives(negatives, fpr, confidence)
        if allowed >= negatives:
            return -np.inf
        dtype = np.promote_types(self._positives.dtype, self._negatives.dtype)
        if allowed < self._negatives.known_at_or_above(None):
            scores = self._negatives.known().astype(dtype, copy=False)
            labels = np.zeros(len(scores), dtype=np.bool_)
            # Negatives beyond the kept ones are ties: they have the lowest kept score.
            return above_negative(LabelledScores(labels, scores, None), min(allowed, len(scores) - 1))
        if confidence is not None:
            raise ValueError(
                f"A threshold with confidence needs the {allowed} highest negatives, but only "
                f"{self._negatives.known_at_or_above(None)} are known exactly. Lower fpr, "
                f"omit confidence, or make the sketch with a capacity of at least {allowed}."
            )
        labels, scores, weights = self.rows()
        return threshold_at_fpr(labels, scores, fpr, sample_weight=weights)

    def _steps(self, max_fpr: float = 1.0) -> RocSteps:
        self._need("positive", "negative")
        # Whole weights add up exactly, so rates can be compared as exact quotients.
        return replace(steps_from(LabelledScores(*self.rows()), max_fpr), weighted=self.weighted)

    def _need(self, *kinds: str) -> None:
        for kind in kinds:
            if getattr(self, f"{kind}s") == 0:
                raise ValueError(
                    f"The sketch holds {self.positives} positive and {self.negatives} negative rows; without "
                    f"a {kind} row no rate over that class is defined. Add batches first."
                )

    # ---- files --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sketch to one file (a compressed .npz of plain arrays), whole or not at all."""
        write_file(Path(path), self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a sketch that `save` has written.

        Raises:
            ValueError: If the file is damaged, is something else, or is of a newer version.
        """
        return cls.from_bytes(regular_file(Path(path)).read_bytes(), source=os.fspath(path))

    def to_bytes(self) -> bytes:
        """Return the content of the file that `save` writes, to send between processes."""
        return pack("RankSketch", self._to_arrays())

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str = "The data") -> Self:
        """Return the sketch of `to_bytes`; errors call the data `source`."""
        return unpack("RankSketch", data, source, cls._from_arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (type(self), self.to_bytes())

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {"settings": np.array([self._capacity, self._resolution])}
        for kind, scores in (("positive", self._positives), ("negative", self._negatives)):
            arrays |= {f"{kind}_{name}": array for name, array in scores.to_arrays().items()}
        return arrays

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        capacity, resolution = (int(n) for n in arrays["settings"])
        new = cls(capacity, resolution)
        for kind in ("positive", "negative"):
            own = {name.removeprefix(f"{kind}_"): array for name, array in arrays.items()}
            setattr(new, f"_{kind}s", ClassScores.from_arrays(own, capacity, resolution))
        return new


def _from_bytes(cls: type[RankSketch], data: bytes) -> RankSketch:
    return cls.from_bytes(data)


def _whole_number(value: Any, name: str, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, but is {value!r}.") from None
    if number < least:
        raise ValueError(f"{name} must be at least {least}, but is {number}.")
    return number


def checked_batch(y_true: Any, y_score: Any) -> tuple[NDArray[np.bool_], Floats]:
    """Check labels and scores of a batch, which may be empty or of one class."""
    labels = as_vector(y_true, "y_true")
    labels = check_labels(labels) if len(labels) else np.zeros(0, dtype=np.bool_)
    scores = check_scores(y_score)
    check_lengths(len(labels), len(scores), "y_score")
    return labels, scores
