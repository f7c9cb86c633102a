"""The constant a booster starts from, and how curved the loss is there.

With class shares pi (weighted), the loss-optimal constant z* minimises sum_k pi_k l(k, z). For a binary score
it is z* = link(log(pi/(1 - pi))). The curvature at the start is the mean second derivative of a row,

    h* = sum_k pi_k l''(k, z*),

pi (1 - pi) for cross entropy. In general h* = pi |l'(1, z*)| lambda'(z*), where lambda is the inverse link:
so h*/(pi (1 - pi)), the curvature relative to that of cross entropy, is the pull of one positive row times
the log-odds in one unit of the score. Whatever is measured in units of the Hessian scales with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .contract import Loss

Array = np.ndarray[Any, Any]

__all__ = ["Start", "start_of"]


@dataclass(frozen=True)
class Start:
    """The loss-optimal constant for given class shares.

    `scores` holds one number for a binary score and K for class logits; `curvature` is the mean second
    derivative of a row there; `relative_curvature` that divided by the same of cross entropy; and
    `log_odds_slope` how many log-odds one unit of the score is worth, to first order. For class logits the
    last three are those of the rarest class: it is the one that limits on the Hessian could starve.
    """

    scores: tuple[float, ...]
    shares: tuple[float, ...]
    curvature: float
    relative_curvature: float
    log_odds_slope: float


def start_of(loss: Loss, shares: Any) -> Start:
    """The start for class shares that sum to one: `(1 - prior, prior)`, or K of them.

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


def _binary_start(loss: Loss, pi: Array) -> Start:
    score = float(loss.score(math.log(pi[1]) - math.log(pi[0])))
    _, slopes, bends = loss.derivatives(np.full(2, score), np.array([0, 1]))
    curvature = abs(float(pi @ bends))
    # h* = pi |l'(1)| lambda', which gives lambda' without differentiating the link.
    pull = float(pi[1] * -slopes[1])
    slope = curvature / pull if pull > 0 else 1.0
    return Start((score,), tuple(pi), curvature, curvature / float(pi[0] * pi[1]), slope)


def _class_start(loss: Loss, pi: Array) -> Start:
    scores = loss.class_scores(pi)
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
