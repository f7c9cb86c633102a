"""Out-of-fold log-odds on disk, one file per trial.

The journal holds the SHA-256 of each file. Nothing of a file is believed before its digest was compared.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.atomic_files import write_file

__all__ = ["is_whole", "read_scores", "score_folder", "score_path", "write_scores"]

Floats32 = NDArray[np.float32]


def score_folder(folder: Path) -> Path:
    """Return the folder of a search's scores."""
    return folder / "scores"


def score_path(folder: Path, number: int) -> Path:
    """Return the file of a trial."""
    return score_folder(folder) / f"{number}.npy"


def write_scores(folder: Path, number: int, values: NDArray[Any]) -> str:
    """Write the log-odds of a trial; return the SHA-256 of the file, which a kill leaves whole or absent."""
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    content = file.getvalue()
    write_file(score_path(folder, number), content)
    return hashlib.sha256(content).hexdigest()


def is_whole(path: Path, digest: str) -> bool:
    """Return whether the file is there as it was written."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def read_scores(folder: Path, number: int, digest: str) -> Floats32:
    """Read the log-odds of a complete trial, NaN for rows of no fold.

    Raises:
        ValueError: The file was changed or cut since it was written.
    """
    path = score_path(folder, number)
    # Read once: what is compared is what is used.
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        raise ValueError(
            f"{path} is not the file that was written: it was changed or cut since. Continue the run with "
            "--resume, which makes it again"
        )
    values: Floats32 = np.load(io.BytesIO(content), allow_pickle=False)
    return values
