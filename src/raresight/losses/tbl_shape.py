"""The exact limits on C within which TBL is monotone, convex, and uniquely minimised.

With u = 1/alpha - 1 and r(p) = (1 - p^u)/u:

* monotone iff C <= alpha^(1/(alpha-1)) for alpha <= 1: C p r(p) must not pass 1;
* one minimiser of every risk iff the link's slope is positive at every p; from alpha = 1/2 up the
  binding point is p = 1/2, which gives C < 2 (1 - sqrt(1 - D (1+u)))/D with D = (1 - 2^-u)/u;
* convex iff, for every p, C is at most the smaller root of the quadratic
  p^2 q r C^2 + (p (q-p) r - 2 p q) C + p + u q.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from .alpha import tuning

__all__ = ["convex_bound", "monotone_bound", "unique_bound"]

Array = np.ndarray[Any, Any]


def monotone_bound(alpha: float) -> float:
    """C_mono: TBL falls with the margin exactly for C <= C_mono."""
    if math.isinf(alpha):
        return 1.0
    if abs(alpha - 1) < 1e-9:
        return math.e
    return math.exp(math.log(alpha) / (alpha - 1))


def unique_bound(alpha: float) -> float:
    """C_uniq: every pointwise risk has one minimiser exactly for C < C_uniq."""
    return _unique_bound(alpha)


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
