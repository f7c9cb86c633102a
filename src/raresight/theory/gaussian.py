"""Linear classifiers on Gaussian mixtures: exact population minimisers, their limits, their AUC."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..losses import CrossEntropy, Loss
from ..losses._numpy_ops import NumpyOps
from .erm import (
    Evaluation,
    Floats,
    LinearRule,
    Minimum,
    branch,
    check_loss,
    constant_score,
    length,
    minimise,
    read_only,
    solve,
)
from .limits import LimitingRule, check_dimensions, check_prior, common_frame, limiting_rule

__all__ = [
    "BestLinearAUC",
    "GaussianMixture",
    "LimitingRule",
    "LinearRule",
    "best_linear_auc",
    "least_squares_rule",
    "limiting_rule",
    "linear_auc",
    "population_minimiser",
]

# ---- the quadrature of one margin N(m, s^2), in units of s -------------------------------
_REACH = 13.0  # e^(-13^2/2) is 1e-37 of the peak
_COARSEST = 1 / 3
_SCORE_STEP = 0.2  # far below pi, the distance of the sigmoid's poles from the real line
_FINEST = 1024
_FAR = 60.0  # from the best constant score: every turn of the loss that matters lies nearer
_TURN_RATE = 1e-3
_MOST_NODES = 1 << 21
_LARGEST = 1e300

_TOLERANCE = 1e-10
_QUADRATURE_TOLERANCE = 1e-11
_KINK_TOLERANCE = 1e-6
_SMALL_SPREAD = 1e-5


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
        """The distribution of L^-1 (x - c)."""
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
    # Judged as correlations, so that coordinates in very different units do not look singular.
    unit = np.sqrt(variances)
    values, vectors = np.linalg.eigh(covariance / np.outer(unit, unit))
    floor = 1e-13 * len(values)
    if values[0] <= floor:
        combination = [float(f"{number:.4g}") for number in vectors[:, 0] / unit]
        if values[0] < -floor:
            raise ValueError(f"{name} is not positive definite: {combination}.x would have negative variance")
        raise ValueError(f"{name} is singular: its coordinates are collinear, {combination}.x is constant")


# ---- the population minimiser ------------------------------------------------------------


def population_minimiser(
    loss: Loss, minority: GaussianMixture, majority: GaussianMixture, prior: float
) -> LinearRule:
    """The linear rule of least population risk, to a relative gradient of 1e-10.

        R(w, b) = rho E+ l(1, w.x + b) + E- l(0, w.x + b),   rho = prior/(1 - prior)

    Exact: the score of a component is Gaussian, its expectations are taken by a trapezoid rule that
    converges faster than any power of its step for a smooth loss (the step is halved until nothing
    changes), and Newton's method has the exact Hessian. Where a kink in the slope of the loss, or its
    rounding, does not allow 1e-10, 1e-6 is accepted, and `gradient_norm` says so. The risk of a loss
    that is not convex may have several minima: the lowest of those found from cross entropy's rules
    for the whole minority and for each of its clusters counts.

    >>> from raresight.losses import Alpha
    >>> minority, majority = (GaussianMixture([1.0], [[m]], [[[1.0]]]) for m in (2.0, 0.0))
    >>> rule = population_minimiser(Alpha(0.5), minority, majority, prior=1e-6)
    >>> rule.w.round(9).tolist(), bool(rule.gradient_norm < 1e-10)
    ([1.0], True)
    """
    check_loss(loss)
    check_dimensions(minority, majority)
    log_rho = check_prior(prior)
    centre, root = common_frame(minority, majority)
    frame = minority.in_frame(centre, root), majority.in_frame(centre, root)
    risk = _PopulationRisk(loss, *frame, log_rho)
    minimum = _best(loss, [_minimise_refining(risk, start) for start in _starts(risk)])
    w = solve(root.T, minimum.point[:-1])
    b = float(minimum.point[-1] - w @ centre)
    return LinearRule(w, b, minimum.evaluation.value, prior, minimum.iterations, minimum.gradient_norm)


class _PopulationRisk:
    """R(w, b) with its gradient and Hessian, by differentiating z = m + s xi at fixed xi.

    Infinite where it cannot be computed.
    """

    def __init__(
        self, loss: Loss, minority: GaussianMixture, majority: GaussianMixture, log_rho: float
    ) -> None:
        self.loss, self.minority, self.majority, self.log_rho = loss, minority, majority, log_rho
        self.flat_score = constant_score(loss, log_rho)
        self.shapes = tuple(_shape(loss, label, self.flat_score) for label in (0, 1))
        self.score_step = _SCORE_STEP / max(shape.sharpness for shape in self.shapes)
        self.refinement = 1
        self.classes = ((1, minority, math.exp(log_rho)), (0, majority, 1.0))

    def __call__(self, theta: Floats) -> Evaluation:
        dim = theta.size
        value, scale = 0.0, 0.0
        gradient, hessian = np.zeros(dim), np.zeros((dim, dim))
        for label, mixture, share in self.classes:
            margins = _margins(mixture, theta)
            moments = self._moments(label, margins.mean, margins.spread)
            if moments is None:
                return Evaluation(math.inf, gradient, hessian, 1.0)
            for weight, component, moment in zip(
                (share * mixture.weights).tolist(), margins.components(), moments
            ):
                value += weight * moment.value
                pull = weight * moment.slope * component.extended_mean
                turn = weight * moment.slope_xi * component.extended_pull
                gradient += pull + turn
                scale += length(pull) + length(turn)
                hessian += weight * _component_hessian(component, moment)
        # No slope at all is a plateau (or underflow), not a minimum.
        return Evaluation(value if scale > 0 else math.inf, gradient, hessian, scale)

    def _moments(self, label: int, mean: Floats, spread: Floats) -> list[_Moments] | None:
        """The expectations of every component of one class; None where they are out of reach."""
        grids = self._grids(label, mean, spread)
        if grids is None:
            return None
        z = np.concatenate([m + s * xi for m, s, (xi, _) in zip(mean, spread, grids)])
        terms = branch(self.loss, z, label)
        if np.any(terms[0] > _LARGEST) and self._overflows(label, mean, spread):
            return None
        ends = np.cumsum([xi.size for xi, _ in grids])[:-1]
        pieces = zip(*(np.split(term, ends) for term in terms))
        with NumpyOps.guard():
            return [_moments(xi, density, *piece) for (xi, density), piece in zip(grids, pieces)]

    def _grids(self, label: int, mean: Floats, spread: Floats) -> list[tuple[Floats, Floats]] | None:
        """Nodes xi of each component, and their weights: the normal density times the step."""
        left, right = self._shifts(label, mean, spread)
        grids = []
        for s, down, up in zip(spread, left, right):
            step = self.score_step / max(s, self.score_step / _COARSEST) / self.refinement
            first, last = -(_REACH + down) / step, (_REACH + up) / step
            if not last - first < _MOST_NODES:
                return None
            xi = step * np.arange(math.floor(first), math.ceil(last) + 1)
            with NumpyOps.guard():
                grids.append((xi, np.exp(-0.5 * xi * xi) * (step / math.sqrt(2 * math.pi))))
        return grids

    def _shifts(self, label: int, mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """How far the loss may move the peak of a component's integrand, in units of s.

        A factor e^(t z) moves it by t s^2, no further than where the loss stops growing. The rate t is
        read from the loss itself, along the component and far out.
        """
        shape = self.shapes[label]
        near = mean[:, None] + spread[:, None] * np.linspace(-_REACH, _REACH, 27)
        rates = _log_slope_rates(self.loss, near.ravel(), label).reshape(near.shape)
        falling = np.maximum(-rates.min(axis=1), -shape.first_rate)
        rising = np.maximum(rates.max(axis=1), shape.last_rate)
        safe = np.where(spread > 0, spread, 1.0)
        left = np.minimum(falling * spread, (mean - shape.falls_from) / safe)
        right = np.minimum(rising * spread, (shape.rises_until - mean) / safe)
        return np.maximum(left, 0.0), np.maximum(right, 0.0)

    def _overflows(self, label: int, mean: Floats, spread: Floats) -> bool:
        """Whether the loss is beyond float64 where the integrand still counts, 8 deviations from its peak.

        There the density may have underflowed, and the product would be lost without a trace.
        """
        left, right = self._shifts(label, mean, spread)
        ends = np.concatenate([mean - (8 + left) * spread, mean + (8 + right) * spread])
        return bool(np.any(branch(self.loss, ends, label)[0] > _LARGEST))

    def refined(self) -> _PopulationRisk:
        """The same risk with half the step."""
        finer = copy.copy(self)
        finer.refinement *= 2
        return finer


def _starts(risk: _PopulationRisk) -> list[Floats]:
    """Where Newton's method begins: a convex risk can be entered from anywhere.

    A bounded loss is flat far out and may serve one cluster of the minority and give up the others.
    """
    flat = np.append(np.zeros(risk.minority.dim), risk.flat_score)
    if risk.loss.is_convex:
        return [flat]
    targets = [(risk.minority, risk.log_rho)]
    if risk.minority.weights.size > 1:
        for weight, mean, covariance in zip(
            risk.minority.weights, risk.minority.means, risk.minority.covariances
        ):
            targets.append((GaussianMixture([1.0], [mean], [covariance]), risk.log_rho + math.log(weight)))
    mapped = [_calibrated_start(risk, target, log_rho) for target, log_rho in targets]
    return [flat if start is None else start for start in mapped]


def _calibrated_start(risk: _PopulationRisk, target: GaussianMixture, log_rho: float) -> Floats | None:
    """Cross entropy's rule against `target`, which estimates log-odds, taken through the loss's link.

    The link is not linear; its tangent at the log-odds of a typical point of the target is.
    """
    calibrated = _PopulationRisk(CrossEntropy(), target, risk.majority, log_rho)
    flat = np.append(np.zeros(target.dim), calibrated.flat_score)
    theta = minimise(calibrated, flat, tolerance=1e-6, goal=1e-6).point
    log_odds = min(max(float(theta[:-1] @ target.mean + theta[-1]), -500.0), 500.0)
    z = constant_score(risk.loss, log_odds)
    with NumpyOps.guard():
        slopes = [risk.loss._log_slopes(NumpyOps, np.array([z]), label)[1][0] for label in (0, 1)]
        tangent = theta / (slopes[0] - slopes[1])
        tangent[-1] = z - float(tangent[:-1] @ target.mean)
    return tangent if np.isfinite(tangent).all() else None


@dataclass(frozen=True)
class _Shape:
    """What the slope of log|l'| says about a loss.

    `sharpness`: how much faster it bends than cross entropy does, at least 1. `first_rate` and
    `last_rate`: the slope far to the left and far to the right. |l'| falls only to the right of
    `falls_from` and rises only to the left of `rises_until`.
    """

    sharpness: float
    first_rate: float
    last_rate: float
    falls_from: float
    rises_until: float


def _shape(loss: Loss, label: int, centre: float) -> _Shape:
    z = centre + np.linspace(-_FAR, _FAR, 6001)
    rates = _log_slope_rates(loss, z, label)
    # The slope of cross entropy's, -sigmoid(z), is at most 1/4; that of a loss of S z, S^2/4. Where l'
    # passes zero a loss looks infinitely sharp, which means nothing: hence the upper limit.
    bend = float(np.abs(np.diff(rates)).max()) / (z[1] - z[0])
    falling, rising = np.flatnonzero(rates < -_TURN_RATE), np.flatnonzero(rates > _TURN_RATE)
    falls_from = math.inf if falling.size == 0 else float(z[falling[0]])
    rises_until = -math.inf if rising.size == 0 else float(z[rising[-1]])
    return _Shape(
        sharpness=min(max(2 * math.sqrt(bend), 1.0), 32.0),
        first_rate=float(rates[0]),
        last_rate=float(rates[-1]),
        falls_from=-math.inf if falls_from == z[0] else falls_from,
        rises_until=math.inf if rises_until == z[-1] else rises_until,
    )


def _log_slope_rates(loss: Loss, z: Floats, label: int) -> Floats:
    """d log|l'|/dz, zero where it is not a number."""
    with NumpyOps.guard():
        rates = loss._log_slopes(NumpyOps, z, label)[1]
    return np.where(np.isfinite(rates), rates, 0.0)


