"""A user's own loss, given by its value, does what a built-in loss does."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from raresight.losses import ClassWeighted, CrossEntropy, Focal, LogitAdjusted, from_callable, parse


def focal(z, y):
    margin = (2 * y - 1) * z
    return torch.sigmoid(-margin) ** 2 * -F.logsigmoid(margin)


def hinge(z, y):
    return torch.relu(1 - (2 * y - 1) * z)


def lopsided(z, y):
    return torch.where(y == 1, F.softplus(-2 * z), F.softplus(z))


def wavy(z, y):
    margin = (2 * y - 1) * z
    return F.softplus(-margin) + 2 * torch.sin(margin)


MINE = from_callable(focal)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_equals_the_built_in_loss(library):
    z = np.linspace(-20, 20, 81)
    y = (np.arange(81) % 2).astype(float)
    if library == "torch":
        z, y = torch.from_numpy(z), torch.from_numpy(y)
    for mine, theirs in zip(MINE.derivatives(z, y), Focal(2.0).derivatives(z, y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(MINE.log_odds(z), Focal(2.0).log_odds(z), rtol=1e-8)
    np.testing.assert_allclose(MINE.score(MINE.log_odds(z)), z, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(MINE.probability(z), Focal(2.0).probability(z), rtol=1e-7)


def test_differentiates_in_float64():
    z = np.linspace(-5, 5, 11).astype(np.float32)
    y = np.ones(11)
    got = MINE.hessian(z, y)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, Focal(2.0).hessian(z.astype(np.float64), y), rtol=1e-6)


def test_properties_are_seen():
    assert MINE.is_monotone
    assert not MINE.is_convex
    assert MINE.has_unique_minimiser
    assert MINE.is_symmetric
    assert not from_callable(wavy).is_monotone
    assert not from_callable(wavy).has_unique_minimiser
    with pytest.raises(ValueError, match="wavy has no calibrated probability"):
        from_callable(wavy).probability(np.zeros(1))
    assert from_callable(hinge).is_convex
    assert not from_callable(hinge).has_unique_minimiser
    assert not from_callable(lopsided).is_symmetric


def test_second_derivative_of_a_broken_line_is_zero():
    assert from_callable(hinge).hessian([0.3], [1]).tolist() == [0.0]
    assert from_callable(lambda z, y: 0 * y + 1.0).derivatives([0.3], [1])[1].tolist() == [0.0]


def test_class_logits():
    f = np.random.default_rng(0).normal(size=(20, 4))
    y = np.random.default_rng(1).integers(4, size=20)
    for mine, theirs in zip(MINE.derivatives(f, y), Focal(2.0).derivatives(f, y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        MINE.probability(f, multiclass=True), Focal(2.0).probability(f, multiclass=True), rtol=1e-8
    )
    with pytest.raises(ValueError, match="takes a binary score"):
        from_callable(lopsided).value(f, y)


def test_composes():
    z, y = np.linspace(-3, 3, 7), np.array([0, 1, 0, 1, 0, 1, 1])
    for wrap in (lambda loss: LogitAdjusted(loss, 0.01), lambda loss: ClassWeighted(loss, (1.0, 9.0))):
        np.testing.assert_allclose(wrap(MINE).gradient(z, y), wrap(Focal(2.0)).gradient(z, y), rtol=1e-9)
        np.testing.assert_allclose(wrap(MINE).log_odds(z), wrap(Focal(2.0)).log_odds(z), rtol=1e-8)


def test_identity_and_text():
    assert from_callable(focal) == MINE
    assert hash(from_callable(focal)) == hash(MINE)
    assert str(MINE) == "focal"
    assert str(from_callable(focal, name="mine")) == "mine"
    with pytest.raises(ValueError, match="unknown loss 'mine'"):
        parse(str(from_callable(focal, name="mine")))


def test_errors():
    with pytest.raises(TypeError, match="needs a function"):
        from_callable(3)
    with pytest.raises(ValueError, match=r"must return a tensor of shape \(1201,\), got \(\)"):
        from_callable(lambda z, y: z.sum()).value([0.0, 1.0], [0, 1])
    with pytest.raises(ValueError, match="got float"):
        from_callable(lambda z, y: 1.0).value([0.0], [1])


def test_overflow_saturates():
    loss = from_callable(lambda z, y: torch.exp((1 - 2 * y) * z))
    value, gradient = loss.derivatives(np.array([-800.0]), [1], order=1)
    assert value[0] == np.finfo(float).max
    assert gradient[0] == -np.finfo(float).max
    assert loss.log_odds(3.0) == pytest.approx(6.0)
    assert CrossEntropy().score(math.log(3)) == pytest.approx(math.log(3))
