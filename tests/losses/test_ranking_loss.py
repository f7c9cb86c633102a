"""Ranking losses: one value for all rows, a state that is handed on, and no link."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raresight import nn
from raresight.losses.ranking_loss import PartialAUC
from raresight.losses.registry import loss_kinds, parse, parse_any
from raresight.metrics import partial_auc


def batch(n=300, share=0.1, seed=0):
    random = np.random.default_rng(seed)
    y = (random.random(n) < share).astype(int)
    return random.normal(size=n) + y, y, random.random(n) + 0.5


def by_pairs(z, y, w, max_fpr, margin):
    """The definition, pair by pair, with whole rows in the top share."""
    positive, negative = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    top = negative[np.argsort(-z[negative])]
    left = max_fpr * w[negative].sum()
    total = 0.0
    for j in top:
        part = min(w[j], left)
        left -= part
        total += part * (w[positive] * np.maximum(0, margin - (z[positive] - z[j])) ** 2).sum()
    return total / (w[positive].sum() * max_fpr * w[negative].sum())


@pytest.mark.parametrize("max_fpr", [0.003, 0.1, 1.0])
@pytest.mark.parametrize("margin", [0.2, 3.0])
def test_value_is_the_sum_over_pairs(max_fpr, margin):
    z, y, w = batch()
    terms = PartialAUC(max_fpr, margin).terms(z, y, weights=w)
    assert float(terms.value) == pytest.approx(by_pairs(z, y, w, max_fpr, margin), rel=1e-12)
    assert terms.state is None


def test_gradient_is_the_derivative():
    z, y, w = batch(60)
    loss = PartialAUC(0.3, 1.5)
    gradient = loss.terms(z, y, weights=w).gradient
    step = 1e-6
    for i in range(len(z)):
        move = step * (np.arange(60) == i)
        up, down = (loss.terms(moved, y, weights=w).value for moved in (z + move, z - move))
        assert gradient[i] == pytest.approx((up - down) / (2 * step), abs=1e-6)


def test_a_weight_is_that_many_rows():
    z, y, _ = batch(80)
    w = np.arange(80) % 3 + 1
    once = PartialAUC(0.25).terms(z, y, weights=w.astype(float))
    repeated = PartialAUC(0.25).terms(np.repeat(z, w), np.repeat(y, w))
    assert float(once.value) == pytest.approx(float(repeated.value), rel=1e-12)


def test_scores_far_from_zero_keep_their_differences():
    z, y, _ = batch()
    near, far = PartialAUC(0.1).terms(z, y), PartialAUC(0.1).terms(z + 1e6, y)
    assert float(far.value) == pytest.approx(float(near.value), rel=1e-8)


@pytest.mark.parametrize("memory", [0.0, 0.9])
def test_torch_gives_the_same(memory):
    loss = PartialAUC(0.1, memory=memory)
    state, other = None, None
    for seed in range(3):
        z, y, w = batch(seed=seed)
        terms = loss.terms(z, y, weights=w, state=state)
        tensors = loss.terms(torch.tensor(z), torch.tensor(y), weights=torch.tensor(w), state=other)
        state, other = terms.state, tensors.state
        assert tensors.value.item() == pytest.approx(float(terms.value), rel=1e-12)
        np.testing.assert_allclose(tensors.gradient.numpy(), terms.gradient, rtol=1e-10, atol=1e-14)


def test_state_remembers_where_the_top_begins():
    """A small batch has few negatives beyond the rate; the running mean knows them from those before."""
    loss = PartialAUC(0.02, memory=0.95)
    state, alone = None, []
    for seed in range(200):
        z, y, _ = batch(60, 0.2, seed=seed)
        alone.append(PartialAUC(0.02, memory=0.5).terms(z, y).state)
        state = loss.terms(z, y, state=state).state
    exact = np.quantile(np.random.default_rng(0).normal(size=1_000_000), 0.98)
    assert abs(state - exact) < np.std(alone) / 2


def test_descent_raises_the_partial_auc():
    """By gradient steps on a linear score, from a feature on which one negative in 25 beats the positives."""
    random = np.random.default_rng(3)
    y = (np.arange(3000) % 30 == 0).astype(int)
    x = random.normal(size=(3000, 2)) + y[:, None] * [2.0, 3.0]
    x[(y == 0) & (random.random(3000) < 0.04)] += [4.0, 0.0]
    slope = np.array([0.5, 0.0])
    loss = PartialAUC(0.05)
    first, before = loss.terms(x @ slope, y).value, partial_auc(y, x @ slope, max_fpr=0.05)
    for _ in range(200):
        slope -= 0.05 * (x.T @ loss.terms(x @ slope, y).gradient)
    assert loss.terms(x @ slope, y).value < 0.5 * first
    assert partial_auc(y, x @ slope, max_fpr=0.05) > before + 0.3


@pytest.mark.parametrize("loss", [PartialAUC(), PartialAUC(1 / 3, 2 / 7, memory=0.1234567890123)])
def test_text_is_read_back(loss):
    assert parse_any(str(loss)) == loss
    assert parse_any("partialauc") == PartialAUC()
    assert "partialauc" not in loss_kinds()
    with pytest.raises(ValueError, match="is a ranking loss"):
        parse(str(loss))


def test_a_module_trains_with_its_gradient_and_keeps_its_state():
    loss = PartialAUC(0.1, memory=0.9)
    module, state = nn.RankingModule(str(loss)), None
    for seed in range(3):
        z, y, w = map(torch.tensor, batch(seed=seed))
        terms = loss.terms(z, y, weights=w, state=state)
        state = terms.state
        leaf = z.clone().requires_grad_()
        value = module(leaf, y, w)
        (3 * value).backward()
        assert value.item() == terms.value.item()
        torch.testing.assert_close(leaf.grad, 3 * terms.gradient)
    module.eval()(z, y)
    assert module.state == state
    half = z.bfloat16().requires_grad_()
    nn.RankingModule(loss)(half, y).backward()
    assert half.grad.dtype == torch.bfloat16
    with pytest.raises(TypeError, match="as_module"):
        nn.RankingModule("tbl")


def test_extreme_scores_stay_finite():
    z, y, _ = batch()
    z[:4] = [np.inf, -np.inf, 1e300, -1e300]
    terms = PartialAUC(0.1).terms(z, y)
    assert np.isfinite(terms.value)
    assert np.isfinite(terms.gradient).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: PartialAUC(0.0), ValueError, r"max_fpr must lie in \(0.0, 1.0\], got 0.0"),
        (lambda: PartialAUC(memory=1.0), ValueError, r"memory must lie in \[0.0, 1.0\)"),
        (lambda: PartialAUC().terms([1.0, 2.0], [0, 0]), ValueError, "one class only"),
        (lambda: PartialAUC().terms(np.zeros((2, 2)), np.zeros((2, 2))), ValueError, "one axis"),
        (lambda: PartialAUC().terms([1.0, 2.0], [0, 1], weights=[1.0, -1.0]), ValueError, "at least 0"),
        (lambda: PartialAUC().terms([1.0, 2.0], [0, 1], weights=[1.0]), ValueError, r"shape \(2,\)"),
        (lambda: PartialAUC().probability([1.0]), TypeError, "no link"),
        (lambda: PartialAUC().log_odds([1.0]), TypeError, "no link"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
