"""Our torch losses against torch's own and a focal loss written with torch calls.

Forward and backward on the CPU, eager and compiled, all in one process: ten million float32 logits
for the binary losses, a million rows of ten for the class losses. Candidates take turns, so that a
slow moment of the machine meets all of them. Ratios are to BCEWithLogitsLoss (CrossEntropyLoss for
classes) in the same mode. Peak memory is counted above the inputs, from the allocator's own events.

    python benchmarks/bench_losses.py [--size 10000000] [--rounds 15] [--out benchmarks/results/losses.csv]
"""

from __future__ import annotations

import argparse
import csv
import gc
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from machine import describe
from raresight import nn

Tensor = torch.Tensor


@dataclass(frozen=True)
class Candidate:
    name: str
    mode: str
    targets: str
    step: Callable[[Tensor, Tensor], Tensor]
    is_reference: bool = False


def focal_with_torch_calls(z: Tensor, y: Tensor, gamma: float = 2.0) -> Tensor:
    """The usual way: probabilities, cross entropy, and a power of 1 - p_t."""
    p = torch.sigmoid(z)
    ce = F.binary_cross_entropy_with_logits(z, y, reduction="none")
    p_t = p * y + (1 - p) * (1 - y)
    return (ce * (1 - p_t) ** gamma).mean()


def candidates(classes: bool) -> list[Candidate]:
    hard = {} if classes else {"soft_targets": False}
    modules: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], str]] = {}
    if classes:
        modules["torch CrossEntropyLoss"] = (torch.nn.CrossEntropyLoss(), "int64")
    else:
        modules["torch BCEWithLogitsLoss"] = (torch.nn.BCEWithLogitsLoss(), "float32")
        modules["focal with torch calls"] = (focal_with_torch_calls, "float32")
    for module in (
        nn.CELoss,
        nn.TBLLoss,
        nn.AlphaLoss,
        nn.FocalLoss,
        nn.PolyLoss,
        nn.SquaredLoss,
        nn.ErfLoss,
    ):
        modules[f"raresight {module.__name__}"] = (module(**hard), "int64" if classes else "float32")
    if not classes:
        modules["raresight TBLLoss, soft targets allowed"] = (nn.TBLLoss(soft_targets=True), "float32")
        modules["raresight TBLLoss, default"] = (nn.TBLLoss(), "float32")
    found = []
    for mode in ("eager", "compiled"):
        for i, (name, (step, targets)) in enumerate(modules.items()):
            run = torch.compile(step, fullgraph=name.startswith("raresight")) if mode == "compiled" else step
            found.append(Candidate(name, mode, targets, run, is_reference=i == 0))
    return found


def measure(candidate: Candidate, z: Tensor, y: Tensor) -> float:
    z.grad = None
    start = time.perf_counter()
    candidate.step(z, y).backward()
    return time.perf_counter() - start


def peak_bytes(candidate: Candidate, z: Tensor, y: Tensor) -> int:
    """The most memory held at once during a step, above what was held before it."""
    z.grad = None
    gc.collect()
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        candidate.step(z, y).backward()
    held = peak = 0
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def run(classes: bool, size: int, rounds: int) -> list[dict[str, object]]:
    generator = torch.Generator().manual_seed(0)
    if classes:
        z = torch.randn(size // 10, 10, generator=generator) * 2
        y = torch.randint(10, (size // 10,), generator=generator)
    else:
        z = torch.randn(size, generator=generator) * 3
        y = (torch.rand(size, generator=generator) < 0.01).float()
    z.requires_grad_()
    everyone = candidates(classes)
    for candidate in everyone:
        for _ in range(2):
            measure(candidate, z, y)
    times: dict[Candidate, list[float]] = {candidate: [] for candidate in everyone}
    for _ in range(rounds):
        for candidate in everyone:
            times[candidate].append(measure(candidate, z, y))
    memory = {candidate: peak_bytes(candidate, z, y) for candidate in everyone}
    rows: list[dict[str, object]] = []
    for candidate in everyone:
        reference = next(c for c in everyone if c.is_reference and c.mode == candidate.mode)
        middle, base = statistics.median(times[candidate]), statistics.median(times[reference])
        rows.append(
            {
                "problem": "classes" if classes else "binary",
                "logits": z.numel(),
                "loss": candidate.name,
                "mode": candidate.mode,
                "targets": candidate.targets,
                "median_ms": round(1e3 * middle, 2),
                "best_ms": round(1e3 * min(times[candidate]), 2),
                "time_ratio": round(middle / base, 3),
                "peak_mb": round(memory[candidate] / 1e6, 1),
                "memory_ratio": round(memory[candidate] / memory[reference], 3),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "losses.csv")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)  # torch.compile's own
    torch._dynamo.config.recompile_limit = 64  # every module here shares one forward function
    machine = describe() | {"threads": str(torch.get_num_threads())}
    rows = []
    for classes in (False, True):
        rows += run(classes, arguments.size, arguments.rounds)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *machine], lineterminator="\n")
        writer.writeheader()
        writer.writerows(row | machine for row in rows)
    print(", ".join(f"{key} {value}" for key, value in machine.items()))
    for row in rows:
        time_part = f"{row['median_ms']:8} ms  x{row['time_ratio']:<6}"
        memory_part = f"{row['peak_mb']:8} MB  x{row['memory_ratio']}"
        print(f"{row['problem']:8} {row['mode']:9} {row['loss']:42} {time_part} {memory_part}")


if __name__ == "__main__":
    main()