@dataclass(frozen=True, eq=False)
class _Component:
    """The score of one Gaussian: m + s xi, with gradient (mu + xi a, 1), a = S w/s."""

    extended_mean: Floats
    extended_pull: Floats
    covariance: Floats
    spread: float


@dataclass(frozen=True, eq=False)
class _Margins:
    """The scores of a mixture's components."""

    mixture: GaussianMixture
    mean: Floats
    spread: Floats
    pull: Floats

    def components(self) -> list[_Component]:
        rows = zip(self.mixture.means, self.pull, self.mixture.covariances, self.spread)
        return [
            _Component(np.append(mean, 1.0), np.append(pull, 0.0), covariance, float(spread))
            for mean, pull, covariance, spread in rows
        ]


def _margins(mixture: GaussianMixture, theta: Floats) -> _Margins:
    w = theta[:-1]
    turned = mixture.covariances @ w
    spread = np.sqrt(np.maximum(turned @ w, 0.0))
    pull = np.where(spread[:, None] > 0, turned / np.where(spread > 0, spread, 1.0)[:, None], 0.0)
    return _Margins(mixture, mixture.means @ w + theta[-1], spread, pull)


@dataclass(frozen=True)
class _Moments:
    """E of l, l', l' xi, l'', l'' xi and l'' xi^2."""

    value: float
    slope: float
    slope_xi: float
    bend: float
    bend_xi: float
    bend_xi_xi: float


