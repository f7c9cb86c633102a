"""Minimisers of a regularised risk that need only its sums over rows.

`descend` is Newton's method or L-BFGS with a line search, for a smooth penalty. `descend_with_l1` takes
proximal Newton steps,

    minimise  R(theta) + l1 |b|_1,   b all coefficients but the intercepts.

Each step minimises the quadratic model of R plus the penalty by coordinate descent. It covers only features
whose coefficient is not zero or would become so. Both are generators: they yield points to evaluate, and
receive the risk there. So many runs side by side can share each read of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from ..losses import Loss
from .design import Floats
from .penalties import Penalty, least_subgradient
from .sums import Request, RiskDerivatives

__all__ = ["ORDINARY_PULL", "Minimum", "Run", "Settings", "descend", "descend_with_l1", "length"]

# Mean |l'| of cross entropy at a prior of 1 %. With the prior the gradient and the curvature go to zero. From
# here on down the limit of the gradient norm follows them, so that coefficients stay as exact. Under an
# absolute limit the squared loss ended where it started.
ORDINARY_PULL = 0.02

_MOST_IDLE = 10
_MOST_TRIALS = 50
_STALE = 0.3  # a Hessian whose step leaves more of the gradient than this is computed anew
_SETTLED = 0.1  # once a step leaves less than this, the Hessian is kept
# Where float32 ends: below this share of mean |l'| its rounding shows in the gradient.
_SINGLE = 1e-5
_ALL_FEATURES = 300  # up to here the Hessian of an l1 fit is that of every feature
_FLOOR = 1e-12  # of the largest eigenvalue
_MOST_PAIRS = 20


# ---- curvature ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Factor:
    """H = L L', or the eigenvectors and floored eigenvalues of an H that is not positive definite."""

    cholesky: tuple[Any, bool] | None
    values: Floats | None = None
    vectors: Floats | None = None

    def solve(self, g: Floats) -> Floats:
        if self.cholesky is not None:
            return np.asarray(linalg.cho_solve(self.cholesky, g, check_finite=False), dtype=np.float64)
        assert self.values is not None
        assert self.vectors is not None
        along = self.vectors.T @ g
        # In a direction without effect (a constant column, the common level of K logits) the gradient is only
        # rounding, and steps along it would drift.
        drift = (self.values <= _FLOOR * self.values.max()) & (np.abs(along) <= 1e-8 * np.linalg.norm(g))
        return np.asarray(self.vectors @ (np.where(drift, 0.0, along) / self.values), dtype=np.float64)


def factor(hessian: Floats) -> Factor:
    """Return the factor of H, or, where H is not safely positive definite, of |H| with a floor.

    The Hessian floor: eigenvalues are replaced by their sizes, and by 1e-12 of the largest where they are
    smaller. Negative curvature of a loss that is not convex is so turned round, and the Newton step goes
    down in every case.
    """
    try:
        # Cholesky first: it costs a small part of the eigenvectors, and fails where they are needed.
        root = linalg.cho_factor(hessian, lower=True, check_finite=False)
        diagonal = np.diag(root[0])
        if diagonal.min() > math.sqrt(_FLOOR) * diagonal.max():
            return Factor(root)
    except linalg.LinAlgError:
        pass
    values, vectors = _eigen(hessian)
    return Factor(None, values, vectors)


def floored(hessian: Floats) -> Floats:
    """H itself where it is positive definite, else |H| with the floor, as a matrix."""
    if factor(hessian).cholesky is not None:
        return hessian
    values, vectors = _eigen(hessian)
    return np.asarray((vectors * values) @ vectors.T)


def _eigen(hessian: Floats) -> tuple[Floats, Floats]:
    values, vectors = np.linalg.eigh(hessian)
    sizes = np.abs(values)
    return np.maximum(sizes, max(_FLOOR * float(sizes.max()), np.finfo(np.float64).tiny)), vectors


