"""Validation log-odds on disk: one file per fold while a trial runs, one per trial in the end.

The journal holds the SHA-256 of each file. Nothing of a file is believed before its digest was compared.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.atomic_files import write_file

__all__ = [
    "is_whole",
    "join_parts",
    "part_path",
    "read_scores",
    "remove_parts",
    "score_folder",
    "trial_path",
    "write_array",
]

Floats32 = NDArray[np.float32]


def score_folder(folder: Path) -> Path:
    """Return the folder of a search's scores."""
    return folder / "scores"


def part_path(folder: Path, number: int, fold: int) -> Path:
    """Return the file of one fold of a trial."""
    return score_folder(folder) / f"{number}-{fold}.npy"


def trial_path(folder: Path, number: int) -> Path:
    """Return the file of all folds of a complete trial."""
    return score_folder(folder) / f"{number}.npy"


def write_array(path: Path, values: NDArray[Any]) -> str:
    """Write an array and return the SHA-256 of the file; after a kill the file is whole or absent."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    content = file.getvalue()
    write_file(path, content)
    return hashlib.sha256(content).hexdigest()


def is_whole(path: Path, digest: str) -> bool:
    """Return whether the file is there as it was written."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def join_parts(
    folder: Path, number: int, rows: int, tests: Sequence[NDArray[np.intp]], digests: Mapping[int, str]
) -> str:
    """Join the folds of a trial in one file; returns its SHA-256. `digests` are those of the folds."""
    # Rows in no validation fold, such as the earliest ones of a split by time, stay NaN.
    whole = np.full(rows, np.nan, dtype=np.float32)
    for fold, test in enumerate(tests):
        whole[test] = _read(part_path(folder, number, fold), digests[fold])
    return write_array(trial_path(folder, number), whole)


def remove_parts(folder: Path, number: int) -> None:
    """Remove the files of single folds of a trial."""
    for path in score_folder(folder).glob(f"{number}-*.npy"):
        path.unlink(missing_ok=True)


def read_scores(folder: Path, number: int, digest: str) -> Floats32:
    """Read the log-odds of a complete trial.

    Raises:
        ValueError: The file was changed or cut since it was written.
    """
    return _read(trial_path(folder, number), digest)


def _read(path: Path, digest: str) -> Floats32:
    # Read once: what is compared is what is used.
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(
            f"{path} is not the file that was written: it was changed or cut since. Continue the run with "
            "--resume, which makes it again"
        )
    values: Floats32 = np.load(io.BytesIO(content), allow_pickle=False)
    return values
