"""Initialise the output bias at the loss-optimal constant score for the prior."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..losses import Loss
from ..losses.start import constant_scores

__all__ = ["start_at_prior_", "start_scores"]


def start_at_prior_(
    linear_layer: torch.nn.Linear, loss: Loss, prior: float | Sequence[float]
) -> torch.nn.Linear:
    """Set the output bias to the loss-optimal constant, in place; returns the layer.

    A float `prior` = P(y=1) sets every output to `loss.score(log(prior/(1-prior)))`. K class priors set the
    bias of K logits so that their posterior is the prior. Training then starts from the right base rate
    instead of one in two.

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
    if np.ndim(prior) != 0 and len(prior) != bias.numel():  # type: ignore[arg-type]
        raise ValueError(f"{len(prior)} priors for a layer of {bias.numel()} outputs")  # type: ignore[arg-type]
    with torch.no_grad():
        bias.copy_(start_scores(loss, prior).expand(bias.numel()).to(bias))
    return linear_layer


def start_scores(loss: Loss, prior: float | Sequence[float]) -> Tensor:
    """Return the score (1,) that minimises the loss at P(y=1) = prior, or K logits for K priors; float64."""
    if np.ndim(prior) != 0:
        return torch.from_numpy(loss.class_scores(prior))
    # As a tensor, since some links need SciPy for NumPy's numbers and nets do not depend on SciPy.
    score: Any = constant_scores(loss, prior, array=partial(torch.tensor, dtype=torch.float64))
    return torch.as_tensor(score)
