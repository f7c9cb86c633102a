"""Pointwise risk, Bayes risk, and the f-functions of a loss.

With G(a, b) = inf_z a l(1, z) + b l(0, z), the Bayes risk is L(eta) = G(eta, 1 - eta) and the
f-function of the prior pi is f(t) = G(pi, 1 - pi) - G(pi t, 1 - pi). Everything is computed from
logarithms of the loss's terms, so that priors of 1e-300 are as good as any.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..common.checks import check_probabilities, real_numbers
from ..losses import Loss
from ..losses._numpy_ops import NumpyOps
from ._inputs import Array, as_given, check_loss, check_risk_loss, log_odds_of
from .weight import WeightDensity, quadrature

__all__ = [
    "bayes_risk",
    "centred_f_function",
    "f_function",
    "limiting_f_function",
    "pointwise_risk",
]


def pointwise_risk(loss: Loss, eta: Any, z: Any) -> Any:
    """Return the expected loss of score z where P(y=1) = eta: eta l(1, z) + (1 - eta) l(0, z).

    >>> from raresight.losses import CrossEntropy
    >>> round(float(pointwise_risk(CrossEntropy(), 0.5, 0.0)), 6)
    0.693147
    """
    if not isinstance(loss, Loss):
        raise TypeError(f"pointwise_risk needs a loss of raresight.losses, got {loss!r}")
    share, score = np.broadcast_arrays(real_numbers(eta, "eta"), real_numbers(z, "z"))
    wrong = ~((share >= 0) & (share <= 1))
    if wrong.any():
        raise ValueError(f"eta must lie in [0, 1], got {share[wrong].flat[0]}")
    positive = loss.value(score, np.ones(score.shape))
    negative = loss.value(score, np.zeros(score.shape))
    return as_given(np.asarray(share * positive + (1 - share) * negative))


def bayes_risk(loss: Loss, eta: Any = None, *, log_odds: Any = None) -> Any:
    """Return the least pointwise risk, L(eta) = min_z eta l(1, z) + (1 - eta) l(0, z).

    Give `eta`, or `log_odds` = log(eta/(1 - eta)) for an eta far below 1e-300.

    >>> from raresight.losses import Squared
    >>> round(float(bayes_risk(Squared(), 0.25)), 6)
    0.1875
    """
    check_risk_loss(loss, "bayes_risk")
    if (eta is None) == (log_odds is None):
        raise TypeError("bayes_risk takes either eta or log_odds")
    if log_odds is None:
        share = real_numbers(eta, "eta")
        wrong = ~((share >= 0) & (share <= 1))
        if wrong.any():
            raise ValueError(f"eta must lie in [0, 1], got {share[wrong].flat[0]}")
        inner = (share > 0) & (share < 1)
        # At eta = 0 and 1 the risk is 0 by continuity, but its log-odds are infinite.
        safe = np.where(inner, share, 0.5)
        return as_given(np.where(inner, _bayes_risk(loss, log_odds_of(safe)), 0.0))
    return as_given(_bayes_risk(loss, real_numbers(log_odds, "log_odds")))


def _bayes_risk(loss: Loss, log_odds: Array) -> Array:
    return _least_cost(loss, -np.logaddexp(0, -log_odds), -np.logaddexp(0, log_odds))


def _least_cost(loss: Loss, log_a: Array, log_b: Array) -> Array:
    """G(a, b), from the logarithms of a and b."""
    ops = NumpyOps
    with ops.guard():
        # a and b may underflow where their products with the loss do not: the alpha loss grows like the
        # inverse of a power of a. Hence logarithms until the end.
        z = loss._score(ops, np.asarray(log_a - log_b))
        cost = np.exp(log_a + loss._log_value(ops, z, 1)) + np.exp(log_b + loss._log_value(ops, z, 0))
    return np.asarray(cost)


def f_function(loss: Loss, t: Any, prior: Any) -> Any:
    """f(t) = G(pi, 1 - pi) - G(pi t, 1 - pi), t = dP/dQ: convex, f(1) = 0.

    Statistical information is its expectation under Q.

    >>> from raresight.losses import CrossEntropy
    >>> round(float(f_function(CrossEntropy(), 2.0, 0.01)), 6)
    -0.042239
    """
    check_risk_loss(loss, "f_function")
    ratio, pi = np.broadcast_arrays(_ratios(t), check_probabilities(prior, "prior"))
    log_prior, log_rest = np.log(pi), np.log1p(-pi)
    with np.errstate(divide="ignore"):
        log_t = np.log(ratio)
    seen = ratio > 0  # nothing is lost on a point that the positives never reach
    moved = _least_cost(loss, log_prior + np.where(seen, log_t, 0.0), log_rest)
    return as_given(_least_cost(loss, log_prior, log_rest) - np.where(seen, moved, 0.0))


def centred_f_function(loss: Loss, t: Any, prior: Any) -> Any:
    """Return the regret of predicting the prior where the likelihood ratio is t; never negative.

        f*(t) = pi t [l(1, z_pi) - l(1, z_t)] + (1 - pi) [l(0, z_pi) - l(0, z_t)]
              = f(t) - f'(1) (t - 1)

    The part of f that is linear in t - 1 has expectation zero under Q, so it carries no information. This
    is the rest. It is the integral of w(s) (t - e^s) over s from 0 to log t, with w the loss's weight
    density at the prior. So nothing cancels, however small the prior.

    >>> from raresight.losses import Squared
    >>> round(float(centred_f_function(Squared(), 2.0, 0.01) / 0.01**2), 3)
    0.97
    """
    check_risk_loss(loss, "centred_f_function")
    ratio, pi = np.broadcast_arrays(_ratios(t), check_probabilities(prior, "prior"))
    result = np.array([_regret(loss, float(a), float(b)) for a, b in zip(ratio.flat, pi.flat, strict=True)])
    return as_given(result.reshape(ratio.shape))


def _regret(loss: Loss, t: float, prior: float) -> float:
    log_rho = float(log_odds_of(np.array(prior)))
    if t == 0:
        with NumpyOps.guard():
            z = loss._score(NumpyOps, np.asarray(log_rho))
            return float(np.exp(np.log1p(-prior) + loss._log_value(NumpyOps, z, 0)))
    # log(t) loses the digits of t - 1 near one, where the regret is quadratic in them.
    s = math.log1p(t - 1) if 0.5 < t < 2 else math.log(t)
    if s == 0:
        return 0.0

    def kernel(x: Array) -> Array:
        """|t - e^x|, without the factor e^x where x < 0."""
        return np.asarray(np.exp(np.maximum(x, 0)) * np.abs(np.expm1(s - x)))

    edges = np.array([min(s, 0.0), max(s, 0.0)])
    weight = WeightDensity(loss, np.array([prior]))
    return float(quadrature(weight, edges, kernel).integrate(kernel)[0, 0])


def limiting_f_function(loss: Loss, t: Any, prior: Any) -> Any:
    """Return the paper's Table 1 for any loss with a known tail: what f(t) tends to as the prior vanishes.

    With the tails -l'(1, z) ~ a e^(-u z) and l'(0, z) ~ c e^(k z) of `raresight.losses.tails`:

        u > 0    K pi^beta (1 - t^beta),  beta = k/(k + u),  K = a (1/u + 1/k) (a/c)^(-u/(u + k))
        u = 0    -(a/k) pi log(pi) (1 - t)
        u < 0    l(1, -inf) pi (1 - t),  a bounded loss
        erf      pi sqrt(-2 log pi) (1 - t)

    A shift of the score (logit adjustment) cancels; class weights are part of a and c. All but the first are
    linear in t: they carry no information (see `centred_f_function`).

    Raises:
        ValueError: The tail of the loss is not known.

    >>> from raresight.losses import Alpha
    >>> round(float(limiting_f_function(Alpha(0.5), 4.0, 1e-4)), 6)
    -0.02
    """
    ratio, pi = np.broadcast_arrays(_ratios(t), check_probabilities(prior, "prior"))
    check_loss(loss, "limiting_f_function")
    return as_given(np.asarray(_limit(loss, ratio, pi)))


def _limit(loss: Loss, t: Array, pi: Array) -> Array:
    tail = loss.tail()
    if tail is None:
        raise ValueError(
            f"no limiting f-function is known for {loss}, since its tail() gives no tail: write the loss as "
            "a MarginLoss, or override tail()"
        )
    log_prior = np.log(pi)
    if tail.is_gaussian:
        # l(1, z) ~ -z as for cross entropy, but the best score is only of the size of sqrt(-2 log pi).
        return np.asarray(math.exp(tail.log_weights[1]) * pi * np.sqrt(-2 * log_prior) * (1 - t))
    if tail.growth < 0:
        # A bounded loss gives all positives up: each costs the bound.
        return np.asarray(float(loss.value(-1e300, 1)) * pi * (1 - t))
    # At small odds x the least cost of an unbounded loss is K x^beta.
    factor, beta = tail.risk_factors()
    if tail.growth == 0:
        return np.asarray(-factor * pi * log_prior * (1 - t))
    return np.asarray(factor * np.exp(beta * log_prior) * (1 - t**beta))


def _ratios(t: Any) -> Array:
    ratio = real_numbers(t, "t")
    wrong = ~((ratio >= 0) & (ratio < np.inf))
    if wrong.any():
        raise ValueError(
            f"t is a likelihood ratio and must be finite and not negative, got {ratio[wrong].flat[0]}"
        )
    return ratio
