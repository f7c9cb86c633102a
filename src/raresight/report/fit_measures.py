"""The curves and tables of a fit's page, measured on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..losses import Loss, parse
from ..metrics import interval, roc_points
from ..metrics.calibration_metrics import probabilities
from ..theory import EmpiricalExperiment, bayes_risk, explained_interval, local_index

__all__ = [
    "BandPoint",
    "Bin",
    "Curve",
    "Distribution",
    "InformationRow",
    "band_of",
    "curve_of",
    "distribution_of",
    "information_of",
    "reliability_of",
]


@dataclass(frozen=True, eq=False)
class Curve:
    """Alerts at each threshold, from above every score down; an alert is a score >= threshold.

    Attributes:
        thresholds: In falling order; the first is infinity, the others are scores of rows.
        true_positives: Number of positives at or above each threshold.
        false_positives: Number of negatives at or above each threshold.
        positives: Number of positives.
        negatives: Number of negatives.
        exact_to_fpr: Below this rate every distinct score is present, so the threshold of a budget equals
            that of `raresight.metrics.threshold_at_fpr`; 1 if no score was omitted.
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
    """Rows of similar probability: its mean, the share of positives, and the interval of that share."""

    predicted: float
    observed: float
    low: float
    high: float
    count: int


@dataclass(frozen=True)
class Distribution:
    """Number of rows of each class between neighbouring edges of the log-odds."""

    edges: tuple[float, ...]
    positives: tuple[int, ...]
    negatives: tuple[int, ...]


@dataclass(frozen=True)
class InformationRow:
    """Information of a loss in the held-out scores at the data's odds; None if the loss has none.

    `explained_low` and `explained_high` are the ends of the 95 % interval of the explained fraction.
    """

    loss: str
    index: float | None
    explained_fraction: float | None
    explained_low: float | None
    explained_high: float | None
    information: float | None


def curve_of(y: Any, log_odds: Any, most_points: int = 20_000) -> Curve:
    """Return the exact curve of alerts, thinned below the top if there are more scores than `most_points`.

    Every distinct score is kept from the top until four fifths of the points are used. Below, a threshold is
    kept if it catches a further positive, as long as there is room. Others are evenly spaced on the logarithm
    of the false positives. Recall at a budget is exact if the thresholds of all positives fit. A thinned part
    never shows more recall than a threshold of the model attains.

    >>> curve = curve_of([0, 0, 1, 0, 1], [0.1, 0.4, 0.4, 0.2, 0.8])
    >>> curve.thresholds.tolist()
    [inf, 0.8, 0.4, 0.2, 0.1]
    >>> curve.true_positives.tolist(), curve.false_positives.tolist()
    ([0, 1, 2, 2, 2], [0, 0, 1, 2, 3])
    """
    if most_points < 10:
        raise ValueError(f"most_points must be at least 10, but is {most_points}.")
    labels = np.asarray(y)
    positives = int(np.count_nonzero(labels))
    negatives = len(labels) - positives
    points = roc_points(labels, np.asarray(log_odds, dtype=np.float64))
    true = np.rint(points.tpr * positives).astype(np.uint32)
    false = np.rint(points.fpr * negatives).astype(np.uint32)
    kept, exact = _thinned(true, false, most_points)
    exact_to = 1.0 if len(kept) == len(true) else float(false[exact - 1] / negatives) if exact else 0.0
    thresholds = points.thresholds[kept].astype(np.float64)
    return Curve(thresholds, true[kept], false[kept], positives, negatives, exact_to)


