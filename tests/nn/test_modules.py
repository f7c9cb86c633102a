"""Loss modules are drop-in for torch's own, for every shape and option."""

from __future__ import annotations

import copy
import inspect
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from loss_cases import BINARY_LOSSES, CLASS_LOSSES
from raresight import nn
from raresight.losses import (
    LDAM,
    TBL,
    CrossEntropy,
    Focal,
    LogitAdjusted,
    VectorScaling,
    from_callable,
    param,
)
from raresight.losses.registry import RESERVED_NAMES
from raresight.nn.criterion import LossOptions, function_of, module_of

REDUCTIONS = ["mean", "sum", "none"]


def scores(*shape: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype) * 2


def labels(*shape: int) -> torch.Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.3).double()


def classes(*shape: int, k: int = 4) -> torch.Tensor:
    return torch.randint(k, shape, generator=torch.Generator().manual_seed(3))


def assert_same_with_gradient(ours, theirs, z: torch.Tensor) -> None:
    results = []
    for function in (ours, theirs):
        leaf = z.clone().requires_grad_()
        value = function(leaf)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        results.append((value.detach(), gradient))
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-11, atol=1e-13)
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (7,), (5, 3), (2, 3, 4)])
def test_like_bce_with_logits(shape, reduction):
    z, y = scores(*shape), labels(*shape)
    weight = torch.rand(shape[-1:], dtype=torch.float64) + 0.5
    for target in (y, 0.1 + 0.8 * y, y * torch.rand_like(y)):
        for options in (
            {},
            {"weight": weight},
            {"pos_weight": 3 * weight},
            {"weight": weight, "pos_weight": weight},
        ):
            assert_same_with_gradient(
                lambda t, y=target, o=options: nn.CELoss(reduction=reduction, **o)(t, y),
                lambda t, y=target, o=options: torch.nn.BCEWithLogitsLoss(reduction=reduction, **o)(t, y),
                z,
            )


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(4,), (6, 4), (3, 4, 5), (2, 4, 3, 2)])
def test_like_cross_entropy(shape, reduction):
    z = scores(*shape)
    sample_shape = shape[:1] + shape[2:] if len(shape) > 1 else ()
    y = classes(*sample_shape)
    weight = torch.rand(4, dtype=torch.float64) + 0.5
    for options in (
        {},
        {"weight": weight},
        {"label_smoothing": 0.1},
        {"weight": weight, "label_smoothing": 0.2},
    ):
        assert_same_with_gradient(
            lambda t, o=options: nn.CELoss(reduction=reduction, **o)(t, y),
            lambda t, o=options: torch.nn.CrossEntropyLoss(reduction=reduction, **o)(t, y),
            z,
        )


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ignore_index_like_cross_entropy(reduction):
    z, y = scores(8, 4, 3), classes(8, 3)
    y[::3] = -100
    weight = torch.rand(4, dtype=torch.float64) + 0.5
    for options in ({}, {"weight": weight}, {"weight": weight, "label_smoothing": 0.1}):
        assert_same_with_gradient(
            lambda t, o=options: nn.CELoss(reduction=reduction, ignore_index=-100, **o)(t, y),
            lambda t, o=options: torch.nn.CrossEntropyLoss(reduction=reduction, ignore_index=-100, **o)(t, y),
            z,
        )


def test_ignore_index_of_binary_targets():
    z, y = scores(9), labels(9)
    y[[1, 5]] = -1
    kept = y >= 0
    got = nn.TBLLoss(ignore_index=-1)(z, y)
    torch.testing.assert_close(got, nn.TBLLoss()(z[kept], y[kept]))
    everything = torch.full((9,), -1.0)
    assert nn.TBLLoss(ignore_index=-1)(z, everything).item() == 0
    assert nn.CELoss(ignore_index=-1)(scores(2, 3), torch.tensor([-1, -1])).item() == 0


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_shares_like_cross_entropy(reduction):
    z = scores(6, 4, 3)
    shares = torch.softmax(scores(6, 4, 3) / 3, 1)
    weight = torch.rand(4, dtype=torch.float64) + 0.5
    for options in ({}, {"weight": weight}, {"label_smoothing": 0.3}):
        assert_same_with_gradient(
            lambda t, o=options: nn.CELoss(reduction=reduction, multiclass=True, **o)(t, shares),
            lambda t, o=options: torch.nn.CrossEntropyLoss(reduction=reduction, **o)(t, shares),
            z,
        )


