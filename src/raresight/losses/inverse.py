"""Inverting an increasing function elementwise."""

from __future__ import annotations

from collections.abc import Callable

from ._arrays import Array, Ops

Link = Callable[[Array], tuple[Array, Array]]

_PIECE = 1 << 15  # stays in the cache through the many passes of an iteration
_MOST_STEPS = 200
_CLOSE = 2.0**-27  # a Newton step this small leaves an error of its square, which is rounding
_ROUNDING = 2.0**-50


def invert_increasing(ops: Ops, function: Link, target: Array, start: Array) -> Array:
    """The z with function(z) = target, for every element at once, in float64.

    `function` returns its value and its derivative. Newton's method; every evaluation also tightens
    a bracket, and a step that would leave it (or that starts on a flat piece) halves it instead.
    """
    goals, starts = target.reshape(-1), start.reshape(-1)
    result = ops.full(goals, 0.0)
    for first in range(0, goals.shape[0], _PIECE):
        piece = slice(first, first + _PIECE)
        result[piece] = _invert_piece(ops, function, goals[piece], starts[piece])
    return result.reshape(target.shape)


def _invert_piece(ops: Ops, function: Link, target: Array, start: Array) -> Array:
    result = ops.full(target, 0.0)
    open_ = ops.isfinite(target)  # what is still to be found, as a mask over the piece
    z, goal = start[open_], target[open_]
    low, high = ops.full(z, -float("inf")), ops.full(z, float("inf"))
    for _ in range(_MOST_STEPS):
        value, slope = function(z)
        excess = value - goal
        high = ops.where(excess > 0, z, high)
        low = ops.where(excess <= 0, z, low)
        newton = z - excess / slope
        inside = ops.isfinite(newton) & (newton > low) & (newton < high) & (slope > 0)
        following = ops.where(inside, newton, _retreat(ops, z, low, high))
        near = ops.abs(excess) <= _ROUNDING * (1 + ops.abs(goal))
        settled = near | (inside & (ops.abs(newton - z) <= _CLOSE * (1 + ops.abs(z))))
        narrow = ops.abs(high - low) <= _ROUNDING * (1 + ops.abs(z))
        z = ops.where(near, z, following)
        done = settled | narrow
        if done.any():
            result[_narrowed(ops, open_, done)] = z[done]
            left = ~done
            open_ = _narrowed(ops, open_, left)
            z, goal, low, high = z[left], goal[left], low[left], high[left]
            if z.shape[0] == 0:
                return result
    raise RuntimeError("the link could not be inverted: is the loss's log_odds strictly increasing?")


def _narrowed(ops: Ops, mask: Array, chosen: Array) -> Array:
    """`mask` with only those of its true places that `chosen`, one a true place, keeps."""
    narrowed = mask & ~mask
    narrowed[mask] = chosen
    return narrowed


def _retreat(ops: Ops, z: Array, low: Array, high: Array) -> Array:
    """The middle of a closed bracket, or a doubling stride towards its open end."""
    stride = 1 + ops.abs(z)
    closed = ops.isfinite(low) & ops.isfinite(high)
    outward = ops.where(ops.isfinite(low), z + stride, z - stride)
    return ops.where(closed, low + (high - low) / 2, outward)
