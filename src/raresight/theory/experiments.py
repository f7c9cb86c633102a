"""Experiments: a pair of distributions, P of the features of positives and Q of negatives.

Only the likelihood ratio T = dP/dQ under both matters: the masses of P and Q beyond every level of log T
(`Ratios`). A discrete pair, or the ROC curve of a model, has finitely many atoms of log T. A Gaussian pair
has closed forms. For any other continuous pair the atoms are the nodes of a quadrature rule, for which the
same integrals are exact to rounding.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..common.checks import real_numbers
from ..common.dependent_rows import group_codes, group_units
from ._inputs import Array
from .ratios import Atoms, GaussianRatios, Ratios, divergence_of_atoms

__all__ = [
    "DensityExperiment",
    "DiscreteExperiment",
    "EmpiricalExperiment",
    "Experiment",
    "GaussianExperiment",
]


class Experiment(ABC):
    """A pair (P, Q)."""

    @property
    @abstractmethod
    def ratios(self) -> Ratios:
        """The distribution of the log-likelihood ratio."""

    @abstractmethod
    def divergence(self, beta: float) -> float:
        """Return the Cressie-Read divergence D_beta(P||Q); see `raresight.theory.divergence`."""


class AtomicExperiment(Experiment):
    """An experiment whose log-likelihood ratio has finitely many values."""

    @property
    @abstractmethod
    def atoms(self) -> Atoms:
        """The values and their masses."""

    @property
    def ratios(self) -> Atoms:
        return self.atoms

    def divergence(self, beta: float) -> float:
        return divergence_of_atoms(self.atoms, beta)


@dataclass(frozen=True, eq=False)
class DiscreteExperiment(AtomicExperiment):
    """Finitely many outcomes, with probabilities `p` under P and `q` under Q.

    An outcome may have no probability under one of the two.

    >>> DiscreteExperiment([0.1, 0.9], [0.6, 0.4]).atoms.s.round(3).tolist()
    [-1.792, 0.811]
    """

    p: Any
    q: Any

    def __post_init__(self) -> None:
        p, q = real_numbers(self.p, "p"), real_numbers(self.q, "q")
        if p.ndim != 1 or p.shape != q.shape or p.size == 0:
            raise ValueError(f"p and q must be vectors of one length, got shapes {p.shape} and {q.shape}")
        for name, masses in (("p", p), ("q", q)):
            if (masses < 0).any():
                raise ValueError(f"{name}[{int(np.argmax(masses < 0))}] is negative: {masses[masses < 0][0]}")
            if abs(masses.sum() - 1) > 1e-9:
                raise ValueError(f"the probabilities {name} must sum to one, got {float(masses.sum())!r}")
            object.__setattr__(self, name, masses)

    @cached_property
    def atoms(self) -> Atoms:
        with np.errstate(divide="ignore", invalid="ignore"):
            return Atoms.sorted_from(np.log(self.p) - np.log(self.q), self.p, self.q)


@dataclass(frozen=True, eq=False)
class GaussianExperiment(Experiment):
    """P = N(mean, sd^2) against Q = N(0, 1).

    >>> round(GaussianExperiment(1.0, 1.0).divergence(1.0), 6)  # Kullback-Leibler: mean^2/2
    0.5
    """

    mean: float
    sd: float = 1.0

    def __post_init__(self) -> None:
        if not math.isfinite(self.mean):
            raise ValueError(f"mean must be finite, got {self.mean}")
        if not 0 < self.sd < math.inf:
            raise ValueError(f"sd must be positive and finite, got {self.sd}")

    @property
    def ratios(self) -> GaussianRatios:
        return GaussianRatios(self.mean, self.sd)

    def divergence(self, beta: float) -> float:
        variance = self.sd**2
        if beta == 1:
            return 0.5 * (variance + self.mean**2 - 1) - math.log(self.sd)
        if beta == 0:
            return 0.5 * ((1 + self.mean**2) / variance - 1) + math.log(self.sd)
        precision = beta / variance + 1 - beta  # of the density p^beta q^(1-beta), if it is one
        if precision <= 0:
            return math.inf
        pull = beta * self.mean / variance
        exponent = 0.5 * pull**2 / precision - 0.5 * pull * self.mean
        log_integral = exponent - beta * math.log(self.sd) - 0.5 * math.log(precision)
        # The integral of p^beta q^(1-beta) is near one for pairs that are close: expm1 keeps the difference.
        return math.expm1(log_integral) / (beta * (beta - 1))


@dataclass(frozen=True, eq=False)
class DensityExperiment(AtomicExperiment):
    """Any pair of densities on an interval of the line.

    `log_ratio(x)` is log dP/dQ and `log_density(x)` the log density of Q, both on arrays. `support`
    is the interval; on an infinite one, `centre` and `scale` give the place of the densities. Tails may be
    heavy: the nodes reach 1e16 scales out. There log_ratio + log_density has lost its digits, so
    `log_density_p`, the log density of P, is needed as well (`from_densities` passes it).

    After a change of variable Gauss' rule is used on intervals over which log_ratio changes little. This
    suits every loss except one with a nearly flat link (LDAM near even odds), for which it is 1e-5 off. Both
    densities must integrate to one by this rule.

    >>> import numpy as np
    >>> pair = DensityExperiment(lambda x: x - 0.5, lambda x: -x * x / 2 - np.log(2 * np.pi) / 2)
    >>> round(pair.divergence(1.0), 6)
    0.5
    """

    log_ratio: Callable[[Array], Array]
    log_density: Callable[[Array], Array]
    support: tuple[float, float] = (-math.inf, math.inf)
    centre: float = 0.0
    scale: float = 1.0
    log_density_p: Callable[[Array], Array] | None = None

    @classmethod
    def from_densities(
        cls,
        log_p: Callable[[Array], Array],
        log_q: Callable[[Array], Array],
        support: tuple[float, float] = (-math.inf, math.inf),
        centre: float = 0.0,
        scale: float = 1.0,
    ) -> DensityExperiment:
        """From the log densities of P and Q."""
        return cls(lambda x: log_p(x) - log_q(x), log_q, support, centre, scale, log_p)

    def __post_init__(self) -> None:
        low, high = self.support
        if not low < high:
            raise ValueError(f"support must be an interval (low, high), got {self.support}")
        if not 0 < self.scale < math.inf:
            raise ValueError(f"scale must be positive, got {self.scale}")
        for name, mass in (
            ("P", self.atoms.p.sum() + self.atoms.p_alone),
            ("Q", self.atoms.q.sum() + self.atoms.q_alone),
        ):
            if not abs(mass - 1) < 1e-6:
                raise ValueError(
                    f"the density of {name} integrates to {mass:.6g} instead of one: check log_ratio and "
                    "log_density, or set centre and scale"
                )

    @cached_property
    def atoms(self) -> Atoms:
        u, width = self._nodes()
        x, log_slope = self._change_of_variable(u)
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            s, log_q = self._evaluated(self.log_ratio, x), self._evaluated(self.log_density, x)
            log_p = s + log_q
            if self.log_density_p is not None:
                log_p = self._evaluated(self.log_density_p, x)
            p, q = np.exp(log_p + log_slope) * width, np.exp(log_q + log_slope) * width
        lost = np.isnan(p)  # -inf + inf: no digits are left of a density this far out
        return Atoms.sorted_from(s[~lost], p[~lost], q[~lost])

    def _evaluated(self, function: Callable[[Array], Array], x: Array) -> Array:
        values = np.asarray(function(x), dtype=np.float64)
        if values.shape != x.shape:
            raise ValueError("log_ratio and log_density must return an array of the shape they are given")
        if np.isnan(values).any():
            raise ValueError(f"log_ratio or log_density is nan at x = {x[np.isnan(values)][0]}")
        return values

    def _nodes(self) -> tuple[Array, Array]:
        """Gauss' nodes in u, on intervals halved until log_ratio changes by less than 2 over each."""
        low, high = {0: (-3.2, 3.2), 1: (-4.5, 37.0), 2: (-37.0, 37.0)}[sum(map(math.isinf, self.support))]
        # In u the integrand falls double-exponentially at the ends, so that panels of 0.2 are fine to start
        # with.
        edges = np.linspace(low, high, math.ceil((high - low) / 0.2) + 1)
        for _ in range(30):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                s = self._evaluated(self.log_ratio, self._change_of_variable(edges)[0])
                change, nearest = np.abs(np.diff(s)), np.minimum(np.abs(s[1:]), np.abs(s[:-1]))
            # Near even odds a loss may turn within a unit of log-odds; far out only e^s matters, and beyond
            # 2000 nothing does.
            coarse = (change > np.where(nearest < 40, 0.5, 2.0)) & (nearest < 2000)
            if not coarse.any():
                break
            edges = np.sort(np.append(edges, (edges[:-1] + edges[1:])[coarse] / 2))
        rule, weights = np.polynomial.legendre.leggauss(10)
        half = np.diff(edges)[:, None] / 2
        return (edges[:-1, None] + half * (1 + rule)).ravel(), (half * weights).ravel()

    def _change_of_variable(self, u: Array) -> tuple[Array, Array]:
        """x(u), and the log of dx/du."""
        low, high = self.support
        if math.isinf(low) and math.isinf(high):
            x, log_slope = self.centre + self.scale * np.sinh(u), np.log(np.cosh(u)) + math.log(self.scale)
        elif math.isinf(low) or math.isinf(high):
            # exp(u - e^-u) meets the finite end doubly exponentially, infinity exponentially.
            away = self.scale * np.exp(u - np.exp(-u))
            x = low + away if math.isinf(high) else high - away
            log_slope = u - np.exp(-u) + np.log1p(np.exp(-u)) + math.log(self.scale)
        else:
            inner = 0.5 * math.pi * np.sinh(u)
            x = 0.5 * (low + high) + 0.5 * (high - low) * np.tanh(inner)
            log_slope = (
                math.log(0.25 * math.pi * (high - low)) + np.log(np.cosh(u)) - 2 * np.log(np.cosh(inner))
            )
        return x, log_slope


