"""A linear rule: the score w.x + b."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LinearRule"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, init=False)
class LinearRule:
    """A linear score z = w.x + b, with the record of its minimisation.

    `risk` is the risk at its minimum, and `prior` the P(y=1) of that risk. `gradient_norm` is the gradient of
    the risk relative to the size of the terms that cancel in it.

    >>> rule = LinearRule(w=[0.0, 2.0], b=-1.0)
    >>> rule.score([[5.0, 1.0], [5.0, 0.0]]).tolist()
    [1.0, -1.0]
    >>> rule.angle
    90.0
    """

    w: Floats
    b: float
    risk: float = math.nan
    prior: float = math.nan
    iterations: int = 0
    gradient_norm: float = math.nan

    def __init__(
        self,
        w: ArrayLike,
        b: float,
        risk: float = math.nan,
        prior: float = math.nan,
        iterations: int = 0,
        gradient_norm: float = math.nan,
    ) -> None:
        direction = read_only(w)
        if direction.ndim != 1 or direction.size == 0:
            raise ValueError(f"w must be a vector, got shape {direction.shape}")
        values = (direction, float(b), float(risk), float(prior), int(iterations), float(gradient_norm))
        for field, value in zip(dataclasses.fields(self), values):
            object.__setattr__(self, field.name, value)

    def score(self, X: ArrayLike) -> Floats:
        """w.x + b for each row of `X`, of shape (..., d)."""
        points = np.asarray(X, dtype=np.float64)
        if points.ndim == 0 or points.shape[-1] != self.w.size:
            raise ValueError(f"X of shape {points.shape} does not fit a rule in {self.w.size} dimensions")
        result: Floats = points @ self.w + self.b
        return result

    @property
    def angle(self) -> float:
        """The direction of w in the plane, in degrees from the first axis, in [0, 360)."""
        if self.w.size != 2:
            raise ValueError(f"only a rule in 2 dimensions has an angle; this one has {self.w.size}")
        degrees = math.degrees(math.atan2(self.w[1], self.w[0])) % 360.0
        return 0.0 if degrees == 360.0 else degrees  # the remainder of a tiny negative angle rounds up


def read_only(values: ArrayLike) -> Floats:
    """Return a float64 copy that cannot be written to."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array


def length(vector: Floats) -> float:
    """Return the Euclidean norm, also of vectors whose squares would underflow."""
    largest = float(np.abs(vector).max())
    return largest * float(np.linalg.norm(vector / largest)) if largest > 0 else 0.0


def solve(matrix: Floats, vector: Floats) -> Floats:
    """matrix^-1 vector."""
    return np.asarray(np.linalg.solve(matrix, vector), dtype=np.float64)
