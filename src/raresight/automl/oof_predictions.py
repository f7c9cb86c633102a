"""Validation log-odds on disk: one file per fold while a trial runs, one per trial in the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.atomic_files import replacing

__all__ = ["join_parts", "part_path", "read_scores", "remove_parts", "score_folder", "write_array"]

Floats32 = NDArray[np.float32]


def score_folder(folder: Path) -> Path:
    """Return the folder of a search's scores."""
    return folder / "scores"


def part_path(folder: Path, number: int, fold: int) -> Path:
    """Return the file of one fold of a trial."""
    return score_folder(folder) / f"{number}-{fold}.npy"


def write_array(path: Path, values: NDArray[Any]) -> None:
    """Write an array; after a kill the file is whole or absent."""
    # To an open file: given a path, NumPy adds an ending of its own.
    with replacing(path) as aside, aside.open("wb") as file:
        np.save(file, values, allow_pickle=False)


def join_parts(folder: Path, number: int, rows: int, tests: Sequence[NDArray[np.intp]]) -> None:
    """Join the folds of a trial in one file."""
    # Rows in no validation fold, such as the earliest ones of a split by time, stay NaN.
    whole = np.full(rows, np.nan, dtype=np.float32)
    for fold, test in enumerate(tests):
        whole[test] = np.load(part_path(folder, number, fold), allow_pickle=False)
    write_array(score_folder(folder) / f"{number}.npy", whole)


def remove_parts(folder: Path, number: int) -> None:
    """Remove the files of single folds of a trial."""
    for path in score_folder(folder).glob(f"{number}-*.npy"):
        path.unlink(missing_ok=True)


def read_scores(folder: Path, number: int) -> Floats32:
    """Read the log-odds of a complete trial."""
    values: Floats32 = np.load(score_folder(folder) / f"{number}.npy", allow_pickle=False)
    return values
