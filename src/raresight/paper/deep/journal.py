"""What was trained so far: one line of JSON a trial, appended as trials finish."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .settings import Trial

__all__ = ["Record", "add_records", "journal_path", "read_lines", "read_records"]

Record = Mapping[str, Any]
"""A finished trial.

`trial` (the setting), `loss` (with the class counts in it), `class_counts`, `curve` (columns by name: epoch,
train_loss, gradient_norm_max, and the metrics with `validation_` or `test_` before their names), `frozen`
(why it stopped, or null), `seconds` (its share of the stack's), `stack` (how many were trained together),
`device`, `precision`, `clip`, `recipe` (batch, schedule and the like; trainings of before 2026-11-16 have
none: they had the same), `versions` and `date`.
"""


def journal_path(folder: Path, experiment: str, dataset: str) -> Path:
    """Where the results of an experiment are kept."""
    return folder / f"{experiment}-{dataset}.jsonl"


def read_records(path: Path) -> dict[str, Record]:
    """The finished trials by their keys; none where there is no file. A torn last line is left out."""
    return {**read_lines(path, lambda record: Trial.from_dict(record["trial"]).key)}


def read_lines(path: Path, key_of: Callable[[dict[str, Any]], str]) -> dict[str, dict[str, Any]]:
    """The lines of a journal by keys, the later one of two; an error for one that has no key."""
    content = path.read_bytes() if path.exists() else b""
    records: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            record = json.loads(line)
            records[key_of(record)] = record
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is damaged at line {number} ({error}): remove that line, to train it again"
            ) from None
    return records


def add_records(path: Path, records: Sequence[Record]) -> None:
    """Append finished trials, and bring them to the disk; what a killed process left torn is cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)
    with path.open("ab+") as file:
        file.seek(0)
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