@dataclass(frozen=True, eq=False)
class EmpiricalExperiment(AtomicExperiment):
    """Held-out scores of a model.

    `atoms` are the segments of their ROC convex hull: the slope of each is the likelihood ratio. A hull
    follows the noise of its rows, so on these rows it flatters, and on other rows it disappoints. Information
    is therefore the mean of three readings of each row: one off the hull of all rows, two off hulls that the
    row had no part in (`log_ratios`).

    Where ratios rise smoothly a hull flatters three times as much as it disappoints, and where they do not
    rise as much: two to one lies between. Where scores explain 0.63 of the cross entropy, 30 positives and
    4000 negatives give 0.69 by the hull on average, and 0.63 by the mean.

    Use held-out scores: no correction helps on the rows that the model was fitted to.

    Args:
        y_true: Labels 0 and 1.
        y_score: Scores, larger for positives.
        groups: What each row belongs to, such as a customer, if rows depend on each other. Whole groups are
            left out then, and `explained_interval` counts groups. Default: every row is independent.

    >>> EmpiricalExperiment([0, 0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]).atoms.p.round(3).tolist()
    [0.333]
    """

    y_true: Any
    y_score: Any
    groups: Any = None

    def __post_init__(self) -> None:
        labels, scores = np.asarray(self.y_true), real_numbers(self.y_score, "y_score")
        if labels.ndim != 1 or labels.shape != scores.shape or labels.size == 0:
            raise ValueError(
                "y_true and y_score must be vectors of one length, "
                f"got shapes {labels.shape} and {scores.shape}"
            )
        wrong = (labels != 0) & (labels != 1)
        if wrong.any():
            raise ValueError(f"labels must be 0 or 1: y_true[{int(np.argmax(wrong))}] is {labels[wrong][0]}")
        positives = int(np.count_nonzero(labels))
        if positives in (0, labels.size):
            raise ValueError(f"both classes are needed, got {positives} positives among {labels.size} labels")
        object.__setattr__(self, "y_true", labels.astype(bool))
        object.__setattr__(self, "y_score", scores)
        codes = group_codes(self.groups, labels.size)
        if codes is not None:
            group_units(self.y_true, codes)  # each class needs two groups
        object.__setattr__(self, "groups", codes)

    @cached_property
    def _order(self) -> Places:
        return np.argsort(-self.y_score, kind="stable")

    @cached_property
    def codes_of_classes(self) -> tuple[Places, Places]:
        """The group of each positive and of each negative, in the order of `log_ratios`; rows if none."""
        codes = np.arange(self.y_true.size) if self.groups is None else self.groups
        ordered, labels = codes[self._order], self.y_true[self._order]
        return ordered[labels], ordered[~labels]

    @cached_property
    def _places(self) -> tuple[Places, Places]:
        """The place of each positive and of each negative among the distinct scores, from the top."""
        # Equal scores share a place; compared, since the difference of two infinities is no number.
        scores, labels = self.y_score[self._order], self.y_true[self._order]
        places = np.cumsum(np.append(False, scores[1:] != scores[:-1]))
        return places[labels], places[~labels]

    @cached_property
    def atoms(self) -> Atoms:
        _, hits, false_positives = _pooled(*_counts(self._places))
        p, q = hits / hits.sum(), false_positives / false_positives.sum()
        with np.errstate(divide="ignore"):
            return Atoms.sorted_from(np.log(p) - np.log(q), p, q)

    @cached_property
    def log_ratios(self) -> tuple[Array, Array]:
        """Three readings of log T of the positives, and of the negatives: two arrays of shape (3, rows).

        The first is off the hull of all rows. The others are off hulls of nine tenths of the rows, for the
        tenth left out, in two deals of the rows into folds.
        """
        counts = _counts(self._places)
        whole = _log_ratios(*counts)
        readings = tuple(np.stack([whole[places]] * 3) for places in self._places)
        # Dealt by chance. Dealt by rank, the left-out rows lie so evenly among the others that they are read
        # better than new rows would be. The seed is fixed, and the order of the table plays no part.
        random = np.random.default_rng(0)
        for deal in (1, 2):
            if self.groups is None:
                folds = [random.permutation(places.size) % _FOLDS for places in self._places]
            else:
                # A row of a group that the hull has seen would flatter it as its own rows do.
                fold_of = random.permutation(int(self.groups.max()) + 1) % _FOLDS
                folds = [fold_of[codes] for codes in self.codes_of_classes]
            for fold in range(_FOLDS):
                left_out = [np.flatnonzero(own == fold) for own in folds]
                seen = [places[out] for places, out in zip(self._places, left_out, strict=True)]
                hits, false_positives = _counts(seen, whole.size)
                found = _log_ratios(counts[0] - hits, counts[1] - false_positives, doubt=1.0)
                for rows, out, places in zip(readings, left_out, seen, strict=True):
                    rows[deal, out] = found[places]
        positives, negatives = readings
        return positives, negatives

    @cached_property
    def ratios(self) -> Atoms:
        """A third of each row at each of its readings: no hull of its own, but their mean."""
        positives, negatives = self.log_ratios
        s, places = np.unique(np.concatenate([positives.ravel(), negatives.ravel()]), return_inverse=True)
        p = np.bincount(places[: positives.size], minlength=s.size) / positives.size
        q = np.bincount(places[positives.size :], minlength=s.size) / negatives.size
        inner = np.isfinite(s)
        return Atoms(s[inner], p[inner], q[inner], float(p[s == np.inf].sum()), float(q[s == -np.inf].sum()))


