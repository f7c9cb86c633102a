"""A linear layer whose outputs are cosines, for LDAM."""

from __future__ import annotations

import torch
import torch.nn.functional as F

__all__ = ["NormedLinear"]


class NormedLinear(torch.nn.Module):
    """Logits that are cosines between features and class directions, as LDAM expects.

        f_k = x . w_k / (|x| |w_k|)   in [-1, 1]

    There is no bias: the margins of LDAM are in units of the cosine.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = torch.nn.Parameter(torch.empty(out_features, in_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw directions uniformly on the sphere."""
        with torch.no_grad():
            self.weight.copy_(F.normalize(torch.randn_like(self.weight), dim=1))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return F.linear(F.normalize(input, dim=-1), F.normalize(self.weight, dim=1))

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"
