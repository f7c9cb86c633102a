"""Metrics for rare events: ranking at tiny false-positive rates, calibration, intervals.

Every function takes `(y_true, y_score)` as scikit-learn does: labels 0 and 1 and one score per row, from
NumPy, pandas, polars or torch. `roc_auc`, `partial_auc` and `recall_at_fpr` of a tensor on a GPU run there.
"""

from typing import TYPE_CHECKING, Any

from raresight.common.dependent_rows import time_blocks
from raresight.metrics.accuracy import balanced_accuracy, class_accuracy, minority_accuracy
from raresight.metrics.calibration_metrics import brier_score, calibration_error, log_loss
from raresight.metrics.comparison import Comparison, compare
from raresight.metrics.eval_metrics import lightgbm_metric, xgboost_metric
from raresight.metrics.evaluation import Evaluation, evaluate
from raresight.metrics.intervals import Interval, interval
from raresight.metrics.ranking import (
    RocPoints,
    average_precision,
    partial_auc,
    precision_at_recall,
    recall_at_fpr,
    roc_auc,
    roc_points,
)
from raresight.metrics.sketch import RankSketch
from raresight.metrics.streaming import StreamingMetrics
from raresight.metrics.threshold import threshold_at_fpr

if TYPE_CHECKING:
    from raresight.metrics.scorers import scorer
    from raresight.metrics.threshold_classifier import ThresholdAtFPR

__all__ = [
    "Comparison",
    "Evaluation",
    "Interval",
    "RankSketch",
    "RocPoints",
    "StreamingMetrics",
    "ThresholdAtFPR",
    "average_precision",
    "balanced_accuracy",
    "brier_score",
    "calibration_error",
    "class_accuracy",
    "compare",
    "evaluate",
    "interval",
    "lightgbm_metric",
    "log_loss",
    "minority_accuracy",
    "partial_auc",
    "precision_at_recall",
    "recall_at_fpr",
    "roc_auc",
    "roc_points",
    "scorer",
    "threshold_at_fpr",
    "time_blocks",
    "xgboost_metric",
]

# These need scikit-learn, which takes a second to import and is not installed on every GPU machine.
_LAZY = {"scorer": "scorers", "ThresholdAtFPR": "threshold_classifier"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
