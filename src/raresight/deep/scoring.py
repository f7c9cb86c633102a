"""Scores of rows by a stack of nets, and the score of an ensemble of them.

An ensemble, which the members of TabM and nets of several seeds are, predicts the mean of its members'
probabilities. Of two classes its score is the one that the loss takes for that mean:

    eta_j = lambda(z_j),   p = mean sigmoid(eta_j),   z = lambda^-1(log p - log(1 - p))

with lambda the inverse link of the loss. Links of several classes have no such inverse in general: there the
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

# Numbers in the widest layer of all nets that are held at once.
_NUMBERS_AT_ONCE = 1 << 24


def score_rows(replicas: Replicas, inputs: Tensor) -> NDArray[np.float64]:
    """Each replica's score of each row: (K, N), or (K, N, classes); in the precision of the weights.

    Rows are (N, features), or (K, N, features) where each replica has its own.
    """
    found = []
    for part in _parts(replicas, inputs):
        members = member_scores(replicas, part)
        pairs = zip(replicas.losses, members)
        found.append(torch.stack([ensemble_score(loss, one) for loss, one in pairs]).cpu())
    return np.asarray(torch.cat(found, dim=1).double().numpy())


def member_scores(replicas: Replicas, inputs: Tensor) -> Tensor:
    """Scores of every member: (K, members, N), or (K, members, N, classes).

    Nets in training are set to evaluation meanwhile, which is not for several threads; others stay untouched.
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
    """The score of an ensemble from those of its members: (M, N) to (N,), or (M, N, classes).

    NaN where one of them is: links refuse what is no number.
    """
    if len(scores) == 1:
        return scores[0]
    if scores.dim() == 3:
        return scores.mean(0)
    unknown = scores.isnan().any(0)
    odds = loss.log_odds(scores.masked_fill(unknown, 0.0))
    mean: Tensor = loss.score(F.logsigmoid(odds).logsumexp(0) - F.logsigmoid(-odds).logsumexp(0))
    return mean.masked_fill(unknown, torch.nan)


def _parts(replicas: Replicas, inputs: Tensor) -> list[Tensor]:
    numbers = len(replicas) * replicas.net.numbers_per_row(inputs.shape[-1])
    count = max(1, _NUMBERS_AT_ONCE // numbers)
    return [inputs[..., begin : begin + count, :] for begin in range(0, inputs.shape[-2], count)]
