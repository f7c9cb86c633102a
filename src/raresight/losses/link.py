"""Links inverted: the score that has given log-odds, and the class logits that have a given posterior."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ._numpy_ops import Array, Ops

__all__ = ["invert_increasing", "solve_class_scores"]

Floats = np.ndarray[Any, np.dtype[np.float64]]
Link = Callable[[Array], tuple[Array, Array]]

_PIECE = 1 << 15  # stays in the cache through the many passes of an iteration
_MOST_STEPS = 200
_MOST_CLASS_STEPS = 500
_CLOSE = 2.0**-27  # a Newton step this small leaves an error of its square, which is rounding
_ROUNDING = 2.0**-50
_LONGEST = 2.0**20


def invert_increasing(ops: Ops, function: Link, target: Array, start: Array) -> Array:
    """The z with function(z) = target, for every element at once, in float64.

    `function` returns its value and its derivative. This is Newton's method with a bracket, which every
    evaluation tightens. A step that would leave the bracket, or that starts on a flat piece, halves it.
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
        # On a piece that is nearly flat a step may end so far out that every digit of the way back is lost.
        inside = inside & (ops.abs(newton - z) <= _LONGEST * (1 + ops.abs(z)))
        following = ops.where(inside, newton, _retreat(ops, z, low, high))
        near = ops.abs(excess) <= _ROUNDING * (1 + ops.abs(goal))
        # A link may turn within one unit of z or of log-odds, however far out z is: both must be short.
        short = ops.abs(newton - z) <= _CLOSE + _ROUNDING * ops.abs(z)
        settled = near | (inside & short & (ops.abs(excess) <= _CLOSE * (1 + ops.abs(goal))))
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


def solve_class_scores(log_posterior: Callable[[Floats], Floats], log_eta: Floats) -> Floats | None:
    """The K logits f with log_posterior(f) = log_eta by Newton's method; None where none are found.

    The Jacobian is differenced: K is the number of classes, the work is small, and every loss is
    served by its posterior alone. A step that does not bring the posterior nearer is halved. One
    direction of the logits does not move the posterior; the least-norm step leaves it alone.
    """

    def excess(f: Floats) -> Floats:
        return log_posterior(f) - log_eta

    f = np.zeros_like(log_eta)
    residual = excess(f)
    for _ in range(_MOST_CLASS_STEPS):
        if np.max(np.abs(residual)) < 1e-12 * (1 + np.max(np.abs(log_eta))):
            return f
        step = np.linalg.lstsq(_jacobian(excess, f), -residual, rcond=1e-7)[0]
        length = 1.0
        while length > 1e-10:
            trial = f + length * step
            trial_residual = excess(trial)
            if np.linalg.norm(trial_residual) < np.linalg.norm(residual):
                break
            length /= 2
        else:
            break
        f, residual = trial, trial_residual
    if np.max(np.abs(residual)) < 1e-8:
        return f
    return None


def _jacobian(function: Callable[[Floats], Floats], f: Floats) -> Floats:
    step = 6e-6 * (1 + np.abs(f))
    columns = []
    for j in range(f.size):
        ahead, behind = f.copy(), f.copy()
        ahead[j] += step[j]
        behind[j] -= step[j]
        columns.append((function(ahead) - function(behind)) / (2 * step[j]))
    return np.stack(columns, axis=1)
