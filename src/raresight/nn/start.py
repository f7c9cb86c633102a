"""Starting a net where the loss would leave it if it knew nothing but the prior."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from ..losses import Loss

__all__ = ["start_at_prior_"]


def start_at_prior_(
    linear_layer: torch.nn.Linear, loss: Loss, prior: float | Sequence[float]
) -> torch.nn.Linear:
    """Set the output bias to the loss-optimal constant, in place; returns the layer.

    A float `prior` = P(y=1) sets every output to `loss.score(log(prior/(1-prior)))`; K class priors
    set the bias of K logits so that their posterior is the prior. Training then starts from the
    right base rate instead of one in two.

    >>> from raresight.losses import parse
    >>> layer = start_at_prior_(torch.nn.Linear(4, 1), parse("focal(gamma=2.0)"), prior=0.001)
    >>> round(float(parse("focal(gamma=2.0)").probability(layer.bias.detach())), 6)
    0.001
    """
    if not isinstance(loss, Loss):
        raise TypeError(f"start_at_prior_ needs a loss of raresight.losses, got {type(loss).__name__}")
    bias = linear_layer.bias
    if bias is None:
        raise ValueError("the layer has no bias to start from: build it with bias=True")
    if np.ndim(prior) == 0:
        start = torch.full(
            (bias.numel(),),
            _constant(loss, float(prior)),  # type: ignore[arg-type]
            dtype=torch.float64,
        )
    else:
        priors = [float(p) for p in prior]  # type: ignore[union-attr]
        if len(priors) != bias.numel():
            raise ValueError(f"{len(priors)} priors for a layer of {bias.numel()} outputs")
        start = torch.from_numpy(loss.class_scores(priors))
    with torch.no_grad():
        bias.copy_(start.to(bias))
    return linear_layer


def _constant(loss: Loss, prior: float) -> float:
    if not 0 < prior < 1:
        raise ValueError(f"prior must lie strictly between 0 and 1, got {prior}")
    return float(loss.score(math.log(prior) - math.log1p(-prior)))
