"""The distribution of the log-likelihood ratio under P and Q: atoms, or a Gaussian pair's closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ._inputs import Array

# A ratio beyond e^4000 either way is as good as infinite or zero at any prior that can be written.
_FARTHEST = 4000.0


class Ratios(Protocol):
    """The distribution of log T under P and Q, as the theory reads it."""

    @property
    def edges(self) -> Array:
        """Levels between which the masses are smooth, in rising order; nothing lies beyond them."""

    @property
    def p_alone(self) -> float:
        """Mass of P where Q has none."""

    @property
    def q_alone(self) -> float:
        """Mass of Q where P has none."""

    def tails(self, s: Array) -> tuple[Array, Array]:
        """Masses of P and Q beyond level s: above it for s > 0, below it for s < 0."""


@dataclass(frozen=True, eq=False)
class Atoms:
    """log-likelihood ratios in rising order, their masses, and the masses that one side has alone."""

    s: Array
    p: Array
    q: Array
    p_alone: float
    q_alone: float

    @staticmethod
    def sorted_from(s: Array, p: Array, q: Array) -> Atoms:
        """From unordered atoms; s = inf where P alone has mass, -inf where Q alone has."""
        # Below even odds w(s) e^s falls with s for every loss, so that a mass this small adds nothing.
        kept = np.where(s < 0, q > 1e-40, p > 0)
        s, p, q = s[kept], p[kept], q[kept]
        above, below = s > _FARTHEST, s < -_FARTHEST
        inner = ~(above | below)
        order = np.argsort(s[inner], kind="stable")
        return Atoms(
            s[inner][order], p[inner][order], q[inner][order], float(p[above].sum()), float(q[below].sum())
        )

    @cached_property
    def above(self) -> tuple[Array, Array]:
        """Masses of P and of Q on the atoms from each index on; a zero at the end."""
        return _from_the_end(self.p), _from_the_end(self.q)

    @cached_property
    def below(self) -> tuple[Array, Array]:
        """Masses of P and of Q on the atoms before each index; a zero at the start."""
        return np.append(0.0, np.cumsum(self.p)), np.append(0.0, np.cumsum(self.q))

    @property
    def edges(self) -> Array:
        return self.s

    def tails(self, s: Array) -> tuple[Array, Array]:
        over = np.searchsorted(self.s, s, side="right")
        under = np.searchsorted(self.s, s, side="left")
        upward = s > 0
        p = np.where(upward, self.above[0][over], self.below[0][under])
        q = np.where(upward, self.above[1][over], self.below[1][under])
        return p, q


def _from_the_end(masses: Array) -> Array:
    return np.append(np.cumsum(masses[::-1])[::-1], 0.0)


@dataclass(frozen=True, eq=False)
class GaussianRatios:
    """log T(x) = a x^2 + b x + c of N(mean, sd^2) against N(0, 1), and its tails in closed form."""

    mean: float
    sd: float
    p_alone: float = 0.0
    q_alone: float = 0.0

    @property
    def _quadratic(self) -> tuple[float, float, float]:
        precision = self.sd**-2
        # (sd^2 - 1)/(2 sd^2), without the cancellation of sd^2 - 1 near one: the sign of a decides which
        # tails count.
        a = 0.5 * (self.sd - 1) * (self.sd + 1) * precision
        return a, self.mean * precision, -math.log(self.sd) - 0.5 * self.mean**2 * precision

    def _log_ratio(self, x: Array) -> Array:
        a, b, c = self._quadratic
        return (a * x + b) * x + c

    @property
    def edges(self) -> Array:
        """From where Q ends below to where P ends above, finely near the turning point of T."""
        a, b, _ = self._quadratic
        if self.mean == 0 and self.sd == 1:
            return np.zeros(1)
        # Both densities are below 1e-37 of their peak beyond 13 deviations.
        far = 13.0
        ends = np.array([-far, far, self.mean - far * self.sd, self.mean + far * self.sd])
        # Cut at e^4000 either way: w falls exponentially from even odds, and nothing is left out there.
        levels = [*np.clip(self._log_ratio(ends), -_FARTHEST, _FARTHEST).tolist(), 0.0]
        turn = -b / (2 * a) if a else math.inf
        if not ends.min() < turn < ends.max():
            return np.unique(levels)
        # The masses have a square root there, which panels of falling length can follow.
        level = float(np.clip(self._log_ratio(np.array(turn)), -_FARTHEST, _FARTHEST))
        near = level + math.copysign(1.0, a) * 2.0 ** -np.arange(0.0, 50.0, 1.0)
        bound = max(levels) if a > 0 else min(levels)
        inner = near[(near < bound) if a > 0 else (near > bound)]
        return np.unique([bound, 0.0, level, *inner.tolist()])

    def tails(self, s: Array) -> tuple[Array, Array]:
        left, right, everywhere = self._crossings(s)
        a, b, _ = self._quadratic
        # Beyond the level means outside the crossings where T bends up and s is above zero, or both not.
        outside = (s > 0) == (a > 0)
        if a == 0:
            outside = np.full(s.shape, True)
            upward = (s > 0) == (b > 0)
            left, right = np.where(upward, -np.inf, left), np.where(upward, left, np.inf)
        return tuple(  # type: ignore[return-value]
            np.where(
                outside,
                np.where(everywhere, 1.0, _outside(left, right, mean, sd)),
                np.where(everywhere, 0.0, _inside(left, right, mean, sd)),
            )
            for mean, sd in ((self.mean, self.sd), (0.0, 1.0))
        )

    def _crossings(self, s: Array) -> tuple[Array, Array, Any]:
        """Return where log T = s: two points (one where T is monotone), or none."""
        a, b, c = self._quadratic
        if a == 0:
            x = (s - c) / b
            return x, x, np.zeros(s.shape, dtype=bool)
        under = b * b - 4 * a * (c - s)
        root = np.sqrt(np.maximum(under, 0.0))
        # The textbook formula cancels in one of the two roots; their product gives that one.
        larger = -(b + math.copysign(1.0, b) * root) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = larger / a, np.where(larger == 0, 0.0, (c - s) / larger)
        return np.minimum(first, second), np.maximum(first, second), under < 0


def _outside(left: Array, right: Array, mean: float, sd: float) -> Array:
    from scipy.special import ndtr

    return np.asarray(ndtr((left - mean) / sd) + ndtr((mean - right) / sd))


def _inside(left: Array, right: Array, mean: float, sd: float) -> Array:
    """Return the mass between, as a difference of the smaller tails."""
    from scipy.special import ndtr

    low, high = (left - mean) / sd, (right - mean) / sd
    # In the right tail both values of Psi are near one, and their difference has no digits.
    mirrored = low > 0
    low, high = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    # Near the turning point of T the two are a rounding apart, by which ndtr may fall where it should rise.
    return np.asarray(np.maximum(ndtr(high) - ndtr(low), 0.0))


def divergence_of_atoms(atoms: Atoms, beta: float) -> float:
    s, p, q = atoms.s, atoms.p, atoms.q
    # t = infinity has phi(t) = infinity from beta = 1 on, t = 0 up to beta = 0.
    if (atoms.p_alone > 0 and beta >= 1) or (atoms.q_alone > 0 and beta <= 0):
        return math.inf
    with np.errstate(over="ignore"):
        if beta == 1:
            total = np.sum(p * s - p + q) + atoms.q_alone
        elif beta == 0:
            total = np.sum(-q * s + p - q) + atoms.p_alone
        else:
            # q phi(t), with q e^s written as p so that neither overflows alone.
            grown = np.where(s > 0, p * np.exp((beta - 1) * s) - q, q * np.expm1(beta * s))
            total = np.sum(grown - beta * (p - q)) / (beta * (beta - 1))
            total += atoms.p_alone / (1 - beta) + (atoms.q_alone / beta if beta else 0.0)
    return float(total) if math.isfinite(total) else math.inf
