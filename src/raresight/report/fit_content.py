"""An outcome with the curves and tables that its page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..automl.evaluation import Outcome
from ..automl.records import Trial
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

__all__ = ["FitContent", "MapPoint", "Reliability", "content_of", "map_place"]

_FEATURES = 40

MapPlace = tuple[str, str, str, float, str, float]


@dataclass(frozen=True)
class Reliability:
    """Bins of the probability read off the raw score, and of the calibrated one."""

    before: tuple[Bin, ...] = ()
    after: tuple[Bin, ...] = ()


@dataclass(frozen=True)
class MapPoint:
    """Partial AUC of a family with a loss at values of two of its parameters."""

    family: str
    loss: str
    x_name: str
    x: float
    y_name: str
    y: float
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
        loss_map: Partial AUC over the two parameters of each loss that declares a grid of them.
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
        band=band_of(y, log_odds, groups=held_out.units, seed=outcome.options.seed),
        reliability=Reliability(reliability_of(y, held_out.naive), reliability_of(y, held_out.probability)),
        distribution=distribution_of(y, log_odds),
        loss_map=_loss_map(outcome.leaderboard),
        importance=_importance(outcome),
        information=information_of(y, log_odds, outcome.losses, outcome.profile.prior, groups=held_out.units),
    )


def _loss_map(board: Sequence[Trial]) -> tuple[MapPoint, ...]:
    """Return the best partial AUC of each family and pair: other parameters differ, too."""
    best: dict[MapPlace, float] = {}
    for trial in board:
        place = None if trial.partial_auc is None else map_place(trial.candidate)
        if place is not None and trial.partial_auc is not None:
            best[place] = max(best.get(place, 0.0), trial.partial_auc)
    return tuple(MapPoint(*place, value) for place, value in best.items())


def map_place(candidate: Candidate) -> MapPlace | None:
    """Return where a candidate lies on the map of its loss; None for a loss without one.

    The axes are the two parameters of the grid that the loss declares for a search.
    """
    loss = parse(candidate.loss)
    if len(loss.search_grid) != 2:
        return None
    x, y = loss.search_grid
    return candidate.family, type(loss).__name__, x, float(getattr(loss, x)), y, float(getattr(loss, y))


def _importance(outcome: Outcome) -> tuple[tuple[str, float], ...]:
    shares = outcome.model.importance()
    order = np.argsort(-shares, kind="stable")[:_FEATURES]
    names = outcome.model.schema.feature_names
    return tuple((names[i], float(shares[i])) for i in order if shares[i] > 0)
