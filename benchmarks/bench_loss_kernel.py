"""The fused loss kernel on a GPU: milliseconds of forward + backward, and the error against float64.

2^27 scores, uint8 labels, one row in a hundred positive, mean loss. Beside ours (the modules as they are): a
copy of the same bytes, PyTorch's own binary cross entropy, and the reference formulas of `raresight.losses`
in PyTorch, eager and compiled. Medians; needs PyTorch, Triton and NumPy alone and writes nothing.

    python benchmarks/bench_loss_kernel.py [--log2 27] [--dtypes float32 bfloat16] [--no-compile]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
import triton.testing

from raresight.losses import TBL, Alpha, CrossEntropy, Erf, Focal, Loss, Poly, Squared
from raresight.losses._torch_ops import TorchOps
from raresight.nn import as_module

LOSSES: tuple[Loss, ...] = (
    TBL(0.8, 0.5),
    CrossEntropy(),
    Squared(),
    Erf(),
    Focal(2.0),
    Poly(1.0),
    Poly(-0.95),
    Alpha(0.5),
    Alpha(0.3),
)


def milliseconds(work: Callable[[], object]) -> float:
    return float(triton.testing.do_bench(work, return_mode="median"))


def reference(loss: Loss, z: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and gradient by PyTorch's operations, as they ran before there was a kernel."""
    value, slope = loss._labelled(TorchOps, z.float(), y.float(), 1)
    share = 1 / z.numel()
    return (value * share).sum(), (slope * share).to(z.dtype)


def training_step(
    module: Callable[..., torch.Tensor], z: torch.Tensor, y: torch.Tensor
) -> Callable[[], None]:
    leaf = z.detach().requires_grad_()

    def step() -> None:
        leaf.grad = None
        module(leaf, y).backward()

    return step


def errors(loss: Loss, dtype: torch.dtype) -> tuple[float, float]:
    """Relative error of the mean, and the largest of a gradient above 1e-30, against float64 on the CPU."""
    generator = torch.Generator().manual_seed(1)
    z = (torch.randn(1_000_003, generator=generator) * 6).to(dtype)
    y = (torch.rand(z.shape, generator=generator) < 0.3).to(torch.uint8)
    leaf = z.cuda().requires_grad_()
    total = as_module(loss, reduction="sum")(leaf, y.cuda())
    total.backward()
    value, slope = loss.derivatives(z.double(), y, order=1)
    assert leaf.grad is not None
    error = ((leaf.grad.cpu().double() - slope) / slope).abs()[slope.abs() > 1e-30]
    return abs(total.item() / value.sum().item() - 1), error.max().item()


def copy_of(*tensors: torch.Tensor) -> Callable[[], None]:
    pairs = [(torch.empty_like(tensor), tensor) for tensor in tensors]

    def copy() -> None:
        for target, source in pairs:
            target.copy_(source)

    return copy


def measure(dtype: torch.dtype, n: int, compiled: bool) -> None:
    z = (torch.randn(n, device="cuda") * 3).to(dtype)
    y = (torch.rand(n, device="cuda") < 0.01).to(torch.uint8)
    print(f"\n{n} scores, {dtype}")
    print(f"  copy of scores and labels (read and written)      {milliseconds(copy_of(z, y)):7.3f} ms")
    bce = milliseconds(training_step(torch.nn.BCEWithLogitsLoss(), z, y.to(dtype)))
    print(f"  torch BCEWithLogitsLoss, eager, labels as scores  {bce:7.3f} ms")
    columns = ("loss", "ours", "eager", "compiled", "mean error", "gradient error")
    print("  {:24s} {:>9s} {:>9s} {:>9s} {:>11s} {:>15s}".format(*columns))
    for loss in LOSSES:
        ours = milliseconds(training_step(as_module(loss), z, y))
        eager = milliseconds(lambda loss=loss: reference(loss, z, y))
        fused = float("nan")
        if compiled:
            torch.compiler.reset()
            fused = milliseconds(training_step(torch.compile(as_module(loss)), z, y))
        mean_error, slope_error = errors(loss, dtype)
        print(
            f"  {loss!s:24s} {ours:9.3f} {eager:9.3f} {fused:9.3f} {mean_error:11.1e} {slope_error:15.1e}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log2", type=int, default=27, help="logarithm of the number of scores")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--no-compile", action="store_true", help="leave the compiled modules out")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    for name in options.dtypes:
        measure(getattr(torch, name), 1 << options.log2, not options.no_compile)


if __name__ == "__main__":
    main()
