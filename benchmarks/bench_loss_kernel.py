"""The fused loss kernel on a GPU: milliseconds of forward + backward, and the error against float64.

2^27 scores, uint8 labels, one row in a hundred positive, mean loss. Beside ours (the modules as they are): a
copy of the same bytes, PyTorch's own binary cross entropy, and the reference formulas of `raresight.losses`
in PyTorch, eager and compiled. A time is that of a hundred steps one after the other (fewer where they are
slow), divided by their number, the median of five such rounds. "host" is how long Python takes to ask for a
step of ours: a GPU that is faster waits for it. Needs PyTorch, Triton and NumPy alone:

    python benchmarks/bench_loss_kernel.py [--log2 27] [--dtypes float32 bfloat16] [--compiled 1] [--out FILE]
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton

from machine import describe
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


ROUNDS, MOST_STEPS, ROUND_SECONDS = 5, 100, 0.5


def milliseconds(work: Callable[[], object]) -> tuple[float, float]:
    """Of a step: (as the clock on the wall has it, until the host has asked for it)."""
    for _ in range(3):
        begun = time.perf_counter()
        work()
        torch.cuda.synchronize()
    steps = max(3, min(MOST_STEPS, int(ROUND_SECONDS / (time.perf_counter() - begun))))
    whole, asked = [], []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(steps):
            work()
        asked.append(time.perf_counter() - begun)
        torch.cuda.synchronize()
        whole.append(time.perf_counter() - begun)
    return statistics.median(whole) / steps * 1000, statistics.median(asked) / steps * 1000


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


def measure(dtype: torch.dtype, n: int, compiled: int) -> list[dict[str, object]]:
    z = (torch.randn(n, device="cuda") * 3).to(dtype)
    y = (torch.rand(n, device="cuda") < 0.01).to(torch.uint8)
    few = 1 << 10
    print(f"\n{n} scores, {dtype}")
    copy = milliseconds(copy_of(z, y))[0]
    print(f"  copy of scores and labels (read and written)      {copy:7.3f} ms")
    bce = milliseconds(training_step(torch.nn.BCEWithLogitsLoss(), z, y.to(dtype)))[0]
    print(f"  torch BCEWithLogitsLoss, eager, labels as scores  {bce:7.3f} ms")
    columns = ("loss", "ours", "host", "eager", "compiled", "mean error", "gradient error")
    print("  {:24s} {:>9s} {:>9s} {:>9s} {:>9s} {:>11s} {:>15s}".format(*columns))
    rows: list[dict[str, object]] = [
        {"work": "copy of scores and labels", "ms": copy},
        {"work": "BCEWithLogitsLoss, eager", "ms": bce},
    ]
    for place, loss in enumerate(LOSSES):
        ours = milliseconds(training_step(as_module(loss), z, y))[0]
        # Few scores: with many, the queue of the GPU fills and the host waits for it.
        host = milliseconds(training_step(as_module(loss), z[:few], y[:few]))[1]
        eager = milliseconds(lambda loss=loss: reference(loss, z, y))[0]
        fused = float("nan")
        if place < compiled:
            torch.compiler.reset()
            fused = milliseconds(training_step(torch.compile(as_module(loss)), z, y))[0]
        mean_error, slope_error = errors(loss, dtype)
        print(
            f"  {loss!s:24s} {ours:9.3f} {host:9.3f} {eager:9.3f} {fused:9.3f} {mean_error:11.1e} "
            f"{slope_error:15.1e}",
            flush=True,
        )
        rows.append(
            {
                "work": str(loss),
                "ms": ours,
                "host_ms": host,
                "eager_ms": eager,
                "compiled_ms": fused if place < compiled else "",
                "mean_error": f"{mean_error:.1e}",
                "gradient_error": f"{slope_error:.1e}",
            }
        )
    return [
        {"dtype": str(dtype).removeprefix("torch."), **{k: _short(v) for k, v in row.items()}} for row in rows
    ]


def _short(value: object) -> object:
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log2", type=int, default=27, help="logarithm of the number of scores")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--compiled", type=int, default=len(LOSSES), help="compile only so many, the first")
    parser.add_argument("--out", type=Path, help="where to write the figures")
    options = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    rows = []
    for name in options.dtypes:
        rows += measure(getattr(torch, name), 1 << options.log2, options.compiled)
    if options.out:
        about = {"gpu": torch.cuda.get_device_name(), **describe()}
        fields = ("dtype", "work", "ms", "host_ms", "eager_ms", "compiled_ms", "mean_error", "gradient_error")
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*fields, *about], restval="")
            writer.writeheader()
            writer.writerows({**row, **about} for row in rows)


if __name__ == "__main__":
    main()
