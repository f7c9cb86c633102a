"""Cases that once went wrong, each with the answer it must have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raresight import nn
from raresight.losses import (
    LDAM,
    TBL,
    Alpha,
    ClassWeighted,
    CrossEntropy,
    Erf,
    Focal,
    Poly,
    from_callable,
)

tensor = torch.tensor


def logistic(z, y):
    return -torch.nn.functional.logsigmoid((2 * y - 1) * z)


def hessian_times(module, z, y, direction):
    z = z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(module(z, y), z, create_graph=True)
    (curved,) = torch.autograd.grad((gradient * direction).sum(), z)
    return curved


@pytest.mark.parametrize("loss", [Focal(2.0), Erf(), Poly(-1.0), TBL(), Alpha(0.5)], ids=str)
@pytest.mark.parametrize("gap", [746.0, 1e5, 1e300])
def test_posterior_of_far_apart_logits(loss, gap):
    assert loss.probability([0.0, gap], multiclass=True).tolist() == [0.0, 1.0]
    assert loss.probability([gap, 0.0, gap], multiclass=True) == pytest.approx([0.5, 0.0, 0.5])


def test_overflowing_shares_give_no_nan():
    z = tensor([[0.0, 100.0, -100.0]], requires_grad=True)
    nn.AlphaLoss(0.5, label_smoothing=0.1, weight=tensor([1.0, 2.0, 3.0]))(z, tensor([2])).backward()
    assert z.grad.isfinite().all()


def test_double_backward_of_a_users_loss_for_classes():
    z, y, u = tensor([[0.3, -0.2, 1.0]]).double(), tensor([1]), tensor([[1.0, 2.0, -0.5]])
    mine, theirs = nn.as_module(from_callable(logistic)), nn.CELoss()
    torch.testing.assert_close(hessian_times(mine, z, y, u), hessian_times(theirs, z, y, u))
    shares = tensor([[0.2, 0.5, 0.3]]).double()
    mine = nn.as_module(from_callable(logistic), multiclass=True)
    theirs = nn.CELoss(multiclass=True)
    torch.testing.assert_close(hessian_times(mine, z, shares, u), hessian_times(theirs, z, shares, u))
    assert torch.autograd.gradgradcheck(lambda t: mine(t, shares), (z.requires_grad_(),))


@pytest.mark.parametrize(
    ("module", "logits"),
    [
        (nn.CELoss(label_smoothing=0.1), [200.0, 0.0, 0.0]),
        (nn.LDAMLoss((5, 3, 2), label_smoothing=0.1), [40.0, 0.0, 0.0]),
        (nn.TBLLoss(), [0.0, 60.0, -60.0]),
        (nn.FocalLoss(label_smoothing=0.2), [0.0, 500.0, -500.0]),
    ],
    ids=str,
)
def test_double_backward_far_out(module, logits):
    curved = hessian_times(module, tensor([logits]), tensor([0]), tensor([[1.0, -1.0, 0.5]]))
    assert curved.isfinite().all()


def test_one_soft_label_among_many_hard_ones():
    z, y = torch.full((131072,), -20.0), torch.zeros(131072)
    y[7] = 0.0005
    assert nn.CELoss(reduction="none")(z, y)[7].item() == pytest.approx(0.01, rel=1e-5)
    y[7] = 1e-9
    assert nn.CELoss(reduction="none")(z, y)[7].item() == pytest.approx(2.2e-8, rel=0.02)


def test_unknown_class_in_a_compiled_graph_is_nan():
    torch._dynamo.reset()
    compiled = torch.compile(nn.CELoss(reduction="none"), fullgraph=True, backend="aot_eager")
    got = compiled(torch.zeros(4, 4), tensor([0, -100, 2, 7]))
    assert got.isnan().tolist() == [False, True, False, True]


@pytest.mark.parametrize("module", [nn.TBLLoss(), nn.AlphaLoss(soft_targets=False), nn.FocalLoss()], ids=str)
def test_dynamic_shapes_compile(module):
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (5, 9):
        z, y = torch.linspace(-3, 3, n), (torch.arange(n) % 2).float()
        torch.testing.assert_close(compiled(z, y), module(z, y))


def test_inference_mode_leaves_nothing_behind():
    counts = (7, 5, 3)
    f, y = torch.randn(4, 3), tensor([0, 1, 2, 0])
    with torch.inference_mode():
        nn.LDAMLoss(counts)(f, y)
    assert hessian_times(nn.LDAMLoss(counts), f, y, torch.ones(4, 3)).isfinite().all()


def test_digits_of_damped_and_weighted_terms():
    exact = -4.1215342966e-15  # TBL(10, 0.09) at -36.7, from multi-precision arithmetic
    assert TBL(0.4, 1.5).value([-474.0], [1])[0] == pytest.approx(9.0332421e307, rel=1e-7)
    assert TBL(0.1, 10.0).value(np.array([-9.9], np.float32), [1])[0] == pytest.approx(2.50532e33, rel=1e-5)
    with pytest.warns(UserWarning, match="not convex"):
        assert TBL(10, 0.09).gradient([-36.7], [1])[0] == pytest.approx(exact, rel=1e-7)
    weighted = ClassWeighted(CrossEntropy(), (100.0, 0.01))
    assert weighted.gradient(np.zeros(1, np.float32), [1])[0] == np.float32(-0.005)
    assert Erf().value([12.05], [1])[0] == pytest.approx(7.94050118978e-35, rel=1e-9)
    assert Poly(-1 + 1e-9).log_odds(Poly(-1 + 1e-9).score(40.0)) == pytest.approx(40.0, rel=1e-12)


@pytest.mark.parametrize("log_odds", [1.8948780415863357e-05, 1e-20, 0.0, -3e-7, 2.0])
def test_link_on_the_flat_of_ldam(log_odds):
    for loss in (LDAM((9900, 100)), LDAM((5, 5))):
        assert loss.log_odds(loss.score(log_odds)) == pytest.approx(log_odds, rel=1e-8, abs=1e-14)


def test_bound_of_uniqueness_for_small_alpha():
    with pytest.raises(ValueError, match="C_uniq"):
        TBL(0.01, 104.76147)


def test_weights_and_labels_of_other_types():
    module = nn.CELoss(weight=[1, 1, 1])
    nn.DeferredReweighting((5000, 500, 50), 0).apply_(module, 0)
    assert module.weight.sum().item() == pytest.approx(3)
    assert (module.weight > 0).all()
    bytes_ = tensor([0, 2], dtype=torch.uint8)
    assert nn.CELoss(weight=torch.ones(3))(torch.zeros(2, 3), bytes_).item() == pytest.approx(np.log(3))
    assert CrossEntropy().value(np.zeros((1, 300)), np.array([200], np.uint8))[0] == pytest.approx(
        np.log(300)
    )
    assert nn.DeferredReweighting((n for n in (5, 3)), 1).weights(0) == (1.0, 1.0)
    assert CrossEntropy().value(np.zeros(2, ">f8"), [0, 1]).dtype == np.float64
    with pytest.raises(ValueError, match="a weight requires a gradient"):
        nn.CELoss()(torch.zeros(2), torch.ones(2)) + nn.functional.ce_loss(
            torch.zeros(2), torch.ones(2), weight=torch.ones(2, requires_grad=True)
        )


def test_many_classes_of_one_sample():
    f = torch.zeros(200_000)
    assert nn.CELoss()(f, tensor(3)).item() == pytest.approx(np.log(200_000), rel=1e-6)
    shares = torch.full((200_000,), 1 / 200_000)
    assert nn.CELoss(multiclass=True)(f, shares).item() == pytest.approx(np.log(200_000), rel=1e-5)


def test_nan_in_an_ignored_row_is_ignored():
    f = tensor([[float("nan"), 0.0], [0.0, 1.0]], requires_grad=True)
    value = nn.CELoss(ignore_index=-1)(f, tensor([-1, 0]))
    value.backward()
    assert value.item() == pytest.approx(1.313262)
    assert f.grad[0].tolist() == [0.0, 0.0]


def test_start_at_a_numpy_prior():
    layer = nn.start_at_prior_(torch.nn.Linear(2, 1), CrossEntropy(), np.float32(0.01))
    assert layer.bias.item() == pytest.approx(np.log(0.01 / 0.99), rel=1e-6)
    with pytest.raises(TypeError, match="needs a loss"):
        nn.start_at_prior_(torch.nn.Linear(2, 1), nn.CELoss(), 0.1)
    with pytest.raises(TypeError, match="class_counts must be a sequence"):
        nn.LDAMLoss(5)


def test_no_probability_without_a_link():
    with pytest.raises(ValueError, match="no calibrated probability"):
        Alpha(float("inf")).probability([0.0, 1.0], multiclass=True)


def test_array_interface_carries_no_graph():
    z = torch.zeros(3, requires_grad=True)
    assert not TBL().value(z, torch.ones(3)).requires_grad
