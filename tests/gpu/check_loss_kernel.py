"""The loss kernel on a GPU, through the modules and the loss table; plain functions, without pytest.

Run by `make test-gpu`, where PyTorch, Triton and NumPy are all there is. The reference is the loss itself in
float64 on the CPU; `close` says how near a float32 result must be.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


from loss_cases import BINARY_LOSSES, CLASS_LOSSES
from raresight.losses import TBL, CrossEntropy, Erf, Focal, Poly, Squared, from_callable
from raresight.nn import as_module
from raresight.nn._closed_form import LossTask, _kernel_row
from raresight.nn.loss_table import LossTable, _runs_in_a_kernel

Tensor = torch.Tensor

KINDS = [CrossEntropy(), Squared(), Erf(), Focal(2.0), Poly(-0.5), TBL(), TBL(0.4, 1.0)]
LARGEST = torch.finfo(torch.float32).max
RELATIVE = 1e-5


def close(
    got: Tensor, expected: Tensor, relative: float = RELATIVE, what: object = "", absolute: float = 1e-36
) -> None:
    """Within `relative` of the reference in float64; what a subnormal number was part of counts as zero.

    Where the reference is beyond float32, or a product on the way to it, the result must be near its end
    (a class weight comes after).
    """
    got, expected = got.double().cpu(), expected.double().cpu()
    beyond = expected.abs() > LARGEST / 2
    assert (got[beyond].abs() > LARGEST / 100).all(), what
    assert (got[beyond].sign() == expected[beyond].sign()).all(), what
    torch.testing.assert_close(
        got[~beyond], expected[~beyond], rtol=relative, atol=absolute, msg=lambda text: f"{what}: {text}"
    )


def near_class_gradient(got: Tensor, expected: Tensor, what: object) -> None:
    """Relative to the sample's largest; for the squared loss, whose logits have differences of numbers
    below one as their gradient, to one."""
    expected = expected.double().clamp(-LARGEST, LARGEST)
    error = (got.double().cpu() - expected).abs()
    size = expected.abs().amax(1, keepdim=True).clamp(min=1e-36)
    if "squared" in str(what):
        size = size.clamp(min=0.1)
    assert (error <= RELATIVE * size).all(), f"{what}: {(error / size).max()}"


def scores(n: int, *, seed: int = 0, spread: float = 6.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, generator=generator) * spread
    edges = torch.tensor([0.0, 1e-4, -1e-4, 50.0, -50.0, 500.0, -500.0, 3e38, -3e38])
    z[: len(edges)] = edges[:n]
    return z


def labels(n: int, share: float = 0.4, seed: int = 1) -> Tensor:
    return (torch.rand(n, generator=torch.Generator().manual_seed(seed)) < share).to(torch.uint8)


def reference(loss, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    value, gradient = loss.derivatives(z.double(), y, order=1)
    return value, gradient


def check_the_kernel_is_used() -> None:
    """By itself on CUDA for scores of up to 32 bits and hard or soft labels; otherwise the formulas are."""
    z = torch.zeros(3, 4, device="cuda")
    table = LossTable(["tbl"]).cuda()
    groups = [(table._groups[0], table._table_0, table._replicas_0)]
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for kind in ("hard", "soft", "classes"):
            assert _kernel_row(z.to(dtype), LossTask(TBL(), kind, True)) is not None
        assert _runs_in_a_kernel(z.to(dtype), groups)
    assert _kernel_row(z, LossTask(TBL(), "shares", True)) is None
    assert _kernel_row(z, LossTask(from_callable(_mine), "hard", True)) is None
    assert _kernel_row(z[:0], LossTask(TBL(), "hard", True)) is None
    assert _kernel_row(torch.zeros(2, 2000, device="cuda"), LossTask(TBL(), "classes", True)) is None
    assert not _runs_in_a_kernel(z.double(), groups)
    assert _kernel_row(z.double(), LossTask(TBL(), "hard", True)) is None


def check_every_binary_loss() -> None:
    for n in (1003, 100_003):
        z, y = scores(n), labels(n)
        for loss in BINARY_LOSSES:
            value, gradient = reference(loss, z, y)
            leaf = z.cuda().requires_grad_()
            each = as_module(loss, reduction="none")(leaf, y.cuda())
            (slopes,) = torch.autograd.grad(each.sum(), leaf)
            assert each.dtype == torch.float32
            close(each.detach(), value, what=loss)
            close(slopes, gradient, what=loss)
            mean = as_module(loss)(leaf, y.cuda())
            mean.backward()
            close(mean.detach(), each.detach().double().mean(), 1e-6, what=loss)
            close(leaf.grad, slopes.double() / n, 1e-6, what=loss)


def check_every_class_loss() -> None:
    for n in (5, 3001):
        f = torch.randn(n, 4, generator=torch.Generator().manual_seed(2)) * 5
        f[:2] = torch.tensor([[50.0, -50.0, 0.0, 1.0], [500.0, -500.0, 3.0, 3.0]])
        k = torch.randint(4, (n,), generator=torch.Generator().manual_seed(3))
        for loss in CLASS_LOSSES:
            value, gradient = reference(loss, f, k)
            leaf = f.cuda().requires_grad_()
            each = as_module(loss, reduction="none")(leaf, k.cuda())
            each.sum().backward()
            close(each.detach(), value, what=loss)
            near_class_gradient(leaf.grad, gradient, loss)
            total = as_module(loss, reduction="sum")(leaf, k.cuda())
            close(total.detach(), each.detach().double().sum(), 1e-6, what=loss)


def check_dense_and_many_classes() -> None:
    for shape in ((3, 10, 7, 5), (4, 1000), (2, 2)):
        f = torch.randn(shape, generator=torch.Generator().manual_seed(4)) * 3
        k = torch.randint(shape[1], (shape[0], *shape[2:]), generator=torch.Generator().manual_seed(5))
        for loss in (Squared(), TBL()):
            value, gradient = reference(loss, f, k)
            leaf = f.cuda().requires_grad_()
            mean = as_module(loss)(leaf, k.cuda())
            mean.backward()
            close(mean.detach(), value.mean(), what=(str(loss), shape))
            near_class_gradient(leaf.grad, gradient / value.numel(), (str(loss), shape))


def check_half_precisions() -> None:
    z, y = scores(10_001), labels(10_001)
    for dtype, relative in ((torch.bfloat16, 2**-8), (torch.float16, 2**-10)):
        # Scores that the type can hold, and a sum rather than a mean: float16 has no numbers below 6e-8.
        short = z.clamp(-5, 5).to(dtype)
        for loss in KINDS:
            value, gradient = reference(loss, short, y)
            leaf = short.cuda().requires_grad_()
            total = as_module(loss, reduction="sum")(leaf, y.cuda())
            total.backward()
            close(total.detach(), value.sum(), what=loss)
            assert leaf.grad.dtype == dtype
            kept = gradient.abs() > 1e-3
            close(leaf.grad.cpu()[kept], gradient[kept], relative, what=loss)


def check_options() -> None:
    """Weights, positive weights, ignored labels, smoothing, every label type, against the CPU in float64."""
    n = 5003
    z, y = scores(n, spread=3.0).clamp(-4, 4), labels(n)
    soft = torch.rand(n, generator=torch.Generator().manual_seed(6))
    weight = torch.rand(n, generator=torch.Generator().manual_seed(7))
    cases = [
        ({}, y.bool()),
        ({}, y.long()),
        ({}, y.float()),
        ({"soft_targets": False}, y.float()),
        ({}, soft),
        ({"weight": weight}, y),
        ({"weight": torch.tensor(0.3)}, y),
        ({"pos_weight": torch.tensor(7.0)}, y.float()),
        ({"pos_weight": weight, "weight": weight}, soft),
        ({"ignore_index": 1}, y),
        ({"label_smoothing": 0.1}, y.float()),
    ]
    for loss in KINDS[:-1]:
        # Every case for two kinds, and soft labels and weights for the others: a kernel is compiled for each.
        for options, target in cases if loss in (Erf(), TBL()) else cases[4:6]:
            for reduction in ("mean", "none"):
                both = []
                for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
                    leaf = z.clone().to(device, dtype).requires_grad_()
                    module = as_module(loss, reduction=reduction, **options).to(device)
                    value = module(leaf, target.to(device))
                    (value * 0.5).sum().backward()
                    both.append((value.detach(), leaf.grad))
                # Soft labels leave a difference of two slopes.
                size = both[0][1].abs().max().item()
                close(both[1][0], both[0][0], what=(loss, options, reduction))
                close(both[1][1], both[0][1], what=(loss, options, reduction), absolute=1e-6 * size)
    f = torch.randn(501, 6, generator=torch.Generator().manual_seed(8)) * 3
    k = torch.randint(6, (501,), generator=torch.Generator().manual_seed(9))
    for loss in (Squared(), TBL()):
        for options in ({"weight": torch.rand(6) + 0.5}, {"ignore_index": 2}, {"label_smoothing": 0.1}):
            both = []
            for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
                leaf = f.clone().to(device, dtype).requires_grad_()
                value = as_module(loss, **options).to(device)(leaf, k.to(device))
                value.backward()
                both.append((value.detach(), leaf.grad))
            close(both[1][0], both[0][0], what=(str(loss), options))
            near_class_gradient(both[1][1], both[0][1].cpu(), (str(loss), options))


def check_retained_graphs() -> None:
    """A gradient scaled in place must not be seen by a second backward pass, nor change the first."""
    z, y = scores(4001).clamp(-40, 40), labels(4001)
    _, gradient = reference(TBL(), z, y)
    leaf = z.cuda().requires_grad_()
    value = as_module(TBL())(leaf, y.cuda())
    (first,) = torch.autograd.grad(3 * value, leaf, retain_graph=True)
    kept = first.clone()
    (second,) = torch.autograd.grad(value, leaf, retain_graph=True)
    (third,) = torch.autograd.grad(-2 * value, leaf)
    assert torch.equal(first, kept)
    close(first, 3 * gradient / 4001)
    close(second, gradient / 4001)
    close(third, -2 * gradient / 4001)


def check_second_derivatives() -> None:
    z, y = scores(301).clamp(-30, 30), labels(301)
    for loss in KINDS:
        leaf = z.cuda().requires_grad_()
        (slope,) = torch.autograd.grad(as_module(loss)(leaf, y.cuda()), leaf, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), leaf)
        expected = loss.derivatives(z.double(), y, order=2)[2] / 301
        size = expected.abs().max()
        assert ((bend.cpu().double() - expected).abs() <= 1e-5 * size).all(), loss


def check_wrong_labels_and_nan() -> None:
    z, y = torch.zeros(4, device="cuda"), torch.tensor([0, 1, 2, 255], dtype=torch.uint8, device="cuda")
    for loss in KINDS:
        value = as_module(loss, reduction="none")(z, y)
        assert value.isnan().tolist() == [False, False, True, True], loss
        f = torch.zeros(3, 3, device="cuda")
        value = as_module(loss, reduction="none")(f, torch.tensor([0, -1, 3], device="cuda"))
        assert value.isnan().tolist() == [False, True, True], loss
        leaf = torch.tensor([float("nan"), 1.0], device="cuda", requires_grad=True)
        value = as_module(loss, reduction="none")(leaf, torch.ones(2, dtype=torch.uint8, device="cuda"))
        value.sum().backward()
        assert value.isnan().tolist() == [True, False], loss
        assert leaf.grad.isnan().tolist() == [True, False], loss


def check_the_same_bits_every_time() -> None:
    z, y = (torch.randn(1 << 23, device="cuda") * 3), torch.ones(1 << 23, dtype=torch.uint8, device="cuda")
    first = as_module(TBL())(z, y)
    assert all(torch.equal(first, as_module(TBL())(z, y)) for _ in range(3))


def _mine(z: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.softplus((1 - 2 * y) * z)


def check_loss_table() -> None:
    """Against the vectorised form in float64 on the CPU; shared and own labels and weights, a user's loss."""
    for losses, outputs in (
        (BINARY_LOSSES, 1),
        ([*BINARY_LOSSES[::7], from_callable(_mine)], 1),
        (CLASS_LOSSES, 4),
    ):
        replicas, n = len(losses), 129
        shape = (replicas, n) if outputs == 1 else (replicas, n, outputs)
        z = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        own = torch.randint(max(outputs, 2), (replicas, n), generator=torch.Generator().manual_seed(2))
        weights = torch.rand(replicas, max(outputs, 2), generator=torch.Generator().manual_seed(3)) + 0.5
        up = torch.rand(replicas, generator=torch.Generator().manual_seed(4)) + 0.5
        table = LossTable(losses, outputs=outputs)
        rows = torch.rand(replicas, n, generator=torch.Generator().manual_seed(5)) * 3
        one = own[0].to(torch.uint8)
        for y, w, v in ((own, weights, None), (one, None, None), (own, weights, rows), (one, None, rows[0])):
            leaf = z.double().requires_grad_()
            expected = table.cpu()(leaf, y, *(None if each is None else each.double() for each in (w, v)))
            (expected * up).sum().backward()
            here = z.cuda().requires_grad_()
            got = table.cuda()(here, y.cuda(), *(None if each is None else each.cuda() for each in (w, v)))
            (got * up.cuda()).sum().backward()
            close(got.detach(), expected.detach())
            if outputs == 1:
                close(here.grad, leaf.grad)
            else:
                near_class_gradient(here.grad.flatten(0, 1), leaf.grad.flatten(0, 1), "squared and others")


