"""Limits of the theory for every loss at the ends of its parameters, against multi-precision arithmetic."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from exact_losses import DIGITS, EXTREMES, exact, random_losses
from raresight.theory import bayes_risk, limiting_f_function, local_index
from raresight.theory.analysis import limiting_index
from raresight.theory.gaussian import GaussianMixture
from raresight.theory.limits import limiting_rule

each = pytest.mark.parametrize("loss", EXTREMES, ids=str)


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(DIGITS):
        yield


def far_out(loss):
    """A score at which every exponential that vanishes has vanished."""
    tail, parameters = loss.tail(), getattr(loss, "base", loss).parameters()
    slowest = min(tail.decay, parameters.get("delta") or 1.0, 1 / parameters.get("alpha", 1.0), 1.0)
    return mpf(-(10**6)) / slowest


def exponents(loss):
    """u, k, log a and log c of the tails, read off the exact slopes."""
    known, z = exact(loss), far_out(loss)
    pull = [mpmath.log(known.slope(1, at)) for at in (z, 2 * z)]
    push = [mpmath.log(known.slope(0, at)) for at in (z, 2 * z)]
    u, k = (pull[0] - pull[1]) / z, (push[1] - push[0]) / z
    return u, k, pull[0] + u * z, push[0] - k * z


def check_limiting_f(loss, t):
    """f over its limit is one at a prior so small that nothing else is left."""
    tail, known = loss.tail(), exact(loss)
    if tail.growth > 0:
        # The next term is prior^(1 - beta); the exponent itself is rounded, so no farther than needed.
        size = max(mpf(10) ** 8, 400 * (1 + mpf(tail.growth)) / mpf(tail.growth))
    else:
        # The next terms are constants of the loss over log(1/prior), or prior^(alpha - 1).
        constants = max(1.0, getattr(getattr(loss, "base", loss), "epsilon", 1.0))
        size = mpf(10) ** 14 * constants / min(tail.decay, 1.0)
        size = max(size, 400 / abs(mpf(tail.growth))) if tail.growth else size
    log_prior, at = -size, mpmath.log(mpf(1e-200))
    got = mpf(float(limiting_f_function(loss, t, 1e-200)))
    with mpmath.workdps(DIGITS + int(mpmath.log10(size))):
        near = near_to(loss, float(log_prior))
        risk = known.least_cost(log_prior, near)
        exact_f = risk - (known.least_cost(log_prior + mpmath.log(t), near) if t else 0)
        beta = mpf(tail.decay) / (tail.decay + mpf(tail.growth)) if tail.growth > 0 else mpf(1)

        def factor(value, log_pi):
            of_prior = beta * log_pi
            if tail.is_gaussian:
                of_prior += mpmath.log(-2 * log_pi) / 2
            elif tail.growth == 0:
                of_prior += mpmath.log(-log_pi)
            return mpmath.log(value / -mpmath.expm1(beta * mpmath.log(t)) if t else value) - of_prior

        assert abs(factor(got, at) - factor(exact_f, log_prior)) < 1e-6


def check_index(loss, log_rho):
    """beta = 1 + Phi'/lambda' from exact differences of exact slopes."""
    known = exact(loss)
    with mpmath.workdps(4 * DIGITS):
        z = known.score(mpf(log_rho), near_to(loss, log_rho))
        small = mpf(10) ** -25
        slope = (known.link(z + small) - known.link(z - small)) / (2 * small)
        unit = small / slope

        def link_slope(at):
            return (known.link(at + unit) - known.link(at - unit)) / (2 * unit)

        def phi(at):
            return mpmath.log(known.slope(1, at)) - mpmath.log(link_slope(at))

        step = 1000 * unit
        beta = 1 + (phi(z + step) - phi(z - step)) / (2 * step) / slope
    # The slope of a nearly flat link is a small difference; then the index is rough, or refused.
    tail = loss.tail()
    if slope > 1e-3 * (1 if tail.is_gaussian else tail.growth + tail.decay):
        assert abs(float(local_index(loss, log_rho=log_rho).beta) - beta) <= 1e-6 * (1 + abs(beta)), log_rho
        return
    try:
        assert float(local_index(loss, log_rho=log_rho).beta) == pytest.approx(float(beta), rel=0.02)
    except ValueError:
        with pytest.raises(ValueError, match="too flat"):
            local_index(loss, log_rho=log_rho)


def near_to(loss, log_odds):
    return float(loss.score(log_odds))


def check_limits(loss):
    """The index as the prior vanishes, and the limiting rule of two Gaussians on a line in closed form."""
    u, k, log_pull, log_push = exponents(loss)
    # 1 + u has lost the digits of a small 1/alpha.
    assert abs(limiting_index(loss) / (k / (u + k)) - 1) < 1e-15 * (10 + k / (u + k))
    classes = [GaussianMixture([1.0], [[mean]], [[[sd**2]]]) for mean, sd in ((1.3, 0.6), (-0.2, 1.0))]
    rule = limiting_rule(loss, *classes)
    w = (mpf(1.3) - mpf(-0.2)) / (k + u * mpf(0.6**2))
    assert abs(float(rule.w[0]) / w - 1) < 1e-9
    log_rho = mpmath.log(mpf(1e-200))
    of_positives, of_negatives = (
        mpf(mean) * q + mpf(variance) * q**2 / 2
        for mean, variance, q in ((1.3, 0.6**2, -u * w), (-0.2, 1.0, k * w))
    )
    b = (log_rho + log_pull - log_push + of_positives - of_negatives) / (u + k)
    assert abs(rule.at(1e-200).b - b) <= 1e-9 * (1 + abs(b))


def check_bayes_risk(loss, log_odds):
    known = exact(loss)
    z = known.score(mpf(log_odds), near_to(loss, log_odds))
    risk = sum(known.value(y, z) / (1 + mpmath.exp(-sign * mpf(log_odds))) for y, sign in ((1, 1), (0, -1)))
    if 1e-280 < risk < 1e280:
        assert abs(float(bayes_risk(loss, log_odds=log_odds)) / risk - 1) < 1e-9, log_odds


@each
def test_limiting_f_function(loss):
    for t in (0.0, 3.0):
        check_limiting_f(loss, t)


@each
def test_local_index(loss):
    for log_rho in (-300.0, -9.0, 0.0, 3.0):
        check_index(loss, log_rho)


@each
def test_limits_of_index_and_rule(loss):
    if not loss.tail().is_gaussian:
        check_limits(loss)


@each
def test_bayes_risk(loss):
    for log_odds in (-700.0, -30.0, -0.1, 0.0, 2.0, 40.0, 700.0):
        check_bayes_risk(loss, log_odds)


@pytest.mark.slow
def test_everywhere():
    random = np.random.default_rng(2)
    for loss in random_losses(600, seed=3):
        check_limiting_f(loss, float(random.uniform(0, 5)))
        check_limits(loss)
        for log_odds in random.uniform(-600, 600, 3).tolist():
            check_bayes_risk(loss, log_odds)
        check_index(loss, float(random.uniform(-300, 5)))
