"""Exact minimisers of a linear score: the rule, Newton's method, and the empirical risk.

Newton's method here serves every minimisation of this package (population risks, log-MGF
programmes, empirical risks, the AUC of a direction), so it makes no assumption of convexity.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..losses import Loss
from ..losses._numpy_ops import NumpyOps

__all__ = ["LinearRule", "empirical_minimiser"]

Floats = NDArray[np.float64]

_CHUNK = 1 << 16
_EMPIRICAL_TOLERANCE = 1e-8
_ROUNDING = 1e-13
_MOST_IDLE = 15


# ---- the rule ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, init=False)
class LinearRule:
    """A linear score z = w.x + b, and how it was found.

    `risk` is the risk that it minimises, `prior` the P(y=1) it was found for, `gradient_norm` the
    gradient of the risk there relative to the size of the terms that cancel in it.

    >>> rule = LinearRule(w=[0.0, 2.0], b=-1.0)
    >>> rule.score([[5.0, 1.0], [5.0, 0.0]]).tolist()
    [1.0, -1.0]
    >>> rule.angle
    90.0
    """

    w: Floats
    b: float
    risk: float = math.nan
    prior: float = math.nan
    iterations: int = 0
    gradient_norm: float = math.nan

    def __init__(
        self,
        w: ArrayLike,
        b: float,
        risk: float = math.nan,
        prior: float = math.nan,
        iterations: int = 0,
        gradient_norm: float = math.nan,
    ) -> None:
        direction = read_only(w)
        if direction.ndim != 1 or direction.size == 0:
            raise ValueError(f"w must be a vector, got shape {direction.shape}")
        values = (direction, float(b), float(risk), float(prior), int(iterations), float(gradient_norm))
        for field, value in zip(dataclasses.fields(self), values):
            object.__setattr__(self, field.name, value)

    def score(self, X: ArrayLike) -> Floats:
        """w.x + b for each row of `X`, of shape (..., d)."""
        points = np.asarray(X, dtype=np.float64)
        if points.ndim == 0 or points.shape[-1] != self.w.size:
            raise ValueError(f"X of shape {points.shape} does not fit a rule in {self.w.size} dimensions")
        result: Floats = points @ self.w + self.b
        return result

    @property
    def angle(self) -> float:
        """The direction of w in the plane, in degrees from the first axis, in [0, 360)."""
        if self.w.size != 2:
            raise ValueError(f"only a rule in 2 dimensions has an angle; this one has {self.w.size}")
        degrees = math.degrees(math.atan2(self.w[1], self.w[0])) % 360.0
        return 0.0 if degrees == 360.0 else degrees  # the remainder of a tiny negative angle rounds up


def read_only(values: ArrayLike) -> Floats:
    """A float64 copy that cannot be written to."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def length(vector: Floats) -> float:
    """The Euclidean norm, also of vectors whose squares would underflow."""
    largest = float(np.abs(vector).max())
    return largest * float(np.linalg.norm(vector / largest)) if largest > 0 else 0.0


def solve(matrix: Floats, vector: Floats) -> Floats:
    """matrix^-1 vector."""
    return np.asarray(np.linalg.solve(matrix, vector), dtype=np.float64)


# ---- losses ------------------------------------------------------------------------------


def check_loss(loss: Loss) -> None:
    """A risk of a linear score needs a loss of a binary score with one best score a point."""
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a loss of raresight.losses, got {loss!r}")
    if not loss.takes_score:
        raise ValueError(f"{loss} is for {loss.n_classes} class logits; a linear rule has a binary score")
    if not loss.has_unique_minimiser:
        raise ValueError(
            f"{loss} has no unique minimiser: its link log l'(0, z) - log(-l'(1, z)) does not increase "
            "strictly with the score, so the best score of a point is not determined"
        )


def branch(loss: Loss, z: Floats, label: int) -> tuple[Floats, Floats, Floats]:
    """Value and two derivatives of l(label, z), refusing what is not a number."""
    with NumpyOps.guard():
        value, slope, bend = loss._branch(NumpyOps, z, label, 2)
        _refuse_nan(loss, z, np.full(z.shape, label), value + slope + bend)
    return value, slope, bend


