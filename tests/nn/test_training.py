"""What goes with the losses in training: start, schedule, cosine head, and a net that learns."""

from __future__ import annotations

import math

import pytest
import torch

from loss_cases import BINARY_LOSSES, CLASS_LOSSES, has_link
from raresight import nn
from raresight.losses import TBL, Alpha, CrossEntropy, effective_number_weights


@pytest.mark.parametrize("loss", [loss for loss in BINARY_LOSSES if has_link(loss)], ids=str)
def test_start_at_prior(loss):
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    assert nn.start_at_prior_(layer, loss, 0.001) is layer
    torch.testing.assert_close(
        loss.probability(layer.bias.detach()), torch.full((2,), 0.001, dtype=torch.float64)
    )
    n = 1000
    y = torch.zeros(n)
    y[0] = 1
    bias = layer.bias[:1].detach().requires_grad_()
    value = nn.as_module(loss)(bias.expand(n), y)
    (slope,) = torch.autograd.grad(value, bias)
    scale = loss.gradient(bias.detach(), torch.zeros(1)).abs()
    assert abs(slope.item()) < 1e-8 * scale.item() + 1e-12


@pytest.mark.parametrize("loss", CLASS_LOSSES, ids=str)
def test_start_at_class_priors(loss):
    layer = torch.nn.Linear(3, 4, dtype=torch.float64)
    priors = [0.9, 0.09, 0.0099, 0.0001]
    nn.start_at_prior_(layer, loss, priors)
    posterior = loss.probability(layer.bias.detach()[None], multiclass=True)[0]
    torch.testing.assert_close(posterior, torch.tensor(priors, dtype=torch.float64), rtol=1e-7, atol=0)


def test_start_errors():
    with pytest.raises(ValueError, match="no bias"):
        nn.start_at_prior_(torch.nn.Linear(2, 1, bias=False), CrossEntropy(), 0.1)
    with pytest.raises(ValueError, match="strictly between"):
        nn.start_at_prior_(torch.nn.Linear(2, 1), CrossEntropy(), 1.0)
    with pytest.raises(ValueError, match="2 priors for a layer of 3"):
        nn.start_at_prior_(torch.nn.Linear(2, 3), CrossEntropy(), [0.5, 0.5])
    with pytest.raises(ValueError, match="no unique minimiser"):
        nn.start_at_prior_(torch.nn.Linear(2, 1), Alpha(math.inf), 0.1)


def test_deferred_reweighting():
    counts = (5000, 500, 50)
    schedule = nn.DeferredReweighting(counts, start_epoch=160)
    assert schedule.weights(159) == (1.0, 1.0, 1.0)
    assert schedule.weights(160) == effective_number_weights(counts)
    module = nn.LDAMLoss(counts, weight=torch.ones(3))
    schedule.apply_(module, 0)
    assert module.weight.tolist() == [1, 1, 1]
    schedule.apply_(module, 200)
    assert module.weight.tolist() == pytest.approx(effective_number_weights(counts))
    binary = nn.LDAMLoss((5000, 50), pos_weight=torch.ones(()))
    nn.DeferredReweighting((5000, 50), 10).apply_(binary, 10)
    weights = effective_number_weights((5000, 50))
    assert binary.pos_weight.item() == pytest.approx(weights[1] / weights[0])
    with pytest.raises(ValueError, match="no place for 3 class weights"):
        schedule.apply_(nn.LDAMLoss(counts), 0)
    with pytest.raises(ValueError, match="start_epoch"):
        nn.DeferredReweighting(counts, -1)
    with pytest.raises(ValueError, match="beta"):
        nn.DeferredReweighting(counts, 1, beta=2.0)


def test_normed_linear_gives_cosines():
    torch.manual_seed(0)
    head = nn.NormedLinear(5, 3)
    x = torch.randn(7, 5) * 100
    got = head(x)
    expected = torch.nn.functional.cosine_similarity(x[:, None], head.weight[None], dim=-1)
    torch.testing.assert_close(got, expected)
    assert got.abs().max() <= 1 + 1e-6
    assert torch.allclose(head.weight.norm(dim=1), torch.ones(3))
    assert "in_features=5" in repr(head)
    assert head(torch.zeros(1, 5)).isfinite().all()


@pytest.mark.parametrize(
    "module", [nn.TBLLoss(), nn.FocalLoss(), nn.ErfLoss(), nn.CELoss(prior=0.05)], ids=str
)
def test_a_net_learns_calibrated_probabilities(module):
    """One in twenty is positive; the fitted scores, through the loss's link, are the true odds."""
    generator = torch.Generator().manual_seed(0)
    n = 40_000
    y = (torch.rand(n, generator=generator) < 0.05).double()
    x = torch.randn(n, 1, generator=generator, dtype=torch.float64) + 1.5 * y[:, None]
    # True log-odds of N(1.5, 1) against N(0, 1): 1.5 x - 1.125 + log(0.05/0.95).
    layer = torch.nn.Linear(2, 1, dtype=torch.float64)
    nn.start_at_prior_(layer, module.loss, 0.05)
    features = torch.cat([x, x**2], dim=1)
    optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        value = module(layer(features)[:, 0], y)
        value.backward()
        return value

    start = closure().item()
    optimiser.step(closure)
    assert closure().item() < start
    probability = module.loss.probability(layer(features)[:, 0].detach())
    assert probability.mean().item() == pytest.approx(0.05, rel=0.1)
    truth = torch.sigmoid(1.5 * x[:, 0] - 1.125 + math.log(0.05 / 0.95))
    middle = (x[:, 0] > -1) & (x[:, 0] < 2)
    assert (probability - truth)[middle].abs().max() < 0.06


def test_logit_adjustment_of_any_loss():
    z, y = torch.randn(20), torch.ones(20)
    shifted = z + 2.0 * math.log(0.01 / 0.99)
    torch.testing.assert_close(nn.TBLLoss(prior=0.01, tau=2.0)(z, y), nn.as_module(TBL())(shifted, y))
