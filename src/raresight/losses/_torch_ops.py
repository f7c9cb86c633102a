"""The array operations that losses are written in, for PyTorch. Imported only once torch is loaded.

There are two forms of the logistic terms. In eager mode every call is one pass over memory, so the fewest
calls win. Compiled, all calls fuse into one loop, so the cheapest arithmetic wins. Then all terms share one
exponential, and short polynomials replace library calls in float32.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ._numpy_ops import Array
from .parameters import graph_constant


class TorchOps:
    """Torch tensors; the class axis is axis 1, or axis 0 of a vector."""

    exp = staticmethod(torch.exp)
    log = staticmethod(torch.log)
    log1p = staticmethod(torch.log1p)
    sqrt = staticmethod(torch.sqrt)
    abs = staticmethod(torch.abs)
    isfinite = staticmethod(torch.isfinite)

    @staticmethod
    def guard() -> Any:
        return contextlib.nullcontext()

    @staticmethod
    def largest(a: Array) -> float:
        return float(torch.finfo(a.dtype).max)

    @staticmethod
    def tiny(a: Array) -> float:
        return float(torch.finfo(a.dtype).tiny)

    @classmethod
    def finite(cls, a: Array) -> Array:
        """Replace infinities by the largest finite number of the same sign."""
        limit = cls.largest(a)
        return torch.clamp(a, -limit, limit)

    @classmethod
    def saturate(cls, a: Array) -> Array:
        """The same for numbers that are not negative."""
        largest = cls.largest(a)
        if torch.compiler.is_compiling():
            return torch.where(a > largest, largest, a)
        return torch.clamp(a, max=largest)

    @staticmethod
    def upper(a: Array, limit: float) -> Array:
        return torch.clamp(a, max=limit)

    @staticmethod
    def expm1(t: Array) -> Array:
        if torch.compiler.is_compiling():
            # Compiled for the CPU, torch.expm1 becomes exp(t) - 1, which has no digits near zero.
            return torch.where(t.abs() < 0.35, _expm1_near_zero(t), torch.exp(t) - 1)
        return torch.expm1(t)

    @staticmethod
    def choose(y: Array, positive: float, negative: float) -> Array:
        one, other = (torch.full((), n, dtype=y.dtype, device=y.device) for n in (positive, negative))
        return torch.where(y > 0.5, one, other)

    @staticmethod
    def softplus(t: Array) -> Array:
        if torch.compiler.is_compiling():
            return torch.clamp(t, min=0) + _log1p_of_fraction(torch.exp(-t.abs()))
        # Above 40 the neglected e^-t is below half a unit in the last place of t.
        return F.softplus(t, threshold=40.0)

    @staticmethod
    def sigmoid(t: Array) -> Array:
        if torch.compiler.is_compiling():
            e = torch.exp(-t.abs())
            larger = torch.reciprocal(1 + e)
            return torch.where(t >= 0, larger, e * larger)
        return torch.sigmoid(t)

    @classmethod
    def logistic(cls, m: Array) -> tuple[Array, Array]:
        if torch.compiler.is_compiling():
            e = torch.exp(-m.abs())
            larger = torch.reciprocal(1 + e)
            x = torch.clamp(-m, min=0) + _log1p_of_fraction(e)
            return x, torch.where(m >= 0, e * larger, larger)
        opposite = -m
        return cls.softplus(opposite), torch.sigmoid(opposite)

    @classmethod
    def power_excess(cls, m: Array, x: Array, u: float) -> Array:
        coefficients = power_coefficients(u) if torch.compiler.is_compiling() else ()
        if coefficients and m.dtype == torch.float32:
            # p^-u = e^(u max(-m, 0)) (1 + e)^u with e = e^-|m|. The second factor less one is a short
            # polynomial without a constant term, so a small excess keeps its digits.
            e = torch.exp(-m.abs())
            s = e / (2 + e)
            tilt = s * _polynomial(s, coefficients)
            growth = torch.where(m >= 0, 1.0, torch.exp(u * m.abs()))
            # An infinite growth times a tilt of zero would be NaN.
            return torch.where(tilt > 0, growth * tilt, 0.0) + (growth - 1)
        return cls.expm1(u * x)

    @classmethod
    def exp_of_fraction(cls, rate: Any, q: Array) -> Array:
        if cls.is_zero(rate):
            return 1.0
        if torch.compiler.is_compiling() and cls.is_number(rate) and q.dtype == torch.float32:
            coefficients = exp_coefficients(rate)
            if coefficients:
                return _polynomial(q, coefficients)
        return torch.exp(rate * q)

    @staticmethod
    def is_number(value: Any) -> bool:
        return not isinstance(value, torch.Tensor)

    @staticmethod
    def is_zero(value: Any) -> bool:
        return not isinstance(value, torch.Tensor) and value == 0

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        """torch.where, which takes no Python boolean."""
        if isinstance(condition, torch.Tensor):
            return torch.where(condition, a, b)
        return a if condition else b

    @staticmethod
    def erfcx(t: Array) -> Array:
        return torch.special.erfcx(t)

    @staticmethod
    def ndtr(t: Array) -> Array:
        return 0.5 * torch.special.erfc(-t / math.sqrt(2))

    @staticmethod
    def log_ndtr(t: Array) -> Array:
        return torch.special.log_ndtr(t)

    @staticmethod
    def to_double(a: Array) -> Array:
        return a.to(torch.float64)

    @staticmethod
    def like(a: Array, reference: Array) -> Array:
        return a.to(reference.dtype)

    @staticmethod
    def full(reference: Array, number: float) -> Array:
        return torch.full_like(reference, number)

    @staticmethod
    def all(a: Array) -> bool:
        return bool(torch.all(a))

    @staticmethod
    def class_axis(f: Array) -> int:
        return 1 if f.ndim > 1 else 0

    @staticmethod
    def per_class(numbers: tuple[float, ...], f: Array, axis: int) -> Array:
        shape = [1] * f.ndim
        shape[axis] = len(numbers)
        if torch.compiler.is_compiling():
            return torch.tensor(numbers, dtype=f.dtype, device=f.device).reshape(shape)
        return _constant(numbers, f.dtype, f.device).reshape(shape)

    @classmethod
    def number_at_label(cls, numbers: tuple[float, ...], y: Array, f: Array, axis: int) -> Array:
        if torch.compiler.is_compiling():
            return cls.sum(torch.where(_one_hot(y, f, axis), cls.per_class(numbers, f, axis), 0.0), axis)
        return _constant(numbers, f.dtype, f.device)[y.long()].unsqueeze(axis)

    @classmethod
    def at_label(cls, a: Array, y: Array, axis: int) -> Array:
        if torch.compiler.is_compiling():
            return cls.sum(torch.where(_one_hot(y, a, axis), a, 0.0), axis)
        return torch.gather(a, axis, y.long().unsqueeze(axis))

    @staticmethod
    def with_label(a: Array, y: Array, value: Array | float, axis: int) -> Array:
        if torch.compiler.is_compiling():
            return torch.where(_one_hot(y, a, axis), value, a)
        return torch.scatter(a, axis, y.long().unsqueeze(axis), value)

    @staticmethod
    def sum(a: Array, axis: int) -> Array:
        return torch.sum(a, dim=axis, keepdim=True)

    @staticmethod
    def max(a: Array, axis: int) -> Array:
        return torch.amax(a, dim=axis, keepdim=True)

    @staticmethod
    def squeeze(a: Array, axis: int) -> Array:
        return torch.squeeze(a, dim=axis)

    @staticmethod
    def unsqueeze(a: Array, axis: int) -> Array:
        return torch.unsqueeze(a, dim=axis)

    @staticmethod
    def move_axis(a: Array, source: int, destination: int) -> Array:
        return torch.movedim(a, source, destination)

    @staticmethod
    def order(a: Array) -> Array:
        return torch.argsort(a, stable=True)

    @staticmethod
    def count_below(ascending: Array, values: Array) -> Array:
        return torch.searchsorted(ascending, values)

    @staticmethod
    def prefix_sums(a: Array) -> Array:
        return torch.cat((a[:1] * 0, torch.cumsum(a, 0)))

    @staticmethod
    def diagonal_matrix(v: Array) -> Array:
        return torch.diag_embed(v)


def _one_hot(y: torch.Tensor, f: torch.Tensor, axis: int) -> torch.Tensor:
    """Mask of `f`'s shape, true at each label: compiled, it costs no pass, and no label is out of range."""
    shape = [1] * f.ndim
    shape[axis] = f.shape[axis]
    classes = torch.arange(f.shape[axis], device=f.device).reshape(shape)
    return y.unsqueeze(axis) == classes


