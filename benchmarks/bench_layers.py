"""Layers of K replicas: grouped convolutions against batched products, and which one a layer takes.

Milliseconds of forward and backward of one layer (gradients of input and weights) and of whole nets, batch
128 (dense: 1,024 rows; nets on a CPU: 32); on a GPU as a CUDA graph with cuDNN held to deterministic
algorithms, as in training.

    PYTHONPATH=src:. python benchmarks/bench_layers.py [--out layers.csv]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from machine import describe, write_rows
from raresight.nn.nets import convolution as convolution_module
from raresight.nn.step import record_graph
from reproduction.resnet import ResNet, resnet_cifar
from reproduction.resnet.resnet import WAYS, way_of

# Channels in and out, pixels a side, stride: the layers of ResNets of width 16, 32 and 64, and a narrow one.
CONVOLUTIONS = (
    (4, 4, 32, 1),
    (16, 16, 32, 1),
    (16, 32, 32, 2),
    (32, 32, 16, 1),
    (64, 64, 8, 1),
    (64, 64, 16, 1),
    (64, 128, 16, 2),
    (128, 128, 8, 1),
    (128, 256, 16, 2),
    (256, 256, 8, 1),
)
# Rows, features in and out.
DENSE = ((1024, 32, 128), (1024, 128, 128), (1024, 512, 512))


def channels_last(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Tried and not used: single layers gain from it, but whole nets lose it again in their batch norms."""
    images = x.flatten(1, 2).contiguous(memory_format=torch.channels_last)
    out = F.conv2d(images, weight.flatten(0, 1), stride=stride, padding=1, groups=len(weight))
    return out.unflatten(1, (len(weight), -1))


WAYS["grouped, channels last"] = channels_last  # type: ignore[index]

DENSE_WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "product": lambda x, weight: torch.bmm(x, weight.mT),
    "grouped": lambda x, weight: F.conv1d(
        x.transpose(1, 2).reshape(1, -1, x.shape[1]), weight.flatten(0, 1)[..., None], groups=len(weight)
    ),
}


def timed(call: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor, seconds: float) -> float:
    """Milliseconds of one forward and backward of a layer."""
    with torch.no_grad():
        pull = torch.randn_like(call(x, weight))
    return repeated(
        lambda: torch.autograd.grad(call(x, weight), (x, weight), pull), x.device.type == "cuda", seconds
    )


def repeated(work: Callable[[], object], on_gpu: bool, seconds: float) -> float:
    """Milliseconds of one call, over so many seconds after one to warm up."""
    step = record_graph(lambda: (work(), None)[1], [], torch.device("cuda")) if on_gpu else work
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    step()
    wait()
    calls, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        for _ in range(4 if on_gpu else 1):
            step()
            calls += 1
        wait()
    return (time.perf_counter() - begun) / calls * 1000


def net_lines(device: torch.device, seconds: float) -> Iterator[dict[str, Any]]:
    """Whole nets with all layers by one way, and by what each layer takes.

    What a layer gains alone can be lost again in the batch norms between two of them.
    """
    on_gpu = device.type == "cuda"
    rule = convolution_module.way_of
    for precision in (torch.bfloat16, torch.float32) if on_gpu else (torch.float32,):
        for replicas, width in ((4, 32), (16, 32), (4, 64)) if on_gpu else ((4, 16),):
            net = resnet_cifar(20, replicas=replicas, width=width).to(device, precision).train()
            x = torch.randn((replicas, 128 if on_gpu else 32, 3, 32, 32), device=device, dtype=precision)
            weights = list(net.parameters())

            def work(net: ResNet = net, x: Tensor = x, weights: list[Any] = weights) -> None:
                torch.autograd.grad(net(x).float().sum(), weights)

            found = {}
            for way in (*WAYS, "rule"):
                convolution_module.way_of = rule if way == "rule" else lambda *about, way=way: way
                try:
                    found[way] = repeated(work, on_gpu, seconds)
                finally:
                    convolution_module.way_of = rule
            yield line(f"ResNet-20 of width {width}", precision, replicas, found, "rule")


def lines(device: torch.device, seconds: float) -> Iterator[dict[str, Any]]:
    """The time of every way of every layer, and the one that is taken."""
    on_gpu = device.type == "cuda"
    for precision in (torch.bfloat16, torch.float32) if on_gpu else (torch.float32,):
        for replicas in (1, 4, 16) if on_gpu else (1, 4):
            for channels, out_channels, side, stride in CONVOLUTIONS:
                x = random((128, replicas, channels, side, side), device, precision)
                weight = random((replicas, out_channels, channels, 3, 3), device, precision)
                found = {
                    way: timed(partial(call, stride=stride), x, weight, seconds) for way, call in WAYS.items()
                }
                layer = f"convolution {channels} to {out_channels}, {side} x {side}, stride {stride}"
                taken = way_of(device.type, precision, replicas, channels)
                yield line(layer, precision, replicas, found, taken)
            for rows, features, out_features in DENSE:
                x = random((replicas, rows, features), device, precision)
                weight = random((replicas, out_features, features), device, precision)
                found = {way: timed(call, x, weight, seconds) for way, call in DENSE_WAYS.items()}
                yield line(f"dense {features} to {out_features}", precision, replicas, found, "product")


def random(shape: tuple[int, ...], device: torch.device, precision: torch.dtype) -> Tensor:
    return torch.randn(shape, device=device, dtype=precision).requires_grad_()


def line(
    layer: str, precision: torch.dtype, replicas: int, found: dict[Any, float], taken: str
) -> dict[str, Any]:
    return {
        "layer": layer,
        "precision": str(precision).removeprefix("torch."),
        "replicas": replicas,
        **{f"{way} ms": round(found[way], 4) if way in found else "" for way in (*WAYS, "rule")},
        "taken": taken,
        "taken over fastest": round(found[taken] / min(found.values()), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="where to write the figures")
    parser.add_argument("--seconds", type=float, default=0.03, help="for each figure")
    chosen = parser.parse_args()
    on_gpu = torch.cuda.is_available()
    torch.backends.cudnn.deterministic = True
    where = {"device": torch.cuda.get_device_name() if on_gpu else "CPU", **describe()}
    print(", ".join(where.values()))
    rows, device = [], torch.device("cuda" if on_gpu else "cpu")
    for row in chain(net_lines(device, 10 * chosen.seconds), lines(device, chosen.seconds)):
        print("  ".join(f"{name} {value}" for name, value in row.items() if value != ""), flush=True)
        rows.append({**row, **where})
    if chosen.out:
        write_rows(chosen.out, rows)


if __name__ == "__main__":
    main()
