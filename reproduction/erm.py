"""Exact empirical risk minimisation of a linear score, for many rows and few columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raresight.losses import Loss
from raresight.losses._numpy_ops import NumpyOps
from raresight.losses.start import constant_score, refuse_nan
from raresight.theory._inputs import check_loss
from raresight.theory.influence import chunks, read_sample
from raresight.theory.linear_rule import Floats, LinearRule, length
from raresight.theory.minimisation import Expansion, LocalMinimum, minimise

_EMPIRICAL_TOLERANCE = 1e-8
_ROUNDING = 1e-13


def empirical_minimiser(
    loss: Loss,
    X: ArrayLike,
    y: ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    l2: float = 0.0,
    start: LinearRule | ArrayLike | None = None,
) -> LinearRule:
    """The linear rule of least empirical risk, to a relative gradient of 1e-8.

        minimise  sum_i s_i l(y_i, w.x_i + b) / sum_i s_i  +  (l2/2) |w|^2

    `start` is a rule, or the vector (w, b). Rows are read in chunks: beyond `X` itself a row costs
    two numbers of memory. `risk` of the result includes the penalty; `prior` is the
    weighted share of positives. For a loss that is not convex the minimum is a local one.

    >>> from raresight.losses import CrossEntropy
    >>> rule = empirical_minimiser(CrossEntropy(), [[0.0], [1.0], [1.0], [0.0]], [0, 1, 0, 1])
    >>> bool(abs(rule.w[0]) < 1e-7)
    True
    """
    check_loss(loss, "empirical_minimiser")
    points, labels = read_sample(X, y)
    weights = _read_weights(sample_weight, labels)
    if not (math.isfinite(l2) and l2 >= 0):
        raise ValueError(f"l2 must be at least 0 and finite, got {l2}")
    share = float(weights @ labels)
    risk = _EmpiricalRisk(loss, points, labels, weights, float(l2))
    if start is None:
        begin = np.zeros(points.shape[1] + 1)
        begin[-1] = constant_score(loss, math.log(share) - math.log(float(weights @ (1 - labels))))
    else:
        begin = risk.inward(_read_start(start, points.shape[1]))
    minimum = minimise(risk, begin, tolerance=_EMPIRICAL_TOLERANCE, goal=1e-11)
    if not minimum.gradient_norm <= _EMPIRICAL_TOLERANCE:
        raise RuntimeError(_failure(loss, minimum, risk))
    w, b = risk.outward(minimum.point)
    return LinearRule(w, b, minimum.evaluation.value, share, minimum.iterations, minimum.gradient_norm)


def _read_weights(sample_weight: ArrayLike | None, labels: Floats) -> Floats:
    """Weights that sum to one, some of them on each class."""
    if sample_weight is None:
        weights = np.full(labels.shape, 1.0 / labels.size)
    else:
        weights = np.asarray(sample_weight, dtype=np.float64)
        if weights.shape != labels.shape:
            raise ValueError(f"sample_weight of shape {weights.shape} does not fit y of shape {labels.shape}")
        if not (np.isfinite(weights).all() and weights.min() >= 0 and weights.sum() > 0):
            raise ValueError("sample_weight must be finite, not negative, and not zero throughout")
        weights = weights / weights.sum()
    for label in (0, 1):
        if not weights @ (labels == label) > 0:
            raise ValueError(f"no row of class {label}: both classes are needed to minimise a risk")
    return weights


def _read_start(start: LinearRule | ArrayLike, dim: int) -> Floats:
    if isinstance(start, LinearRule):
        theta = np.append(start.w, start.b)
    else:
        theta = np.asarray(start, dtype=np.float64)
    if theta.shape != (dim + 1,):
        raise ValueError(
            f"start must be a rule in {dim} dimensions or its {dim + 1} numbers, got {theta.shape}"
        )
    return theta


class _EmpiricalRisk:
    """The empirical risk in columns of mean 0 and deviation 1, so that units do not matter."""

    def __init__(self, loss: Loss, points: NDArray[Any], labels: Floats, weights: Floats, l2: float) -> None:
        self.loss, self.points, self.labels, self.weights, self.l2 = loss, points, labels, weights, l2
        d = points.shape[1]
        self.centre = np.zeros(d)
        for rows, block in chunks(points):
            self.centre += weights[rows] @ block[:, :d]
        variance = np.zeros(d)
        for rows, block in chunks(points):
            variance += weights[rows] @ (block[:, :d] - self.centre) ** 2
        # A constant column has no unit of its own; any will do.
        self.unit = np.where(variance > 0, np.sqrt(variance), 1.0)

    def inward(self, theta: Floats) -> Floats:
        w = theta[:-1]
        return np.append(w * self.unit, theta[-1] + w @ self.centre)

    def outward(self, theta: Floats) -> tuple[Floats, float]:
        w = theta[:-1] / self.unit
        return w, float(theta[-1] - w @ self.centre)

    def __call__(self, theta: Floats) -> Expansion:
        dim = theta.size
        value, scale = 0.0, 0.0
        gradient, hessian = np.zeros(dim), np.zeros((dim, dim))
        for rows, block in self._blocks():
            weight, z = self.weights[rows], block @ theta
            with NumpyOps.guard():
                cost, slope, bend = self.loss._labelled(NumpyOps, z, self.labels[rows], 2)
                refuse_nan(self.loss, z, self.labels[rows], cost + slope + bend)
                pull = weight * slope
                value += float(weight @ cost)
                gradient += pull @ block
                scale += float(np.abs(pull) @ np.linalg.norm(block, axis=1))
                hessian += block.T @ ((weight * bend)[:, None] * block)
        stiffness = np.append(self.l2 / self.unit**2, 0.0)
        gradient += stiffness * theta
        hessian[np.diag_indices(dim)] += stiffness
        value += 0.5 * float(stiffness @ theta**2)
        return Expansion(value, gradient, hessian, scale + length(stiffness * theta))

    def _blocks(self) -> Iterator[tuple[slice, Floats]]:
        for rows, block in chunks(self.points):
            block[:, :-1] -= self.centre
            block[:, :-1] /= self.unit
            yield rows, block

    def is_separated(self, theta: Floats) -> bool:
        """Whether every weighted row is on its side of the rule."""
        for rows, block in self._blocks():
            margin = (2 * self.labels[rows] - 1) * (block @ theta)
            if np.any(margin[self.weights[rows] > 0] <= 0):
                return False
        return True


def _failure(loss: Loss, minimum: LocalMinimum, risk: _EmpiricalRisk) -> str:
    found = f"{loss}: the empirical risk has a relative gradient of {minimum.gradient_norm:.2g}"
    if risk.is_separated(minimum.point):
        return f"{found} because a hyperplane separates the classes and w grows without limit; set l2 > 0"
    ended = "no step lowers it further" if minimum.stalled else "the steps ran out"
    return f"{found} after {minimum.iterations} Newton steps ({ended}); try another start or l2 > 0"
