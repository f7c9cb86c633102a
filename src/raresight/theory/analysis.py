"""Summary of one loss at one prior, as `raresight analyze` shows it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..common.checks import check_probabilities
from ..losses import Loss
from ..losses._numpy_ops import NumpyOps
from ._inputs import Array, log_odds_of
from .experiments import EmpiricalExperiment, Experiment, GaussianExperiment
from .information import (
    decay_exponent,
    explained_fraction,
    explained_interval,
    local_index,
    statistical_information,
)

__all__ = ["LossAnalysis", "analyse"]

REFERENCE = GaussianExperiment(1.0)


@dataclass(frozen=True)
class LossAnalysis:
    """Figures of a loss at a prior; None where the loss breaks the theory's assumptions.

    `explained_interval` is the 95 % interval of `explained`, where the experiment is a sample.
    """

    loss: str
    prior: float
    monotone: bool
    convex: bool
    unique_minimiser: bool
    bounded_influence: bool
    link_slope: float | None
    beta: float | None
    beta_limit: float | None
    c: float | None
    information: float | None
    explained: float | None
    decay: float | None
    verdict: str
    explained_interval: tuple[float, float] | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def analyse(loss: Loss, prior: float, experiment: Experiment = REFERENCE) -> LossAnalysis:
    """Properties, decay index and explained fraction of a loss at `prior`, and a verdict.

    A loss whose risk has no unique minimiser gets a diagnosis instead of numbers: where, and at
    which score, its link turns.

    >>> from raresight.losses import CrossEntropy
    >>> analyse(CrossEntropy(), 0.01).beta_limit
    1.0
    """
    pi = float(check_probabilities(prior, "prior"))
    if not loss.takes_score:
        raise ValueError(f"{loss} is for {loss.n_classes} class logits; the theory is of a binary score")
    shared: dict[str, Any] = {
        "loss": str(loss),
        "prior": pi,
        "monotone": loss.is_monotone,
        "convex": loss.is_convex,
        "unique_minimiser": loss.has_unique_minimiser,
        "bounded_influence": has_bounded_influence(loss),
    }
    if not (loss.has_unique_minimiser and loss.is_monotone):
        nothing: dict[str, Any] = dict.fromkeys(
            ("link_slope", "beta", "beta_limit", "c", "information", "explained", "decay")
        )
        return LossAnalysis(**shared, **nothing, verdict=_diagnosis(loss))
    log_rho = log_odds_of(np.array(pi))
    index = local_index(loss, log_rho=log_rho)
    with NumpyOps.guard():
        z = loss._score(NumpyOps, log_rho)
        slope = float(loss._log_slopes(NumpyOps, z, 0)[1] - loss._log_slopes(NumpyOps, z, 1)[1])
    explained = float(explained_fraction(loss, experiment, pi))
    informed = explained > 0
    interval = None
    if isinstance(experiment, EmpiricalExperiment):
        found = explained_interval(loss, experiment, pi)
        interval = (found.low, found.high)
    numbers: dict[str, Any] = {
        "link_slope": slope,
        "beta": float(index.beta),
        "beta_limit": limiting_index(loss),
        "c": float(index.c),
        "information": float(statistical_information(loss, experiment, pi)),
        "explained": explained,
        "explained_interval": interval,
        "decay": float(decay_exponent(loss, experiment, pi)) if informed else None,
    }
    return LossAnalysis(**shared, **numbers, verdict=_verdict(shared, numbers))


def has_bounded_influence(loss: Loss) -> bool:
    """Return whether the gradient stays bounded on a positive whose score falls and a negative whose rises.

    A growing gradient is what makes a loss resist imbalance, and what lets one mislabelled row pull
    without limit.
    """
    # A gradient that grows without bound has a rate of log|l'| that does not vanish at any of the three.
    far = np.array([20.0, 40.0, 60.0])
    with NumpyOps.guard():
        on_positives = loss._log_slopes(NumpyOps, -far, 1)[1]
        on_negatives = loss._log_slopes(NumpyOps, far, 0)[1]
    return not bool(np.all(on_positives < -1e-6) or np.all(on_negatives > 1e-6))


def limiting_index(loss: Loss) -> float:
    """Return the decay index as the prior vanishes, from the loss's tail or, without one, numerically."""
    tail = loss.tail()
    if tail is not None:
        return tail.index
    # The farther out the closer to the limit, unless the slopes of a user's loss underflow there.
    for log_rho in (-600.0, -300.0, -100.0, -30.0):
        try:
            beta = float(local_index(loss, log_rho=log_rho).beta)
        except (ValueError, RuntimeError):
            continue
        if math.isfinite(beta):
            return beta
    return math.nan


def _verdict(shared: dict[str, Any], numbers: dict[str, Any]) -> str:
    beta, limit = numbers["beta"], numbers["beta_limit"]
    if limit < 0.995:
        fate = f"resists imbalance: information fades like prior^{limit:.3g}, slower than the prior itself"
    elif limit > 1.05:
        fate = f"gives up on rare events: information fades like prior^{limit:.3g}"
    elif beta < 0.97:
        fate = f"resists a little here (index {beta:.2f}), in the limit no more than cross entropy"
    else:
        fate = "fades as cross entropy does: in proportion to the prior"
    price = (
        "; no row can pull without limit"
        if shared["bounded_influence"]
        else "; a mislabelled row can pull without limit"
    )
    shape = "" if shared["convex"] else "; not convex"
    return fate + price + shape


def _diagnosis(loss: Loss) -> str:
    """Return where the link of a loss without a unique minimiser fails to rise."""
    z = np.linspace(-30, 30, 6001)
    with NumpyOps.guard():
        negative, positive = loss._log_slopes(NumpyOps, z, 0), loss._log_slopes(NumpyOps, z, 1)
        falls, rises = loss._branch(NumpyOps, z, 1, 1)[1], loss._branch(NumpyOps, z, 0, 1)[1]
    for slope, wrong, side in ((falls, falls > 0, "l(1, z) rises"), (rises, rises < 0, "l(0, z) falls")):
        if wrong.any():
            return (
                f"not monotone: {side} at z = {z[wrong][0]:.2f} (slope {slope[wrong][0]:.3g}); no link exists"
            )
    for slope, side in ((falls, "l(1, z)"), (rises, "l(0, z)")):
        flat = z[slope == 0]
        if flat.size:
            return (
                f"no unique minimiser: {side} is flat from z = {flat[0]:.2f} to {flat[-1]:.2f} or beyond, so "
                "many scores are equally good and no probability can be read off"
            )
    # The slope of the link lambda; where it is not positive, two scores share one log-odds.
    turning: Array = negative[1] - positive[1] <= 1e-12
    if turning.any():
        low, high = z[turning][0], z[turning][-1]
        log_odds = negative[0] - positive[0]
        return (
            f"no unique minimiser: the link stops rising from z = {low:.2f} to z = {high:.2f} "
            f"(log-odds {log_odds[turning][0]:.3g}), so a score there has no probability"
        )
    return "no unique minimiser: the link does not rise everywhere"
