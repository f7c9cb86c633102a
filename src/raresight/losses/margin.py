"""Losses that are one function phi of the margin: nearly all of them.

Binary score: the margin is m = z for a positive and -z for a negative, l(y, z) = phi(m). Class
logits: m = f_y - logsumexp of the other logits. Then p_y = sigma(m), and any loss of p_y is a phi(m)
again. With w = softmax of the other logits,

    dl/df_y = phi'(m),    dl/df_j = -phi'(m) w_j,
    Hessian = phi''(m) v v' - phi'(m) (diag w - w w'),    v = e_y - w.

Nothing is lost to cancellation, and two logits (0, z) give the binary loss. Since phi' <= 0, the K-class
loss is convex exactly when the binary one is.

Label-dependent losses (vector scaling, LDAM) put an affine map in front of phi. The margin of label y
becomes scale_y m - offset_y. Class logits become scales * f + shifts, less margin_y at the label.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from ._numpy_ops import NumpyOps
from .contract import Array, Loss, NormalForm, Ops
from .tails import Tail, read_tail

__all__ = ["Array", "ClassMap", "MarginLoss", "NormalForm", "Ops", "class_margin", "log_normalise"]


def _kernel_of(kind: type[MarginLoss]) -> str | None:
    """The kernel that was named where phi was written: a class with another phi has none of its base's."""
    for owner in kind.__mro__:
        if "phi" in vars(owner):
            return vars(owner).get("kernel")
    return None


@dataclass(frozen=True)
class ClassMap:
    """g = scales * f + shifts, and g_y -= margins_y for the label y."""

    scales: tuple[float, ...]
    shifts: tuple[float, ...]
    margins: tuple[float, ...]


