"""Tunable Boosting Loss, the paper's proposal, and the exact limits on C within which it keeps its shape.

With u = 1/alpha - 1 and r(p) = (1 - p^u)/u, TBL is

* monotone iff C <= alpha^(1/(alpha-1)) for alpha <= 1: C p r(p) must not pass 1;
* uniquely minimised, for every risk, iff the link's slope is positive at every p. For alpha >= 1/2 the
  binding point is p = 1/2. That gives C < 2 (1 - sqrt(1 - D (1+u)))/D with D = (1 - 2^-u)/u;
* convex iff C is at most the smaller root of this quadratic for every p:
  p^2 q r C^2 + (p (q-p) r - 2 p q) C + p + u q.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from .alpha import BoostingLoss, alpha_in_range, tuning
from .link import invert_increasing
from .margin import Array, Ops
from .parameters import at_least, graph_constant, param
from .registry import register

__all__ = ["TBL", "NonConvexLossWarning", "convex_bound", "monotone_bound", "unique_bound"]


class NonConvexLossWarning(UserWarning):
    """A loss is not convex in the score, so a solver may stop in a local minimum."""


@register
@dataclass(frozen=True)
class TBL(BoostingLoss):
    """Tunable Boosting Loss: the alpha loss damped by exp(-C (1 - p_y)), 0 < alpha <= inf, C >= 0.

        l = e^(-C q) (p_y^-u - 1)/u,    q = 1 - p_y,  u = 1/alpha - 1

    C = 0 is the alpha loss. It is convex exactly for C <= C_conv(alpha), with a warning above. Every
    risk has one minimiser exactly for C < C_uniq(alpha); other C are refused. Every C <= 1.28 is convex
    for every alpha <= 1. As z -> -inf, C multiplies the gradient by e^-C and changes nothing else. So
    badly misclassified points have an unbounded influence when alpha < 1.

    Saturates at the largest finite number once u (-log p_y) passes the logarithm of that number.

    >>> TBL(alpha=0.8, C=0.5).value([0.0, 2.0], [1, 1]).round(6).tolist()
    [0.589419, 0.121501]
    """

    # Every setting in these ranges is convex.
    alpha: float = param(0.8, alpha_in_range, search=(0.5, 0.98))
    C: float = param(0.5, at_least(0.0), search=(0.0, 1.25))
    name: ClassVar[str] = "tbl"
    formula: ClassVar[str] = "exp(-C (1-p)) (p^-u - 1)/u, u = 1/alpha - 1"
    convexity: ClassVar[str] = "C <= C_conv(alpha)"
    link: ClassVar[str] = "z/alpha + C sign(-z) in the tails, exact between"
    place: ClassVar[float] = 6
    search_place: ClassVar[float | None] = 1
    search_grid: ClassVar[dict[str, tuple[float, ...]]] = {
        "alpha": (0.5, 0.6, 0.7, 0.8, 0.9),
        "C": (0.0, 0.25, 0.5, 0.75, 1.0),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        alpha, C = self.alpha, self.C
        if C > 0 and unique_bound(alpha) <= C:
            raise ValueError(
                f"TBL: C must be below C_uniq({alpha}) = {unique_bound(alpha):.6g}, got {C}: from there on "
                "the risk has no unique minimiser, so there is no calibrated probability"
            )
        if not self.is_convex:
            reason = (
                f"alpha={alpha} is above 1"
                if alpha > 1
                else f"C={C} is above C_conv = {convex_bound(alpha):.6g}"
            )
            warnings.warn(f"{self} is not convex in the score: {reason}", NonConvexLossWarning, stacklevel=3)

    @property
    def is_monotone(self) -> bool:
        return monotone_bound(self.alpha) >= self.C

    @property
    def is_convex(self) -> bool:
        return self.alpha <= 1 and convex_bound(self.alpha) >= self.C

    @property
    def has_unique_minimiser(self) -> bool:
        return not math.isinf(self.alpha)

    def _damping(self) -> float:
        return self.C

    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        u, C = tuning(self.alpha), self.C
        x, q = ops.logistic(m)
        p = ops.sigmoid(m)
        pr, fall = self._damped(ops, x, p)
        rest = 1 - C * pr
        log_slope = -ops.softplus(m) + u * x - C * q + ops.log(rest)
        return log_slope, -p - u * q + C * p * q - C * q * (pr - fall) / rest

    def _damped(self, ops: Ops, x: Array, p: Array) -> tuple[Array, Array]:
        """p r and p^(1+u) at x = -log p, r = (1 - p^u)/u."""
        u = tuning(self.alpha)
        fall = ops.exp(-(1 + u) * x)  # e^(-ux) alone overflows for u < 0
        if u < 0:
            return fall * ops.expm1(u * x) / u, fall
        # Past x = 700 p is zero; zero times infinity would be no number.
        return p * (-ops.expm1(-u * x) / u if u else ops.upper(x, 700.0)), fall

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return self._link(ops, z)[0]

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        start = self._score_start(ops, log_odds)
        return invert_increasing(ops, lambda z: self._link(ops, z), log_odds, start)

    def _link(self, ops: Ops, z: Array) -> tuple[Array, Array]:
        """The log-odds at z and their derivative.

        The log-slopes are of the size of u or of u z. Their difference would have no digits where it is small
        next to them. Without what they share it is z/alpha - C (p - q) + log R(-z) - log R(z), R = 1 - C p r.
        """
        C, value, slope = self.C, z / self.alpha, 1 / self.alpha
        x, q = ops.logistic(z)
        y, p = ops.logistic(-z)
        for sign, x_y, own, other in ((1, y, q, p), (-1, x, p, q)):
            pr, fall = self._damped(ops, x_y, own)
            rest = 1 - C * pr
            value = value + sign * ops.log(rest)
            slope = slope + C * other * (pr - fall) / rest
        size = ops.abs(z)
        tilt = -ops.expm1(-size) * ops.sigmoid(size)  # |p - q|
        return value - C * ops.where(z < 0, -tilt, tilt), slope - 2 * C * p * q

    def _score_start(self, ops: Ops, log_odds: Array) -> Array:
        return self.alpha * (log_odds + self.C * log_odds / (1 + ops.abs(log_odds)))


# ---- the limits on C ---------------------------------------------------------------------


@graph_constant
def monotone_bound(alpha: float) -> float:
    """C_mono: TBL falls with the margin exactly for C <= C_mono."""
    if math.isinf(alpha):
        return 1.0
    if abs(alpha - 1) < 1e-9:
        return math.e
    return math.exp(math.log(alpha) / (alpha - 1))


@graph_constant
def unique_bound(alpha: float) -> float:
    """C_uniq: every pointwise risk has one minimiser exactly for C < C_uniq."""
    return _unique_bound(alpha)


@graph_constant
def convex_bound(alpha: float) -> float:
    """C_conv: for alpha <= 1, TBL is convex in the score exactly for C <= C_conv."""
    return _convex_bound(alpha)


@lru_cache(maxsize=4096)
def _unique_bound(alpha: float) -> float:
    u = tuning(alpha)
    if alpha >= 0.5:
        D = math.log(2) if u == 0 else -math.expm1(-u * math.log(2)) / u
        return 2 * (1 - math.sqrt(max(0.0, 1 - D * (1 + u)))) / D
    low, high = 0.0, monotone_bound(alpha)
    # For small alpha the slope dips narrowly where monotonicity first fails, at p = alpha^(1/u).
    log_p = math.log(alpha) / u
    dip = log_p - math.log(-math.expm1(log_p))
    offsets = np.logspace(-10, 1, 300)
    start = np.unique(np.concatenate([np.linspace(0, 40, 801), dip - offsets, dip + offsets]))
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if _least(lambda m, C=middle: _link_slope(m, u, C), start) > 0:
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=4096)
def _convex_bound(alpha: float) -> float:
    u = tuning(alpha)
    if u < 0:
        return 0.0
    return _least(lambda m: _convex_root(m, u), np.linspace(-40, 40, 801))


def _logistic(m: Array, u: float) -> tuple[Array, Array, Array]:
    x = np.logaddexp(0, -m)
    r = -np.expm1(-u * x) / u if u else x
    return np.exp(-x), np.exp(-np.logaddexp(0, m)), r


def _convex_root(m: Array, u: float) -> Array:
    p, q, r = _logistic(m, u)
    square, linear, constant = p * p * q * r, p * (q - p) * r - 2 * p * q, p + u * q
    under = linear * linear - 4 * square * constant
    root = 2 * constant / (-linear + np.sqrt(np.maximum(under, 0)))
    return np.where((under >= 0) & (linear < 0), root, np.inf)


def _link_slope(m: Array, u: float, C: float) -> Array:
    total = 0.0
    for sign in (1.0, -1.0):
        p, q, r = _logistic(sign * m, u)
        rest = 1 - C * p * r
        fall = np.exp(-u * np.logaddexp(0, -sign * m))
        total = total + p + u * q - C * p * q + C * p * q * (r - fall) / rest
    return np.asarray(total)


def _least(function: Any, grid: Array) -> float:
    """The least value over the span of `grid`: its lowest point, then repeated zooms on that."""
    least = math.inf
    with np.errstate(all="ignore"):
        for _ in range(12):
            values = function(grid)
            best = int(np.nanargmin(values))
            least = min(least, float(values[best]))
            low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
            grid = np.linspace(low, high, 101)
    return least
