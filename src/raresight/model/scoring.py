"""Scores for files of any size: batch by batch, in the order of the rows.

Memory does not grow with the file: one batch is read, coded, scored and written before the next one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..common.atomic_files import replacing
from ..tables.column_codec import DecimalMarks, read_with_marks
from ..tables.reader import open_batches
from ..tables.sources import split_source
from ..tables.value_keys import text_keys
from .folder import MODEL_FILE
from .model import Model
from .policies import DEFAULT_POLICY

__all__ = ["SCORE_COLUMNS", "Scored", "ScoringProgress", "score_file"]

SCORE_COLUMNS = ("log_odds", "probability", "alert")

# Memory must not grow with the file.
_MOST_UNKNOWN = 100_000
_ARROW_SUFFIXES = (".arrow", ".feather", ".ipc")
_SUFFIXES = (".parquet", ".csv", *_ARROW_SUFFIXES)


@dataclass(frozen=True)
class ScoringProgress:
    """Progress of scoring: rows done, and the share of the source that was read."""

    rows: int
    bytes_read: int
    total_bytes: int


@dataclass(frozen=True)
class Scored:
    """Summary of the written scores.

    Attributes:
        out: The file.
        rows: Its rows, one for each row of the source.
        alerts: Rows that raise an alert.
        unknown: For each categorical column with such values, the rows whose value training did not have. It
            is scored as missing.
        unknown_values: How many different ones there are; counting ends at 100,000.
        infinite: For each numeric column with such values, how many were infinite. They are scored as
            missing, too.
    """

    out: Path
    rows: int
    alerts: int
    unknown: Mapping[str, int]
    unknown_values: Mapping[str, int]
    infinite: Mapping[str, int]


def score_file(
    model: Model,
    source: Any,
    out: str | Path,
    *,
    keep: Sequence[str] = (),
    policy: str = DEFAULT_POLICY,
    listener: Callable[[ScoringProgress], None] | None = None,
    batch_rows: int = 65_536,
) -> Scored:
    """Score the rows of a table of any size and write log-odds, probability and alert of each.

    Args:
        model: A model, see `raresight.load`.
        source: As for `raresight.tables.read_table`: a file, a folder of parts, a database or a table.
        out: Where to write: Parquet, CSV or Arrow by its suffix (.parquet, .csv; .arrow, .feather or .ipc).
            It appears whole or not at all, and replaces a file of that name.
        keep: Columns of the source to write before the three, such as an identifier; from CSV they are
            kept as the text in the file.
        policy: The name of the policy whose threshold decides about alerts.
        listener: Called after every batch.
        batch_rows: Rows at a time.

    Returns:
        The counts of rows, alerts, unknown values and infinite values.

    A fitted model in three lines:

        model = raresight.load("model")
        scored = score_file(model, "transactions.parquet", "scores.parquet", keep=["id"])
        scored.rows, scored.alerts
    """
    target = Path(out)
    _check_target(target, source)
    kept = list(dict.fromkeys(keep))
    taken = [name for name in kept if name in SCORE_COLUMNS]
    if taken:
        raise ValueError(f"the column {taken[0]!r} cannot be kept: scores are written under that name")
    threshold = model.policy(policy).threshold  # an unknown name is refused before anything is read
    columns = list(dict.fromkeys([*model.schema.columns_read, *kept]))
    batches = open_batches(source, columns=columns, rows=batch_rows)

    def write(marks: DecimalMarks) -> Scored:
        rows = alerts = 0
        unknown = _Unknown()
        infinite: Counter[str] = Counter()
        with replacing(target) as path, _Writer(path, target.suffix.lower()) as writer:
            for batch in batches:
                scores, raised = _scored_batch(model, batch, kept, rows, threshold, marks)
                writer.write(scores)
                unknown.update(model.schema.unseen_values(batch))
                infinite.update(model.schema.infinite_counts(batch))
                rows += batch.num_rows
                alerts += raised
                if listener is not None:
                    listener(ScoringProgress(rows, int(batches.bytes_read), int(batches.total_bytes)))
            if not rows:
                raise ValueError(f"{_named(source)} has no rows to score")
            marks.refuse_unsure()  # before the file is in its place
        return Scored(target, rows, alerts, dict(+unknown.rows), unknown.values(), dict(+infinite))

    return read_with_marks(write)


def _scored_batch(
    model: Model, batch: Any, kept: Sequence[str], first_row: int, threshold: float, marks: DecimalMarks
) -> tuple[Any, int]:
    """Return the rows to write, and how many of them raise an alert."""
    import pyarrow

    log_odds = model.log_odds_of_rows(batch, first_row, marks)
    alert = log_odds >= threshold
    arrays = [
        *(batch.column(name) for name in kept),
        pyarrow.array(log_odds, pyarrow.float64()),
        pyarrow.array(expit(log_odds), pyarrow.float64()),
        pyarrow.array(alert, pyarrow.bool_()),
    ]
    made = pyarrow.RecordBatch.from_arrays(arrays, names=[*kept, *SCORE_COLUMNS])
    return made, int(np.count_nonzero(alert))


class _Unknown:
    """Counts the rows with values that training did not have, and the different ones among these values."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self._keys: dict[str, NDArray[np.uint64]] = {}

    def update(self, batch: Mapping[str, Any]) -> None:
        for name, texts in batch.items():
            known = self._keys.get(name, np.empty(0, np.uint64))
            if len(texts):
                self.rows[name] += len(texts)
                if len(known) < _MOST_UNKNOWN:
                    self._keys[name] = np.union1d(known, text_keys(texts))[:_MOST_UNKNOWN]

    def values(self) -> dict[str, int]:
        return {name: len(keys) for name, keys in self._keys.items()}


