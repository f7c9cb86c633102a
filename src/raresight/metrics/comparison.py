"""The difference of a metric between two scores of the same rows, with a paired interval."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import check_rate
from raresight.common.dependent_rows import Codes, group_codes
from raresight.metrics._bootstrap import (
    DRAWN_TOGETHER,
    mean_size,
    need_weights,
    reach,
    row_bootstrap,
    student_quantile,
    sum_of_weights,
    widened,
)
from raresight.metrics._inputs import LabelledScores, scored
from raresight.metrics._registry import (
    Metric,
    filled_parameters,
    known_name,
    metric_function,
    metric_title,
)
from raresight.metrics._sign_flips import flip_test
from raresight.metrics._tail import tail_positions
from raresight.metrics.calibration_metrics import probabilities
from raresight.metrics.delong import Parts, area_parts, grouped_parts
from raresight.metrics.intervals import (
    DRAWS,
    MEANS,
    Method,
    check_draws,
    check_level,
    choose_method,
    stratified_mean,
    units_or_none,
)
from raresight.metrics.ranking import check_kind, standardised
from raresight.metrics.threshold import NoThresholdError, threshold_at_fpr

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
        standard_error: Of the difference; the interval need not be symmetric.
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
    standard_error: float = math.nan

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
    groups: Any = None,
    draws: int = DRAWS,
    seed: int = 0,
    **params: Any,
) -> Comparison:
    """Return the difference of a metric between two scores of the same rows, with a paired interval.

    Both scores share the chance of the rows, so the interval is narrower than two separate ones suggest.
    `method="auto"` chooses

    - `"delong"` for `roc_auc` and `partial_auc`: placements of the rows (`delong.py`). The p value is that of
      flipping the signs of the positives' differences (`_sign_flips.py`). The end nearer to zero agrees with
      it. The other end also allows for skewness (Hall 1992).
    - `"bootstrap"` for `recall_at_fpr`: the same with the positives that one score alone catches. What the
      thresholds add is drawn from the negatives near them.
    - `"normal"` for `brier_score` and `log_loss`; `"bootstrap"` over all rows for everything else.

    Rejection rates of true hypotheses are in docs/metrics.md. Arguments are those of `interval`.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> y = np.repeat([0, 1], [20_000, 100])
        >>> good = random.normal(size=20_100) + 2 * y
        >>> worse = good + 0.5 * random.normal(size=20_100)
        >>> print(compare("roc_auc", y, good, worse))
        roc_auc 0.9355 - 0.9053 = +0.0302 [+0.0133, +0.0507], p = 0.00022
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
    if weighted and chosen == "delong":
        raise ValueError("method 'delong' does not support weighted rows; use 'bootstrap'.")
    codes = group_codes(groups, len(score_a))
    if chosen == "normal":
        return _of_means(name, y_true, score_a, score_b, sample_weight, codes, level)
    generator = np.random.default_rng(seed)
    if chosen == "delong" or (ours and name == "recall_at_fpr" and not weighted and not given["interpolate"]):
        rows = scored(y_true, score_a, name="score_a"), scored(y_true, score_b, name="score_b")
        _need_units(rows[0].labels, codes)
        if chosen == "delong":
            return _of_areas(name, rows, given, codes, level)
        parts = recall_parts(*rows, given["fpr"], draws, generator, codes)
        a, b = (float(np.mean(_caught(one, given["fpr"]))) for one in rows)
        return _of_parts(name, (a, b), parts, 1.0, level, "bootstrap")
    function = metric_function(metric)
    need_weights(function)
    value_a = float(function(y_true, score_a, sample_weight=sample_weight, **given))
    value_b = float(function(y_true, score_b, sample_weight=sample_weight, **given))
    drawn = row_bootstrap(function, y_true, (score_a, score_b), sample_weight, given, draws, generator, codes)
    differences = drawn[0] - drawn[1]
    units = units_or_none(y_true, codes)
    if units is not None:
        differences = widened(differences, value_a - value_b, units, level)
    return _from_draws(name, value_a, value_b, differences, level)


def _need_units(labels: NDArray[np.bool_], codes: Codes | None) -> None:
    for kind in (labels, ~labels):
        if (np.count_nonzero(kind) if codes is None else len(np.unique(codes[kind]))) < 2:
            what = "rows" if codes is None else "groups with rows"
            raise ValueError(f"A comparison needs at least two {what} of each class; one shows no variance.")


