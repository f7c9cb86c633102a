"""Shares of classes, half precision and shared weights: where slopes lose their digits or their owner."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from loss_cases import CLASS_LOSSES
from raresight import nn
from raresight.losses import LDAM

COUNTS = (700, 200, 60, 30, 20)


@pytest.mark.parametrize("scale", [1.0, 6.0])
@pytest.mark.parametrize("loss", [*CLASS_LOSSES, LDAM((900, 90, 10, 5))], ids=str)
def test_slopes_of_shares_have_their_digits_in_single_precision(loss, scale):
    """Also where one class has nearly all the probability, and its own term outweighs the others."""
    classes = loss.n_classes or 4
    random = np.random.default_rng(0)
    f = np.clip(scale * random.uniform(-1, 1, (400, classes)), -1 if isinstance(loss, LDAM) else -9, 9)
    y = torch.from_numpy(random.integers(0, classes, 400))
    found = []
    for dtype in (torch.float32, torch.float64):
        z = torch.tensor(f, dtype=torch.float32).to(dtype).requires_grad_()
        nn.as_module(loss, label_smoothing=0.1, reduction="sum")(z, y).backward()
        found.append(z.grad.double())
    error = (found[0] - found[1]).abs() / found[1].abs().amax(1, keepdim=True).clamp_min(1e-3)
    assert error.max() < 1e-3


def test_slopes_of_ldam_with_smoothing_by_hand():
    """30 (p - smoothed labels), with the margin of the true class in p."""
    z = torch.tensor([[-0.5, -0.4, 0.9]], requires_grad=True)
    nn.LDAMLoss((900, 90, 10), label_smoothing=0.1)(z, torch.tensor([2])).backward()
    torch.testing.assert_close(z.grad, torch.tensor([[-1.0, -1.0, 2.0]]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1000, 2**18])
def test_a_gradient_scaler_saves_small_slopes_of_half_scores(rows):
    """Of a mean over so many rows that the slope of a negative is zero in float16."""
    torch.manual_seed(0)
    z = torch.full((rows,), -6.0, dtype=torch.float16)
    y = torch.zeros(rows)
    y[0] = 1
    scale = 65536.0
    found = []
    for criterion in (nn.CELoss(), torch.nn.BCEWithLogitsLoss()):
        own = z.clone().requires_grad_()
        half = own if isinstance(criterion, nn.CELoss) else own.float()
        (scale * criterion(half, y)).backward()
        found.append(own.grad)
    assert found[0].dtype == torch.float16
    assert (found[0] != 0).all()
    torch.testing.assert_close(*found, rtol=2e-3, atol=0)


@pytest.mark.parametrize("order", [("binary", "classes"), ("classes", "binary", "classes")])
def test_criteria_of_both_kinds_compile_in_one_process(order):
    torch.compiler.reset()
    made = {"binary": nn.TBLLoss(), "classes": nn.CELoss()}
    given = {
        "binary": (torch.linspace(-1, 1, 64), (torch.arange(64) % 2).float()),
        "classes": (torch.linspace(-1, 1, 192).view(64, 3), torch.arange(64) % 3),
    }
    compiled = {
        name: torch.compile(criterion, fullgraph=True, backend="eager") for name, criterion in made.items()
    }
    for name in order:
        torch.testing.assert_close(compiled[name](*given[name]), made[name](*given[name]))


def test_reweighting_one_criterion_leaves_the_others_and_the_tensor_alone():
    weight = torch.ones(2)
    validation, training = nn.CELoss(weight=weight), nn.LDAMLoss((900, 100), weight=weight)
    nn.DeferredReweighting((900, 100), 0).apply_(training, 0)
    assert training.weight.tolist() != [1, 1]
    assert weight.tolist() == validation.weight.tolist() == [1, 1]


@pytest.mark.parametrize("share", [3.0, -1.0, float("nan")])
def test_shares_that_are_none_are_refused(share):
    target = torch.tensor([[0.5, 0.5], [share, 0.5]])
    with pytest.raises(ValueError, match=r"shares of classes must lie in \[0, 1\].*\[1, 0\]"):
        nn.TBLLoss(multiclass=True)(torch.zeros(2, 2), target)
