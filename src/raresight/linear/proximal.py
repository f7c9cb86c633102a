"""Proximal Newton steps for an l1 penalty, as a series of requests.

    minimise  R(theta) + l1 |b|_1,   b all coefficients but the intercepts

Each step minimises the quadratic model of R plus the penalty by coordinate descent, over the features that
are in use or want to be. The residual is the norm of the least subgradient (the KKT residual): it is
R'_j + l1 sign(b_j) where b_j is not 0, and what |R'_j| has above l1 where it is.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from .curvature import floored
from .design import Floats
from .newton import Minimum, Settings, Steps, length, limit_of
from .risk import Request, RiskDerivatives

__all__ = ["descend_with_l1", "least_subgradient", "places_of"]

_MOST_IDLE = 10
_MOST_TRIALS = 50
_ALL_FEATURES = 300  # up to here the Hessian is that of every feature


def least_subgradient(gradient: Floats, theta: Floats, penalty: Floats) -> Floats:
    """The subgradient of least norm of R + sum_j penalty_j |theta_j|."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - penalty, 0.0)
    return np.asarray(np.where(theta != 0, gradient + penalty * np.sign(theta), at_zero))


def descend_with_l1(settings: Settings, start: Floats, safe: Floats, n_scores: int, n_features: int) -> Steps:
    """Minimise from `start`, a vector of the (n_scores, columns) coefficients; see `newton.descend`."""
    theta = start
    columns = theta.size // n_scores
    penalty = np.zeros((n_scores, columns))
    penalty[:, :n_features] = settings.l1
    weights = penalty.ravel()
    double = not settings.single_first
    here = yield Request(settings.loss, settings.l2, theta, 1, double)
    if not math.isfinite(here.value) and theta is not safe:
        theta = safe
        here = yield Request(settings.loss, settings.l2, theta, 1, double)
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
            here = yield Request(settings.loss, settings.l2, theta, 1, double)
            continue
        if step >= settings.max_iter or idle >= _MOST_IDLE:
            ended = "stalled" if idle >= _MOST_IDLE else "out of steps"
            return Minimum(theta, here, residual, step, ended, None)  # type: ignore[arg-type]
        covered = places is not None and not np.delete(subgradient, places).any()
        if model is None or rate > 0.1 or not covered:
            features = _working_features(subgradient, theta, n_scores, columns, n_features)
            here = yield Request(settings.loss, settings.l2, theta, 2, double, features)
            assert here.hessian is not None
            places = places_of(features, n_scores, columns, n_features)
            model = floored(here.hessian)
        assert places is not None
        target = _minimise_model(model, here.gradient[places], theta[places], weights[places])
        direction = np.zeros(theta.size)
        direction[places] = _without_drift(target - theta[places], model, weights[places])
        double = double or residual * max(rate, 0.1) <= max(limit_of(settings, here), 1e-5 * here.scale)
        found = yield from _line_search(settings, theta, here, direction, weights, double)
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
    """Where in theta the named features and the intercepts are."""
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
            free = point[j] - slope[j] / diagonal[j]
            size = abs(free) - penalty[j] / diagonal[j]
            moved = math.copysign(size, free) if size > 0 else 0.0
            if moved != point[j]:
                slope += (moved - point[j]) * hessian[j]
                point[j] = moved
        if sweep % 5 == 4:
            solved = _solve_signs(hessian, gradient, theta, penalty, point)
            if solved is not None:
                return solved
        if length(least_subgradient(slope, point, penalty)) <= 1e-6 * goal:
            break
    return point


def _solve_signs(
    hessian: Floats, gradient: Floats, theta: Floats, penalty: Floats, point: Floats
) -> Floats | None:
    """The minimum with the signs of `point`, if it has them and no other coordinate wants to join."""
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
    """The step less a common change of all intercepts, where that changes nothing (K logits)."""
    level = (penalty == 0).astype(np.float64)
    if level.sum() < 2 or np.abs(hessian @ level).max() > 1e-10 * np.abs(hessian).max():
        return step
    return np.asarray(step - level * float(step @ level) / level.sum())


def _line_search(
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
        there = yield Request(settings.loss, settings.l2, point, 1, double)
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
