"""A look at a table before anything is learned from it: what it holds, and what may be wrong with it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raresight.data._arrow import compute
from raresight.data.coding import is_number, plain, texts_of, typed_numbers
from raresight.data.columns import Column, Dropped
from raresight.data.schema import Schema

LEAK_AUC = 0.999
FEWEST = 5
# More values than these are not needed to see that a column gives the target away.
_MOST_NEGATIVES = 200_000
_MOST_VALUES = 20_000_000


@dataclass(frozen=True)
class ColumnLook:
    """What was seen of one column.

    Attributes:
        name, kind, note: As in the schema.
        missing: Share of rows without a value.
        distinct: How many different values there are.
        auc: How well the column alone separates the classes, 0.5 to 1 (the better of both directions; the
            best of a date's parts; a category by its share of positives). None if that was not computed.
    """

    name: str
    kind: str
    missing: float
    distinct: int
    note: str = ""
    auc: float | None = None


@dataclass(frozen=True)
class Profile:
    """What was seen of a table.

    Attributes:
        rows, positives: How many there are.
        prior: Share of positives; `rho` = prior/(1 - prior).
        duplicates: How many rows repeat an earlier one in all features and the target.
        columns: The columns used, one by one; `dropped`: those not used, with the reason.
        warnings: What a reader should know before trusting a model of this table, a sentence each.
    """

    rows: int
    positives: int
    prior: float
    rho: float
    duplicates: int
    columns: tuple[ColumnLook, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        values = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def look(
    table: Any,
    schema: Schema,
    X: NDArray[Any],
    y: ArrayLike,
    *,
    fpr: float,
    max_fpr: float,
    test_rows: int | ArrayLike | None = None,
) -> Profile:
    """Look at a table for what would spoil a model or its judgement.

    Args:
        table: The Arrow table.
        schema: What its columns are.
        X: `schema.matrix(table)`.
        y: `schema.labels(table)`.
        fpr: The false-positive rate at which the model will be used.
        max_fpr: The one up to which candidates are compared.
        test_rows: The rows that will judge: their positions, or only how many they are. None: not yet known.

    Raises:
        ValueError: If there are fewer than five positives or five negatives.

    Example:
        >>> import pyarrow as pa
        >>> from raresight.data import learn_schema
        >>> x, fraud = [float(i % 7) for i in range(400)], [int(i < 20) for i in range(400)]
        >>> table = pa.table({"x": x, "y": fraud})
        >>> schema = learn_schema(table, "y")
        >>> X, y = schema.matrix(table), schema.labels(table)
        >>> profile = look(table, schema, X, y, fpr=0.01, max_fpr=0.1, test_rows=100)
        >>> profile.rows, profile.positives, profile.duplicates
        (400, 20, 386)
        >>> print(profile.warnings[-1])  # doctest: +ELLIPSIS
        386 of 400 rows repeat another one ...
    """
    labels = np.asarray(y)
    rows, positives = len(labels), int(labels.sum())
    negatives = rows - positives
    for count, name in ((positives, "positive"), (negatives, "negative")):
        if count < FEWEST:
            raise ValueError(
                f"a model cannot be chosen and judged on {count} {name}{'' if count == 1 else 's'}; "
                f"at least {FEWEST} are needed, and fifty are not many"
            )
    prior = positives / rows
    duplicates = count_repeated(X, labels)
    columns = _look_at_columns(table, schema, X, labels)
    warnings = [
        *_on_rows(rows, positives, prior, schema),
        *_on_test(labels, test_rows, fpr, max_fpr),
        *_on_columns(columns),
    ]
    if duplicates > 0.001 * rows:
        warnings.append(
            f"{duplicates} of {rows} rows repeat another one in all columns; "
            "the same row may train the model and judge it, which flatters the result"
        )
    return Profile(
        rows=rows,
        positives=positives,
        prior=prior,
        rho=positives / negatives,
        duplicates=duplicates,
        columns=columns,
        dropped=schema.dropped,
        warnings=tuple(warnings),
    )


def count_repeated(X: NDArray[Any], y: NDArray[Any]) -> int:
    """How many rows equal an earlier one in all features and the label; missing equals missing.

    Rows are brought together by a hash and then compared, so that the number is exact.

    Example:
        >>> count_repeated(np.array([[1.0, np.nan], [1.0, np.nan], [1.0, np.nan]]), np.array([0, 0, 1]))
        1
    """
    word = np.uint32 if X.dtype.itemsize == 4 else np.uint64
    rng = np.random.default_rng(0)
    hashes = np.asarray(y, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        for position in range(X.shape[1]):
            words = _canonical(X[:, position]).view(word).astype(np.uint64)
            words ^= words >> np.uint64(29)
            words *= np.uint64(rng.integers(1, 2**63) * 2 + 1)
            hashes += words ^ (words >> np.uint64(32))
    order = np.argsort(hashes, kind="stable")
    same_hash = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    equal = np.ones(len(same_hash), dtype=bool)
    for position in range(X.shape[1]):
        column = X[:, position]
        left, right = column[order[same_hash]], column[order[same_hash + 1]]
        equal &= (left == right) | (np.isnan(left) & np.isnan(right))
    labels = np.asarray(y)
    equal &= labels[order[same_hash]] == labels[order[same_hash + 1]]
    if not equal.all():
        # Two different rows have one hash: then by sorting whole rows.
        whole = np.column_stack([_canonical(X[:, position]) for position in range(X.shape[1])] + [labels])
        return len(whole) - len(np.unique(np.ascontiguousarray(whole).view(f"V{whole.strides[0]}")))
    return len(same_hash)


def _canonical(column: NDArray[Any]) -> NDArray[Any]:
    """One bit pattern for each value: no negative zero, one NaN."""
    values = column + column.dtype.type(0)
    values[np.isnan(values)] = np.nan
    return np.ascontiguousarray(values)


def auc_alone(column: NDArray[Any], y: NDArray[Any], *, categorical: bool = False) -> float:
    """The area under the ROC curve of one column, 0.5 to 1; missing is a value of its own.

    A numeric column is taken in its better direction, with missing values at the better end. The levels of a
    categorical one are ordered by their share of positives.

    Example:
        >>> auc_alone(np.array([3.0, 1.0, 2.0, 1.0]), np.array([0, 1, 0, 1]))
        1.0
        >>> auc_alone(np.array([0.0, 0.0, 1.0, 2.0]), np.array([0, 1, 1, 0]), categorical=True)
        0.875
    """
    missing = np.isnan(column)
    if categorical:
        codes = np.where(missing, -1, column).astype(np.intp) + 1
        positives = np.bincount(codes, weights=y)
        totals = np.bincount(codes)
        shares = positives / np.maximum(totals, 1)
        return _auc(shares[codes][y == 0], shares[codes][y == 1])
    if not missing.any():
        return _better(_auc(column[y == 0], column[y == 1]))
    ends = [np.where(missing, end, column) for end in (-np.inf, np.inf)]
    return max(_better(_auc(values[y == 0], values[y == 1])) for values in ends)


def _auc(negatives: NDArray[Any], positives: NDArray[Any]) -> float:
    """P(negative < positive) + P(equal)/2."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, side="left").sum(dtype=np.float64)
    not_above = np.searchsorted(ordered, positives, side="right").sum(dtype=np.float64)
    return float((below + not_above) / 2 / len(negatives) / len(positives))


def _better(auc: float) -> float:
    return abs(auc - 0.5) + 0.5


def _look_at_columns(
    table: Any, schema: Schema, X: NDArray[Any], labels: NDArray[Any]
) -> tuple[ColumnLook, ...]:
    negatives = np.flatnonzero(labels == 0)
    most = min(_MOST_NEGATIVES, max(_MOST_VALUES // max(X.shape[1], 1), 2000))
    if len(negatives) > most:
        negatives = np.random.default_rng(0).choice(negatives, most, replace=False)
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == 1), negatives]))
    chosen_labels = labels[chosen]
    looks = []
    position = 0
    for column in schema.columns:
        width = len(column.features)
        own = X[:, position : position + width]
        position += width
        aucs = [
            auc_alone(own[chosen, part], chosen_labels, categorical=column.kind == "categorical")
            for part in range(width)
        ]
        values = plain(table.column(column.name))
        looks.append(
            ColumnLook(
                name=column.name,
                kind=column.kind,
                missing=_missing_share(values, own, column),
                distinct=_distinct(values),
                note=column.note,
                auc=max(aucs),
            )
        )
    return tuple(looks)


