"""Profile a table before anything is learned from it: what it holds, and what may be wrong with it.

AUCs, duplicates, and missing and distinct numbers are computed from the coded matrix of the training rows.
The summaries that merge would not do, for three reasons:
- The summaries include the held-out rows. Counts per class would reveal the labels of those rows.
- A duplicate is equal in all columns at once, which no summary of single columns can tell.
- An AUC and an exact count of distinct numbers need all values, and a matrix that is in memory has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raresight.tables._arrow import compute, mask_of
from raresight.tables.column_kinds import LOOKS_LIKE_NUMBERS, NOT_READ
from raresight.tables.columns import Column, Dropped
from raresight.tables.duplicates import count_repeated
from raresight.tables.held_out_checks import (
    class_count_warnings,
    counted,
    shared_row_warnings,
    unseen_category_warnings,
)
from raresight.tables.schema import Schema
from raresight.tables.summaries import ColumnSummary, TableSummary

LEAK_AUC = 0.999
FEWEST = 5
_REPEATED, _REPEATED_TOGETHER = 0.001, 0.1
# This many values are enough to see that a column leaks the target.
_MOST_NEGATIVES = 200_000
_MOST_VALUES = 20_000_000
_MOST_LINES = 30
_LONGEST = 40


@dataclass(frozen=True)
class ColumnProfile:
    """Statistics of one column.

    Attributes:
        name, kind, format, note: Those of the schema.
        missing: Share of rows without a value.
        distinct: Number of distinct values.
        auc: AUC of the column alone, 0.5 to 1; see `auc_alone`. Of a date it is the best of its parts.
            None if it was not computed.
        example: One of its values.
        role: "feature", or "feature and time" if it also orders the rows.
    """

    name: str
    kind: str
    missing: float
    distinct: int
    note: str = ""
    auc: float | None = None
    format: str = ""
    example: str = ""
    role: str = "feature"


@dataclass(frozen=True)
class DroppedProfile(Dropped):
    """A column that is no feature, with one of its values, and its role: "time", "group" or "not used"."""

    example: str = ""
    role: str = "not used"


@dataclass(frozen=True)
class Profile:
    """Statistics of the training rows, and warnings.

    Attributes:
        rows, positives: Number of rows and of positives.
        prior: Share of positives; `rho` = prior/(1 - prior).
        duplicates: Number of training rows that repeat an earlier one in all features and the target.
        columns: The columns used, one by one; `dropped`: those not used, with the reason.
        warnings: What to know before trusting a model of this table, one sentence each.
        leaks: The columns left out because they give the target away.
        doubtful: The columns used that may give the target away.
    """

    rows: int
    positives: int
    prior: float
    rho: float
    duplicates: int
    columns: tuple[ColumnProfile, ...]
    dropped: tuple[DroppedProfile, ...]
    warnings: tuple[str, ...]
    leaks: tuple[str, ...] = ()
    doubtful: tuple[str, ...] = ()

    def column_summary(self) -> str:
        """Describe the columns for the terminal: counts, then what was decided for each, with an example.

        Of many columns, those with a note and those dropped come first.

        Example:
            >>> columns = (
            ...     ColumnProfile("a", "numeric", 0.0, 9, example="0.5"),
            ...     ColumnProfile("b", "date", 0.0, 9, "dates read as DD.MM.YY", example="31.05.24"),
            ... )
            >>> dropped = (DroppedProfile("id", "identifier: 9 different texts in 9 rows", "u-17"),)
            >>> print(Profile(9, 5, 5 / 9, 5 / 4, 0, columns, dropped, ()).column_summary())
            2 columns: 1 numeric, 1 date; 1 not used
              a: numeric, such as 0.5
              b: date, such as 31.05.24 (dates read as DD.MM.YY)
              id: not used, such as 'u-17' (identifier: 9 different texts in 9 rows)
        """
        kinds = [column.kind for column in self.columns]
        numbers = [
            f"{kinds.count(kind)} {kind}" for kind in ("numeric", "categorical", "date") if kind in kinds
        ]
        line = f"{counted(len(kinds), 'column')}: {', '.join(numbers)}"
        left_out = sum(one.role == "not used" for one in self.dropped)
        line += f"; {left_out} not used" if left_out else ""
        decisions = self.decisions()
        if len(decisions) > _MOST_LINES:
            decisions.sort(key=lambda one: not one["note"])
        lines = [line, *map(_line, decisions[:_MOST_LINES])]
        if len(decisions) > _MOST_LINES:
            lines.append(f"  and {len(decisions) - _MOST_LINES} more")
        return "\n".join(lines)

    def decisions(self) -> list[dict[str, str]]:
        """Return what was decided for each column: name, role, kind, format, an example and a note."""
        used = [
            {"name": one.name, "role": one.role, "kind": one.kind, "format": one.format}
            | {"example": _shortened(one.example), "note": one.note}
            for one in self.columns
        ]
        dropped = [
            {"name": one.name, "role": one.role, "kind": "", "format": ""}
            | {"example": _shortened(one.example), "note": one.reason}
            for one in self.dropped
        ]
        return used + dropped

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = asdict(self)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


def make_profile(
    summary: TableSummary,
    schema: Schema,
    X: NDArray[Any],
    y: ArrayLike,
    *,
    fpr: float,
    max_fpr: float,
    test: tuple[NDArray[Any], NDArray[Any]] | None = None,
    copies_together: bool = False,
    leaks: Mapping[str, str] | None = None,
) -> Profile:
    """Check a table for leaks, duplicates and other problems before training.

    Args:
        summary: Of the table, see `summarize_parts`. Missing and different values of categories and dates are
            counted in all its rows.
        schema: What its columns are.
        X: The training rows: `schema.matrix(table)`.
        y: Their labels: `schema.labels(table)`.
        fpr: The false-positive rate at which the model will be used.
        max_fpr: The one up to which candidates are compared.
        test: Matrix and labels of the held-out rows, coded by the same schema. Default: unknown.
        copies_together: Whether all copies of a row are on one side of every split.
        leaks: Columns that give the target away, used or dropped, and what shows it: see `find_leaks`.

    Raises:
        ValueError: If there are fewer than five positives or five negatives.

    Example:
        >>> import pyarrow as pa
        >>> from raresight.tables import learn_schema, summarize_parts
        >>> x, fraud = [float(i % 7) for i in range(400)], [int(i < 20) for i in range(400)]
        >>> table = pa.table({"x": x, "y": fraud})
        >>> summary = summarize_parts(table)
        >>> schema = learn_schema(summary, "y")
        >>> X, y = schema.matrix(table), schema.labels(table)
        >>> profile = make_profile(summary, schema, X, y, fpr=0.01, max_fpr=0.1, test=(X[:100], y[:100]))
        >>> profile.rows, profile.positives, profile.duplicates
        (400, 20, 386)
        >>> print(profile.warnings[-1])
        100 of the 100 test rows are also among the training rows (100%): the result flatters the model
    """
    labels = np.asarray(y)
    rows, positives = len(labels), int(labels.sum())
    negatives = rows - positives
    for count, name in ((positives, "positive"), (negatives, "negative")):
        if count < FEWEST:
            raise ValueError(
                f"the training rows have only {counted(count, name)}: a model cannot be chosen and evaluated "
                f"on so few; at least {FEWEST} are needed, better fifty"
            )
    prior = positives / rows
    duplicates = count_repeated(X, labels)
    columns = _profile_columns(summary, schema, X, labels)
    seen = dict(leaks or {})
    used = {column.name for column in columns}
    warnings = [
        *(_leak_warning(name, shown, is_used=name in used) for name, shown in seen.items()),
        *_row_warnings(rows, positives, prior, schema),
        *(class_count_warnings(np.asarray(test[1]), fpr, max_fpr) if test is not None else []),
        *_column_warnings([column for column in columns if column.name not in seen]),
        *_note_warnings(columns, schema.dropped),
    ]
    if duplicates > (_REPEATED_TOGETHER if copies_together else _REPEATED) * rows:
        what = (
            "all copies are on one side of a split, and each has its weight"
            if copies_together
            else "in the search the same row may train a candidate and evaluate it"
        )
        warnings.append(
            f"{duplicates} of {counted(rows, 'training row')} repeat another one in all columns; {what}"
        )
    if test is not None:
        few_different = duplicates > rows / 2
        warnings += shared_row_warnings(X, labels, test[0], np.asarray(test[1]), few_different=few_different)
        warnings += unseen_category_warnings(schema, X, test[0])
    return Profile(
        rows=rows,
        positives=positives,
        prior=prior,
        rho=positives / negatives,
        duplicates=duplicates,
        columns=columns,
        dropped=tuple(
            DroppedProfile(
                one.name,
                one.reason,
                summary.column(one.name).example,
                {schema.time: "time", schema.group: "group"}.get(one.name, "not used"),
            )
            for one in schema.dropped
        ),
        warnings=tuple(warnings),
        leaks=tuple(name for name in seen if name not in used),
        doubtful=tuple(
            column.name for column in columns if column.name in seen or (column.auc or 0) > LEAK_AUC
        ),
    )


def auc_alone(column: NDArray[Any], y: NDArray[Any], *, categorical: bool = False) -> float:
    """Compute the area under the ROC curve of one column, 0.5 to 1; missing is a value of its own.

    A numeric column is taken in its better direction, with missing values at the better end. The categories
    of a categorical one are ordered by their share of positives.

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
    """Compute P(negative < positive) + P(equal)/2."""
    ordered = np.sort(negatives)
    below = np.searchsorted(ordered, positives, side="left").sum(dtype=np.float64)
    not_above = np.searchsorted(ordered, positives, side="right").sum(dtype=np.float64)
    return float((below + not_above) / 2 / len(negatives) / len(positives))


