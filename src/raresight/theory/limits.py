"""Theorem 2, corrected: the linear rule that a loss tends to as the minority vanishes.

As the prior falls the intercept goes to -infinity, and only the tails of the loss there count:

    -l'(1, z) ~ a e^(-u z),    l'(0, z) ~ c e^(k z)      as z -> -infinity.

With the log-MGFs K+ and K- of the two classes, stationarity in w and b becomes

    K+'(-u w) = K-'(k w),    (u + k) b = log rho + log(a/c) + K+(-u w) - K-(k w),

By the first, v = k w minimises J(v) = K+(-r v)/r + K-(v) with r = u/k (at r = 0: K-(v) - v.mu+). J is
strictly convex for r >= 0; for r < 0 it is a difference of convex functions and may fall without limit. The
erf loss has a Gaussian tail and a form of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..common.checks import check_probabilities
from ..losses import Loss
from ..losses.tails import Tail
from ._inputs import check_loss, log_odds_of
from .linear_rule import Floats, LinearRule, read_only, solve
from .minimisation import Expansion, LocalMinimum, minimise
from .mixture import GaussianMixture

__all__ = ["LimitingRule", "limiting_rule"]

_TOLERANCE = 1e-11


@dataclass(frozen=True, eq=False)
class LimitingRule:
    """The limit of a loss's population minimiser as the prior goes to zero; see `limiting_rule`.

    `w` is the limit of w; for the erf loss, whose w vanishes, that of |b| w. `at(prior)` is the rule
    that the limit suggests at a prior.
    """

    w: Floats
    offset: float
    slope: float
    shift: float = 0.0
    is_probit: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "w", read_only(self.w))

    def at(self, prior: float) -> LinearRule:
        """Return the rule that the limit suggests at a prior.

            b = slope (log rho + offset) - shift;   for erf, before the shift and with w/|b|,
            b^2/2 + log|b| + log(2 pi)/2 = -(log rho + offset).

        >>> from raresight.losses import CrossEntropy
        >>> from raresight.theory.gaussian import GaussianMixture
        >>> minority, majority = (GaussianMixture([1.0], [[m]], [[[1.0]]]) for m in (1.0, 0.0))
        >>> rule = limiting_rule(CrossEntropy(), minority, majority).at(0.5)  # log rho = 0
        >>> rule.w.tolist(), rule.b
        ([1.0], -0.5)
        """
        log_odds = check_prior(prior) + self.offset
        if self.is_probit:
            size = _probit_intercept(-log_odds)
            return LinearRule(self.w / size, -size - self.shift, prior=prior)
        return LinearRule(self.w, self.slope * log_odds - self.shift, prior=prior)


def limiting_rule(loss: Loss, minority: GaussianMixture, majority: GaussianMixture) -> LimitingRule:
    """Return the corrected Theorem 2: where `population_minimiser` goes as the prior goes to zero.

    With theta the solution of K-'(theta) = mu+ (K the log-MGF of a class) and u = 1/alpha - 1:

        cross entropy, LDAM, poly, vector scaling, focal    w -> theta/k,  k the decay of l'(0, z)
        erf                                                 |b| w -> theta
        alpha, TBL    K+'(-u w) = K-'(w),  b = alpha [log rho - C + K+(-u w) - K-(w)]
        squared (Brier)    K+'(w) = K-'(2 w),  b = log rho + K+(w) - K-(2 w)

    Logit adjustment shifts b, class weights change rho. For alpha > 1 and squared a finite limit
    needs a majority wide enough: S- > |r| S+ with |r| = 1 - 1/alpha (1/2 for squared).

    >>> from raresight.losses import Alpha
    >>> from raresight.theory.gaussian import GaussianMixture
    >>> minority, majority = (GaussianMixture([1.0], [[m]], [[[1.0]]]) for m in (2.0, 0.0))
    >>> limiting_rule(Alpha(0.5), minority, majority).w.round(12).tolist()
    [1.0]
    """
    check_loss(loss, "limiting_rule")
    check_dimensions(minority, majority)
    tail = _known_tail(loss)
    log_weight = tail.log_weights[1] - tail.log_weights[0]
    if tail.is_gaussian:
        # The pull of a negative falls faster than any exponential, so w vanishes, and |b| w has a limit.
        theta = _solve(0.0, minority, majority, loss)
        offset = log_weight - majority.log_mgf(theta)[0]
        return LimitingRule(theta, offset, 1.0, tail.shift, is_probit=True)
    v = _solve(tail.growth / tail.decay, minority, majority, loss)
    w = v / tail.decay
    balance = minority.log_mgf(-tail.growth * w)[0] - majority.log_mgf(v)[0]
    return LimitingRule(w, tail.log_ratio + balance, 1 / (tail.growth + tail.decay), tail.shift)


def _known_tail(loss: Loss) -> Tail:
    tail = loss.tail()
    if tail is None:
        raise ValueError(
            f"the limiting rule of {loss} is not known, since its tail() gives no tail: write the loss as a "
            "MarginLoss, or override tail()"
        )
    return tail


def check_prior(prior: float) -> float:
    """log rho of a prior strictly between 0 and 1."""
    return float(log_odds_of(check_probabilities(prior, "prior")))


def check_dimensions(minority: GaussianMixture, majority: GaussianMixture) -> None:
    if minority.dim != majority.dim:
        raise ValueError(f"the minority has {minority.dim} dimensions and the majority {majority.dim}")


def _probit_intercept(target: float) -> float:
    """Return the x > 0 with x^2/2 + log x + log(2 pi)/2 = target, by Newton's method in log x."""
    # In log x the function is convex and rises: Newton converges from any start, and x stays above zero.
    goal = target - 0.5 * math.log(2 * math.pi)
    log_x = 0.5 * math.log(2 * goal) if goal > 1 else min(goal, 0.0)
    for _ in range(60):
        square = math.exp(2 * log_x)
        step = (square / 2 + log_x - goal) / (square + 1)
        log_x -= step
        if abs(step) <= 1e-15 * (1 + abs(log_x)):
            break
    return math.exp(log_x)


