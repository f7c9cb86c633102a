"""Everything that the page of a fit shows, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..automl.evaluation import InfluentialRow, Outcome, SearchSummary
from ..automl.records import Trial
from ..automl.wording import cost, headline, split_sentence
from ..common.json_values import plain
from ..losses import parse
from ..model.families import Candidate
from .fit_measures import (
    BandPoint,
    Bin,
    Curve,
    Distribution,
    InformationRow,
    band_of,
    curve_of,
    distribution_of,
    information_of,
    reliability_of,
)

__all__ = [
    "Answer",
    "FitContent",
    "IntervalLike",
    "MapPoint",
    "Reliability",
    "Reproduction",
    "RowsUsed",
    "content_of",
]

_FEATURES = 40


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
        headline: What the model catches, in words.
        cost: What that costs in alerts.
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
        loss_sentence: Whether the loss mattered, in words.
        loss_mattered: Whether it did; None where that was not asked.
        partial_auc: Partial AUC up to `max_fpr`, with its interval.
        auc: AUC, with its interval.
    """

    family: str
    loss: str
    parameters: Mapping[str, float | int]
    headline: str
    cost: str
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


@dataclass(frozen=True)
class Reliability:
    """Bins of the probability read off the raw score, and of the calibrated one."""

    before: tuple[Bin, ...] = ()
    after: tuple[Bin, ...] = ()


@dataclass(frozen=True)
class MapPoint:
    """Partial AUC of a family with the loss TBL(alpha, C)."""

    family: str
    alpha: float
    C: float
    partial_auc: float


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


@dataclass(frozen=True, eq=False)
class FitContent:
    """A finished fit, ready to be shown.

    Attributes:
        title: Heading of the page.
        made: When, as text: "2026-11-15 14:02 UTC".
        answer: The chosen model and its figures.
        curve: Alarms at each threshold, of the held-out rows.
        band: Recall with its interval at some rates.
        reliability: Bins before and after calibration.
        distribution: Histogram of the log-odds by class.
        leaderboard: The candidates, best first.
        winner: The chosen one.
        loss_map: Partial AUC over (alpha, C).
        importance: Pairs of feature and share, largest first.
        information: What each loss sees in the held-out scores.
        influential: Rows with the largest influence.
        profile: Rows, positives, prior, rho, duplicates, columns, dropped and warnings of the training rows,
            as `raresight.tables`'s profile gives them by `to_dict`.
        used: How the rows were divided.
        reproduction: Command, seed, versions and fingerprint.
        search: How far the search got.
        notes: What a reader must know beside the figures.
        loss_map_note: Why the map is empty, where it is.
        influential_note: Why there are no influential rows, where there are none.
    """

    title: str
    made: str
    answer: Answer
    curve: Curve
    band: tuple[BandPoint, ...]
    reliability: Reliability
    distribution: Distribution
    leaderboard: tuple[Trial, ...]
    winner: Candidate
    loss_map: tuple[MapPoint, ...]
    importance: tuple[tuple[str, float], ...]
    information: tuple[InformationRow, ...]
    influential: tuple[InfluentialRow, ...]
    profile: Mapping[str, Any]
    used: RowsUsed
    reproduction: Reproduction
    search: SearchSummary
    notes: tuple[str, ...] = ()
    loss_map_note: str = ""
    influential_note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON knows them; a number that is infinite or none at all becomes None."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}


def content_of(outcome: Outcome) -> FitContent:
    """Everything the page shows, measured on the held-out rows."""
    y, log_odds = outcome.held_out.y, outcome.held_out.log_odds
    probability = np.exp(-np.logaddexp(0.0, -log_odds))
    profile = outcome.profile.to_dict()
    seed = outcome.options.seed
    loss_map = _loss_map(outcome.leaderboard)
    return FitContent(
        title=f"{outcome.source}: {outcome.options.target}",
        made=outcome.made,
        answer=_answer(outcome),
        curve=curve_of(y, log_odds),
        band=band_of(y, log_odds, seed=seed),
        reliability=Reliability(
            before=reliability_of(y, outcome.held_out.naive), after=reliability_of(y, probability)
        ),
        distribution=distribution_of(y, log_odds),
        leaderboard=outcome.leaderboard,
        winner=outcome.winner,
        loss_map=loss_map,
        importance=_importance(outcome),
        information=information_of(y, log_odds, outcome.losses, outcome.profile.prior),
        influential=outcome.influential,
        profile=profile,
        used=RowsUsed(outcome.profile.rows, len(y), int(y.sum()), split_sentence(outcome.options)),
        search=outcome.search,
        notes=outcome.notes,
        reproduction=Reproduction(
            outcome.command,
            seed,
            outcome.versions,
            outcome.fingerprint,
        ),
        loss_map_note="" if loss_map else "No candidate with the loss parameters alpha and C is complete.",
        influential_note=outcome.no_influence,
    )


def _answer(outcome: Outcome) -> Answer:
    found, threshold = outcome.evaluation, outcome.held_out.threshold
    candidate = outcome.winner
    safe = None
    if threshold.safe is not None and threshold.safe_recall is not None:
        safe = (threshold.safe, threshold.safe_recall)
    return Answer(
        family=candidate.family,
        loss=candidate.loss,
        parameters=dict(candidate.parameters),
        headline=headline(outcome),
        cost=cost(outcome),
        recall=found["recall_at_fpr"],
        fpr=found.fpr,
        max_fpr=found.max_fpr,
        alerts_per_100k=found.alarms / found.rows * 100_000,
        precision=found.precision,
        threshold=threshold.log_odds,
        threshold_probability=1 / (1 + math.exp(-threshold.log_odds)) if threshold.log_odds > -700 else 0.0,
        fpr_seen=threshold.fpr_seen,
        fpr_bound=threshold.fpr_bound,
        safe=safe,
        loss_sentence=outcome.loss_sentence,
        loss_mattered=outcome.loss_mattered,
        partial_auc=found["partial_auc"],
        auc=found["roc_auc"],
    )


def _loss_map(board: Sequence[Trial]) -> tuple[MapPoint, ...]:
    """Partial AUC by (alpha, C), the best of each pair and family: other parameters differ, too."""
    best: dict[tuple[str, float, float], float] = {}
    for trial in board:
        parameters = parse(trial.candidate.loss).parameters() if trial.partial_auc is not None else {}
        # The losses that lie in the plane of these two parameters, whatever they are called.
        if trial.partial_auc is None or "alpha" not in parameters or not set(parameters) <= {"alpha", "C"}:
            continue
        place = (trial.candidate.family, float(parameters["alpha"]), float(parameters.get("C", 0.0)))
        best[place] = max(best.get(place, 0.0), trial.partial_auc)
    return tuple(MapPoint(*place, value) for place, value in best.items())


def _importance(outcome: Outcome) -> tuple[tuple[str, float], ...]:
    shares = outcome.model.importance()
    order = np.argsort(-shares, kind="stable")[:_FEATURES]
    names = outcome.model.schema.feature_names
    return tuple((names[i], float(shares[i])) for i in order if shares[i] > 0)
