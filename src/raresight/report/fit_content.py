"""Everything that the page of a fit shows, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .fit_measures import band_of, curve_of, distribution_of, information_of, reliability_of
from .fit_parts import (
    Answer,
    BandPoint,
    Bin,
    Curve,
    Distribution,
    InfluentialRow,
    InformationRow,
    IntervalLike,
    LeaderRow,
    MapPoint,
    Reliability,
    Reproduction,
    Role,
    RowsUsed,
    SearchSummary,
    plain,
)

__all__ = [
    "Answer",
    "BandPoint",
    "Bin",
    "Curve",
    "Distribution",
    "FitContent",
    "InfluentialRow",
    "InformationRow",
    "IntervalLike",
    "LeaderRow",
    "MapPoint",
    "Reliability",
    "Reproduction",
    "Role",
    "RowsUsed",
    "SearchSummary",
    "band_of",
    "curve_of",
    "distribution_of",
    "information_of",
    "reliability_of",
]


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
        loss_map: Partial AUC over (alpha, C).
        importance: Pairs of feature and share, largest first.
        information: What each loss sees in the held-out scores.
        influential: Rows that pull hardest.
        profile: Rows, positives, prior, rho, duplicates, columns, dropped and warnings of the training rows,
            as `raresight.tables`'s profile gives them by `to_dict`.
        used: How the rows were divided.
        reproduction: Command, seed, versions and fingerprint.
        search: How far the search got.
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
    leaderboard: tuple[LeaderRow, ...]
    loss_map: tuple[MapPoint, ...]
    importance: tuple[tuple[str, float], ...]
    information: tuple[InformationRow, ...]
    influential: tuple[InfluentialRow, ...]
    profile: Mapping[str, Any]
    used: RowsUsed
    reproduction: Reproduction
    search: SearchSummary
    loss_map_note: str = ""
    influential_note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON knows them; a number that is infinite or none at all becomes None."""
        return {name: plain(getattr(self, name)) for name in self.__dataclass_fields__}
