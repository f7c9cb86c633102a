"""Inverting an increasing function elementwise."""

from __future__ import annotations

from collections.abc import Callable

from ._arrays import Array, Ops

_EPSILON = 2.0**-52
_MOST_STEPS = 200


def invert_increasing(
    ops: Ops, function: Callable[[Array], tuple[Array, Array]], target: Array, start: Array
) -> Array:
    """The z with function(z) = target, for every element at once, in float64.

    `function` returns its value and its derivative. Newton's method; every evaluation also tightens
    a bracket, and a step that would leave it (or that starts on a flat piece) halves it instead.
    """
    z = start
    low = ops.full(z, -float("inf"))
    high = ops.full(z, float("inf"))
    for _ in range(_MOST_STEPS):
        value, slope = function(z)
        excess = value - target
        high = ops.where(excess > 0, z, high)
        low = ops.where(excess <= 0, z, low)
        newton = z - excess / slope
        inside = ops.isfinite(newton) & (newton > low) & (newton < high) & (slope > 0)
        following = ops.where(inside, newton, _retreat(ops, z, low, high))
        following = ops.where(excess == 0, z, following)
        settled = ops.abs(following - z) <= 2 * _EPSILON * (1 + ops.abs(z))
        z = following
        if ops.all(settled):
            return z
    raise RuntimeError("the link could not be inverted: is the loss's log_odds strictly increasing?")


def _retreat(ops: Ops, z: Array, low: Array, high: Array) -> Array:
    """The middle of a closed bracket, or a doubling stride towards its open end."""
    stride = 1 + ops.abs(z)
    closed = ops.isfinite(low) & ops.isfinite(high)
    outward = ops.where(ops.isfinite(low), z + stride, z - stride)
    return ops.where(closed, low + (high - low) / 2, outward)
