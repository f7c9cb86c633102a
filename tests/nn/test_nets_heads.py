"""Heads of cosines beside plain ones: values, slopes, and that nothing leaks from one to the other."""

from __future__ import annotations

import pytest
import torch

from raresight.losses import LDAM
from raresight.nn import NormedLinear
from raresight.nn.functional import loss_with_logits
from raresight.nn.nets import MLP, TabM, TabNet
from raresight.nn.nets.heads import MemberHead, MixedHead, make_head
from raresight.nn.nets.layers import Linear
from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)

K, N, C = 3, 10, 4
COSINE = (False, True, False)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def prepared(layer):
    layer = layer.double()
    with torch.no_grad():
        for number, parameter in enumerate(layer.parameters()):
            parameter.copy_(random(*parameter.shape, seed=100 + number))
    return layer


def normed(weight):
    layer = NormedLinear(weight.shape[1], weight.shape[0]).double()
    with torch.no_grad():
        layer.weight.copy_(weight)
    return layer


def test_without_cosines_the_head_is_the_plain_layer():
    assert type(make_head((False,) * 3, C, 2)) is Linear
    assert type(make_head(COSINE, C, 2)) is MixedHead
    assert type(MLP(C, replicas=3).head) is Linear


@pytest.mark.parametrize("shared", [True, False])
def test_plain_replicas_keep_every_bit_and_the_others_are_cosines(shared):
    head = prepared(MixedHead(COSINE, C, 5))
    plain = Linear(K, C, 5).double()
    plain.load_state_dict(head.state_dict())
    x = random(N, C) if shared else random(K, N, C)
    weight = random(K, N, 5, seed=9)
    (head(x) * weight).sum().backward()
    (plain(x) * weight).sum().backward()
    for k in (0, 2):
        assert torch.equal(head(x)[k], plain(x)[k])
        assert torch.equal(head.weight.grad[k], plain.weight.grad[k])
        assert torch.equal(head.bias.grad[k], plain.bias.grad[k])
    reference = normed(head.weight[1].detach())
    scores = reference(x if shared else x[1])
    torch.testing.assert_close(head(x)[1], scores)
    assert scores.abs().max() <= 1
    (scores * weight[1]).sum().backward()
    torch.testing.assert_close(head.weight.grad[1], reference.weight.grad)
    assert torch.equal(head.bias.grad[1], torch.zeros(5, dtype=torch.float64))


def test_one_output_is_the_difference_of_two_cosines():
    """z = f_1 - f_0 with opposite directions, so that LDAM of z is LDAM of the two logits."""
    head = prepared(MixedHead((True,), C, 1))
    direction, x = head.weight[0, 0].detach(), random(N, C)
    logits = normed(torch.stack([-direction, direction]))(x)
    z = head(x)[0, :, 0]
    torch.testing.assert_close(z, logits[:, 1] - logits[:, 0])
    torch.testing.assert_close(head(direction.expand(1, C)).item(), 2.0)
    y = torch.arange(N) % 2
    loss = LDAM((9900, 100))
    torch.testing.assert_close(
        loss_with_logits(z, y.double(), loss), loss_with_logits(logits, y, loss), rtol=1e-12, atol=1e-12
    )


def test_length_of_features_and_weights_does_not_count():
    head, x = prepared(MixedHead((True,), C, 3)), random(1, N, C)
    before = head(x)
    torch.testing.assert_close(head(7 * x), before)
    with torch.no_grad():
        head.weight.mul_(0.1)
        head.bias.fill_(5.0)
    torch.testing.assert_close(head(x), before)


def test_slopes():
    head = prepared(MixedHead(COSINE, C, 1))
    x = random(K, 5, C).requires_grad_()

    def scores(x, weight):
        return torch.func.functional_call(head, {"weight": weight}, (x,))

    assert torch.autograd.gradcheck(scores, (x, head.weight))


