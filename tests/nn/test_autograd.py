"""Gradients of gradients, kept graphs, and compiled graphs, over every loss."""

from __future__ import annotations

import pytest
import torch

from loss_cases import BINARY_LOSSES, CLASS_LOSSES
from raresight import nn
from raresight.losses import LDAM, TBL, Alpha, CrossEntropy, Erf, Focal, all_losses, from_callable

every_binary = pytest.mark.parametrize("loss", BINARY_LOSSES, ids=str)
every_class = pytest.mark.parametrize("loss", CLASS_LOSSES, ids=str)


def scores(*shape: int) -> torch.Tensor:
    z = torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return z.requires_grad_()


def check_both_orders(function, z: torch.Tensor) -> None:
    assert torch.autograd.gradcheck(function, (z,))
    assert torch.autograd.gradgradcheck(function, (z,))


@every_binary
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_binary_gradcheck(loss, reduction):
    z = scores(6)
    if (isinstance(loss, LDAM) and loss.scale > 10) or loss == Alpha(0.05):  # too steep for differences
        z = (z / 10).detach().requires_grad_()
    y = torch.tensor([0.0, 1, 0, 1, 1, 0])
    check_both_orders(lambda t: nn.as_module(loss, reduction=reduction)(t, y), z)
    check_both_orders(lambda t: nn.as_module(loss, reduction=reduction)(t, 0.3 + 0.4 * y), z)


@every_class
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_class_gradcheck(loss, reduction):
    z, y = scores(5, 4), torch.tensor([0, 1, 2, 3, 0])
    check_both_orders(lambda t: nn.as_module(loss, reduction=reduction)(t, y), z)
    shares = torch.softmax(scores(5, 4).detach().flip(0), 1)
    check_both_orders(lambda t: nn.as_module(loss, reduction=reduction, multiclass=True)(t, shares), z)


def test_options_gradcheck():
    z, y = scores(6), torch.tensor([0.0, 1, 0, 1, 1, -1])
    weight, pos_weight = torch.linspace(0.5, 2, 6), torch.tensor(7.0)
    options = {"weight": weight, "pos_weight": pos_weight, "ignore_index": -1, "label_smoothing": 0.1}
    check_both_orders(lambda t: nn.TBLLoss(**options)(t, y), z)
    f, k = scores(4, 3, 2), torch.randint(3, (4, 2), generator=torch.Generator().manual_seed(0))
    options = {"weight": torch.tensor([1.0, 2.0, 3.0]), "label_smoothing": 0.1}
    check_both_orders(lambda t: nn.TBLLoss(**options)(t, k), f)


@pytest.mark.parametrize("z", [0.0, -50.0, 50.0, -300.0, 300.0])
@pytest.mark.parametrize("loss", BINARY_LOSSES, ids=str)
def test_second_derivative_at_the_edges(loss, z):
    leaf = torch.tensor([z], dtype=torch.float64, requires_grad=True)
    y = torch.ones(1)
    (gradient,) = torch.autograd.grad(nn.as_module(loss, reduction="sum")(leaf, y), leaf, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), leaf)
    assert second.item() == loss.hessian(leaf.detach(), y).item()


def test_graph_kept_for_several_backward_passes():
    for size in (10, 200_000):
        z = torch.randn(size, requires_grad=True)
        y = (torch.rand(size) < 0.5).float()
        value = nn.TBLLoss()(z, y)
        value.backward(retain_graph=True)
        once = z.grad.clone()
        value.backward()
        torch.testing.assert_close(z.grad, 2 * once)
        z.grad = None
        (3 * nn.TBLLoss()(z, y)).backward()
        torch.testing.assert_close(z.grad, 3 * once)


def test_no_gradient_wanted():
    z, y = torch.randn(10), torch.ones(10)
    assert not nn.TBLLoss()(z, y).requires_grad
    with torch.no_grad():
        assert not nn.TBLLoss()(z.requires_grad_(), y).requires_grad


