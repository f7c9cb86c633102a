"""A loss as plain numbers, so that the losses of many replicas can be computed together.

Every loss of `raresight.losses` but a user's own function has one normal form. A binary score:

    l(y, z) = w_y phi(a_y z + b_y),

with a label's weight w_y (class weights), slope a_y (negative for label 0) and offset b_y (margins,
shifts and logit adjustment together). Class logits: with g = scales f + shifts, less margins_y at the
label y, and m = g_y - logsumexp of the other g,

    l(y, f) = w_y phi(m)

(for the squared loss times (1 + sum w_j^2)/2 over the softmax w of the others). phi is one of six kinds,
each with at most six numbers of its own; those are chosen so that its formulas need no decision on a
parameter and lose no digits near its limits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache

import torch

from ..losses import (
    LDAM,
    TBL,
    Alpha,
    ClassWeighted,
    CrossEntropy,
    Erf,
    Focal,
    LogitAdjusted,
    Loss,
    Poly,
    Squared,
    VectorScaling,
)
from ..losses.alpha import tuning
from ..losses.margin import ClassMap, MarginLoss

__all__ = ["MOST_CLASSES", "SHAPE_NUMBERS", "Encoded", "Kind", "Row", "cached_row", "encode", "table"]

SHAPE_NUMBERS = 6

MOST_CLASSES = 1024
"""As many logits of a sample as a program of the loss kernel keeps in registers."""


class Kind(IntEnum):
    """The function phi of the margin; x = -log p, p = sigma(m), q = 1 - p."""

    CROSS_ENTROPY = 0  # x
    SQUARED = 1  # q^2
    ERF = 2  # psi(m) - m Psi(-m)
    FOCAL = 3  # q^gamma x
    POLY = 4  # x + epsilon q
    BOOSTING = 5  # e^(-C q) (e^(u x) - 1)/u: alpha loss and TBL


@dataclass(frozen=True)
class Encoded:
    """The normal form of one loss: kind and numbers of phi, label map and label weights.

    Binary score: `scales` are the slopes (a_0, a_1), `shifts` the offsets (b_0, b_1), `margins` zero.
    Class logits: one scale, shift, margin and weight a class.
    """

    kind: Kind
    shape: tuple[float, ...]
    scales: tuple[float, ...]
    shifts: tuple[float, ...]
    margins: tuple[float, ...]
    weights: tuple[float, ...]

    @property
    def is_plain(self) -> bool:
        """Whether a binary score's loss is phi(z) for a positive and phi(-z) for a negative."""
        plain = ((-1.0, 1.0), (0.0, 0.0), (1.0, 1.0))
        return (self.scales, self.shifts, self.weights) == plain

    def row(self) -> tuple[float, ...]:
        """All numbers in one row: shape, then scales, shifts, margins and weights by label."""
        padding = (0.0,) * (SHAPE_NUMBERS - len(self.shape))
        return (*self.shape, *padding, *self.scales, *self.shifts, *self.margins, *self.weights)


def encode(loss: Loss, outputs: int = 1) -> Encoded | None:
    """The normal form of `loss` for a binary score (outputs = 1) or for that many class logits.

    None for a loss that has none: a user's own function, and compositions of it. The loss must fit
    the number of outputs.

    >>> from raresight.losses import parse
    >>> encoded = encode(parse("classweighted(logitadjusted(focal(2.0),prior=0.5),weights=(1.0,9.0))"))
    >>> encoded.kind.name, encoded.shape, encoded.scales, encoded.weights
    ('FOCAL', (2.0,), (-1.0, 1.0), (1.0, 9.0))
    """
    if type(loss) is ClassWeighted:
        base = encode(loss.base, outputs)
        return base and replace(base, weights=_times(base.weights, loss.weights))
    if type(loss) is LogitAdjusted:
        base = encode(loss.base, outputs)
        return base and _adjusted(base, loss, outputs)
    phi = _phi(loss)
    if phi is None:
        return None
    assert isinstance(loss, MarginLoss)
    labels = max(outputs, 2)
    ones, zeros = (1.0,) * labels, (0.0,) * labels
    if outputs == 1:
        (slope_0, offset_0), (slope_1, offset_1) = loss._label_map(0), loss._label_map(1)
        # 0 - offset, not -offset: no zero with a sign.
        return Encoded(*phi, (-slope_0, slope_1), (0 - offset_0, 0 - offset_1), zeros, ones)
    mapping = loss._class_map() or ClassMap(ones, zeros, zeros)
    return Encoded(*phi, mapping.scales, mapping.shifts, mapping.margins, ones)


