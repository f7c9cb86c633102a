"""A fitted linear score: features, coefficients, and their JSON file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..linear import PathFit, fit_pairs
from ..losses import Loss
from .blocks import by_blocks
from .linear_features import LinearFeatures

__all__ = ["LINEAR_FILE", "LinearPart", "fit_linear"]

Floats = NDArray[np.float64]

LINEAR_FILE = "linear.json"
_FORMAT = "raresight.linear"


@dataclass(frozen=True, eq=False)
class LinearPart:
    """Coefficients of `LinearFeatures`; `pull` is |coefficient| times the feature's training deviation."""

    features: LinearFeatures
    coef: Floats
    intercept: float
    pull: Floats

    @property
    def n_columns(self) -> int:
        return self.features.n_columns

    def scores(self, X: NDArray[Any], threads: int | None) -> Floats:
        """Raw scores z."""
        return by_blocks(
            lambda rows: self.features.scores(X[rows], self.coef, self.intercept), len(X), threads
        )

    def importance(self) -> Floats:
        """The share of each column: what its features, indicators and categories pull together."""
        gathered = np.bincount(
            np.asarray(self.features.origins, dtype=np.intp), self.pull, minlength=self.n_columns
        ).astype(np.float64)
        total = gathered.sum()
        return np.asarray(gathered / total) if total > 0 else gathered

    def save(self, folder: Path) -> tuple[str, ...]:
        """Write `linear.json`; numbers are written with all their digits."""
        described = {
            "format": _FORMAT,
            "features": self.features.to_dict(),
            "names": list(self.features.names),
            "coefficients": self.coef.tolist(),
            "intercept": self.intercept,
            "pull": self.pull.tolist(),
        }
        (folder / LINEAR_FILE).write_text(json.dumps(described, indent=1, allow_nan=False))
        return (LINEAR_FILE,)

    @staticmethod
    def load(folder: Path) -> LinearPart:
        path = folder / LINEAR_FILE
        try:
            described = json.loads(path.read_text())
            if described["format"] != _FORMAT:
                raise ValueError(f"its format is {described['format']!r}")
            features = LinearFeatures.from_dict(described["features"])
            coef = np.array(described["coefficients"], dtype=np.float64)
            pull = np.array(described["pull"], dtype=np.float64)
            intercept = float(described["intercept"])
            if coef.shape != (features.n_features,) or pull.shape != coef.shape:
                raise ValueError(f"{len(coef)} coefficients for {features.n_features} features")
            if not (np.isfinite(coef).all() and np.isfinite(pull).all() and math.isfinite(intercept)):
                raise ValueError("some coefficients are not finite")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{path} is not a linear model of raresight: {error}") from None
        return LinearPart(features, coef, intercept, pull)


def fit_linear(
    pairs: Sequence[tuple[str, float]],
    X: NDArray[Any],
    y: NDArray[Any],
    categorical: Sequence[int],
    n_categories: Sequence[int],
    weights: Floats | None,
) -> list[tuple[LinearPart, Loss]]:
    """Fit all pairs of a loss and an l2 in one pass over the rows."""
    features = LinearFeatures.learn(X, categorical, n_categories)
    table = features.apply(X)
    if not features.n_features:
        # Only categories too rare to have a column: a constant one stands in, whose coefficient is 0.
        table = np.zeros((len(X), 1))
    fits = fit_pairs(table, y, pairs, sample_weight=weights)
    deviation = _deviations(table, weights)
    return [(_part(features, fit, deviation), fit.loss) for fit in fits]


def _part(features: LinearFeatures, fit: PathFit, deviation: Floats) -> LinearPart:
    coef = fit.coef[0][: features.n_features]
    pull = np.abs(coef) * deviation[: features.n_features]
    return LinearPart(features, coef, float(fit.intercept[0]), pull)


def _deviations(table: Any, weights: Floats | None) -> Floats:
    """Weighted standard deviations of the features, a column at a time."""
    weight = np.full(table.shape[0], 1.0) if weights is None else weights
    total = float(weight.sum())
    if hasattr(table, "tocsc"):
        first = np.asarray(table.T @ weight).ravel() / total
        second = np.asarray(table.multiply(table).T @ weight).ravel() / total
        return np.sqrt(np.maximum(second - first**2, 0.0))
    result = np.empty(table.shape[1])
    for j in range(table.shape[1]):
        column = table[:, j].astype(np.float64)
        column -= weight @ column / total
        result[j] = math.sqrt(float(weight @ column**2) / total)
    return result