def _missing_share(values: Any, own: NDArray[Any], column: Column) -> float:
    if column.kind != "categorical":
        return float(np.isnan(own[:, 0]).mean())
    # A rare level has no code, but it is not missing.
    texts = texts_of(values)
    empty = int(compute().sum(compute().equal(texts, "")).as_py() or 0)
    return float((texts.null_count + empty) / len(texts))


def _distinct(values: Any) -> int:
    if not is_number(values.type):
        return int(compute().count_distinct(values).as_py())
    # Sorting numbers is several times as fast as hashing them.
    numbers = typed_numbers(values)
    ordered = np.sort(numbers[~np.isnan(numbers)] if numbers.dtype.kind == "f" else numbers)
    return int((ordered[1:] != ordered[:-1]).sum()) + (len(ordered) > 0)


def _on_rows(rows: int, positives: int, prior: float, schema: Schema) -> list[str]:
    warnings = []
    if schema.target_note:
        warnings.append(f"target {schema.target!r}: {schema.target_note}; say so if it is the other one")
    if rows < 200:
        warnings.append(f"the table has only {rows} rows; what is measured on it is little more than a guess")
    if positives < 50:
        warnings.append(
            f"there are only {positives} positives; expect wide intervals and a choice of model by luck"
        )
    if prior > 0.3:
        warnings.append(
            f"{prior:.0%} of the rows are positive, which is not rare; the losses are made for rare positives"
        )
    return warnings