Places = np.ndarray[Any, np.dtype[np.intp]]

_FOLDS = 10


def _counts(places: Sequence[Places], size: int = 0) -> tuple[Array, Array]:
    """Positives and negatives at each place."""
    size = max(size, *(int(rows.max(initial=-1)) + 1 for rows in places))
    hits, false_positives = (np.bincount(rows, minlength=size).astype(np.float64) for rows in places)
    return hits, false_positives


def _log_ratios(hits: Array, false_positives: Array, doubt: float = 0.0) -> Array:
    """log T at each place by the hull of these counts; where nothing was counted, between the neighbours.

    `doubt` is the weight of a negative above all and of a positive below all. Without it a few rows at an end
    would make a ratio infinite, and one row of another fold there would cost without limit. With one row new
    rows are read best; a half, two and four were tried.
    """
    p, q = np.concatenate([[0.0], hits, [doubt]]), np.concatenate([[doubt], false_positives, [0.0]])
    counted = p + q > 0
    starts, pooled_p, pooled_q = _pooled(p[counted], q[counted])
    with np.errstate(divide="ignore"):
        log_t = np.log(pooled_p / p.sum()) - np.log(pooled_q / q.sum())
    ends = np.append(starts[1:], np.count_nonzero(counted))
    log_t = np.repeat(log_t, ends - starts)
    until = np.cumsum(counted)[1:-1]
    return np.asarray((log_t[until - 1] + log_t[until - counted[1:-1]]) / 2)


def _pooled(p: Array, q: Array) -> tuple[Places, Array, Array]:
    """Return the segments of the hull of an ROC curve: starts, and their shares of p and q."""
    starts = np.arange(p.size)
    while True:
        # Two neighbours that do not fall strictly are on one segment, and so is a run of such. All runs are
        # pooled at once: a round costs microseconds, and rounds are few where a loop over rows is long.
        falls = np.append(True, p[:-1] * q[1:] > p[1:] * q[:-1])
        if falls.all():
            return starts, p, q
        first = np.flatnonzero(falls)
        starts, p, q = starts[first], np.add.reduceat(p, first), np.add.reduceat(q, first)
