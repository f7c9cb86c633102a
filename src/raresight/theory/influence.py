"""What one observation does to a fitted linear rule.

For theta = (w, b) that minimises (1/n) sum_i l(y_i, x~_i.theta), x~ = (x, 1), and
H = (1/n) sum_i l''(y_i, z_i) x~_i x~_i':

    influence      I_i = -l'(y_i, z_i) H^-1 x~_i
    leverage       h_i = l''(y_i, z_i) x~_i.H^-1 x~_i / n
    deletion       theta_{-i} - theta = -I_i / (n (1 - h_i)) + O(1/n^3)

Rows are read in chunks; nothing of size n x n is formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..losses import Loss
from ..losses._numpy_ops import NumpyOps
from ._inputs import check_loss
from .linear_rule import Floats, LinearRule

__all__ = ["chunks", "deletion_effect", "influence", "leverage", "read_sample"]

_CHUNK = 1 << 16


def influence(loss: Loss, X: ArrayLike, y: ArrayLike, rule: LinearRule) -> Floats:
    """Return the influence of each row on (w, b): I_i = -l'(y_i, z_i) H^-1 x~_i, of shape (n, d+1).

    The change of the rule, for a unit of weight, when more weight is put on row i. `rule` should
    minimise the risk of `X` and `y`.

    >>> from raresight.losses import CrossEntropy
    >>> X, y = [[0.0], [0.0], [1.0], [1.0]], [0, 1, 0, 1]
    >>> rule = LinearRule([0.0], 0.0)
    >>> influence(CrossEntropy(), X, y, rule)[:2].round(6).tolist()
    [[4.0, -4.0], [-4.0, 4.0]]
    """
    fit = _Fit(loss, X, y, rule)
    result = np.empty((fit.n, fit.dim))
    for rows, block, slope, _ in fit.terms():
        result[rows] = -slope[:, None] * (block @ fit.inverse)
    return result


def leverage(loss: Loss, X: ArrayLike, y: ArrayLike, rule: LinearRule) -> Floats:
    """Return how much of the curvature each row provides: h_i = l''_i x~_i.H^-1 x~_i / n, of shape (n,).

    The leverages sum to d + 1. Negative where a loss that is not convex bends down.

    >>> from raresight.losses import CrossEntropy
    >>> leverage(CrossEntropy(), [[0.0], [1.0]], [0, 1], LinearRule([0.0], 0.0)).round(12).tolist()
    [1.0, 1.0]
    """
    fit = _Fit(loss, X, y, rule)
    return np.concatenate([fit.leverage(block, bend) for _, block, _, bend in fit.terms()])


def deletion_effect(
    loss: Loss, X: ArrayLike, y: ArrayLike, rule: LinearRule, leverage_corrected: bool = True
) -> Floats:
    """Return how (w, b) would change without row i, for every row: of shape (n, d+1).

        theta_{-i} - theta ~ -I_i / n,   leverage-corrected  -I_i / (n (1 - h_i)),

    the second being one step of Newton's method on the risk without the row. The relative errors fall
    like 1/n; the correction is 10 times nearer.

    >>> from raresight.losses import CrossEntropy
    >>> X, y = [[0.0], [0.0], [1.0], [1.0]], [0, 1, 0, 1]
    >>> rule = LinearRule([0.0], 0.0)
    >>> deletion_effect(CrossEntropy(), X, y, rule, leverage_corrected=False)[0].round(6).tolist()
    [-1.0, 1.0]
    """
    fit = _Fit(loss, X, y, rule)
    result = np.empty((fit.n, fit.dim))
    for rows, block, slope, bend in fit.terms():
        effect = slope / fit.n
        if leverage_corrected:
            # Removing row i changes H by a matrix of rank one: Sherman and Morrison give the factor 1/(1 -
            # h_i).
            rest = 1 - fit.leverage(block, bend)
            if np.any(rest <= 1e-10):
                row = rows.start + int(np.argmin(rest))
                raise ValueError(
                    f"row {row} has leverage 1: without it H is singular and the rule is not determined"
                )
            effect = effect / rest
        result[rows] = effect[:, None] * (block @ fit.inverse)
    return result


def read_sample(X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], Floats]:
    """Return points (n, d) in their own type, and labels 0.0/1.0."""
    points, labels = np.asarray(X), np.asarray(y)
    if points.ndim != 2 or points.size == 0:
        raise ValueError(f"X must be a table of n rows and d columns, got shape {points.shape}")
    if points.dtype.kind not in "fiub":
        raise TypeError(f"X must hold real numbers, got dtype {points.dtype}")
    if labels.shape != (points.shape[0],):
        raise ValueError(
            f"y of shape {labels.shape} does not fit X of shape {points.shape}: one label per row is needed"
        )
    wrong = (labels != 0) & (labels != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"labels must be 0 or 1: y[{row}] is {labels[row]}")
    return points, labels.astype(np.float64)


def chunks(points: NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
    """Return the rows in float64 blocks, with a last column of ones."""
    n, d = points.shape
    for begin in range(0, n, _CHUNK):
        rows = slice(begin, min(begin + _CHUNK, n))
        # Chunks are made float64 one by one: the whole table would take twice the memory of float32 rows.
        block = np.ones((rows.stop - begin, d + 1))
        block[:, :d] = points[rows]
        if not np.isfinite(block).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(block))[0])
            raise ValueError(f"X[{begin + row}, {column}] is {block[row, column]}: X must be finite")
        yield rows, block


class _Fit:
    """A rule on its data: the derivatives of the loss row by row, and H^-1."""

    def __init__(self, loss: Loss, X: ArrayLike, y: ArrayLike, rule: LinearRule) -> None:
        check_loss(loss, "the influence of rows")
        points, self.labels = read_sample(X, y)
        self.loss, self.points = loss, points
        self.n, self.dim = points.shape[0], points.shape[1] + 1
        if rule.w.size != points.shape[1]:
            raise ValueError(f"a rule in {rule.w.size} dimensions does not fit X of shape {points.shape}")
        self.theta = np.append(rule.w, rule.b)
        self.inverse = self._invert(self._hessian())

    def terms(self) -> Iterator[tuple[slice, Floats, Floats, Floats]]:
        """Rows, their points with a one, and the first and second derivative of their loss."""
        for rows, block in chunks(self.points):
            z = block @ self.theta
            with NumpyOps.guard():
                _, slope, bend = self.loss._labelled(NumpyOps, z, self.labels[rows], 2)
            yield rows, block, slope, bend

    def leverage(self, block: Floats, bend: Floats) -> Floats:
        """h of the rows of a chunk."""
        return np.asarray(bend * ((block @ self.inverse) * block).sum(axis=1) / self.n, dtype=np.float64)

    def _hessian(self) -> Floats:
        total = np.zeros((self.dim, self.dim))
        for _, block, _, bend in self.terms():
            total += block.T @ (bend[:, None] * block)
        return np.asarray(total / self.n)

    def _invert(self, hessian: Floats) -> Floats:
        # Tested with a unit diagonal, so that columns in very different units do not look singular.
        diagonal = np.diag(hessian)
        if not (np.isfinite(hessian).all() and np.all(diagonal > 0)):
            raise ValueError(self._complaint(f"its diagonal is {_short(diagonal)}"))
        unit = np.sqrt(diagonal)
        scaled = hessian / np.outer(unit, unit)
        values, vectors = np.linalg.eigh(scaled)
        if values[0] <= 1e-12 * values[-1]:
            combination = _short(vectors[:, 0] / unit)
            raise ValueError(
                self._complaint(f"the columns of X and a one, combined by {combination}, (nearly) vanish")
                if values[0] >= -1e-12 * values[-1]
                else self._complaint(f"the risk falls along {combination}: the rule is no minimum")
            )
        result: Floats = (vectors / values) @ vectors.T / np.outer(unit, unit)
        return result

    def _complaint(self, reason: str) -> str:
        return f"H = (1/n) sum l'' x~ x~' of {self.loss} is not positive definite: {reason}"


def _short(values: NDArray[Any]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