class _NativeWriter(Protocol):
    def write_batch(self, batch: Any) -> None: ...

    def close(self) -> None: ...


class _Writer:
    """Writes batches in the format of a suffix; the first one gives the columns their types."""

    def __init__(self, path: Path, suffix: str) -> None:
        self._path, self._suffix = path, suffix
        self._writer: _NativeWriter | None = None
        self._schema: Any = None

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, batch: Any) -> None:
        if self._writer is None:
            self._schema = batch.schema
            self._writer = _native_writer(self._path, self._suffix, batch.schema)
        self._writer.write_batch(batch if batch.schema.equals(self._schema) else batch.cast(self._schema))


def _native_writer(path: Path, suffix: str, schema: Any) -> Any:
    if suffix == ".parquet":
        from pyarrow import parquet

        return parquet.ParquetWriter(path, schema)
    if suffix == ".csv":
        from pyarrow import csv

        return csv.CSVWriter(path, schema)
    from pyarrow import ipc

    return ipc.new_file(path, schema)


def _check_target(target: Path, source: Any) -> None:
    if target.suffix.lower() not in _SUFFIXES:
        raise ValueError(
            f"scores are written to a file that ends in {', '.join(_SUFFIXES)}, got {target.name!r}"
        )
    if target.is_dir():
        raise ValueError(f"{target} is a folder: name a file for the scores")
    if not target.parent.is_dir():
        raise ValueError(f"the folder {target.parent} for the scores does not exist: make it first")
    if any((folder / MODEL_FILE).exists() for folder in target.resolve().parents):
        raise ValueError(
            f"{target} is in the folder of a model, which holds its files alone: choose another place"
        )
    if not isinstance(source, (str, os.PathLike)):
        return
    origin = split_source(os.fspath(source))[0].resolve()
    if (target.exists() and origin.exists() and target.samefile(origin)) or (
        origin.is_dir() and origin in target.resolve().parents
    ):
        raise ValueError(f"{target} would overwrite or join the rows that are scored: choose another place")


def _named(source: Any) -> str:
    return str(source) if isinstance(source, (str, os.PathLike)) else "the table"
