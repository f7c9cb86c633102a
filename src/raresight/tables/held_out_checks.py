"""Check the held-out rows: too few of a class, duplicates of training rows, or unseen categories."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.tables.duplicates import count_shared
from raresight.tables.schema import Schema

_FEW_POSITIVES = 10
_REPEATED = 0.001
_UNSEEN = 0.05
_NAMED = 3
# Beyond this ratio of the shares of positives, probabilities are visibly those of the other side.
_SHARE_RATIO = 1.2


def class_count_warnings(labels: NDArray[Any], fpr: float, max_fpr: float) -> list[str]:
    """Warn of metrics that too few held-out rows of a class make unreliable.

    Example:
        >>> class_count_warnings(np.array([1] + [0] * 2000), fpr=0.01, max_fpr=0.1)
        ['the test rows have only 1 positive; the recall measured there is a rough guess']
    """
    positives = int(labels.sum())
    negatives = len(labels) - positives
    seen = counted(negatives, "negative")
    warnings = []
    if positives < _FEW_POSITIVES:
        warnings.append(
            f"the test rows have only {counted(positives, 'positive')}; "
            "the recall measured there is a rough guess"
        )
    expected = fpr * negatives
    if expected < 1:
        warnings.append(
            f"the test rows have {seen}, so not even one false positive is expected at the "
            f"false-positive rate {fpr:g}: the recall there cannot be measured; "
            f"at least {round(10 / fpr)} negatives are needed"
        )
    elif expected < 10:
        warnings.append(
            f"the test rows have {seen}, so about {expected:.2g} false positives are expected at "
            f"the false-positive rate {fpr:g}: the recall there is rough; "
            f"{round(10 / fpr)} negatives would be enough"
        )
    if max_fpr * negatives < 1 <= max_fpr / fpr:
        warnings.append(
            f"candidates are compared up to the false-positive rate {max_fpr:g}, but the test rows have only "
            f"{seen}: too few to compare them"
        )
    return warnings


def shared_row_warnings(
    X: NDArray[Any],
    y: NDArray[Any],
    test: NDArray[Any],
    test_labels: NDArray[Any],
    *,
    few_different: bool,
) -> list[str]:
    """Warn of test rows that are also training rows.

    Args:
        few_different: Whether most training rows repeat another one. Shared rows then do not mean that the
            test file is the training data.
    """
    shared, total = count_shared(X, y, test, test_labels), len(test_labels)
    if shared <= _REPEATED * total:
        return []
    share = f"{shared / total:.1%}" if shared < 0.01 * total else f"{shared / total:.0%}"
    said = f"{shared} of the {total} test rows are also among the training rows ({share}): "
    seems = shared > total / 2 and not few_different
    end = "the result flatters the model"
    return [said + end + ("; the test file seems to be the training data" if seems else "")]


def positive_share_warnings(labels: NDArray[Any], test_labels: NDArray[Any]) -> list[str]:
    """Warn of test rows with another share of positives than the training rows, because of copies.

    Example:
        >>> positive_share_warnings(np.array([1, 0, 0, 0]), np.array([1, 0]))  # doctest: +ELLIPSIS
        ['25% of the training rows are positive, but 50% of the test rows: a row with many copies ...']
    """
    share, other = float(np.mean(labels)), float(np.mean(test_labels))
    if max(share, other) <= _SHARE_RATIO * min(share, other):
        return []
    return [
        f"{100 * share:.2g}% of the training rows are positive, but {100 * other:.2g}% of the test rows: a "
        "row with many copies has them all on one side; probabilities are those of the training rows"
    ]


def unseen_category_warnings(schema: Schema, X: NDArray[Any], test: NDArray[Any]) -> list[str]:
    """Warn of columns in which many test rows hold a category that no training row has.

    An unknown category has no code and is NaN in the matrix, as a missing value is. NaNs count only where
    training has less than half as many.
    """
    unseen = []
    for position, size in zip(schema.categorical, schema.n_categories, strict=True):
        known, met = X[:, position], test[:, position]
        categories = np.zeros(size, dtype=bool)
        categories[known[~np.isnan(known)].astype(np.intp)] = True
        coded = met[~np.isnan(met)].astype(np.intp)
        share = float((~categories[coded]).sum()) / max(len(met), 1)
        absent, absent_before = float(np.isnan(met).mean()), float(np.isnan(known).mean())
        if absent_before < absent / 2:
            share += absent
        if share > _UNSEEN:
            unseen.append((schema.feature_names[position], share))
    if not unseen:
        return []
    unseen.sort(key=lambda one: -one[1])
    shown = ", ".join(f"{name!r} ({share:.0%})" for name, share in unseen[:_NAMED])
    more = f" and {len(unseen) - _NAMED} more" if len(unseen) > _NAMED else ""
    return [
        f"test rows hold a category that no training row has, or no value, in {shown}{more}; "
        "the model has learned nothing about these"
    ]


def counted(count: int, name: str) -> str:
    """Write a number with its noun.

    Example:
        >>> counted(1, "positive"), counted(0, "positive")
        ('1 positive', '0 positives')
    """
    return f"{count} {name}{'' if count == 1 else 's'}"
