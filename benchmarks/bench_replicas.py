"""Training K residual nets: one alone, eight processes side by side (MPS), and K as one stack.

Milliseconds per model and step with everything in it: augmentation, forward, loss, backward, clipping,
optimiser; batch 128, bfloat16, as a CUDA graph. "Plain PyTorch" is the usual net of nn.Conv2d and
nn.BatchNorm2d in channels-last layout with fused SGD; "layers" are our stack by PyTorch's (grouped)
convolutions, "Triton's kernels" by ours layer by layer, "fused kernels" by those in CUDA C++ that nets on
images of 32 x 32 pixels use where they can; deterministic. Needs a GPU, PyTorch and NumPy:

    PYTHONPATH=src:. python benchmarks/bench_replicas.py [--quick] [--out replicas.csv]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from machine import describe, write_rows
from plain_resnet import training_step
from raresight.nn import Replicas
from raresight.nn.step import TrainingStep, record_graph
from reproduction.experiments.stack import image_recipe
from reproduction.images.rows import ImageRows
from reproduction.resnet import resnet as resnet_module
from reproduction.resnet import resnet_cifar
from reproduction.resnet.fused_pass import FusedPass

LOSSES = ("crossentropy", "tbl(alpha=0.8,C=0.5)", "focal(gamma=2)", "poly(epsilon=1)", "alpha(alpha=0.8)")


def random_rows() -> ImageRows:
    """Random images on the GPU, 1 % of them positive."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (20_000, 3, 32, 32), dtype=np.uint8)
    labels = (np.arange(20_000) % 100 == 0).astype(np.uint8)
    return ImageRows(pixels, labels, mean=(0.5,) * 3, std=(0.25,) * 3).to("cuda", torch.float32)


def timed(work: Callable[[], object], seconds: float = 1.5) -> float:
    """Milliseconds of one call, over calls of so many seconds after one to warm up."""
    work()
    torch.cuda.synchronize()
    calls, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        work()
        torch.cuda.synchronize()
        calls += 1
    return (time.perf_counter() - begun) / calls * 1000


def plain(depth: int, seconds: float = 1.5) -> float:
    """One net in plain PyTorch."""
    step = training_step(depth, random_rows())
    # It has no state that must be put back: all that is asked of it is its time.
    replay = record_graph(step, [], torch.device("cuda"))

    def many() -> None:
        for _ in range(100):
            replay()

    return timed(many, seconds) / 100


def stacked(depth: int, replicas: int, *, way: str) -> float:
    """A stack, in training by "layers", "triton" or "fused" kernels."""
    kept, kept_fused = resnet_module.can_run, FusedPass.takes
    if way == "layers":
        resnet_module.can_run = lambda x, channels, training: False
    if way == "triton":
        FusedPass.takes = staticmethod(lambda *given: False)
    torch.backends.cudnn.deterministic = True
    try:
        losses = [LOSSES[k % len(LOSSES)] for k in range(replicas)]
        stack = Replicas(partial(resnet_cifar, depth), losses).to("cuda", torch.float32)
        step = TrainingStep(stack, random_rows(), image_recipe(precision="bf16", clip=10.0), (19_800, 200))
        step.run_epoch(0)
        return timed(lambda: step.run_epoch(1)) / step.steps / replicas
    finally:
        resnet_module.can_run, FusedPass.takes = kept, staticmethod(kept_fused)
        torch.backends.cudnn.deterministic = False


def side_by_side(depth: int, processes: int) -> float | None:
    """So many processes with one plain net each under MPS; None where MPS cannot run."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        environment = {**os.environ, **places}
        for place in places.values():
            Path(place).mkdir()
        if subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=False).returncode:
            return None
        command = [sys.executable, str(Path(__file__)), "--one", str(depth)]
        runs = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
            for _ in range(processes)
        ]
        try:
            found = [float(run.communicate(timeout=90)[0].split()[-1]) for run in runs]
        finally:
            for run in runs:
                run.kill()
            subprocess.run(
                ["nvidia-cuda-mps-control"], input="quit\n", text=True, env=environment, check=False
            )
    return float(np.mean(found)) / processes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="ResNet-32 only")
    parser.add_argument("--out", type=Path, help="where to write the figures")
    parser.add_argument("--one", type=int, help="one plain net of this depth; used for MPS")
    chosen = parser.parse_args()
    if chosen.one:
        # Long enough that all processes run side by side for most of it.
        print(plain(chosen.one, seconds=12.0))
        return
    works: list[tuple[str, Callable[[int], float | None]]] = [
        ("alone, plain PyTorch", plain),
        ("8 processes (MPS), plain PyTorch", lambda depth: side_by_side(depth, 8)),
        ("stack of 16, layers", lambda depth: stacked(depth, 16, way="layers")),
        *(
            (
                f"{'alone' if count == 1 else f'stack of {count}'}, {title}",
                partial(stacked, replicas=count, way=way),
            )
            for way, title in (("triton", "Triton's kernels"), ("fused", "fused kernels"))
            for count in (1, 8, 16, 32)
        ),
    ]
    gpu = torch.cuda.get_device_name()
    print(f"{gpu}, torch {torch.__version__}; ms per model and step, batch 128, bf16")
    rows = []
    for depth in (32,) if chosen.quick else (32, 44, 56):
        for title, work in works:
            if depth != 32 and "MPS" in title:
                continue
            ms = work(depth)
            print(f"ResNet-{depth}  {title:34s}" + (f"{ms:8.3f}" if ms else "  cannot run here"), flush=True)
            rows.append(
                {"net": f"ResNet-{depth}", "how": title, "ms": ms and round(ms, 4), "gpu": gpu, **describe()}
            )
    if chosen.out:
        write_rows(chosen.out, rows)


if __name__ == "__main__":
    main()
