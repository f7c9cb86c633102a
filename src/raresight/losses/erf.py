"""The erf loss of Bach et al. (2006): the probit cousin of cross entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from .margin import Array, MarginLoss, Ops
from .registry import register
from .tails import Tail

__all__ = ["Erf"]

_SERIES_FROM = 12.0
_LOG_SQRT_TWO_PI = 0.5 * math.log(2 * math.pi)


@register
@dataclass(frozen=True)
class Erf(MarginLoss):
    """Erf loss: l = psi(m) - m Psi(-m) = E max(xi - m, 0) for a standard normal xi.

    psi and Psi are the standard normal density and distribution function (Bach, Heckerman and
    Horvitz, 2006). Convex; a probit loss: P(y=1) = Psi(z). Computed in float64 throughout, since
    psi(m) and m Psi(-m) nearly cancel for large margins.

    >>> Erf().value([0.0, -3.0], [1, 1]).round(6).tolist()
    [0.398942, 3.000382]
    """

    name: ClassVar[str] = "erf"
    formula: ClassVar[str] = "psi(m) - m Psi(-m)"
    link: ClassVar[str] = "log Psi(z) - log Psi(-z)"
    place: ClassVar[float] = 2
    kernel: ClassVar[str | None] = "erf"

    @staticmethod
    def phi(ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        v = ops.to_double(m)
        density, mills = _density_and_mills(ops, v)
        tail = ops.ndtr(-v)
        value = ops.where(v >= 0, density * _rest(ops, v, mills), density - v * tail)
        return tuple(ops.like(term, m) for term in (value, -tail, density)[: order + 1])

    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        v = ops.to_double(m)
        density, mills = _density_and_mills(ops, v)
        hazard = ops.where(v >= 0, 1 / mills, density / ops.ndtr(-v))
        return ops.log_ndtr(-v), -hazard

    def _log_phi(self, ops: Ops, m: Array) -> Array:
        v = ops.to_double(m)
        density, mills = _density_and_mills(ops, v)
        size = ops.upper(ops.abs(v), 1e8)
        far = -0.5 * size * size - _LOG_SQRT_TWO_PI + ops.log(_rest(ops, v, mills))
        return ops.where(v >= 0, far, ops.log(density - v * ops.ndtr(-v)))

    def tail(self) -> Tail:
        return Tail(growth=0.0, decay=math.inf, is_gaussian=True)

    def _score_start(self, ops: Ops, log_odds: Array) -> Array:
        size = ops.abs(log_odds)
        start = ops.where(size < 4, 0.6 * size, ops.sqrt(2 * size))
        return ops.where(log_odds < 0, -start, start)


def _rest(ops: Ops, v: Array, mills: Array) -> Array:
    """1 - v Mills(v) for v >= 0; far out, where it cancels, v^-2 (1 - 3 v^-2 (1 - 5 v^-2 (...)))."""
    far = ops.where(v < _SERIES_FROM, _SERIES_FROM, v)
    inverse = 1 / (far * far)
    series = ops.full(v, 1.0)
    for k in range(41, 1, -2):
        series = 1 - k * inverse * series
    return ops.where(v < _SERIES_FROM, 1 - v * mills, inverse * series)


def _density_and_mills(ops: Ops, v: Array) -> tuple[Array, Array]:
    """psi(v), and Mills' ratio Psi(-v)/psi(v) for v >= 0 (1 below)."""
    size = ops.upper(ops.abs(v), 1e8)  # beyond, the density is zero and the square would overflow
    density = ops.exp(-0.5 * size * size - _LOG_SQRT_TWO_PI)
    positive = ops.where(v >= 0, v, 0.0)
    return density, math.sqrt(math.pi / 2) * ops.erfcx(positive / math.sqrt(2))
