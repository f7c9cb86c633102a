"""From a sample and a loss to the minimum of the regularised risk."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..losses import Loss
from ..losses.start import constant_scores
from .design import Floats
from .errors import NotConvergedWarning
from .newton import Minimum, Settings, Steps, descend
from .pilot import even_part, pulling_part
from .proximal import descend_with_l1
from .risk import Request, RiskDerivatives, Sample, evaluate

__all__ = [
    "SolverOptions",
    "class_shares",
    "constant_start",
    "minimise",
    "minimise_all",
    "warn_unless_converged",
]

_NEWTON_SIZE = 500  # numbers in theta up to which a Hessian is cheaper than the steps it saves
_PILOT_ACCURACY = 1e-3


@dataclass(frozen=True)
class SolverOptions:
    """How to solve: `solver` is "auto", "newton" or "lbfgs"."""

    l1: float
    tolerance: float
    max_iter: int
    solver: str

    def newton(self, sample: Sample) -> bool:
        return self.solver == "newton" or (self.solver == "auto" and sample.size <= _NEWTON_SIZE)


def minimise(
    sample: Sample, loss: Loss, l2: float, plan: SolverOptions, start: Floats | None = None
) -> Minimum:
    """The minimum for one loss; a `start` of shape (n_scores, columns) replaces the constant one."""
    settings = _settings(sample, loss, l2, plan)
    if start is not None:
        run = _steps(sample, settings, start.ravel(), constant_start(sample, loss).ravel())
        return _side_by_side(sample, [run])[0]
    return minimise_all(sample, [(loss, l2)], plan)[0]


def minimise_all(sample: Sample, pairs: Sequence[tuple[Loss, float]], plan: SolverOptions) -> list[Minimum]:
    """The minima for many pairs of loss and l2, whose runs go side by side and share each read of X."""
    settings = [_settings(sample, loss, l2, plan) for loss, l2 in pairs]
    safe = [constant_start(sample, setting.loss).ravel() for setting in settings]
    starts = safe
    if settings[0].newton or plan.l1 > 0:
        settings, starts = _first_fits(sample, settings, safe)
    return _side_by_side(sample, [_steps(sample, *one) for one in zip(settings, starts, safe)])


def _first_fits(
    sample: Sample, settings: list[Settings], constants: list[Floats]
) -> tuple[list[Settings], list[Floats]]:
    """Settings with a Hessian and starts near the minimum, by fits of a part of the rows.

    Where there are few rows, or where a part has no minimum, things stay as they are.
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
    """Fits of a part of the rows, as near as its sampling error deserves."""
    runs = []
    for setting, start, constant in zip(settings, starts, safe):
        near = _PILOT_ACCURACY * min(1.0, _constant_pull(part, setting.loss))
        runs.append(
            _steps(part, replace(setting, tolerance=near, precise=False, max_iter=50), start, constant)
        )
    return _side_by_side(part, runs)


def _constant_pull(sample: Sample, loss: Loss) -> float:
    """The mean of |l'| at the best constant scores."""
    shares = class_shares(sample)
    constant = constant_scores(loss, shares)
    if len(shares) == 2:
        return float(shares @ np.abs(loss.gradient(np.repeat(constant, 2), np.arange(2))))
    k = len(shares)
    return float(shares @ np.abs(loss.gradient(np.tile(constant, (k, 1)), np.arange(k))).sum(axis=1))


def constant_start(sample: Sample, loss: Loss) -> Floats:
    """Coefficients 0 and the loss's best constant scores, of shape (n_scores, columns)."""
    theta = np.zeros((sample.n_scores, sample.design.n_columns))
    if sample.design.intercept:
        theta[:, -1] = constant_scores(loss, class_shares(sample))
    return theta


def class_shares(sample: Sample) -> Floats:
    """The weighted share of each class."""
    labels = sample.labels.astype(np.int64, copy=False)
    counts = np.bincount(labels, sample.weights, minlength=max(sample.n_scores, 2)).astype(np.float64)
    return np.asarray(counts / counts.sum())


def carry_over(sample: Sample, old: Loss, theta: Floats, loss: Loss, constant: Floats) -> Floats:
    """The fit of another loss as a start: its log-odds as scores of this loss, as well as a line can."""
    if loss == old:
        return theta
    if sample.n_scores > 1 or not sample.design.intercept:
        return constant
    spread = float(np.linalg.norm(theta[:-1]))
    z = theta[-1] + np.linspace(-1.0, 3.0, 17) * spread
    try:
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
    minimum: Minimum, settings_text: str, plan: SolverOptions, stacklevel: int = 3
) -> bool:
    """Whether the run converged; a warning that says what to do if not."""
    if minimum.ending == "converged":
        return True
    found = f"{settings_text}: the gradient norm is {minimum.residual:.2g}, above tol={plan.tolerance:g}, "
    advice = {
        "separated": f"{settings_text}: a hyperplane separates the classes, so that the coefficients grow "
        "without limit and the risk has no minimum; set l2 > 0",
        "stalled": f"{found}but no step lowers the risk at floating-point precision; raise l2 or tol, or "
        "look for features of extreme range",
        "out of steps": f"{found}after max_iter={plan.max_iter} steps; raise max_iter or l2",
    }
    warnings.warn(advice[minimum.ending], NotConvergedWarning, stacklevel=stacklevel + 1)
    return False


def _settings(sample: Sample, loss: Loss, l2: float, plan: SolverOptions) -> Settings:
    return Settings(
        loss=loss,
        l2=l2,
        l1=plan.l1,
        tolerance=plan.tolerance,
        max_iter=plan.max_iter,
        newton=plan.newton(sample),
        # Few rows are cheap in float64 anyway.
        single_first=sample.design.is_single and sample.design.n_rows >= 20_000,
    )


def _steps(sample: Sample, settings: Settings, begin: Floats, safe: Floats) -> Steps:
    if settings.l1 > 0:
        return descend_with_l1(settings, begin, safe, sample.n_scores, sample.design.n_features)
    return descend(settings, begin, safe)


def _side_by_side(sample: Sample, runs: Sequence[Steps]) -> list[Minimum]:
    """Drive the runs together: in each round one pass over the rows answers all that are still going."""
    ended: dict[int, Minimum] = {}
    asked: dict[int, Request] = {number: next(run) for number, run in enumerate(runs)}
    while asked:
        answers: list[RiskDerivatives] = evaluate(sample, list(asked.values()))
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
