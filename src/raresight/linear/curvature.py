"""A positive definite model of the curvature: a factored Hessian, brought up to date by secant pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from .design import Floats

__all__ = ["Curvature", "factor", "floored"]

_FLOOR = 1e-12
_MOST_PAIRS = 20


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
        # In a direction where nothing changes (a constant column, the common level of K logits) the
        # gradient is rounding, and a step along it would be drift.
        drift = (self.values <= _FLOOR * self.values.max()) & (np.abs(along) <= 1e-8 * np.linalg.norm(g))
        return np.asarray(self.vectors @ (np.where(drift, 0.0, along) / self.values), dtype=np.float64)


def factor(hessian: Floats) -> Factor:
    """The factor of H, or, where H is not safely positive definite, of |H| with a floor.

    The Hessian floor: eigenvalues are replaced by their sizes, and by 1e-12 of the largest where they are
    smaller. Negative curvature of a loss that is not convex is so turned round, and the Newton step goes
    down in every case.
    """
    try:
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
    """The inverse Hessian as L-BFGS has it, upon a factor where there is one.

    Without a factor this is plain L-BFGS; with the Hessian of a nearby point or of a part of the rows it
    is Newton's method with a Hessian that is paid for once and corrected by what the steps reveal.
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
