"""The difference of a metric between two scores of the same rows, with a paired interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import blocks, check_rate
from raresight.metrics._bootstrap import DRAWN_TOGETHER, need_weights, reach, row_bootstrap
from raresight.metrics._counting import negatives_above
from raresight.metrics._inputs import LabelledScores, scored
from raresight.metrics._registry import (
    Metric,
    filled_parameters,
    known_name,
    metric_function,
    metric_title,
)
from raresight.metrics._tail import tail_positions
from raresight.metrics.calibration_metrics import probabilities
from raresight.metrics.delong import Spread, skewed_interval, skewed_p_value
from raresight.metrics.intervals import (
    DRAWS,
    MEANS,
    Method,
    check_draws,
    check_level,
    choose_method,
    normal_quantile,
    stratified_mean,
)
from raresight.metrics.ranking import check_kind, standardised, width_inside

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """The difference a - b of a metric of two scores, with a paired interval.

    Attributes:
        metric: Name of the metric.
        a: The metric of the first score.
        b: The metric of the second.
        difference: a - b.
        low: Lower end of the interval of the difference.
        high: Upper end.
        p_value: Two-sided, for the hypothesis of no difference.
        level: The nominal coverage of the interval.
        method: "delong", "bootstrap" or "normal".
    """

    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float
    level: float
    method: str

    def __str__(self) -> str:
        return (
            f"{self.metric} {self.a:.4f} - {self.b:.4f} = {self.difference:+.4f} "
            f"[{self.low:+.4f}, {self.high:+.4f}], p = {self.p_value:.2g}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def compare(
    metric: Metric,
    y_true: Any,
    score_a: Any,
    score_b: Any,
    *,
    level: float = 0.95,
    method: Method = "auto",
    sample_weight: Any = None,
    draws: int = DRAWS,
    seed: int = 0,
    **params: Any,
) -> Comparison:
    """Return the difference of a metric between two scores of the same rows, with a paired interval.

    Both scores share the chance of the rows, so the interval is narrower than two separate ones suggest.
    `method="auto"` chooses

    - `"delong"` for `roc_auc` and `partial_auc`: covariance of the rows' placements (DeLong et al. 1988). For
      the partial area, placements beyond `max_fpr` count zero, as in He and Escobar (2008).
    - `"bootstrap"` for `recall_at_fpr`: the positives, and the negatives near either score's threshold, are
      resampled together;
    - `"normal"` for `brier_score` and `log_loss`; `"bootstrap"` over all rows for everything else.

    Arguments are those of `interval`.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> y = np.repeat([0, 1], [20_000, 100])
        >>> good = random.normal(size=20_100) + 2 * y
        >>> worse = good + 0.5 * random.normal(size=20_100)
        >>> print(compare("roc_auc", y, good, worse))
        roc_auc 0.9355 - 0.9053 = +0.0302 [+0.0155, +0.0507], p = 0.00045
    """
    check_level(level)
    check_draws(draws)
    name, given = metric_title(metric), filled_parameters(metric, params)
    ours = known_name(metric) is not None
    weighted = sample_weight is not None
    if ours and name == "partial_auc" and (method == "delong" or (method == "auto" and not weighted)):
        chosen = "delong"
    else:
        chosen = choose_method(metric, params, method, weighted)
    if chosen == "delong":
        if weighted:
            raise ValueError("method 'delong' does not support weighted rows; use 'bootstrap'.")
        return _of_areas(name, y_true, score_a, score_b, given, level)
    if chosen == "normal":
        return _of_means(name, y_true, score_a, score_b, sample_weight, level)
    function = metric_function(metric)
    need_weights(function)
    value_a = float(function(y_true, score_a, sample_weight=sample_weight, **given))
    value_b = float(function(y_true, score_b, sample_weight=sample_weight, **given))
    generator = np.random.default_rng(seed)
    if ours and name == "recall_at_fpr" and not weighted and not given["interpolate"]:
        rows = scored(y_true, score_a, name="score_a"), scored(y_true, score_b, name="score_b")
        drawn = resampled_recalls(*rows, given["fpr"], draws, generator)
    else:
        drawn = row_bootstrap(function, y_true, (score_a, score_b), sample_weight, given, draws, generator)
    return _from_draws(name, value_a, value_b, drawn[0] - drawn[1], level)


def _of_areas(
    name: str, y_true: Any, score_a: Any, score_b: Any, given: dict[str, Any], level: float
) -> Comparison:
    max_fpr = check_rate(given.get("max_fpr", 1.0), "max_fpr")
    kind = check_kind(given.get("kind", "area"))
    rows = scored(y_true, score_a, name="score_a"), scored(y_true, score_b, name="score_b")
    area_a, area_b, spread = paired_areas(*rows, max_fpr)
    a, b = (float(standardised(area, max_fpr, kind)) for area in (area_a, area_b))
    stretch = float(standardised(1.0, max_fpr, kind) - standardised(0.0, max_fpr, kind))
    spread = Spread(spread.variance * stretch**2, spread.skewness)
    return _from_spread(name, a, b, (area_a - area_b) * stretch, spread, level, "delong")


def _from_draws(name: str, a: float, b: float, differences: Floats, level: float) -> Comparison:
    tail = (1 - level) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    # Draws exactly at zero favour neither side, so both sides include them. One is added because a finite
    # number of draws cannot show a probability of zero.
    least = min(np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0))
    p_value = min(1.0, 2 * (least + 1) / (len(differences) + 1))
    return Comparison(
        name, a, b, a - b, min(float(low), a - b), max(float(high), a - b), p_value, level, "bootstrap"
    )


def _from_spread(
    name: str, a: float, b: float, difference: float, spread: Spread, level: float, method: str
) -> Comparison:
    low, high = skewed_interval(difference, spread, normal_quantile(level))
    p_value = skewed_p_value(difference, spread)
    return Comparison(name, a, b, difference, low, high, p_value, level, method)


def _of_means(
    name: str, y_true: Any, score_a: Any, score_b: Any, sample_weight: Any, level: float
) -> Comparison:
    error = MEANS[name]
    data = [probabilities(y_true, score, sample_weight) for score in (score_a, score_b)]
    each = [error(one.labels, one.scores.astype(np.float64)) for one in data]
    means = [stratified_mean(data[0], errors)[0] for errors in each]
    if not np.all(np.isfinite(means)):
        raise ValueError(
            f"{name} is infinite for one of the scores (a probability of exactly 0 or 1 that was wrong), "
            "so no difference is defined."
        )
    _, variance = stratified_mean(data[0], each[0] - each[1])
    spread = Spread(variance, 0.0)
    return _from_spread(name, means[0], means[1], means[0] - means[1], spread, level, "normal")


# ---- the paired difference of two areas --------------------------------------------------
#
# A positive adds to the area the share of negatives below it. A negative takes from it the share of positives
# below it (DeLong et al. 1988). For a partial area only the part above the threshold of `max_fpr` counts
# (He and Escobar 2008). The variance of a difference is that of the rows' differences, class by class.


def paired_areas(a: LabelledScores, b: LabelledScores, max_fpr: float) -> tuple[float, float, Spread]:
    """Return both areas between the rates 0 and `max_fpr`, and the spread of their difference."""
    fewest = min(np.count_nonzero(a.labels), np.count_nonzero(~a.labels))
    if fewest < 2:
        raise ValueError("A comparison needs at least two rows of each class; one shows no variance.")
    sides = [_Side(one, max_fpr) for one in (a, b)]
    gains = sides[0].placements() - sides[1].placements()
    positive = _moments(len(gains), *(float(np.sum(gains**power)) for power in (1, 2, 3)))
    negative = _pull_moments(a, b, sides)
    variance, third = positive[0] + negative[0], positive[1] + negative[1]
    # Both areas from the same placements as their difference, so that a - b is exactly what is tested.
    areas = [float(np.mean(side.placements())) for side in sides]
    if variance <= 0 and areas[0] != areas[1]:
        # All rows agree, as for a perfect score against a constant one. A row that disagrees has a
        # probability of about one in the number of rows.
        variance = (max_fpr / (fewest + 1)) ** 2
    return areas[0], areas[1], Spread(variance, third / variance**1.5 if variance > 0 else 0.0)


class _Side:
    """One score of the rows: what each row adds to or takes from its partial area."""

    def __init__(self, data: LabelledScores, max_fpr: float) -> None:
        self.values, self.place, counts = np.unique(
            data.scores[data.labels], return_inverse=True, return_counts=True
        )
        above, through = negatives_above(data, self.values)
        start, end = above / data.negatives, through / data.negatives
        self.width = width_inside(start, end, max_fpr)
        # How much the width shrinks when one more negative lies above the step, or ties with it. Inside the
        # limit it is one half each. Where the limit cuts the diagonal of the step, at the share `cut`, these
        # are the derivatives of (f - start)^2 / (2 (end - start)).
        cut = np.clip((max_fpr - start) / np.where(end > start, end - start, 1.0), 0.0, 1.0)
        inside = end <= max_fpr
        by_above = np.where(inside, 0.5, cut - cut**2 / 2)
        by_tie = np.where(inside, 0.5, cut**2 / 2)
        shares = counts / counts.sum()
        self.below = np.concatenate([[0.0], np.cumsum(shares * by_above)])
        self.through = np.concatenate([[0.0], np.cumsum(shares * by_tie)])
        reached = np.flatnonzero(by_above + by_tie > 0)
        self.floor = self.values[reached[0]] if len(reached) else np.inf

    def placements(self) -> Floats:
        """Return the part of the area that each positive row adds, times the number of positives."""
        return np.asarray(self.width[self.place])

    def pull(self, scores: NDArray[np.floating[Any]]) -> Floats:
        """Return what a negative of each score takes from the area, times the number of negatives."""
        taken = np.zeros(len(scores))
        near = np.flatnonzero(scores >= self.floor)
        taken[near] = self.below[np.searchsorted(self.values, scores[near], side="left")]
        taken[near] += self.through[np.searchsorted(self.values, scores[near], side="right")]
        return taken


def _pull_moments(a: LabelledScores, b: LabelledScores, sides: list[_Side]) -> tuple[float, float]:
    """Return the variance and third moment that the negatives add to the difference."""
    sums = np.zeros(3)
    for rows in blocks(len(a)):
        negative = ~a.labels[rows]
        # The part that a negative takes lowers the area, so the difference is b's pull minus a's.
        apart = sides[1].pull(b.scores[rows][negative]) - sides[0].pull(a.scores[rows][negative])
        sums += [apart.sum(), np.square(apart).sum(), (apart**3).sum()]
    return _moments(int(np.count_nonzero(~a.labels)), *sums)


def _moments(count: int, first: float, second: float, third: float) -> tuple[float, float]:
    """Return the variance and third central moment of a mean, from the sums of powers."""
    mean = first / count
    variance = max(0.0, (second - count * mean**2) / (count - 1))
    central = third / count - 3 * mean * second / count + 2 * mean**3
    return variance / count, central / count**2


# ---- the recalls of two scores at a rate, resampled together -----------------------------


def resampled_recalls(
    a: LabelledScores, b: LabelledScores, fpr: float, draws: int, generator: np.random.Generator
) -> Floats:
    """Return the recalls of both scores under random weights of the rows, (2, draws).

    Negatives far below both thresholds share one draw, because only their total matters.
    """
    negatives = a.negatives
    wanted = reach(fpr, negatives) * negatives
    near = np.union1d(_highest_negatives(a, wanted), _highest_negatives(b, wanted))
    positive = np.flatnonzero(a.labels)
    rest = negatives - len(near)
    readers = [_RecallReader(one.scores[near], one.scores[positive]) for one in (a, b)]
    # Positives with the same standing in both lists share one draw.
    both = np.stack([reader.standing for reader in readers])
    standing, counts = np.unique(both, axis=1, return_counts=True)
    for reader, places in zip(readers, standing, strict=True):
        reader.arrange(places)
    batch = max(1, DRAWN_TOGETHER // (len(near) + len(counts) + 1))
    found = []
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        weights = generator.standard_exponential((size, len(near)))
        # n negatives leave n + 1 pieces; the last piece belongs to the negatives far below.
        total = weights.sum(axis=1) + generator.standard_gamma(rest + 1.0, size)
        shares = generator.standard_gamma(counts.astype(np.float64), (size, len(counts)))
        # A quarter of a positive that only a catches, and one that only b catches. Without them an interval
        # would shrink to a point where both catch almost nothing.
        alone = generator.standard_gamma(0.25, (2, size))
        whole = shares.sum(axis=1) + alone.sum(axis=0)
        caught = np.stack([reader.recall(weights, total * fpr, shares) for reader in readers])
        found.append((caught + alone) / whole)
    return np.concatenate(found, axis=1)


def _highest_negatives(data: LabelledScores, count: float) -> NDArray[np.intp]:
    """Return the places of the `count` negatives with the highest scores, and of those tied with the last."""
    where = tail_positions(data, count)
    where = where[~data.labels[where]]
    place = max(0, len(where) - int(np.ceil(count)))
    scores = data.scores[where]
    return np.asarray(where[scores >= np.partition(scores, place)[place]])


class _RecallReader:
    """Recall at a rate of one score, for many weightings of the same rows."""

    def __init__(self, negative: NDArray[Any], positive: NDArray[Any]) -> None:
        self.order = np.argsort(negative)[::-1]
        # How many of the near negatives are at or above each positive.
        self.standing = len(negative) - np.searchsorted(negative[self.order[::-1]], positive, side="left")
        self.arrange(self.standing)

    def arrange(self, standing: NDArray[np.intp]) -> None:
        """Sort groups of positives by how many negatives are at or above them."""
        self.group_order = np.argsort(standing, kind="stable")
        self.through = standing[self.group_order]

    def recall(self, weights: Floats, allowed: Floats, shares: Floats) -> Floats:
        passed = np.cumsum(weights[:, self.order], axis=1)
        kept = np.sum(passed <= allowed[:, None], axis=1)  # negatives within the budget
        caught = np.cumsum(shares[:, self.group_order], axis=1)
        last = np.searchsorted(self.through, kept, side="right")
        return np.asarray(np.where(last > 0, caught[np.arange(len(kept)), last - 1], 0.0))
