"""The losses of a stack are the losses alone, whatever is beside them."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from loss_cases import BINARY_LOSSES, CLASS_LOSSES
from raresight import nn
from raresight.losses import (
    LDAM,
    TBL,
    Alpha,
    ClassWeighted,
    CrossEntropy,
    Focal,
    LogitAdjusted,
    Loss,
    Poly,
    VectorScaling,
    from_callable,
)
from raresight.nn.kernels import body_of
from raresight.nn.loss_table import LossTable

Tensor = torch.Tensor
NAN = float("nan")


def logistic(z: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.softplus((1 - 2 * y) * z)


MINE = from_callable(logistic, name="mine")
# At the limits of their parameters, and composed in every order.
LIMITS: list[Loss] = [
    Alpha(1.0),
    Alpha(math.inf),
    Alpha(1e-3),
    TBL(1.0, 0.0),
    TBL(1.0, 0.5),
    TBL(1 - 1e-12, 0.5),
    Focal(0.0),
    Poly(0.0),
    Poly(-1.0),
    ClassWeighted(LogitAdjusted(ClassWeighted(Focal(0.5), (2.0, 3.0)), 0.1), (0.5, 4.0)),
    LogitAdjusted(ClassWeighted(LogitAdjusted(VectorScaling(0.5, iota_pos=1.0), 0.2), (2.0, 3.0)), 0.1, 2.0),
    LogitAdjusted(LDAM((100, 1)), 0.01),
]
EDGES = [0.0, 1e-9, -1e-9, 50.0, -50.0, 500.0, -500.0, 1e5, -1e5, 1e300, -1e300]


def scores(*shape: int, seed: int = 1, spread: float = 4.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * spread


def numbers(high: int, *shape: int, seed: int = 2) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


def evaluate(table: LossTable, z: Tensor, y: Tensor, w: Tensor | None = None) -> tuple[Tensor, Tensor]:
    leaf = z.clone().requires_grad_()
    values = table(leaf, y, w)
    (gradient,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), gradient


def alone(loss: Loss, z: Tensor, y: Tensor, w: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean loss and gradient by the loss itself, with a weight for each label."""
    value, gradient = loss.derivatives(z, y, order=1)
    factor = torch.ones(len(y), dtype=z.dtype) if w is None else w[y.long()]
    spread = factor if z.ndim == 1 else factor[:, None]
    largest = torch.finfo(z.dtype).max
    value, gradient = (value * factor).clamp(max=largest), (gradient * spread).clamp(-largest, largest)
    total = factor.sum()
    return (value / total).sum().clamp(max=largest), gradient / total


