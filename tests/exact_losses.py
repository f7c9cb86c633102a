"""Losses in multi-precision arithmetic, written from their formulas and from nothing of the package.

A loss is l(y, z) and |l'(y, z)|. From these come the link, its inverse, and what the theory says.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from mpmath import mpf

from raresight.losses import (
    LDAM,
    TBL,
    Alpha,
    ClassWeighted,
    CrossEntropy,
    Erf,
    Focal,
    LogitAdjusted,
    Loss,
    NonConvexLossWarning,
    Poly,
    Squared,
    VectorScaling,
)
from raresight.losses.tbl import unique_bound

DIGITS = 50

Number = Any


@dataclass(frozen=True)
class Exact:
    """Values of l(1, z), l(0, z) and the sizes of their slopes."""

    value: Callable[[int, Number], Number]
    slope: Callable[[int, Number], Number]

    def link(self, z: Number) -> Number:
        return mpmath.log(self.slope(0, z)) - mpmath.log(self.slope(1, z))

    def score(self, log_odds: Number, near: float = 0.0) -> Number:
        """The score at which the link is `log_odds`; `near` only says where to look first."""
        # A bracket that doubles, and in it the secant of Illinois, which halves where it would stall.
        reach = mpf(10) ** -12 * (1 + abs(near))
        while not self.link(near - reach) < log_odds < self.link(near + reach):
            reach *= 8
        low, high = near - reach, near + reach
        below, above = self.link(low) - log_odds, self.link(high) - log_odds
        side = 0
        while high - low > mpf(10) ** -30 * (1 + abs(low)):
            middle = low - below * (high - low) / (above - below)
            if not low < middle < high:
                middle = (low + high) / 2
            found = self.link(middle) - log_odds
            if found == 0:
                return middle
            if found < 0:
                low, below = middle, found
                above = above / 2 if side < 0 else above
                side = -1
            else:
                high, above = middle, found
                below = below / 2 if side > 0 else below
                side = 1
        return (low + high) / 2

    def least_cost(self, log_odds: Number, near: float = 0.0) -> Number:
        """inf_z x l(1, z) + l(0, z) at the odds x."""
        z = self.score(log_odds, near)
        return mpmath.exp(log_odds) * self.value(1, z) + self.value(0, z)


def exact(loss: Loss) -> Exact:
    """The exact form of a loss of this package, or of a composition of them."""
    if isinstance(loss, LogitAdjusted):
        base = exact(loss.base)
        prior = [mpf(share) for share in loss.class_priors]
        shift = mpf(loss.tau) * (mpmath.log(prior[1]) - mpmath.log(prior[0]))
        return Exact(lambda y, z: base.value(y, z + shift), lambda y, z: base.slope(y, z + shift))
    if isinstance(loss, ClassWeighted):
        base, weights = exact(loss.base), [mpf(weight) for weight in loss.weights]
        return Exact(lambda y, z: weights[y] * base.value(y, z), lambda y, z: weights[y] * base.slope(y, z))
    phi, pull = _margin_form(loss)
    scale, offset = [mpf(1), mpf(1)], [mpf(0), mpf(0)]
    if isinstance(loss, VectorScaling):
        scale, offset = [mpf(loss.delta_neg), mpf(loss.delta)], [mpf(loss.iota_neg), mpf(loss.iota_pos)]
    if isinstance(loss, LDAM):
        rarest = min(loss.class_counts)
        margins = [mpf(loss.max_margin) * (mpf(rarest) / n) ** mpf(0.25) for n in loss.class_counts]
        scale, offset = [mpf(loss.scale)] * 2, [loss.scale * margin for margin in margins]

    def margin(y: int, z: Number) -> Number:
        return scale[y] * (z if y else -z) - offset[y]

    return Exact(lambda y, z: phi(margin(y, z)), lambda y, z: scale[y] * pull(margin(y, z)))


def _margin_form(loss: Loss) -> tuple[Callable[[Number], Number], Callable[[Number], Number]]:
    """phi(m) and -phi'(m)."""
    if isinstance(loss, Squared):
        return lambda m: _q(m) ** 2, lambda m: 2 * _p(m) * _q(m) ** 2
    if isinstance(loss, Erf):
        return lambda m: mpmath.npdf(m) - m * _psi(-m), lambda m: _psi(-m)
    if isinstance(loss, Focal):
        g = mpf(loss.gamma)
        return (
            lambda m: _q(m) ** g * _x(m),
            lambda m: _q(m) ** g * (_q(m) + g * _p(m) * _x(m)),
        )
    if isinstance(loss, Poly):
        e = mpf(loss.epsilon)
        # For e < 0 as (1 + e) - e q: at e = -1 it is q, however small.
        stretch = (lambda m: 1 + e * _p(m)) if e >= 0 else (lambda m: (1 + e) - e * _q(m))
        return lambda m: _x(m) + e * _q(m), lambda m: _q(m) * stretch(m)
    if isinstance(loss, (Alpha, TBL)):
        alpha, C = mpf(loss.alpha), mpf(getattr(loss, "C", 0.0))
        u = 1 / alpha - 1

        def growth(m: Number) -> Number:
            return mpmath.expm1(u * _x(m)) / u if u else _x(m)

        def damping(m: Number) -> Number:
            return mpmath.exp(-C * _q(m))

        return (
            lambda m: damping(m) * growth(m),
            lambda m: damping(m) * _q(m) * (mpmath.exp(u * _x(m)) - C * _p(m) * growth(m)),
        )
    if isinstance(loss, (CrossEntropy, VectorScaling, LDAM)):
        return _x, _q
    raise TypeError(f"no exact form of {loss!r} is written down")


