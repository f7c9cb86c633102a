"""Short polynomials for compiled float32 kernels, fitted once for each parameter."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def power_coefficients(u: float) -> tuple[float, ...]:
    """Polynomial P with ((1 + s)/(1 - s))^u - 1 = s P(s) for 0 <= s <= 1/3; none for u out of reach.

    With s = e/(2 + e) the left side is (1 + e)^u - 1, and 0 <= e <= 1.
    """
    return _power_coefficients(u) if 0.02 <= u <= 4 else ()


def exp_coefficients(rate: float) -> tuple[float, ...]:
    """Polynomial P with e^(rate q) = P(q) for 0 <= q <= 1; none for a rate out of reach."""
    return _exp_coefficients(rate) if 0 < abs(rate) <= 2 else ()


@lru_cache(maxsize=4096)
def _power_coefficients(u: float) -> tuple[float, ...]:
    return _fit(lambda s: np.expm1(2 * u * np.arctanh(s)) / s, 1 / 3)


@lru_cache(maxsize=4096)
def _exp_coefficients(rate: float) -> tuple[float, ...]:
    return _fit(lambda q: np.exp(rate * q), 1.0)


def _fit(function: Callable[[Array], Array], end: float) -> tuple[float, ...]:
    """The shortest polynomial on [0, end] that is right to half of float32's rounding."""
    from numpy.polynomial import Polynomial

    nodes = end * (1 + np.cos(np.pi * (np.arange(200) + 0.5) / 200)) / 2
    exact = function(nodes)
    for degree in range(1, 20):
        fitted = Polynomial.fit(nodes, exact, degree).convert()
        if np.max(np.abs(fitted(nodes) / exact - 1)) < 3e-8:
            break
    return tuple(float(c) for c in fitted.coef)