class MarginLoss(Loss):
    """A loss given by phi(m) with its derivatives, and by log(-phi'(m)).

    To write one:

        @register
        @dataclass(frozen=True)
        class Mine(MarginLoss):
            rate: float = param(1.0, positive, search=(0.5, 2.0))
            name = "mine"

            def numbers(self):
                return (self.rate,)

            @staticmethod
            def phi(ops, m, order, rate): ...       # (phi, phi', phi'')[: order + 1]

            def log_slope(self, ops, m): ...        # log(-phi'), phi''/phi'

    `phi` is written once, in the operations of `ops`, for NumPy, torch, stacks of replicas (where a number
    may be a tensor of those of K replicas) and plans (see `raresight.losses.plan`). So it has no Python
    branch on the margin, and one on a number only behind `ops.is_number` or `ops.is_zero`. What it gives back
    is finite: terms that may overflow go through `ops.saturate` or `ops.finite`. `log_slope` is accurate
    where phi' itself underflows; the link rests on it.
    """

    phi: ClassVar[Callable[..., tuple[Array, ...]]]
    kernel: ClassVar[str | None] = None
    """The name of a hand-written GPU kernel of `phi` (see `raresight.nn.kernels`)."""
    counts_spread: ClassVar[bool] = False
    """Whether the loss of class logits is phi times (1 + sum_j w_j^2)/2 over the softmax w of the others."""

    _numbers: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_numbers", self.numbers())

    def numbers(self) -> tuple[float, ...]:
        """What `phi` takes behind its order: the parameters, in a form that needs no decision on them."""
        return ()

    @abstractmethod
    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        """log(-phi'(m)) and its derivative phi''(m)/phi'(m)."""

    def _terms(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        """phi and its derivatives up to `order`."""
        return type(self).phi(ops, m, order, *self._numbers)

    def tail(self) -> Tail | None:
        """The tails of phi, read off far out: right where they are exponential by then, None where they are
        not.

        A loss that knows its tails says them exactly.
        """
        found = read_tail(lambda m: self.log_slope(NumpyOps, m))
        return None if found is None else found.mapped(self._label_map(0), self._label_map(1))

    def normal_form(self, outputs: int = 1) -> NormalForm | None:
        labels = max(outputs, 2)
        ones, zeros = (1.0,) * labels, (0.0,) * labels
        of_phi: dict[str, Any] = {
            "phi": type(self).phi,
            "numbers": self._numbers,
            "counts_spread": self.counts_spread,
            "kernel": _kernel_of(type(self)),
        }
        if outputs == 1:
            (scale_0, offset_0), (scale_1, offset_1) = self._label_map(0), self._label_map(1)
            # 0 - offset, not -offset: no zero with a sign.
            shifts = (0 - offset_0, 0 - offset_1)
            return NormalForm(
                scales=(-scale_0, scale_1), shifts=shifts, margins=zeros, weights=ones, **of_phi
            )
        mapping = self._class_map() or ClassMap(ones, zeros, zeros)
        return NormalForm(
            scales=mapping.scales, shifts=mapping.shifts, margins=mapping.margins, weights=ones, **of_phi
        )

    def _log_phi(self, ops: Ops, m: Array) -> Array:
        """log phi(m), for a loss whose phi itself may overflow or underflow."""
        return ops.log(self._terms(ops, m, 0)[0])

    def _label_map(self, label: int) -> tuple[float, float]:
        """(scale, offset) of the margin of a binary score under this label."""
        return 1.0, 0.0

    def _class_map(self) -> ClassMap | None:
        return None

    # ---- binary score --------------------------------------------------------------------

    def _labelled(self, ops: Ops, z: Array, y: Array, order: int) -> tuple[Array, ...]:
        direction = 2 * y - 1
        negative, positive = self._label_map(0), self._label_map(1)
        if negative == positive == (1.0, 0.0):
            return _chain(self._terms(ops, direction * z, order), direction)
        # Chosen, not interpolated: w0 + (w1 - w0) y loses the digits of a small w1.
        scale = ops.choose(y, positive[0], negative[0]) * direction
        offset = ops.choose(y, positive[1], negative[1])
        return _chain(self._terms(ops, ops.finite(scale * ops.finite(z) - offset), order), scale)

    def _branch(self, ops: Ops, z: Array, label: int, order: int) -> tuple[Array, ...]:
        scale, margin = self._label_margin(ops, z, label)
        return _chain(self._terms(ops, margin, order), scale)

    def _log_slopes(self, ops: Ops, z: Array, label: int) -> tuple[Array, Array]:
        scale, margin = self._label_margin(ops, z, label)
        log_slope, derivative = self.log_slope(ops, margin)
        return log_slope + math.log(abs(scale)), scale * derivative

    def _log_value(self, ops: Ops, z: Array, label: int) -> Array:
        return self._log_phi(ops, self._label_margin(ops, z, label)[1])

    def _label_margin(self, ops: Ops, z: Array, label: int) -> tuple[float, Array]:
        scale, offset = self._label_map(label)
        if (scale, offset) == (1.0, 0.0):
            return (1.0, z) if label else (-1.0, -z)
        if label == 0:
            scale = -scale
        return scale, ops.finite(scale * z - offset)

    # ---- class logits --------------------------------------------------------------------

    def _class_terms(self, ops: Ops, f: Array, y: Array, order: int) -> tuple[Array, ...]:
        axis = ops.class_axis(f)
        margin, others = self._margin(ops, f, y, axis)
        phi = self._terms(ops, margin, order)
        terms = [ops.squeeze(phi[0], axis)]
        scales = self._class_scales(ops, f, axis)
        if order >= 1:
            slopes = ops.with_label(-phi[1] * others, y, phi[1], axis)
            terms.append(slopes if scales is None else slopes * scales)
        if order >= 2:
            rest = phi[2] * others * others - phi[1] * others * (1 - others)
            bends = ops.with_label(rest, y, phi[2], axis)
            terms.append(ops.finite(bends if scales is None else bends * scales * scales))
        return tuple(terms)

    def _class_hessian(self, ops: Ops, f: Array, y: Array) -> Array:
        axis = ops.class_axis(f)
        margin, others = self._margin(ops, f, y, axis)
        _, first, second = self._terms(ops, margin, 2)
        first, second = (ops.move_axis(a, axis, -1)[..., None] for a in (first, second))
        v = ops.move_axis(ops.with_label(-others, y, 1.0, axis), axis, -1)
        w = ops.move_axis(others, axis, -1)
        bend = ops.diagonal_matrix(w) - w[..., :, None] * w[..., None, :]
        curved = second * (v[..., :, None] * v[..., None, :]) - first * bend
        scales = self._class_scales(ops, f, axis)
        if scales is None:
            return ops.finite(curved)
        scales = ops.move_axis(scales, axis, -1)
        return ops.finite(curved * (scales[..., :, None] * scales[..., None, :]))

    def _class_expected(self, ops: Ops, f: Array, shares: Array) -> tuple[Array, Array]:
        """With a_k = shares_k phi'(m_k)/(1 - p_k): dl/df_j = shares_j phi'(m_j) - p_j (sum a - a_j)."""
        axis = ops.class_axis(f)
        margins = all_class_margins(ops, self._map_logits(ops, f, axis), axis)
        mapping = self._class_map()
        own = margins if mapping is None else margins - ops.per_class(mapping.margins, f, axis)
        value, slope = self._terms(ops, own, 1)
        ratio = self._spill_ratio(ops, margins, own, shares)[0]
        spill = ops.sigmoid(margins) * ops.finite(sum_of_others(ops, ratio, axis))
        gradient = ops.finite(ops.finite(shares * slope) - spill)
        scales = self._class_scales(ops, f, axis)
        if scales is not None:
            gradient = gradient * scales
        return ops.finite(ops.squeeze(ops.sum(shares * value, axis), axis)), ops.finite(gradient)

    def _spill_ratio(self, ops: Ops, margins: Array, own: Array, shares: Array) -> tuple[Array, Array]:
        """a_k = shares_k phi'(m_k)/(1 - p_k), and phi''/phi'.

        phi' and 1 - p vanish together; only their logarithms have a difference.
        """
        log_slope, bend = self.log_slope(ops, own)
        return ops.finite(-shares * ops.finite(ops.exp(log_slope + ops.softplus(margins)))), bend

    def _class_hvp(self, ops: Ops, f: Array, y: Array, u: Array) -> Array:
        axis = ops.class_axis(f)
        margin, w = self._margin(ops, f, y, axis)
        _, first, second = self._terms(ops, margin, 2)
        scales = self._class_scales(ops, f, axis)
        scales = 1.0 if scales is None else scales
        u = u * scales
        v = ops.with_label(-w, y, 1.0, axis)
        along_v, along_w = ops.sum(v * u, axis), ops.sum(w * u, axis)
        return ops.finite((second * v * along_v - first * w * (u - along_w)) * scales)

    def _class_expected_hvp(self, ops: Ops, f: Array, shares: Array, u: Array) -> Array:
        """With d_k = u_k - (mean of u over the other classes) and b_k = a_k phi''/phi':

        H u = shares phi'' d - p [sum b d - b d] - p [u (sum a - a) - (sum a r - a r)], r = u - d.
        """
        axis = ops.class_axis(f)
        scales = self._class_scales(ops, f, axis)
        scales = 1.0 if scales is None else scales
        u = u * scales
        g = self._map_logits(ops, f, axis)
        margins = all_class_margins(ops, g, axis)
        mapping = self._class_map()
        own = margins if mapping is None else margins - ops.per_class(mapping.margins, f, axis)
        second = self._terms(ops, own, 2)[2]
        a, bend = self._spill_ratio(ops, margins, own, shares)
        p = ops.sigmoid(margins)
        r = mean_over_others(ops, g, u, axis)
        d = u - r
        of_a, of_b, of_r = (sum_of_others(ops, t, axis) for t in (a, a * bend * d, a * r))
        spill = of_b + u * of_a - of_r
        return ops.finite((shares * second * d - p * spill) * scales)

    def _class_log_posterior(self, ops: Ops, f: Array) -> Array:
        """eta_k is proportional to p_k (1 - p_k) / -phi'(m_k - margin_k), p = softmax(g)."""
        axis = ops.class_axis(f)
        margins = all_class_margins(ops, self._map_logits(ops, f, axis), axis)
        return log_normalise(ops, self._log_weight(ops, margins, axis)[0], axis)

    def _log_weight(self, ops: Ops, margins: Array, axis: int) -> tuple[Array, Array]:
        """log of p (1 - p) / -phi' and its derivative by the class's own margin."""
        mapping = self._class_map()
        offset = 0.0 if mapping is None else ops.per_class(mapping.margins, margins, axis)
        log_slope, derivative = self.log_slope(ops, margins - offset)
        weight = ops.finite(-ops.softplus(margins) - ops.softplus(-margins) - ops.finite(log_slope))
        return weight, ops.sigmoid(-margins) - ops.sigmoid(margins) - derivative

    def _map_logits(self, ops: Ops, f: Array, axis: int) -> Array:
        f = ops.finite(f)  # two infinite logits have no difference
        mapping = self._class_map()
        if mapping is None:
            return f
        return ops.finite(ops.per_class(mapping.scales, f, axis) * f + ops.per_class(mapping.shifts, f, axis))

    def _margin(self, ops: Ops, f: Array, y: Array, axis: int) -> tuple[Array, Array]:
        """The label's margin after the map of logits, and the softmax of the others."""
        g = self._map_logits(ops, f, axis)
        own = ops.at_label(g, y, axis)
        mapping = self._class_map()
        if mapping is not None:
            own = ops.finite(own - ops.number_at_label(mapping.margins, y, f, axis))
        return class_margin(ops, own, ops.with_label(g, y, -float("inf"), axis), axis)

    def _class_scales(self, ops: Ops, f: Array, axis: int) -> Array | None:
        mapping = self._class_map()
        return None if mapping is None else ops.per_class(mapping.scales, f, axis)


def _chain(phi: tuple[Array, ...], scale: Array) -> tuple[Array, ...]:
    """Derivatives by z from derivatives by the margin scale * z."""
    if len(phi) == 1:
        return phi
    if len(phi) == 2:
        return phi[0], scale * phi[1]
    return phi[0], scale * phi[1], scale * scale * phi[2]


def class_margin(ops: Ops, own: Array, others: Array, axis: int) -> tuple[Array, Array]:
    """m = g_y - logsumexp of the others, and the softmax of the others (0 at the label).

    `own` is g_y, and `others` are the logits with -inf at the label.
    """
    largest = ops.max(others, axis)
    relative = ops.exp(others - largest)
    total = ops.sum(relative, axis)
    return ops.finite(own - largest - ops.log(total)), relative / total


def all_class_margins(ops: Ops, g: Array, axis: int) -> Array:
    """g_k - logsumexp of the other logits, for every class k."""
    largest = ops.max(g, axis)
    relative = ops.exp(g - largest)
    total = ops.sum(relative, axis)
    leader = alone_in_the_lead(ops, relative, axis)
    # A class that leads alone is measured against the others' own maximum; any other class has
    # p <= 1/2, so that log1p(-p) is accurate.
    others = ops.where(leader, -float("inf"), g)
    second = ops.max(others, axis)
    behind = second - largest + ops.log(ops.sum(ops.exp(others - second), axis))
    p = ops.where(leader, 0.0, relative / total)
    log_others = ops.where(leader, behind, ops.log(total) + ops.log1p(-p))
    return ops.finite(g - largest - log_others)


def alone_in_the_lead(ops: Ops, relative: Array, axis: int) -> Array:
    """Mask of the class with the largest logit, where no other has the same; relative = e^(g - max)."""
    leads = relative == 1
    return leads & (ops.sum(ops.where(leads, 1.0, 0.0 * relative), axis) == 1)


def mean_over_others(ops: Ops, g: Array, u: Array, axis: int) -> Array:
    """For every class k the mean of u over the other classes, weighted by their softmax."""
    relative = ops.exp(g - ops.max(g, axis))
    total, weighted = ops.sum(relative, axis), ops.sum(relative * u, axis)
    leader = alone_in_the_lead(ops, relative, axis)
    others = ops.where(leader, -float("inf"), g)
    tail = ops.exp(others - ops.max(others, axis))
    of_leader = ops.sum(tail * u, axis) / ops.sum(tail, axis)
    safe = ops.where(leader, 1.0, total - relative)
    return ops.where(leader, of_leader, (weighted - relative * u) / safe)


def log_normalise(ops: Ops, log_weight: Array, axis: int) -> Array:
    largest = ops.max(log_weight, axis)
    shifted = log_weight - largest
    return shifted - ops.log(ops.sum(ops.exp(shifted), axis))


def sum_of_others(ops: Ops, terms: Array, axis: int) -> Array:
    """For each class the sum of the terms of the others.

    The sum of all less the own term loses its digits for a term that outweighs the others. Such a term is
    left out of the sum instead. A margin of LDAM makes a term a million times the others.
    """
    size = ops.where(terms < 0, -terms, terms)
    largest = size >= ops.max(size, axis)
    # Of two that are as large the difference keeps half of the sum, and all its digits.
    alone = ops.sum(ops.where(largest, 1.0, 0.0), axis) < 1.5
    total = ops.finite(ops.sum(terms, axis))
    return ops.where(largest & alone, ops.sum(ops.where(largest, 0.0, terms), axis), total - terms)