def _x(m: Number) -> Number:
    """-log p = log(1 + e^-m)."""
    return mpmath.log1p(mpmath.exp(-m)) if m > 0 else -m + mpmath.log1p(mpmath.exp(m))


def _p(m: Number) -> Number:
    return mpmath.exp(-_x(m))


def _q(m: Number) -> Number:
    return mpmath.exp(-_x(-m))


def _psi(m: Number) -> Number:
    """The normal distribution function."""
    return mpmath.erfc(-m / mpmath.sqrt(2)) / 2


def _tbl(alpha: float, share: float) -> TBL:
    """TBL with C at a share of the range in which every risk has one minimiser."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonConvexLossWarning)
        return TBL(alpha, share * unique_bound(alpha))


# Every loss at the ends of its parameters, and between. A parameter without an upper bound ends where double
# precision no longer tells the loss from its limit.
_NEAR_ONE = (math.nextafter(1, 0), 1.0, math.nextafter(1, 2))
EXTREMES: list[Loss] = [
    CrossEntropy(),
    Squared(),
    Erf(),
    *(Focal(gamma) for gamma in (0.0, 1e-300, 1e-8, 0.25, 2.0, 4.0, 50.0, 1e3)),
    *(Poly(epsilon) for epsilon in (-1.0, math.nextafter(-1, 0), -1 + 1e-12, -1 + 1e-8, -0.999, -0.9)),
    *(Poly(epsilon) for epsilon in (-0.5, -1e-300, 0.0, 1.0, 3.0, 1e6)),
    *(Alpha(alpha) for alpha in (1e-6, 1e-3, 0.05, 0.5, 0.8, 0.999999, *_NEAR_ONE, 1.5, 2.0, 100.0, 1e6)),
    *(
        _tbl(alpha, share)
        for alpha in (1e-6, 1e-3, 0.05, 0.3, 0.5, 0.8, 0.999999, 1.0, 1.5, 2.0, 100.0, 1e6)
        for share in (1e-12, 0.5, 1 - 1e-6)
    ),
    *(VectorScaling(delta) for delta in (1e-6, 0.05, 1.0, 20.0, 1e6)),
    *(VectorScaling(0.5, delta_neg=scale) for scale in (1e-3, 1e3)),
    *(VectorScaling(0.5, iota_pos=iota, iota_neg=-iota) for iota in (50.0, -50.0)),
    VectorScaling(0.5, iota_pos=700.0),
    LDAM((1, 1), 0.0),
    LDAM((1e12, 1)),
    LDAM((1, 1e12)),
    *(LDAM((9900, 100), margin, 1.0) for margin in (0.0, 3.0, 100.0)),
    *(LDAM((9900, 100), 0.5, scale) for scale in (1e-3, 1e3)),
    LogitAdjusted(CrossEntropy(), 1e-300),
    LogitAdjusted(Focal(1.0), 1 - 1e-16),
    LogitAdjusted(TBL(), 1e-6, tau=-2.0),
    LogitAdjusted(Erf(), 0.01, tau=0.0),
    ClassWeighted(TBL(), (1e-300, 1.0)),
    ClassWeighted(Erf(), (1.0, 1e300)),
    ClassWeighted(LogitAdjusted(Poly(-1.0), 0.001), (1.0, 99.0)),
]


def random_losses(count: int, seed: int = 0) -> list[Loss]:
    """Losses of every kind with parameters from all over their ranges."""
    random = np.random.default_rng(seed)

    def anywhere(low: float, high: float) -> float:
        return float(10 ** random.uniform(low, high))

    def one(kind: int) -> Loss:
        if kind == 0:
            return Focal(anywhere(-6, 2))
        if kind == 1:
            return Poly(-1 + anywhere(-12, 4))
        if kind == 2:
            return Alpha(anywhere(-5, 4))
        if kind == 3:
            return _tbl(anywhere(-4, 3), float(random.uniform(0, 0.999)))
        if kind == 4:
            iota = random.uniform(-60, 60, 2)
            return VectorScaling(
                anywhere(-3, 3), delta_neg=anywhere(-3, 3), iota_pos=float(iota[0]), iota_neg=float(iota[1])
            )
        if kind == 5:
            return LDAM((anywhere(0, 9), anywhere(0, 9)), anywhere(-3, 2), anywhere(-3, 3))
        base = one(int(random.integers(0, 6)))
        if kind == 6:
            return LogitAdjusted(base, anywhere(-30, -0.001), float(random.uniform(-2, 2)))
        return ClassWeighted(base, (anywhere(-20, 20), anywhere(-20, 20)))

    return [one(i % 8) for i in range(count)]
