"""Minimise the regularised risk of rows under a loss: starts, and runs side by side.

With many rows in memory, fits of parts of them give the start. In a first, small part each class has a share
of the rows, and a rare class has all its rows. The second part is drawn after the fit of the first. A row's
probability grows with its pull |l'|, because rows with little pull matter little. Rows are weighted
by the inverse of their probability (Horvitz and Thompson), so that the risk of the part is right on average.
Its fit is within a fraction of a standard error of the fit of all rows, and its Hessian is used there, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from ..losses import Loss
from ..losses.start import constant_scores
from .design import Floats
from .penalties import Penalty
from .solvers import ORDINARY_PULL, Minimum, Run, Settings, descend, descend_with_l1
from .sums import Request, RiskDerivatives, Sample, SummedRows, evaluate, slope_sizes

__all__ = [
    "NotConvergedWarning",
    "SolverOptions",
    "class_shares",
    "constant_start",
    "even_part",
    "minimise",
    "minimise_all",
    "pulling_part",
    "warn_unless_converged",
]

_NEWTON_SIZE = 500  # numbers in theta up to which a Hessian is cheaper than the steps it saves
_PILOT_ACCURACY = 1e-3
# Below so many rows the parts would save nothing.
_LEAST_ROWS = 100_000
_EVEN_SHARE = 50
_PULLING_SHARE = 20
_ROWS_PER_NUMBER = 50


class NotConvergedWarning(ConvergenceWarning):  # type: ignore[misc]
    """The solver stopped before the gradient was small enough; the message says why and what to do."""


@dataclass(frozen=True)
class SolverOptions:
    """How to solve: `solver` is "auto", "newton" or "lbfgs"."""

    l1: float
    tolerance: float
    max_iter: int
    solver: str

    def newton(self, rows: SummedRows) -> bool:
        return self.solver == "newton" or (self.solver == "auto" and _size(rows) <= _NEWTON_SIZE)


def minimise(
    rows: SummedRows, loss: Loss, l2: float, options: SolverOptions, start: Floats | None = None
) -> Minimum:
    """Minimise for one loss; a `start` of shape (n_scores, columns) replaces the constant one."""
    if start is None:
        return minimise_all(rows, [(loss, l2)], options)[0]
    settings = _settings(rows, loss, l2, options)
    run = _run(rows, settings, start.ravel(), constant_start(rows, loss).ravel())
    return _side_by_side(rows, [run])[0]


def minimise_all(
    rows: SummedRows, pairs: Sequence[tuple[Loss, float]], options: SolverOptions
) -> list[Minimum]:
    """Minimise for many pairs of loss and l2 at once, sharing each read of the rows."""
    settings = [_settings(rows, loss, l2, options) for loss, l2 in pairs]
    safe = [constant_start(rows, setting.loss).ravel() for setting in settings]
    starts = safe
    # A part can only be drawn of rows at hand. L-BFGS without l1 has no use for a Hessian of the part.
    if isinstance(rows, Sample) and (settings[0].newton or options.l1 > 0):
        settings, starts = _first_fits(rows, settings, safe)
    return _side_by_side(rows, [_run(rows, *one) for one in zip(settings, starts, safe)])


def _first_fits(
    sample: Sample, settings: list[Settings], constants: list[Floats]
) -> tuple[list[Settings], list[Floats]]:
    """Fit parts of the rows, for a Hessian and a start near the minimum of each setting.

    With few rows, or if a part has no minimum, `settings` and `constants` are returned.
    """
    even = even_part(sample)
    if even is None:
        return settings, constants
    # The part is drawn by the fit of a setting in the middle, from which the others start, too.
    middle = settings[len(settings) // 2]
    constant = constant_start(even, middle.loss).ravel()
    minimum = _pilot_fits(even, [middle], [constant], [constant])[0]
    if minimum.ending != "converged":
        return settings, constants
    part = pulling_part(sample, middle.loss, minimum.theta)
    if not (class_shares(part) > 0).all():  # a class whose few rows hardly pull may not be drawn at all
        return settings, constants
    near = [
        carry_over(sample, middle.loss, minimum.theta, setting.loss, start)
        for setting, start in zip(settings, constants)
    ]
    fits = _pilot_fits(part, settings, near, constants)
    starts = list(constants)
    for number, fit in enumerate(fits):
        if fit.ending == "converged":
            settings[number] = replace(settings[number], curvature=fit.curvature)
            starts[number] = fit.theta
    return settings, starts


def _pilot_fits(
    part: Sample, settings: Sequence[Settings], starts: Sequence[Floats], safe: Sequence[Floats]
) -> list[Minimum]:
    """Fit a part of the rows, as precisely as its sampling error deserves."""
    runs = []
    for setting, start, constant in zip(settings, starts, safe):
        # Losses of small gradients need a smaller tolerance to be as near.
        near = _PILOT_ACCURACY * min(1.0, _constant_pull(part, setting.loss))
        runs.append(_run(part, replace(setting, tolerance=near, precise=False, max_iter=50), start, constant))
    return _side_by_side(part, runs)


def _constant_pull(rows: SummedRows, loss: Loss) -> float:
    """Return the mean of |l'| at the best constant scores."""
    shares = class_shares(rows)
    constant = constant_scores(loss, shares)
    if len(shares) == 2:
        return float(shares @ np.abs(loss.gradient(np.repeat(constant, 2), np.arange(2))))
    k = len(shares)
    return float(shares @ np.abs(loss.gradient(np.tile(constant, (k, 1)), np.arange(k))).sum(axis=1))