def check_loss_table_in_a_graph() -> None:
    """Forward and backward captured once and replayed on other scores, labels and weights."""
    for losses, outputs, dtype in (
        (BINARY_LOSSES, 1, torch.float32),
        (BINARY_LOSSES, 1, torch.float64),
        (CLASS_LOSSES, 4, torch.float32),
    ):
        shape = (len(losses), 128) if outputs == 1 else (len(losses), 128, outputs)
        table = LossTable(losses, outputs=outputs).cuda()
        z = torch.zeros(shape, device="cuda", dtype=dtype, requires_grad=True)
        y = torch.zeros(len(losses), 128, dtype=torch.int64, device="cuda")
        w = torch.ones(len(losses), max(outputs, 2), device="cuda")
        v = torch.ones(len(losses), 128, device="cuda")
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                (gradient,) = torch.autograd.grad(table(z, y, w, v).sum(), z)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            values = table(z, y, w, v)
            (gradient,) = torch.autograd.grad(values.sum(), z)
        with torch.no_grad():
            z.copy_(torch.randn(shape, device="cuda") * 3)
            y.copy_(torch.randint(max(outputs, 2), y.shape, device="cuda"))
            w.copy_(torch.rand(w.shape, device="cuda"))
            v.copy_(torch.rand(v.shape, device="cuda"))
        graph.replay()
        leaf = z.detach().clone().requires_grad_()
        expected = table(leaf, y, w, v)
        expected.sum().backward()
        assert torch.equal(values, expected)
        assert torch.equal(gradient, leaf.grad)


def check_a_broken_replica_stays_alone() -> None:
    table = LossTable(["tbl", "tbl", "focal", "focal"]).cuda()
    z = torch.randn(4, 64, device="cuda")
    y = labels(64).cuda()
    whole = z.clone().requires_grad_()
    table(whole, y).sum().backward()
    z[0], z[3, 5] = float("nan"), float("inf")
    broken = z.clone().requires_grad_()
    values = table(broken, y)
    values.sum().backward()
    assert values.isnan().tolist() == [True, False, False, False]
    assert torch.equal(broken.grad[1:3], whole.grad[1:3])
