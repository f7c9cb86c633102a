"""Gaussian mixtures: moments, samples, log-moment-generating function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .linear_rule import Floats, read_only

__all__ = ["GaussianMixture"]


@dataclass(frozen=True, eq=False, init=False)
class GaussianMixture:
    """A mixture of k Gaussians in d dimensions: weights (k,), means (k, d), covariances (k, d, d).

    >>> mixture = GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], [[[1.0]], [[1.0]]])
    >>> mixture.mean.tolist(), mixture.covariance.tolist()
    ([0.0], [[2.0]])
    """

    weights: Floats
    means: Floats
    covariances: Floats

    def __init__(self, weights: ArrayLike, means: ArrayLike, covariances: ArrayLike) -> None:
        pi, mu = _read_numbers(weights, "weights"), _read_numbers(means, "means")
        sigma = _read_numbers(covariances, "covariances")
        _check_shapes(pi, mu, sigma)
        if not np.all(pi > 0) or abs(pi.sum() - 1) > 1e-9:
            raise ValueError(
                f"weights must be positive and sum to one, got {pi.tolist()} (sum {pi.sum():.12g})"
            )
        for index, covariance in enumerate(sigma):
            _check_covariance(covariance, index)
        object.__setattr__(self, "weights", read_only(pi / pi.sum()))
        object.__setattr__(self, "means", mu)
        object.__setattr__(self, "covariances", read_only((sigma + sigma.swapaxes(1, 2)) / 2))

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        return int(self.means.shape[1])

    @property
    def mean(self) -> Floats:
        """The mean of the mixture."""
        result: Floats = self.weights @ self.means
        return result

    @property
    def covariance(self) -> Floats:
        """The total covariance: within the components and between their means."""
        spread = self.means - self.mean
        result: Floats = np.tensordot(self.weights, self.covariances, axes=1)
        return result + (self.weights[:, None] * spread).T @ spread

    def sample(self, n: int, seed: Any) -> Floats:
        """`n` independent points, of shape (n, d); the same `seed` gives the same points.

        >>> mixture = GaussianMixture([1.0], [[0.0, 0.0]], [np.eye(2)])
        >>> bool((mixture.sample(5, seed=1) == mixture.sample(5, seed=1)).all())
        True
        """
        if n < 0:
            raise ValueError(f"n must not be negative, got {n}")
        generator = np.random.default_rng(seed)
        component = generator.choice(self.weights.size, size=n, p=self.weights)
        points = generator.standard_normal((n, self.dim))
        for index, root in enumerate(np.linalg.cholesky(self.covariances)):
            own = component == index
            points[own] = points[own] @ root.T + self.means[index]
        return points

    def log_mgf(self, w: ArrayLike) -> tuple[float, Floats, Floats]:
        """K(w) = log E e^(w.x) = log sum_i pi_i exp(w.mu_i + w.S_i w/2), its gradient and Hessian.

        With the tilted weights omega and means mu_i + S_i w, the gradient is the tilted mean and the
        Hessian the tilted covariance.

        >>> mixture = GaussianMixture([1.0], [[1.0]], [[[2.0]]])
        >>> mixture.log_mgf([3.0])[0]
        12.0
        """
        exponents, shifted = self._tilt(w)
        # Taken out as in logsumexp: the exponent is of the size of |w|^2/2, which overflows from |w| = 38 on.
        largest = float(exponents.max())
        relative = np.exp(exponents - largest)
        omega = relative / relative.sum()
        gradient = omega @ shifted
        spread = shifted - gradient
        hessian = np.tensordot(omega, self.covariances, axes=1) + (omega[:, None] * spread).T @ spread
        return largest + math.log(relative.sum()), gradient, hessian

    def tilted_weights(self, w: ArrayLike) -> Floats:
        """omega_i proportional to pi_i exp(w.mu_i + w.S_i w/2): the clusters that e^(w.x) looks at.

        >>> GaussianMixture([0.5, 0.5], [[-1.0], [1.0]], [[[1.0]], [[1.0]]]).tilted_weights([0.0]).tolist()
        [0.5, 0.5]
        """
        exponents, _ = self._tilt(w)
        relative = np.exp(exponents - exponents.max())
        result: Floats = relative / relative.sum()
        return result

    def _tilt(self, w: ArrayLike) -> tuple[Floats, Floats]:
        direction = np.asarray(w, dtype=np.float64)
        if direction.shape != (self.dim,):
            raise ValueError(f"w of shape {direction.shape} does not fit a mixture in {self.dim} dimensions")
        pull = self.covariances @ direction
        return np.log(self.weights) + (self.means + pull / 2) @ direction, self.means + pull

    def in_frame(self, centre: Floats, root: Floats) -> GaussianMixture:
        """Return the distribution of L^-1 (x - c)."""
        inverse = np.linalg.inv(root)
        covariances = inverse @ self.covariances @ inverse.T
        # Rounding leaves the product less symmetric than it is asked to be.
        covariances = (covariances + covariances.swapaxes(1, 2)) / 2
        return GaussianMixture(self.weights, (self.means - centre) @ inverse.T, covariances)


def _read_numbers(values: ArrayLike, name: str) -> Floats:
    try:
        array = read_only(values)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a regular array of numbers, got {values!r}") from None
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array.tolist()}")
    return array


def _check_shapes(weights: Floats, means: Floats, covariances: Floats) -> None:
    if weights.ndim != 1 or weights.size == 0:
        raise ValueError(f"weights must be a vector of k numbers, got shape {weights.shape}")
    if means.ndim != 2 or means.shape[0] != weights.size or means.shape[1] == 0:
        raise ValueError(f"means must have shape ({weights.size}, d), one row a weight, got {means.shape}")
    expected = (weights.size, means.shape[1], means.shape[1])
    if covariances.shape != expected:
        raise ValueError(
            f"covariances must have shape {expected}, a matrix a component, got {covariances.shape}"
        )


def _check_covariance(covariance: Floats, index: int) -> None:
    name = f"the covariance of component {index}"
    if np.abs(covariance - covariance.T).max() > 1e-9 * np.abs(covariance).max():
        raise ValueError(f"{name} is not symmetric: {covariance.tolist()}")
    variances = np.diag(covariance)
    if variances.min() <= 0:
        column = int(np.argmin(variances))
        raise ValueError(
            f"{name} is singular or worse: coordinate {column} has variance {variances[column]:.6g}"
        )
    # Tested as correlations, so that coordinates in very different units do not look singular.
    unit = np.sqrt(variances)
    values, vectors = np.linalg.eigh(covariance / np.outer(unit, unit))
    floor = 1e-13 * len(values)
    if values[0] <= floor:
        combination = [float(f"{number:.4g}") for number in vectors[:, 0] / unit]
        if values[0] < -floor:
            raise ValueError(f"{name} is not positive definite: {combination}.x would have negative variance")
        raise ValueError(f"{name} is singular: its coordinates are collinear, {combination}.x is constant")