def _of_areas(
    name: str,
    rows: tuple[LabelledScores, LabelledScores],
    given: dict[str, Any],
    codes: Codes | None,
    level: float,
) -> Comparison:
    max_fpr = check_rate(given.get("max_fpr", 1.0), "max_fpr")
    kind = check_kind(given.get("kind", "area"))
    placements, parts = area_parts(rows, max_fpr, codes)
    if parts.estimate and parts.variance <= 0:
        # All rows agree, as for a perfect score against a constant one. A row that disagrees has a
        # probability of about one in the number of rows.
        fewest = min(parts.units, rows[0].negatives)
        parts = parts._replace(rest=(max_fpr / (fewest + 1)) ** 2)
    a, b = (float(standardised(np.mean(one), max_fpr, kind)) for one in placements)
    limit = float(standardised(max_fpr, max_fpr, kind) - standardised(0.0, max_fpr, kind))
    found = _of_parts(name, (a, b), parts.scaled(limit / max_fpr), limit, level, "delong")
    if np.any(parts.own) or np.array_equal(rows[0].scores, rows[1].scores):
        return found
    # No positive differs, as where both scores put all of them beyond `max_fpr`. The share of positives that
    # may differ all the same is that of Clopper and Pearson (1934) for none of so many.
    unseen = limit * (1 - (1 - level) ** (1 / parts.units))
    return replace(found, low=min(found.low, -unseen), high=max(found.high, unseen))


def _of_parts(
    name: str, values: tuple[float, float], parts: Parts, limit: float, level: float, method: str
) -> Comparison:
    """Return the comparison by flips of the parts; differences beyond the limit are impossible."""
    difference = parts.estimate
    p_value, half = flip_test(parts, level)
    ends = [difference - half, difference + half]
    # Far from zero flips know nothing of skewness: most of a large difference may lie in a few positives.
    skewed = skewed_interval(difference, parts, student_quantile(level))
    if difference <= 0:
        ends[0] = min(ends[0], skewed[0])
    if difference >= 0:
        ends[1] = max(ends[1], skewed[1])
    low, high = np.clip(ends, -limit, limit)
    a, b = values
    error = math.sqrt(parts.variance)
    return Comparison(name, a, b, difference, float(low), float(high), p_value, level, method, error)


def skewed_interval(estimate: float, parts: Parts, quantile: float) -> tuple[float, float]:
    r"""Return the two-sided interval of a mean, corrected for skewness (Hall 1992).

    :math:`T = (\hat\theta - \theta)/s` is far from normal if most terms are equal and a few are not. Its
    cubic :math:`g(T) = T + \tfrac{\gamma}{3}T^2 + \tfrac{\gamma^2}{27}T^3 + \tfrac{\gamma}{6}` is monotone,
    and it is normal to the next order. The ends are :math:`\hat\theta - s\,g^{-1}(\pm z)`.
    """
    slope = parts.skewness / 3
    targets = np.array([quantile, -quantile])
    # Without skewness the inverse of the cubic would be 0/0.
    if abs(slope) < 1e-9:
        deviations = targets
    else:
        deviations = (np.cbrt(1 + 3 * slope * (targets - parts.skewness / 6)) - 1) / slope
    low, high = estimate - np.sqrt(parts.variance) * deviations
    return float(low), float(high)


def _from_draws(name: str, a: float, b: float, differences: Floats, level: float) -> Comparison:
    tail = (1 - level) / 2
    low, high = np.quantile(differences, [tail, 1 - tail])
    # Draws exactly at zero favour neither side, so both sides include them. One is added because a finite
    # number of draws cannot show a probability of zero.
    least = min(np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0))
    p_value = min(1.0, 2 * (least + 1) / (len(differences) + 1))
    low, high = min(float(low), a - b), max(float(high), a - b)
    return Comparison(name, a, b, a - b, low, high, p_value, level, "bootstrap", float(np.std(differences)))


def _of_means(
    name: str,
    y_true: Any,
    score_a: Any,
    score_b: Any,
    sample_weight: Any,
    codes: Codes | None,
    level: float,
) -> Comparison:
    from scipy.special import stdtr

    error = MEANS[name]
    data = [probabilities(y_true, score, sample_weight) for score in (score_a, score_b)]
    each = [error(one.labels, one.scores.astype(np.float64)) for one in data]
    a, b = (stratified_mean(data[0], errors)[0] for errors in each)
    if not np.isfinite(a + b):
        raise ValueError(
            f"{name} is infinite for one of the scores (a probability of exactly 0 or 1 that was wrong), "
            "so no difference is defined."
        )
    difference = a - b
    _, deviation, freedom = stratified_mean(data[0], each[0] - each[1], codes)
    half = student_quantile(level, freedom) * deviation
    if deviation > 0:
        p_value = float(2 * stdtr(freedom, -abs(difference) / deviation))
    else:
        p_value = float(difference == 0)
    low, high = difference - half, difference + half
    return Comparison(name, a, b, difference, low, high, p_value, level, "normal", float(deviation))


# ---- the recalls of two scores at a rate -------------------------------------------------


