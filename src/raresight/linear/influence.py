"""The influence of each row on a fitted linear classifier.

Let H be the Hessian of the regularised risk at the fit, x~ = (x, 1) and W = sum_i w_i. Without row i the
coefficients move by

    D_i = w_i l'_i H^-1 x~_i / (W (1 - h_i)),     h_i = w_i l''_i x~_i.H^-1 x~_i / W,

one Newton step on the risk without the row (see `raresight.theory.influence`). Its length in the metric of
H, sqrt(D_i.H D_i), does not depend on the units of the features: Cook's distance. For K classes
g_i x~_i replaces l'_i x~_i, with g_i the gradient by the logits, and 1 - h_i is omitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.estimators import read_weights
from ..common.labels import encode_known
from ..losses import Loss
from ..losses._numpy_ops import NumpyOps
from .design import Floats, row_blocks
from .penalties import Penalty
from .reading import make_sample, read_rows
from .sums import Request, Sample, evaluate

__all__ = ["FitTerms", "Influence", "influence_of"]

_MOST_NUMBERS = 5000


@dataclass(frozen=True)
class FitTerms:
    """The penalty of a fit, which parameters set later do not change."""

    penalty: Penalty
    intercept: bool


@dataclass(frozen=True, eq=False)
class Influence:
    """The influence of each row on the fit.

    Attributes:
        pull: How far the fit would move without the row, in the metric of the Hessian. Sort by it.
        leverage: The share of the curvature that the row provides; they sum to about the number of
            coefficients.
        loss: The loss of the row, without its weight.
        own_effect: The rise of the row's own loss without the row, to first order. It is large for a wrong
            label far from its class, which is fitted only because it is a training row.
    """

    pull: Floats
    leverage: Floats
    loss: Floats
    own_effect: Floats

    @property
    def order(self) -> NDArray[np.intp]:
        """Row numbers, largest pull first."""
        return np.argsort(-self.pull, kind="stable")

    def top(self, count: int) -> NDArray[np.intp]:
        """Return the numbers of the `count` rows with the largest pull, largest first."""
        return self.order[:count]


def influence_of(model: Any, X: Any, y: Any, sample_weight: Any) -> Influence:
    """Return the influence of rows on a fitted `LinearClassifier`."""
    X, y = read_rows(model, X, y, reset=False)
    codes = encode_known(y, model.classes_, "y")
    weights = read_weights(sample_weight, X)
    # Features that an l1 penalty holds at zero stay there when a row leaves.
    terms: FitTerms = model._terms
    active = np.flatnonzero(model.coef_.any(axis=0)) if terms.penalty.l1 > 0 else np.arange(X.shape[1])
    coef = model.coef_[:, active]
    sample = make_sample(X[:, active], codes, weights, len(model.classes_), terms.intercept)
    if sample.size > _MOST_NUMBERS:
        raise ValueError(
            f"influence needs the inverse of a matrix of {sample.size} rows, one a coefficient; "
            f"up to {_MOST_NUMBERS} are computed: use fewer features or l1 > 0"
        )
    theta = sample.columns.inward(coef, model.intercept_)
    return _influence(sample, model.loss_, terms.penalty, theta)


def _influence(sample: Sample, loss: Loss, penalty: Penalty, theta: Floats) -> Influence:
    design, n, k = sample.design, sample.design.n_rows, sample.n_scores
    here = evaluate(sample, [Request(loss, penalty, theta.ravel(), 2, double=True)])[0]
    assert here.hessian is not None
    # With R R' = H^-1 both x.H^-1 x and the length of D in the metric of H are plain sums of squares.
    root = _inverse_root(here.hessian, loss)
    pull, leverage, losses, own = (np.empty(n) for _ in range(4))
    for rows in row_blocks(n, max(sample.size, 1)):
        block = design.standardised(rows)
        weight = np.ones(len(block)) if sample.weights is None else sample.weights[rows]
        weight = weight / sample.total
        terms = _binary_terms if k == 1 else _class_terms
        losses[rows], pulls, leverage[rows], effects = terms(
            loss, block, block @ theta.T, sample.labels[rows], weight, root
        )
        pull[rows], own[rows] = pulls, effects
    return Influence(pull, leverage, losses, own)


def _binary_terms(
    loss: Loss, block: Floats, scores: Floats, labels: NDArray[Any], weight: Floats, root: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    with NumpyOps.guard():
        value, slope, bend = loss._labelled(NumpyOps, scores[:, 0], labels.astype(np.float64), 2)
    reach = ((block @ root) ** 2).sum(axis=1)  # x~.H^-1 x~
    leverage = weight * bend * reach
    # A row with leverage 1 determines a coefficient alone; its pull is huge, but finite.
    rest = np.maximum(1 - leverage, 1e-10)
    pull = weight * np.abs(slope) * np.sqrt(reach) / rest
    return value, pull, leverage, weight * slope**2 * reach / rest


def _class_terms(
    loss: Loss, block: Floats, logits: Floats, labels: NDArray[Any], weight: Floats, root: Floats
) -> tuple[Floats, Floats, Floats, Floats]:
    with NumpyOps.guard():
        value, slope = loss._class_terms(NumpyOps, logits, labels, 1)
        bend = loss._class_hessian(NumpyOps, logits, labels)
    k, columns = logits.shape[1], block.shape[1]
    parts = [block @ root[a * columns : (a + 1) * columns] for a in range(k)]
    moved = sum(slope[:, a : a + 1] * parts[a] for a in range(k))
    leverage = np.zeros(len(block))
    for a in range(k):
        for b in range(k):
            leverage += weight * bend[:, a, b] * (parts[a] * parts[b]).sum(axis=1)
    squared = np.asarray((moved**2).sum(axis=1))
    return value, weight * np.sqrt(squared), leverage, weight * squared


def _inverse_root(hessian: Floats, loss: Loss) -> Floats:
    """Return R with R R' = H^-1, without directions in which nothing changes."""
    values, vectors = np.linalg.eigh(hessian)
    limit = 1e-12 * float(np.abs(values).max())
    if values[0] < -limit:
        raise ValueError(
            f"the risk of {loss} falls along a direction at these coefficients, so they are not a minimum "
            "for these rows. Pass the rows and weights of the fit"
        )
    kept = values > limit
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))
