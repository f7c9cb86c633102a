"""What the page of a fit is made of: one small frozen dataclass a part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Answer",
    "BandPoint",
    "Bin",
    "Curve",
    "Distribution",
    "InformationRow",
    "IntervalLike",
    "MapPoint",
    "Reliability",
    "Reproduction",
    "RowsUsed",
]


class IntervalLike(Protocol):
    """An estimate with its interval; `raresight.metrics.Interval` is one."""

    @property
    def estimate(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def level(self) -> float: ...


@dataclass(frozen=True)
class Answer:
    """The chosen model and what it does on the held-out rows.

    Attributes:
        family: The family of the model, such as "lightgbm".
        loss: The loss as text, such as "tbl(alpha=0.8,C=0.5)".
        parameters: The family's parameters; empty for its defaults.
        headline: What the model catches and what that costs, in words.
        recall: Recall at the budget `fpr`, with its interval.
        fpr: The false-positive rate allowed.
        max_fpr: The largest rate that the partial AUC looks at.
        alerts_per_100k: Expected alerts among 100,000 cases.
        precision: Share of true ones among the alerts; None or NaN where no alert is raised.
        threshold: Where alarms begin, in log-odds.
        threshold_probability: The same as a probability.
        fpr_seen: The false-positive rate of the held-out rows at the threshold.
        fpr_bound: Upper bound of the true rate there, with 95 % confidence.
        safe: Threshold and recall that keep the budget with 95 % confidence, or None.
        loss_sentence: One sentence on whether the loss mattered.
        loss_mattered: Whether it did; None where that was not asked.
        partial_auc: Partial AUC up to `max_fpr`, with its interval.
        auc: AUC, with its interval.
    """

    family: str
    loss: str
    parameters: Mapping[str, float | int]
    headline: str
    recall: IntervalLike
    fpr: float
    max_fpr: float
    alerts_per_100k: float
    precision: float | None
    threshold: float
    threshold_probability: float
    fpr_seen: float
    fpr_bound: float
    safe: tuple[float, float] | None
    loss_sentence: str
    loss_mattered: bool | None
    partial_auc: IntervalLike
    auc: IntervalLike


@dataclass(frozen=True, eq=False)
class Curve:
    """Alarms at each threshold, from the one above every score down; an alarm is a score >= threshold.

    Attributes:
        thresholds: Falling; the first is infinity, the others are scores of rows.
        true_positives: Positives at or above each.
        false_positives: Negatives at or above each.
        positives: All positives.
        negatives: All negatives.
        exact_to_fpr: Below this rate every distinct score is present, so that the threshold of a budget is
            the very one of `raresight.metrics.threshold_at_fpr`; 1 where nothing was left out.
    """

    thresholds: NDArray[np.float64]
    true_positives: NDArray[np.uint32]
    false_positives: NDArray[np.uint32]
    positives: int
    negatives: int
    exact_to_fpr: float

    def __len__(self) -> int:
        return len(self.thresholds)


@dataclass(frozen=True)
class BandPoint:
    """Recall at a false-positive rate and its interval."""

    fpr: float
    recall: float
    low: float
    high: float


@dataclass(frozen=True)
class Bin:
    """Rows of similar probability: its mean, the share of positives among them and that share's interval."""

    predicted: float
    observed: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Reliability:
    """Bins of the probability read off the raw score, and of the calibrated one."""

    before: tuple[Bin, ...] = ()
    after: tuple[Bin, ...] = ()


@dataclass(frozen=True)
class Distribution:
    """How many rows of each class fall between neighbouring edges of the log-odds."""

    edges: tuple[float, ...]
    positives: tuple[int, ...]
    negatives: tuple[int, ...]


@dataclass(frozen=True)
class MapPoint:
    """Partial AUC of a family with the loss TBL(alpha, C)."""

    family: str
    alpha: float
    C: float
    partial_auc: float


@dataclass(frozen=True)
class InformationRow:
    """What a loss sees in the held-out scores at the data's odds; None where the loss has no such number."""

    loss: str
    index: float | None
    explained_fraction: float | None
    information: float | None


@dataclass(frozen=True)
class RowsUsed:
    """How the rows were divided; `split` says it in words."""

    train_rows: int
    test_rows: int
    test_positives: int
    split: str


@dataclass(frozen=True)
class Reproduction:
    """What it takes to get the same result again.

    Attributes:
        command: The command as typed.
        seed: Its seed.
        versions: Libraries and their versions.
        fingerprint: Hash of the data.
    """

    command: str
    seed: int
    versions: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
