"""Newton's method with a line search, for functions of a few variables that need not be convex.

It serves every minimisation of this package: population risks, log-MGF programmes, empirical
risks, the AUC of a direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .linear_rule import Floats, length

_ROUNDING = 1e-13
_MOST_IDLE = 15


@dataclass(frozen=True, eq=False)
class Expansion:
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
class LocalMinimum:
    """Where Newton's method ended, and whether no step could lower the function further."""

    point: Floats
    evaluation: Expansion
    iterations: int
    stalled: bool

    @property
    def gradient_norm(self) -> float:
        return self.evaluation.relative_gradient


def minimise(
    evaluate: Callable[[Floats], Expansion],
    start: Floats,
    *,
    tolerance: float,
    goal: float = 1e-13,
    most_steps: int = 500,
) -> LocalMinimum:
    """Minimise by Newton's method with a line search.

    It continues to a relative gradient of `goal` while steps still halve it, and accepts `tolerance`. The
    caller checks the relative gradient.
    """
    point, here = start, evaluate(start)
    idle = 0
    for step in range(most_steps):
        if here.relative_gradient <= goal:
            return LocalMinimum(point, here, step, stalled=False)
        found = _line_search(evaluate, point, here, _direction(point, here))
        if found is None or idle == _MOST_IDLE:
            return LocalMinimum(point, here, step, stalled=True)
        following, there = found
        if here.relative_gradient <= tolerance and there.relative_gradient > here.relative_gradient / 2:
            return LocalMinimum(point, here, step, stalled=False)  # only rounding is left
        lower = there.value < here.value - _ROUNDING * abs(here.value)
        idle = 0 if lower or there.relative_gradient < 0.9 * here.relative_gradient else idle + 1
        point, here = following, there
    return LocalMinimum(point, here, most_steps, stalled=False)


def _direction(point: Floats, here: Expansion) -> Floats:
    """Return -|H|^-1 g: negative curvature changes its sign, so that the step always goes down."""
    # A few variables: the eigenvectors cost nothing beside an evaluation, and show negative curvature
    # exactly.
    values, vectors = np.linalg.eigh(here.hessian)
    sizes = np.abs(values)
    floored = np.maximum(sizes, max(1e-13 * float(sizes.max()), np.finfo(float).tiny))
    step: Floats = -vectors @ ((vectors.T @ here.gradient) / floored)
    # On a plateau both g and H vanish and their quotient means nothing.
    longest = 10 * (1 + length(point))
    size = length(step)
    return step if size <= longest else step * (longest / size)


def _line_search(
    evaluate: Callable[[Floats], Expansion], point: Floats, here: Expansion, direction: Floats
) -> tuple[Floats, Expansion] | None:
    slope = float(here.gradient @ direction)
    if not (math.isfinite(slope) and slope < 0):
        return None
    rounding = _ROUNDING * abs(here.value)
    reach = 1.0
    for _ in range(60):
        there_point = point + reach * direction
        # The step is below the rounding of the point: shorter ones would be the same point again.
        if np.array_equal(there_point, point):
            return None
        there = evaluate(there_point)
        usable = math.isfinite(there.value) and bool(np.all(np.isfinite(there.hessian)))
        if usable and there.value <= here.value + 1e-4 * reach * slope:
            return there_point, there
        # The decrease may be below the rounding of the value, as for a rare class's share of a bounded loss.
        # The slope along the step is still accurate: Hager and Zhang's condition.
        if usable and there.value <= here.value + rounding:
            slope_there = float(there.gradient @ direction)
            if slope_there <= -0.8 * slope:
                return there_point, there
        reach /= 2
    return None
