"""Modules at infinite and huge scores, as of a net that has diverged: finite, and the limit's value."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from loss_cases import BINARY_LOSSES, CLASS_LOSSES
from raresight.losses import TBL, Alpha, CrossEntropy, Focal, Poly
from raresight.nn import as_module

INF = float("inf")
HUGE = [-INF, -1e38, 1e38, INF]
DTYPES = [torch.float32, torch.float64]


def value_and_gradient(loss, z, y, **options):
    z = z.clone().requires_grad_()
    value = as_module(loss, reduction="none", **options)(z, y)
    value.sum().backward()
    return value.detach(), z.grad


def assert_same(found, expected):
    assert torch.isfinite(found).all()
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5 if found.dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", BINARY_LOSSES, ids=str)
def test_a_score(loss, dtype):
    """The NumPy side is the reference: there infinity stands for the largest finite number."""
    z = torch.tensor([HUGE, HUGE], dtype=dtype)
    y = torch.tensor([[0.0] * 4, [1.0] * 4], dtype=dtype)
    found = value_and_gradient(loss, z, y, soft_targets=False)
    for one, expected in zip(found, loss.derivatives(z.numpy(), y.numpy(), order=1), strict=True):
        assert_same(one, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", BINARY_LOSSES, ids=str)
def test_soft_labels(loss, dtype):
    """Labels of 0 and 1 among soft ones give what they give alone."""
    z = torch.tensor([HUGE] * 3, dtype=dtype)
    y = torch.tensor([[0.0] * 4, [1.0] * 4, [0.25] * 4], dtype=dtype)
    hard = value_and_gradient(loss, z[:2], y[:2], soft_targets=False)
    for one, expected in zip(value_and_gradient(loss, z, y, soft_targets=True), hard, strict=True):
        assert_same(one[:2], expected.numpy())
        assert torch.isfinite(one).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("loss", CLASS_LOSSES, ids=str)
def test_class_logits(loss, dtype):
    rows = [
        [INF, 0, 0, -1],
        [-INF, 0, 1, 2],
        [INF, INF, 0, 0],
        [INF, -INF, 1e38, -1e38],
        [-INF] * 4,
        [INF] * 4,
    ]
    f = torch.tensor(rows, dtype=dtype).repeat_interleave(4, 0)
    y = torch.arange(4).repeat(len(rows))
    found = value_and_gradient(loss, f, y)
    for one, expected in zip(found, loss.derivatives(f.numpy(), y.numpy(), order=1), strict=True):
        assert_same(one, expected)
    shares = torch.eye(4, dtype=dtype)[y]
    for one in value_and_gradient(loss, f, shares, multiclass=True):
        assert torch.isfinite(one).all()


@pytest.mark.parametrize(
    ("loss", "value_behind", "slope_behind"),
    [
        (CrossEntropy(), None, -1.0),
        (Focal(2.0), None, -1.0),
        (Focal(0.0), None, -1.0),
        (Poly(-1.0), None, -1.0),
        (Poly(1.0), None, -1.0),
        (TBL(1.0, 0.5), None, -np.exp(-0.5)),
        (Alpha(INF), 1.0, 0.0),
        (Alpha(2.0), 2.0, 0.0),
    ],
    ids=str,
)
def test_the_limits(loss, value_behind, slope_behind):
    """Far on the right side nothing is left; far on the wrong one the slope, and the value unless bounded."""
    z = torch.tensor([-INF, INF], dtype=torch.float64)
    value, slope = value_and_gradient(loss, z, torch.ones(2, dtype=torch.float64), soft_targets=False)
    assert (value[1], slope[1]) == (0.0, 0.0)
    assert slope[0] == pytest.approx(slope_behind, rel=1e-12)
    assert torch.isfinite(value[0])
    assert value[0] == value_behind if value_behind else value[0] > 1e307


@pytest.mark.parametrize("loss", [TBL(), Alpha(0.3), Focal(2.0)], ids=str)
def test_compiled(loss):
    """Compiled float32 has formulas of its own, with an exponential that overflows from -355 on for TBL."""
    module = as_module(loss, reduction="none", soft_targets=False)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    found = []
    for one in (compiled, module):
        z = torch.tensor([*HUGE, -1e4, -400.0]).requires_grad_()
        value = one(z, torch.ones(6))
        value.sum().backward()
        found.append((value.detach(), z.grad))
    for quick, plain in zip(*found, strict=True):
        assert torch.isfinite(quick).all()
        torch.testing.assert_close(quick, plain, rtol=1e-5, atol=0)


def test_a_score_that_is_no_number_stays_visible():
    value, slope = value_and_gradient(Focal(2.0), torch.tensor([float("nan")]), torch.ones(1))
    assert torch.isnan(value).all()
    assert torch.isnan(slope).all()
