"""The features as the solver sees them: blocks of rows, mean 0 and deviation 1.

With centre c and unit u (means and deviations of the columns, weighted as the rows are), the solver's
features are (x - c)/u. Nothing of the size of X is copied: coefficients go outward to the units of X and
gradients come inward,

    b_X = b/u,   b0_X = b0 - c.b_X,      X_s'g = (X'g - c sum g)/u,

so that sparse data stay sparse. Dense columns far from zero or in extreme units, for which these
differences would lose their digits, are centred and scaled block by block instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from .threads import in_threads

__all__ = ["Columns", "Design", "Floats", "make_design", "row_blocks"]

Floats = NDArray[np.float64]

# Numbers in a block: few enough for a core's cache, but enough that a thread computes far longer than it
# holds the interpreter lock, for which the other threads wait.
_BLOCK_NUMBERS = 1 << 20
_MOST_ROWS = 1 << 15
_TASKS = 16  # fixed, so that sums do not depend on the number of cores
_FAR = 8.0  # deviations between a column's mean and zero
_EXTREME = 1e6
_FARTHEST = 1e6  # deviations between a sparse column's mean and zero that its coefficient can hold


@dataclass(frozen=True, eq=False)
class Columns:
    """Centres and scales of the columns, which also convert coefficients and sums.

    `inverse_unit` is 0 for a constant column, whose coefficient then is 0. With `explicit` blocks are
    standardised when they are read, not through the coefficients. Parts of the same rows (batches) share one
    of these; otherwise their sums could not be added.
    """

    centre: Floats
    inverse_unit: Floats
    explicit: bool
    intercept: bool

    @property
    def n_features(self) -> int:
        return len(self.centre)

    @property
    def n_columns(self) -> int:
        """Features and, where there is one, the intercept, which comes last."""
        return self.n_features + int(self.intercept)

    # ---- coefficients --------------------------------------------------------------------

    def outward(self, theta: Floats) -> tuple[Floats, Floats]:
        """Coefficients (K, d) and intercepts (K,) in the units of X from the solver's (K, columns)."""
        coef = theta[:, : self.n_features] * self.inverse_unit
        own = theta[:, -1] if self.intercept else np.zeros(len(theta))
        return coef, own - coef @ self.centre

    def inward(self, coef: Floats, intercept: Floats) -> Floats:
        """Return the solver's coefficients from those in the units of X."""
        scale = self.inverse_unit
        unit = np.divide(1.0, scale, out=np.zeros(len(scale)), where=scale > 0)  # 0: a constant column
        inner = coef * unit
        return np.column_stack([inner, intercept + coef @ self.centre]) if self.intercept else inner

    # ---- sums ----------------------------------------------------------------------------

    def fold(self) -> tuple[Floats, Floats]:
        """(centre, inverse unit) that are left to the coefficients."""
        if self.explicit:
            return np.zeros(self.n_features), np.ones(self.n_features)
        return self.centre, self.inverse_unit

    def gradient_inward(self, product: Floats, total: Floats) -> Floats:
        """(K, columns) from X'g of shape (K, d) and sum g of shape (K,)."""
        centre, scale = self.fold()
        inner = (product - total[:, None] * centre) * scale
        return np.column_stack([inner, total]) if self.intercept else inner

    def hessian_inward(
        self, product: Floats, weighted: Floats, total: float, features: NDArray[np.intp] | None = None
    ) -> Floats:
        """(columns, columns) from X'hX, X'h and sum h, of all features or of those named."""
        centre, scale = self.fold()
        if features is not None:
            centre, scale = centre[features], scale[features]
        cross = np.outer(centre, weighted)
        inner = (product - cross - cross.T + total * np.outer(centre, centre)) * np.outer(scale, scale)
        if not self.intercept:
            return inner
        size = len(centre)
        result = np.empty((size + 1, size + 1))
        result[:size, :size] = inner
        result[:size, size] = result[size, :size] = (weighted - total * centre) * scale
        result[size, size] = total
        return result


