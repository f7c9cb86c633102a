"""What early stopping watches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..losses import Loss
from ..metrics.eval_metrics import EvalMetric, lightgbm_metric, xgboost_metric

__all__ = ["evaluation_metric"]


def evaluation_metric(eval_metric: Any, library: str, loss: Loss, n_classes: int) -> Callable[..., Any]:
    """A metric in the form of the library's `train`, from None, a name or a metric of `eval_metrics`.

    None is the partial AUC for two classes and the mean loss for more; `"loss"` is the mean loss.
    """
    make: Any = xgboost_metric if library == "xgboost" else lightgbm_metric
    if eval_metric is None:
        eval_metric = "partial_auc" if n_classes == 2 else "loss"
    if isinstance(eval_metric, EvalMetric):
        eval_metric = make(eval_metric.metric, **eval_metric.params)
    elif isinstance(eval_metric, str) and eval_metric != "loss":
        eval_metric = make(eval_metric)
    elif eval_metric != "loss":
        raise TypeError(
            "eval_metric must be 'loss', the name of a ranking metric or one made by "
            f"raresight.metrics.eval_metrics.{make.__name__}, got {eval_metric!r}"
        )
    if isinstance(eval_metric, EvalMetric):
        if n_classes > 2:
            raise ValueError(
                f"{eval_metric.metric} is for two classes, but y holds {n_classes}: take eval_metric='loss'"
            )
        return eval_metric  # type: ignore[return-value]
    return _mean_loss(loss, library)


def _mean_loss(loss: Loss, library: str) -> Callable[..., Any]:
    def mean_loss(scores: Any, data: Any) -> Any:
        labels = np.asarray(data.get_label())
        weights = data.get_weight()
        scores = np.asarray(scores)
        values = loss.value(scores, labels if scores.ndim == 1 else labels.astype(np.int64))
        has_weights = weights is not None and len(weights) > 0
        mean = float(np.average(values, weights=weights if has_weights else None))
        return ("loss", mean) if library == "xgboost" else ("loss", mean, False)

    return mean_loss
