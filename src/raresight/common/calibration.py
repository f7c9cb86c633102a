"""Calibration: a straight line of the log-odds, after which probabilities match frequencies.

A link turns raw scores into log-odds, or for K classes into log-posteriors; two things may still be wrong.

Level. A model that has not converged, or whose loss weighs rows by more than their probability, leaves a gap
between the mean probability and the share of a class. Cross entropy closes it in every leaf of a booster,
because its gradients are p - y; another loss weighs rows by l'(0, z) - l'(1, z), and closes the weighted gap.
TBL's mean was found as low as half the prior at a prior of 1e-5. A shift closes it (`level_shift`):

    log-odds' = log-odds + delta,   delta such that the weighted mean probability is the share of positives.

Slope. A model that overfits is too sure of rows, one that stopped early is not sure enough. Rows that
training did not see tell by how much (`held_out_calibrator`): logistic regression on the log-odds (Cox 1958,
Platt 1999),

    log-odds' = a log-odds + c,   a > 0,   with the largest
    mean over rows of log p_y(a log-odds + c)  -  (log a)^2 / (2 N).

N times this is, up to a constant, the log-density of a, given N rows and log a ~ N(0, 1), so that a few rows
move it little. For every a the best c makes the mean probability the share of positives.

Neither changes the order of rows of two classes.

The link is right where the score can represent the truth. A linear score cannot follow log-odds that level
off, say: it then overstates the highest probabilities, more so under a loss with a flat tail, whose fit they
hardly move. The slope takes out what the loss adds. Beta calibration, isotonic regression and Venn-Abers
were tried on eight tables and did not pay (benchmarks/bench_calibration_methods.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logsumexp
from sklearn.exceptions import ConvergenceWarning

__all__ = [
    "Calibrator",
    "check_calibration",
    "evidence",
    "held_out_calibrator",
    "level_calibrator",
    "level_shift",
    "two_columns",
]

Array = np.ndarray[Any, Any]

# Values tried for log a are so far apart and reach so far; how near to the best is near enough.
_STEP = 0.5
_REACH = 3.0
_NEAR = 1e-4
# Links may call an event impossible: one such row is not to outweigh all others.
_LARGEST = 700.0

_MOST_STEPS = 200
_STEPS_BETWEEN_SWEEPS = 20
# Both are relative to the class share: where the search ends, and beyond which a warning says so.
_CLOSE = 1e-9
_OPEN = 1e-6


@dataclass(frozen=True)
class Calibrator:
    """log-odds' = slope * log-odds + level, for two classes or for each of K against the first.

    Attributes:
        slope: A positive factor.
        levels: One number for two classes; for K classes K - 1, of all but the first.

    >>> calibrator = Calibrator(2.0, (1.0,))
    >>> calibrator.log_odds(np.array([0.0, 1.5])).tolist()
    [1.0, 4.0]
    >>> calibrator.then(Calibrator(0.5, (3.0,)))
    Calibrator(slope=1.0, levels=(3.5,))
    """

    slope: float = 1.0
    levels: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        numbers = (self.slope, *self.levels)
        if not (all(map(np.isfinite, numbers)) and self.slope > 0 and self.levels):
            raise ValueError(f"a calibrator has a slope above 0 and finite levels, got {self}")

    @classmethod
    def identity(cls, n_classes: int) -> Calibrator:
        """Return the calibrator that changes nothing."""
        return cls(1.0, (0.0,) * (n_classes - 1))

    def log_odds(self, log_odds: Array) -> Array:
        """Return calibrated log-odds of two classes."""
        return np.asarray(self.slope * log_odds + self.levels[0])

    def log_posterior(self, log_posterior: Array) -> Array:
        """Return calibrated log-posteriors (n, K)."""
        if len(self.levels) == 1 and log_posterior.shape[1] == 2:
            return two_columns(self.log_odds(log_posterior[:, 1] - log_posterior[:, 0]))
        moved = self.slope * log_posterior + np.append(0.0, self.levels)
        return np.asarray(moved - logsumexp(moved, axis=1, keepdims=True))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"slope": self.slope, "levels": list(self.levels)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Calibrator:
        """Return what `to_dict` made; an error for anything else."""
        return cls(float(described["slope"]), tuple(float(level) for level in described["levels"]))

    def then(self, later: Calibrator) -> Calibrator:
        """Return one calibrator for this one followed by another."""
        levels = zip(self.levels, later.levels, strict=True)
        return Calibrator(later.slope * self.slope, tuple(later.slope * a + b for a, b in levels))


def check_calibration(value: Any) -> None:
    """Refuse what is no value of the option `calibration` that all estimators have.

    "link": the loss's link alone. "level": a shift that gives training rows the class shares. "slope": slope
    and level, by rows that training did not see.
    """
    if not isinstance(value, str) or value not in ("link", "level", "slope"):
        raise ValueError(f"calibration must be 'link', 'level' or 'slope', got {value!r}")


def level_calibrator(
    log_posterior: Array, shares: Array, weights: Array | None, *, warn: bool = True
) -> Calibrator:
    """Return the calibrator that makes the mean probabilities of rows the class shares; see `level_shift`."""
    shift = level_shift(log_posterior, shares, weights, warn=warn)
    return Calibrator(1.0, tuple(map(float, shift[1:])))


def held_out_calibrator(log_posterior: Array, codes: Array, weights: Array | None = None) -> Calibrator:
    """Fit slope and levels to rows that training did not see.

    The slope is at least 1/33. It is at most 33, or 33 divided by the spread of the log-odds where that is
    less than 1. Rows that lack a class cannot decide: they get the slope 1 and the levels 0.

    Args:
        log_posterior: (n, K) before calibration; of log-odds, `two_columns(log_odds)`.
        codes: Class numbers.
        weights: Row weights above 0. Default: equal ones.

    >>> z = np.random.default_rng(0).normal(size=4000) * 2 - 2
    >>> y = (np.random.default_rng(1).random(4000) < expit(z)).astype(int)
    >>> found = held_out_calibrator(two_columns(4 * z - 3), y)
    >>> round(found.slope, 2), round(found.levels[0], 2)
    (0.25, 0.79)
    """
    n_classes = log_posterior.shape[1]
    sums = np.bincount(codes, weights, minlength=n_classes)
    # A slope needs both classes: with one alone the best one is infinite.
    if sums.min() == 0:
        return Calibrator.identity(n_classes)
    # In float32 the cost would be known to seven digits, and where it is least only to three.
    log_posterior = np.asarray(log_posterior, dtype=np.float64)
    likeliest = np.maximum(log_posterior - log_posterior.max(axis=1, keepdims=True), -_LARGEST)
    relative = likeliest - likeliest[:, :1]
    shares, worth = sums / sums.sum(), evidence(codes, weights)

    def levels(slope: float) -> tuple[float, ...]:
        return level_calibrator(_normalised(slope * relative), shares, weights, warn=False).levels

    def cost(log_slope: float) -> float:
        slope = float(np.exp(log_slope))
        log_p = Calibrator(slope, levels(slope)).log_posterior(relative)
        unlikely = -np.take_along_axis(log_p, codes[:, None], axis=1)[:, 0]
        return float(np.average(unlikely, weights=weights) + log_slope**2 / (2 * worth))

    # A net that stopped after its first epoch may rank well with log-odds that hardly differ. Their slope is
    # far above 33, and the prior of log a makes a hill of its own around 0: a climb from there would miss it.
    spread = float(relative[:, 1:].std())
    reach = _REACH + max(0.0, -np.log(spread)) if spread > 0 else _REACH
    tried = np.arange(-_REACH, reach + _STEP / 2, _STEP)
    near = tried[int(np.argmin([cost(log_slope) for log_slope in tried]))]
    found = minimize_scalar(
        cost, bounds=(near - _STEP, near + _STEP), method="bounded", options={"xatol": _NEAR}
    )
    slope = float(np.exp(found.x))
    return Calibrator(slope, levels(slope))


def evidence(codes: Array, weights: Array | None) -> float:
    """Return the effective number of rows of weighted rows when a slope is estimated.

    Without weights it is their number. Of weights only the proportions count:

        N = n_k W / W_k,    n_k = (sum of w)^2 / (sum of w^2)  over the rows of class k

    with W the sum of all weights, W_k that of class k, and k the class with the least n_k, Kish's effective
    number of rows. The rarest class decides how well a slope is known.

    >>> evidence(np.array([0, 0, 0, 0, 1, 1]), np.array([4.0, 4, 4, 4, 2, 2]))
    10.0
    """
    if weights is None:
        return float(len(codes))
    found = []
    for k in np.unique(codes):
        own = weights[codes == k]
        part = own / own.max()  # the squares of tiny weights are zero
        number, share = part.sum() ** 2 / (part**2).sum(), own.sum() / weights.sum()
        with np.errstate(divide="ignore", over="ignore"):
            found.append((number, number / share))
    return float(min(found)[1])


def level_shift(log_posterior: Array, shares: Array, weights: Array | None, *, warn: bool = True) -> Array:
    """Find shifts of K log-posteriors, the first one zero, that make the mean probabilities the shares.

    Where none was found a ConvergenceWarning says so, unless `warn` is False.

    >>> log_odds = np.array([-3.0, -2.0, -1.0])
    >>> log_posterior = -np.logaddexp(0, np.stack([log_odds, -log_odds], axis=1))
    >>> shift = level_shift(log_posterior, np.array([0.9, 0.1]), None)
    >>> float((1 / (1 + np.exp(-log_odds - shift[1]))).mean().round(6))
    0.1
    """
    if log_posterior.shape[1] == 2:
        delta, gap = _binary_shift(log_posterior[:, 1] - log_posterior[:, 0], shares, weights)
        shift = np.array([0.0, delta])
    else:
        shift, gap = _class_shift(log_posterior, shares, weights)
    if warn:
        _warn_of_gap(gap)
    return shift


def _warn_of_gap(gap: float) -> None:
    """Warn where a mean probability misses the class share by more than a millionth of it."""
    if not gap <= _OPEN:
        warnings.warn(
            f"the mean probability of a class is off its share by {gap:.1e} of it on the training rows: no "
            "shift was found that closes the gap",
            ConvergenceWarning,
            stacklevel=4,
        )


def _binary_shift(log_odds: Array, shares: Array, weights: Array | None) -> tuple[float, float]:
    """Newton's method for the log-odds of the mean, inside a bracket that bisection halves where it fails."""
    goal = float(np.log(shares[1]) - np.log(shares[0]))
    # With these every probability is at most, and at least, the prior.
    low, high = goal - float(log_odds.max()), goal - float(log_odds.min())
    delta = min(max(0.0, low), high)
    best, best_gap = delta, np.inf
    for _ in range(_MOST_STEPS):
        p = expit(log_odds + delta)
        mean = float(np.average(p, weights=weights))
        gap = abs(mean - float(shares[1])) / float(shares.min())
        if gap < best_gap:
            best, best_gap = delta, gap
        if gap <= _CLOSE or not low < high:
            break
        low, high = (delta, high) if mean < shares[1] else (low, delta)
        bend = float(np.average(p * (1 - p), weights=weights))
        new = np.nan
        if 0 < mean < 1 and bend > 0:
            # d/d delta of log(mean/(1 - mean)): nearly straight even where the mean itself is tiny.
            new = delta + (goal - np.log(mean) + np.log1p(-mean)) * mean * (1 - mean) / bend
        middle = low + (high - low) / 2
        # At an end of the bracket Newton's step has stalled in rounding.
        delta, before = (float(new) if low < new < high else middle), delta
        if delta == before:
            break
    return best, best_gap