def _refuse_nan(loss: Loss, z: Floats, labels: NDArray[Any], total: Floats) -> None:
    missing = np.isnan(total)
    if missing.any():
        where = int(np.argmax(missing))
        raise ValueError(
            f"{loss} or a derivative of it is NaN at z = {z[where]:.6g}, y = {int(labels[where])}; write it "
            "so that large scores do not overflow (softplus or logsigmoid, not the log of a probability)"
        )


def constant_score(loss: Loss, log_rho: float) -> float:
    """The best score that ignores x: rho l'(1, b) + l'(0, b) = 0."""
    try:
        score = float(loss.score(log_rho))
    except RuntimeError:  # the link of a loss that is not monotone exists on an interval only
        score = math.nan
    if math.isfinite(score):
        negative, positive = _constant_slopes(loss, score, log_rho)
        if abs(negative + positive) <= 1e-6 * (abs(negative) + abs(positive)):
            return score
    return _bisect_constant(loss, log_rho)


def _constant_slopes(loss: Loss, score: float, log_rho: float) -> tuple[float, float]:
    z = np.array([score])
    return float(branch(loss, z, 0)[1][0]), math.exp(log_rho) * float(branch(loss, z, 1)[1][0])


def _bisect_constant(loss: Loss, log_rho: float) -> float:
    def slope(score: float) -> float:
        return sum(_constant_slopes(loss, score, log_rho))

    reach = 1.0
    while not (slope(-reach) < 0 < slope(reach)):
        reach *= 2
        if reach > 1e4:
            raise RuntimeError(
                f"{loss}: no constant score balances the two classes at log-odds {log_rho:.6g}"
            )
    low, high = -reach, reach
    for _ in range(200):
        middle = (low + high) / 2
        if slope(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


# ---- Newton's method ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A function at a point. `scale` is the size of the terms that cancel in the gradient."""

    value: float
    gradient: Floats
    hessian: Floats
    scale: float

    @property
    def relative_gradient(self) -> float:
        if not math.isfinite(self.value):
            return math.inf
        norm = length(self.gradient)
        return norm / self.scale if norm > 0 else 0.0


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where Newton's method ended, and whether no step could lower the function further."""

    point: Floats
    evaluation: Evaluation
    iterations: int
    stalled: bool

    @property
    def gradient_norm(self) -> float:
        return self.evaluation.relative_gradient


def minimise(
    evaluate: Callable[[Floats], Evaluation],
    start: Floats,
    *,
    tolerance: float,
    goal: float = 1e-13,
    most_steps: int = 500,
) -> Minimum:
    """Newton's method with a line search.

    Goes on to a relative gradient of `goal` while steps still halve it, and is content with
    `tolerance`; the caller looks at `gradient_norm`.
    """
    point, here = start, evaluate(start)
    idle = 0
    for step in range(most_steps):
        if here.relative_gradient <= goal:
            return Minimum(point, here, step, stalled=False)
        found = _line_search(evaluate, point, here, _direction(point, here))
        if found is None or idle == _MOST_IDLE:
            return Minimum(point, here, step, stalled=True)
        following, there = found
        if here.relative_gradient <= tolerance and there.relative_gradient > here.relative_gradient / 2:
            return Minimum(point, here, step, stalled=False)  # only rounding is left
        lower = there.value < here.value - _ROUNDING * abs(here.value)
        idle = 0 if lower or there.relative_gradient < 0.9 * here.relative_gradient else idle + 1
        point, here = following, there
    return Minimum(point, here, most_steps, stalled=False)


def _direction(point: Floats, here: Evaluation) -> Floats:
    """-|H|^-1 g: negative curvature is turned round, so that the step always goes down."""
    values, vectors = np.linalg.eigh(here.hessian)
    sizes = np.abs(values)
    floored = np.maximum(sizes, max(1e-13 * float(sizes.max()), np.finfo(float).tiny))
    step: Floats = -vectors @ ((vectors.T @ here.gradient) / floored)
    # On a plateau both g and H vanish and their quotient means nothing.
    longest = 10 * (1 + length(point))
    size = length(step)
    return step if size <= longest else step * (longest / size)


def _line_search(
    evaluate: Callable[[Floats], Evaluation], point: Floats, here: Evaluation, direction: Floats
) -> tuple[Floats, Evaluation] | None:
    slope = float(here.gradient @ direction)
    if not (math.isfinite(slope) and slope < 0):
        return None
    rounding = _ROUNDING * abs(here.value)
    reach = 1.0
    for _ in range(60):
        there_point = point + reach * direction
        if np.array_equal(there_point, point):
            return None
        there = evaluate(there_point)
        usable = math.isfinite(there.value) and bool(np.all(np.isfinite(there.hessian)))
        if usable and there.value <= here.value + 1e-4 * reach * slope:
            return there_point, there
        # Where the decrease drowns in the rounding of the value (a rare class's share of a bounded
        # loss does at once), the slope along the step still tells: Hager and Zhang's condition.
        if usable and there.value <= here.value + rounding:
            slope_there = float(there.gradient @ direction)
            if slope_there <= -0.8 * slope:
                return there_point, there
        reach /= 2
    return None


# ---- the empirical risk ------------------------------------------------------------------


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
    check_loss(loss)
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


def read_sample(X: ArrayLike, y: ArrayLike) -> tuple[NDArray[Any], Floats]:
    """Points (n, d), as they are, and labels 0.0/1.0."""
    points, labels = np.asarray(X), np.asarray(y)
    if points.ndim != 2 or points.size == 0:
        raise ValueError(f"X must be a table of n rows and d columns, got shape {points.shape}")
    if points.dtype.kind not in "fiub":
        raise TypeError(f"X must hold real numbers, got dtype {points.dtype}")
    if labels.shape != (points.shape[0],):
        raise ValueError(f"y of shape {labels.shape} does not fit X of shape {points.shape}: one label a row")
    wrong = (labels != 0) & (labels != 1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"labels must be 0 or 1: y[{row}] is {labels[row]}")
    return points, labels.astype(np.float64)


def chunks(points: NDArray[Any]) -> Iterator[tuple[slice, Floats]]:
    """The rows in float64 blocks, with a last column of ones."""
    n, d = points.shape
    for begin in range(0, n, _CHUNK):
        rows = slice(begin, min(begin + _CHUNK, n))
        block = np.ones((rows.stop - begin, d + 1))
        block[:, :d] = points[rows]
        if not np.isfinite(block).all():
            row, column = (int(i) for i in np.argwhere(~np.isfinite(block))[0])
            raise ValueError(f"X[{begin + row}, {column}] is {block[row, column]}: X must be finite")
        yield rows, block


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

    def __call__(self, theta: Floats) -> Evaluation:
        dim = theta.size
        value, scale = 0.0, 0.0
        gradient, hessian = np.zeros(dim), np.zeros((dim, dim))
        for rows, block in self._blocks():
            weight, z = self.weights[rows], block @ theta
            with NumpyOps.guard():
                cost, slope, bend = self.loss._labelled(NumpyOps, z, self.labels[rows], 2)
                _refuse_nan(self.loss, z, self.labels[rows], cost + slope + bend)
                pull = weight * slope
                value += float(weight @ cost)
                gradient += pull @ block
                scale += float(np.abs(pull) @ np.linalg.norm(block, axis=1))
                hessian += block.T @ ((weight * bend)[:, None] * block)
        stiffness = np.append(self.l2 / self.unit**2, 0.0)
        gradient += stiffness * theta
        hessian[np.diag_indices(dim)] += stiffness
        value += 0.5 * float(stiffness @ theta**2)
        return Evaluation(value, gradient, hessian, scale + length(stiffness * theta))

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


def _failure(loss: Loss, minimum: Minimum, risk: _EmpiricalRisk) -> str:
    found = f"{loss}: the empirical risk has a relative gradient of {minimum.gradient_norm:.2g}"
    if risk.is_separated(minimum.point):
        return f"{found} because a hyperplane separates the classes and w grows without limit; set l2 > 0"
    ended = "no step lowers it further" if minimum.stalled else "the steps ran out"
    return f"{found} after {minimum.iterations} Newton steps ({ended}); try another start or l2 > 0"