@dataclass(frozen=True, eq=False)
class Design:
    """Features in memory, and how their columns are centred and scaled."""

    X: Any
    columns: Columns

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def is_sparse(self) -> bool:
        return bool(sparse.issparse(self.X))

    @property
    def is_single(self) -> bool:
        """Whether blocks can be had in float32 without loss."""
        return not self.is_sparse and bool(self.X.dtype == np.float32)

    def tasks(self) -> list[list[slice]]:
        """Return the blocks of rows in groups, one group per task."""
        per_row = self.X.nnz // max(self.n_rows, 1) if self.is_sparse else self.columns.n_features
        blocks = row_blocks(self.n_rows, per_row)
        return [part for part in (blocks[i::_TASKS] for i in range(_TASKS)) if part]

    def block(self, rows: slice, double: bool) -> Any:
        """Return the rows, in float64 or in their own type."""
        block = self.X[rows]
        if self.is_sparse:
            return block
        kind = np.float64 if double else self.X.dtype
        if self.columns.explicit:
            # The mean is subtracted in float64: float32 may not even hold it.
            columns = self.columns
            return ((block - columns.centre) * columns.inverse_unit).astype(kind, copy=False)
        return block.astype(kind, copy=False)

    def standardised(self, rows: slice) -> Floats:
        """The rows as the solver has them, in float64, with a last column of ones for the intercept."""
        block = self.X[rows]
        dense = block.toarray() if self.is_sparse else block
        inner = (dense - self.columns.centre) * self.columns.inverse_unit
        ones = np.ones(len(inner))
        return np.column_stack([inner, ones]) if self.columns.intercept else np.asarray(inner)

    def take(self, rows: NDArray[np.intp]) -> Design:
        """The same columns, standardised alike, of some of the rows."""
        return Design(self.X[rows], self.columns)


