"""The minimiser of a smooth regularised risk, as a series of requests.

Newton's method or L-BFGS with a line search. It is written as a generator that yields points to be
evaluated and is sent what was found there, so that one run or many runs side by side share each read of
the rows.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..losses import Loss
from .curvature import Curvature, Factor, factor
from .design import Floats
from .risk import Request, RiskDerivatives

__all__ = ["Minimum", "Settings", "Steps", "descend"]

_MOST_IDLE = 10
_MOST_TRIALS = 50
_STALE = 0.3  # a Hessian whose step leaves more of the gradient than this is computed anew
_SETTLED = 0.1  # once a step leaves less than this, the Hessian is kept
# Where float32 ends: below this share of mean |l'| its rounding shows in the gradient.
_SINGLE = 1e-5


@dataclass(frozen=True, eq=False)
class Settings:
    """What is minimised and how far.

    `curvature` starts from a Hessian that is already factored; `single_first` lets the first steps be
    computed in float32, and `precise` says whether the last one must be in float64.
    """

    loss: Loss
    l2: float
    l1: float
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


Steps = Generator[Request, RiskDerivatives, Minimum]


def limit_of(settings: Settings, here: RiskDerivatives) -> float:
    """The gradient norm that counts as zero: relative where the terms that cancel are above one."""
    return settings.tolerance * max(1.0, here.scale)


def ending_of(settings: Settings, here: RiskDerivatives, residual: float) -> Ending:
    """Converged, unless the gradient is small only because every loss is.

    At a minimum the pulls of the rows cancel. Where a hyperplane separates the classes and nothing is
    penalised they do not: they vanish one by one as the coefficients grow without limit.
    """
    penalised = settings.l2 > 0 or settings.l1 > 0
    return "converged" if penalised or residual <= 1e-2 * here.scale or residual == 0 else "separated"


def descend(settings: Settings, start: Floats, safe: Floats) -> Steps:
    """Minimise from `start`, or from `safe` where the risk at `start` is not finite.

    A start near the minimum of a part of the rows may give a row outside that part a score so wrong that an
    unbounded loss overflows there.
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
    """The Euclidean norm, infinite for a vector that is not finite."""
    norm = float(np.linalg.norm(vector))
    return norm if math.isfinite(norm) else math.inf


def _ask(settings: Settings, theta: Floats, order: int, double: bool) -> Request:
    return Request(settings.loss, settings.l2, theta, order, double)


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
        # Nothing is known of the curvature yet: a first step of moderate length.
        step = step / max(1.0, length(here.gradient))
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
