"""All metrics of one score in one record, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from raresight.common.checks import as_vector, check_rate
from raresight.metrics._inputs import scored
from raresight.metrics.calibration_metrics import calibration_error
from raresight.metrics.intervals import Interval, interval
from raresight.metrics.threshold import NoThresholdError, threshold_at_fpr


@dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`. Rates are fractions; `print` shows a table, `to_dict` gives plain values.

    Attributes:
        rows: Number of rows.
        positives: Number of positive rows.
        prior: Share of positives, weighted if there are weights.
        max_fpr: The largest false-positive rate of `partial_auc`.
        fpr: The false-positive rate of `recall_at_fpr` and `threshold`.
        intervals: The metrics with intervals, by name.
        threshold: The lowest threshold that keeps `fpr` in the sample; alerts are scores >= threshold.
            Infinity, and no alerts, if too many negatives have an infinite score.
        alerts: Number of rows at or above the threshold. Like `rows` and `positives`, a count even with
            weights.
        precision: Share of positives among the alerts, weighted if there are weights; NaN without alerts.
        calibration: Calibration errors by name, empty without probabilities.
    """

    rows: int
    positives: int
    prior: float
    max_fpr: float
    fpr: float
    intervals: dict[str, Interval]
    threshold: float
    alerts: int
    precision: float
    calibration: dict[str, float]

    def __getitem__(self, name: str) -> Interval:
        """Return the interval of one metric."""
        return self.intervals[name]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings and dictionaries, ready for JSON."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "intervals"}
        return {
            **plain,
            "calibration": dict(self.calibration),
            "intervals": {name: found.to_dict() for name, found in self.intervals.items()},
        }

    def __str__(self) -> str:
        level = next(iter(self.intervals.values())).level
        titles = {
            "roc_auc": "AUC",
            "partial_auc": f"partial AUC, FPR <= {self.max_fpr:g} (McClish)",
            "recall_at_fpr": f"recall at FPR {self.fpr:g}",
            "average_precision": "average precision",
            "brier_score": "Brier score",
            "log_loss": "log loss",
        }
        lines = [
            f"{self.rows:,} rows, {self.positives:,} positive (1 in {1 / self.prior:,.0f})",
            f"{'':<36}{'estimate':>11}   {level:.0%} interval",
        ]
        lines += [
            f"{titles[name]:<36}{_number(found.estimate):>11}   {_number(found.low)} to {_number(found.high)}"
            for name, found in self.intervals.items()
        ]
        lines.append(f"{'alerts, score >= ' + format(self.threshold, '.6g'):<36}{self.alerts:>11,}")
        lines.append(f"{'precision of the alerts':<36}{_number(self.precision):>11}")
        lines += [
            f"{name.replace('_', ' '):<36}{_number(value):>11}" for name, value in self.calibration.items()
        ]
        return "\n".join(lines)


def evaluate(
    y_true: Any,
    y_score: Any,
    *,
    probability: Any = None,
    max_fpr: float = 0.01,
    fpr: float = 0.001,
    threshold: float | None = None,
    level: float = 0.95,
    sample_weight: Any = None,
    groups: Any = None,
    seed: int = 0,
) -> Evaluation:
    """Evaluate a score, and its probabilities if given: ranking, alerts at a budget, calibration.

    Args:
        y_true: Labels 0 and 1.
        y_score: One score per row, any range.
        probability: The probability of the positive class for each row, or None.
        max_fpr: Largest false-positive rate of the partial AUC. Default: 0.01.
        fpr: The false-positive budget of the threshold. Default: 0.001.
        threshold: Scores from here on raise an alert. Default: the lowest threshold that keeps the budget.
        level: Coverage of the intervals. Default: 0.95.
        sample_weight: A weight for each row, or None. Weighted intervals resample all rows, which is slow on
            large data.
        groups: What each row belongs to, as for `interval`. Default: every row is independent.
        seed: Seed of the resampling.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> y = np.repeat([0, 1], [50_000, 100])
        >>> z = random.normal(size=50_100) + 3 * y
        >>> result = evaluate(y, z)
        >>> print(result)
        50,100 rows, 100 positive (1 in 501)
                                               estimate   95% interval
        AUC                                      0.9732   0.9524 to 0.9845
        partial AUC, FPR <= 0.01 (McClish)       0.8005   0.7555 to 0.8405
        recall at FPR 0.001                      0.4500   0.3595 to 0.5562
        average precision                        0.4300   0.3233 to 0.5235
        alerts, score >= 3.0989                      95
        precision of the alerts                  0.4737
        >>> round(result["roc_auc"].low, 3)
        0.952
    """
    max_fpr, fpr = check_rate(max_fpr, "max_fpr"), check_rate(fpr, "fpr")
    data = scored(y_true, y_score, sample_weight)
    positives = int(np.count_nonzero(data.labels))
    shared: dict[str, Any] = {"level": level, "sample_weight": sample_weight, "groups": groups, "seed": seed}
    found = {
        "roc_auc": interval("roc_auc", y_true, y_score, **shared),
        "partial_auc": interval("partial_auc", y_true, y_score, max_fpr=max_fpr, **shared),
        "recall_at_fpr": interval("recall_at_fpr", y_true, y_score, fpr=fpr, **shared),
        "average_precision": interval("average_precision", y_true, y_score, **shared),
    }
    calibration: dict[str, float] = {}
    if probability is not None:
        given = {"sample_weight": sample_weight}
        found["brier_score"] = interval("brier_score", y_true, probability, **shared)
        found["log_loss"] = interval("log_loss", y_true, probability, **shared)
        chance = as_vector(probability, "probability")
        calibration = {
            "calibration_error": calibration_error(y_true, probability, **given),
            "log_calibration_error": calibration_error(y_true, probability, scale="log", **given),
            "mean_probability": float(np.average(chance, weights=data.weights)),
        }
    try:
        if threshold is None:
            threshold = threshold_at_fpr(data.labels, data.scores, fpr, sample_weight=data.weights)
        is_alert = data.scores >= threshold
    except NoThresholdError:
        # Too many negatives have the score infinity, so only a threshold without alerts keeps the rate.
        threshold, is_alert = np.inf, np.zeros(len(data), dtype=bool)
    weight = data.weights
    right = is_alert & data.labels
    caught = np.count_nonzero(right) if weight is None else weight[right].sum()
    raised = np.count_nonzero(is_alert) if weight is None else weight[is_alert].sum()
    return Evaluation(
        rows=len(data),
        positives=positives,
        prior=data.positives / (data.positives + data.negatives),
        max_fpr=max_fpr,
        fpr=fpr,
        intervals=found,
        threshold=threshold,
        alerts=int(np.count_nonzero(is_alert)),
        precision=float(caught / raised) if raised > 0 else float("nan"),
        calibration=calibration,
    )


def _number(value: float) -> str:
    """Format four digits: 0.9876, 1.234e-05."""
    return f"{value:.4f}" if value >= 0.001 or value == 0 else f"{value:.3e}"
