"""Metrics of scores on a balanced set, as trained and after the link with the prior corrected.

A net that is trained on rows with odds rho = P(y=1)/P(y=0) has calibrated log-odds
lambda(z) = log P(y=1|x)/P(y=0|x) for these odds. On a set with as many positives as negatives, Bayes' rule
gives the log-odds

    lambda(z) - log rho,

and for K classes log P(k|x) - log prior_k, normalised. Metrics named "linked" decide by these values. The
others use the raw score: z > 0, the largest logit, sigmoid(z).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.metrics import partial_auc, recall_at_fpr, roc_auc

Floats = NDArray[np.float64]

BINARY_METRICS = (
    "roc_auc",
    "partial_auc_0.01",
    "recall_0.01",
    "recall_0.001",
    "accuracy",
    "accuracy_linked",
    "minority_accuracy",
    "minority_accuracy_linked",
    "brier",
    "brier_linked",
)
CLASS_METRICS = (
    "accuracy",
    "accuracy_linked",
    "balanced_accuracy",
    "balanced_accuracy_linked",
    "common_accuracy",
    "common_accuracy_linked",
    "rare_accuracy",
    "rare_accuracy_linked",
    "minority_accuracy",
    "minority_accuracy_linked",
    "brier_linked",
)


def is_better(metric: str, one: float, other: float) -> bool:
    """Return whether one value of a metric is better than another. Smaller Brier scores are better.

    >>> is_better("test_brier", 0.1, 0.2), is_better("roc_auc", 0.8, 0.9)
    (True, False)
    """
    return one < other if "brier" in metric else one > other


def binary_metrics(labels: NDArray[Any], z: Floats, log_odds: Floats, rho: float) -> dict[str, float]:
    """Compute the metrics of scores z whose calibrated log-odds are `log_odds` at training odds of `rho`.

    The minority is label 1. The set should be balanced, as the corrected accuracy and Brier score assume it.

    Example:
        >>> y, z = np.array([0, 0, 1, 1]), np.array([-3.0, -1.0, -2.0, 1.0])
        >>> found = binary_metrics(y, z, z, rho=np.exp(-2.5))
        >>> found["roc_auc"], found["accuracy"], found["accuracy_linked"], found["minority_accuracy_linked"]
        (0.75, 0.75, 0.75, 1.0)
    """
    positive = labels == 1
    corrected = log_odds - np.log(rho)
    found = {
        "roc_auc": roc_auc(labels, z),
        "partial_auc_0.01": partial_auc(labels, z, 0.01),
        "recall_0.01": recall_at_fpr(labels, z, 0.01),
        "recall_0.001": recall_at_fpr(labels, z, 0.001),
    }
    for name, logit in (("", z), ("_linked", corrected)):
        right = (logit > 0) == positive
        found[f"accuracy{name}"] = float(right.mean())
        found[f"minority_accuracy{name}"] = float(right[positive].mean())
        found[f"brier{name}"] = float(np.mean((_sigmoid(logit) - positive) ** 2))
    return {name: float(found[name]) for name in BINARY_METRICS}


def class_metrics(
    labels: NDArray[Any], f: Floats, log_posterior: Floats, class_counts: Sequence[int]
) -> dict[str, float]:
    """Compute the metrics of class logits f (N, K) whose calibrated log-posterior is `log_posterior`.

    "common" and "rare" are the larger and the smaller half of the classes by training rows. "minority" is the
    smallest class, or the mean of several of equal size.

    Example:
        >>> f = np.log([[0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
        >>> found = class_metrics(np.array([0, 1, 1]), f, f, (60, 40))
        >>> [round(found[name], 3) for name in ("accuracy", "balanced_accuracy", "accuracy_linked")]
        [0.667, 0.75, 0.667]
    """
    counts = np.asarray(class_counts, dtype=np.float64)
    corrected = log_posterior - np.log(counts / counts.sum())
    order = np.argsort(-counts, kind="stable")
    groups = {
        "common": order[: len(order) - len(order) // 2],
        "rare": order[len(order) - len(order) // 2 :],
        "minority": np.flatnonzero(counts == counts.min()),
    }
    found: dict[str, float] = {}
    for name, logits in (("", f), ("_linked", corrected)):
        right = logits.argmax(1) == labels
        each = np.array([right[labels == label].mean() for label in range(len(counts))])
        found[f"accuracy{name}"] = float(right.mean())
        found[f"balanced_accuracy{name}"] = float(each.mean())
        for group, members in groups.items():
            found[f"{group}_accuracy{name}"] = float(each[members].mean())
    share = np.exp(corrected - corrected.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    share[np.arange(len(labels)), labels] -= 1
    found["brier_linked"] = float((share**2).sum(1).mean())
    return {name: found[name] for name in CLASS_METRICS}


def undefined(names: Sequence[str]) -> Mapping[str, None]:
    """Return the metrics of a replica with scores that are not finite: None for each name."""
    return dict.fromkeys(names)


def _sigmoid(x: Floats) -> Floats:
    half: Floats = np.exp(-np.logaddexp(0, -x))
    return half
