"""The nets of a fitted classifier: plain arrays of weights, built into nets when they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..losses import Loss
from ..nn import Replicas
from .nets import NetPlan
from .scoring import ensemble_score, score_rows

__all__ = ["TrainedNets"]


@dataclass(eq=False)
class TrainedNets:
    """Nets of one architecture and one loss with different seeds, which predict together.

    Scores are computed in float64 from the float32 weights that training left, and then rounded to float32:
    so the score of a row does not depend on the rows beside it, on threads or on the device, as the last
    digits of sums do.
    """

    plan: NetPlan
    loss: Loss
    seeds: tuple[int, ...]
    weights: Mapping[str, NDArray[Any]]
    _built: Replicas | None = field(default=None, repr=False)

    @classmethod
    def of(cls, plan: NetPlan, replicas: Replicas, places: list[int]) -> TrainedNets:
        """Those of a trained stack at some places, which have the same loss."""
        state = replicas.net.state_dict()
        weights = {name: stack[places].detach().cpu().numpy().copy() for name, stack in state.items()}
        return cls(plan, replicas.losses[places[0]], tuple(replicas.seeds[k] for k in places), weights)

    def scores(self, inputs: NDArray[np.float32], device: str) -> NDArray[np.float32]:
        """Raw scores of coded rows: (N,), or (N, classes)."""
        each = torch.from_numpy(score_rows(self.replicas(device), torch.from_numpy(inputs)))
        return np.asarray(ensemble_score(self.loss, each).float().numpy())

    def replicas(self, device: str) -> Replicas:
        """The nets on a device."""
        if self._built is None:
            built = Replicas(self.plan.build, [self.loss] * len(self.seeds), self.seeds)
            built.net.load_state_dict({name: torch.from_numpy(w) for name, w in self.weights.items()})
            self._built = built
        return self._built.to(device, torch.float64)

    def slopes(self, inputs: NDArray[np.float32], device: str) -> NDArray[np.float64]:
        """Mean |dz/dx| over the nets, and over the outputs if there are several: (N, features)."""
        replicas = self.replicas(device)
        replicas.net.eval()
        x = torch.from_numpy(inputs).to(replicas.device, replicas.dtype).requires_grad_()
        scores = replicas.net(x)
        outputs = scores.sum((0, 1)) if scores.dim() == 3 else scores.sum()[None]
        found = [torch.autograd.grad(one, x, retain_graph=True)[0].abs() for one in outputs]
        return np.asarray(torch.stack(found).mean(0).cpu().numpy())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_built": None}