@lru_cache(maxsize=256)
def _constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Kept, so that a training loop does not copy the same few numbers to the device every step."""
    with torch.inference_mode(False):  # a tensor made in that mode could not be used outside it
        return torch.tensor(numbers, dtype=dtype, device=device)


def _polynomial(t: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """sum_k c_k t^k by Estrin's scheme: pairs first, so that the steps do not wait for each other."""
    terms: list[Any] = list(coefficients)
    power = t
    while len(terms) > 1:
        if len(terms) % 2:
            terms.append(None)
        terms = [a if b is None else a + b * power for a, b in zip(terms[::2], terms[1::2], strict=True)]
        power = power * power
    result: torch.Tensor = terms[0]
    return result


def _log1p_of_fraction(e: torch.Tensor) -> torch.Tensor:
    """log(1 + e) for 0 <= e <= 1: 2 artanh(e / (2 + e)) as a polynomial in float32.

    The first neglected term is below 1.5e-8 of the result, a quarter of float32's rounding.
    """
    if e.dtype != torch.float32:
        return torch.log1p(e)
    s = e / (2 + e)
    return s * _polynomial(s * s, [2 / odd for odd in range(1, 15, 2)])


def _expm1_near_zero(t: torch.Tensor) -> torch.Tensor:
    """e^t - 1 for |t| < 0.35 by its Taylor polynomial, to the precision of the type."""
    degree = 7 if t.dtype == torch.float32 else 14
    return t * _polynomial(t, [1 / math.factorial(k) for k in range(1, degree + 1)])


