"""The losses of K replicas, computed together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..losses import Loss, parse
from ..losses._inputs import locate
from ..losses._torch_ops import TorchOps
from ._loss_stack import StackLosses
from .functional import can_look, loss_with_logits
from .loss_parameters import Encoded, Kind, encode, table

__all__ = ["LossTable"]

_WHOLE_NUMBERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)


class LossTable(torch.nn.Module):
    """The losses of K replicas, their parameters as tensors (buffers), one row a replica.

    The replicas are grouped by the kind of their loss (see `loss_parameters`); each group is computed at
    once, on CUDA by one Triton kernel, elsewhere and in float64 by PyTorch's operations. A loss without a
    row of numbers (a user's own function) is computed on its own. Nothing waits for the device, so that
    a training step can be captured in a CUDA graph after it ran once.

    The parameters move with `.to(device)`; they keep float64 whatever the type of the scores and are no
    part of the state dict.

    >>> losses = LossTable(["tbl(alpha=0.8,C=0.5)", "focal(gamma=2.0)"])
    >>> losses(torch.zeros(2, 3), torch.tensor([0, 1, 1])).round(decimals=4).tolist()
    [0.5893999934196472, 0.17329999804496765]
    """

    _back: Tensor
    _places_alone: Tensor

    def __init__(self, losses: Sequence[Loss | str], *, outputs: int = 1) -> None:
        super().__init__()
        self.losses = tuple(parse(loss) if isinstance(loss, str) else loss for loss in losses)
        self.outputs = outputs
        if not self.losses:
            raise ValueError("a loss table needs at least one loss, one for each replica")
        if outputs < 1:
            raise ValueError(f"outputs must be 1 (a binary score) or the number of classes, got {outputs}")
        for place, loss in enumerate(self.losses):
            _check_fit(loss, place, outputs)
        encoded = [encode(loss, outputs) for loss in self.losses]
        members = _by_kind(encoded)
        self._kinds = tuple(members)
        self._plain = tuple(kind for kind in members if all(_is_plain(encoded[i]) for i in members[kind]))
        self._alone = tuple(place for place, loss in enumerate(encoded) if loss is None)
        for kind, places in members.items():
            rows = [row for row in (encoded[place] for place in places) if row is not None]
            self.register_buffer(f"_table_{kind.name}", table(rows), persistent=False)
            self.register_buffer(f"_rows_{kind.name}", torch.tensor(places), persistent=False)
        # From the order of the groups, and then of the losses alone, back to that of the replicas.
        order = [*(place for places in members.values() for place in places), *self._alone]
        self.register_buffer("_back", torch.argsort(torch.tensor(order)), persistent=False)
        alone = torch.tensor(self._alone, dtype=torch.int64)
        self.register_buffer("_places_alone", alone, persistent=False)

    def forward(
        self,
        scores: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
        row_weights: Tensor | None = None,
    ) -> Tensor:
        """The mean loss of each replica over the batch, (K,), in float32 or the scores' float64.

        scores (K, N), or (K, N, classes) for several outputs; labels (K, N) or (N,), whole numbers: 0/1
        or class numbers. With weights (K, 2) or (K, classes), one a label, it is the weighted mean

            sum_i weights[k, y_i] loss_i / sum_i weights[k, y_i],

        as that of torch's CrossEntropyLoss. `row_weights` v, (K, N) or (N,), multiply the losses and not the
        sum that they are divided by:

            sum_i v_i weights[k, y_i] loss_i / sum_i weights[k, y_i],   without weights  sum_i v_i loss_i / N,

        so that a row counts the same in whichever batch it is. A label out of range is an error on the CPU
        and gives NaN for its replica elsewhere. What a replica gets depends on its own scores alone.
        """
        self._check(scores, labels, weights, row_weights)
        sums = self._weighted_sums(scores, labels, weights, row_weights)
        if weights is None:
            return sums
        mean: Tensor = TorchOps.finite(sums / _mean_weight(labels, weights).to(sums.dtype))
        return mean

    def _weighted_sums(
        self, scores: Tensor, labels: Tensor, weights: Tensor | None, row_weights: Tensor | None
    ) -> Tensor:
        """The mean over the batch of row_weights * weights[k, y] * loss_k, (K,)."""
        alone = [self._one(place, scores, labels, weights, row_weights) for place in self._alone]
        groups = self._groups()
        if not groups:
            return torch.cat(alone)
        result: Tensor = StackLosses.apply(  # type: ignore[no-untyped-call]
            scores, labels, weights, row_weights, self._back, len(alone), *groups
        )
        return result.index_copy(0, self._places_alone, torch.cat(alone)) if alone else result

    def start(self, priors: float | Sequence[float]) -> Tensor:
        """The constant scores (K, outputs) that minimise each loss where the classes have these priors.

        `priors` is P(y=1) for a binary score, or one prior a class. In float64.

        >>> LossTable(["crossentropy", "alpha(0.5)"]).start(0.01).flatten().round(decimals=3).tolist()
        [-4.595, -2.298]
        """
        if self.outputs == 1:
            if np.ndim(priors) != 0:
                raise ValueError(f"a binary score has one prior, P(y=1), got {priors!r}")
            prior = float(priors)  # type: ignore[arg-type]
            if not 0 < prior < 1:
                raise ValueError(f"the prior must lie strictly between 0 and 1, got {prior}")
            # As a tensor: some links need SciPy for NumPy's numbers.
            odds = torch.tensor([math.log(prior) - math.log1p(-prior)], dtype=torch.float64)
            return torch.stack([loss.score(odds) for loss in self.losses])
        if np.shape(priors) != (self.outputs,):
            raise ValueError(f"{self.outputs} class priors are needed, one a class, got {priors!r}")
        return torch.stack([torch.from_numpy(loss.class_scores(priors)) for loss in self.losses])

    def extra_repr(self) -> str:
        return f"{len(self.losses)} losses, outputs={self.outputs}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LossTable:
        """Move with a module, but stay in float64: `.half()` is meant for scores, not for parameters."""
        exact = {name: buffer for name, buffer in self.named_buffers() if buffer.is_floating_point()}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in exact.items():
            after = getattr(self, name)
            if after.dtype != before.dtype:
                setattr(self, name, before.to(after.device))
        return self

    def _groups(self) -> list[Any]:
        """What `StackLosses` takes: kind, plain or not, table and replicas of each group."""
        groups: list[Any] = []
        for kind in self._kinds:
            numbers, rows = (getattr(self, f"_{name}_{kind.name}") for name in ("table", "rows"))
            groups += [kind, kind in self._plain, numbers, rows]
        return groups

    def _one(
        self,
        place: int,
        scores: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        row_weights: Tensor | None,
    ) -> Tensor:
        y = labels[place] if labels.ndim == 2 else labels
        numbers = y.to(torch.int64)
        loss = self.losses[place]
        each = loss_with_logits(
            scores[place], numbers, loss, reduction="none", soft_targets=False, multiclass=self.outputs > 1
        )
        if weights is not None:
            each = each * weights[place].to(each.dtype)[numbers]
        if row_weights is not None:
            own = row_weights[place] if row_weights.ndim == 2 else row_weights
            each = each * own.to(each.dtype)
        mean: Tensor = TorchOps.finite((each * (1 / each.shape[0])).sum(0, keepdim=True))
        return mean

    def _check(
        self, scores: Tensor, labels: Tensor, weights: Tensor | None, row_weights: Tensor | None
    ) -> None:
        replicas, outputs = len(self.losses), self.outputs
        expected = f"({replicas}, N)" if outputs == 1 else f"({replicas}, N, {outputs})"
        axes = 2 if outputs == 1 else 3
        fits = (
            scores.ndim == axes and scores.shape[0] == replicas and (axes == 2 or scores.shape[2] == outputs)
        )
        if not fits:
            raise ValueError(f"scores must have shape {expected}, got {tuple(scores.shape)}")
        if not scores.is_floating_point():
            raise TypeError(f"scores must be floating-point numbers, got {scores.dtype}")
        n = scores.shape[1]
        if n == 0:
            raise ValueError("the mean loss of an empty batch is undefined: scores have no rows")
        if tuple(labels.shape) not in ((n,), (replicas, n)):
            raise ValueError(f"labels must have shape ({n},) or ({replicas}, {n}), got {tuple(labels.shape)}")
        if labels.dtype not in _WHOLE_NUMBERS:
            raise TypeError(f"labels must be whole numbers (uint8, int64, ...), got {labels.dtype}")
        if weights is not None and tuple(weights.shape) != (replicas, max(outputs, 2)):
            raise ValueError(
                f"weights must have shape ({replicas}, {max(outputs, 2)}), one a replica and label, "
                f"got {tuple(weights.shape)}"
            )
        if row_weights is not None and tuple(row_weights.shape) not in ((n,), (replicas, n)):
            raise ValueError(
                f"row_weights must have shape ({n},) or ({replicas}, {n}), got {tuple(row_weights.shape)}"
            )
        if can_look(labels) and labels.dtype != torch.bool:
            wrong = (labels < 0) | (labels.long() >= max(outputs, 2))
            if wrong.any():
                raise ValueError(
                    f"labels must lie in 0..{max(outputs, 2) - 1}: {locate(wrong, labels, 'labels')}"
                )


def _check_fit(loss: Loss, place: int, outputs: int) -> None:
    if not isinstance(loss, Loss):
        raise TypeError(
            f"losses[{place}] must be a loss of raresight.losses or its text, got {type(loss).__name__}"
        )
    if outputs == 1 and not loss.takes_score:
        raise ValueError(
            f"losses[{place}] is {loss}, which is for {loss.n_classes} class logits: pass "
            f"outputs={loss.n_classes}"
        )
    if outputs > 1 and loss.n_classes not in (None, outputs):
        expected = "a binary score" if loss.n_classes == 1 else f"{loss.n_classes} class logits"
        raise ValueError(f"losses[{place}] is {loss}, which is for {expected}, not for {outputs} outputs")


def _mean_weight(labels: Tensor, weights: Tensor) -> Tensor:
    """The mean weight of the rows of each replica, (K,); labels out of range count for the nearest."""
    own = labels.to(torch.int64).clamp(0, weights.shape[1] - 1)
    return weights.gather(1, own.expand(len(weights), own.shape[-1])).mean(1)


def _is_plain(encoded: Encoded | None) -> bool:
    return encoded is not None and encoded.is_plain


def _by_kind(encoded: Sequence[Encoded | None]) -> dict[Kind, list[int]]:
    """The places of the losses of each kind, the kinds in order."""
    kinds = sorted({loss.kind for loss in encoded if loss is not None})
    return {
        kind: [place for place, loss in enumerate(encoded) if loss is not None and loss.kind == kind]
        for kind in kinds
    }