class Curvature:
    """The inverse Hessian of L-BFGS, optionally on top of a factored Hessian.

    Without a factor this is plain L-BFGS. The factor may be the Hessian of a nearby point or of a part of the
    rows. Then this is Newton's method with a Hessian that is computed once and corrected by each step.
    """

    def __init__(self, start: Factor | None = None) -> None:
        self.factor = start
        self.pairs: list[tuple[Floats, Floats, float]] = []

    def renew(self, start: Factor | None) -> None:
        self.factor = start
        self.pairs = []

    def learn(self, step: Floats, change: Floats) -> None:
        """A step and the change of the gradient along it; of no use where the curvature was negative."""
        along = float(step @ change)
        # A pair with s.y near zero would make the inverse Hessian explode.
        if along > 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            self.pairs = [*self.pairs[1 - _MOST_PAIRS :], (step, change, 1 / along)]

    def solve(self, g: Floats) -> Floats:
        """H^-1 g by the two-loop recursion."""
        g = g.copy()
        used = []
        for step, change, weight in reversed(self.pairs):
            share = weight * float(step @ g)
            used.append(share)
            g -= share * change
        if self.factor is not None:
            g = self.factor.solve(g)
        elif self.pairs:
            step, change, weight = self.pairs[-1]
            g /= weight * float(change @ change)
        for (step, change, weight), share in zip(self.pairs, reversed(used)):
            g += (share - weight * float(change @ g)) * step
        return g


# ---- smooth penalties --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Settings:
    """The problem of a run and its accuracy.

    `curvature` is a factored Hessian to start from. With `single_first` the first steps are in float32, and
    with `precise` the last one is in float64.
    """

    loss: Loss
    penalty: Penalty
    tolerance: float
    max_iter: int
    newton: bool
    single_first: bool
    curvature: Factor | None = None
    precise: bool = True


