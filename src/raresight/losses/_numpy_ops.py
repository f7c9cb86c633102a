"""The array operations that losses are written in, for NumPy.

`_torch_ops.TorchOps` has the same methods; a loss's formulas are written once against either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Array", "NumpyOps", "Ops"]

# Arrays are NumPy arrays or torch tensors, and ops the class of operations for one of them (`NumpyOps`,
# `TorchOps`). Which one is known only when a loss is called.
Array = Any
Ops = Any


class NumpyOps:
    """NumPy arrays; the class axis is the last one."""

    exp = staticmethod(np.exp)
    expm1 = staticmethod(np.expm1)
    log = staticmethod(np.log)
    log1p = staticmethod(np.log1p)
    sqrt = staticmethod(np.sqrt)
    abs = staticmethod(np.abs)
    where = staticmethod(np.where)
    isfinite = staticmethod(np.isfinite)

    @staticmethod
    def guard() -> Any:
        """Overflow and underflow are expected in the tails and handled by `finite`."""
        return np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")

    @staticmethod
    def largest(a: Array) -> float:
        return float(np.finfo(a.dtype).max)

    @staticmethod
    def tiny(a: Array) -> float:
        return float(np.finfo(a.dtype).tiny)

    @classmethod
    def finite(cls, a: Array) -> Array:
        """Replace infinities by the largest finite number of the same sign."""
        limit = cls.largest(a)
        return np.clip(a, -limit, limit)

    @classmethod
    def saturate(cls, a: Array) -> Array:
        """The same for numbers that are not negative."""
        return np.minimum(a, a.dtype.type(cls.largest(a)))

    @staticmethod
    def upper(a: Array, limit: float) -> Array:
        return np.minimum(a, a.dtype.type(limit))

    @staticmethod
    def choose(y: Array, positive: float, negative: float) -> Array:
        """`positive` where the 0/1 label y is 1, `negative` where it is 0, in y's precision."""
        return np.where(y > 0.5, y.dtype.type(positive), y.dtype.type(negative))

    @staticmethod
    def softplus(t: Array) -> Array:
        """log(1 + e^t)."""
        return np.maximum(t, 0) + np.log1p(np.exp(-np.abs(t)))

    @staticmethod
    def sigmoid(t: Array) -> Array:
        e = np.exp(-np.abs(t))
        larger = 1 / (1 + e)
        return np.where(t >= 0, larger, e * larger)

    @staticmethod
    def logistic(m: Array) -> tuple[Array, Array]:
        """x = -log sigma(m) and q = sigma(-m), each to full relative precision."""
        e = np.exp(-np.abs(m))
        larger = 1 / (1 + e)
        return np.maximum(-m, 0) + np.log1p(e), np.where(m >= 0, e * larger, larger)

    @staticmethod
    def power_excess(m: Array, x: Array, u: float) -> Array:
        """sigma(m)^-u - 1 = e^(ux) - 1; the margin only serves the compiled torch form."""
        return np.expm1(u * x)

    @staticmethod
    def exp_of_fraction(rate: float, q: Array) -> Array:
        """e^(rate q) where 0 <= q <= 1."""
        return np.exp(rate * q) if rate else 1.0

    @staticmethod
    def is_number(value: Any) -> bool:
        """Whether a number of a loss is one number, and not a tensor of those of several replicas."""
        return True

    @staticmethod
    def is_zero(value: Any) -> bool:
        """Whether a term with this factor may be left out: false for a tensor, whatever is in it."""
        return bool(value == 0)

    @staticmethod
    def erfcx(t: Array) -> Array:
        """The scaled complementary error function e^(t^2) erfc(t)."""
        from scipy.special import erfcx

        return erfcx(t)

    @staticmethod
    def ndtr(t: Array) -> Array:
        """The standard normal distribution function, accurate in both tails."""
        from scipy.special import ndtr

        return ndtr(t)

    @staticmethod
    def log_ndtr(t: Array) -> Array:
        """Log of the standard normal distribution function."""
        from scipy.special import log_ndtr

        return log_ndtr(t)

    @staticmethod
    def to_double(a: Array) -> Array:
        return a.astype(np.float64, copy=False)

    @staticmethod
    def like(a: Array, reference: Array) -> Array:
        return a.astype(reference.dtype, copy=False)

    @staticmethod
    def full(reference: Array, number: float) -> Array:
        return np.full_like(reference, number)

    @staticmethod
    def all(a: Array) -> bool:
        return bool(np.all(a))

    @staticmethod
    def class_axis(f: Array) -> int:
        return int(f.ndim - 1)

    @staticmethod
    def per_class(numbers: tuple[float, ...], f: Array, axis: int) -> Array:
        """One number a class, shaped to broadcast over `f` along its class axis."""
        shape = [1] * f.ndim
        shape[axis] = len(numbers)
        return np.asarray(numbers, dtype=f.dtype).reshape(shape)

    @staticmethod
    def number_at_label(numbers: tuple[float, ...], y: Array, f: Array, axis: int) -> Array:
        """The number of each label's class; the class axis is kept, with one entry."""
        return np.expand_dims(np.asarray(numbers, dtype=f.dtype)[_places(y)], axis)

    @staticmethod
    def at_label(a: Array, y: Array, axis: int) -> Array:
        """The entry at each label; the class axis is kept, with one entry."""
        return np.take_along_axis(a, np.expand_dims(_places(y), axis), axis)

    @staticmethod
    def with_label(a: Array, y: Array, value: Array | float, axis: int) -> Array:
        """A copy of `a` with `value` at each label."""
        changed = a.copy()
        np.put_along_axis(changed, np.expand_dims(_places(y), axis), value, axis)
        return changed

    @staticmethod
    def sum(a: Array, axis: int) -> Array:
        return np.sum(a, axis=axis, keepdims=True)

    @staticmethod
    def max(a: Array, axis: int) -> Array:
        return np.max(a, axis=axis, keepdims=True)

    @staticmethod
    def squeeze(a: Array, axis: int) -> Array:
        return np.squeeze(a, axis=axis)

    @staticmethod
    def unsqueeze(a: Array, axis: int) -> Array:
        return np.expand_dims(a, axis)

    @staticmethod
    def move_axis(a: Array, source: int, destination: int) -> Array:
        return np.moveaxis(a, source, destination)

    @staticmethod
    def order(a: Array) -> Array:
        """The places of the values from low to high; equal ones keep their order."""
        return np.argsort(a, kind="stable")

    @staticmethod
    def count_below(ascending: Array, values: Array) -> Array:
        """How many of the sorted numbers lie below each value."""
        return np.searchsorted(ascending, values)

    @staticmethod
    def prefix_sums(a: Array) -> Array:
        """0, a_0, a_0 + a_1, ...: one number more than `a` has."""
        return np.concatenate((a[:1] * 0, np.cumsum(a)))

    @staticmethod
    def diagonal_matrix(v: Array) -> Array:
        """Diagonal matrices from the last axis of `v`."""
        return v[..., :, None] * np.eye(v.shape[-1], dtype=v.dtype)


def _places(y: Array) -> Array:
    """Labels as an index: bools would be a mask."""
    return y.astype(np.intp, copy=False)
