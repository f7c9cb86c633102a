"""Plans against the losses they are traced from."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from loss_cases import BINARY_LOSSES
from raresight.losses import Erf, LogitAdjusted, MarginLoss, from_callable, parse
from raresight.losses._numpy_ops import NumpyOps
from raresight.losses.plan import LabelMap, plan_of

LIMITS = {np.float32: 79.0, np.float64: 699.0}
TOLERANCES = {np.float32: 2e-5, np.float64: 1e-12}
ORDERS = [(0, 1), (1, 2), (0, 1, 2)]


def planned(loss, z, y, orders, kind):
    """The derivatives by the plan, or None where it leaves the block to the loss."""
    plan = plan_of(loss, orders, kind)
    labels = LabelMap.of(loss.normal_form(), y.astype(kind))
    results = tuple(np.full(len(z), np.nan, kind) for _ in orders)
    space = np.full((plan.size, len(z) + 3), np.nan, kind)
    with NumpyOps.guard():  # as callers do: a block that overflows is left to the loss
        return results if plan(z, labels, results, space) else None


def has_plan(loss):
    return plan_of(loss, (0, 1, 2), np.float64) is not None


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("orders", ORDERS, ids=str)
@pytest.mark.parametrize("loss", [loss for loss in BINARY_LOSSES if has_plan(loss)], ids=str)
def test_a_plan_equals_the_loss(loss, orders, kind):
    """Where a plan gives a block back, its numbers are those of the loss, at every score and label."""
    limit = LIMITS[kind] / max(1.0, *map(abs, loss.normal_form().scales))
    z = np.concatenate([np.linspace(-limit, limit, 401), np.linspace(-1e-3, 1e-3, 11)]).astype(kind)
    done = 0
    for label in (0, 1):
        # In blocks: a block with a margin beyond the limits is left to the loss.
        for block in np.array_split(z, 16):
            y = np.full(len(block), label)
            results = planned(loss, block, y, orders, kind)
            if results is None:
                continue
            done += 1
            exact = loss.derivatives(block.astype(np.float64), y)
            for order, result in zip(orders, results):
                scale = np.abs(exact[1]) if order == 2 else 0.0  # curvatures cross zero
                error = np.abs(result - exact[order])
                assert np.all(error <= TOLERANCES[kind] * (np.abs(exact[order]) + scale) + 1e-35)
    assert done >= 8


def test_who_has_a_plan():
    """All but erf, a user's function, and losses in a form that must look at the margin."""
    without = {str(loss) for loss in BINARY_LOSSES if not has_plan(loss)}
    assert {
        "erf",
        "classweighted(base=logitadjusted(base=erf,prior=0.05,tau=1.0),weights=(1.0,3.0))",
    } < without
    assert {
        str(parse(text)) for text in ("crossentropy", "squared", "focal", "poly", "alpha", "tbl")
    }.isdisjoint(without)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        beyond = [loss for loss in BINARY_LOSSES if str(loss) in without and "erf" not in str(loss)]
        # alpha below 1/2 and from 1 on; poly near -1.
        assert all(
            getattr(loss, "alpha", 0.0) < 0.5 or loss.alpha >= 1 or getattr(loss, "epsilon", 0.0) <= -0.9
            for loss in beyond
        )
    assert plan_of(Erf(), (1, 2), np.float32) is None
    torch = pytest.importorskip("torch")
    mine = from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * z))
    assert plan_of(mine, (1, 2), np.float32) is None
    assert plan_of(LogitAdjusted(mine, 0.1), (1, 2), np.float32) is None


@dataclass(frozen=True)
class Powers(MarginLoss):
    """(x^2 + x^1.5)/2 + |x| with x = log(1 + e^-m), up to 60: operations that no other loss has."""

    name = "powers"

    @staticmethod
    def phi(ops, m, order):
        x, q = ops.logistic(m)
        x = ops.upper(x, 60.0)
        slope = x + 0.75 * x**0.5 + 1
        bend = 1 + 0.375 * x**-0.5
        return ((x**2 + x**1.5) / 2 + ops.abs(x), -q * slope, q * (ops.sigmoid(m) * slope + q * bend))[
            : order + 1
        ]

    def log_slope(self, ops, m):
        raise NotImplementedError


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_powers_and_bounds_can_be_traced(kind):
    z = np.linspace(-50, 20, 141).astype(kind)
    results = planned(Powers(), z, np.ones(len(z)), (0, 1, 2), kind)
    for result, exact in zip(results, Powers().derivatives(z.astype(np.float64), np.ones(len(z)))):
        np.testing.assert_allclose(result, exact, rtol=TOLERANCES[kind])


@pytest.mark.parametrize("text", ["crossentropy", "focal", "tbl", "vectorscaling(delta=0.5)"])
@pytest.mark.parametrize("extreme", [200.0, -200.0, np.nan, np.inf])
def test_extreme_scores_are_left_alone(text, extreme):
    z = np.array([0.5, extreme, -0.5], dtype=np.float32)
    before = z.copy()
    loss = parse(text)
    plan = plan_of(loss, (0, 1), np.float32)
    labels = LabelMap.of(loss.normal_form(), np.ones(3, np.float32))
    value = np.zeros(3, np.float32)
    assert not plan(z, labels, (value, z), np.zeros((plan.size, 3), np.float32))
    np.testing.assert_array_equal(z, before)
    np.testing.assert_array_equal(value, 0)


def test_results_that_are_not_finite_are_left_to_the_loss():
    """The weight makes the value infinite in float32; the loss saturates it."""
    loss = parse("classweighted(alpha(0.5),weights=(1,1e30))")
    z, y = np.array([-75.0], np.float32), np.array([1])
    assert planned(loss, z, y, (0, 1), np.float32) is None
    assert loss.value(z, y)[0] == np.finfo(np.float32).max
