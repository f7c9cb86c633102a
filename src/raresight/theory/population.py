"""The linear rule that minimises a loss over two Gaussian mixtures, exactly."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np

from ..losses import CrossEntropy, Loss
from ..losses._numpy_ops import NumpyOps
from ..losses.start import constant_score
from ._inputs import branch, check_loss
from .limits import check_dimensions, check_prior, common_frame
from .linear_rule import Floats, LinearRule, length, solve
from .minimisation import Expansion, LocalMinimum, minimise
from .mixture import GaussianMixture

__all__ = ["least_squares_rule", "population_minimiser"]

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


def population_minimiser(
    loss: Loss, minority: GaussianMixture, majority: GaussianMixture, prior: float
) -> LinearRule:
    """Return the linear rule of least population risk, to a relative gradient of 1e-10.

        R(w, b) = rho E+ l(1, w.x + b) + E- l(0, w.x + b),   rho = prior/(1 - prior)

    The score of a component is Gaussian. A trapezoid rule takes its expectations, with a step that is halved
    until nothing changes. For a smooth loss it converges faster than any power of the step. Newton's method
    has the exact Hessian. If a kink in the slope of the loss, or rounding, does not allow 1e-10, 1e-6 is
    accepted; see `gradient_norm`. The risk of a loss that is not convex may have several minima. Starts are
    cross entropy's rules for the whole minority and for each of its clusters, and the lowest minimum is kept.

    >>> from raresight.losses import Alpha
    >>> minority, majority = (GaussianMixture([1.0], [[m]], [[[1.0]]]) for m in (2.0, 0.0))
    >>> rule = population_minimiser(Alpha(0.5), minority, majority, prior=1e-6)
    >>> rule.w.round(9).tolist(), bool(rule.gradient_norm < 1e-10)
    ([1.0], True)
    """
    check_loss(loss, "population_minimiser")
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

    def __call__(self, theta: Floats) -> Expansion:
        dim = theta.size
        value, scale = 0.0, 0.0
        gradient, hessian = np.zeros(dim), np.zeros((dim, dim))
        for label, mixture, share in self.classes:
            margins = _margins(mixture, theta)
            moments = self._moments(label, margins.mean, margins.spread)
            if moments is None:
                return Expansion(math.inf, gradient, hessian, 1.0)
            for weight, component, moment in zip(
                (share * mixture.weights).tolist(), margins.components(), moments
            ):
                # Nothing cancels in the value, so a share of 1e-300 beside one may be added as it comes.
                value += weight * moment.value
                pull = weight * moment.slope * component.extended_mean
                turn = weight * moment.slope_xi * component.extended_pull
                gradient += pull + turn
                scale += length(pull) + length(turn)
                hessian += weight * _component_hessian(component, moment)
        # No slope at all is a plateau (or underflow), not a minimum.
        return Expansion(value if scale > 0 else math.inf, gradient, hessian, scale)

    def _moments(self, label: int, mean: Floats, spread: Floats) -> list[_Moments] | None:
        """Return the expectations of every component of one class; None where they are out of reach."""
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
            # In units of xi: the score step over the spread, at most a third, where the density itself needs
            # it.
            step = self.score_step / max(s, self.score_step / _COARSEST) / self.refinement
            first, last = -(_REACH + down) / step, (_REACH + up) / step
            # A spread of thousands of score units is far from every minimum; the line search steps back.
            if not last - first < _MOST_NODES:
                return None
            xi = step * np.arange(math.floor(first), math.ceil(last) + 1)
            with NumpyOps.guard():
                grids.append((xi, np.exp(-0.5 * xi * xi) * (step / math.sqrt(2 * math.pi))))
        return grids

    def _shifts(self, label: int, mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
        """Return how far the loss may move the peak of a component's integrand, in units of s.

        A factor e^(t z) moves it by t s^2, no further than where the loss stops growing. The rate t is
        read from the loss itself, along the component and far out.
        """
        shape = self.shapes[label]
        near = mean[:, None] + spread[:, None] * np.linspace(-_REACH, _REACH, 27)
        # Of |l'| rather than of l: gradients decide where the minimum is.
        rates = _log_slope_rates(self.loss, near.ravel(), label).reshape(near.shape)
        falling = np.maximum(-rates.min(axis=1), -shape.first_rate)
        rising = np.maximum(rates.max(axis=1), shape.last_rate)
        safe = np.where(spread > 0, spread, 1.0)
        left = np.minimum(falling * spread, (mean - shape.falls_from) / safe)
        right = np.minimum(rising * spread, (shape.rises_until - mean) / safe)
        return np.maximum(left, 0.0), np.maximum(right, 0.0)

    def _overflows(self, label: int, mean: Floats, spread: Floats) -> bool:
        """Return whether the loss overflows within 8 deviations of the integrand's peak.

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
    """Return where Newton's method begins: a convex risk can be entered from anywhere.

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
class _LabelShape:
    """The shape of a loss for one label, from the slope of log|l'|.

    `sharpness`: how much faster it bends than cross entropy does, at least 1. `first_rate` and
    `last_rate`: the slope far to the left and far to the right. |l'| falls only to the right of
    `falls_from` and rises only to the left of `rises_until`.
    """

    sharpness: float
    first_rate: float
    last_rate: float
    falls_from: float
    rises_until: float


def _shape(loss: Loss, label: int, centre: float) -> _LabelShape:
    z = centre + np.linspace(-_FAR, _FAR, 6001)
    rates = _log_slope_rates(loss, z, label)
    # The slope of cross entropy's, -sigmoid(z), is at most 1/4; that of a loss of S z, S^2/4. Where l'
    # passes zero a loss looks infinitely sharp, which means nothing: hence the upper limit.
    bend = float(np.abs(np.diff(rates)).max()) / (z[1] - z[0])
    falling, rising = np.flatnonzero(rates < -_TURN_RATE), np.flatnonzero(rates > _TURN_RATE)
    falls_from = math.inf if falling.size == 0 else float(z[falling[0]])
    rises_until = -math.inf if rising.size == 0 else float(z[rising[-1]])
    return _LabelShape(
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
    # w S w may come out below zero by rounding where w is nearly in the null space.
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


def _minimise_refining(risk: _PopulationRisk, start: Floats) -> tuple[LocalMinimum, float]:
    """Newton's method with the quadrature's step halved until it does not matter.

    Returns the minimum, and how much the gradient still depends on the step.
    """
    iterations, goal = 0, 1e-13
    while True:
        minimum = minimise(risk, start, tolerance=_TOLERANCE, goal=goal)
        iterations += minimum.iterations
        minimum = LocalMinimum(minimum.point, minimum.evaluation, iterations, minimum.stalled)
        # The step is halved at the minimum only: on the way there a coarse rule is good enough.
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


def _best(loss: Loss, found: list[tuple[LocalMinimum, float]]) -> LocalMinimum:
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
    """Return the square loss of the score itself, (y - z)^2 with y = +-1, in closed form at every prior.

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
