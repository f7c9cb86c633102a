"""Find columns that give the target away: known only because the outcome is known.

Two rules, both on training rows:

- One column alone tells the classes apart: a cut of its values, or a set of them, holds at least 99.9 % of
  the positives, and at least 99.9 % of the rows there are positive.
- A column has values only for positives, or lacks them only for positives, such as the date of a chargeback.

An AUC would not do. Where the event is rare, an honest column may reach 0.999 and be wrong in half of its
alerts. One value of an honest column, the number of bytes of an attack, has been seen with 99.6 % of both.
A column that is missing for negatives alone is no leak either: chargebacks concern card payments, and so
every column about the card is filled for all positives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from raresight.tables.schema import Schema

__all__ = ["find_leaks"]

FEWEST_POSITIVES = 20
_NEARLY_ALL = 0.999
# Half a leak: values for at least this many positives, and this share of them.
_FEWEST_FILLED = 10
_LEAST_FILLED = 0.05
_FILLED_RIGHT = 0.99
# Rarer values may be of one class by chance.
_FEWEST_OF_A_VALUE = 5
_MOST_VALUES = 255
# A first look at so few negatives can only overlook faults of a column, so that it excludes most columns.
_FIRST_LOOK = 2000


def find_leaks(
    schema: Schema, X: NDArray[np.floating], y: NDArray[np.int8], rows: NDArray[np.intp]
) -> dict[str, str]:
    """Return the columns that give the target away, each with what shows it.

    Args:
        schema: What the columns are.
        X, y: Coded matrix and labels of all rows.
        rows: Positions of the training rows, which alone are looked at.

    Example:
        >>> import pyarrow as pa
        >>> from raresight.tables import learn_schema
        >>> y = [int(i % 10 == 0) for i in range(400)]
        >>> table = pa.table({"x": [i % 7 for i in range(400)], "paid_back": [1 - one for one in y], "y": y})
        >>> schema = learn_schema(table, "y")
        >>> find_leaks(schema, schema.matrix(table), schema.labels(table), np.arange(400))
        {'paid_back': 'alone it finds 100.0% of the positives, and 100.0% of what it finds is positive'}
    """
    positives, negatives = rows[y[rows] == 1], rows[y[rows] == 0]
    if len(positives) < FEWEST_POSITIVES:
        return {}
    few = negatives
    if len(negatives) > _FIRST_LOOK:
        few = np.random.default_rng(0).choice(negatives, _FIRST_LOOK, replace=False)
    looks = [np.concatenate([positives, few]), rows]
    found: dict[str, str] = {}
    position = 0
    for column in schema.columns:
        for feature in range(position, position + len(column.features)):
            for look in looks:
                shown = _giveaway(X[look, feature], y[look] == 1)
                if not shown:
                    break
            if shown:
                found.setdefault(column.name, shown)
        position += len(column.features)
    return found


def _giveaway(values: NDArray[np.floating], positive: NDArray[np.bool_]) -> str:
    """Say how a column gives the target away; empty if it does not."""
    missing = np.isnan(values)
    total = int(positive.sum())
    recall, precision = _separation(values, missing, positive)
    if min(recall, precision) >= _NEARLY_ALL:
        return (
            f"alone it finds {_percent(recall)} of the positives, and {_percent(precision)} of what it finds "
            "is positive"
        )
    for state, said in ((~missing, "has values"), (missing, "lacks values")):
        count, right = int(state.sum()), int(positive[state].sum())
        if right >= max(_FEWEST_FILLED, _LEAST_FILLED * total) and right >= _FILLED_RIGHT * count:
            only = "only" if right == count else "nearly only"
            return f"it {said} {only} in positive rows, {_percent(right / total)} of them"
    return ""


def _separation(
    values: NDArray[np.floating], missing: NDArray[np.bool_], positive: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return recall and precision of the best rule on one column; missing is a value of its own."""
    different, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    right = np.bincount(place.ravel(), weights=positive)
    cuts = []
    if len(different) <= _MOST_VALUES:
        # A set of values, those with the largest share of positives first.
        usual = counts >= _FEWEST_OF_A_VALUE
        order = np.argsort(-(right / counts)[usual], kind="stable")
        cuts.append((right[usual][order], counts[usual][order]))
    # A cut from above or from below. `unique` puts missing values last: at either end.
    cuts += [(right[::-1], counts[::-1]), (right, counts), (np.roll(right, 1), np.roll(counts, 1))]
    cuts.append((np.roll(right[::-1], -1), np.roll(counts[::-1], -1)))
    best = (0.0, 0.0)
    for found, size in cuts:
        if len(found):
            caught = np.cumsum(found)
            recall, precision = caught / positive.sum(), caught / np.cumsum(size)
            at = int(np.argmax(np.minimum(recall, precision)))
            best = max(best, (float(recall[at]), float(precision[at])), key=min)
    return best


def _percent(share: float) -> str:
    """Write a percentage that is never rounded up to 100."""
    return f"{np.floor(share * 1000) / 10:.1f}%"
