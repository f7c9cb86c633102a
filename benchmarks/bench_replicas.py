"""Training K residual nets: one alone, eight processes side by side (MPS), and K as one stack.

Milliseconds per model and step with everything in it: augmentation, forward, loss, backward, optimiser; batch
128, bfloat16, deterministic, as a CUDA graph. "Layers" are PyTorch's convolutions (grouped where K > 1),
"kernels" our own. Needs a GPU, PyTorch and NumPy:

    PYTHONPATH=src python benchmarks/bench_replicas.py [--quick]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from raresight.nn import Recipe, Replicas
from raresight.nn.batches import ImageRows
from raresight.nn.nets import resnet as resnet_module
from raresight.nn.nets import resnet_cifar
from raresight.nn.step import TrainingStep

HERE = Path(__file__).resolve()
LOSSES = ("crossentropy", "tbl(alpha=0.8,C=0.5)", "focal(gamma=2)", "poly(epsilon=1)", "alpha(alpha=0.8)")


def milliseconds(depth: int, replicas: int, *, kernels: bool, seconds: float = 1.5) -> float:
    """Per model and step, in training on random images with labels at 1 %."""
    kept = resnet_module.can_run
    if not kernels:
        resnet_module.can_run = lambda x, channels: False
    try:
        random = np.random.default_rng(0)
        pixels = random.integers(0, 256, (20_000, 3, 32, 32), dtype=np.uint8)
        labels = (np.arange(20_000) % 100 == 0).astype(np.uint8)
        rows = ImageRows(pixels, labels, mean=(0.5,) * 3, std=(0.25,) * 3).to("cuda", torch.float32)
        losses = [LOSSES[k % len(LOSSES)] for k in range(replicas)]
        stack = Replicas(partial(resnet_cifar, depth), losses).to("cuda", torch.float32)
        step = TrainingStep(stack, rows, Recipe.images(precision="bf16", clip=10.0), (19_800, 200))
        torch.backends.cudnn.deterministic = True
        step.run_epoch(0)
        torch.cuda.synchronize()
        steps, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            step.run_epoch(1)
            torch.cuda.synchronize()
            steps += step.steps
        return (time.perf_counter() - begun) / steps / replicas * 1000
    finally:
        resnet_module.can_run = kept


def side_by_side(depth: int, processes: int) -> float | None:
    """Per model and step of so many processes with one net each under MPS; None where MPS cannot run."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        environment = {**os.environ, **places}
        for place in places.values():
            Path(place).mkdir()
        if subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=False).returncode:
            return None
        try:
            command = [sys.executable, str(HERE), "--one", str(depth)]
            runs = [
                subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
                for _ in range(processes)
            ]
            found = [float(run.communicate()[0].split()[-1]) for run in runs]
        finally:
            subprocess.run(
                ["nvidia-cuda-mps-control"], input="quit\n", text=True, env=environment, check=False
            )
    return float(np.mean(found)) / processes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="ResNet-32 only")
    parser.add_argument("--one", type=int, help="one net of this depth by layers; used for MPS")
    chosen = parser.parse_args()
    if chosen.one:
        print(milliseconds(chosen.one, 1, kernels=False, seconds=10.0))
        return
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; ms per model and step, batch 128, bf16"
    )
    print(f"{'':34s}" + "".join(f"{f'ResNet-{depth}':>12s}" for depth in (32, 44, 56)))
    depths = (32,) if chosen.quick else (32, 44, 56)
    rows = [
        ("alone, layers", 1, False),
        ("alone, kernels", 1, True),
        ("stack of 16, layers (grouped)", 16, False),
        ("stack of 8, kernels", 8, True),
        ("stack of 16, kernels", 16, True),
        ("stack of 32, kernels", 32, True),
    ]
    for title, replicas, kernels in rows:
        times = [milliseconds(depth, replicas, kernels=kernels) for depth in depths]
        print(f"{title:34s}" + "".join(f"{ms:12.3f}" for ms in times), flush=True)
    shared = side_by_side(32, 8)
    print(
        f"{'8 processes under MPS, layers':34s}" + (f"{shared:12.3f}" if shared else "  MPS cannot run here")
    )


if __name__ == "__main__":
    main()