def _thinned(true: NDArray[np.uint32], false: NDArray[np.uint32], most: int) -> tuple[NDArray[np.intp], int]:
    """Return the points to keep, and how many from the top are complete."""
    if len(true) <= most:
        return np.arange(len(true)), len(true)
    # The complete part ends just before the score of a negative. So `exact_to_fpr` is a rate at which every
    # threshold of the curve is known.
    ends = np.flatnonzero(false[1:] > false[:-1]) + 1
    exact = (
        int(ends[np.searchsorted(ends, most * 4 // 5, side="right") - 1]) if ends[0] <= most * 4 // 5 else 0
    )
    # Positives get at most three quarters of the remaining room: their thresholds raise recall. The even
    # spacing keeps the rest of the curve smooth.
    room = most - exact - 1
    catches = exact + np.flatnonzero(true[exact:] > true[np.maximum(np.arange(exact, len(true)) - 1, 0)])
    catches = _spread(catches, room * 3 // 4)
    levels = np.geomspace(max(1, int(false[exact])), int(false[-1]), room - len(catches))
    spaced = np.searchsorted(false, levels, side="right") - 1
    last = [len(true) - 1]
    kept = np.unique(np.concatenate([np.arange(max(exact, 1)), catches, spaced[spaced >= exact], last]))
    return kept.astype(np.intp), exact


def _spread(places: NDArray[Any], most: int) -> NDArray[Any]:
    """Return at most `most` of the places, evenly spaced."""
    if len(places) <= most:
        return places
    return places[np.linspace(0, len(places) - 1, most).astype(np.intp)]


def band_of(
    y: Any,
    log_odds: Any,
    *,
    groups: Any = None,
    points: int = 25,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> tuple[BandPoint, ...]:
    """Return recall with its interval at rates from one false positive up to all negatives.

    `groups` says which rows depend on each other.

    >>> random = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], [1000, 50])
    >>> band = band_of(y, random.normal(size=1050) + 2 * y, points=4)
    >>> [round(point.fpr, 4) for point in band]
    [0.001, 0.01, 0.1, 1.0]
    >>> all(point.low <= point.recall <= point.high for point in band)
    True
    """
    labels = np.asarray(y)
    scores = np.asarray(log_odds, dtype=np.float64)
    negatives = int(np.count_nonzero(labels == 0))
    bootstrap: dict[str, Any] = {"level": level, "draws": draws, "seed": seed}
    found = []
    for rate in np.geomspace(1 / negatives, 1.0, points):
        fpr = min(float(rate), 1.0)
        recall = interval("recall_at_fpr", labels, scores, fpr=fpr, groups=groups, **bootstrap)
        found.append(BandPoint(fpr, recall.estimate, recall.low, recall.high))
    return tuple(found)


def reliability_of(y: Any, probability: Any, *, level: float = 0.95) -> tuple[Bin, ...]:
    """Return bins of similar log-odds with exact binomial intervals: at most 12, and 6 if events allow.

    Bins of equal rows would put all rare events into the last bin. Bins of equal events would omit the rows
    between the bulk and the top. These bins have equal width in log-odds, or more until one of these holds:

    - the bin has 5 expected positives;
    - it has twice the width and 2 expected positives, so that it does not cover all between bulk and top;
    - it has a fifth of the rows and lies below the share of positives, where zero positives are informative.

    If that gives fewer than 6 bins, fewer than 5 expected positives are enough. Observed positives never end
    a bin, because that would bias its interval (Clopper and Pearson's).

    >>> bins = reliability_of([0] * 98 + [1] * 2, [0.01] * 90 + [0.2] * 10)
    >>> [(round(b.predicted, 3), b.observed, b.count) for b in bins]
    [(0.01, 0.0, 90), (0.2, 0.2, 10)]
    """
    from scipy.special import logit

    data = probabilities(y, probability, None)
    order = np.argsort(data.scores, kind="stable")
    p, labels = data.scores[order].astype(np.float64), np.asarray(data.labels)[order]
    log_odds = np.clip(logit(p), -40.0, 40.0)
    # The picture shows all nearly certain rows at one place, so they share one bin. The lower end is a
    # quantile, because a few rows far below the others must not make every bin wide.
    low, high = float(np.quantile(log_odds, 0.01)), min(float(log_odds[-1]), float(logit(0.95)))
    edges = np.linspace(low, high, _CELLS + 1) if low < high else np.array([low])
    cells = np.searchsorted(edges, log_odds, side="right")
    ones = np.ones(len(p))
    table = np.stack([np.bincount(cells, weights=each) for each in (ones, p, labels)]).astype(np.float64)
    groups = max((_merged(table, need) for need in (5, 3, 2, 1)), key=lambda found: min(found.shape[1], 6))
    return tuple(_bin(rows, expected, seen, (1 - level) / 2) for rows, expected, seen in groups.T)


_CELLS = 60
_NARROWEST = 6  # cells per bin: ten bins across all cells, one at the top and one for the rest below


def _merged(cells: NDArray[np.float64], need: int) -> NDArray[np.float64]:
    """Add neighbouring cells (rows, expected, observed) from the top down until each bin has enough."""
    rows, expected, positives = cells.sum(axis=1)
    # Before the link all probabilities may be too low or too high, so only their share of the sum is used.
    scale = positives / expected if expected > 0 else 0.0
    bins: list[NDArray[np.float64]] = []
    current, width = np.zeros(3), 0
    for place in range(cells.shape[1] - 1, -1, -1):
        current, width = current + cells[:, place], width + 1
        top = place == cells.shape[1] - 1
        enough = current[1] * scale >= (need if width < 2 * _NARROWEST else min(need, 2))
        bulk = current[0] >= rows / 5 and current[1] / current[0] <= expected / rows
        if (width >= _NARROWEST or top) and (enough or bulk):
            bins.append(current)
            current, width = np.zeros(3), 0
    if current[0] > 0:
        # The remainder at the bottom is a bin of its own if it has many rows, else it joins its neighbour.
        if bins and current[0] < rows / 5:
            bins[-1] = bins[-1] + current
        else:
            bins.append(current)
    return np.stack(bins[::-1], axis=1)


def _bin(rows: float, expected: float, observed: float, tail: float) -> Bin:
    from scipy.stats import beta

    missed = rows - observed
    return Bin(
        predicted=float(expected / rows),
        observed=float(observed / rows),
        low=float(beta.ppf(tail, observed, missed + 1)) if observed > 0 else 0.0,
        high=float(beta.ppf(1 - tail, observed + 1, missed)) if missed > 0 else 1.0,
        count=int(rows),
    )


def distribution_of(y: Any, log_odds: Any, *, bins: int = 80) -> Distribution:
    """Return a histogram of the log-odds by class over their common range; infinite ones go to the end bins.

    >>> distribution_of([0, 0, 1, 1], [0.0, 1.0, 1.0, 2.0], bins=2)
    Distribution(edges=(0.0, 1.0, 2.0), positives=(0, 2), negatives=(1, 1))
    """
    labels = np.asarray(y).astype(bool)
    scores = np.asarray(log_odds, dtype=np.float64)
    finite = scores[np.isfinite(scores)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (-1.0, 1.0)
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, bins + 1)
    inside = np.clip(scores, low, high)
    positives, negatives = (np.histogram(inside[chosen], edges)[0] for chosen in (labels, ~labels))
    return Distribution(tuple(edges.tolist()), tuple(positives.tolist()), tuple(negatives.tolist()))


def information_of(
    y: Any, log_odds: Any, losses: Sequence[Loss | str], prior: float, *, groups: Any = None
) -> tuple[InformationRow, ...]:
    """Return decay index, explained fraction and information of each loss in held-out scores at a prior.

    A loss without a unique minimiser has none of these and gets None. `groups` says which rows depend on each
    other.

    >>> random = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], [1000, 50])
    >>> rows = information_of(y, random.normal(size=1050) + 2 * y, ["crossentropy", "tbl"], 0.01)
    >>> [row.loss for row in rows]
    ['crossentropy', 'tbl']
    >>> rows[0].explained_fraction < rows[1].explained_fraction
    True
    """
    experiment = EmpiricalExperiment(np.asarray(y), np.asarray(log_odds, dtype=np.float64), groups)
    rho = prior / (1 - prior)
    rows = []
    for given in losses:
        loss = parse(given) if isinstance(given, str) else given
        # A loss given as text is shown as given, as in the other tables.
        shown = given if isinstance(given, str) else str(loss)
        if not loss.has_unique_minimiser:
            rows.append(InformationRow(shown, None, None, None, None, None))
            continue
        explained = explained_interval(loss, experiment, prior)
        rows.append(
            InformationRow(
                shown,
                _index(loss, rho),
                explained.estimate,
                explained.low,
                explained.high,
                explained.estimate * float(bayes_risk(loss, prior)),
            )
        )
    return tuple(rows)


def _index(loss: Loss, rho: float) -> float | None:
    """Return the decay index; None where rounding hides it."""
    try:
        return float(local_index(loss, rho).beta)
    except ValueError:
        return None
