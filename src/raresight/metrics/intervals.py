"""Confidence intervals for metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import is_tensor
from raresight.common.dependent_rows import Codes, group_codes, group_units
from raresight.metrics._bootstrap import (
    need_weights,
    reach,
    resampled,
    resampled_groups,
    row_bootstrap,
    student_quantile,
    widened,
)
from raresight.metrics._inputs import LabelledScores, check_labels, scored
from raresight.metrics._registry import (
    CurveMetric,
    Metric,
    curve_metric,
    filled_parameters,
    known_name,
    metric_function,
    metric_title,
)
from raresight.metrics._roc_steps import steps_from, steps_of
from raresight.metrics.calibration_metrics import probabilities, squared_error, surprise
from raresight.metrics.delong import area_parts, auc_interval, auc_moments
from raresight.metrics.ranking import auc_of

Method = Literal["auto", "delong", "bootstrap", "normal"]
Floats = NDArray[np.float64]

DRAWS = 2000
FEWEST = 10  # rows of a class below which a variance of placements is not trusted


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval.

    Attributes:
        metric: Name of the metric.
        estimate: The metric of the sample.
        low: Lower end of the interval.
        high: Upper end.
        level: The nominal coverage of the interval.
        method: How it was computed: "delong", "bootstrap" or "normal".
    """

    metric: str
    estimate: float
    low: float
    high: float
    level: float
    method: str

    def __str__(self) -> str:
        return f"{self.metric} {self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def interval(
    metric: Metric,
    y_true: Any,
    y_score: Any,
    *,
    level: float = 0.95,
    method: Method = "auto",
    sample_weight: Any = None,
    groups: Any = None,
    draws: int = DRAWS,
    seed: int = 0,
    **params: Any,
) -> Interval:
    r"""Return a metric with its confidence interval.

    The interval is for new samples with the same numbers of positives and negatives. `method="auto"` chooses

    - `"delong"` for `roc_auc`: the variance of DeLong et al. (1988), and Student's interval of the log-odds.
      The lower end allows for positives that the sample may lack; without that, intervals cover an AUC near 1
      far too seldom. With fewer than ten rows of a class the next method is used.
    - `"bootstrap"` for the other ranking metrics: quantiles over random curves, by a Bayesian bootstrap
      within each class with half a positive more at each end. Curves are drawn from the steps of the ROC
      curve that the metric reads. `partial_auc(max_fpr=0.01)` reads the top percent of the negatives, so a
      hundred million rows take little longer than a million.
    - `"normal"` for the means `brier_score` and `log_loss`: the variance within each class.
    - `"bootstrap"` over all rows for everything else, with an exponential weight for each row. This includes
      weighted rows and functions of your own `f(y_true, y_score, sample_weight=...)`.

    If rows depend on each other, as those of one customer do, pass `groups`. Groups are then the units: their
    sums have the variance (Obuchowski 1997), they are resampled, and quantiles are those of Student's t.

    Simulated coverage of 95 % intervals is in docs/metrics.md.

    Args:
        metric: A name such as `"partial_auc"`, a function of `raresight.metrics`, or one of your own.
        y_true: Labels 0 and 1.
        y_score: One score (or probability, or prediction) per row.
        level: The coverage. Default: 0.95.
        method: `"auto"`, `"delong"`, `"bootstrap"` or `"normal"`.
        sample_weight: A weight for each row, or None.
        groups: What each row belongs to, such as a customer or `time_blocks(times)`. Default: every row is
            independent.
        draws: Number of curves or samples that the bootstrap draws. Default: 2000.
        seed: Seed of the bootstrap.
        params: The metric's own parameters, such as `max_fpr=0.01`.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> y = np.repeat([0, 1], [20_000, 100])
        >>> score = random.normal(size=20_100) + 2 * y
        >>> print(interval("recall_at_fpr", y, score, fpr=0.01))
        recall_at_fpr 0.4800 [0.3678, 0.5739]
    """
    check_level(level)
    check_draws(draws)
    chosen = choose_method(metric, params, method, sample_weight is not None)
    codes = group_codes(groups, len(y_score))
    generator = np.random.default_rng(seed)
    if chosen == "delong" and (found := _delong(metric, y_true, y_score, codes, level)) is not None:
        return found
    if chosen == "normal":
        return _normal(metric, y_true, y_score, sample_weight, codes, level)
    reads = curve_metric(metric, params)
    if reads is not None and sample_weight is None:
        return _from_curve(metric, y_true, y_score, reads, codes, level, draws, generator)
    function = metric_function(metric)
    need_weights(function)
    given = filled_parameters(metric, params)
    estimate = float(function(y_true, y_score, sample_weight=sample_weight, **given))
    values = row_bootstrap(function, y_true, (y_score,), sample_weight, given, draws, generator, codes)[0]
    return _quantiles(metric_title(metric), estimate, values, units_or_none(y_true, codes), level)


def choose_method(metric: Metric, params: Mapping[str, Any], method: str, weighted: bool) -> str:
    """Return the given method if the metric supports it; for "auto" the best one for the metric."""
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(get_args(Method))}, but is {method!r}.")
    filled_parameters(metric, params)  # refuses parameters that the metric does not have
    name = known_name(metric)
    if method == "auto":
        if name == "roc_auc" and not weighted:
            return "delong"
        return "normal" if name in MEANS else "bootstrap"
    title = metric_title(metric)
    if method == "delong" and name != "roc_auc":
        raise ValueError(f"method 'delong' is for roc_auc, not for {title}; use 'bootstrap'.")
    if method == "delong" and weighted:
        raise ValueError("method 'delong' does not support weighted rows; use 'bootstrap'.")
    if method == "normal" and name not in MEANS:
        raise ValueError(f"method 'normal' is for {' and '.join(MEANS)}, not for {title}; use 'bootstrap'.")
    return method