def _moments(xi: Floats, density: Floats, value: Floats, slope: Floats, bend: Floats) -> _Moments:
    along, bends = density * xi, density * bend
    return _Moments(
        value=float(density @ value),
        slope=float(density @ slope),
        slope_xi=float(along @ slope),
        bend=float(bends.sum()),
        bend_xi=float(bends @ xi),
        bend_xi_xi=float(bends @ (xi * xi)),
    )


def _component_hessian(component: _Component, moment: _Moments) -> Floats:
    """E[l'' g g'] + E[l' xi] (S - a a')/s, g = (mu + xi a, 1)."""
    mean, pull = component.extended_mean, component.extended_pull
    cross = np.outer(mean, pull)
    result = moment.bend * np.outer(mean, mean) + moment.bend_xi * (cross + cross.T)
    result += moment.bend_xi_xi * np.outer(pull, pull)
    # E[l' xi] = s E[l''] (Stein); where s is tiny, the quotient is all rounding.
    small = component.spread < _SMALL_SPREAD
    turn = moment.bend if small else moment.slope_xi / component.spread
    result[:-1, :-1] += turn * (component.covariance - np.outer(pull[:-1], pull[:-1]))
    return result


def _minimise_refining(risk: _PopulationRisk, start: Floats) -> tuple[Minimum, float]:
    """Newton's method with the quadrature's step halved until it does not matter.

    Returns the minimum, and how much the gradient still depends on the step.
    """
    iterations, goal = 0, 1e-13
    while True:
        minimum = minimise(risk, start, tolerance=_TOLERANCE, goal=goal)
        iterations += minimum.iterations
        minimum = Minimum(minimum.point, minimum.evaluation, iterations, minimum.stalled)
        finer = risk.refined()
        there = finer(minimum.point)
        if not (math.isfinite(minimum.evaluation.value) and math.isfinite(there.value)):
            return minimum, math.inf
        change = length(there.gradient - minimum.evaluation.gradient) / there.scale
        # Halving squares the error for a smooth loss, and divides it by 4 for one with a kink.
        kinked = finer.refinement > 8 and change <= _KINK_TOLERANCE / 10
        settled = change <= max(_QUADRATURE_TOLERANCE, minimum.gradient_norm / 100)
        if settled or kinked or finer.refinement > _FINEST:
            return minimum, change
        # What the next step size will still be wrong by, Newton's method need not resolve.
        risk, start, goal = finer, minimum.point, max(1e-13, change / 100)


