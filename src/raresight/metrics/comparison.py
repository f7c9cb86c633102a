"""Two scores of the same rows: by how much is one better, and could it be chance?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import check_rate
from raresight.metrics._inputs import scored
from raresight.metrics._joint_recall import redrawn_recalls
from raresight.metrics._placements import paired_areas
from raresight.metrics._registry import (
    Metric,
    filled_parameters,
    known_name,
    metric_function,
    metric_title,
)
from raresight.metrics._row_bootstrap import need_weights, row_bootstrap
from raresight.metrics.calibration import probabilities
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
from raresight.metrics.ranking import check_kind, standardised

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
        level: The interval's nominal coverage.
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
        """The fields as plain values."""
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
    """The difference of a metric between two scores of the same rows, with a paired interval.

    Rows are the same for both, so most of the chance is shared and the interval is narrower than
    two separate ones suggest. `method="auto"` takes

    - `"delong"` for `roc_auc` and `partial_auc`: covariance of the rows' placements (DeLong et al. 1988; for
      the partial area placements beyond `max_fpr` count zero, as in He and Escobar 2008);
    - `"bootstrap"` for `recall_at_fpr`: the positives and those negatives that either score puts near its
      threshold are redrawn together;
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
            raise ValueError("method 'delong' has no form for weighted rows here; take 'bootstrap'.")
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
        drawn = redrawn_recalls(*rows, given["fpr"], draws, generator)
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
    # Draws exactly at zero speak for neither side, so they count for both; one is added because a finite
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