def row_blocks(n_rows: int, per_row: int) -> list[slice]:
    """Slices that cover rows of `per_row` numbers, each small enough for a core's cache."""
    size = min(max(_BLOCK_NUMBERS // max(per_row, 1), 256), _MOST_ROWS)
    return [slice(begin, min(begin + size, n_rows)) for begin in range(0, n_rows, size)]


def make_design(X: Any, weights: Floats | None, intercept: bool) -> Design:
    """Read the columns' means and deviations, in float64.

    Without an intercept columns are not centred, and their unit is the root of the mean square. A sparse
    column too far from zero is an error.
    """
    is_sparse: bool = sparse.issparse(X)
    if is_sparse:
        X = X.astype(np.float64, copy=False)
        if not X.has_canonical_format:  # entries given twice are one number; X itself stays the user's
            X = X.copy()
            X.sum_duplicates()
        shift = np.zeros(X.shape[1])
        sums = _sparse_sums(X, weights)
    else:
        # From the first row, so that a constant column has a variance of exactly zero.
        shift = X[0].astype(np.float64) if intercept else np.zeros(X.shape[1])
        sums = _dense_sums(X, weights, shift)
    total, first, second = sums
    mean = first / total
    if not intercept:
        centre, variance = np.zeros(len(mean)), second / total
    else:
        centre = shift + mean
        if is_sparse:
            variance = _sparse_squares(X, weights, centre) / total
        else:
            variance = _refined(X, weights, centre, second / total - mean**2, mean)
    # What is left of a constant column's variance is the rounding of its mean.
    rounding = X.shape[0] * np.finfo(np.float64).eps * (np.abs(mean) if intercept else 0.0)
    varies = (variance > 0) & (_sparse_varies(X, weights) if is_sparse else variance > rounding**2)
    unit = np.sqrt(np.where(varies, variance, 1.0))
    inverse_unit = np.where(varies, 1 / unit, 0.0)
    if is_sparse:
        _refuse_far_columns(centre, unit, varies)
    odd = (np.abs(centre) > _FAR * unit) | (unit > _EXTREME) | (unit < 1 / _EXTREME)
    explicit = not is_sparse and bool(np.any(odd & varies))
    return Design(X, Columns(centre, inverse_unit, explicit, intercept))


def _dense_sums(X: NDArray[Any], weights: Floats | None, shift: Floats) -> tuple[float, Floats, Floats]:
    """Sum of weights, of w (x - shift) and of w (x - shift)^2."""
    blocks = row_blocks(*X.shape)

    def work(part: list[slice]) -> tuple[float, Floats, Floats]:
        total, first, second = 0.0, np.zeros(X.shape[1]), np.zeros(X.shape[1])
        space = np.empty((blocks[0].stop, X.shape[1]))
        ones = np.ones(len(space))
        for rows in part:
            block = space[: rows.stop - rows.start]
            np.copyto(block, X[rows])
            block -= shift
            weight = ones[: len(block)] if weights is None else weights[rows]
            total += float(weight.sum())
            first += weight @ block
            np.multiply(block, block, out=block)
            second += weight @ block
        return total, first, second

    parts = in_threads(work, [part for part in (blocks[i::_TASKS] for i in range(_TASKS)) if part])
    total = sum(part[0] for part in parts)
    return total, sum(part[1] for part in parts), sum(part[2] for part in parts)  # type: ignore[return-value]


def _refined(
    X: NDArray[Any], weights: Floats | None, centre: Floats, variance: Floats, mean: Floats
) -> Floats:
    """Recompute the variance about the mean where the first row was so far off that digits were lost."""
    if not np.any(mean**2 > 1e6 * np.abs(variance)):
        return variance
    total, first, second = _dense_sums(X, weights, centre)
    result: Floats = np.where(variance == 0, 0.0, second / total - (first / total) ** 2)
    return result


def _sparse_sums(X: Any, weights: Floats | None) -> tuple[float, Floats, Floats]:
    weight = np.ones(X.shape[0]) if weights is None else weights
    first = np.asarray(X.T @ weight, dtype=np.float64)
    second = np.asarray(X.multiply(X).T @ weight, dtype=np.float64)
    return float(weight.sum()), first, second


def _sparse_squares(X: Any, weights: Floats | None, centre: Floats) -> Floats:
    """Return the sum of w (x - centre)^2, over the stored entries and the zeros that are not stored.

    It takes two passes. For a column whose mean is 1e8 deviations from zero, the mean of the squares less the
    square of the mean has no digits left.
    """
    d = X.shape[1]
    squares = (X.data - centre[X.indices]) ** 2
    if weights is None:
        of_entries, total = np.ones(len(squares)), float(X.shape[0])
    else:
        of_entries, total = np.repeat(weights, np.diff(X.indptr)), float(weights.sum())
    stored = np.bincount(X.indices, of_entries, minlength=d)
    result = np.bincount(X.indices, of_entries * squares, minlength=d)
    # A sum of weights is exact to rounding only, and a full column has no zeros.
    full = np.bincount(X.indices, minlength=d) == X.shape[0]
    zeros = np.where(full, 0.0, np.maximum(total - stored, 0.0))
    return np.asarray(result + zeros * centre**2, dtype=np.float64)


def _sparse_varies(X: Any, weights: Floats | None) -> NDArray[np.bool_]:
    """Return exactly whether a column holds two values among rows with weight."""
    d = X.shape[1]
    columns, values, n_rows = X.indices, X.data, X.shape[0]
    if weights is not None and not weights.all():
        counted = np.repeat(weights > 0, np.diff(X.indptr))
        columns, values, n_rows = columns[counted], values[counted], int(np.count_nonzero(weights))
    full = np.bincount(columns, minlength=d) == n_rows
    low, high = np.where(full, np.inf, 0.0), np.where(full, -np.inf, 0.0)
    np.minimum.at(low, columns, values)
    np.maximum.at(high, columns, values)
    return np.asarray(low < high)


def _refuse_far_columns(centre: Floats, unit: Floats, varies: NDArray[np.bool_]) -> None:
    """Refuse sparse columns far from zero: centred as x.b - c.b they would keep few digits."""
    far = np.flatnonzero(varies & (np.abs(centre) > _FARTHEST * unit))
    if len(far):
        column = int(far[0])
        raise ValueError(
            f"column {column} of the sparse X has mean {centre[column]:.6g}, deviation {unit[column]:.3g}: "
            f"a mean of more than {_FARTHEST:g} deviations leaves too few digits. Sparse columns are not "
            "centred in place: subtract the mean from the column, or pass X dense"
        )
