"""A plain net of dense layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...common.checks import check_whole
from .heads import make_head
from .layers import BatchNorm, Linear, ReplicaNet

__all__ = ["MLP"]


class MLP(ReplicaNet):
    """Dense layers with ReLU between them, and optional batch norm.

    Args:
        features: Number of values per row.
        hidden: Width of each hidden layer. Empty: a linear classifier.
        outputs: 1 for a binary score, or one logit per class.
        batch_norm: Whether each hidden layer is normalised before its ReLU.
        replicas: K, the number of nets.
        seeds: One per replica. Default: 0 to K-1.
        cosine: Whether the scores are cosines, as LDAM expects them: one bool, or one per replica.

    Example:
        >>> net = MLP(4, hidden=(16, 16), replicas=3)
        >>> net(torch.zeros(10, 4)).shape, net(torch.zeros(3, 10, 4)).shape
        (torch.Size([3, 10]), torch.Size([3, 10]))
    """

    def __init__(
        self,
        features: int,
        *,
        hidden: Sequence[int] = (256, 256),
        outputs: int = 1,
        batch_norm: bool = False,
        replicas: int = 1,
        seeds: Sequence[int] | None = None,
        cosine: Sequence[bool] | bool = False,
    ) -> None:
        super().__init__(replicas, seeds, outputs, cosine)
        if not isinstance(hidden, Iterable):
            raise TypeError(f"hidden must be a sequence of widths such as (256, 256), but is {hidden!r}")
        self.features = check_whole(features, "features")
        self.hidden = tuple(check_whole(width, "a width in hidden") for width in hidden)
        self.batch_norm = bool(batch_norm)
        self.layers, self.norms = nn.ModuleList(), nn.ModuleList()
        width = self.features
        for wider in self.hidden:
            # Batch norm subtracts any bias of the layer before it, and adds its own.
            self.layers.append(Linear(replicas, width, wider, bias=not batch_norm))
            self.norms.append(BatchNorm(replicas, wider) if batch_norm else nn.Identity())
            width = wider
        self.head = make_head(self.cosine, width, outputs, gain=1.0)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (N, features) or (K, N, features) to scores (K, N), or (K, N, outputs)."""
        x = self.checked_input(x, (self.features,))
        for layer, norm in zip(self.layers, self.norms):
            x = torch.relu(norm(layer(x)))
        return self.head_scores(x)

    def options(self) -> dict[str, Any]:
        return {"features": self.features, "hidden": self.hidden, "batch_norm": self.batch_norm}