def test_third_derivative_is_refused():
    z = scores(3)
    (first,) = torch.autograd.grad(nn.TBLLoss()(z, torch.ones(3)), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(second.sum(), z)


# ---- compiled ----------------------------------------------------------------------------


def compiled_and_eager(module, z: torch.Tensor, y: torch.Tensor, backend: str) -> tuple:
    torch._dynamo.reset()
    results = []
    for function in (torch.compile(module, fullgraph=True, backend=backend), module):
        leaf = z.detach().clone().requires_grad_()
        value = function(leaf, y)
        value.sum().backward()
        results.append((value.detach(), leaf.grad))
    return tuple(results)


def assert_compiles(module, z, y, backend="aot_eager", rtol=1e-5) -> None:
    (value, gradient), (eager_value, eager_gradient) = compiled_and_eager(module, z, y, backend)
    torch.testing.assert_close(value, eager_value, rtol=rtol, atol=1e-30)
    torch.testing.assert_close(gradient, eager_gradient, rtol=rtol, atol=1e-30)


CHOSEN = [
    *all_losses(),
    Focal(0.5),
    TBL(0.5, 2.0),
    TBL(1.0, 0.5),
    from_callable(lambda z, y: torch.exp((1 - 2 * y) * z)),
]


# Each takes seconds to compile: these four in every run, the others in the slow tests.
QUICK = ("tbl", "crossentropy", "focal", "ldam")
COMPILED = [loss if loss.name in QUICK else pytest.param(loss, marks=pytest.mark.slow) for loss in CHOSEN]


@pytest.mark.parametrize("loss", COMPILED, ids=str)
def test_compiles_without_graph_breaks(loss):
    z = torch.linspace(-30, 30, 241)
    y = (torch.arange(241) % 2).float()
    assert_compiles(nn.as_module(loss), z, y)
    assert_compiles(nn.as_module(loss, soft_targets=False, reduction="none"), z, y)
    if loss.n_classes != 1:
        k = loss.n_classes or 3
        f = torch.linspace(-5, 5, 10 * k).reshape(10, k)
        assert_compiles(nn.as_module(loss), f, torch.arange(10) % k)


@pytest.mark.slow  # the first kernel alone takes a compiler 25 s
@pytest.mark.parametrize("loss", [TBL(), Focal(), CrossEntropy(), Erf()], ids=str)
def test_compiled_kernels_keep_their_digits(loss):
    """The compiler's own expm1 has no digits near zero; the tails must come out right all the same."""
    z = torch.cat([torch.linspace(-80, 80, 321), torch.tensor([-1e-4, 1e-4, 0.0])])
    for label in (0.0, 1.0):
        y = torch.full_like(z, label)
        module = nn.as_module(loss, reduction="none", soft_targets=False)
        (value, gradient), _ = compiled_and_eager(module, z, y, "inductor")
        exact = loss.derivatives(z.double(), y, order=1)
        floor = 1e-30  # below, float32 is denormal and the compiled code flushes to zero
        torch.testing.assert_close(value.double(), exact[0], rtol=2e-5, atol=floor)
        torch.testing.assert_close(gradient.double(), exact[1], rtol=2e-5, atol=floor)


@pytest.mark.slow
def test_compiled_options():
    z, y = torch.linspace(-3, 3, 40), (torch.arange(40) % 2).float()
    assert_compiles(nn.TBLLoss(pos_weight=torch.tensor(3.0), label_smoothing=0.1), z, y)
    assert_compiles(nn.TBLLoss(weight=torch.rand(40), ignore_index=1), z, y)
    f, k = torch.linspace(-3, 3, 40).reshape(10, 4), torch.arange(10) % 4
    assert_compiles(nn.TBLLoss(weight=torch.rand(4), ignore_index=1, label_smoothing=0.1), f, k)
    assert_compiles(nn.TBLLoss(multiclass=True), f, torch.softmax(f.flip(0), 1), rtol=1e-4)
    assert_compiles(nn.TBLLoss(), z.bfloat16(), y, rtol=1e-2)


def test_functional_twin_compiles():
    torch._dynamo.reset()
    step = torch.compile(
        lambda z, y: nn.functional.tbl_loss(z, y, 0.7, 0.25, prior=0.01), fullgraph=True, backend="aot_eager"
    )
    z, y = torch.linspace(-3, 3, 40), (torch.arange(40) % 2).float()
    torch.testing.assert_close(step(z, y), nn.functional.tbl_loss(z, y, 0.7, 0.25, prior=0.01))


def test_soft_target_where_none_was_promised_is_nan_when_compiled():
    torch._dynamo.reset()
    module = torch.compile(nn.TBLLoss(soft_targets=False), fullgraph=True, backend="aot_eager")
    assert module(torch.zeros(2), torch.tensor([0.0, 0.4])).isnan()
    assert not module(torch.zeros(2), torch.tensor([0.0, 1.0])).isnan()