@pytest.mark.parametrize("bad", [torch.inf, torch.nan, 0.0, 1e200])
def test_a_row_that_one_kind_cannot_take_does_not_touch_the_other(bad):
    """In the branch not used a length of NaN, infinity or zero must not come back as a NaN slope."""
    head = prepared(MixedHead((False, True), C, 2))
    sound = random(2, N, C)
    broken = sound.clone()
    broken[0, 3] = bad
    broken.requires_grad_()
    head(broken)[:, 4:].sum().backward()
    assert broken.grad.isfinite().all()
    assert head.weight.grad[1].isfinite().all()
    torch.testing.assert_close(head(broken)[1], head(sound)[1], rtol=0, atol=0)


def test_rows_of_zeros_have_cosine_zero_and_a_finite_slope():
    head = prepared(MixedHead((True,), C, 2))
    x = torch.zeros(1, 2, C, dtype=torch.float64, requires_grad=True)
    scores = head(x)
    assert (scores == 0).all()
    scores.sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.abs().max() <= 2


def test_start_of_the_directions():
    heads = MixedHead(COSINE, 50, 8), MemberHead(COSINE, 3, 50, 8)
    for head in heads:
        for k in range(K):
            head.reset_replica(k, torch.Generator().manual_seed(k))
        lengths = head.weight.norm(dim=-1)
        torch.testing.assert_close(lengths[1], torch.ones_like(lengths[1]))
        assert lengths[0].std() > 0.01
        assert (head.bias[1] == 0).all()


def test_heads_of_members():
    head = prepared(MemberHead(COSINE, 2, C, 5))
    x = random(K, 2, N, C)
    scores = head(x)
    assert scores.shape == (K, 2, N, 5)
    for k, is_cosine in enumerate(COSINE):
        for member in range(2):
            weight, bias = head.weight[k, member], head.bias[k, member]
            if is_cosine:
                expected = normed(weight.detach())(x[k, member])
            else:
                expected = torch.nn.functional.linear(x[k, member], weight, bias)
            torch.testing.assert_close(scores[k, member], expected)
    plain = MemberHead((False,) * K, 2, C, 5).double()
    plain.load_state_dict(head.state_dict())
    assert torch.equal(plain(x)[0], scores[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: MLP(6, hidden=(5,), **options),
        lambda **options: TabNet(6, **options),
        lambda **options: TabM(6, members=2, blocks=1, width=5, **options),
        lambda **options: resnet_cifar(8, width=2, **options),
    ],
    ids=["mlp", "tabnet", "tabm", "resnet"],
)
@pytest.mark.parametrize("outputs", [1, 3])
def test_start_at_a_constant(make, outputs):
    """Plain replicas give the constant wherever the features say nothing; cosines cannot and stay."""
    net = make(outputs=outputs, replicas=3, cosine=COSINE).double().eval()
    start = torch.arange(3 * outputs, dtype=torch.float64).view(3, outputs) - 4
    net.start_at_(start)
    assert (net.head.bias[1] == 0).all()
    with torch.no_grad():
        net.head.weight[[0, 2]] = 0
    row = torch.zeros((2, 3, 8, 8) if hasattr(net, "channels") else (2, 6), dtype=torch.float64)
    scores = net.training_scores(row).view(3, -1, outputs)
    for k in (0, 2):
        torch.testing.assert_close(scores[k], start[k].expand_as(scores[k]))
    with pytest.raises(ValueError, match="the start must have shape"):
        net.start_at_(start[:2])


def test_ldam_trains_beside_cross_entropy():
    """A stack of both heads under both losses learns what there is to learn."""
    x = random(400, 6)
    y = (x[:, 0] + x[:, 1] > 1.5).double()
    losses = (LDAM((float((y == 0).sum()), float(y.sum()))), None)
    net = MLP(6, hidden=(16,), replicas=2, cosine=(True, False)).double()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(80):
        optimiser.zero_grad()
        z = net(x)
        total = loss_with_logits(z[0], y, losses[0])
        total = total + torch.nn.functional.binary_cross_entropy_with_logits(z[1], y)
        total.backward()
        optimiser.step()
    z = net(x).detach()
    assert z[0].abs().max() <= 2
    for scores in z:
        positive, negative = scores[y == 1], scores[y == 0]
        assert (positive[:, None] > negative).double().mean() > 0.97
