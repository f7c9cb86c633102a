"""Columns of categories as numbers: one input for each frequent level, one for all the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MISSING", "MOST_LEVELS", "UNSEEN", "CategoryEncoder"]

# Levels with an input of their own. The weights of a level are learnt from its rows alone: where there are
# hundreds of levels most are too rare for that, and one-hot rows too long.
MOST_LEVELS = 50
# Codes of values that are no level.
UNSEEN, MISSING = -1, -2


@dataclass(frozen=True, eq=False)
class CategoryEncoder:
    """The levels of one column that training saw; codes from 0 on are positions in `known`.

    Inputs: one for each level of `frequent`, then, where there are more levels, one for all others together.
    A value that training did not see has the mean inputs of training, `shares`: with zeros, which no row of
    training had, a net would take away what it learnt of all levels together. A missing value has zeros.

    >>> levels = CategoryEncoder.learn(("DE", "FR", "IT"), np.array([0, 0, 1, 2]), np.ones(4), most=1)
    >>> levels.apply(np.array([0, 2, UNSEEN, MISSING])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.0, 0.0]]
    """

    known: tuple[Any, ...]
    frequent: tuple[int, ...]
    shares: tuple[float, ...]

    @classmethod
    def learn(
        cls, known: tuple[Any, ...], codes: NDArray[np.int64], weights: NDArray[Any], most: int = MOST_LEVELS
    ) -> CategoryEncoder:
        """From the codes of training rows, which hold every level of `known`; a code below 0 is no level.

        Of levels with equal weight the first in `known` comes first.
        """
        seen = codes >= 0
        mass = np.bincount(codes[seen], weights[seen], minlength=len(known))
        # Weights that are no whole numbers have sums that differ in their last digits with the order of rows.
        order = np.argsort(-np.log(mass).round(9), kind="stable")
        frequent = sorted(int(code) for code in order[:most])
        parts = mass[frequent] / mass.sum()
        rest = [max(0.0, 1.0 - parts.sum())] if len(frequent) < len(known) else []
        # Rounded, for the same reason.
        return cls(known, tuple(frequent), tuple(round(float(part), 9) for part in (*parts, *rest)))

    @property
    def pooled(self) -> bool:
        """Whether levels are left over for the input of the others."""
        return len(self.frequent) < len(self.known)

    @property
    def n_inputs(self) -> int:
        return len(self.frequent) + self.pooled

    def apply(self, codes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Codes (n,) to inputs (n, n_inputs)."""
        place = np.full(len(self.known) + 1, len(self.frequent))
        place[list(self.frequent)] = np.arange(len(self.frequent))
        inputs = np.zeros((len(codes), self.n_inputs), dtype=np.float32)
        inputs[codes == UNSEEN] = self.shares
        rows = np.flatnonzero(codes >= 0)
        inputs[rows, place[codes[rows]]] = 1.0
        return inputs