def _class_shift(log_posterior: Array, shares: Array, weights: Array | None) -> tuple[Array, float]:
    """Newton's method on a convex function, with a step that always descends where Newton's does not.

    The shifts minimise F(s) = mean logsumexp(log-posterior + s) - shares . s, whose gradient is the mean
    probabilities less the shares.
    """
    n_rows, n_classes = log_posterior.shape
    row_weights = np.full(n_rows, 1.0 / n_rows) if weights is None else weights / weights.sum()

    def height(s: Array) -> float:
        return float(row_weights @ logsumexp(log_posterior + s, axis=1) - shares @ s)

    shift = np.zeros(n_classes)
    best, best_gap = shift, np.inf
    for number in range(1, _MOST_STEPS + 1):
        if number % _STEPS_BETWEEN_SWEEPS == 0:
            shift = _swept(log_posterior, shares, row_weights, shift)
        log_p = _normalised(log_posterior + shift)
        log_mean = logsumexp(log_p, axis=0, b=row_weights[:, None])
        gap = float(np.max(np.abs(np.expm1(log_mean - np.log(shares)))))
        if gap < best_gap:
            best, best_gap = shift, gap
        if gap <= _CLOSE:
            break
        # Descends always, but slowly where the probabilities are near 0 and 1.
        plain = np.log(shares) - log_mean
        candidate = shift + plain - plain[0]
        p = np.exp(log_p)
        bend = np.diag(np.exp(log_mean)) - (p * row_weights[:, None]).T @ p
        step = np.linalg.lstsq(bend[1:, 1:], (shares - np.exp(log_mean))[1:], rcond=None)[0]
        newton = shift + np.append(0.0, step)
        if np.all(np.isfinite(newton)) and height(newton) < height(candidate):
            candidate = newton
        shift = candidate
    return best, best_gap


def _swept(log_posterior: Array, shares: Array, row_weights: Array, shift: Array) -> Array:
    """Set each class but the first to its share, one after the other.

    Where nearly all probabilities are 0 or 1 the curvature is zero in places, and the other steps are short.
    One class against the rest has a bracket, which ends in any case.
    """
    swept = shift.copy()
    for k in range(1, len(shares)):
        log_p = _normalised(log_posterior + swept)
        log_odds = log_p[:, k] - logsumexp(np.delete(log_p, k, axis=1), axis=1)
        swept[k] += _binary_shift(log_odds, np.array([1 - shares[k], shares[k]]), row_weights)[0]
    return swept


def two_columns(log_odds: Array) -> Array:
    """log(1 - p) and log(p), as (n, 2)."""
    return np.asarray(-np.logaddexp(0.0, np.stack([log_odds, -log_odds], axis=1)))


def _normalised(log_posterior: Array) -> Array:
    largest = log_posterior.max(axis=1, keepdims=True)
    moved = log_posterior - largest
    return np.asarray(moved - np.log(np.exp(moved).sum(axis=1, keepdims=True)))
