"""Every loss at the ends of its parameters, against multi-precision arithmetic: slopes, link, start, tail."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from exact_losses import DIGITS, EXTREMES, exact, random_losses
from raresight.losses import from_callable
from raresight.losses.start import constant_score, constant_scores

SCORES = (-1e4, -745.0, -40.0, -5.0, -0.3, 0.0, 1e-9, 0.3, 5.0, 40.0, 745.0, 1e4)
LOG_ODDS = (-1e4, -745.0, -40.0, -5.0, -0.3, 0.0, 0.3, 5.0, 40.0, 745.0, 1e4)
# Of a prior: the smallest number of double precision is e^-744.
PRIORS = (-743.0, -690.0, -300.0, -36.0, -1.0, 0.0, 36.0, 300.0, 690.0, 743.0)

each = pytest.mark.parametrize("loss", EXTREMES, ids=str)


@pytest.fixture(autouse=True)
def digits():
    with mpmath.workdps(DIGITS):
        yield


def check_link(loss, scores=SCORES, log_odds=LOG_ODDS):
    known = exact(loss)
    for z, got in zip(scores, loss.log_odds(np.array(scores)), strict=True):
        assert abs(float(got) - known.link(mpf(z))) <= 1e-12 * (1 + abs(float(got))), (z, got)
    for at, z in zip(log_odds, loss.score(np.array(log_odds)), strict=True):
        check_score(known, float(z), at, 1e-12)


def check_score(known, z, log_odds, tolerance):
    """The link is right there, or would be within a few roundings of the score."""
    error = abs(known.link(mpf(z)) - log_odds)
    if error > tolerance * (1 + abs(log_odds)):
        step = 1e-15 * (1 + abs(z))
        low, high = (known.link(mpf(z) + sign * 4 * step) for sign in (-1, 1))
        assert low <= log_odds <= high, (log_odds, z)


def check_slopes(loss, scores=SCORES):
    """No slope is NaN, and those that can be represented are right."""
    known = exact(loss)
    for label in (0, 1):
        value, slope, bend = loss.derivatives(np.array(scores), np.full(len(scores), label))
        assert np.isfinite([value, slope, bend]).all()
        for z, got in zip(scores, slope, strict=True):
            want = known.slope(label, mpf(z))
            # A class weight multiplies a slope that is there, or has underflowed.
            own = want / getattr(loss, "weights", (1, 1))[label]
            if 1e-290 < want < 1e290 and own > 1e-290:
                # e^(ux) has a relative error of u x roundings, and TBL up to 1/(1 - C p r) times that.
                assert abs(abs(float(got)) / want - 1) < 1e-6, (z, label)


def check_starts(loss, log_odds=PRIORS):
    known = exact(loss)
    for at in log_odds:
        check_score(known, constant_score(loss, at), at, 1e-11)


@each
def test_link_and_its_inverse(loss):
    check_link(loss)


@each
def test_slopes(loss):
    check_slopes(loss)


@each
def test_start_at_extreme_priors(loss):
    check_starts(loss)


@each
def test_tail(loss):
    """log |l'| is what the declared tail says, where all that vanishes has vanished."""
    known, tail = exact(loss), loss.tail()
    if tail.is_gaussian:
        # psi(z)/|z| against the exact distribution function: Mills' ratio is 1/|z| in the limit.
        z = mpf(-(10**4))
        assert abs(known.slope(1, z) / mpmath.exp(tail.log_weights[1]) - 1) < 1e-12
        at = z + tail.shift
        push = mpmath.npdf(at) / -at * mpmath.exp(tail.log_weights[0])
        assert abs(known.slope(0, z) / push - 1) < 1e-7
        return
    parameters = loss.parameters()
    slowest = min(tail.decay, parameters.get("delta") or 1.0, 1 / parameters.get("alpha", 1.0))
    z = mpf(-(10**5)) / slowest
    at = z + mpf(tail.shift)
    pull = tail.log_pull - tail.growth * at + tail.log_weights[1]
    push = tail.log_push + tail.decay * at + tail.log_weights[0]
    assert abs(mpmath.log(known.slope(1, z)) - pull) <= 1e-9 * (1 + abs(pull))
    assert abs(mpmath.log(known.slope(0, z)) - push) <= 1e-9 * (1 + abs(push))


def test_starts_from_shares_of_any_size():
    for loss in EXTREMES[:30]:
        for shares in ((1.0, 5e-324), (5e-324, 1.0), (1 - 1e-16, 1e-16)):
            (start,) = constant_scores(loss, shares)
            assert math.isfinite(start)


def test_derivatives_decide_where_a_link_contradicts_them():
    """As long as they can be represented: of a loss from outside they cannot at every prior."""
    import torch

    steep = from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * 3 * z), name="steep")
    for log_odds in (-300.0, -5.0, 0.0, 5.0, 300.0):
        assert constant_score(steep, log_odds) == pytest.approx(log_odds / 3, abs=1e-9)


@pytest.mark.slow
def test_everywhere():
    random = np.random.default_rng(1)
    for loss in random_losses(1500):
        scores = np.sort(random.normal(size=20) * 10 ** random.uniform(-3, 4, 20))
        check_link(loss, scores.tolist(), scores.tolist())
        check_slopes(loss, scores.tolist())
        check_starts(loss, random.uniform(-740, 740, 5).tolist())
