"""Many settings of loss and penalty in one go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..common.checks import check_penalty
from ..losses import Loss
from .design import Floats
from .estimator import LinearClassifier
from .minimise import minimise_all, warn_unless_converged
from .reading import read_training

__all__ = ["PathFit", "fit_pairs", "fit_path"]


@dataclass(frozen=True, eq=False)
class PathFit:
    """One setting of a path, fitted. `model` is the same as a fitted `LinearClassifier`."""

    loss: Loss
    l2: float
    objective: float
    gradient_norm: float
    n_iter: int
    converged: bool
    model: LinearClassifier

    @property
    def coef(self) -> Floats:
        """Coefficients in the units of X, (1, d) or (K, d)."""
        return np.asarray(self.model.coef_)

    @property
    def intercept(self) -> Floats:
        return np.asarray(self.model.intercept_)


def fit_path(
    X: Any,
    y: Any,
    losses: Iterable[Loss | str] | Loss | str,
    l2s: Iterable[float | None] | float | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    l1: float = 0.0,
    fit_intercept: bool = True,
    class_weight: Any = None,
    solver: str = "auto",
    max_iter: int = 500,
    tol: float = 1e-8,
) -> list[PathFit]:
    """Fit every pair of a loss and an l2, to the same minima as separate fits of `LinearClassifier`.

    X is standardised once and read together: the scores of all settings come from one matrix product a block
    of rows, their gradients from another. On large data every setting is first fitted to a part of the
    rows, from its neighbour's fit, and takes its Hessian from there.

    Args:
        X, y, sample_weight: As for `LinearClassifier.fit`.
        losses: Losses or their texts.
        l2s: Ridge penalties. Default: that of `LinearClassifier`, for each loss its own.
        l1, fit_intercept, class_weight, solver, max_iter, tol: As for `LinearClassifier`, for all settings.

    Returns:
        One `PathFit` a setting: the first loss with every l2, then the second, and so on.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = rng.random(500) < 1 / (1 + np.exp(2 - X[:, 0]))
    >>> for fit in fit_path(X, y, ["crossentropy", "tbl"], [1e-4, 1e-2]):
    ...     print(fit.loss, fit.l2, fit.converged)
    crossentropy 0.0001 True
    crossentropy 0.01 True
    tbl(alpha=0.8,C=0.5) 0.0001 True
    tbl(alpha=0.8,C=0.5) 0.01 True
    """
    asked = [losses] if isinstance(losses, (Loss, str)) else list(losses)
    penalties: list[Any] = [l2s] if l2s is None or np.isscalar(l2s) else list(l2s)  # type: ignore[arg-type]
    if not asked or not penalties:
        raise ValueError("fit_path needs at least one loss and one l2")
    return fit_pairs(
        X,
        y,
        [(loss, l2) for loss in asked for l2 in penalties],
        sample_weight=sample_weight,
        l1=l1,
        fit_intercept=fit_intercept,
        class_weight=class_weight,
        solver=solver,
        max_iter=max_iter,
        tol=tol,
    )


def fit_pairs(
    X: Any,
    y: Any,
    pairs: Iterable[tuple[Loss | str, float | None]],
    *,
    sample_weight: ArrayLike | None = None,
    l1: float = 0.0,
    fit_intercept: bool = True,
    class_weight: Any = None,
    solver: str = "auto",
    max_iter: int = 500,
    tol: float = 1e-8,
) -> list[PathFit]:
    """Fit the given pairs of a loss and an l2; `fit_path` fits all combinations.

    Args:
        X, y, sample_weight: As for `LinearClassifier.fit`.
        pairs: Losses or their texts, each with its ridge penalty, or None for the default of
            `LinearClassifier`. Like losses side by side are fitted fastest.
        l1, fit_intercept, class_weight, solver, max_iter, tol: As for `LinearClassifier`, for all pairs.

    Returns:
        One `PathFit` a pair, in the order of the pairs.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2))
    >>> y = rng.random(500) < 1 / (1 + np.exp(2 - X[:, 0]))
    >>> for fit in fit_pairs(X, y, [("crossentropy", 1e-4), ("tbl", 1e-2)]):
    ...     print(fit.loss, fit.l2, fit.converged)
    crossentropy 0.0001 True
    tbl(alpha=0.8,C=0.5) 0.01 True
    """
    models = [
        LinearClassifier(
            loss,
            l2=None if l2 is None else check_penalty(l2, "l2"),
            l1=l1,
            fit_intercept=fit_intercept,
            class_weight=class_weight,
            solver=solver,
            max_iter=max_iter,
            tol=tol,
        )
        for loss, l2 in pairs
    ]
    if not models:
        raise ValueError("fit_pairs needs at least one pair of a loss and an l2")
    options = models[0]._options()
    # One reading serves all models: they share the standardised columns.
    reading = read_training(models[0], X, y, sample_weight, fit_intercept)
    chosen: dict[str | int, Loss] = {}  # a loss is read once for all its penalties
    settings = []
    for model in models:
        key = model.loss if isinstance(model.loss, str) else id(model.loss)
        if key not in chosen:
            chosen[key] = model._loss_for(reading.classes, reading.counts)
        settings.append((chosen[key], model._l2_for(chosen[key], reading.counts)))
    minima = minimise_all(reading.sample, settings, options)
    result = []
    for model, (loss, l2), minimum in zip(models, settings, minima):
        converged = warn_unless_converged(minimum, f"{loss}, l2={l2:g}", options)
        model._set_fit(models[0], reading, loss, l2, minimum, options, converged)
        result.append(
            PathFit(loss, l2, model.objective_, minimum.residual, minimum.iterations, converged, model)
        )
    return result
