"""Squared error of the probability (Brier)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from .margin import Array, MarginLoss, Ops, log_normalise
from .registry import register
from .tails import Tail

__all__ = ["Squared"]


@register
@dataclass(frozen=True)
class Squared(MarginLoss):
    """Squared loss through the sigmoid: l = (1 - p_y)^2.

    Bounded, not convex in the score (p_y < 1/3), proper: its link is the identity. For K classes it
    is half the Brier score, (1/2) sum_k (p_k - 1{k=y})^2. That is the same for two classes, and proper for
    more. The square of 1 - p_y alone would not be proper for more.

    >>> Squared().value([0.0, 2.0], [1, 0]).round(6).tolist()
    [0.25, 0.775803]
    """

    name: ClassVar[str] = "squared"
    formula: ClassVar[str] = "(1-p)^2"
    link: ClassVar[str] = "z"
    place: ClassVar[float] = 1
    kernel: ClassVar[str | None] = "squared"
    counts_spread: ClassVar[bool] = True

    @property
    def is_convex(self) -> bool:
        return False

    @staticmethod
    def phi(ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        _, q = ops.logistic(m)
        value = q * q
        if order == 0:
            return (value,)
        p = ops.sigmoid(m)
        twice = 2 * p * value
        if order == 1:
            return value, -twice
        return value, -twice, twice * (2 * p - q)

    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        log_slope = math.log(2) - ops.softplus(-m) - 2 * ops.softplus(m)
        return log_slope, ops.sigmoid(-m) - 2 * ops.sigmoid(m)

    def tail(self) -> Tail:
        # 2 p q^2: a bounded loss, whose pull vanishes on both sides.
        return Tail(growth=-1.0, decay=2.0, log_pull=math.log(2), log_push=math.log(2))

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return z

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        return log_odds

    # For class logits l = phi(m) R with R = (1 + S)/2, S = sum_j w_j^2 over the softmax w of the other
    # logits. For two classes w = S = 1, so R = 1 and every derivative of S vanishes exactly.

    def _class_terms(self, ops: Ops, f: Array, y: Array, order: int) -> tuple[Array, ...]:
        axis = ops.class_axis(f)
        margin, w = self._margin(ops, f, y, axis)
        phi = self._terms(ops, margin, order)
        spread = ops.sum(w * w, axis)
        factor = (1 + spread) / 2
        terms = [ops.squeeze(phi[0] * factor, axis)]
        tilt = 2 * w * (w - spread)  # dS/df, zero at the label
        if order >= 1:
            terms.append(ops.with_label(-phi[1] * w, y, phi[1], axis) * factor + phi[0] * tilt / 2)
        if order >= 2:
            bend = 2 * w * (2 * w - spread) - 2 * w * w * (4 * w - 3 * spread)  # d2S/df_j2
            rest = phi[2] * w * w - phi[1] * w * (1 - w)
            own = ops.with_label(rest, y, phi[2], axis) * factor
            terms.append(own - phi[1] * w * tilt + phi[0] * bend / 2)
        return tuple(terms)

    def _class_hessian(self, ops: Ops, f: Array, y: Array) -> Array:
        axis = ops.class_axis(f)
        margin, others = self._margin(ops, f, y, axis)
        value, first, second = (ops.move_axis(t, axis, -1)[..., None] for t in self._terms(ops, margin, 2))
        v = ops.move_axis(ops.with_label(-others, y, 1.0, axis), axis, -1)
        w = ops.move_axis(others, axis, -1)
        spread = ops.sum(w * w, -1)
        tilt = 2 * w * (w - spread)
        square = w[..., :, None] * w[..., None, :]
        plain = second * (v[..., :, None] * v[..., None, :]) - first * (ops.diagonal_matrix(w) - square)
        cross = v[..., :, None] * tilt[..., None, :] + tilt[..., :, None] * v[..., None, :]
        pairs = 2 * w[..., :, None] + 2 * w[..., None, :] - 3 * spread[..., None]
        bend = ops.diagonal_matrix(2 * w * (2 * w - spread)) - 2 * square * pairs
        return plain * (1 + spread[..., None]) / 2 + first * cross / 2 + value * bend / 2

    def _class_hvp(self, ops: Ops, f: Array, y: Array, u: Array) -> Array:
        axis = ops.class_axis(f)
        margin, w = self._margin(ops, f, y, axis)
        value, first, second = self._terms(ops, margin, 2)
        v = ops.with_label(-w, y, 1.0, axis)
        spread = ops.sum(w * w, axis)
        tilt = 2 * w * (w - spread)
        along_v, along_w, along_tilt, along_square = (ops.sum(t * u, axis) for t in (v, w, tilt, w * w))
        plain = second * v * along_v - first * w * (u - along_w)
        cross = v * along_tilt + tilt * along_v
        bend = 2 * w * (2 * w - spread) * u - 2 * w * ((2 * w - 3 * spread) * along_w + 2 * along_square)
        return plain * (1 + spread) / 2 + first * cross / 2 + value * bend / 2

    def _class_expected_hvp(self, ops: Ops, f: Array, shares: Array, u: Array) -> Array:
        """The derivative along u of p (e - p.e), e = total p - shares."""
        axis = ops.class_axis(f)
        p = ops.exp(log_normalise(ops, ops.finite(f), axis))
        total = ops.sum(shares, axis)
        error = total * p - shares
        inner = ops.sum(p * error, axis)
        dp = p * (u - ops.sum(p * u, axis))
        d_inner = ops.sum(dp * error + p * total * dp, axis)
        return dp * (error - inner) + p * (total * dp - d_inner)

    def _class_expected(self, ops: Ops, f: Array, shares: Array) -> tuple[Array, Array]:
        axis = ops.class_axis(f)
        p = ops.exp(log_normalise(ops, ops.finite(f), axis))
        total = ops.sum(shares, axis)
        value = ops.sum(total * p * p / 2 - shares * p + shares / 2, axis)
        error = total * p - shares
        return ops.squeeze(value, axis), p * (error - ops.sum(p * error, axis))

    def _class_log_posterior(self, ops: Ops, f: Array) -> Array:
        return log_normalise(ops, f, ops.class_axis(f))