# ---- the programme min J(v) --------------------------------------------------------------


def _solve(r: float, minority: GaussianMixture, majority: GaussianMixture, loss: Loss) -> Floats:
    """Return the minimiser of J(v) = K+(-r v)/r + K-(v), r > -1."""
    centre, root = common_frame(minority, majority)
    inside = minority.in_frame(centre, root), majority.in_frame(centre, root)
    if r < 0:
        _need_wide_majority(-r, *inside, loss)
    # For r < 0 the programme is a difference of convex functions and may have several minima.
    minima = [_minimise_programme(r, *inside, start) for start in _starts(r, *inside)]
    usable = [minimum for minimum in minima if minimum.gradient_norm <= _TOLERANCE]
    if not usable:
        best = min(minimum.gradient_norm for minimum in minima)
        raise RuntimeError(f"{loss}: the limiting programme stopped at a relative gradient of {best:.2g}")
    lowest = min(usable, key=lambda minimum: minimum.evaluation.value)
    return solve(root.T, lowest.point)


def common_frame(minority: GaussianMixture, majority: GaussianMixture) -> tuple[Floats, Floats]:
    """Centre c and root L of coordinates x = c + L x' in which the two classes have unit size.

    Newton's method does not care about units, but its tests of convergence do.
    """
    # The mean of both: a class that is nearly flat in a direction must not blow up the unit there.
    spread = (minority.covariance + majority.covariance) / 2
    return majority.mean, np.asarray(np.linalg.cholesky(spread), dtype=np.float64)


def _minimise_programme(
    r: float, minority: GaussianMixture, majority: GaussianMixture, start: Floats
) -> LocalMinimum:
    def evaluate(v: Floats) -> Expansion:
        value, gradient, hessian = majority.log_mgf(v)
        if r == 0:
            gain, pull = float(v @ minority.mean), minority.mean
        else:
            inner, pull, bend = minority.log_mgf(-r * v)
            gain, hessian = -inner / r, hessian + r * bend
        scale = float(np.linalg.norm(pull) + np.linalg.norm(gradient)) + 1.0  # one is the classes' own size
        return Expansion(value - gain, gradient - pull, hessian, scale)

    return minimise(evaluate, start, tolerance=_TOLERANCE, goal=1e-15)


def _starts(r: float, minority: GaussianMixture, majority: GaussianMixture) -> list[Floats]:
    """Zero suffices for the convex programme; for r < 0, also what each pair of clusters would give."""
    starts = [np.zeros(minority.dim)]
    if r < 0:
        for mean, covariance in zip(minority.means, minority.covariances):
            for other, spread in zip(majority.means, majority.covariances):
                pencil = spread + r * covariance
                if np.linalg.eigvalsh(pencil)[0] > 0:
                    starts.append(solve(pencil, mean - other))
    return starts


def _need_wide_majority(
    size: float, minority: GaussianMixture, majority: GaussianMixture, loss: Loss
) -> None:
    """J grows in every direction iff max_i e.S-_i e > size max_j e.S+_j e for every e."""
    for j, covariance in enumerate(minority.covariances):
        forms = majority.covariances - size * covariance
        if not _some_form_is_positive_everywhere(forms):
            raise ValueError(
                f"{loss} has no finite limit here: it needs S- > {size:.4g} S+ in every direction, and "
                f"component {j} of the minority is too wide. |w| grows without limit as the prior vanishes"
            )


def _some_form_is_positive_everywhere(forms: Floats) -> bool:
    """Return whether max_i e.A_i e > 0 for every direction e.

    A positive definite average of the forms proves it, a direction that no form likes refutes it.
    The average is improved by multiplicative weights: up with the forms that are large along the
    direction in which the average is smallest. What neither proves counts as refuted.
    """
    weights = np.full(len(forms), 1 / len(forms))
    largest = float(np.abs(forms).max())
    for _ in range(1000):
        values, vectors = np.linalg.eigh(np.tensordot(weights, forms, axes=1))
        if values[0] > 1e-12 * largest:
            return True
        along = np.einsum("i,kij,j->k", vectors[:, 0], forms, vectors[:, 0])
        if along.max() <= 1e-12 * largest:
            return False
        # The guarantee of multiplicative weights holds for rates up to 1/2 and gains of at most one.
        weights = weights * np.exp(0.5 * (along - along.max()) / largest)
        weights /= weights.sum()
    return False
