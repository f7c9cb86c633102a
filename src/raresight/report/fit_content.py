"""An outcome with the curves and tables that its page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..automl.evaluation import Outcome
from ..automl.records import Trial
from ..losses import parse
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

__all__ = ["FitContent", "MapPoint", "Reliability", "content_of"]

_FEATURES = 40


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


@dataclass(frozen=True, eq=False)
class FitContent:
    """A finished fit, ready to be shown.

    Attributes:
        outcome: The fit: its choice, its figures and how to repeat it.
        curve: Alerts at each threshold, of the held-out rows.
        band: Recall with its interval at some rates.
        reliability: Bins before and after calibration.
        distribution: Histogram of the log-odds by class.
        loss_map: Partial AUC over (alpha, C).
        importance: Pairs of feature and share, largest first.
        information: Statistical information of each loss in the held-out scores.
    """

    outcome: Outcome
    curve: Curve
    band: tuple[BandPoint, ...]
    reliability: Reliability
    distribution: Distribution
    loss_map: tuple[MapPoint, ...]
    importance: tuple[tuple[str, float], ...]
    information: tuple[InformationRow, ...]


def content_of(outcome: Outcome) -> FitContent:
    """Measure on the held-out rows what the page shows beside the outcome."""
    held_out = outcome.held_out
    y, log_odds = held_out.y, held_out.log_odds
    return FitContent(
        outcome=outcome,
        curve=curve_of(y, log_odds),
        band=band_of(y, log_odds, seed=outcome.options.seed),
        reliability=Reliability(reliability_of(y, held_out.naive), reliability_of(y, held_out.probability)),
        distribution=distribution_of(y, log_odds),
        loss_map=_loss_map(outcome.leaderboard),
        importance=_importance(outcome),
        information=information_of(y, log_odds, outcome.losses, outcome.profile.prior),
    )


def _loss_map(board: Sequence[Trial]) -> tuple[MapPoint, ...]:
    """Return the best partial AUC of each family and pair (alpha, C): other parameters differ, too."""
    best: dict[tuple[str, float, float], float] = {}
    for trial in board:
        parameters = parse(trial.candidate.loss).parameters() if trial.partial_auc is not None else {}
        # Losses with these two parameters and no other lie on the map, under any name.
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
