"""The penalty of a fit: a smooth part, which joins the risk, and one with corners, which the steps handle.

(l2/2) |b|^2 + l1 |b|_1,   b the coefficients of the standardised features, intercepts apart
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .design import Floats

__all__ = ["Penalty", "least_subgradient"]


@dataclass(frozen=True)
class Penalty:
    """l2 (ridge) and l1 (lasso)."""

    l2: float = 0.0
    l1: float = 0.0

    @property
    def is_none(self) -> bool:
        return self.l2 == 0 and self.l1 == 0

    def ridge(self, coef: Floats) -> float:
        """Return the smooth part."""
        return 0.5 * self.l2 * float(np.vdot(coef, coef))

    def add_ridge_slope(self, gradient: Floats, coef: Floats) -> None:
        """Add its gradient to that of the coefficients (K, features), in place."""
        gradient += self.l2 * coef

    def add_ridge_bend(self, hessian: Floats, n_features: int) -> None:
        """Add its Hessian to one whose first rows and columns are features, in place."""
        places = np.arange(n_features)
        hessian[places, places] += self.l2

    def corner_weights(self, n_scores: int, n_columns: int, n_features: int) -> Floats:
        """l1 for each number of a flat theta, 0 for intercepts."""
        weights = np.zeros((n_scores, n_columns))
        weights[:, :n_features] = self.l1
        return weights.ravel()


def least_subgradient(gradient: Floats, theta: Floats, weights: Floats) -> Floats:
    """Return the subgradient of least norm of R + sum_j weights_j |theta_j|.

    It is R'_j + weights_j sign(theta_j) where theta_j is not 0, and what |R'_j| has above weights_j where
    it is.
    """
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - weights, 0.0)
    return np.asarray(np.where(theta != 0, gradient + weights * np.sign(theta), at_zero))
