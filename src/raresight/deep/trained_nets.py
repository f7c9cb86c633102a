"""The nets of a fitted classifier: plain arrays of weights, built into nets when they are first used."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..losses import Loss
from ..nn import Replicas
from .ensemble_scores import ensemble_score, score_rows
from .net_plans import NetPlan

__all__ = ["TrainedNets", "importances"]

# Rows of each class whose slopes give the importances.
_SLOPE_ROWS = 512


@dataclass(eq=False)
class TrainedNets:
    """Nets of one architecture and one loss with different seeds, which predict together.

    Scores are computed in float64 and then rounded to float32. In float32 the last digits would depend on the
    other rows of a block, on threads and on the device.

    Several threads may use the same nets. They are built once and are never in training mode. Only one thread
    at a time passes rows through them, because TabM changes its weights during the pass and `to` moves them.
    """

    plan: NetPlan
    loss: Loss
    seeds: tuple[int, ...]
    weights: Mapping[str, NDArray[Any]]
    _built: Replicas | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @classmethod
    def of(cls, plan: NetPlan, replicas: Replicas, places: list[int]) -> TrainedNets:
        """Take the nets at some places of a trained stack, which have the same loss."""
        state = replicas.net.state_dict()
        weights = {name: stack[places].detach().cpu().numpy().copy() for name, stack in state.items()}
        return cls(plan, replicas.losses[places[0]], tuple(replicas.seeds[k] for k in places), weights)

    def scores(self, inputs: NDArray[np.float32], device: str) -> NDArray[np.float32]:
        """Return raw scores of coded rows: (N,), or (N, classes)."""
        with self._lock:
            found = score_rows(self.replicas(device), torch.from_numpy(inputs))
        return np.asarray(ensemble_score(self.loss, torch.from_numpy(found)).float().numpy())

    def slopes(self, inputs: NDArray[np.float32], label: int, device: str) -> NDArray[np.float64]:
        """Return dm/dx of rows of one class, (N, features), with m the sum over the nets of

            z, a single score,   or   z_y - mean of z_j over the other classes j

        where y is the number of that class. It takes one backward pass for any number of classes.
        """
        with self._lock:
            replicas = self.replicas(device)
            x = torch.from_numpy(inputs).to(replicas.device, replicas.dtype).requires_grad_()
            scores = replicas.net(x)
            if scores.dim() == 3:
                own = scores[..., label]
                scores = own - (scores.sum(-1) - own) / (scores.shape[-1] - 1)
            slopes = torch.autograd.grad(scores.sum(), x)[0]
        return np.asarray(slopes.cpu().numpy())

    def replicas(self, device: str) -> Replicas:
        """Return the nets on a device, in evaluation mode. The caller holds the lock."""
        # Built once, since building takes longer than scoring a few rows; lazily, since copies need the
        # arrays alone.
        if self._built is None:
            built = Replicas(self.plan.build, [self.loss] * len(self.seeds), self.seeds)
            built.to("cpu", torch.float64)  # before the weights are loaded, which float32 would round
            built.net.load_state_dict({name: torch.from_numpy(w) for name, w in self.weights.items()})
            built.net.eval()
            self._built = built.to(device)
        asked, here = torch.device(device), self._built.device
        # "cuda" accepts any GPU, "cuda:1" only that one.
        if asked.type != here.type or asked.index not in (None, here.index):
            self._built.to(asked)
        return self._built

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the lock, which cannot be copied, and the built nets, which follow from `weights`."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_built", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _built=None, _lock=threading.Lock())


def importances(
    nets: TrainedNets,
    inputs: NDArray[np.float32],
    codes: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    scores: NDArray[Any],
    origins: NDArray[np.intp],
    columns: int,
    device: str,
) -> NDArray[np.float64]:
    """Return the importance of each column: how much scores would move if its inputs were at their means.

    To first order:

        share of a column ~ sum over classes y of sqrt(mean d_y^2),   d_y = sum_i (x_i - mean_i) dm_y/dx_i

    where i runs over the inputs of the column and means are weighted. For two classes m_y is the score, for
    more the logit of y minus the mean of the others. The mean under the root is over up to 512 rows of class
    y, spread over the order of their `scores`. Shares sum to one, or are all zero.
    """
    weights = np.ones(len(codes)) if weights is None else weights
    # Not a matrix product, which would copy all inputs to float64.
    means = np.einsum("i,ij->j", weights, inputs, dtype=np.float64) / weights.sum()
    found = np.zeros(columns)
    for k in range(codes.max() + 1):
        some = np.flatnonzero(codes == k)
        if len(some) > _SLOPE_ROWS:
            # Spread over the scores, so that the order of the rows does not matter.
            own = scores[some] if scores.ndim == 1 else scores[some, k]
            some = some[np.argsort(own, kind="stable")][:: -(-len(some) // _SLOPE_ROWS)]
        moves = (nets.slopes(inputs[some], k, device) * (inputs[some] - means))[:, : len(origins)]
        # The inputs of a column are summed before squaring. Only one of its categories is on in a row, and
        # many categories must not make a column more important.
        of_columns = np.zeros((columns, len(some)))
        np.add.at(of_columns, origins, moves.T)
        found += np.sqrt(np.square(of_columns) @ weights[some] / weights[some].sum())
    total = found.sum()
    return np.asarray(found / total) if total > 0 else found
