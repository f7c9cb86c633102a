"""The operations losses are written in, made quick for blocks of margins of ordinary size."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arrays import Array
from ._numpy_ops import NumpyOps

# e^80 and its reciprocal are float32 numbers with room to spare, e^700 and its own are float64 numbers, so
# that no branch on the sign is needed.
_ORDINARY: dict[np.dtype[Any], Any] = {
    np.dtype(np.float32): np.float32(80.0),
    np.dtype(np.float64): np.float64(700.0),
}


class OrdinaryOps(NumpyOps):
    """`NumpyOps` without the comparisons that only extreme margins need; those take `NumpyOps`' way.

    One object belongs to one thread: it keeps the probabilities of the margins last seen, for which a
    loss asks again when it comes to its second derivative.
    """

    def __init__(self) -> None:
        self._margins: Array = None
        self._probabilities: Array = None

    def logistic(self, m: Array) -> tuple[Array, Array]:  # type: ignore[override]
        """x = -log sigma(m) and q = sigma(-m), each to full relative precision."""
        if not _are_ordinary(m):
            self._margins = None
            return NumpyOps.logistic(m)
        e = np.negative(m)
        np.exp(e, out=e)
        p = e + m.dtype.type(1)
        np.divide(m.dtype.type(1), p, out=p)
        self._margins, self._probabilities = m, p
        q = e * p
        return np.log1p(e, out=e), q

    def sigmoid(self, t: Array) -> Array:  # type: ignore[override]
        if t is self._margins:
            return self._probabilities
        if not _are_ordinary(t):
            return NumpyOps.sigmoid(t)
        e = np.negative(t)
        np.exp(e, out=e)
        e += t.dtype.type(1)
        return np.divide(t.dtype.type(1), e, out=e)

    # To look for what overflows is cheaper than to clip every number; NaN fails both comparisons.

    @classmethod
    def saturate(cls, a: Array) -> Array:
        return a if a.max() <= cls.largest(a) else NumpyOps.saturate(a)

    @classmethod
    def finite(cls, a: Array) -> Array:
        limit = cls.largest(a)
        return a if a.max() <= limit and a.min() >= -limit else NumpyOps.finite(a)


def _are_ordinary(m: Array) -> bool:
    """Two reductions, which are cheaper than the absolute values of a block; false for NaN, too."""
    limit = _ORDINARY.get(m.dtype)
    return limit is not None and bool(m.max() < limit) and bool(m.min() > -limit)