def constant_start(rows: SummedRows, loss: Loss) -> Floats:
    """Coefficients 0 and the loss's best constant scores, of shape (n_scores, columns)."""
    theta = np.zeros((rows.n_scores, rows.columns.n_columns))
    if rows.columns.intercept:
        theta[:, -1] = constant_scores(loss, class_shares(rows))
    return theta


def class_shares(rows: SummedRows) -> Floats:
    """Return the weighted share of each class."""
    totals = rows.class_totals
    return np.asarray(totals / totals.sum())


def _size(rows: SummedRows) -> int:
    return rows.n_scores * rows.columns.n_columns


def carry_over(sample: Sample, old: Loss, theta: Floats, loss: Loss, constant: Floats) -> Floats:
    """Turn the fit of another loss into a start: its log-odds as scores of this loss, by a straight line."""
    if loss == old:
        return theta
    if sample.n_scores > 1 or not sample.columns.intercept:
        return constant
    spread = float(np.linalg.norm(theta[:-1]))
    z = theta[-1] + np.linspace(-1.0, 3.0, 17) * spread
    try:
        # Where the rare class lies, from the intercept upwards: the link matters there most.
        target = loss.score(old.log_odds(z))
    except RuntimeError:  # the link of a loss that is not monotone exists on an interval only
        return constant
    if spread == 0 or not np.isfinite(target).all():
        return constant
    slope, shift = np.polyfit(z, target, 1)
    result = slope * theta
    result[-1] += shift
    return np.asarray(result)


def warn_unless_converged(
    minimum: Minimum, settings_text: str, options: SolverOptions, stacklevel: int = 3
) -> bool:
    """Return whether the run converged, and warn with advice if not."""
    if minimum.ending == "converged":
        return True
    found = f"{settings_text}: the gradient norm is {minimum.residual:.2g}, too large for "
    found += f"tol={options.tolerance:g}, "
    advice = {
        "separated": f"{settings_text}: a hyperplane separates the classes, so that the coefficients grow "
        "without limit and the risk has no minimum; set l2 > 0",
        "stalled": f"{found}but no step lowers the risk at floating-point precision; raise l2 or tol, or "
        "look for features of extreme range",
        "out of steps": f"{found}after max_iter={options.max_iter} steps; raise max_iter or l2",
    }
    warnings.warn(advice[minimum.ending], NotConvergedWarning, stacklevel=stacklevel + 1)
    return False


def _settings(rows: SummedRows, loss: Loss, l2: float, options: SolverOptions) -> Settings:
    return Settings(
        loss=loss,
        penalty=Penalty(l2, options.l1),
        tolerance=options.tolerance * min(1.0, _constant_pull(rows, loss) / ORDINARY_PULL),
        max_iter=options.max_iter,
        newton=options.newton(rows),
        # Few rows are cheap in float64 anyway, and rows elsewhere compute as they can.
        single_first=isinstance(rows, Sample) and rows.design.is_single and rows.design.n_rows >= 20_000,
    )