MEANS: dict[str, Callable[[NDArray[np.bool_], Floats], Floats]] = {
    "brier_score": squared_error,
    "log_loss": surprise,
}


def check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.95, but is {level}.")


def check_draws(draws: int) -> None:
    if draws < 1:
        raise ValueError(
            f"draws must be at least 1, and some hundreds for a useful interval, but is {draws}."
        )


def _positives(y_true: Any) -> int:
    if is_tensor(y_true):
        return int((y_true != 0).sum())
    return int(np.count_nonzero(check_labels(y_true)))


def units_or_none(y_true: Any, codes: Codes | None) -> float | None:
    """Return the effective number of groups of the smaller class, or None without groups."""
    return None if codes is None else group_units(check_labels(y_true), codes)


def _delong(metric: Metric, y_true: Any, y_score: Any, codes: Codes | None, level: float) -> Interval | None:
    """Return None where the variance is no guide: that of a handful of rows, and zero at perfect separation.

    The bootstrap of the curve then still depends on the number of rows.
    """
    if codes is None:
        steps = steps_of(y_true, y_score)
        estimate, fewest = float(auc_of(steps)), min(steps.positives, steps.negatives)
        if fewest < FEWEST:
            return None
        units = steps.positives
        variance, lowest = auc_moments(steps)
    else:
        data = scored(y_true, y_score)
        if min(len(np.unique(codes[kind])) for kind in (data.labels, ~data.labels)) < FEWEST:
            return None
        placements, parts = area_parts((data,), 1.0, codes)
        estimate, units, variance = parts.estimate, parts.units, parts.variance
        lowest = float(placements[0].min())
    if variance <= 0:
        return None
    low, high = auc_interval(estimate, variance, units, lowest, level)
    return Interval(metric_title(metric), estimate, low, high, level, "delong")


def _from_curve(
    metric: Metric,
    y_true: Any,
    y_score: Any,
    reads: CurveMetric,
    codes: Codes | None,
    level: float,
    draws: int,
    generator: np.random.Generator,
) -> Interval:
    if codes is None:
        # A random curve may reach its limit late, so it needs steps a little beyond max_fpr.
        negatives = max(1, len(y_score) - _positives(y_true))
        steps = steps_of(y_true, y_score, None, reach(reads.max_fpr, negatives) if reads.max_fpr < 1 else 1.0)
        values = resampled(steps, reads.of, draws, generator, reads.prior)
    else:
        data = scored(y_true, y_score)
        steps = steps_from(data, reads.max_fpr)
        values = resampled_groups(data, codes, reads.of, reads.max_fpr, draws, generator, reads.prior)
    return _quantiles(
        metric_title(metric), float(reads.of(steps)), values, units_or_none(y_true, codes), level
    )


def _quantiles(name: str, estimate: float, values: Floats, units: float | None, level: float) -> Interval:
    if units is not None:
        # No end beyond all draws, so that it stays among the values that the metric can have.
        values = np.clip(widened(values, estimate, units, level), values.min(), values.max())
    tail = (1 - level) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    # The estimate itself must lie inside; in tiny samples a quantile may pass it.
    return Interval(name, estimate, min(float(low), estimate), max(float(high), estimate), level, "bootstrap")


def _normal(
    metric: Metric, y_true: Any, y_score: Any, sample_weight: Any, codes: Codes | None, level: float
) -> Interval:
    data = probabilities(y_true, y_score, sample_weight)
    errors = MEANS[metric_title(metric)](data.labels, data.scores.astype(np.float64))
    estimate, deviation, freedom = stratified_mean(data, errors, codes)
    spread = student_quantile(level, freedom) * deviation if np.isfinite(estimate) else np.inf
    low = estimate - spread if np.isfinite(estimate) else 0.0
    return Interval(metric_title(metric), estimate, max(low, 0.0), estimate + spread, level, "normal")


def stratified_mean(
    data: LabelledScores, errors: Floats, codes: Codes | None = None
) -> tuple[float, float, float]:
    """Return the weighted mean of the rows' errors, its standard deviation, and the degrees of freedom.

    The deviation is that within the classes; independent rows have infinite degrees of freedom.
    """
    weights = np.ones(len(errors)) if data.weights is None else data.weights.astype(np.float64)
    total = float(weights.sum())
    errors = np.where(weights > 0, errors, 0.0)  # a row of weight zero is absent, however wrong
    mean = float(np.sum(errors * weights)) / total
    if not np.isfinite(mean):
        return mean, np.inf, np.inf
    variance, apart = 0.0, np.zeros(len(errors))
    for chosen in (data.labels, ~data.labels):
        weight, error = weights[chosen], errors[chosen]
        if not np.any(weight > 0):
            continue
        count = int(np.count_nonzero(weight))
        # One row has no spread of its own, so its distance to the mean of all rows is used instead.
        centre = np.average(error, weights=weight) if count > 1 else mean
        apart[chosen] = weight * (error - centre) / total
        variance += float(np.sum(np.square(apart[chosen]))) * count / max(1, count - 1)
    if codes is None:
        return mean, np.sqrt(variance), np.inf
    units = units_or_none(data.labels, codes)
    assert units is not None
    sums = np.bincount(codes, weights=apart)
    return mean, np.sqrt(float(sums @ sums) * units / (units - 1)), units - 1
