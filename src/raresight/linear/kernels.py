"""Value and slope of cross entropy, alpha loss and TBL in few operations, for blocks of ordinary margins.

These are the formulas of `losses.cross_entropy`, `losses.alpha` and `losses.tbl` for alpha in [1/2, 1), where
no term overflows at such margins. Every step is written into space that is already there: threads that share
one interpreter wait for each other at every array operation, so that fewer operations count twice. The
tests hold them to the losses' own results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..losses import TBL, Alpha, CrossEntropy, Loss

__all__ = ["SCRATCH", "Kernel", "kernel_of"]

Array = np.ndarray[Any, Any]
# (scores, minus direction, scratch) -> whether it was done. The slopes replace the scores; scratch[0] holds
# the values.
Kernel = Callable[[Array, Array, Array], bool]

SCRATCH = 3  # rows of scratch that a kernel takes


def kernel_of(loss: Loss, kind: np.dtype[Any]) -> Kernel | None:
    """A kernel for the loss in float32 or float64, or None where the loss has none.

    "Minus direction" is -1 for a positive and 1 for a negative row. A kernel returns False, with the scores
    as they were, where a margin is extreme or not a number.
    """
    if type(loss) is CrossEntropy:
        return _tbl(0.0, 0.0, kind)
    if type(loss) is Alpha and 0.5 <= loss.alpha < 1:
        return _tbl(1 / loss.alpha - 1, 0.0, kind)
    if type(loss) is TBL and 0.5 <= loss.alpha < 1:
        return _tbl(1 / loss.alpha - 1, loss.C, kind)
    return None


def _tbl(u: float, C: float, kind: np.dtype[Any]) -> Kernel:
    """With x = -log p, q = 1 - p, D = e^(-C q) and E = e^(ux) - 1:

        phi = D E / u,    -phi' = q (D + (1 - C/u + (C/u) q) D E),

    and for u = 0, where C is 0 here, phi = x and -phi' = q.
    """
    one, exponent, share = (kind.type(number) for number in (1.0, u, 1 / u if u else 1.0))
    rate, ratio, rest = (kind.type(number) for number in (-C, C / u if u else 0.0, 1 - C / u if u else 1.0))
    # The powers of e up to this limit, and their reciprocals, are numbers of the type with room to spare.
    limit = kind.type(80.0 if kind == np.float32 else 700.0)

    def fill(z: Array, minus_direction: Array, scratch: Array) -> bool:
        value, q, damping = scratch[:, : len(z)]
        np.multiply(minus_direction, z, out=q)
        if not (q.max() < limit and q.min() > -limit):
            return False
        np.exp(q, out=q)
        np.log1p(q, out=value)
        np.add(q, one, out=damping)
        q /= damping
        if u == 0:
            np.multiply(minus_direction, q, out=z)
            return True
        value *= exponent
        np.expm1(value, out=value)
        if C == 0:
            np.multiply(q, value, out=z)
            z += q
        else:
            np.multiply(q, rate, out=damping)
            np.exp(damping, out=damping)
            value *= damping
            np.multiply(q, ratio, out=z)
            z += rest
            z *= value
            z += damping
            z *= q
        z *= minus_direction
        value *= share
        return True

    return fill