def _best(loss: Loss, found: list[tuple[Minimum, float]]) -> Minimum:
    converged = [
        minimum
        for minimum, change in found
        if (minimum.gradient_norm <= _TOLERANCE and change <= _QUADRATURE_TOLERANCE)
        or (minimum.gradient_norm <= _KINK_TOLERANCE and _QUADRATURE_TOLERANCE < change <= _KINK_TOLERANCE)
    ]
    if converged:
        return min(converged, key=lambda minimum: minimum.evaluation.value)
    minimum, change = min(found, key=lambda pair: pair[0].gradient_norm)
    if not math.isfinite(minimum.evaluation.value):
        raise RuntimeError(f"{loss}: the population risk or its gradient is beyond the range of float64")
    ended = "no step lowers the risk further" if minimum.stalled else "the steps ran out"
    size = length(minimum.point[:-1])
    raise RuntimeError(
        f"{loss}: the population risk has a relative gradient of {minimum.gradient_norm:.2g} after "
        f"{minimum.iterations} Newton steps ({ended}; risk {minimum.evaluation.value:.3g}; |w| = {size:.3g} "
        f"in standard deviations; halving the quadrature's step changes the gradient by {change:.2g})"
    )


def least_squares_rule(minority: GaussianMixture, majority: GaussianMixture, prior: float) -> LinearRule:
    """The square loss of the score itself, (y - z)^2 with y = +-1, in closed form at every prior.

        w = 2 c (S + c D D')^-1 D,   b = 2 pi - 1 - w.m,   c = pi (1 - pi),

    with S = pi S+ + (1 - pi) S- the covariance within the classes, D = mu+ - mu- and m the mean of
    all. `risk` is rho E+ (1 - z)^2 + E- (1 + z)^2.

    >>> minority, majority = (GaussianMixture([1.0], [[m]], [[[1.0]]]) for m in (1.0, -1.0))
    >>> rule = least_squares_rule(minority, majority, prior=0.5)
    >>> rule.w.tolist(), rule.b
    ([0.5], 0.0)
    """
    check_dimensions(minority, majority)
    check_prior(prior)
    within = prior * minority.covariance + (1 - prior) * majority.covariance
    difference = minority.mean - majority.mean
    c = prior * (1 - prior)
    direction = solve(within, difference)
    shrink = 1 + c * float(difference @ direction)  # Sherman-Morrison
    w = 2 * c / shrink * direction
    mean = prior * minority.mean + (1 - prior) * majority.mean
    return LinearRule(w, 2 * prior - 1 - float(w @ mean), risk=4 * prior / shrink, prior=prior)


