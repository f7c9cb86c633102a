"""Training rows that pull hardest: the first to look at for a wrong label.

Trees have no influence function of their own, so a linear model under the winner's loss stands in for every
family: a row that contradicts its neighbours so much that it moves a linear fit is worth a look whatever the
final model is. Beside its pull stands the probability that the final model gives it; for rows of the search
it is the one from the fold that had not seen the row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..linear import LinearClassifier
from ..model.linear_family import LinearFeatures
from ..report.fit_parts import InfluentialRow
from .rows import Rows, SearchRows

__all__ = ["influential_rows"]

MOST_COLUMNS = 500
_COUNT = 25


def influential_rows(
    rows: Rows, chosen: SearchRows, loss: str, out_of_fold: NDArray[np.floating]
) -> tuple[tuple[InfluentialRow, ...], str]:
    """The rows with the largest pull, and a word where there are none."""
    X, y = rows.X[chosen.rows], rows.y[chosen.rows]
    features = LinearFeatures.learn(X, rows.schema.categorical, rows.schema.n_categories)
    table = features.apply(X)
    if table.shape[1] > MOST_COLUMNS:
        return (), f"Influence was not computed: {table.shape[1]:,} columns are more than {MOST_COLUMNS}."
    model = LinearClassifier(loss, l2=1e-4).fit(table, y, sample_weight=chosen.weights)
    pull = model.influence(table, y, sample_weight=chosen.weights).pull
    seen = np.flatnonzero(np.isfinite(out_of_fold))
    order = seen[np.argsort(-pull[seen], kind="stable")[:_COUNT]]
    total = float(np.sqrt(np.sum(pull**2)))
    probability = np.exp(-np.logaddexp(0.0, -out_of_fold.astype(np.float64)))
    return tuple(
        InfluentialRow(
            row=int(rows.numbers[chosen.rows[i]]),
            label=int(y[i]),
            probability=float(probability[i]),
            influence=float(pull[i] / total) if total > 0 else 0.0,
        )
        for i in order
    ), ""
