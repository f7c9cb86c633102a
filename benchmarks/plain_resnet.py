"""A residual net as one writes it in plain PyTorch, and its training step: the rival of one net alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from raresight.nn import as_module
from reproduction.images.rows import ImageRows


class PlainBlock(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(after)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(after)
        self.stride, self.padding = stride, (after - before) // 2

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(x)))
        inner = self.second_norm(self.second(inner))
        if self.stride > 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(x + inner)


class PlainResNet(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        widths = [16] * ((depth - 2) // 6) + [32] * ((depth - 2) // 6) + [64] * ((depth - 2) // 6)
        self.stem, self.stem_norm = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(
            *(
                PlainBlock(before, after, 2 if after > before else 1)
                for before, after in zip([16, *widths], widths)
            )
        )
        self.head = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.blocks(F.relu(self.stem_norm(self.stem(x)))).mean((2, 3))
        score: Tensor = self.head(features).squeeze(1)
        return score


def training_step(depth: int, rows: ImageRows, batch: int = 128) -> Callable[[], None]:
    """A step with everything in it, over `rows` on their device: channels last, bfloat16, fused SGD."""
    device = rows.labels.device
    net = PlainResNet(depth).to(device, memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(
        net.parameters(), lr=0.002, momentum=0.9, weight_decay=2.5e-4, fused=device.type == "cuda"
    )
    loss = as_module("tbl(alpha=0.8,C=0.5)")
    order = torch.randint(len(rows), (1, batch), device=device)
    moves = tuple(torch.randint(0, end, (1, batch), device=device) for end in (9, 9, 2))

    def step() -> None:
        x = rows.batch(order, moves)[0].contiguous(memory_format=torch.channels_last)
        labels = rows.labels.index_select(0, order[0])
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            scores = net(x)
        # The gradients stay where they are, as a CUDA graph needs it.
        optimiser.zero_grad(set_to_none=False)
        loss(scores.float(), labels).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimiser.step()
        # Another batch in the next step, without a host that draws it.
        order.add_(batch).remainder_(len(rows))

    return step
