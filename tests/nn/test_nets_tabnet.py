"""TabNet: its sparse attention, and that it finds the features that matter."""

from __future__ import annotations

import pytest
import torch

from raresight.nn.nets import TabNet
from raresight.nn.nets.tabnet import sparsemax

torch.set_num_threads(1)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_sparsemax_is_the_projection_onto_the_simplex():
    z = 2 * random(200, 7)
    p = sparsemax(z)
    torch.testing.assert_close(p.sum(-1), torch.ones(200, dtype=torch.float64))
    assert (p >= 0).all()
    assert 0.2 < (p == 0).double().mean() < 0.9
    # The threshold by bisection: sum max(z - t, 0) falls in t.
    low, high = z.amin(-1, keepdim=True) - 1, z.amax(-1, keepdim=True)
    for _ in range(80):
        middle = (low + high) / 2
        above = (z - middle).clamp(min=0).sum(-1, keepdim=True) > 1
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    torch.testing.assert_close(p, (z - low).clamp(min=0), rtol=0, atol=1e-12)


def test_sparsemax_slope_and_special_rows():
    z = (2 * random(6, 5)).requires_grad_()
    assert torch.autograd.gradcheck(sparsemax, (z,))
    equal = sparsemax(torch.full((4,), 1e8))
    torch.testing.assert_close(equal, torch.full((4,), 0.25))
    torch.testing.assert_close(sparsemax(torch.tensor([1e8, 0.0, -1e8])), torch.tensor([1.0, 0.0, 0.0]))
    rows = sparsemax(torch.tensor([[0.0, torch.nan], [0.0, 0.5]]))
    assert rows[0].isnan().all()
    torch.testing.assert_close(rows[1], torch.tensor([0.25, 0.75]))


@pytest.mark.parametrize(("shared", "independent"), [(2, 2), (0, 2), (2, 0), (1, 1)])
def test_details(shared, independent):
    net = TabNet(6, steps=4, shared=shared, independent=independent, replicas=2).double()
    x = random(30, 6)
    net(x)
    net.eval()
    details = net.details(x)
    torch.testing.assert_close(details.scores, net(x))
    assert details.masks.shape == (2, 4, 30, 6)
    torch.testing.assert_close(details.masks.sum(-1), torch.ones(2, 4, 30, dtype=torch.float64))
    assert (details.masks == 0).any()
    assert details.importance.shape == (2, 30, 6)
    total = details.importance.sum(-1)
    assert torch.isclose(total, torch.ones_like(total)).logical_or(total == 0).all()
    entropy = torch.distributions.Categorical(probs=details.masks).entropy().mean((1, 2))
    torch.testing.assert_close(details.entropy, entropy)
    details.entropy.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_shared_layers_are_there_once():
    names = dict(TabNet(6, shared=2, independent=1, steps=3).named_parameters())
    assert sum(name.startswith("shared_layers") for name in names) == 2
    assert sum(".layers." in name for name in names) == 4


@pytest.mark.parametrize("gamma", [1.0, 1.5])
def test_features_already_used_count_less(gamma):
    """Mask i is the sparsemax of the wish times the product of (gamma - mask) of the steps before."""
    net = TabNet(5, steps=3, gamma=gamma).double()
    wishes = []
    for norm in net.attention_norms:
        norm.register_forward_hook(lambda module, inputs, output: wishes.append(output))
    masks = net.details(random(40, 5)).masks
    allowance = torch.ones(1, 40, 5, dtype=torch.float64)
    for step, wish in enumerate(wishes):
        torch.testing.assert_close(masks[:, step], sparsemax(wish * allowance))
        allowance = allowance * (gamma - masks[:, step])
    assert step == 2


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ValueError, match="gamma must be at least 1"):
        TabNet(5, gamma=0.9)
    with pytest.raises(ValueError, match="ghost_batch must be a whole number of at least 2"):
        TabNet(5, ghost_batch=1)
    with pytest.raises(ValueError, match="1 gated layer"):
        TabNet(5, shared=0, independent=0)
    with pytest.raises(ValueError, match="steps must be a whole number of at least 1"):
        TabNet(5, steps=0)


def test_attention_finds_the_feature_that_matters():
    x = random(512, 6)
    y = (x[:, 2] > 0).double()
    net = TabNet(6, replicas=2, ghost_batch=64).double()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(60):
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x), y.expand(2, -1))
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.2
    importance = net.details(x).importance.mean(1)
    assert (importance.argmax(-1) == 2).all()