# ---- AUC ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class BestLinearAUC:
    """The largest AUC of a linear score, and the unit vector that has it."""

    auc: float
    w: Floats


def linear_auc(w: ArrayLike, minority: GaussianMixture, majority: GaussianMixture) -> Any:
    """The exact AUC of the score w.x, for one w of shape (d,) or many of shape (..., d).

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
    """The best AUC that any linear score has, and its direction.

    For single Gaussians w is proportional to (S+ + S-)^-1 (mu+ - mu-), the alpha = 1/2 rule. Mixtures
    may have several local maxima: Newton's method starts from the best direction of every pair of
    clusters, from that of the totals, and from 16 fixed random ones.

    >>> minority, majority = (GaussianMixture([1.0], [[m, 0.0]], [np.eye(2)]) for m in (2.0, 0.0))
    >>> best = best_linear_auc(minority, majority)
    >>> round(best.auc, 6), best.w.round(6).tolist()
    (0.92135, [1.0, 0.0])
    """
    check_dimensions(minority, majority)
    centre, root = common_frame(minority, majority)
    loss = _RankingLoss(minority.in_frame(centre, root), majority.in_frame(centre, root))
    minima = [minimise(loss, start, tolerance=1e-10, goal=1e-14) for start in loss.starts()]
    w = solve(root.T, min(minima, key=lambda minimum: minimum.evaluation.value).point)
    w /= np.linalg.norm(w)
    return BestLinearAUC(float(linear_auc(w, minority, majority)), read_only(w))


def _pairs(minority: GaussianMixture, majority: GaussianMixture) -> tuple[Floats, Floats, Floats]:
    """Weight, difference of means and sum of covariances of every pair of clusters."""
    dim = minority.dim
    weights = np.outer(minority.weights, majority.weights).ravel()
    shifts = (minority.means[:, None] - majority.means).reshape(-1, dim)
    spreads = (minority.covariances[:, None] + majority.covariances).reshape(-1, dim, dim)
    return weights, shifts, spreads


class _RankingLoss:
    """1 - AUC of a direction, computed without cancellation, with exact derivatives.

    It does not depend on |w|, so its Hessian is singular along w; curvature added there leaves
    Newton's steps as they are, since the gradient has no part along w.
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

    def __call__(self, w: Floats) -> Evaluation:
        from scipy.special import ndtr

        dim = w.size
        gradient, hessian = np.zeros(dim), np.zeros((dim, dim))
        value, scale = 0.0, 0.0
        for weight, shift, spread in zip(self.weights, self.shifts, self.spreads):
            turned = spread @ w
            size = math.sqrt(w @ turned)
            t = float(shift @ w) / size
            unit = turned / size  # the gradient of the size
            slope = (shift - t * unit) / size
            mixed = np.outer(slope, unit)
            bend = -(mixed + mixed.T) / size - t * (spread - np.outer(unit, unit)) / size**2
            density = weight * math.exp(-0.5 * t * t) / math.sqrt(2 * math.pi)
            value += weight * float(ndtr(-t))
            gradient -= density * slope
            hessian -= density * (bend - t * np.outer(slope, slope))
            scale += density * (length(shift) + abs(t) * length(unit)) / size
        hessian += scale * np.outer(w, w) / np.linalg.norm(w) ** 3
        return Evaluation(value, gradient, hessian, scale)
