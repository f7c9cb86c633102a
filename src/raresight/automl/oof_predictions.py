"""Validation log-odds on disk: one file a trial and fold while it runs, one file a trial in the end.

Files are written beside their place and moved there, so that a reader finds a whole file or none.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "join_parts",
    "part_is_whole",
    "part_path",
    "read_scores",
    "remove_parts",
    "score_folder",
    "write_array",
]

Floats32 = NDArray[np.float32]


def score_folder(folder: Path) -> Path:
    """Where the scores of a search are kept."""
    return folder / "scores"


def part_path(folder: Path, number: int, fold: int) -> Path:
    """The file of one fold of a trial."""
    return score_folder(folder) / f"{number}-{fold}.npy"


def part_is_whole(path: Path, rows: int) -> bool:
    """Whether the file of a fold is there with all its rows, which the loss of power may have cut."""
    return path.exists() and path.stat().st_size > rows * np.dtype(np.float32).itemsize


def write_array(path: Path, values: NDArray[Any], *, at_once: bool = True) -> None:
    """Write an array so that it is there as a whole or not at all; `at_once` waits for the disk."""
    beside = path.with_suffix(f".{os.getpid()}.tmp")
    with beside.open("wb") as file:
        np.save(file, values, allow_pickle=False)
        if at_once:
            file.flush()
            os.fsync(file.fileno())
    beside.replace(path)


def join_parts(folder: Path, number: int, rows: int, tests: Sequence[NDArray[np.intp]]) -> None:
    """Put the folds of a trial together in one file."""
    whole = np.full(rows, np.nan, dtype=np.float32)
    for fold, test in enumerate(tests):
        whole[test] = np.load(part_path(folder, number, fold), allow_pickle=False)
    write_array(score_folder(folder) / f"{number}.npy", whole)


def remove_parts(folder: Path, number: int) -> None:
    """Remove the files of single folds of a trial."""
    for path in score_folder(folder).glob(f"{number}-*.npy"):
        path.unlink(missing_ok=True)


def read_scores(folder: Path, number: int) -> Floats32:
    """The log-odds of a complete trial."""
    values: Floats32 = np.load(score_folder(folder) / f"{number}.npy", allow_pickle=False)
    return values