@pytest.mark.parametrize("loss", CLASS_LOSSES, ids=str)
def test_shares_are_expected_losses(loss):
    z, shares = scores(5, 4), torch.softmax(scores(5, 4), 1)
    leaf = z.clone().requires_grad_()
    value = nn.as_module(loss, reduction="none", multiclass=True)(leaf, shares)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    by_class = [loss.derivatives(z, torch.full((5,), k), order=1) for k in range(4)]
    expected = sum(shares[:, k] * by_class[k][0] for k in range(4))
    torch.testing.assert_close(value.detach(), expected, rtol=1e-10, atol=1e-12)
    slope = sum(shares[:, [k]] * by_class[k][1] for k in range(4))
    torch.testing.assert_close(gradient, slope, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("loss", BINARY_LOSSES, ids=str)
@pytest.mark.parametrize("size", [50, 300_001])
def test_module_is_the_loss(loss, size):
    """One piece and several pieces, hard, soft and whole-number targets."""
    z, y = scores(size), labels(size)
    expected = loss.derivatives(z, y, order=1)
    for target in (y, y.bool(), y.long()):
        leaf = z.clone().requires_grad_()
        value = nn.as_module(loss, reduction="none")(leaf, target)
        torch.testing.assert_close(value.detach(), expected[0], rtol=1e-14, atol=0)
        mean = nn.as_module(loss)(leaf, target)
        torch.testing.assert_close(mean.detach(), expected[0].mean(), rtol=1e-12, atol=0)
        (gradient,) = torch.autograd.grad(mean, leaf)
        torch.testing.assert_close(gradient, expected[1] / size, rtol=1e-12, atol=1e-300)
    soft = 0.2 + 0.5 * y
    value = nn.as_module(loss, reduction="none")(z, soft)
    both = [loss.value(z, torch.full_like(z, k)) for k in (0, 1)]
    torch.testing.assert_close(value, soft * both[1] + (1 - soft) * both[0], rtol=1e-13, atol=1e-300)
    smooth = nn.as_module(loss, label_smoothing=0.2)(z, y)
    torch.testing.assert_close(smooth, nn.as_module(loss)(z, 0.8 * y + 0.1), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("module", "loss"),
    [
        (nn.TBLLoss(0.7, 0.25, prior=0.01, tau=0.5), LogitAdjusted(TBL(0.7, 0.25), 0.01, 0.5)),
        (nn.FocalLoss(gamma=1.0), Focal(1.0)),
        (nn.VSLoss(0.5, iota_pos=1.0), VectorScaling(0.5, iota_pos=1.0)),
        (nn.VSLoss(0.5, prior=0.01, tau=2.0), LogitAdjusted(VectorScaling(0.5), 0.01, 2.0)),
        (nn.VSLoss(class_counts=(9, 1)), VectorScaling.from_counts((9, 1))),
        (nn.VSLoss(class_counts=(9, 1), tau=1.0, gamma=0.1), VectorScaling.from_counts((9, 1), 1.0, 0.1)),
        (nn.LDAMLoss((9, 1), scale=10.0), LDAM((9, 1), scale=10.0)),
        (nn.CELoss(prior=(0.9, 0.1)), LogitAdjusted(CrossEntropy(), (0.9, 0.1))),
        (nn.as_module("poly(epsilon=-0.5)"), nn.PolyLoss(-0.5).loss),
        (nn.SquaredLoss(), nn.as_module("squared").loss),
        (nn.ErfLoss(), nn.as_module("erf").loss),
        (nn.AlphaLoss(0.6), nn.as_module("alpha(0.6)").loss),
    ],
    ids=str,
)
def test_ready_names_build_their_loss(module, loss):
    assert module.loss == loss
    assert str(loss) in repr(module)


@dataclass(frozen=True)
class Warm(CrossEntropy):
    """Cross entropy of scores divided by a temperature that has the name of the adjustment's factor."""

    tau: float = param(2.0)

    def numbers(self):
        return (self.tau,)

    @staticmethod
    def phi(ops, m, order, tau):
        return tuple(term / tau**k for k, term in enumerate(CrossEntropy.phi(ops, m / tau, order)))

    def log_slope(self, ops, m):
        log_slope, bend = super().log_slope(ops, m / self.tau)
        return log_slope - math.log(self.tau), bend / self.tau


def test_a_loss_keeps_its_own_tau():
    module, function = module_of("Warm", Warm), function_of("Warm", Warm)
    assert module(tau=4.0).loss == Warm(4.0)
    assert module().loss == Warm()
    assert module(tau=4.0, prior=0.01).loss == LogitAdjusted(Warm(4.0), 0.01)
    z, y = scores(9), labels(9)
    torch.testing.assert_close(function(z, y, tau=4.0), nn.CELoss()(z / 4, y))
    assert nn.VSLoss(0.5, prior=0.01).loss == LogitAdjusted(VectorScaling(0.5), 0.01)


def test_no_parameter_of_a_loss_can_hide_an_option():
    made = {*inspect.signature(nn.TBLLoss.__init__).parameters, *inspect.signature(nn.LossModule).parameters}
    made |= {*inspect.signature(nn.functional.tbl_loss).parameters, *LossOptions.__annotations__}
    assert made - {"alpha", "C", "tau", "loss"} <= RESERVED_NAMES


FUNCTIONS = {
    nn.functional.ce_loss: nn.CELoss(),
    nn.functional.squared_loss: nn.SquaredLoss(),
    nn.functional.erf_loss: nn.ErfLoss(),
    nn.functional.focal_loss: nn.FocalLoss(),
    nn.functional.poly_loss: nn.PolyLoss(),
    nn.functional.alpha_loss: nn.AlphaLoss(),
    nn.functional.tbl_loss: nn.TBLLoss(),
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functional_twins(function):
    z, y = scores(9), labels(9)
    torch.testing.assert_close(function(z, y), FUNCTIONS[function](z, y), rtol=0, atol=0)
    adjusted = function(z, y, prior=0.2, tau=1.0, reduction="sum")
    loss = LogitAdjusted(FUNCTIONS[function].loss, 0.2)
    torch.testing.assert_close(adjusted, nn.as_module(loss, reduction="sum")(z, y), rtol=0, atol=0)


def test_functional_twins_with_required_parameters():
    z, y = scores(9), labels(9)
    f, k = scores(9, 3), classes(9, k=3)
    torch.testing.assert_close(nn.functional.vs_loss(z, y, 0.5), nn.VSLoss(0.5)(z, y))
    torch.testing.assert_close(nn.functional.ldam_loss(z, y, (9, 1)), nn.LDAMLoss((9, 1))(z, y))
    torch.testing.assert_close(
        nn.functional.vs_loss(f, k, class_counts=(3, 2, 1)), nn.VSLoss(class_counts=(3, 2, 1))(f, k)
    )


def test_state_and_movement():
    module = nn.TBLLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    assert set(module.state_dict()) == {"weight"}
    other = nn.TBLLoss(weight=torch.ones(3))
    other.load_state_dict(module.state_dict())
    assert other.weight.tolist() == [1.0, 2.0, 3.0]
    assert module.to(torch.float64).weight.dtype == torch.float64
    assert module.to("meta").weight.device.type == "meta"
    assert not list(nn.TBLLoss().state_dict())
    assert copy.deepcopy(other).weight.tolist() == [1.0, 2.0, 3.0]
    assert not list(module.parameters())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype):
    z, y = scores(40).to(dtype), labels(40)
    leaf = z.clone().requires_grad_()
    value = nn.TBLLoss()(leaf, y)
    value.backward()
    assert value.dtype == torch.float32
    assert leaf.grad.dtype == dtype
    torch.testing.assert_close(value.detach(), nn.TBLLoss()(z.float(), y), rtol=1e-6, atol=0)


def test_autocast():
    layer = torch.nn.Linear(6, 1)
    x, y = scores(32, 6, dtype=torch.float32), labels(32, 1).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = layer(x)
        value = nn.FocalLoss()(z, y)
    assert z.dtype == torch.bfloat16
    assert value.dtype == torch.float32
    value.backward()
    assert torch.isfinite(layer.weight.grad).all()


@pytest.mark.parametrize("module", [nn.TBLLoss(), nn.CELoss(), nn.FocalLoss(0.5), nn.ErfLoss()], ids=str)
def test_unusual_batches(module):
    leaf = scores(5).requires_grad_()
    value = module(leaf, torch.zeros(5))
    value.backward()
    assert torch.isfinite(leaf.grad).all()
    assert module(scores(1), torch.ones(1)).ndim == 0
    empty = nn.as_module(module.loss, reduction="sum")
    leaf = torch.zeros(0, requires_grad=True)
    value = empty(leaf, torch.zeros(0))
    value.backward()
    assert value.item() == 0
    assert leaf.grad.shape == (0,)
    leaf = torch.zeros(0, 3, requires_grad=True)
    assert empty(leaf, torch.zeros(0, dtype=torch.long)).item() == 0
    assert nn.as_module(module.loss, reduction="none")(torch.zeros(0), torch.zeros(0)).shape == (0,)
    with pytest.raises(ValueError, match="mean of an empty batch"):
        module(torch.zeros(0), torch.zeros(0))


def test_overflow_saturates():
    z = torch.tensor([-1e6, -1e6, 0.0], requires_grad=True)
    y = torch.ones(3)
    largest = torch.finfo(torch.float32).max
    for reduction in REDUCTIONS:
        z.grad = None
        value = nn.TBLLoss(alpha=0.5, reduction=reduction)(z, y)
        assert torch.isfinite(value).all()
        value.sum().backward() if reduction != "none" else value.mean().backward()
        assert torch.isfinite(z.grad).all()
    many = torch.full((400_000,), -1e6)
    assert nn.TBLLoss(alpha=0.5)(many, torch.ones(400_000)).item() == pytest.approx(largest, rel=1e-6)
    assert nn.TBLLoss(alpha=0.5, reduction="sum")(many, torch.ones(400_000)).item() == largest


def test_nan_scores_show():
    assert nn.TBLLoss()(torch.tensor([float("nan")]), torch.ones(1)).isnan()


def test_same_result_every_time():
    z, y = scores(400_000, dtype=torch.float32), labels(400_000)
    first = nn.TBLLoss()(z, y)
    assert all(torch.equal(first, nn.TBLLoss()(z, y)) for _ in range(3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.CELoss(reduction="avg"), ValueError, "reduction must be"),
        (lambda: nn.CELoss(label_smoothing=1.0), ValueError, "label_smoothing"),
        (lambda: nn.LossModule("tbl"), TypeError, "expected a loss"),
        (lambda: nn.CELoss()(np.zeros(2), torch.zeros(2)), TypeError, "input must be a torch tensor"),
        (lambda: nn.CELoss()(torch.zeros(2, dtype=torch.long), torch.zeros(2)), TypeError, "floating-point"),
        (lambda: nn.CELoss()(torch.zeros(2), torch.zeros(3)), ValueError, "does not fit"),
        (lambda: nn.CELoss()(torch.zeros(2), torch.tensor([0.0, 1.5])), ValueError, r"target\[1\] is 1\.5"),
        (lambda: nn.CELoss()(torch.zeros(2), torch.tensor([0, -2])), ValueError, r"target\[1\] is -2"),
        (
            lambda: nn.CELoss()(torch.zeros(2, 3), torch.tensor([0, 3])),
            ValueError,
            r"0\.\.2: target\[1\] is 3",
        ),
        (lambda: nn.CELoss()(torch.zeros(2, 3), torch.zeros(2)), TypeError, "must be integers"),
        (lambda: nn.CELoss()(torch.zeros(2, 1), torch.zeros(2).long()), ValueError, "single class"),
        (
            lambda: nn.CELoss(weight=torch.ones(2))(torch.zeros(2, 3), torch.zeros(2).long()),
            ValueError,
            "3 class",
        ),
        (
            lambda: nn.CELoss(pos_weight=torch.ones(3))(torch.zeros(2, 3), torch.zeros(2).long()),
            ValueError,
            "pos_w",
        ),
        (
            lambda: nn.CELoss(soft_targets=False)(torch.zeros(2), torch.tensor([0.0, 0.4])),
            ValueError,
            r"soft_targets=False: target\[1\]",
        ),
        (lambda: nn.CELoss()(torch.zeros(1), torch.zeros(1, requires_grad=True)), ValueError, "detach"),
        (lambda: nn.VSLoss(), ValueError, "either delta"),
        (lambda: nn.VSLoss(class_counts=(1, 2), prior=0.1), ValueError, "leave prior out"),
        (
            lambda: nn.LDAMLoss((1, 2, 3))(torch.zeros(2, 4), torch.zeros(2).long()),
            ValueError,
            "3 class logits",
        ),
        (
            lambda: nn.CELoss(multiclass=True, ignore_index=1)(torch.zeros(2, 3), torch.zeros(2, 3)),
            ValueError,
            "ignore_index",
        ),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_users_loss_trains():
    mine = from_callable(lambda z, y: torch.exp((1 - 2 * y) * z), name="exponential")
    z, y = scores(30), labels(30)
    assert_same_with_gradient(
        lambda t: nn.as_module(mine)(t, y), lambda t: torch.exp((1 - 2 * y) * t).mean(), z
    )


def test_masked_class_logits():
    z = scores(5, 4)
    z[:, 2] = -torch.inf
    y = torch.tensor([0, 1, 3, 0, 1])
    torch.testing.assert_close(nn.CELoss()(z, y), F.cross_entropy(z, y))
