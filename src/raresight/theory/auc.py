"""The AUC of a linear score of two Gaussian mixtures, and the best there is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .limits import check_dimensions, common_frame
from .linear_rule import Floats, length, read_only, solve
from .minimisation import Expansion, minimise
from .mixture import GaussianMixture

__all__ = ["BestLinearAUC", "best_linear_auc", "linear_auc"]


@dataclass(frozen=True, eq=False)
class BestLinearAUC:
    """The largest AUC of a linear score, and the unit vector that has it."""

    auc: float
    w: Floats


def linear_auc(w: ArrayLike, minority: GaussianMixture, majority: GaussianMixture) -> Any:
    """Return the exact AUC of the score w.x, for one w of shape (d,) or many of shape (..., d).

        AUC(w) = sum_ij pi+_i pi-_j Psi(w.(mu+_i - mu-_j) / sqrt(w.(S+_i + S-_j) w))

    w = 0 ranks nothing and has AUC 1/2.

    >>> minority, majority = (GaussianMixture([1.0], [[m]], [[[1.0]]]) for m in (2.0, 0.0))
    >>> [round(float(auc), 6) for auc in linear_auc([[1.0], [-3.0], [0.0]], minority, majority)]
    [0.92135, 0.07865, 0.5]
    """
    from scipy.special import ndtr

    check_dimensions(minority, majority)
    directions = np.asarray(w, dtype=np.float64)
    if directions.ndim == 0 or directions.shape[-1] != minority.dim:
        raise ValueError(f"w of shape {directions.shape} does not fit mixtures in {minority.dim} dimensions")
    weights, shifts, spreads = _pairs(minority, majority)
    distance = directions @ shifts.T
    variance = np.einsum("...i,pij,...j->...p", directions, spreads, directions)
    ratio = distance / np.sqrt(np.where(variance > 0, variance, 1.0))
    return (ndtr(ratio) @ weights)[()]


def best_linear_auc(minority: GaussianMixture, majority: GaussianMixture) -> BestLinearAUC:
    """Return the best AUC that any linear score has, and its direction.

    For single Gaussians w is proportional to (S+ + S-)^-1 (mu+ - mu-), the alpha = 1/2 rule. Mixtures
    may have several local maxima. Newton's method starts from the best direction of every pair of
    clusters, from that of the totals, and from 16 fixed random directions.

    >>> minority, majority = (GaussianMixture([1.0], [[m, 0.0]], [np.eye(2)]) for m in (2.0, 0.0))
    >>> best = best_linear_auc(minority, majority)
    >>> round(best.auc, 6), best.w.round(6).tolist()
    (0.92135, [1.0, 0.0])
    """
    check_dimensions(minority, majority)
    centre, root = common_frame(minority, majority)
    loss = _AucRisk(minority.in_frame(centre, root), majority.in_frame(centre, root))
    minima = [minimise(loss, start, tolerance=1e-10, goal=1e-14) for start in loss.starts()]
    w = solve(root.T, min(minima, key=lambda minimum: minimum.evaluation.value).point)
    w /= np.linalg.norm(w)
    return BestLinearAUC(float(linear_auc(w, minority, majority)), read_only(w))


def _pairs(minority: GaussianMixture, majority: GaussianMixture) -> tuple[Floats, Floats, Floats]:
    """Return weight, difference of means and sum of covariances of every pair of clusters."""
    dim = minority.dim
    weights = np.outer(minority.weights, majority.weights).ravel()
    shifts = (minority.means[:, None] - majority.means).reshape(-1, dim)
    spreads = (minority.covariances[:, None] + majority.covariances).reshape(-1, dim, dim)
    return weights, shifts, spreads


class _AucRisk:
    """1 - AUC of a direction, computed without cancellation, with exact derivatives.

    It does not depend on |w|, so its Hessian is singular along w. Curvature is added there. That does not
    change Newton's steps, because the gradient has no part along w.
    """

    def __init__(self, minority: GaussianMixture, majority: GaussianMixture) -> None:
        self.weights, self.shifts, self.spreads = _pairs(minority, majority)
        total = minority.covariance + majority.covariance
        self.total_direction = solve(total, minority.mean - majority.mean)

    def starts(self) -> list[Floats]:
        dim = self.shifts.shape[1]
        pairs = [solve(spread, shift) for spread, shift in zip(self.spreads, self.shifts)]
        random = np.random.default_rng(0).standard_normal((16, dim))
        starts = [self.total_direction, *pairs, *random]
        return [start / np.linalg.norm(start) for start in starts if np.linalg.norm(start) > 1e-12]

    def __call__(self, w: Floats) -> Expansion:
        from scipy.special import ndtr

        dim = w.size
        gradient, hessian = np.zeros(dim), np.zeros((dim, dim))
        value, scale = 0.0, 0.0
        for weight, shift, spread in zip(self.weights, self.shifts, self.spreads):
            turned = spread @ w
            size = math.sqrt(w @ turned)
            t = float(shift @ w) / size
            unit = turned / size  # the gradient of the size
            # t = w.shift/|w|_S; its derivative has no part along w, since the AUC does not depend on the
            # length of w.
            slope = (shift - t * unit) / size
            mixed = np.outer(slope, unit)
            bend = -(mixed + mixed.T) / size - t * (spread - np.outer(unit, unit)) / size**2
            density = weight * math.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
            # 1 - AUC from the other tail: near an AUC of one the difference would have no digits.
            value += weight * float(ndtr(-t))
            gradient -= density * slope
            hessian -= density * (bend - t * np.outer(slope, slope))
            scale += density * (length(shift) + abs(t) * length(unit)) / size
        hessian += scale * np.outer(w, w) / np.linalg.norm(w) ** 3
        return Expansion(value, gradient, hessian, scale)