def _on_test(
    labels: NDArray[Any], test_rows: int | ArrayLike | None, fpr: float, max_fpr: float
) -> list[str]:
    if test_rows is None:
        return []
    chosen = np.asarray(test_rows)
    if chosen.ndim == 0:
        share = int(chosen) / len(labels)
        positives = round(share * float(labels.sum()))
        negatives = round(share * float(len(labels) - labels.sum()))
    else:
        positives = int(labels[chosen].sum())
        negatives = len(labels[chosen]) - positives
    warnings = []
    if positives < 10:
        warnings.append(
            f"the test rows have only {positives} positives; the recall measured there is a rough guess"
        )
    alarms = fpr * negatives
    if alarms < 1:
        warnings.append(
            f"the test rows have {negatives} negatives, so not even one false alarm is expected at the "
            f"false-positive rate {fpr:g}: the recall there cannot be told; "
            f"at least {round(10 / fpr)} negatives are needed"
        )
    elif alarms < 10:
        warnings.append(
            f"the test rows have {negatives} negatives, so about {alarms:.2g} false alarms are expected at "
            f"the false-positive rate {fpr:g}: the recall there is rough; "
            f"{round(10 / fpr)} negatives would tell"
        )
    if max_fpr * negatives < 1 <= max_fpr / fpr:
        warnings.append(
            f"candidates are compared up to the false-positive rate {max_fpr:g}, but the test rows have only "
            f"{negatives} negatives: too few to tell one from another"
        )
    return warnings


def _on_columns(columns: tuple[ColumnLook, ...]) -> list[str]:
    warnings = [
        f"leak? {column.name!r} alone separates the classes with an AUC of {_floor(column.auc)}; "
        "is it known at the time of the decision?"
        for column in columns
        if column.auc is not None and column.auc > LEAK_AUC
    ]
    empty = [column for column in columns if column.missing > 0.5]
    if empty:
        shown = ", ".join(f"{column.name!r} ({column.missing:.0%})" for column in empty[:5])
        more = f" and {len(empty) - 5} more" if len(empty) > 5 else ""
        warnings.append(f"more than half of the values are missing in {shown}{more}")
    return warnings


def _floor(auc: float) -> str:
    """Four digits, never rounded up to 1."""
    return "1" if auc == 1 else f"{np.floor(auc * 10_000) / 10_000:.4f}"