def _phi(loss: Loss) -> tuple[Kind, tuple[float, ...]] | None:
    """Exact types alone: a class derived from one of ours may have another phi."""
    if type(loss) in (CrossEntropy, VectorScaling, LDAM):
        return Kind.CROSS_ENTROPY, ()
    if type(loss) is Squared:
        return Kind.SQUARED, ()
    if type(loss) is Erf:
        return Kind.ERF, ()
    if type(loss) is Focal:
        return (Kind.FOCAL, (loss.gamma,)) if loss.gamma else (Kind.CROSS_ENTROPY, ())
    if type(loss) is Poly:
        return (Kind.POLY, _poly(loss.epsilon)) if loss.epsilon else (Kind.CROSS_ENTROPY, ())
    if type(loss) is Alpha:
        return _boosting(loss.alpha, 0.0)
    if type(loss) is TBL:
        return _boosting(loss.alpha, loss.C)
    return None


def _poly(epsilon: float) -> tuple[float, ...]:
    """(c, d, f) of l = c x + d q + f (x - q) and l' = -q (c + d p + f q), none of them negative."""
    return (1.0, epsilon, 0.0) if epsilon >= 0 else (1 + epsilon, 0.0, -epsilon)


def _boosting(alpha: float, C: float) -> tuple[Kind, tuple[float, ...]]:
    """The kind and (u, C, k, g, v, r).

    With V = e^(ux - Cq - k): damped growth e^(ux - Cq) = g V, loss = v V - r e^(-Cq), where
    k = log u for u > 1 (else 0) keeps V representable as far as the loss itself. For u = 0 the loss
    is e^(-Cq) x and v, r are not used.
    """
    u = tuning(alpha)
    if u == 0 and C == 0:
        return Kind.CROSS_ENTROPY, ()
    inverse = 1 / u if u else 0.0
    if u > 1:
        return Kind.BOOSTING, (u, C, math.log(u), u, 1.0, inverse)
    return Kind.BOOSTING, (u, C, 0.0, 1.0, inverse, inverse)


def _adjusted(base: Encoded, loss: LogitAdjusted, outputs: int) -> Encoded:
    """The base loss of z + shift, or of f + tau log prior."""
    if outputs == 1:
        added: tuple[float, ...] = (loss.shift, loss.shift)
    else:
        added = tuple(loss.tau * math.log(prior) for prior in loss.class_priors)
    moved = _times(base.scales, added)
    return replace(base, shifts=tuple(a + b for a, b in zip(base.shifts, moved, strict=True)))


def _times(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(x * y for x, y in zip(a, b, strict=True))


def table(losses: Sequence[Encoded]) -> torch.Tensor:
    """The rows of several losses with the same labels, in float64."""
    return torch.tensor([loss.row() for loss in losses], dtype=torch.float64)


@dataclass(frozen=True)
class Row:
    """One loss on a device: its kind, whether it `is_plain`, and its numbers as a table of one row."""

    kind: Kind
    plain: bool
    table: torch.Tensor


@lru_cache(maxsize=256)
def cached_row(loss: Loss, outputs: int, device: torch.device) -> Row | None:
    """The row of one loss on a device, kept so that a training loop does not copy it every step."""
    encoded = encode(loss, outputs)
    if encoded is None:
        return None
    with torch.inference_mode(False):  # a tensor made in that mode could not be used outside it
        return Row(encoded.kind, encoded.is_plain, table([encoded]).to(device))
