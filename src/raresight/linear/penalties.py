"""The penalty of a fit: a smooth part, which joins the risk, and one with corners, which the steps handle.

(l2/2) |b|^2 + l1 |b|_1,   b the coefficients of the standardised features, intercepts apart

How far an l2 shrinks depends on the curvature of the mean loss, which goes to zero with the prior: it is
prior (1 - prior) at the start of cross entropy. So `relative_l2` gives the penalty as a share of it. With
l2 = 1e-4 at a prior of 1e-4 the slope of the log-odds was 0.51 of the true one under cross entropy, and 0.00
under the squared loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..losses import Loss
from ..losses.start import curvature_scale, start_of
from .design import Floats

__all__ = ["DEFAULT_RELATIVE_L2", "Penalty", "least_subgradient", "relative_l2"]

# Of 0.001, 0.01, 0.1 and 1 within 0.3 points of the best partial AUC on the mammography and the card table,
# with knots and without.
DEFAULT_RELATIVE_L2 = 0.01


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


def relative_l2(loss: Loss, shares: Floats, share: float = DEFAULT_RELATIVE_L2) -> float:
    """Return the ridge penalty that is this share of the loss's curvature for these class shares.

    It shrinks the coefficients by about this share, at every prior and for every loss. The curvature is that
    of the limits of boosters (`raresight.losses.start.curvature_scale`).

    >>> from raresight.losses import parse
    >>> float(round(relative_l2(parse("crossentropy"), np.array([0.99999, 0.00001])), 10))
    1e-07
    """
    start = start_of(loss, shares)
    rarest = min(start.shares)
    return share * curvature_scale(loss, start) * rarest * (1 - rarest)


def least_subgradient(gradient: Floats, theta: Floats, weights: Floats) -> Floats:
    """Return the subgradient of least norm of R + sum_j weights_j |theta_j|.

    It is R'_j + weights_j sign(theta_j) where theta_j is not 0, and what |R'_j| has above weights_j where
    it is.
    """
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - weights, 0.0)
    return np.asarray(np.where(theta != 0, gradient + weights * np.sign(theta), at_zero))
