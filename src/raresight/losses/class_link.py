"""The link for class logits: which logits have a given posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ._numpy_ops import NumpyOps

if TYPE_CHECKING:
    from .contract import Loss

_MOST_STEPS = 500


def solve_class_scores(loss: Loss, log_eta: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Newton's method on log posterior(f) = log_eta.

    The Jacobian is differenced: K is the number of classes, the work is small, and every loss is
    served by its posterior alone. A step that does not bring the posterior nearer is halved. One
    direction of the logits does not move the posterior; the least-norm step leaves it alone.
    """

    def excess(f: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with NumpyOps.guard():
            return np.asarray(loss._class_log_posterior(NumpyOps, f) - log_eta)

    f = np.zeros_like(log_eta)
    residual = excess(f)
    for _ in range(_MOST_STEPS):
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
    raise RuntimeError(f"{loss}: no logits found whose posterior is {np.exp(log_eta)}")


def _jacobian(function: Any, f: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    step = 6e-6 * (1 + np.abs(f))
    columns = []
    for j in range(f.size):
        ahead, behind = f.copy(), f.copy()
        ahead[j] += step[j]
        behind[j] -= step[j]
        columns.append((function(ahead) - function(behind)) / (2 * step[j]))
    return np.stack(columns, axis=1)
