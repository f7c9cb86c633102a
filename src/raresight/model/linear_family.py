"""Linear models on coded matrices: the features made of the columns, and the coefficients.

Features are learned without looking at the labels. A numeric column x becomes t = (x - median)/scale, where
scale is the interquartile range over 1.349 (the deviation of a normal column), or the median distance of the
values that differ from the median where that range is zero. A missing value becomes 0, which is the median,
and has an indicator column where training had missing values. The linear models standardise features by
themselves, so the scale alone changes nothing.

A column with a heavy tail, which reaches beyond 50 scales in training, becomes sign(t) log(1 + |t|) instead:
otherwise a few rows of it set its standard deviation and rule its coefficient, and the bulk of the rows
hardly differ. The order of its values is kept. On the card-fraud table, where 9 of 30 columns are such, this
raised the partial AUC below a false-positive rate of 1 % in 12 of 12 trials, by 0.04 to 0.57 points (two
losses, two penalties, three random halves).

With `knots` a numeric column may bend: it has one more feature max(t - k, 0) for each knot k, so that its
effect is piecewise linear. The knots are evenly spaced quantiles of the distinct values. Quantiles of the
rows would all be the value that most rows share, where there is one. A column of d distinct values has at
most d - 2 knots. With more than 400 features of numeric columns each column has fewer knots, which bounds
memory and keeps the solver at Newton's steps.

A categorical column becomes one column of 0 and 1 for each category with at least 20 training rows; rarer
ones, missing values and codes that training did not see have zeros everywhere. A coefficient for a handful of
rows would only memorise their labels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..common.calibration import level_calibrator
from ..linear import NotConvergedWarning, PathFit, fit_pairs
from ..linear.penalties import relative_l2
from ..linear.threads import by_blocks
from ..losses.for_classes import loss_for_classes
from .families import FAMILIES, Candidate, Fitted, TrainingRows, kept_warnings

__all__ = ["CategoryCodes", "LinearFeatures", "LinearPart", "NumericColumn", "fit", "load"]

Floats = NDArray[np.float64]

(_FILE,) = FAMILIES["linear"].files
_FORMAT = "raresight.linear"

_HEAVY = 50.0
_NORMAL_RANGE = 1.349  # quartiles of the normal distribution are so many deviations apart
_LEAST_ROWS = 20
_MOST_CODES = 1 << 24  # beyond it float32 no longer holds each code
_LARGEST = 1e30  # beyond it, squares of scaled values would leave the range of float32 and float64 sums
_BLOCK_NUMBERS = 1 << 18
_MOST_BENT = 400


@dataclass(frozen=True)
class NumericColumn:
    """Centre and scale of a numeric column, and its knots on that scale.

    `indicator`: missing values have a feature of their own.
    """

    column: int
    centre: float
    scale: float
    heavy: bool
    indicator: bool
    knots: tuple[float, ...] = ()


@dataclass(frozen=True)
class CategoryCodes:
    """The codes of a categorical column that have a feature of their own."""

    column: int
    codes: tuple[int, ...]


@dataclass(frozen=True)
class LinearFeatures:
    """Features of a linear model from the columns of a coded matrix.

    Features are in this order: numeric columns, their missing indicators, bends column by column, categories
    column by column.

    >>> X = np.array([[1.0, 0], [2, 1], [np.nan, 0], [3, 1], [4, np.nan]] * 10)
    >>> features = LinearFeatures.learn(X, categorical=[1], n_categories=[2])
    >>> features.names
    ('0', '0 missing', '1 = 0', '1 = 1')
    >>> features.apply(X[2:3]).tolist()
    [[0.0, 1.0, 1.0, 0.0]]
    """

    n_columns: int
    numeric: tuple[NumericColumn, ...]
    levels: tuple[CategoryCodes, ...]

    @staticmethod
    def learn(
        X: NDArray[Any], categorical: Sequence[int], n_categories: Sequence[int], knots: int = 0
    ) -> LinearFeatures:
        """Read medians, scales, knots and categories from training rows; NaN is missing.

        `categorical` are the positions of the columns that hold codes 0..k-1, `n_categories` their k, `knots`
        the most bends of a numeric column.
        """
        n_columns = X.shape[1]
        coded = dict(zip(categorical, n_categories, strict=True))
        numeric = [_learn_numeric(X[:, j], j, knots) for j in range(n_columns) if j not in coded]
        bent = sum(bool(column.knots) for column in numeric)
        room = max(_MOST_BENT - len(numeric), 0)
        if sum(len(column.knots) for column in numeric) > room:
            numeric = [_learn_numeric(X[:, column.column], column.column, room // bent) for column in numeric]
        levels = [_learn_levels(X[:, j], j, coded[j]) for j in sorted(coded)]
        return LinearFeatures(n_columns, tuple(numeric), tuple(levels))

    @property
    def n_features(self) -> int:
        return len(self.origins)

    @property
    def origins(self) -> tuple[int, ...]:
        """For each feature the column that it comes from."""
        return (
            *(column.column for column in self.numeric),
            *(column.column for column in self.numeric if column.indicator),
            *(column.column for column in self.numeric for _ in column.knots),
            *(level.column for level in self.levels for _ in level.codes),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Features by the positions of their columns."""
        return (
            *(str(column.column) for column in self.numeric),
            *(f"{column.column} missing" for column in self.numeric if column.indicator),
            *(f"{column.column} bend {i + 1}" for column in self.numeric for i in range(len(column.knots))),
            *(f"{level.column} = {code}" for level in self.levels for code in level.codes),
        )

    def apply(self, X: NDArray[Any]) -> Any:
        """Return the features of rows, in the type of X: dense, or a CSR matrix if smaller."""
        self._check(X)
        kind = X.dtype if X.dtype == np.float32 else np.float64
        n, dense_width, width = len(X), self._n_dense, self.n_features
        places = [_level_places(X[:, level.column], level.codes) for level in self.levels]
        dense = np.empty((n, width), dtype=kind) if not self._prefers_sparse(n, places, kind) else None
        numbers = np.empty((n, dense_width), dtype=kind) if dense is None else dense[:, :dense_width]
        for rows in _blocks(n, dense_width):
            numbers[rows] = np.array(list(self._numbers(X[rows]))).T
        if dense is not None:
            dense[:, dense_width:] = 0
            for start, place in zip(self._level_starts(), places):
                found = np.flatnonzero(place >= 0)
                dense[found, start + place[found]] = 1
            return dense
        blocks = [sparse.csr_array(numbers)]
        for level, place in zip(self.levels, places):
            found = np.flatnonzero(place >= 0)
            ones = np.ones(len(found))
            blocks.append(sparse.csr_array((ones, (found, place[found])), shape=(n, len(level.codes))))
        return sparse.csr_matrix(sparse.hstack(blocks, format="csr", dtype=np.float64))

    def scores(self, X: NDArray[Any], coef: Floats, intercept: float) -> Floats:
        """intercept + features . coef of each row, in float64 and without building the features.

        Columns are added one after another, so that a row's score does not depend on the rows around it.
        """
        self._check(X)
        result = np.full(len(X), intercept, dtype=np.float64)
        starts = self._level_starts()
        for rows in _blocks(len(X), X.shape[1]):
            block = X[rows]
            part = result[rows]
            space = np.empty(len(block))
            for factor, numbers in zip(coef, self._numbers(block)):
                if factor:
                    np.multiply(numbers, factor, out=space)
                    part += space
            for level, start in zip(self.levels, starts):
                place = _level_places(block[:, level.column], level.codes)
                # The last number, for no category, is found by the place -1.
                part += np.append(coef[start : start + len(level.codes)], 0.0)[place]
        return result

    # ---- JSON ----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, from which `from_dict` makes an equal object."""
        return {
            "n_columns": self.n_columns,
            "numeric": [
                {
                    "column": column.column,
                    "centre": column.centre,
                    "scale": column.scale,
                    "heavy": column.heavy,
                    "indicator": column.indicator,
                }
                # Not where there are none: files without bends are those of the first format.
                | ({"knots": list(column.knots)} if column.knots else {})
                for column in self.numeric
            ],
            "levels": [{"column": level.column, "codes": list(level.codes)} for level in self.levels],
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> LinearFeatures:
        """Read what `to_dict` wrote."""
        numeric = tuple(
            NumericColumn(
                int(entry["column"]),
                float(entry["centre"]),
                float(entry["scale"]),
                bool(entry["heavy"]),
                bool(entry["indicator"]),
                tuple(float(knot) for knot in entry.get("knots", ())),
            )
            for entry in described["numeric"]
        )
        levels = tuple(
            CategoryCodes(int(entry["column"]), tuple(int(code) for code in entry["codes"]))
            for entry in described["levels"]
        )
        features = cls(int(described["n_columns"]), numeric, levels)
        columns = sorted([column.column for column in numeric] + [level.column for level in levels])
        if len(columns) != features.n_columns or columns != list(range(len(columns))):
            raise ValueError(f"the features do not describe each of {features.n_columns} columns once")
        for column in numeric:
            if not (np.isfinite(column.knots).all() and (np.diff(column.knots) > 0).all()):
                raise ValueError(f"the knots of column {column.column} do not increase")
        for level in levels:
            # Their table is as long as the largest: a number that was made up would fill the memory.
            codes = list(level.codes)
            if codes != sorted({*codes}) or (codes and not 0 <= codes[0] <= codes[-1] < _MOST_CODES):
                raise ValueError(f"the codes of column {level.column} are not those of categories")
        return features

    # ---- steps ---------------------------------------------------------------------------

    def _check(self, X: NDArray[Any]) -> None:
        if X.ndim != 2 or X.shape[1] != self.n_columns:
            raise ValueError(f"the model has {self.n_columns} columns, X has the shape {X.shape}")

    @property
    def _n_dense(self) -> int:
        """Numeric features, missing indicators and bends, which come first."""
        return sum(1 + column.indicator + len(column.knots) for column in self.numeric)

    def _level_starts(self) -> list[int]:
        counts = [len(level.codes) for level in self.levels]
        return [self._n_dense + sum(counts[:i]) for i in range(len(counts))]

    def _prefers_sparse(self, n: int, places: Sequence[NDArray[np.intp]], kind: Any) -> bool:
        if not self.levels:
            return False
        # A sparse matrix has 12 bytes for each number that is not zero, which numeric ones seldom are.
        ones = sum(int(np.count_nonzero(place >= 0)) for place in places)
        entries = n * sum(1 + len(column.knots) for column in self.numeric) + ones
        return bool(12 * entries + 8 * n < n * self.n_features * np.dtype(kind).itemsize)

    def _numbers(self, block: NDArray[Any]) -> Iterator[Floats]:
        """Yield the numeric features, indicators and bends of some rows."""
        numeric = self.numeric
        columns = [column.column for column in numeric]
        x = np.array(block[:, columns].T, dtype=np.float64, order="C")
        missing = np.isnan(x)
        with np.errstate(over="ignore", invalid="ignore"):
            x -= np.array([column.centre for column in numeric])[:, None]
            x /= np.array([column.scale for column in numeric])[:, None]
        x[missing] = 0.0
        np.clip(x, -_LARGEST, _LARGEST, out=x)
        for i, column in enumerate(numeric):
            if column.heavy:
                x[i] = np.copysign(np.log1p(np.abs(x[i])), x[i])
        yield from x
        for absent, column in zip(missing, numeric):
            if column.indicator:
                yield absent.astype(np.float64)
        # One at a time: together they are several times as large as the block.
        for t, column in zip(x, numeric):
            for knot in column.knots:
                yield np.maximum(t - knot, 0.0)


def _learn_numeric(values: NDArray[Any], column: int, knots: int) -> NumericColumn:
    present = values[~np.isnan(values)].astype(np.float64)
    some_missing = len(present) < len(values)
    if not len(present):
        # Neither a median nor an indicator that tells rows apart.
        return NumericColumn(column, 0.0, 1.0, False, False)
    if not np.isfinite(present).all():
        raise ValueError(f"column {column} holds infinite values: write missing values as NaN")
    low, centre, high = (float(q) for q in np.quantile(present, [0.25, 0.5, 0.75], method="nearest"))
    with np.errstate(over="ignore"):
        scale = (high - low) / _NORMAL_RANGE
        distance = np.abs(present - centre)
        apart = distance[distance > 0]
        if not scale > 0 and len(apart):
            scale = float(np.quantile(apart, 0.5, method="nearest"))
        scale = min(scale, np.finfo(np.float64).max) if scale > 0 else 1.0
        heavy = bool(distance.max() > _HEAVY * scale)
    learned = NumericColumn(column, centre, float(scale), heavy, some_missing)
    if not knots:
        return learned
    plain = LinearFeatures(1, (replace(learned, column=0, indicator=False),), ())
    (t,) = plain._numbers(np.unique(present)[:, None])
    inner = np.unique(np.quantile(t, np.arange(1, knots + 1) / (knots + 1), method="nearest"))
    return replace(learned, knots=tuple(float(knot) for knot in inner if t[0] < knot < t[-1]))


def _learn_levels(values: NDArray[Any], column: int, n_categories: int) -> CategoryCodes:
    codes = values[~np.isnan(values)].astype(np.intp)
    if codes.size and not 0 <= codes.min() <= codes.max() < n_categories:
        raise ValueError(
            f"column {column} has {n_categories} categories, but codes from {codes.min()} to {codes.max()}"
        )
    counts = np.bincount(codes, minlength=n_categories)
    return CategoryCodes(column, tuple(int(code) for code in np.flatnonzero(counts >= _LEAST_ROWS)))


def _level_places(values: NDArray[Any], codes: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the place of each value among the codes, -1 if it is absent."""
    if not codes:
        return np.full(len(values), -1, dtype=np.intp)
    table = np.full(codes[-1] + 2, -1, dtype=np.intp)
    table[list(codes)] = np.arange(len(codes))
    known = (values >= 0) & (values <= codes[-1])  # false for NaN
    whole = np.where(known, values, codes[-1] + 1).astype(np.intp)
    return table[whole]


def _blocks(n_rows: int, width: int) -> list[slice]:
    size = max(_BLOCK_NUMBERS // max(width, 1), 64)
    return [slice(begin, min(begin + size, n_rows)) for begin in range(0, n_rows, size)]


# ---- the model ----------------------------------------------------------------------------


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
        """Return the share of each column: what its features, indicators and categories pull together."""
        gathered = np.bincount(
            np.asarray(self.features.origins, dtype=np.intp), self.pull, minlength=self.n_columns
        ).astype(np.float64)
        total = gathered.sum()
        return np.asarray(gathered / total) if total > 0 else gathered

    def save(self, folder: Path) -> None:
        """Write `linear.json`; numbers are written with all their digits."""
        described = {
            "format": _FORMAT,
            "features": self.features.to_dict(),
            "names": list(self.features.names),
            "coefficients": self.coef.tolist(),
            "intercept": self.intercept,
            "pull": self.pull.tolist(),
        }
        (folder / _FILE).write_text(json.dumps(described, indent=1, allow_nan=False))


def fit(candidates: Sequence[Candidate], rows: TrainingRows, seed: int, threads: int | None) -> list[Fitted]:
    """Fit candidates with the same knots in shared passes over the rows; nothing is random."""
    numbers = [int(candidate.settings()["knots"]) for candidate in candidates]
    fits: dict[int, Fitted] = {}
    for knots in dict.fromkeys(numbers):
        places = [place for place, own in enumerate(numbers) if own == knots]
        fits |= zip(places, _fit_together([candidates[place] for place in places], rows, knots, threads))
    return [fits[place] for place in range(len(candidates))]


def _fit_together(
    candidates: Sequence[Candidate], rows: TrainingRows, knots: int, threads: int | None
) -> list[Fitted]:
    """Fit candidates to the same features."""
    with kept_warnings(NotConvergedWarning) as kept:
        pairs = [(candidate.loss, _ridge(candidate, rows)) for candidate in candidates]
        features = LinearFeatures.learn(rows.X, rows.categorical, rows.n_categories, knots)
        table = features.apply(rows.X)
        if not features.n_features:
            # Only categories too rare to have a column: a constant one takes their place, with coefficient 0.
            table = np.zeros((len(rows.X), 1))
        fits = fit_pairs(table, rows.y, pairs, sample_weight=rows.weights)
    deviation = _deviations(table, rows.weights)
    result = []
    for candidate, (_, l2), path in zip(candidates, pairs, fits):
        loss, part = path.loss, _part(features, path, deviation)
        # The solver names the setting that it warns of.
        own = [text for text in kept if text.startswith((f"{loss}, l2={l2:g}:", f"{loss} is not convex"))]
        with kept_warnings() as levels:
            # By the scores as they will be given, in float64: those of the fit may differ in the last digits.
            scores = part.scores(rows.X, threads)
            calibrator = level_calibrator(loss.log_posterior(scores), rows.shares, rows.weights)
        texts = tuple(dict.fromkeys([*own, *levels]))
        result.append(Fitted(candidate, loss, part, rows.start_score(loss), calibrator, texts, threads))
    return result


def _ridge(candidate: Candidate, rows: TrainingRows) -> float:
    loss = loss_for_classes(candidate.loss, np.bincount(rows.y, minlength=2))
    return relative_l2(loss, rows.shares, float(candidate.settings()["l2"]))


def load(folder: Path, family: str) -> LinearPart:
    """Read what `LinearPart.save` wrote."""
    path = folder / _FILE
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
