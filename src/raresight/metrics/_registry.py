"""The metrics by name: their input, their parameters, and how they read the ROC curve."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import check_rate
from raresight.metrics import ranking
from raresight.metrics._roc_steps import RocSteps
from raresight.metrics.accuracy import balanced_accuracy, minority_accuracy
from raresight.metrics.calibration_metrics import brier_score, calibration_error, log_loss

Floats = NDArray[np.float64]
Metric = str | Callable[..., float]


@dataclass(frozen=True)
class KnownMetric:
    """A metric, the model output that it reads, and the parameter for its place on the curve."""

    function: Callable[..., float]
    reads: Literal["score", "probability", "label"]
    place: str | None = None


METRICS: dict[str, KnownMetric] = {
    "roc_auc": KnownMetric(ranking.roc_auc, "score"),
    "partial_auc": KnownMetric(ranking.partial_auc, "score", place="max_fpr"),
    "recall_at_fpr": KnownMetric(ranking.recall_at_fpr, "score", place="fpr"),
    "average_precision": KnownMetric(ranking.average_precision, "score"),
    "precision_at_recall": KnownMetric(ranking.precision_at_recall, "score", place="recall"),
    "brier_score": KnownMetric(brier_score, "probability"),
    "log_loss": KnownMetric(log_loss, "probability"),
    "calibration_error": KnownMetric(calibration_error, "probability"),
    "minority_accuracy": KnownMetric(minority_accuracy, "label"),
    "balanced_accuracy": KnownMetric(balanced_accuracy, "label"),
}


def known_name(metric: Metric) -> str | None:
    """Return the name of a metric given by name or function; None for a user's function."""
    if isinstance(metric, str):
        if metric in METRICS:
            return metric
    else:
        for name, known in METRICS.items():
            if known.function is metric:
                return name
        if callable(metric):
            return None
    raise ValueError(f"Unknown metric {metric!r}; known are {', '.join(METRICS)}.")


def find_metric(metric: Metric) -> str:
    """Return the name of a metric of this package, given by name or function; refuse anything else."""
    name = known_name(metric)
    if name is None:
        raise ValueError(f"Unknown metric {metric!r}; known are {', '.join(METRICS)}.")
    return name


def metric_function(metric: Metric) -> Callable[..., float]:
    name = known_name(metric)
    return METRICS[name].function if name is not None else metric  # type: ignore[return-value]


def metric_title(metric: Metric) -> str:
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", metric))


def check_params(name: str, params: Mapping[str, Any]) -> None:
    """Refuse parameters that the metric would refuse, before a model is fitted."""
    accepted = parameters(name)
    for param in params:
        if param not in accepted:
            takes = f"takes {', '.join(accepted)}" if accepted else "takes none"
            raise TypeError(f"{name} has no parameter {param!r}; it {takes}.")
    METRICS[name].function([0, 1], [0, 1], **params)


def parameters(name: str) -> dict[str, Any]:
    """Return the metric's parameters beside labels, scores and weights, with their defaults."""
    every = list(inspect.signature(METRICS[name].function).parameters.values())
    return {one.name: one.default for one in every[2:] if one.name != "sample_weight"}


def filled_parameters(metric: Metric, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked parameters, with defaults for the rest if the metric is of this package."""
    name = known_name(metric)
    if name is None:
        return dict(params)
    check_params(name, params)
    return {**parameters(name), **params}


@dataclass(frozen=True)
class CurveMetric:
    """A metric as a function of the steps of the ROC curve, which it sees up to `max_fpr`."""

    max_fpr: float
    of: Callable[[RocSteps], Floats]
    # Positives added at each end of a resampled curve. Half a positive is Jeffreys' choice for shares. An
    # average of precisions depends far more on the top of the list, so it gets less.
    prior: float = 0.5


def curve_metric(metric: Metric, params: Mapping[str, Any]) -> CurveMetric | None:
    """Return how the metric reads the curve, or None if it does not read one."""
    name, given = known_name(metric), filled_parameters(metric, params)
    if name == "roc_auc":
        return CurveMetric(1.0, ranking.auc_of)
    if name == "partial_auc":
        max_fpr, kind = check_rate(given["max_fpr"], "max_fpr"), ranking.check_kind(given["kind"])
        return CurveMetric(max_fpr, partial(ranking.partial_auc_of, max_fpr=max_fpr, kind=kind))
    if name == "recall_at_fpr":
        fpr, interpolate = check_rate(given["fpr"], "fpr"), bool(given["interpolate"])
        return CurveMetric(fpr, partial(ranking.recall_at_fpr_of, fpr=fpr, interpolate=interpolate))
    if name == "average_precision":
        return CurveMetric(1.0, ranking.average_precision_of, prior=0.1)
    if name == "precision_at_recall":
        recall = check_rate(given["recall"], "recall")
        return CurveMetric(1.0, partial(ranking.precision_at_recall_of, recall=recall))
    return None
