"""The best constant score, from which every fit starts, and the curvature of the loss there.

With class shares pi (weighted), the loss-optimal constant z* minimises sum_k pi_k l(k, z). For a binary score
it is z* = link(log(pi/(1 - pi))). The curvature at the start is the mean second derivative of a row,

    h* = sum_k pi_k l''(k, z*),

pi (1 - pi) for cross entropy. In general h* = pi |l'(1, z*)| lambda'(z*), where lambda is the inverse link.
So h*/(pi (1 - pi)) is the curvature relative to cross entropy. It is the pull of one positive row times the
log-odds per unit of the score. Limits in units of the Hessian scale with it (`curvature_scale`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._numpy_ops import NumpyOps
from .contract import Loss

Array = np.ndarray[Any, Any]

__all__ = ["Start", "constant_score", "constant_scores", "curvature_scale", "refuse_nan", "start_of"]


def constant_scores(loss: Loss, shares: Any, *, array: Callable[[list[float]], Any] = np.array) -> Array:
    """Return the scores that minimise the risk of classes with these shares, without features.

    Args:
        loss: The loss.
        shares: P(y=1) as one number or `(1 - prior, prior)`, or K class shares.
        array: Constructor of the array of log-odds. A link needs only PyTorch for tensors, but may need SciPy
            for NumPy.

    Returns:
        One number in an array, or K logits.

    >>> from raresight.losses import parse
    >>> constant_scores(parse("alpha(0.5)"), 0.01).round(3).tolist()
    [-2.298]
    """
    if np.ndim(shares) == 0:
        prior = float(shares)
        if not 0 < prior < 1:
            raise ValueError(f"the prior must lie strictly between 0 and 1, got {prior}")
        log_odds = math.log(prior) - math.log1p(-prior)
    elif len(shares) == 2 and loss.takes_score:
        # Not from the sum of the shares: 1 - prior has no digits left of a prior of 1e-20.
        log_odds = math.log(shares[1]) - math.log(shares[0])
    else:
        return loss.class_scores(shares)
    if array is not np.array:
        scores: Array = loss.score(array([log_odds]))
        return scores
    return np.array([constant_score(loss, log_odds)])


def constant_score(loss: Loss, log_odds: float) -> float:
    """Return the best constant score at these log-odds: rho l'(1, b) + l'(0, b) = 0.

    Raises:
        RuntimeError: No score balances the classes.
    """
    try:
        score = float(loss.score(log_odds))
    except RuntimeError:  # the link of a loss that is not monotone exists on an interval only
        score = math.nan
    if math.isfinite(score):
        # The link of a loss from outside may contradict its derivatives. The derivatives decide, if they are
        # far from underflow and saturation. At the score of an extreme prior they may be neither right nor
        # zero: class weights multiply what has saturated.
        negative, positive = _slopes(loss, score)
        if not all(1e-200 < abs(slope) < 1e200 for slope in (negative, positive)):
            return score
        if negative > 0 > positive and abs(math.log(negative) - math.log(-positive) - log_odds) <= 2e-6:
            return score
    # Neither weight is above one, so that none overflows.
    weights = math.exp(min(-log_odds, 0.0)), math.exp(min(log_odds, 0.0))
    return _bisect(
        lambda score: sum(w * s for w, s in zip(weights, _slopes(loss, score), strict=True)),
        str(loss),
        log_odds,
    )


def refuse_nan(loss: Loss, z: Array, labels: Array, total: Array) -> None:
    """Raise an error that names the first score at which the loss or a derivative is NaN."""
    missing = np.isnan(total)
    if missing.any():
        where = int(np.argmax(missing))
        raise ValueError(
            f"{loss} or a derivative of it is NaN at z = {z[where]:.6g}, y = {int(labels[where])}. Write it "
            "so that large scores do not overflow (softplus or logsigmoid, not the log of a probability)"
        )


def _slopes(loss: Loss, score: float) -> tuple[float, float]:
    """l'(0, score) and l'(1, score)."""
    z = np.array([score])
    slopes = []
    with NumpyOps.guard():
        for label in (0, 1):
            value, slope = loss._branch(NumpyOps, z, label, 1)
            refuse_nan(loss, z, np.array([label]), value + slope)
            slopes.append(float(slope[0]))
    return slopes[0], slopes[1]


def _bisect(slope: Callable[[float], float], name: str, log_odds: float) -> float:
    """Return the point at which an increasing slope is zero."""
    reach = 1.0
    while not (slope(-reach) < 0 < slope(reach)):
        reach *= 2
        if reach > 1e4:
            raise RuntimeError(
                f"{name}: no constant score balances the two classes at log-odds {log_odds:.6g}"
            )
    low, high = -reach, reach
    for _ in range(200):  # to the last digit, for any reach
        middle = (low + high) / 2
        if slope(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True)
class Start:
    """The loss-optimal constant for given class shares.

    For class logits the last three attributes are those of the rarest class, because limits on the Hessian
    affect it most.

    Attributes:
        scores: One number for a binary score, K for class logits.
        shares: The class shares.
        curvature: The mean second derivative of a row at the constant.
        relative_curvature: `curvature` divided by that of cross entropy.
        log_odds_slope: Log-odds per unit of the score, to first order.
    """

    scores: tuple[float, ...]
    shares: tuple[float, ...]
    curvature: float
    relative_curvature: float
    log_odds_slope: float


def start_of(loss: Loss, shares: Any) -> Start:
    """Return the start for class shares that sum to one: `(1 - prior, prior)`, or K of them.

    >>> from raresight.losses import parse
    >>> start = start_of(parse("crossentropy"), (0.99, 0.01))
    >>> round(start.scores[0], 4), round(start.curvature, 4), round(start.relative_curvature, 4)
    (-4.5951, 0.0099, 1.0)
    """
    pi = np.asarray(shares, dtype=np.float64)
    if pi.ndim != 1 or pi.size < 2 or not np.all(pi > 0) or abs(pi.sum() - 1) > 1e-6:
        raise ValueError(f"class shares must be at least 2 positive numbers that sum to one, got {shares!r}")
    pi = pi / pi.sum()
    return _binary_start(loss, pi) if pi.size == 2 and loss.takes_score else _class_start(loss, pi)


def curvature_scale(loss: Loss, start: Start) -> float:
    """Return the curvature of a loss relative to cross entropy, between the start and even odds.

    With kappa(z) = h/(p (1 - p)), the curvature relative to cross entropy at a score z, it is

        s = min(kappa(start), sqrt(kappa(start) kappa(even))).

    Class weights and scaled scores multiply kappa, so that penalties in units of s do not depend on them.

    Raises:
        ValueError: The curvature at the start is not finite.

    >>> from raresight.losses import parse
    >>> loss = parse("crossentropy")
    >>> round(curvature_scale(loss, start_of(loss, (0.99999, 0.00001))), 6)
    1.0
    """
    n_classes = len(start.shares)
    even = start_of(loss, (1 / n_classes,) * n_classes)
    # The geometric mean of both ends of the score, but never above the start: a loss whose gradients vanish
    # there, such as the squared loss, would never leave it.
    scale = min(start.relative_curvature, math.sqrt(start.relative_curvature * even.relative_curvature))
    if not math.isfinite(scale):
        raise ValueError(f"the curvature of {loss} at its start score is {scale}, a fit needs a finite one")
    return scale


def _binary_start(loss: Loss, pi: Array) -> Start:
    score = float(constant_scores(loss, pi)[0])
    _, slopes, bends = loss.derivatives(np.full(2, score), np.array([0, 1]))
    curvature = abs(float(pi @ bends))
    # h* = pi |l'(1)| lambda', which gives lambda' without differentiating the link.
    pull = float(pi[1] * -slopes[1])
    slope = curvature / pull if pull > 0 else 1.0
    return Start((score,), tuple(pi), curvature, curvature / float(pi[0] * pi[1]), slope)


def _class_start(loss: Loss, pi: Array) -> Start:
    scores = constant_scores(loss, pi)
    n = pi.size
    bends = loss.hessian_diagonal(np.tile(scores, (n, 1)), np.arange(n))
    per_logit = np.abs(pi @ bends)
    plain = pi * (1 - pi)
    rarest = int(np.argmin(pi))
    relative = float(per_logit[rarest] / plain[rarest])
    gradients = loss.gradient(np.tile(scores, (n, 1)), np.arange(n))
    pull = float(pi[rarest] * -gradients[rarest, rarest])
    slope = float(per_logit[rarest]) / pull if pull > 0 else 1.0
    return Start(tuple(map(float, scores)), tuple(pi), float(per_logit[rarest]), relative, slope)
