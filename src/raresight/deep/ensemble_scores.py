"""Scores of a stack of nets, and the score of an ensemble.

The members of TabM, and nets of several seeds, are an ensemble: it predicts the mean of its members'
probabilities. For two classes the ensemble's score is the score that the loss gives to that mean:

    eta_j = lambda(z_j),   p = mean sigmoid(eta_j),   z = lambda^-1(log p - log(1 - p))

with lambda the inverse link of the loss. Links of several classes have no such inverse in general. There the
score is the mean of the logits.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ..losses import Loss
from ..nn import Replicas
from ..nn.nets import TabM

__all__ = ["ensemble_score", "member_scores", "score_rows"]

# The most numbers in the widest layer of all nets that are held at once: 128 MiB as float64.
_NUMBERS_AT_ONCE = 1 << 24


def score_rows(replicas: Replicas, inputs: Tensor) -> NDArray[np.float64]:
    """Return the scores of each replica, (K, N) or (K, N, classes), computed in the precision of its weights.

    Rows are (N, features), or (K, N, features) where each replica has its own rows.
    """
    found = []
    for part in _parts(replicas, inputs):
        members = member_scores(replicas, part)
        pairs = zip(replicas.losses, members)
        found.append(torch.stack([ensemble_score(loss, one) for loss, one in pairs]).cpu())
    return np.asarray(torch.cat(found, dim=1).double().numpy())


def member_scores(replicas: Replicas, inputs: Tensor) -> Tensor:
    """Return the scores of every member: (K, members, N), or (K, members, N, classes).

    A net in training mode is switched to evaluation for the call. Then only one thread may use it.
    """
    net = replicas.net
    was_training = net.training
    if was_training:
        net.eval()
    try:
        with torch.no_grad():
            x = inputs.to(replicas.device, replicas.dtype)
            scores: Tensor = net.member_scores(x) if isinstance(net, TabM) else net(x).unsqueeze(1)
            return scores
    finally:
        if was_training:
            net.train()


def ensemble_score(loss: Loss, scores: Tensor) -> Tensor:
    """Return the score of an ensemble from those of its members: (M, N) to (N,), or (M, N, classes).

    NaN where the score of a member is NaN.
    """
    if len(scores) == 1:
        return scores[0]
    if scores.dim() == 3:
        return scores.mean(0)
    # Links refuse NaN, so that such rows pass as zeros and are marked afterwards.
    unknown = scores.isnan().any(0)
    odds = loss.log_odds(scores.masked_fill(unknown, 0.0))
    # log p and log(1 - p) as two sums of logarithms: 1 - p would lose all digits for a rare event.
    mean: Tensor = loss.score(F.logsigmoid(odds).logsumexp(0) - F.logsigmoid(-odds).logsumexp(0))
    return mean.masked_fill(unknown, torch.nan)


def _parts(replicas: Replicas, inputs: Tensor) -> list[Tensor]:
    numbers = len(replicas) * replicas.net.numbers_per_row(inputs.shape[-1])
    count = max(1, _NUMBERS_AT_ONCE // numbers)
    return [inputs[..., begin : begin + count, :] for begin in range(0, inputs.shape[-2], count)]
