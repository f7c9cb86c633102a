"""The Triton loss kernel against the losses in float64, in Triton's interpreter: every loss, every option.

On a machine with CUDA the interpreter is off and these tests are left to `tests/gpu`.
"""

from __future__ import annotations

import math

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from loss_cases import BINARY_LOSSES, CLASS_LOSSES
from raresight import nn
from raresight.losses import TBL, Alpha, CrossEntropy, Erf, Focal, Loss, Poly, Squared
from raresight.nn._closed_form import LossTask, _kernel_row
from raresight.nn.kernels import MOST_CLASSES, has_triton, kernel_row
from raresight.nn.kernels import loss as kernel
from raresight.nn.loss_table import LossTable

INTERPRETED = type(kernel.binary_pass).__name__ == "InterpretedFunction"

pytestmark = [
    pytest.mark.skipif(not INTERPRETED, reason="needs TRITON_INTERPRET=1, set before Triton is imported"),
    # The interpreter is NumPy, which warns of infinities that the kernel expects.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

Tensor = torch.Tensor
KINDS = [CrossEntropy(), Squared(), Erf(), Focal(2.0), Poly(-0.5), TBL(), Alpha(0.4)]
# A loss without a hand-written body is computed by its phi, which is tested beside the table of losses.
BINARY, CLASSES = (
    [loss for loss in losses if kernel_row(loss, outputs, torch.device("cpu")) is not None]
    for losses, outputs in ((BINARY_LOSSES, 1), (CLASS_LOSSES, 4))
)
LARGEST = torch.finfo(torch.float32).max
NAN = float("nan")

# What float32 allows: a margin of size m is known to m 2^-24, and its exponential to as much. The interpreter
# has no fused multiply-add, with which the kernel is two to three times as exact.
RELATIVE = 1e-5


def group_of(loss: Loss, outputs: int = 1) -> kernel.KernelGroup:
    row = kernel_row(loss, outputs, torch.device("cpu"))
    return kernel.KernelGroup(row.body, row.is_plain, row.table, None)


def scores(*shape: int, spread: float = 6.0, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * spread


def labels(*shape: int, seed: int = 2) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.4).to(torch.uint8)


def assert_near(got: Tensor, expected: Tensor, relative: float = RELATIVE, absolute: float = 1e-36) -> None:
    """Within float32's reach of the reference in float64; numbers made of subnormal ones count as zero."""
    beyond = expected.abs() > LARGEST / 2
    assert (got[beyond].abs() > LARGEST / 100).all()
    assert (got[beyond].sign() == expected[beyond].sign()).all()
    assert got.isfinite().all()
    torch.testing.assert_close(got[~beyond].double(), expected[~beyond], rtol=relative, atol=absolute)


def assert_near_for_classes(got: Tensor, expected: Tensor, loss: Loss) -> None:
    """Relative to the sample's largest; the squared loss's gradient is a difference of numbers below one."""
    size = expected.clamp(-LARGEST, LARGEST).abs().amax(1, keepdim=True).clamp(min=1e-36)
    if "squared" in str(loss):
        size = size.clamp(min=0.1)
    assert ((got.double() - expected.clamp(-LARGEST, LARGEST)).abs() <= RELATIVE * size).all()


@pytest.mark.parametrize("loss", BINARY, ids=str)
def test_every_binary_loss(loss):
    z, y = scores(700), labels(700)
    z[:8] = torch.tensor([0.0, 1e-4, -1e-4, 30.0, -30.0, 60.0, -60.0, 85.0])
    value, gradient = loss.derivatives(z.double(), y, order=1)
    got, slopes = kernel.loss_and_gradient(z, y, group_of(loss), reduced=False)
    assert got.dtype == slopes.dtype == torch.float32
    assert_near(got, value)
    assert_near(slopes, gradient)
    mean, shares = kernel.loss_and_gradient(z, y, group_of(loss), scale=1 / 700)
    assert mean.shape == ()
    assert mean.item() == pytest.approx(got.double().mean().clamp(max=LARGEST).item(), rel=1e-6)
    torch.testing.assert_close(shares, slopes / 700, rtol=1e-6, atol=1e-40)


@pytest.mark.parametrize("loss", KINDS, ids=str)
def test_ordinary_scores_are_exact_to_rounding(loss):
    """Where no exponential is large, the kernel is as good as the formulas of the loss in float32."""
    z, y = scores(3000, spread=1.5), labels(3000)
    value, gradient = loss.derivatives(z.double(), y, order=1)
    got, slopes = kernel.loss_and_gradient(z, y, group_of(loss), reduced=False)
    assert_near(got, value, 2e-6)
    assert_near(slopes, gradient, 2e-6)


@pytest.mark.parametrize("loss", [*KINDS, Alpha(math.inf), Alpha(0.05), Poly(-1.0), TBL(1.0, 1.0)], ids=str)
def test_extreme_scores_saturate(loss):
    z = torch.tensor([500.0, -500.0, 1e20, -1e20, LARGEST, -LARGEST, math.inf, -math.inf])
    for label in (0, 1):
        y = torch.full((8,), label, dtype=torch.uint8)
        value, gradient = loss.derivatives(z, y, order=1)  # in float32, with its own saturation
        got, slopes = kernel.loss_and_gradient(z, y, group_of(loss), reduced=False)
        torch.testing.assert_close(got, value, rtol=RELATIVE, atol=1e-36)
        torch.testing.assert_close(slopes, gradient, rtol=RELATIVE, atol=1e-36)


def test_sums_beyond_float32():
    """The mean of saturated losses is finite where their sum is not, and the sum is the largest number."""
    z, y = torch.full((3000,), -1e6), labels(3000)
    loss = TBL(0.5, 0.5)
    share = y.double().mean().item()
    mean, _ = kernel.loss_and_gradient(z, y, group_of(loss), scale=1 / 3000)
    assert mean.item() == pytest.approx(share * LARGEST, rel=1e-6)
    total, _ = kernel.loss_and_gradient(z, y, group_of(loss))
    assert total.item() == LARGEST


@pytest.mark.parametrize("n", [1, 127, 128, 129, 511, 513, 1025])
def test_ragged_sizes(n):
    z, y = scores(n, spread=2.0), labels(n)
    value, gradient = TBL().derivatives(z.double(), y, order=1)
    total, slopes = kernel.loss_and_gradient(z, y, group_of(TBL()))
    assert total.item() == pytest.approx(value.sum().item(), rel=1e-6)
    assert_near(slopes, gradient, 3e-6)


@pytest.mark.parametrize("n", [8192, 20_077])
def test_long_inputs_take_several_steps(monkeypatch, n):
    """A program goes over several blocks of a long input; here one that the interpreter can wait for."""
    monkeypatch.setattr(kernel, "_LONG", n)
    z, y = scores(n, spread=2.0), labels(n)
    value, gradient = TBL().derivatives(z.double(), y, order=1)
    mean, slopes = kernel.loss_and_gradient(z, y, group_of(TBL()), scale=1 / n)
    assert mean.item() == pytest.approx(value.mean().item(), rel=1e-6)
    assert_near(slopes, gradient / n, 3e-6)
    z.fill_(-1e6)  # sums of the largest numbers
    loss = TBL(0.5, 0.5)
    mean, _ = kernel.loss_and_gradient(z, y, group_of(loss), scale=1 / n)
    assert mean.item() == pytest.approx(y.double().mean().item() * LARGEST, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("loss", KINDS, ids=str)
def test_half_precisions(loss, dtype):
    z, y = scores(300, spread=2.0).clamp(-5, 5).to(dtype), labels(300)
    value, gradient = loss.derivatives(z.double(), y, order=1)
    got, slopes = kernel.loss_and_gradient(z, y, group_of(loss), reduced=False)
    assert got.dtype == torch.float32
    assert slopes.dtype == dtype
    assert_near(got, value)
    # The gradient is rounded to its type, or cut off to it: one unit in the last place.
    unit = torch.finfo(dtype).eps
    large = gradient.abs() > 1e-3
    assert_near(slopes[large], gradient[large], unit)


@pytest.mark.parametrize("kind", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_label_types(kind):
    z, y = scores(200), labels(200)
    expected = kernel.loss_and_gradient(z, y, group_of(TBL()), reduced=False)
    got = kernel.loss_and_gradient(z, y.to(getattr(torch, kind)), group_of(TBL()), reduced=False)
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


@pytest.mark.parametrize("loss", [*KINDS, *BINARY[-6:]], ids=str)
def test_soft_labels_and_weights(loss):
    """Against the module on the CPU in float64: shares of a label, shares of both, weights of samples."""
    z, soft = scores(300, spread=2.0), torch.rand(300, generator=torch.Generator().manual_seed(3))
    weight = torch.rand(300, generator=torch.Generator().manual_seed(4)) + 0.1
    for target, options, arguments in (
        (soft, {}, {"soft": True}),
        (labels(300).float(), {}, {"soft": True}),
        (soft, {"weight": weight}, {"soft": True, "weights": weight}),
        (labels(300), {"weight": weight}, {"weights": weight}),
        (labels(300), {"weight": torch.tensor(0.3)}, {"weights": torch.tensor(0.3).expand(300)}),
        (soft, {"pos_weight": torch.tensor(7.0)}, {"soft": True, "negatives": 1 - soft}),
    ):
        leaf = z.double().requires_grad_()
        value = nn.as_module(loss, reduction="none", **options)(leaf, target)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        shares = target * 7.0 if "pos_weight" in options else target
        got, slopes = kernel.loss_and_gradient(z, shares, group_of(loss), reduced=False, **arguments)
        assert_near(got, value.detach())
        # Soft labels leave a difference of two slopes.
        assert_near(slopes, gradient, absolute=1e-6 * gradient.abs().max().item())


def test_a_scale_on_the_device():
    z, y = scores(300), labels(300)
    expected = kernel.loss_and_gradient(z, y, group_of(TBL()), scale=0.25)
    got = kernel.loss_and_gradient(z, y, group_of(TBL()), scale=torch.tensor(0.25))
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


def test_values_alone():
    z, y = scores(300), labels(300)
    value, gradient = kernel.loss_and_gradient(z, y, group_of(TBL()), gradient=False)
    assert gradient is None
    assert torch.equal(value, kernel.loss_and_gradient(z, y, group_of(TBL()))[0])


@pytest.mark.parametrize("loss", CLASSES, ids=str)
def test_every_class_loss(loss):
    f, k = scores(150, 4, spread=5.0), torch.randint(4, (150,), generator=torch.Generator().manual_seed(5))
    f[:2] = torch.tensor([[50.0, -50.0, 0.0, 1.0], [500.0, -500.0, 3.0, 3.0]])
    value, gradient = loss.derivatives(f.double(), k, order=1)
    got, slopes = kernel.loss_and_gradient(f, k, group_of(loss, 4), classes=True, reduced=False)
    assert_near(got, value)
    assert_near_for_classes(slopes, gradient, loss)
    weight = torch.rand(150, generator=torch.Generator().manual_seed(6))
    total, weighted = kernel.loss_and_gradient(f, k, group_of(loss, 4), classes=True, weights=weight)
    expected = (got.double() * weight).sum().clamp(max=LARGEST).item()
    assert total.item() == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(weighted, slopes * weight[:, None], rtol=1e-6, atol=1e-36)


@pytest.mark.parametrize("shape", [(5,), (3, 2), (7, 3, 5), (2, 10, 3, 2), (3, 300)])
@pytest.mark.parametrize("loss", [TBL(), Squared()], ids=str)
def test_shapes_of_class_logits(loss, shape):
    axis = 1 if len(shape) > 1 else 0
    f = scores(*shape, spread=3.0)
    k = torch.randint(shape[axis], [n for i, n in enumerate(shape) if i != axis])
    value, gradient = loss.derivatives(f.double(), k, order=1)
    got, slopes = kernel.loss_and_gradient(f, k, group_of(loss, shape[axis]), classes=True, reduced=False)
    assert got.shape == value.shape
    assert_near(got, value)
    assert_near_for_classes(slopes.movedim(axis, -1).reshape(-1, shape[axis]),
                            gradient.movedim(axis, -1).reshape(-1, shape[axis]), loss)  # fmt: skip


def test_masked_class_logits():
    f, k = scores(5, 4), torch.tensor([0, 1, 3, 0, 1])
    f[:, 2] = -torch.inf
    got, slopes = kernel.loss_and_gradient(f, k, group_of(CrossEntropy(), 4), classes=True, reduced=False)
    expected = torch.nn.functional.cross_entropy(f.double(), k, reduction="none")
    assert_near(got, expected)
    assert torch.equal(slopes[:, 2], torch.zeros(5))


@pytest.mark.parametrize("loss", KINDS, ids=str)
def test_nan_and_unknown_labels_show(loss):
    z = torch.tensor([NAN, 1.0, 1.0, 1.0])
    for y in (torch.tensor([1, 2, 255, 1], dtype=torch.uint8), torch.tensor([0, -1, 1 << 32, 0])):
        value, slopes = kernel.loss_and_gradient(z, y, group_of(loss), reduced=False)
        assert value.isnan().tolist() == slopes.isnan().tolist() == [True, True, True, False]
    f = torch.zeros(4, 3)
    f[0, 1] = NAN
    k = torch.tensor([0, -1, 3, 2])
    value, slopes = kernel.loss_and_gradient(f, k, group_of(loss, 3), classes=True, reduced=False)
    assert value.isnan().tolist() == [True, True, True, False]
    assert slopes.isnan().all(1).tolist() == [True, True, True, False]


def test_rescaling_in_place():
    gradient = scores(10_000)
    before = gradient.clone()
    assert kernel.rescale_(gradient, torch.tensor(1.0)) is gradient
    assert torch.equal(gradient, before)
    kernel.rescale_(gradient, torch.tensor(-0.5))
    assert torch.equal(gradient, -0.5 * before)
    short = scores(100).to(torch.bfloat16)
    before = short.clone()
    kernel.rescale_(short, torch.tensor(4.0))
    assert torch.equal(short, 4 * before)


def groups_of(losses: LossTable) -> list[kernel.KernelGroup]:
    flat = losses._flat_groups()
    triples = zip(*(flat[i::3] for i in range(3)), strict=True)
    return [
        kernel.KernelGroup(group.body, group.is_plain, table, replicas) for group, table, replicas in triples
    ]


@pytest.mark.parametrize("weighted", ["", "labels", "rows", "labels and rows"])
@pytest.mark.parametrize(("losses", "outputs"), [(BINARY, 1), (CLASSES, 4)], ids=["score", "classes"])
def test_stack(losses, outputs, weighted):
    """All replicas against the vectorised form in float64."""
    replicas, n = len(losses), 130
    shape = (replicas, n) if outputs == 1 else (replicas, n, outputs)
    z, table = scores(*shape, spread=1.0), LossTable(losses, outputs=outputs)
    own = torch.randint(max(outputs, 2), (replicas, n), generator=torch.Generator().manual_seed(8))
    w = torch.rand(replicas, max(outputs, 2), generator=torch.Generator().manual_seed(9)) + 0.5
    v = torch.rand(replicas, n, generator=torch.Generator().manual_seed(10)) * 3
    w, v = w if "labels" in weighted else None, v if "rows" in weighted else None
    # Labels and weights of rows for each replica, and those of all.
    for y, of_rows in ((own, v), (own[0].to(torch.uint8), None if v is None else v[0])):
        leaf = z.double().requires_grad_()
        # The kernel gives the mean of weight times loss; the table then divides by the mean weight.
        expected = table._weighted_sums(leaf, y, None if w is None else w.double(), of_rows)
        (gradient,) = torch.autograd.grad(expected.sum(), leaf)
        got, slopes = kernel.stack_losses(z, y, groups_of(table), w, of_rows)
        assert_near(got, expected.detach())
        size = 1e-6 * gradient.abs().flatten(1).amax(1)
        if outputs == 1:
            assert_near(slopes, gradient)
        else:
            assert ((slopes - gradient).abs().flatten(1) <= 10 * size[:, None]).all()


def test_replicas_in_no_group_have_zeros():
    table = LossTable(["tbl", "focal", "tbl"])
    z, y = scores(3, 40), labels(40)
    whole, slopes = kernel.stack_losses(z, y, groups_of(table))
    part, some = kernel.stack_losses(z, y, groups_of(table)[1:], complete=False)
    assert part.tolist() == [whole[0].item(), 0.0, whole[2].item()]
    assert torch.equal(some[::2], slopes[::2])
    assert torch.equal(some[1], torch.zeros(40))


def test_most_classes_fit():
    f, k = scores(2, MOST_CLASSES, spread=2.0), torch.tensor([0, MOST_CLASSES - 1])
    value, gradient = TBL().derivatives(f.double(), k, order=1)
    got, slopes = kernel.loss_and_gradient(f, k, group_of(TBL(), MOST_CLASSES), classes=True, reduced=False)
    assert_near(got, value)
    assert_near_for_classes(slopes, gradient, TBL())


def test_on_the_cpu_the_modules_keep_their_formulas():
    assert has_triton()
    assert _kernel_row(torch.zeros(3), LossTask(TBL(), "hard", True)) is None