def assert_same(got: Tensor, expected: Tensor, loss: Loss, absolute: float = 0.0) -> None:
    """Equal but for rounding; where weights of classes and rows meet at the largest number, as large."""
    beyond = expected.abs() > torch.finfo(expected.dtype).max * 1e-6
    assert torch.equal(beyond, got.abs() > torch.finfo(got.dtype).max * 1e-6)
    torch.testing.assert_close(
        got[~beyond], expected[~beyond], rtol=1e-12, atol=absolute, msg=lambda text: f"{loss}: {text}"
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_every_binary_loss(shared, weighted):
    losses = [*BINARY_LOSSES, *LIMITS]
    z = scores(len(losses), 60)
    z[:, : len(EDGES)] = torch.tensor(EDGES, dtype=torch.float64)
    y = numbers(2, 60) if shared else numbers(2, len(losses), 60)
    w = torch.rand(len(losses), 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.1
    values, gradient = evaluate(LossTable(losses), z, y.to(torch.uint8), w if weighted else None)
    for k, loss in enumerate(losses):
        own = y if shared else y[k]
        value, slope = alone(loss, z[k], own, w[k] if weighted else None)
        assert_same(values[k], value, loss)
        assert_same(gradient[k], slope, loss, 1e-300)


@pytest.mark.parametrize("weighted", [False, True])
def test_every_class_loss(weighted):
    z = scores(len(CLASS_LOSSES), 40, 4)
    z[:, 0] = torch.tensor([50.0, -50.0, 0.0, 1.0])
    z[:, 1] = torch.tensor([500.0, -500.0, 3.0, 3.0])
    z[:, 2, 1] = -torch.inf
    y = numbers(4, len(CLASS_LOSSES), 40)
    y[:, 2] = 0
    w = (
        torch.rand(len(CLASS_LOSSES), 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        + 0.1
    )
    values, gradient = evaluate(LossTable(CLASS_LOSSES, outputs=4), z, y, w if weighted else None)
    for k, loss in enumerate(CLASS_LOSSES):
        value, slope = alone(loss, z[k], y[k], w[k] if weighted else None)
        assert_same(values[k], value, loss)
        assert_same(gradient[k], slope, loss, 1e-300)


@pytest.mark.parametrize(("losses", "outputs"), [(BINARY_LOSSES, 1), (CLASS_LOSSES, 4)])
def test_float32(losses, outputs):
    """As near to float64 as the loss alone in float32 is, or a few units in the last place."""
    shape = (len(losses), 50) if outputs == 1 else (len(losses), 50, outputs)
    z = scores(*shape).float()
    y = numbers(max(outputs, 2), len(losses), 50)
    table = LossTable(losses, outputs=outputs)
    values, gradient = evaluate(table, z, y)
    assert values.dtype == gradient.dtype == torch.float32
    largest = torch.finfo(torch.float32).max
    for k, loss in enumerate(losses):
        exact, rough = (loss.derivatives(z[k].to(t), y[k], order=1)[1] / 50 for t in (torch.float64, z.dtype))
        error, allowed = ((got - exact).abs() for got in (gradient[k], rough))
        assert (error <= 3 * allowed.max() + 2e-6 * exact.abs()).all() or (
            exact.abs() > largest / 50
        ).any(), loss


def test_half_precision_scores():
    z, y = scores(2, 50).to(torch.bfloat16), numbers(2, 50)
    table = LossTable([TBL(), Focal(2.0)])
    values, gradient = evaluate(table, z, y)
    assert values.dtype == torch.float32
    assert gradient.dtype == torch.bfloat16
    torch.testing.assert_close(values, table(z.float(), y), rtol=1e-6, atol=0)


def test_a_users_loss_beside_others():
    losses = [MINE, TBL(), ClassWeighted(MINE, (1.0, 2.0)), CrossEntropy(), Focal(1.0)]
    assert MINE.normal_form() is None
    assert losses[2].normal_form() is None
    z, y, w = scores(5, 30), numbers(2, 5, 30), scores(5, 2).abs()
    values, gradient = evaluate(LossTable(losses), z, y, w)
    for k, loss in enumerate(losses):
        value, slope = alone(loss, z[k], y[k], w[k])
        torch.testing.assert_close(values[k], value, rtol=1e-12, atol=0)
        torch.testing.assert_close(gradient[k], slope, rtol=1e-10, atol=1e-14)
    f, k = scores(2, 30, 3), numbers(3, 30)
    both = LossTable([MINE, CrossEntropy()], outputs=3)(f[:1].expand(2, -1, -1), k)
    torch.testing.assert_close(both[0], both[1], rtol=1e-12, atol=0)
    only = LossTable([MINE, MINE])(z[:2], y[:2])
    torch.testing.assert_close(only[1], alone(MINE, z[1], y[1])[0], rtol=1e-12, atol=0)


@pytest.mark.parametrize("shared", [False, True])
def test_weights_of_rows(shared):
    """They multiply values and gradients, and what is divided by stays: the class weights, or all rows."""
    for losses, outputs in (([*BINARY_LOSSES[::3], MINE], 1), ([*CLASS_LOSSES[::3], MINE], 4), ([MINE], 1)):
        count = len(losses)
        z = scores(count, 30) if outputs == 1 else scores(count, 30, outputs)
        y, v = numbers(max(outputs, 2), count, 30), scores(count, 30, seed=7).abs()
        v[:, :5] = 0.0
        if shared:
            y, v = y[0], v[0]
        table = LossTable(losses, outputs=outputs)
        for w in (None, scores(count, max(outputs, 2)).abs() + 0.1):
            leaf = z.clone().requires_grad_()
            values = table(leaf, y, w, v)
            (gradient,) = torch.autograd.grad(values.sum(), leaf)
            spread = v.expand(count, 30) if outputs == 1 else v.expand(count, 30).unsqueeze(-1)
            torch.testing.assert_close(
                gradient, evaluate(table, z, y, w)[1] * spread, rtol=1e-12, atol=1e-300
            )
            for k, loss in enumerate(losses):
                own, times = (y, v) if shared else (y[k], v[k])
                label = torch.ones(30, dtype=torch.float64) if w is None else w[k][own]
                each = nn.functional.loss_with_logits(
                    z[k], own, loss, reduction="none", soft_targets=False, multiclass=outputs > 1
                )
                expected = (each * times * label).sum() / label.sum()
                torch.testing.assert_close(values[k].detach(), expected, rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match=r"row_weights must have shape \(30,\) or \(1, 30\), got \(2, 30\)"):
        table(z, y, None, scores(2, 30))


def test_upstream_reaches_each_replica_alone():
    losses = ["tbl", "focal", "tbl(alpha=0.5,C=0.1)", "squared"]
    z, y = scores(4, 20).requires_grad_(), numbers(2, 20)
    table = LossTable(losses)
    (plain,) = torch.autograd.grad(table(z, y).sum(), z)
    factors = torch.tensor([1.0, -2.0, 0.0, 3.0], dtype=torch.float64)
    values = table(z, y)
    (scaled,) = torch.autograd.grad((values * factors).sum(), z, retain_graph=True)
    torch.testing.assert_close(scaled, plain * factors[:, None], rtol=1e-14, atol=0)
    (again,) = torch.autograd.grad(values.sum(), z)
    assert torch.equal(again, plain)


@pytest.mark.parametrize("bad", [NAN, math.inf])
def test_a_broken_replica_touches_no_other(bad):
    losses = ["tbl", "tbl", "focal", "focal", "erf", MINE, "poly(epsilon=-1.0)"]
    z, y = scores(7, 20), numbers(2, 20)
    clean = evaluate(LossTable(losses), z, y)
    z[0], z[3, 4] = bad, bad
    values, gradient = evaluate(LossTable(losses), z, y)
    others = [1, 2, 4, 5, 6]
    assert torch.equal(values[others], clean[0][others])
    assert torch.equal(gradient[others], clean[1][others])
    if math.isnan(bad):
        assert values[[0, 3]].isnan().all()
        assert gradient[3].isnan().tolist() == [i == 4 for i in range(20)]
    else:
        assert values.isfinite().all()
        assert gradient.isfinite().all()


def test_gradient_is_the_derivative():
    losses = [TBL(), Focal(2.0), Poly(0.5), Alpha(0.4), MINE]
    z, y = scores(5, 3, spread=2.0).requires_grad_(), numbers(2, 3)
    assert torch.autograd.gradcheck(lambda t: LossTable(losses)(t, y), (z,))
    f, k = scores(5, 3, 3, spread=2.0).requires_grad_(), numbers(3, 3)
    assert torch.autograd.gradcheck(lambda t: LossTable([*losses[:4], "squared"], outputs=3)(t, k), (f,))


@pytest.mark.parametrize(
    ("losses", "outputs", "shape"),
    [(["tbl", "focal", "alpha(0.4)"], 1, (20,)), (["squared", "tbl"], 3, (20, 3))],
)
def test_compiled(losses, outputs, shape):
    """The graph is traced whole, and its results are those of the eager table."""
    table = LossTable(losses, outputs=outputs)
    z, y = scores(len(losses), *shape), numbers(max(outputs, 2), len(losses), 20)
    compiled = torch.compile(table, backend="aot_eager", fullgraph=True)
    expected = evaluate(table, z, y)
    got = evaluate(compiled, z, y)
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-300)
    y[0, 0] = -1
    assert evaluate(compiled, z, y)[0].isnan().tolist() == [k == 0 for k in range(len(losses))]


def test_parameters_are_buffers_in_float64():
    table = LossTable(["tbl", "focal", "erf"])
    assert not list(table.parameters())
    assert not table.state_dict()
    assert len(list(table.buffers())) == 8
    before = {name: buffer.clone() for name, buffer in table.named_buffers()}
    table.half().float().bfloat16()
    for name, buffer in table.named_buffers():
        assert torch.equal(buffer, before[name])
    other = copy.deepcopy(table)
    z, y = scores(3, 9), numbers(2, 9)
    assert torch.equal(other(z, y), table(z, y))
    assert all(buffer.device.type == "meta" for buffer in table.to("meta").buffers())
    assert "3 losses, outputs=1" in repr(other)


def test_normal_forms():
    assert body_of(Alpha(0.4).normal_form()) == body_of(TBL(1.0, 0.5).normal_form())
    assert body_of(CrossEntropy().normal_form()) != body_of(Focal(1.0).normal_form())
    adjusted = LogitAdjusted(LDAM((9, 1), max_margin=0.5, scale=2.0), 0.1).normal_form()
    shift = math.log(1 / 9)
    assert adjusted.scales == (-2.0, 2.0)
    assert adjusted.shifts == pytest.approx((-2 * shift - 0.5773502691896257, 2 * shift - 1.0), rel=1e-14)
    assert not adjusted.is_plain
    assert TBL().normal_form().is_plain


class Mild(Focal):
    """A loss derived from another, with a phi of its own."""

    @staticmethod
    def phi(ops, m, order, *numbers):
        return tuple(0.5 * term for term in Focal.phi(ops, m, order, *numbers))


def test_a_derived_loss_is_computed_by_its_own_phi():
    z, y = scores(1, 9), numbers(2, 9)
    torch.testing.assert_close(LossTable([Mild(2.0)])(z, y), 0.5 * LossTable([Focal(2.0)])(z, y))


class Spread(Focal):
    """A loss with the phi of another, and a factor for the spread of class logits."""

    counts_spread = True


def test_a_body_without_the_factor_of_the_spread_is_not_taken():
    assert body_of(Focal(2.0).normal_form(3)) is not None
    assert body_of(Spread(2.0).normal_form(3)) is None
    f, y = scores(1, 9, 3), numbers(3, 9)
    others = f[0].scatter(1, y[:, None], -torch.inf).softmax(1)
    factor = (1 + (others * others).sum(1)) / 2
    expected = (Focal(2.0).value(f[0], y) * factor).mean()
    torch.testing.assert_close(LossTable([Spread(2.0)], outputs=3)(f, y)[0], expected)


@pytest.mark.parametrize("loss", ["tbl", "focal", "erf", "squared", "poly(epsilon=-0.5)"])
def test_start(loss):
    table = LossTable([loss, "crossentropy"])
    start = table.start(0.02)
    assert start.shape == (2, 1)
    assert start.dtype == torch.float64
    assert table.losses[0].probability(start[0]).item() == pytest.approx(0.02, rel=1e-9)
    priors = (0.7, 0.2, 0.1)
    start = LossTable([loss, "crossentropy"], outputs=3).start(priors)
    assert start.shape == (2, 3)
    got = table.losses[0].probability(start[:1], multiclass=True)[0].tolist()
    assert got == pytest.approx(priors, rel=1e-9)


TWO = LossTable(["tbl", "focal"])
THREE = LossTable(["tbl", "focal"], outputs=3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LossTable([]), ValueError, "at least one loss"),
        (lambda: LossTable(["tbl"], outputs=0), ValueError, "outputs must be"),
        (lambda: LossTable(["tbl", 3]), TypeError, r"losses\[1\] must be a loss"),
        (lambda: LossTable([LDAM((1, 2, 3))]), ValueError, "outputs=3"),
        (lambda: LossTable(["tbl", LDAM((1, 2, 3))], outputs=4), ValueError, r"losses\[1\].*3 class logits"),
        (lambda: LossTable([VectorScaling(0.5)], outputs=3), ValueError, "a binary score"),
        (lambda: TWO(torch.zeros(3, 5), torch.zeros(5).long()), ValueError, r"\(2, N\), got \(3, 5\)"),
        (lambda: TWO(torch.zeros(2, 5, 3), torch.zeros(5).long()), ValueError, r"\(2, N\)"),
        (lambda: THREE(torch.zeros(2, 5, 4), torch.zeros(5).long()), ValueError, r"\(2, N, 3\)"),
        (lambda: TWO(torch.zeros(2, 0), torch.zeros(0).long()), ValueError, "empty batch"),
        (lambda: TWO(torch.zeros(2, 5).long(), torch.zeros(5).long()), TypeError, "floating-point"),
        (
            lambda: TWO(torch.zeros(2, 5), torch.zeros(4).long()),
            ValueError,
            r"\(5,\) or \(2, 5\), got \(4,\)",
        ),
        (lambda: TWO(torch.zeros(2, 5), torch.zeros(5)), TypeError, "whole numbers"),
        (lambda: TWO(torch.zeros(2, 2), torch.tensor([0, 2])), ValueError, r"0\.\.1: labels\[1\] is 2"),
        (
            lambda: THREE(torch.zeros(2, 2, 3), torch.tensor([-1, 2])),
            ValueError,
            r"0\.\.2: labels\[0\] is -1",
        ),
        (
            lambda: TWO(torch.zeros(2, 5), torch.zeros(5).long(), torch.ones(2, 3)),
            ValueError,
            r"weights must have shape \(2, 2\)",
        ),
        (lambda: TWO.start((0.1, 0.9)), ValueError, "one prior"),
        (lambda: TWO.start(1.0), ValueError, "strictly between"),
        (lambda: THREE.start((0.1, 0.9)), ValueError, "3 class priors"),
        (lambda: THREE.start(0.1), ValueError, "3 class priors"),
        (lambda: LossTable(["alpha(inf)"]).start(0.1), ValueError, "no unique minimiser"),
    ],
)
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_table_is_the_module():
    """The same formulas as `as_module`, whose mean each entry is."""
    losses = ["tbl", "squared", "alpha(0.4)"]
    z, y = scores(3, 40), numbers(2, 3, 40)
    values = LossTable(losses)(z, y)
    for k, loss in enumerate(losses):
        torch.testing.assert_close(values[k], nn.as_module(loss)(z[k], y[k]), rtol=1e-13, atol=0)


def test_class_weights_are_those_of_deferred_reweighting():
    """The weighted mean of torch's CrossEntropyLoss, which a module with the schedule's weights gives."""
    counts = (9900, 100)
    y = (torch.arange(1000) % 100 == 0).long()
    f = scores(1, 1000, 2)
    schedule = nn.DeferredReweighting(counts, start_epoch=0)
    module = nn.as_module(LDAM(counts), weight=torch.ones(2, dtype=torch.float64))
    schedule.apply_(module, 0)
    weights = torch.tensor([schedule.weights(0)], dtype=torch.float64)
    found = LossTable([LDAM(counts)], outputs=2)(f, y, weights)
    torch.testing.assert_close(found[0], module(f[0], y), rtol=1e-12, atol=0)
