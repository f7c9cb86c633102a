"""The losses of K replicas, computed together.

Losses with the same phi are computed at once, with their numbers in a tensor of one row per replica. On CUDA
a Triton kernel does that if phi has one (see `raresight.nn.kernels`). Elsewhere, in float64 and in compiled
graphs, PyTorch's operations do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..losses import Loss, parse
from ..losses._inputs import locate
from ..losses._torch_ops import TorchOps
from ..losses.contract import NormalForm
from ..losses.margin import class_margin
from .criterion import can_look, loss_with_logits
from .kernels import MOST_CLASSES, SCORE_TYPES, body_of, has_triton, packed
from .start import start_scores

__all__ = ["LossTable"]

Groups = tuple[tuple[Any, Tensor, Tensor], ...]

_NAN = float("nan")
_WHOLE_NUMBERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool)


class LossTable(torch.nn.Module):
    """The losses of K replicas, with their parameters in buffers of one row per replica.

    The replicas are grouped by the phi of their loss (see `raresight.losses.contract.NormalForm`), and each
    group is computed at once. A loss without a normal form (a user's own function) is computed on its own.
    Nothing waits for the device, so that a CUDA graph can hold the loss once it ran.

    The parameters move with `.to(device)`. They keep float64 whatever the type of the scores, and they are
    not in the state dict.

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
        # By phi and not by the class of the loss. A class-weighted or logit-adjusted TBL differs from TBL in
        # scales, shifts and weights alone, and is computed with it.
        forms = [loss.normal_form(outputs) for loss in self.losses]
        members = _by_phi(forms)
        self._alone = tuple(place for place, form in enumerate(forms) if form is None)
        self._groups = tuple(_PhiGroup.of([forms[place] for place in places]) for places in members)
        for i, places in enumerate(members):
            rows = torch.tensor([packed(_known(forms[place])) for place in places], dtype=torch.float64)
            self.register_buffer(f"_table_{i}", rows, persistent=False)
            self.register_buffer(f"_replicas_{i}", torch.tensor(places), persistent=False)
        # Results come group by group, then those of the losses alone; this is the way back to the replicas.
        order = [*(place for places in members for place in places), *self._alone]
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
        """Return the mean loss of each replica over the batch, (K,), in float32 or the scores' float64.

        scores: (K, N), or (K, N, classes) for several outputs. labels: (K, N) or (N,), integers 0/1 or class
        numbers. With weights (K, 2) or (K, classes), one per label, it is the weighted mean

            sum_i weights[k, y_i] loss_i / sum_i weights[k, y_i],

        as in torch's CrossEntropyLoss. `row_weights` v, (K, N) or (N,), multiply the losses, but not the
        divisor:

            sum_i v_i weights[k, y_i] loss_i / sum_i weights[k, y_i],   without weights  sum_i v_i loss_i / N,

        so that the weight of a row does not depend on its batch. A label out of range is an error on the CPU,
        and gives NaN for its replica elsewhere. The loss of a replica depends on its own scores alone.
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
        """Return the mean over the batch of row_weights * weights[k, y] * loss_k, (K,)."""
        alone = [self._one(place, scores, labels, weights, row_weights) for place in self._alone]
        if not self._groups:
            return torch.cat(alone)
        result: Tensor = StackLosses.apply(  # type: ignore[no-untyped-call]
            scores, labels, weights, row_weights, self._back, len(alone), *self._flat_groups()
        )
        return result.index_copy(0, self._places_alone, torch.cat(alone)) if alone else result

    def start(self, priors: float | Sequence[float]) -> Tensor:
        """Return the constant scores (K, outputs) that minimise each loss at these priors, in float64.

        `priors` is P(y=1) for a binary score, or one prior per class.

        >>> LossTable(["crossentropy", "alpha(0.5)"]).start(0.01).flatten().round(decimals=3).tolist()
        [-4.595, -2.298]
        """
        if self.outputs == 1:
            if np.ndim(priors) != 0:
                raise ValueError(f"a binary score has one prior, P(y=1), got {priors!r}")
        elif np.shape(priors) != (self.outputs,):
            raise ValueError(f"{self.outputs} class priors are needed, one per class, got {priors!r}")
        return torch.stack([start_scores(loss, priors) for loss in self.losses])

    def extra_repr(self) -> str:
        return f"{len(self.losses)} losses, outputs={self.outputs}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> LossTable:
        """Move the buffers, but keep them float64: `.half()` of a net is meant for scores, not for these."""
        exact = {name: buffer for name, buffer in self.named_buffers() if buffer.is_floating_point()}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, before in exact.items():
            after = getattr(self, name)
            if after.dtype != before.dtype:
                setattr(self, name, before.to(after.device))
        return self

    def _flat_groups(self) -> list[Any]:
        """Return the arguments of `StackLosses`: each group, its table and its replicas."""
        flat: list[Any] = []
        for i, group in enumerate(self._groups):
            flat += [group, getattr(self, f"_table_{i}"), getattr(self, f"_replicas_{i}")]
        return flat

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
                f"weights must have shape ({replicas}, {max(outputs, 2)}), one per replica and label, "
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
    """Return the mean class weight of each replica's rows, (K,); labels out of range are clamped."""
    own = labels.to(torch.int64).clamp(0, weights.shape[1] - 1)
    return weights.gather(1, own.expand(len(weights), own.shape[-1])).mean(1)


def _by_phi(forms: Sequence[NormalForm | None]) -> list[list[int]]:
    """Return the places of the losses of each phi, those with a hand-written kernel body first."""
    members: dict[Any, list[int]] = {}
    for place, form in enumerate(forms):
        if form is not None:
            members.setdefault((form.phi, len(form.numbers), form.counts_spread, body_of(form)), []).append(
                place
            )
    return [members[key] for key in sorted(members, key=lambda key: (key[3] is None, key[3] or 0))]


def _known(form: NormalForm | None) -> NormalForm:
    assert form is not None
    return form


@dataclass(frozen=True)
class _PhiGroup:
    """Losses with one phi, which differ in their numbers.

    Attributes:
        phi: The function of the margin.
        numbers: The numbers that all losses share, None for one that differs and is in the table. A shared
            number is passed as a float, with which phi may take fewer operations.
        counts_spread: See `NormalForm`.
        is_plain: Whether each loss is phi(z) for a positive and phi(-z) for a negative.
        body: The number of the hand-written kernel body, None without one.
    """

    phi: Callable[..., tuple[Tensor, ...]]
    numbers: tuple[float | None, ...]
    counts_spread: bool
    is_plain: bool
    body: int | None

    @staticmethod
    def of(forms: Sequence[NormalForm | None]) -> _PhiGroup:
        known = [_known(form) for form in forms]
        columns = zip(*(form.numbers for form in known))
        shared = tuple(column[0] if len(set(column)) == 1 else None for column in columns)
        first, is_plain = known[0], all(form.is_plain for form in known)
        return _PhiGroup(first.phi, shared, first.counts_spread, is_plain, body_of(first))

    def terms(self, table: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        """Return phi and phi' of margins (rows, n, ...) by a table in their precision."""
        spread = [None] * (m.ndim - 1)
        numbers = [
            table[(slice(None), i, *spread)] if number is None else number
            for i, number in enumerate(self.numbers)
        ]
        value, slope = self.phi(TorchOps, m, 1, *numbers)
        return value, slope


class StackLosses(torch.autograd.Function):
    """Compute K means over the batch of row_weights * weights[k, y] * loss_k, with closed-form gradients.

        apply(scores, labels, weights, row_weights, back, alone, group, table, replicas, group, ...)

    `alone` is the number of replicas in no group, whose losses and gradients are zero here. `back` are the
    places of the replicas in the order of the groups, those alone last.
    """

    @staticmethod
    def forward(
        ctx: Any,
        scores: Tensor,
        labels: Tensor,
        weights: Tensor | None,
        row_weights: Tensor | None,
        back: Tensor,
        alone: int,
        *flat_groups: Any,
    ) -> Tensor:
        groups = tuple(zip(*(flat_groups[i::3] for i in range(3)), strict=True))
        if _runs_in_a_kernel(scores, groups):
            from .kernels.loss import KernelGroup, stack_losses

            rows = [
                KernelGroup(group.body, group.is_plain, table, replicas) for group, table, replicas in groups
            ]
            values, gradient = stack_losses(scores, labels, rows, weights, row_weights, complete=not alone)
        else:
            values, gradient = _in_torch(scores, labels, weights, row_weights, back, alone, groups)
        # The gradient alone, which is cheap beside the value: the graph keeps one tensor instead of the
        # intermediate results of phi.
        ctx.save_for_backward(gradient)
        return values

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *outputs: Any) -> Any:
        (gradient,) = ctx.saved_tensors
        spread = outputs[0].reshape(-1, *[1] * (gradient.ndim - 1))
        return ((spread * gradient).to(gradient.dtype), *[None] * (len(ctx.needs_input_grad) - 1))


def _runs_in_a_kernel(scores: Tensor, groups: Groups) -> bool:
    if torch.compiler.is_compiling() or not scores.is_cuda or scores.dtype not in SCORE_TYPES:
        return False
    # All groups or none: the kernels write into tensors of all replicas, PyTorch's operations make parts.
    if any(group.body is None for group, _, _ in groups):
        return False
    return has_triton() and (scores.ndim == 2 or scores.shape[2] <= MOST_CLASSES)


def _in_torch(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None,
    row_weights: Tensor | None,
    back: Tensor,
    alone: int,
    groups: Groups,
) -> tuple[Tensor, Tensor]:
    precision = torch.promote_types(scores.dtype, torch.float32)
    terms = _binary_terms if scores.ndim == 2 else _class_terms
    together = len(groups) == 1 and not alone
    values, gradients = [], []
    for group, table, replicas in groups:
        z, y, w, v = (
            each if together or each is None or each.ndim == 1 else each.index_select(0, replicas)
            for each in (scores, labels, weights, row_weights)
        )
        assert z is not None
        assert y is not None
        value, gradient = terms(group, table.to(precision), z.to(precision), y, w)
        if v is not None:
            v = v.to(precision)
            value = TorchOps.finite(v * value)
            gradient = TorchOps.finite((v if z.ndim == 2 else v.unsqueeze(-1)) * gradient)
        # Scaled before the sum: a mean of large losses is finite where their sum is not.
        share = 1 / value.shape[1]
        values.append(TorchOps.finite((value * share).sum(1)))
        gradients.append((gradient * share).to(scores.dtype))
    if together:
        return values[0], gradients[0]
    if alone:
        values.append(values[0].new_zeros(alone))
        gradients.append(gradients[0].new_zeros((alone, *scores.shape[1:])))
    return torch.cat(values).index_select(0, back), torch.cat(gradients).index_select(0, back)


def _binary_terms(
    group: _PhiGroup, table: Tensor, z: Tensor, y: Tensor, label_weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return losses and slopes (rows, n) of scores (rows, n)."""
    scales, shifts, _, weights = table[:, -8:].reshape(-1, 4, 2).unbind(1)
    if label_weights is not None:
        weights = weights * label_weights.to(weights.dtype)
    positive = y == 1

    def choose(by_label: Tensor) -> Tensor:
        return torch.where(positive, by_label[:, 1:], by_label[:, :1])

    scale = choose(scales)
    value, slope = group.terms(table, TorchOps.finite(scale * z + choose(shifts)))
    # A label other than 0 or 1 gives NaN, since a device cannot raise an error.
    weight = torch.where(positive | (y == 0), choose(weights), _NAN)
    return TorchOps.finite(weight * value), TorchOps.finite(weight * (scale * slope))


def _class_terms(
    group: _PhiGroup, table: Tensor, f: Tensor, y: Tensor, label_weights: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return losses (rows, n) and gradients (rows, n, classes) of logits (rows, n, classes)."""
    classes = f.shape[2]
    scales, shifts, margins, weights = table[:, -4 * classes :].reshape(-1, 4, 1, classes).unbind(1)
    if label_weights is not None:
        weights = weights * label_weights.to(weights.dtype).unsqueeze(1)
    label = y.unsqueeze(-1) == torch.arange(classes, device=f.device)
    g = scales * TorchOps.finite(f) + shifts
    g = TorchOps.finite(torch.where(label, g - margins, g))
    own = torch.where(label, g, 0.0).sum(-1, keepdim=True)
    margin, others = class_margin(TorchOps, own, torch.where(label, -float("inf"), g), -1)
    value, slope = group.terms(table, margin)
    gradient = torch.where(label, slope, -slope * others)
    if group.counts_spread:
        spread = (others * others).sum(-1, keepdim=True)
        half = (1 + spread) / 2
        gradient = gradient * half + value * (others * (others - spread))
        value = value * half
    weight = torch.where(label, weights, 0.0).sum(-1, keepdim=True)
    weight = torch.where(label.any(-1, keepdim=True), weight, _NAN)
    return TorchOps.finite(weight * value).squeeze(-1), TorchOps.finite(weight * (gradient * scales))
