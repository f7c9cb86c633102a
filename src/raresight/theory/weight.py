"""The weight density of a loss, and integrals against it.

Let lambda be the log-odds, z the score that minimises the risk there, A(z) = -l'(1, z). At the prior
pi (odds rho) the loss weighs the log-likelihood ratio s by

    w(s) = pi A(z) / lambda'(z)   at   lambda(z) = log rho + s.

Every quantity of the theory is an integral of w against something that does not know the loss: the
centred f-function against t - e^s, statistical information against the ROC curve's regret. w is
positive and known through its logarithm, so that nothing cancels and no prior is too small.
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

_LONGEST = 0.5  # of an interval, in units of s
_SHORT = 0.15  # below this length fewer nodes do
_TOLERANCE = 1e-10  # relative, of the integral of w over one interval
_MOST_SPLITS = 40
_MOST_INTERVALS = 200_000  # to split further than this would be to chase rounding


@dataclass(frozen=True, eq=False)
class WeightDensity:
    """w of one loss at several priors."""

    loss: Loss
    priors: Array

    @cached_property
    def log_rho(self) -> Array:
        return log_odds_of(self.priors)

    def log(self, s: Array, which: Indices) -> Array:
        """log w(s) at the prior of index `which`."""
        ops = NumpyOps
        with ops.guard():
            z = self.loss._score(ops, np.asarray(self.log_rho[which] + s))
            negative, positive = self.loss._log_slopes(ops, z, 0), self.loss._log_slopes(ops, z, 1)
            slope = negative[1] - positive[1]
            return np.asarray(np.log(self.priors)[which] + positive[0] - np.log(slope))


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Nodes s, the index of the prior that each is for, and w ds there."""

    s: Array
    which: Indices
    mass: Array
    n_priors: int

    def integrate(self, *kernels: Callable[[Array], Array]) -> Array:
        """The integral of w times each kernel, a function of s, for every prior: (kernels, priors)."""
        sums = [
            np.bincount(self.which, weights=self.mass * kernel(self.s), minlength=self.n_priors)
            for kernel in kernels
        ]
        return np.array(sums)


def quadrature(weight: WeightDensity, edges: Array) -> Quadrature:
    """Gauss' rule for w between the sorted `edges`, at every prior.

    Intervals are halved until two orders of the rule agree on the integral of w over them: a loss
    whose link is nearly flat somewhere, such as LDAM at even odds, has a sharp peak there. Where the
    log-odds cross zero every interval is split first, so that no such peak hides in the middle.
    """
    fine = _filled(edges)
    n_priors = len(weight.priors)
    low, high = np.tile(fine[:-1], n_priors), np.tile(fine[1:], n_priors)
    which = np.repeat(np.arange(n_priors), len(fine) - 1)
    at = -weight.log_rho[which]
    crossing = (low < at) & (at < high)
    low, high, which = (
        np.concatenate([low, at[crossing]]),
        np.concatenate([np.where(crossing, at, high), high[crossing]]),
        np.concatenate([which, which[crossing]]),
    )
    found: list[tuple[Array, Indices, Array]] = []
    for _ in range(_MOST_SPLITS):
        short = high - low < _SHORT
        again = np.zeros(len(low), dtype=bool)
        for chosen, coarse, order in ((short, 3, 5), (~short, 6, 10)):
            rough = _apply_rule(weight, low[chosen], high[chosen], which[chosen], coarse)[2]
            s, index, mass = _apply_rule(weight, low[chosen], high[chosen], which[chosen], order)
            total = mass.sum(axis=1)
            poor = np.abs(rough.sum(axis=1) - total) > _TOLERANCE * total
            good = ~(poor & (high[chosen] - low[chosen] > 1e-12 * (1 + np.abs(low[chosen]))))
            good |= again.size > _MOST_INTERVALS
            found.append((s[good].ravel(), index[good].ravel(), mass[good].ravel()))
            again[np.nonzero(chosen)[0][~good]] = True
        if not again.any():
            break
        middle = (low[again] + high[again]) / 2
        low, high = np.concatenate([low[again], middle]), np.concatenate([middle, high[again]])
        which = np.tile(which[again], 2)
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
        return s, index, np.exp(weight.log(s, index)) * half * rule_weights