Ending = Literal["converged", "stalled", "out of steps", "separated"]


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a run ended. `residual` is the norm of the gradient, or of the least subgradient with l1."""

    theta: Floats
    evaluation: RiskDerivatives
    residual: float
    iterations: int
    ending: Ending
    curvature: Factor | None


# A run yields points to be evaluated and is sent what was found there.
Run = Generator[Request, RiskDerivatives, Minimum]


def limit_of(settings: Settings, here: RiskDerivatives) -> float:
    """Return the gradient norm that counts as zero: relative where the terms that cancel are above one."""
    return settings.tolerance * max(1.0, here.scale)


def ending_of(settings: Settings, here: RiskDerivatives, residual: float) -> Ending:
    """Converged, unless the gradient is small only because every loss is.

    At a minimum the pulls of the rows cancel. Where a hyperplane separates the classes and nothing is
    penalised they do not: they vanish one by one as the coefficients grow without limit.
    """
    penalised = not settings.penalty.is_none
    return "converged" if penalised or residual <= 1e-2 * here.scale or residual == 0 else "separated"


def descend(settings: Settings, start: Floats, safe: Floats) -> Run:
    """Minimise from `start`, or from `safe` where the risk at `start` is not finite.

    A start near the minimum of a part of the rows may be very wrong for a row outside that part. An unbounded
    loss then overflows.
    """
    theta = start
    double = not settings.single_first
    curvature = Curvature(settings.curvature)
    needs_hessian = settings.newton and curvature.factor is None
    here = yield _ask(settings, theta, 2 if needs_hessian else 1, double)
    if not _is_finite(here) and theta is not safe:
        theta, settings = safe, replace(settings, curvature=None)
        curvature = Curvature(None)
        here = yield _ask(settings, theta, 2 if settings.newton else 1, double)
    _refuse_nan(settings, here)
    rate = 0.05 if settings.curvature is not None else 1.0
    idle = 0
    step = 0
    while True:
        residual = length(here.gradient)
        # Convergence in float32 may be an artefact of rounding, so the point is checked in float64.
        if residual <= limit_of(settings, here) and settings.precise and not here.double:
            double = True
            here = yield _ask(settings, theta, 1, double)
            continue
        if residual <= limit_of(settings, here):
            ending = ending_of(settings, here, residual)
            return Minimum(theta, here, residual, step, ending, curvature.factor)
        if step >= settings.max_iter or idle >= _MOST_IDLE:
            ended: Ending = "stalled" if idle >= _MOST_IDLE else "out of steps"
            return Minimum(theta, here, residual, step, ended, curvature.factor)
        if settings.newton:
            stale = here.hessian is None and (curvature.factor is None or rate > _STALE)
            if stale:
                here = yield _ask(settings, theta, 2, double)
            if here.hessian is not None:
                curvature.renew(factor(here.hessian))
        double = double or residual * max(rate, _SETTLED) <= max(
            limit_of(settings, here), _SINGLE * here.scale
        )
        # A Hessian costs several gradients; while steps shrink the residual tenfold the old one will do.
        order = 2 if settings.newton and rate > _SETTLED else 1
        direction = _direction(theta, here, curvature)
        found = yield from _line_search(settings, theta, here, direction, order, double)
        if found is None:
            fresh = here.hessian is not None if settings.newton else not curvature.pairs
            if fresh and double and here.double:
                return Minimum(theta, here, residual, step, "stalled", curvature.factor)
            # Before giving up: exact curvature, and float64.
            double = True
            curvature.renew(None)
            here = yield _ask(settings, theta, 2 if settings.newton else 1, double)
            rate = 1.0
            continue
        following, there = found
        curvature.learn(following - theta, there.gradient - here.gradient)
        rate = length(there.gradient) / residual
        lower = there.value < here.value - here.noise
        idle = 0 if lower or rate < 0.9 else idle + 1
        theta, here = following, there
        step += 1


def length(vector: Floats) -> float:
    """Return the Euclidean norm, infinite for a vector that is not finite."""
    norm = float(np.linalg.norm(vector))
    return norm if math.isfinite(norm) else math.inf


def _ask(
    settings: Settings,
    theta: Floats,
    order: int,
    double: bool,
    features: NDArray[np.intp] | None = None,
) -> Request:
    return Request(settings.loss, settings.penalty, theta, order, double, features)


def _is_finite(here: RiskDerivatives) -> bool:
    return math.isfinite(here.value) and bool(np.isfinite(here.gradient).all())


def _refuse_nan(settings: Settings, here: RiskDerivatives) -> None:
    if not _is_finite(here):
        raise ValueError(
            f"{settings.loss} is not finite at the start of the fit (risk {here.value}); "
            "check the range of the features and the loss's own formula"
        )


def _direction(theta: Floats, here: RiskDerivatives, curvature: Curvature) -> Floats:
    step = -curvature.solve(here.gradient)
    slope = float(here.gradient @ step)
    if not (math.isfinite(slope) and slope < 0):
        curvature.renew(curvature.factor)
        step = -curvature.solve(here.gradient)
    if curvature.factor is None and not curvature.pairs:
        # The curvature is still unknown, so the first step has a moderate length. It does not shrink with the
        # prior: from steps of 1e-9 on a plateau L-BFGS learned nothing.
        step = step / max(min(1.0, here.scale / ORDINARY_PULL), length(here.gradient))
    # On a plateau both gradient and Hessian vanish and their quotient means nothing.
    longest = 10 * (1 + length(theta))
    size = length(step)
    return step if size <= longest else step * (longest / size)


def _line_search(
    settings: Settings, theta: Floats, here: RiskDerivatives, direction: Floats, order: int, double: bool
) -> Generator[Request, RiskDerivatives, tuple[Floats, RiskDerivatives] | None]:
    """A step that lowers the value and leaves the slope smaller (weak Wolfe conditions, by bisection)."""
    slope = float(here.gradient @ direction)
    if not (math.isfinite(slope) and slope < 0):
        return None
    low, high, reach = 0.0, math.inf, 1.0
    best: tuple[Floats, RiskDerivatives] | None = None
    for _ in range(_MOST_TRIALS):
        point = theta + reach * direction
        if np.array_equal(point, theta):
            return best
        there = yield _ask(settings, point, order, double)
        usable = math.isfinite(there.value) and bool(np.isfinite(there.gradient).all())
        if usable and there.hessian is not None and not np.isfinite(there.hessian).all():
            there = replace(there, hessian=None)
        slope_there = float(there.gradient @ direction) if usable else math.inf
        noise = here.noise + there.noise
        # Where the decrease drowns in the rounding of the value, the slope along the step still tells
        # (Hager and Zhang).
        # The usual Armijo constant.
        falls = there.value <= here.value + 1e-4 * reach * slope
        flat = there.value <= here.value + noise and slope_there <= -0.8 * slope
        if not (usable and (falls or flat)):
            high = reach
        elif slope_there < 0.9 * slope and reach < 1e4:
            low, best = reach, (point, there)
        else:
            return point, there
        if best is not None and high < math.inf and high - low < 0.1 * low:
            return best
        reach = (low + high) / 2 if high < math.inf else 2 * reach
    return best


# ---- l1 ----------------------------------------------------------------------------------


def descend_with_l1(settings: Settings, start: Floats, safe: Floats, n_scores: int, n_features: int) -> Run:
    """Minimise from `start`, a vector of the (n_scores, columns) coefficients; see `descend`."""
    theta = start
    columns = theta.size // n_scores
    weights = settings.penalty.corner_weights(n_scores, columns, n_features)
    double = not settings.single_first
    here = yield _ask(settings, theta, 1, double)
    if not math.isfinite(here.value) and theta is not safe:
        theta = safe
        here = yield _ask(settings, theta, 1, double)
    if not math.isfinite(here.value):
        raise ValueError(f"{settings.loss} is not finite at the start of the fit (risk {here.value})")
    # The model and the places in theta that it covers, kept while its steps are good.
    model: Floats | None = None
    places: NDArray[np.intp] | None = None
    idle, step, rate = 0, 0, 1.0
    while True:
        subgradient = least_subgradient(here.gradient, theta, weights)
        residual = length(subgradient)
        if residual <= limit_of(settings, here):
            if here.double or not settings.precise:
                return Minimum(theta, here, residual, step, "converged", None)
            double = True
            here = yield _ask(settings, theta, 1, double)
            continue
        if step >= settings.max_iter or idle >= _MOST_IDLE:
            ended = "stalled" if idle >= _MOST_IDLE else "out of steps"
            return Minimum(theta, here, residual, step, ended, None)  # type: ignore[arg-type]
        covered = places is not None and not np.delete(subgradient, places).any()
        if model is None or rate > _SETTLED or not covered:
            features = _working_features(subgradient, theta, n_scores, columns, n_features)
            here = yield _ask(settings, theta, 2, double, features)
            assert here.hessian is not None
            places = places_of(features, n_scores, columns, n_features)
            model = floored(here.hessian)
        assert places is not None
        target = _minimise_model(model, here.gradient[places], theta[places], weights[places])
        direction = np.zeros(theta.size)
        direction[places] = _without_drift(target - theta[places], model, weights[places])
        double = double or residual * max(rate, _SETTLED) <= max(
            limit_of(settings, here), _SINGLE * here.scale
        )
        found = yield from _backtrack(settings, theta, here, direction, weights, double)
        if found is None:
            if double and here.double and here.hessian is not None:
                return Minimum(theta, here, residual, step, "stalled", None)
            double, model, rate = True, None, 1.0
            continue
        following, there = found
        rate = length(least_subgradient(there.gradient, following, weights)) / residual
        lower = _total(there, following, weights) < _total(here, theta, weights) - here.noise
        idle = 0 if lower or rate < 0.9 else idle + 1
        theta, here = following, there
        step += 1


def _total(here: RiskDerivatives, theta: Floats, weights: Floats) -> float:
    return here.value + float(weights @ np.abs(theta))


def _working_features(
    subgradient: Floats, theta: Floats, n_scores: int, columns: int, n_features: int
) -> NDArray[np.intp] | None:
    """Features in use, and of those that want to be the ones that want most: twice as many at most."""
    if n_features <= _ALL_FEATURES:
        return None
    used = (theta.reshape(n_scores, columns)[:, :n_features] != 0).any(axis=0)
    wish = np.abs(subgradient.reshape(n_scores, columns)[:, :n_features]).max(axis=0)
    room = max(_ALL_FEATURES, 2 * int(used.sum()))
    wish[used] = math.inf
    order = np.argsort(-wish, kind="stable")[:room]
    return np.asarray(np.sort(order[wish[order] > 0]))


def places_of(
    features: NDArray[np.intp] | None, n_scores: int, columns: int, n_features: int
) -> NDArray[np.intp]:
    """Return where in theta the named features and the intercepts are."""
    if features is None:
        return np.arange(n_scores * columns)
    within = np.concatenate([features, np.arange(n_features, columns)])
    return np.asarray((np.arange(n_scores)[:, None] * columns + within).ravel())


def _minimise_model(hessian: Floats, gradient: Floats, theta: Floats, penalty: Floats) -> Floats:
    """argmin_t g.(t - theta) + (t - theta)'H(t - theta)/2 + penalty.|t|, by coordinate descent.

    Once the signs have settled the minimum over the coordinates in use is a linear system, solved at once.
    """
    point = theta.copy()
    slope = gradient.copy()  # of the smooth part at `point`
    diagonal = np.diag(hessian)
    goal = 1e-3 * length(least_subgradient(gradient, theta, penalty))
    for sweep in range(1000):
        for j in np.flatnonzero((point != 0) | (np.abs(slope) > penalty) | (penalty == 0)):
            # The minimum along one coordinate, moved towards zero by the penalty (soft thresholding).
            free = point[j] - slope[j] / diagonal[j]
            size = abs(free) - penalty[j] / diagonal[j]
            moved = math.copysign(size, free) if size > 0 else 0.0
            if moved != point[j]:
                slope += (moved - point[j]) * hessian[j]
                point[j] = moved
        if sweep % 5 == 4:
            # Coordinate descent finds the signs in a few sweeps, but creeps along correlated features.
            solved = _solve_signs(hessian, gradient, theta, penalty, point)
            if solved is not None:
                return solved
        if length(least_subgradient(slope, point, penalty)) <= 1e-6 * goal:
            break
    return point


def _solve_signs(
    hessian: Floats, gradient: Floats, theta: Floats, penalty: Floats, point: Floats
) -> Floats | None:
    """Return the minimum with the signs of `point`, if it has them and no other coordinate wants to join."""
    used = np.flatnonzero((point != 0) | (penalty == 0))
    inner = hessian[np.ix_(used, used)]
    signs = np.sign(point[used])
    rhs = hessian[used] @ theta - gradient[used] - penalty[used] * signs
    try:
        values = np.linalg.solve(inner, rhs)
    except np.linalg.LinAlgError:
        return None
    if np.any((np.sign(values) != signs) & (penalty[used] > 0)):
        return None
    solved = np.zeros_like(point)
    solved[used] = values
    slope = gradient + hessian @ (solved - theta)
    outside = solved == 0
    return solved if np.all(np.abs(slope[outside]) <= penalty[outside] * (1 + 1e-12)) else None


def _without_drift(step: Floats, hessian: Floats, penalty: Floats) -> Floats:
    """Return the step less a common change of all intercepts, where that changes nothing (K logits)."""
    level = (penalty == 0).astype(np.float64)
    if level.sum() < 2 or np.abs(hessian @ level).max() > 1e-10 * np.abs(hessian).max():
        return step
    return np.asarray(step - level * float(step @ level) / level.sum())


def _backtrack(
    settings: Settings, theta: Floats, here: RiskDerivatives, direction: Floats, weights: Floats, double: bool
) -> Generator[Request, RiskDerivatives, tuple[Floats, RiskDerivatives] | None]:
    """Backtracking on R + l1 |b|_1."""
    now = float(weights @ np.abs(theta))
    fall = float(here.gradient @ direction) + float(weights @ np.abs(theta + direction)) - now
    if not fall < 0:
        return None
    residual = length(least_subgradient(here.gradient, theta, weights))
    reach = 1.0
    for _ in range(_MOST_TRIALS):
        point = theta + reach * direction
        if np.array_equal(point, theta):
            return None
        there = yield _ask(settings, point, 1, double)
        change = there.value - here.value + float(weights @ np.abs(point)) - now
        if math.isfinite(there.value) and np.isfinite(there.gradient).all():
            if change <= 1e-4 * reach * fall:
                return point, there
            # Where the decrease drowns in rounding the subgradient still tells.
            if change <= here.noise + there.noise:
                left = length(least_subgradient(there.gradient, point, weights))
                if left <= 0.5 * residual:
                    return point, there
        reach /= 2
    return None