def _better(auc: float) -> float:
    return abs(auc - 0.5) + 0.5


def _profile_columns(
    summary: TableSummary, schema: Schema, X: NDArray[Any], labels: NDArray[Any]
) -> tuple[ColumnProfile, ...]:
    negatives = np.flatnonzero(labels == 0)
    most = min(_MOST_NEGATIVES, max(_MOST_VALUES // max(X.shape[1], 1), 2000))
    if len(negatives) > most:
        negatives = np.random.default_rng(0).choice(negatives, most, replace=False)
    chosen = np.sort(np.concatenate([np.flatnonzero(labels == 1), negatives]))
    chosen_labels = labels[chosen]
    profiles = []
    position = 0
    for column in schema.columns:
        width = len(column.features)
        own = X[:, position : position + width]
        position += width
        aucs = [
            auc_alone(own[chosen, part], chosen_labels, categorical=column.kind == "categorical")
            for part in range(width)
        ]
        seen = summary.column(column.name)
        profiles.append(
            ColumnProfile(
                name=column.name,
                kind=column.kind,
                missing=_missing_share(seen, own, column),
                distinct=_distinct(seen, own, column),
                note=column.note,
                auc=max(aucs),
                format=column.format,
                example=seen.example,
                role="feature and time" if column.name == schema.time else "feature",
            )
        )
    return tuple(profiles)


def _missing_share(summary: ColumnSummary, own: NDArray[Any], column: Column) -> float:
    if column.kind != "categorical" or summary.texts is None:
        return float(np.isnan(own[:, 0]).mean())
    # A rare category has no code, but it is not missing.
    empty = summary.texts.counts[mask_of(compute().equal(summary.texts.values, ""))].sum()
    return float((summary.missing + empty) / summary.rows)


def _distinct(summary: ColumnSummary, own: NDArray[Any], column: Column) -> int:
    if column.kind == "numeric":
        # Sorting numbers is several times as fast as hashing them.
        ordered = np.sort(own[~np.isnan(own[:, 0]), 0])
        return int((ordered[1:] != ordered[:-1]).sum()) + (len(ordered) > 0)
    if summary.moments is not None:
        return len(summary.moments)
    if summary.texts is None:
        return len(np.unique(own[~np.isnan(own[:, 0])], axis=0))
    return len(summary.texts.examples[0])


def _row_warnings(rows: int, positives: int, prior: float, schema: Schema) -> list[str]:
    warnings = []
    if schema.target_note:
        warnings.append(
            f"target {schema.target!r}: {schema.target_note}; set `positive` if it is the other one"
        )
    if rows < 200:
        warnings.append(f"the table has only {rows} rows; metrics on it are rough guesses")
    if positives < 50:
        warnings.append(
            f"there are only {positives} positives; expect wide intervals and a model chosen by chance"
        )
    if prior > 0.3:
        warnings.append(
            f"{prior:.0%} of the rows are positive, which is not rare; the losses are made for rare positives"
        )
    return warnings


def _line(decision: dict[str, str]) -> str:
    """Write one line of the terminal's summary; repr shows signs that would move the cursor."""
    name, example, note = decision["name"], decision["example"], decision["note"]
    name = _shortened(name if name.isprintable() else repr(name))
    is_word = decision["kind"] not in ("numeric", "date") or not example.isprintable()
    such = f", such as {repr(example) if is_word else example}" if example else ""
    return f"  {name}: {decision['kind'] or decision['role']}{such}" + (f" ({note})" if note else "")


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _note_warnings(columns: tuple[ColumnProfile, ...], dropped: tuple[Dropped, ...]) -> list[str]:
    """Warn of text that was nearly read as numbers or dates."""
    said = [(column.name, column.note) for column in columns]
    said += [(column.name, column.reason) for column in dropped]
    return [
        f"column {name!r}: {note}" for name, note in said if LOOKS_LIKE_NUMBERS in note or NOT_READ in note
    ]


def _leak_warning(name: str, shown: str, *, is_used: bool) -> str:
    if is_used:
        return f"leak? {name!r} is kept, but {shown}; is it known at the time of the decision?"
    return (
        f"{name!r} gives the target away and is left out: {shown}; if it is known at the time of the "
        "decision, name it by the option keep"
    )


def _column_warnings(columns: Sequence[ColumnProfile]) -> list[str]:
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
    """Write four digits, never rounded up to 1."""
    return "1" if auc == 1 else f"{np.floor(auc * 10_000) / 10_000:.4f}"