def recall_parts(
    a: LabelledScores,
    b: LabelledScores,
    fpr: float,
    draws: int,
    generator: np.random.Generator,
    codes: Codes | None = None,
) -> Parts:
    """Return what the positives, or groups with positives, add to the difference of two recalls.

    The negatives only set the thresholds. The variance that this adds is that of Bayesian bootstrap draws.
    """
    caught = [_caught(one, fpr).astype(np.float64) for one in (a, b)]
    gains = (caught[0] - caught[1]) / len(caught[0])
    if codes is None:
        parts = Parts(gains, np.full(len(gains), 1 / len(gains)), 0.0, 0.0)
    else:
        parts = grouped_parts(gains, codes[a.labels], np.zeros(int(codes.max()) + 1))
    noise = _threshold_noise(a, b, fpr, draws, generator, codes)
    # Half a positive that one score alone catches: where both catch all or nothing, the interval has a width.
    return parts._replace(rest=max(noise, 0.5 / parts.units**2))


# The variance of a standard normal clipped at 1.96: 0.95 - 2 * 1.96 * 0.0584 + 1.96^2 * 0.05.
_CLIPPED_NORMAL = 0.9129


def _caught(data: LabelledScores, fpr: float) -> NDArray[np.bool_]:
    """Return which positives are above the threshold that keeps the rate."""
    scores = data.scores[data.labels]
    try:
        return np.asarray(scores >= threshold_at_fpr(data.labels, data.scores, fpr))
    except NoThresholdError:
        return np.zeros(len(scores), dtype=np.bool_)


def _threshold_noise(
    a: LabelledScores,
    b: LabelledScores,
    fpr: float,
    draws: int,
    generator: np.random.Generator,
    codes: Codes | None,
) -> float:
    """Return the variance of the difference of the recalls, for any positives, under redrawn negatives.

    Negatives far below both thresholds share one draw, because only their total matters.
    """
    negatives = int(a.negatives)
    wanted = reach(fpr, negatives) * negatives
    near = np.union1d(_highest_negatives(a, wanted), _highest_negatives(b, wanted))
    if codes is None:
        owner, sizes, others = np.arange(len(near)), np.ones(len(near)), np.ones(negatives - len(near))
    else:
        every = np.bincount(codes[~a.labels]).astype(np.float64)
        units, owner = np.unique(codes[near], return_inverse=True)
        sizes, others = every[units], np.delete(every, units)
    # n negatives leave n + 1 pieces; the last piece is beyond all of them.
    last = mean_size(np.concatenate([sizes, others]))
    readers = [_ThresholdReader(one.scores[near], one.scores[a.labels]) for one in (a, b)]
    positives = len(readers[0].standing)
    batch = max(1, DRAWN_TOGETHER // (len(near) + positives + 1))
    sums, squares, drawn = np.zeros(positives), np.zeros(positives), []
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        weights = generator.standard_exponential((size, len(sizes)))
        total = weights @ sizes + sum_of_weights(others, size, generator)
        total += last * generator.standard_exponential(size)
        caught = [reader.caught(weights, owner, total * fpr) for reader in readers]
        gains = caught[0].astype(np.int8) - caught[1]
        sums += gains.sum(axis=0)
        squares += np.count_nonzero(gains, axis=0)
        drawn.append(gains.mean(axis=1))
    means = np.concatenate(drawn)
    # A threshold just below a group of ties jumps far once in many draws. The test need not allow for so rare
    # a jump: the tails are clipped, and the variance is that of a normal clipped as far.
    low, high = np.quantile(means, [0.025, 0.975])
    variance = float(np.var(np.clip(means, low, high))) / _CLIPPED_NORMAL
    # The chance of each positive's own place near a threshold is in the positives' parts already.
    own = float(np.sum(squares / draws - np.square(sums / draws)))
    return max(0.0, (variance * positives**2 - own) / (positives * (positives - 1)))


def _highest_negatives(data: LabelledScores, count: float) -> NDArray[np.intp]:
    """Return the places of the `count` negatives with the highest scores, and of those tied with the last."""
    where = tail_positions(data, count)
    where = where[~data.labels[where]]
    place = max(0, len(where) - int(np.ceil(count)))
    scores = data.scores[where]
    return np.asarray(where[scores >= np.partition(scores, place)[place]])


class _ThresholdReader:
    """Which positives one score catches at a rate, for many weightings of the negatives."""

    def __init__(self, negative: NDArray[Any], positive: NDArray[Any]) -> None:
        self.order = np.argsort(negative)[::-1]
        # How many of the near negatives are at or above each positive.
        self.standing = len(negative) - np.searchsorted(negative[self.order[::-1]], positive, side="left")

    def caught(self, weights: Floats, owner: NDArray[np.intp], allowed: Floats) -> NDArray[np.bool_]:
        passed = np.cumsum(weights[:, owner[self.order]], axis=1)
        kept = np.sum(passed <= allowed[:, None], axis=1)  # negatives within the budget
        return np.asarray(self.standing <= kept[:, None])