# ---- short polynomials, fitted once for each parameter -----------------------------------
# Compiled, TBL takes 1.2 times as long without them, because a library call stops the loop from being one of
# vector instructions.


@graph_constant
def power_coefficients(u: float) -> tuple[float, ...]:
    """Polynomial P with ((1 + s)/(1 - s))^u - 1 = s P(s) for 0 <= s <= 1/3; none for u out of reach.

    With s = e/(2 + e) the left side is (1 + e)^u - 1, and 0 <= e <= 1.
    """
    return _power_coefficients(u) if 0.02 <= u <= 4 else ()


@graph_constant
def exp_coefficients(rate: float) -> tuple[float, ...]:
    """Polynomial P with e^(rate q) = P(q) for 0 <= q <= 1; none for a rate out of reach."""
    return _exp_coefficients(rate) if 0 < abs(rate) <= 2 else ()


@lru_cache(maxsize=4096)
def _power_coefficients(u: float) -> tuple[float, ...]:
    return _fit(lambda s: np.expm1(2 * u * np.arctanh(s)) / s, 1 / 3)


@lru_cache(maxsize=4096)
def _exp_coefficients(rate: float) -> tuple[float, ...]:
    return _fit(lambda q: np.exp(rate * q), 1.0)


def _fit(function: Callable[[Any], Any], end: float) -> tuple[float, ...]:
    """The shortest polynomial on [0, end] that is right to half of float32's rounding."""
    from numpy.polynomial import Polynomial

    nodes = end * (1 + np.cos(np.pi * (np.arange(200) + 0.5) / 200)) / 2
    exact = function(nodes)
    for degree in range(1, 20):
        fitted = Polynomial.fit(nodes, exact, degree).convert()
        if np.max(np.abs(fitted(nodes) / exact - 1)) < 3e-8:
            break
    return tuple(float(c) for c in fitted.coef)
