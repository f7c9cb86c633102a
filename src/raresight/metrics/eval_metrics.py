"""Ranking metrics as evaluation functions of XGBoost and LightGBM, for early stopping.

Each library has two interfaces that call a metric in different ways. One object here serves both: it
recognises the call by its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from raresight.metrics._registry import METRICS, check_params, find_metric, parameters


class EvalMetric:
    """A ranking metric with its parameters and a name; `__name__` is what the training log shows."""

    def __init__(self, metric: str | Callable[..., float], params: dict[str, Any]) -> None:
        self.metric = find_metric(metric)
        if METRICS[self.metric].reads != "score":
            ranking = ", ".join(name for name, known in METRICS.items() if known.reads == "score")
            raise ValueError(
                f"{self.metric} does not rank scores, so it cannot be used here; choose one of {ranking}."
            )
        check_params(self.metric, params)
        self.params = params
        self.__name__ = metric_name(self.metric, params)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__name__!r})"

    def value(self, y_true: Any, y_score: Any, sample_weight: Any) -> float:
        y_score = np.asarray(y_score)
        if y_score.ndim == 2:
            if y_score.shape[1] != 1:
                raise ValueError(
                    f"The model predicts {y_score.shape[1]} values per row, but {self.metric} is for two "
                    "classes and one score per row; use an objective for two classes."
                )
            y_score = y_score[:, 0]
        return METRICS[self.metric].function(y_true, y_score, sample_weight=sample_weight, **self.params)

    def value_on(self, data: Any, y_score: Any) -> float:
        """Return the value on a DMatrix or a Dataset, with its weights where it has any."""
        weights = data.get_weight()
        if weights is not None and len(weights) == 0:
            weights = None
        return self.value(data.get_label(), y_score, weights)


class XGBoostMetric(EvalMetric):
    """The result of `xgboost_metric`."""

    def __init__(self, metric: str | Callable[..., float], params: dict[str, Any]) -> None:
        super().__init__(metric, params)
        # XGBoost decides by a metric's name alone whether higher is better. Early stopping waits for a higher
        # value if the name begins with one of these, and for a lower one otherwise.
        if not self.__name__.startswith(("auc", "pre", "map", "ndcg")):
            self.__name__ = f"auc_{self.__name__}"

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> Any:
        """Return name and value for `(predictions, DMatrix)`, the value for `(y_true, y_score, weights)`."""
        if hasattr(second, "get_label"):
            return self.__name__, self.value_on(second, first)
        return self.value(first, second, sample_weight)


class LightGBMMetric(EvalMetric):
    """The result of `lightgbm_metric`."""

    # LightGBM counts the arguments: with three, its scikit-learn interface passes the weights.
    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[str, float, bool]:
        """Return name, value and "higher is better", for `(predictions, Dataset)` or `(y_true, y_score)`."""
        if hasattr(second, "get_label"):
            return self.__name__, self.value_on(second, first), True
        return self.__name__, self.value(first, second, sample_weight), True


def xgboost_metric(metric: str | Callable[..., float] = "partial_auc", **params: Any) -> XGBoostMetric:
    """Return a metric for `xgb.train(custom_metric=...)`, `xgb.cv` and `XGBClassifier(eval_metric=...)`.

    `early_stopping_rounds` then stops at the highest value, without `maximize`. XGBoost maximizes a custom
    metric only if its name begins with auc, pre, map or ndcg. So the names here do: `auc_partial_auc@0.01`,
    `auc_recall_at_fpr@0.001`, `precision_at_recall@0.5`. The name is the key in `evals_result` and the
    object's `__name__`.

    XGBoost keeps six decimals of such a metric. That is too few for `kind="area"` at a tiny `max_fpr`; the
    other kinds lie between 0 and 1. With several evaluation sets XGBoost stops on the last one. Weights of a
    set are used. Probabilities and raw margins rank alike, so the objective may be XGBoost's or your own.

    Args:
        metric: A ranking metric of `raresight.metrics`, by name or as the function: `"partial_auc"`,
            `"recall_at_fpr"`, `"roc_auc"`, `"average_precision"`, `"precision_at_recall"`.
        **params: Its parameters, such as `max_fpr=0.001`.

    Example:
        >>> metric = xgboost_metric("recall_at_fpr", fpr=0.1)
        >>> metric.__name__, metric([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
        ('auc_recall_at_fpr@0.1', 0.5)

        With XGBoost: `XGBClassifier(eval_metric=metric, early_stopping_rounds=20).fit(x, y, eval_set=[...])`.
    """
    return XGBoostMetric(metric, params)


def lightgbm_metric(metric: str | Callable[..., float] = "partial_auc", **params: Any) -> LightGBMMetric:
    """Return a ranking metric for `lgb.train(feval=...)`, `lgb.cv` and `LGBMClassifier.fit(eval_metric=...)`.

    The result tells LightGBM that higher is better. LightGBM also evaluates the objective's own
    metric and stops as soon as *any* metric stalls. Switch that one off with `metric="None"` (the string) in
    the parameters, or early stopping may follow the log loss.

    Args:
        metric: A ranking metric of `raresight.metrics`, by name or as the function: `"partial_auc"`,
            `"recall_at_fpr"`, `"roc_auc"`, `"average_precision"`, `"precision_at_recall"`.
        **params: Its parameters, such as `max_fpr=0.001`.

    Example:
        >>> metric = lightgbm_metric("partial_auc", max_fpr=0.5, kind="mean")
        >>> metric([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
        ('partial_auc@0.5_kind=mean', 0.5, True)

        With LightGBM: `LGBMClassifier(metric="None").fit(x, y, eval_X=x_held, eval_y=y_held,
        eval_metric=metric, callbacks=[lgb.early_stopping(20)])`.
    """
    return LightGBMMetric(metric, params)


def metric_name(metric: str, params: dict[str, Any]) -> str:
    """Return a title such as `partial_auc@0.01`: metric, place on the curve, and other non-default settings.

    It has no blank and no colon, because XGBoost splits its own log there.
    """
    place = METRICS[metric].place
    defaults = parameters(metric)
    name = metric if place is None else f"{metric}@{params.get(place, defaults[place]):g}"
    return name + "".join(
        f"_{key}={value}" for key, value in params.items() if key != place and value != defaults[key]
    )
