"""phi of the margin with its numbers as tensors: one row of numbers a replica.

The same formulas as in `raresight.losses`, but no parameter decides in Python which one is used: a
row at a limit (alpha = 1, C = 0, epsilon = -1) goes through the same operations as any other, and the
branch not taken is finite wherever it could spoil the other.
"""

from __future__ import annotations

import torch

from ..losses import Erf
from ..losses._torch_ops import TorchOps
from ..losses.cross_entropy import cross_entropy_phi
from ..losses.poly import _excess
from .loss_parameters import Kind

Tensor = torch.Tensor

__all__ = ["phi"]

_ERF = Erf()


def phi(kind: Kind, shape: tuple[Tensor, ...], m: Tensor) -> tuple[Tensor, Tensor]:
    """(phi(m), -phi'(m)); `shape` are the numbers of `Encoded.shape`, each broadcasting over m."""
    if kind == Kind.BOOSTING:
        return _boosting(m, *shape)
    if kind == Kind.FOCAL:
        return _focal(m, shape[0])
    if kind == Kind.POLY:
        return _poly(m, *shape[:3])
    if kind == Kind.ERF:
        value, slope = _ERF._phi(TorchOps, m, 1)
        return value, -slope
    if kind == Kind.SQUARED:
        q = TorchOps.logistic(m)[1]
        square = q * q
        return square, 2 * TorchOps.sigmoid(m) * square
    value, slope = cross_entropy_phi(TorchOps, m, 1)
    return value, -slope


def _boosting(
    m: Tensor, u: Tensor, C: Tensor, k: Tensor, g: Tensor, v: Tensor, r: Tensor
) -> tuple[Tensor, Tensor]:
    """e^(-Cq) (e^(ux) - 1)/u and q (e^(ux - Cq) - C p loss); for (u, C, k, g, v, r) see `_boosting`
    of `loss_parameters`."""
    x, q = TorchOps.logistic(m)
    t = u * x
    damping = torch.exp(-C * q)
    near = damping * (TorchOps.expm1(torch.clamp(t, max=1.0)) * r + torch.where(u == 0, x, 0.0))
    grown = torch.exp(t - C * q - k)
    value = TorchOps.saturate(torch.where(t < 1, near, grown * v - damping * r))
    # The loss is finite here, so that a p of zero gives zero.
    return value, TorchOps.saturate(q * (g * grown - C * TorchOps.sigmoid(m) * value))


def _focal(m: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    x, q = TorchOps.logistic(m)
    damping = torch.exp(-gamma * TorchOps.softplus(m))
    return damping * x, damping * (q + gamma * (TorchOps.sigmoid(m) * x))


def _poly(m: Tensor, c: Tensor, d: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    x, q = TorchOps.logistic(m)
    value = TorchOps.saturate(c * x + d * q + f * _excess(TorchOps, x, q))
    return value, q * (c + d * TorchOps.sigmoid(m) + f * q)
