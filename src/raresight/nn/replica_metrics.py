"""Metrics of each replica of a stack: how well it ranks or classifies rows."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..metrics import average_precision, partial_auc, recall_at_fpr, roc_auc
from .batches import RowSource
from .recipe import Recipe
from .replicas import Replicas

__all__ = ["check_evaluation", "default_metric", "evaluate_replicas", "metric_names"]


def evaluate_replicas(replicas: Replicas, rows: RowSource, recipe: Recipe) -> list[dict[str, float]]:
    """Return the metrics of each replica by name; NaN for a replica with a score that is NaN.

    They are computed on the device of the replicas.

    * Binary: `roc_auc`, `average_precision`, and for each rate f of `recipe.fprs` `partial_auc_f` (by
      McClish) and `recall_f`.
    * Several classes: `accuracy`, `balanced_accuracy`, `minority_accuracy`, and `accuracy_c` for each class
      c. A row's predicted class has its largest score.

    Example:
        >>> from functools import partial
        >>> from raresight.nn.batches import TableRows
        >>> from raresight.nn.nets import MLP
        >>> rows = TableRows([[0.0], [1.0], [2.0]], [0, 1, 0])
        >>> replicas = Replicas(partial(MLP, 1), ["crossentropy"])
        >>> (found,) = evaluate_replicas(replicas, rows, Recipe(fprs=(0.5,)))
        >>> sorted(found)
        ['average_precision', 'partial_auc_0.5', 'recall_0.5', 'roc_auc']
    """
    names = metric_names(recipe, replicas.net.outputs)
    _refuse_weights(rows)
    rows.class_counts(replicas.net.outputs)  # refuses labels that the net does not have
    scores = replicas.scores(rows, bf16=recipe.bf16_evaluation)
    labels = rows.labels.to(scores.device)
    # One replica that diverged must not end the evaluation of the others, and metrics refuse NaN.
    broken = scores.flatten(1).isnan().any(1).tolist()
    if replicas.net.outputs == 1:
        found = [{} if bad else _of_scores(labels, row, recipe) for bad, row in zip(broken, scores)]
    else:
        found = [_of_counts(counts) for counts in confusion_counts(labels, scores).cpu().numpy()]
    return [dict.fromkeys(names, float("nan")) if bad else metrics for bad, metrics in zip(broken, found)]


def confusion_counts(labels: Tensor, scores: Tensor) -> Tensor:
    """Count the rows of each label by their predicted class: (K, label, class), on the device.

    >>> scores = torch.tensor([[[1.0, 0.0], [3.0, 2.0], [0.0, 5.0]]])
    >>> confusion_counts(torch.tensor([0, 1, 1]), scores).tolist()
    [[[1, 0], [1, 1]]]
    """
    replicas, _, classes = scores.shape
    # One bincount for all replicas, each with its own range of cells.
    first = torch.arange(replicas, device=scores.device).unsqueeze(1) * classes**2
    cells = first + labels.to(torch.int64) * classes + scores.argmax(-1)
    return torch.bincount(cells.flatten(), minlength=replicas * classes**2).view(replicas, classes, classes)


def metric_names(recipe: Recipe, outputs: int) -> list[str]:
    """Return the names of the metrics of an evaluation."""
    if outputs == 1:
        ranked = [f"{name}_{fpr:g}" for fpr in recipe.fprs for name in ("partial_auc", "recall")]
        return ["roc_auc", "average_precision", *ranked]
    overall = ["accuracy", "balanced_accuracy", "minority_accuracy"]
    return overall + [f"accuracy_{label}" for label in range(outputs)]


def default_metric(recipe: Recipe, outputs: int) -> str:
    """Return the metric that chooses the best epoch."""
    names = metric_names(recipe, outputs)
    if recipe.best_by is None:
        return f"partial_auc_{recipe.fprs[0]:g}" if outputs == 1 else "balanced_accuracy"
    if recipe.best_by not in names:
        raise ValueError(f"best_by must be one of {', '.join(names)}, but is {recipe.best_by!r}")
    return recipe.best_by


def check_evaluation(rows: RowSource, outputs: int, best_by: str) -> None:
    """Raise an error if the metrics, or `best_by` among them, are undefined, before nets are trained."""
    _refuse_weights(rows)
    counts = rows.class_counts(outputs)
    absent = [label for label, count in enumerate(counts) if count == 0]
    if absent and (outputs == 1 or len(absent) == len(counts)):
        raise ValueError(
            f"the evaluation has no row with label {absent[0]} among its {len(rows)}: "
            "its metrics need both classes"
        )
    if best_by in {f"accuracy_{label}" for label in absent}:
        raise ValueError(f"best_by is {best_by}, but the evaluation has no row of that class")


def _refuse_weights(rows: RowSource) -> None:
    """Raise an error for weighted rows, since these metrics ignore weights."""
    if rows.weights is not None:
        raise ValueError(
            "the rows of an evaluation have weights, but its metrics ignore them: give rows without weights"
        )


def _of_scores(labels: Tensor, scores: Tensor, recipe: Recipe) -> dict[str, float]:
    found = {"roc_auc": roc_auc(labels, scores), "average_precision": average_precision(labels, scores)}
    for fpr in recipe.fprs:
        found[f"partial_auc_{fpr:g}"] = partial_auc(labels, scores, fpr)
        found[f"recall_{fpr:g}"] = recall_at_fpr(labels, scores, fpr)
    return found


def _of_counts(counts: NDArray[np.int64]) -> dict[str, float]:
    """Return the class metrics of (label, class) counts, equal to those of `raresight.metrics`."""
    total, right = counts.sum(1), counts.diagonal()
    shares = np.full(len(counts), np.nan)
    np.divide(right, total, out=shares, where=total > 0)
    rarest = total == total[total > 0].min()
    return {
        "accuracy": float(right.sum() / total.sum()),
        "balanced_accuracy": float(np.nanmean(shares)),
        "minority_accuracy": float(shares[rarest].mean()),
        **{f"accuracy_{label}": float(share) for label, share in enumerate(shares)},
    }