def _run(rows: SummedRows, settings: Settings, begin: Floats, safe: Floats) -> Run:
    if settings.penalty.l1 > 0:
        return descend_with_l1(settings, begin, safe, rows.n_scores, rows.columns.n_features)
    return descend(settings, begin, safe)


def _side_by_side(rows: SummedRows, runs: Sequence[Run]) -> list[Minimum]:
    """Drive the runs together: in each round one pass over the rows answers all that are still going."""
    ended: dict[int, Minimum] = {}
    asked: dict[int, Request] = {number: next(run) for number, run in enumerate(runs)}
    while asked:
        answers: list[RiskDerivatives] = evaluate(rows, list(asked.values()))
        following: dict[int, Request] = {}
        for number, answer in zip(asked, answers):
            try:
                following[number] = runs[number].send(answer)
            except StopIteration as stop:
                ended[number] = _returned(stop)
        asked = following
    return [ended[number] for number in range(len(runs))]


def _returned(stop: StopIteration) -> Minimum:
    value: Any = stop.value
    assert isinstance(value, Minimum)
    return value


# ---- parts of the rows -------------------------------------------------------------------


def even_part(sample: Sample) -> Sample | None:
    """Draw a small part of the rows by class; None where all of them are as fast."""
    n = _rows_that_count(sample)
    goal = _goal(sample, _EVEN_SHARE)
    if n < _LEAST_ROWS or _goal(sample, _PULLING_SHARE) > n // 4:
        return None
    labels = sample.labels.astype(np.int64, copy=False)
    counted = None if sample.weights is None else sample.weights > 0
    counts = np.bincount(labels if counted is None else labels[counted], minlength=max(sample.n_scores, 2))
    rng = np.random.default_rng(0)
    taken, weights = [], []
    for label, size in enumerate(_shares(counts, goal)):
        own = sample.labels == label
        rows = np.flatnonzero(own if counted is None else own & counted)
        if size < len(rows):
            # One row out of each of `size` stretches of equal length.
            places = (np.arange(size) + rng.random(size)) * (len(rows) / size)
            rows = rows[places.astype(np.int64)]
        taken.append(rows)
        weights.append(np.full(len(rows), counts[label] / len(rows)))
    return _part(sample, np.concatenate(taken), np.concatenate(weights))


def pulling_part(sample: Sample, loss: Loss, theta: Floats) -> Sample:
    """Draw a part of the rows by their pull at `theta`; every row with weight has a chance."""
    sizes = slope_sizes(sample, loss, theta)
    n = _rows_that_count(sample)
    mean = float(sizes.sum(dtype=np.float64)) / n
    # A tenth of the mean pull is added to all, so that no weight is more than eleven times the mean.
    chance = sizes + sizes.dtype.type(0.1 * mean)
    chance *= sizes.dtype.type(_goal(sample, _PULLING_SHARE) / (1.1 * mean * n))
    if sample.weights is not None:
        chance[sample.weights == 0] = 0
    draws = np.random.default_rng(0).random(len(sizes), dtype=sizes.dtype)
    rows = np.flatnonzero(draws < chance)
    return _part(sample, rows, 1 / np.minimum(chance[rows].astype(np.float64), 1.0))


def _rows_that_count(sample: Sample) -> int:
    return sample.design.n_rows if sample.weights is None else int(np.count_nonzero(sample.weights))


def _goal(sample: Sample, share: int) -> int:
    return max(_rows_that_count(sample) // share, _ROWS_PER_NUMBER * sample.size)


def _part(sample: Sample, rows: NDArray[np.intp], weight: Floats) -> Sample:
    order = np.argsort(rows, kind="stable")  # in the order of memory
    rows, weight = rows[order], weight[order]
    if sample.weights is not None:
        weight = weight * sample.weights[rows]
    return Sample(sample.design.take(rows), sample.labels[rows], weight, sample.n_scores)


def _shares(counts: NDArray[np.int64], goal: int) -> list[int]:
    """Return how many rows of each class: all of a small one, and what is left in equal parts."""
    sizes = np.zeros(len(counts), dtype=np.int64)
    left, order = goal, np.argsort(counts)
    for place, label in enumerate(order):
        sizes[label] = min(int(counts[label]), left // (len(counts) - place))
        left -= int(sizes[label])
    return [int(size) for size in sizes]
