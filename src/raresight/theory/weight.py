"""The weight density of a loss, and integrals against it.

Let lambda be the log-odds, z the score that minimises the risk there, A(z) = -l'(1, z). At the prior
pi (odds rho) the loss weighs the log-likelihood ratio s by

    w(s) = pi A(z) / lambda'(z)   at   lambda(z) = log rho + s.

Every quantity of the theory is an integral of w against a function that does not depend on the loss. For the
centred f-function it is t - e^s, for statistical information the regret of the ROC curve. The density is
positive and computed by its logarithm, so nothing cancels and no prior is too small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..losses import Loss
from ..losses._numpy_ops import NumpyOps
from ._inputs import Array, log_odds_of

Indices = np.ndarray[Any, np.dtype[np.int64]]
Kernel = Callable[[Array], Array]

_LONGEST = 4.0  # of an interval to begin with, in units of s
_TOLERANCE = 1e-13  # of an interval's error, relative to the whole integral
_NOISE = 1e-12  # and relative to the interval's own
_MOST_SPLITS = 60
_MOST_INTERVALS = 400_000  # beyond this, splitting only chases rounding


@dataclass(frozen=True, eq=False)
class WeightDensity:
    """w of one loss at several priors."""

    loss: Loss
    priors: Array

    @cached_property
    def log_rho(self) -> Array:
        return log_odds_of(self.priors)

    def log(self, s: Array, which: Indices) -> Array:
        """Return log w(s) at the prior of index `which`."""
        ops = NumpyOps
        with ops.guard():
            # w is formed from logarithms: A and the prior underflow long before their product with e^s
            # matters.
            z = self.loss._score(ops, np.asarray(self.log_rho[which] + s))
            negative, positive = self.loss._log_slopes(ops, z, 0), self.loss._log_slopes(ops, z, 1)
            slope = negative[1] - positive[1]
            return np.asarray(np.log(self.priors)[which] + positive[0] - np.log(slope))


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Nodes s, the index of the prior that each is for, and w(s) min(1, e^s) ds there.

    Below s = 0 w may overflow, while every kernel falls at least like e^s. So the factor e^s is kept with the
    weight, and kernels are given without it.
    """

    s: Array
    which: Indices
    mass: Array
    n_priors: int

    def integrate(self, *kernels: Kernel) -> Array:
        """Return the integral of w times each kernel, for every prior: shape (kernels, priors)."""
        sums = [
            np.bincount(self.which, weights=self.mass * kernel(self.s), minlength=self.n_priors)
            for kernel in kernels
        ]
        return np.array(sums, dtype=np.float64)  # bincount of nothing counts in integers


def quadrature(weight: WeightDensity, edges: Array, kernel: Kernel) -> Quadrature:
    """Return Gauss' rule for w times `kernel` between the sorted `edges`, at every prior.

    Intervals are halved until two orders of the rule agree, relative to the whole integral. First, intervals
    are split where the log-odds cross zero. A loss with a nearly flat link has a sharp peak there (LDAM at
    even odds), which the nodes of a wide interval could miss.
    """
    fine = _filled(edges)
    n_priors = len(weight.priors)
    low, high = np.tile(fine[:-1], n_priors), np.tile(fine[1:], n_priors)
    which = np.repeat(np.arange(n_priors), len(fine) - 1)
    # Even odds, lambda = 0, lie at s = -log rho.
    at = -weight.log_rho[which]
    crossing = (low < at) & (at < high)
    low, high, which = (
        np.concatenate([low, at[crossing]]),
        np.concatenate([np.where(crossing, at, high), high[crossing]]),
        np.concatenate([which, which[crossing]]),
    )
    found: list[tuple[Array, Indices, Array]] = []
    settled = np.zeros(n_priors)
    for _ in range(_MOST_SPLITS):
        # The difference of orders 6 and 10 is the error of the lower one. It is a safe bound for the higher
        # one, which is kept.
        rough_s, _, rough_mass = _apply_rule(weight, low, high, which, 6)
        s, index, mass = _apply_rule(weight, low, high, which, 10)
        rough = (rough_mass * kernel(rough_s)).sum(axis=1)
        own = (mass * kernel(s)).sum(axis=1)
        whole = settled + np.bincount(which, weights=own, minlength=n_priors)
        poor = np.abs(rough - own) > _TOLERANCE * whole[which] + _NOISE * np.abs(own)
        # Intervals of a few roundings cannot be halved, and a kernel with a kink would ask for it for ever.
        poor &= (high - low > 1e-13 * (1 + np.abs(low))) & (low.size <= _MOST_INTERVALS)
        good = ~poor
        settled += np.bincount(which[good], weights=own[good], minlength=n_priors)
        found.append((s[good].ravel(), index[good].ravel(), mass[good].ravel()))
        if good.all():
            break
        middle = (low[poor] + high[poor]) / 2
        low, high = np.concatenate([low[poor], middle]), np.concatenate([middle, high[poor]])
        which = np.tile(which[poor], 2)
    nodes, indices, masses = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return Quadrature(nodes, indices, masses, n_priors)


def _filled(edges: Array) -> Array:
    """`edges` with as many more between them that none are farther apart than `_LONGEST`."""
    pieces = np.maximum(1, np.ceil(np.diff(edges) / _LONGEST)).astype(int)
    steps = np.repeat(np.diff(edges) / pieces, pieces)
    starts = np.repeat(edges[:-1], pieces)
    within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return np.append(starts + within * steps, edges[-1])


def _apply_rule(
    weight: WeightDensity, low: Array, high: Array, which: Indices, order: int
) -> tuple[Array, Indices, Array]:
    rule, rule_weights = np.polynomial.legendre.leggauss(order)
    half = (high - low)[:, None] / 2
    s = low[:, None] + half * (1 + rule)
    index = np.repeat(which[:, None], order, axis=1)
    with np.errstate(over="ignore", under="ignore"):
        # min(s, 0) joins the logarithm before it is taken back: w alone overflows at ratios of e^-800.
        return s, index, np.exp(weight.log(s, index) + np.minimum(s, 0)) * half * rule_weights
