"""TabNet: a net for tables that looks at few features in each of a few steps.

Arik and Pfister, "TabNet: attentive interpretable tabular learning" (AAAI 2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...common.checks import check_whole
from .heads import make_head
from .layers import BatchNorm, GhostBatchNorm, Linear, ReplicaNet

__all__ = ["TabNet", "TabNetDetails", "sparsemax"]

_FARTHEST = 5.0
"""Limit of normalised inputs, in standard deviations from their mean."""


class TabNetDetails(NamedTuple):
    """The scores of a batch, and the attention that led to them.

    Attributes:
        scores: (K, N), or (K, N, outputs).
        masks: (K, steps, N, features): the share of attention of each feature in each step; sums to 1.
        importance: (K, N, features): the masks weighted by what each step adds to the decision. Sums to 1
            over the features, or is all zero if no step adds anything.
        entropy: (K,): mean entropy of the masks. A small multiple of it added to a loss makes them sparser.
    """

    scores: Tensor
    masks: Tensor
    importance: Tensor
    entropy: Tensor


class TabNet(ReplicaNet):
    """Steps of attention over features, each followed by gated layers, whose outputs add up to a decision.

    Step i chooses features by a mask M_i = sparsemax(P_i h(a)), with a the attention of the step before. The
    factors P_i = prod (gamma - M_j) over the earlier steps j lower the weight of used features. Gated layers
    map M_i x to a decision and the next attention. The first `shared` of them have the same weights in all
    steps, with batch norms of their own. Unlike the paper's, normalised inputs are cut at 5 deviations.

    Args:
        features: Number of values per row.
        outputs: 1 for a binary score, or one logit per class.
        decision_width: Width of a step's decision, N_d of the paper.
        attention_width: Width of the attention, N_a of the paper.
        steps: Number of steps.
        gamma: 1 uses each feature in one step only; larger values allow it in later steps again.
        shared: Number of gated layers common to all steps.
        independent: Number of gated layers of each step alone.
        ghost_batch: Largest number of rows that are normalised together.
        momentum: Share of the new in the running statistics of the ghost batches.
        replicas: K, the number of nets.
        seeds: One per replica. Default: 0 to K-1.
        cosine: Whether the scores are cosines, as LDAM expects them: one bool, or one per replica.

    Example:
        >>> net = TabNet(6, replicas=2).eval()
        >>> details = net.details(torch.randn(5, 6))
        >>> details.scores.shape, details.masks.shape
        (torch.Size([2, 5]), torch.Size([2, 3, 5, 6]))
    """

    def __init__(
        self,
        features: int,
        *,
        outputs: int = 1,
        decision_width: int = 8,
        attention_width: int = 8,
        steps: int = 3,
        gamma: float = 1.3,
        shared: int = 2,
        independent: int = 2,
        ghost_batch: int = 128,
        momentum: float = 0.02,
        replicas: int = 1,
        seeds: Sequence[int] | None = None,
        cosine: Sequence[bool] | bool = False,
    ) -> None:
        super().__init__(replicas, seeds, outputs, cosine)
        features = check_whole(features, "features")
        decision_width = check_whole(decision_width, "decision_width")
        attention_width = check_whole(attention_width, "attention_width")
        steps, ghost_batch = check_whole(steps, "steps"), check_whole(ghost_batch, "ghost_batch", least=2)
        shared = check_whole(shared, "shared", least=0)
        independent = check_whole(independent, "independent", least=0)
        if shared + independent < 1:
            raise ValueError("TabNet needs at least 1 gated layer, but shared and independent are both 0")
        for name, number in (("gamma", gamma), ("momentum", momentum)):
            if isinstance(number, str | bool):
                raise TypeError(f"{name} must be a number, but is {number!r}")
        gamma, momentum = float(gamma), float(momentum)
        if not 1 <= gamma < math.inf or not 0 < momentum <= 1:
            raise ValueError(
                f"gamma must be at least 1 and momentum in (0, 1], but are {gamma} and {momentum}"
            )
        self.features, self.decision_width, self.attention_width = features, decision_width, attention_width
        self.steps, self.gamma, self.shared, self.independent = steps, gamma, shared, independent
        self.ghost_batch, self.momentum = ghost_batch, momentum
        width = decision_width + attention_width
        self.input_norm = BatchNorm(replicas, features, momentum=0.01)
        self.shared_layers = nn.ModuleList(
            Linear(replicas, width if position else features, 2 * width, bias=False, gain=1.0)
            for position in range(shared)
        )
        # One more than the steps: the first transformer only computes the attention of the first step.
        self.transformers = nn.ModuleList(
            _FeatureTransformer(replicas, features, width, shared, independent, ghost_batch, momentum)
            for _ in range(steps + 1)
        )
        self.attention = nn.ModuleList(
            Linear(replicas, attention_width, features, bias=False, gain=1.0) for _ in range(steps)
        )
        self.attention_norms = nn.ModuleList(
            GhostBatchNorm(replicas, features, ghost_batch=ghost_batch, momentum=momentum)
            for _ in range(steps)
        )
        self.head = make_head(self.cosine, decision_width, outputs, gain=1.0)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (N, features) or (K, N, features) to scores (K, N), or (K, N, outputs)."""
        return self.head_scores(torch.stack([decision for _, decision in self._run(x)]).sum(0))

    def details(self, x: Tensor) -> TabNetDetails:
        """Return the scores, the masks of each step, and the importance of each feature."""
        masks, decisions = (torch.stack(parts, dim=1) for parts in zip(*self._run(x)))
        weighted = (masks * decisions.sum(-1, keepdim=True)).sum(1)
        total = weighted.sum(-1, keepdim=True)
        return TabNetDetails(
            scores=self.head_scores(decisions.sum(1)),
            masks=masks,
            importance=weighted / torch.where(total > 0, total, 1),
            # The small number keeps the slope finite where a mask is zero.
            entropy=-(masks * torch.log(masks + 1e-12)).sum(-1).mean((1, 2)),
        )

    def _run(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield mask (K, N, features) and decision (K, N, decision_width) of each step."""
        x = self.checked_input(x, (self.features,))
        # The deviation of a column that is nearly constant in training is near zero. Without the limit a flag
        # seen once in training was a thousand deviations, and decided the score of its row alone.
        x = self.input_norm(x.expand(self.replicas, *x.shape[-2:])).clamp(-_FARTHEST, _FARTHEST)
        widths = (self.decision_width, self.attention_width)
        _, attention = self.transformers[0](x, self.shared_layers).split(widths, -1)
        allowance = torch.ones_like(x)
        for step in range(self.steps):
            wish = self.attention_norms[step](self.attention[step](attention))
            mask = sparsemax(wish * allowance)
            allowance = allowance * (self.gamma - mask)
            transformed = self.transformers[step + 1](mask * x, self.shared_layers)
            decision, attention = transformed.split(widths, -1)
            yield mask, torch.relu(decision)

    def options(self) -> dict[str, Any]:
        return {
            "features": self.features,
            "decision_width": self.decision_width,
            "attention_width": self.attention_width,
            "steps": self.steps,
            "gamma": self.gamma,
            "shared": self.shared,
            "independent": self.independent,
            "ghost_batch": self.ghost_batch,
            "momentum": self.momentum,
        }


class _FeatureTransformer(nn.Module):
    """Gated layers h <- (h + glu(norm(h W))) sqrt(1/2), the first without the sum.

    The shared ones come first. Their weights belong to the net and are arguments of `forward`; each
    transformer has its own norms for them.
    """

    def __init__(
        self,
        replicas: int,
        features: int,
        width: int,
        shared: int,
        independent: int,
        ghost_batch: int,
        momentum: float,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Linear(replicas, width if shared + position else features, 2 * width, bias=False, gain=1.0)
            for position in range(independent)
        )
        self.norms = nn.ModuleList(
            GhostBatchNorm(replicas, 2 * width, ghost_batch=ghost_batch, momentum=momentum)
            for _ in range(shared + independent)
        )

    def forward(self, x: Tensor, shared_layers: nn.ModuleList) -> Tensor:
        for position, (layer, norm) in enumerate(zip((*shared_layers, *self.layers), self.norms)):
            gated = F.glu(norm(layer(x)))
            x = (x + gated) * math.sqrt(0.5) if position else gated
        return x


def sparsemax(z: Tensor) -> Tensor:
    """Project onto the probability simplex, over the last axis; many entries of the result are zero.

        p = max(z - t, 0),  t such that sum p = 1

    See Martins and Astudillo, "From softmax to sparsemax" (2016).

    Example:
        >>> sparsemax(torch.tensor([1.0, 0.6, -2.0]))
        tensor([0.7000, 0.3000, 0.0000])
    """
    with torch.no_grad():
        # Relative to the largest entry, so that sums of large entries lose no digits.
        shifted = z - z.amax(-1, keepdim=True)
        ordered = shifted.sort(-1, descending=True).values
        rank = torch.arange(1, z.shape[-1] + 1, device=z.device, dtype=ordered.dtype)
        size = (1 + rank * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True)
        # With a NaN no entry fulfils the comparison. The clamp keeps the index valid, and the result is NaN.
        support = shifted >= ordered.gather(-1, size.clamp(min=1) - 1)
        count = support.sum(-1, keepdim=True)
    # For a given support the map is linear, so that the backward pass needs no sorting.
    relative = z - z.detach().amax(-1, keepdim=True)
    threshold = (torch.where(support, relative, 0).sum(-1, keepdim=True) - 1) / count
    return (relative - threshold).clamp(min=0)
