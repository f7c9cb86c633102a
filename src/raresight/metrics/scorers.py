"""scikit-learn scorers of the metrics, for `cross_val_score`, `GridSearchCV` and so on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import make_scorer

from raresight.common.checks import as_vector
from raresight.metrics._registry import METRICS, Metric, check_params, find_metric

_RESPONSE = {
    "score": ("decision_function", "predict_proba"),
    "probability": "predict_proba",
    "label": "predict",
}


def scorer(metric: Metric, *, pos_label: Any = None, **params: Any) -> Any:
    """Return a scikit-learn scorer: called as `scorer(estimator, X, y)`, higher is better.

    Ranking metrics read `decision_function`, or `predict_proba` if the estimator lacks it. Errors of
    probabilities (`"brier_score"`, `"log_loss"`, `"calibration_error"`) read `predict_proba` and have a minus
    sign, as in scikit-learn. Accuracies read `predict`.

    A fold that lacks a class is an error, except for errors of probabilities, which are averages over rows.
    Stratified folds, scikit-learn's default for classifiers, avoid it.

    Args:
        metric: A name, or the function itself from `raresight.metrics`.
        pos_label: The label of the positive class. Default: the second of the sorted labels, as in
            scikit-learn: 1 of 0 and 1, "ok" of "fraud" and "ok". Not for accuracies, which have no positive
            class.
        **params: Parameters of the metric, such as `max_fpr=0.001`.

    Raises:
        ValueError: If the metric is unknown or a parameter is out of its range.
        TypeError: If the metric has no such parameter.

    Example:
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.model_selection import cross_val_score
        >>> x = np.arange(40.0).reshape(-1, 1)
        >>> y = np.where(x[:, 0] < 30, "ok", "fraud")
        >>> score = scorer("recall_at_fpr", fpr=0.1, pos_label="fraud")
        >>> cross_val_score(LogisticRegression(), x, y, scoring=score, cv=2).tolist()
        [1.0, 1.0]
    """
    name = find_metric(metric)
    check_params(name, params)
    reads = METRICS[name].reads
    if pos_label is not None:
        if reads == "label":
            raise TypeError(f"{name} treats all classes alike, so it takes no pos_label.")
        params["pos_label"] = pos_label
    # A module-level function with plain arguments, so that the scorer can be cloned and pickled.
    return make_scorer(
        labelled_metric,
        response_method=_RESPONSE[reads],
        greater_is_better=reads != "probability",
        metric=name,
        **params,
    )


def labelled_metric(
    y_true: Any, y_score: Any, *, metric: str, pos_label: Any = None, sample_weight: Any = None, **params: Any
) -> float:
    """Return the metric with that name for labels of any kind, as a scorer calls it."""
    known = METRICS[metric]
    if known.reads == "label":
        _need_two_classes(y_true, metric)
    else:
        y_true = is_positive(y_true, pos_label)
    return known.function(y_true, y_score, sample_weight=sample_weight, **params)


def place_of(label: Any, classes: NDArray[Any], name: str) -> int:
    """Return the place of a label among the classes; refuse an unknown label.

    >>> place_of("fraud", np.array(["fraud", "ok"]), "pos_label")
    0
    """
    known = classes.tolist()
    if label not in known:
        raise ValueError(f"{name} is {label!r}, but the labels are {known}")
    return int(known.index(label))


def is_positive(y_true: Any, pos_label: Any = None) -> NDArray[Any]:
    """Return which rows are of the positive class: `pos_label`, or the second of the sorted labels."""
    labels = as_vector(y_true, "y_true")
    if pos_label is not None:
        return np.asarray(labels == pos_label)
    if len(labels) == 0 or labels.dtype.kind == "b":
        return labels
    if labels.dtype.kind in "iuf" and labels.min() == 0 and labels.max() <= 1:
        return labels  # labels 0 and 1, which need no sort, or an error that the metric explains better
    classes = np.unique(labels)
    if len(classes) == 2:
        return np.asarray(labels == classes[1])
    found = ", ".join(repr(label) for label in classes[:5].tolist())
    if len(classes) > 2:
        raise ValueError(f"This metric is for two classes, but y_true holds {len(classes)}: {found}...")
    # A single label 1 may be the positive of 0 and 1 or the negative of 1 and 2. A guess would go unnoticed.
    raise ValueError(
        f"y_true holds one class only ({found}), so the positive class is unknown; "
        "use stratified folds, or pass pos_label."
    )


def _need_two_classes(y_true: Any, metric: str) -> None:
    labels = as_vector(y_true, "y_true")
    if len(labels) and np.all(labels == labels[0]):
        raise ValueError(
            f"y_true holds one class only ({labels[:1].tolist()[0]!r}), so {metric} would be the accuracy of "
            "whichever class that is; use stratified folds."
        )
