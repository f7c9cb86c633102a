"""Statistical information: how much a loss sees in an experiment, and how that fades with the prior.

    Delta L(pi) = L(pi) - E L(eta(X)) = integral of w(s) K(s) ds

Here w is the loss's weight density at the prior (`weight.py`), and K the regret of the ROC curve:

    K(s) = P(T > e^s) - e^s Q(T > e^s) for s > 0,    e^s Q(T < e^s) - P(T < e^s) for s < 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..common.checks import check_probabilities, real_numbers
from ..losses import Loss
from ..losses._numpy_ops import NumpyOps
from ._inputs import Array, as_given, check_risk_loss
from .experiments import Experiment
from .ratios import Ratios
from .risk import bayes_risk
from .weight import WeightDensity, quadrature

__all__ = [
    "LocalIndex",
    "decay_exponent",
    "divergence",
    "explained_fraction",
    "local_index",
    "statistical_information",
]


def statistical_information(loss: Loss, experiment: Experiment, prior: Any) -> Any:
    """Delta L(pi): the Bayes risk of the prior less the expected Bayes risk given the features.

    How much of the risk the features explain, in the loss's own units. `prior` may be an array.

    >>> from raresight.losses import CrossEntropy
    >>> from raresight.theory import GaussianExperiment
    >>> round(float(statistical_information(CrossEntropy(), GaussianExperiment(1.0), 0.01)), 9)
    0.004916188
    """
    # All priors go through one quadrature: the nodes differ, the ROC curve is read once.
    pi = _check(loss, experiment, prior, "statistical_information")
    return as_given(_information(loss, experiment.ratios, pi.reshape(-1))[0].reshape(pi.shape))


def explained_fraction(loss: Loss, experiment: Experiment, prior: Any) -> Any:
    """R(pi) = Delta L(pi) / L(pi), between 0 and 1: the share of the prior's risk that is explained.

    Unlike Delta L it does not depend on the scale of the loss, so losses can be compared by it.

    >>> from raresight.losses import Alpha
    >>> from raresight.theory import GaussianExperiment
    >>> [round(float(explained_fraction(Alpha(0.5), GaussianExperiment(1.0), pi)), 6) for pi in (0.1, 1e-9)]
    [0.117503, 0.117503]
    """
    return statistical_information(loss, experiment, prior) / bayes_risk(loss, prior)


def decay_exponent(loss: Loss, experiment: Experiment, prior: Any) -> Any:
    """d log Delta L / d log pi: the power of the prior with which information fades.

    By the envelope theorem, without differencing: pi D / Delta L with
    D = [l(1, z_pi) - E_P l(1, z_X)] - [l(0, z_pi) - E_Q l(0, z_X)].

    >>> from raresight.losses import Squared
    >>> from raresight.theory import GaussianExperiment
    >>> round(float(decay_exponent(Squared(), GaussianExperiment(1.0), 1e-6)), 4)
    2.0
    """
    pi = _check(loss, experiment, prior, "decay_exponent")
    information, slope = _information(loss, experiment.ratios, pi.reshape(-1))
    # Below, the quotient of two zeros would be no exponent.
    if not np.all(information > 0):
        raise ValueError("the experiment holds no information: P and Q are the same, so nothing decays")
    return as_given((slope / information).reshape(pi.shape))


def _information(loss: Loss, ratios: Ratios, priors: Array) -> tuple[Array, Array]:
    """Delta L and pi dDelta L/dpi at each prior."""
    weight = WeightDensity(loss, priors)
    information = np.zeros(len(priors))
    slope = np.zeros(len(priors))
    # The regret of the ROC curve changes sides at even ratios, s = 0, so no panel may cross it.
    edges = np.unique(np.append(ratios.edges, 0.0))
    if edges.size > 1:
        # Each without the factor e^s where s < 0, which the quadrature keeps with the weight.
        def positives(s: Array) -> Array:
            return np.sign(s) * _scaled(ratios.tails(s)[0], -np.minimum(s, 0))

        def negatives(s: Array) -> Array:
            return np.sign(s) * _scaled(ratios.tails(s)[1], np.maximum(s, 0))

        def regret(s: Array) -> Array:
            # The class that a level favours has more mass beyond it, so a difference below zero is rounding.
            return np.maximum(positives(s) - negatives(s), 0.0)

        rule = quadrature(weight, edges, regret)
        regrets, of_positives, of_negatives = rule.integrate(regret, positives, negatives)
        information += regrets
        slope += of_positives + np.exp(weight.log_rho) * of_negatives
    # Where one class has mass that the other lacks, the ratio is 0 or infinite. Such points are recognised
    # without error, and what the prior would have cost there is gained.
    if ratios.p_alone or ratios.q_alone:
        with NumpyOps.guard():
            z = loss._score(NumpyOps, weight.log_rho)
            missed = np.exp(np.log(priors) + loss._log_value(NumpyOps, z, 1))
            raised = np.exp(np.log1p(-priors) + loss._log_value(NumpyOps, z, 0))
        information += ratios.p_alone * missed + ratios.q_alone * raised
        slope += ratios.p_alone * missed - np.exp(weight.log_rho) * ratios.q_alone * raised
    return information, slope


def _scaled(mass: Array, s: Array) -> Array:
    """mass e^s, where e^s may overflow and the mass underflow."""
    with np.errstate(divide="ignore"):
        return np.exp(np.log(mass) + s)


def _check(loss: Loss, experiment: Experiment, prior: Any, what: str) -> Array:
    check_risk_loss(loss, what)
    if not isinstance(experiment, Experiment):
        raise TypeError(f"{what} needs an experiment such as GaussianExperiment(1.0), got {experiment!r}")
    return check_probabilities(prior, "prior")


def divergence(experiment: Experiment, beta: float) -> float:
    """Return the Cressie-Read divergence D_beta(P||Q) = E_Q [T^beta - 1 - beta (T - 1)] / (beta (beta - 1)).

    beta = 1 is Kullback-Leibler, 2 half of chi-squared, 0 the reverse Kullback-Leibler, and
    1 - alpha (1 - alpha) D_alpha the integral of p^alpha q^(1-alpha). Infinite where it diverges.

    >>> from raresight.theory import GaussianExperiment
    >>> round(2 * divergence(GaussianExperiment(1.0), 2.0), 6)  # e - 1
    1.718282
    """
    if not isinstance(experiment, Experiment):
        raise TypeError(f"divergence needs an experiment, got {experiment!r}")
    beta = float(beta)
    if not math.isfinite(beta):
        raise ValueError(f"beta must be a finite number, got {beta}")
    return experiment.divergence(beta)


@dataclass(frozen=True)
class LocalIndex:
    """Near the odds rho, information behaves like c rho^beta D_beta(P||Q)."""

    beta: Any
    c: Any


def local_index(loss: Loss, rho: Any = None, *, log_rho: Any = None) -> LocalIndex:
    """Return the decay index of a loss at the odds `rho`, and its constant; no experiment is needed.

        beta = 1 + Phi'(z)/lambda'(z),   c = exp(Phi - (beta - 1) log rho),   Phi = log A - log lambda'

    at the score z of the odds. As rho vanishes, beta tends to alpha for the alpha loss and TBL. It tends to
    1 for every other loss whose gradient on positives is bounded, and to 2 for the squared loss. At practical
    odds it can differ much from that limit. `log_rho` serves odds below 1e-300.

    >>> from raresight.losses import Alpha
    >>> round(float(local_index(Alpha(0.7), 1e-8).beta), 6)
    0.699999
    """
    check_risk_loss(loss, "local_index")
    if (rho is None) == (log_rho is None):
        raise TypeError("local_index takes either rho or log_rho")
    if log_rho is None:
        odds = real_numbers(rho, "rho")
        wrong = ~((odds > 0) & (odds < np.inf))
        if wrong.any():
            raise ValueError(f"rho must be positive and finite, got {odds[wrong].flat[0]}")
        at = np.asarray(np.log(odds))
    else:
        at = real_numbers(log_rho, "log_rho")
    with NumpyOps.guard():
        z = loss._score(NumpyOps, at)
        phi, link_slope = _phi_and_link_slope(loss, z)
        # The step is 0.02 in log-odds, for any scale of the score. It is large against the rounding of Phi
        # and small against every turn of a link.
        beta = 1 + _derivative(lambda t: _phi_and_link_slope(loss, t)[0], z, 0.02 / link_slope) / link_slope
        c = np.exp(phi - (beta - 1) * at)
    if not np.all(np.isfinite(beta)):
        raise ValueError(f"{loss}: the slopes of the loss are not representable at these odds")
    return LocalIndex(as_given(np.asarray(beta)), as_given(np.asarray(c)))


def _phi_and_link_slope(loss: Loss, z: Array) -> tuple[Array, Array]:
    negative, positive = loss._log_slopes(NumpyOps, z, 0), loss._log_slopes(NumpyOps, z, 1)
    link_slope = negative[1] - positive[1]
    return positive[0] - np.log(link_slope), link_slope


def _derivative(function: Any, z: Array, step: Array) -> Array:
    """Central differences, extrapolated twice: an error of the sixth power of the step."""

    def central(h: Array) -> Array:
        return np.asarray((function(z + h) - function(z - h)) / (2 * h))

    # The error of central differences is a series in even powers of the step: two rounds of Richardson
    # extrapolation remove the second and the fourth.
    fine, middle, coarse = central(step), central(2 * step), central(4 * step)
    first, second = (4 * fine - middle) / 3, (4 * middle - coarse) / 3
    return np.asarray((16 * first - second) / 15)
