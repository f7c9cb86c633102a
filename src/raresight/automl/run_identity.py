"""What a search is of, so that a folder is not continued with something else."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..common.atomic_files import write_json
from ..common.versions import versions_of
from ..model.families import packages_of
from .records import Task
from .space import Space
from .trial_journal import JOURNAL_FILE

__all__ = ["check_identity", "identity"]

_FORMAT = 1
_WORDS = {
    "format": "the format of the folder",
    "data": "the rows, labels or weights",
    "columns": "which columns hold categories",
    "folds": "the folds",
    "families": "the families",
    "losses": "the losses",
    "max_fpr": "max_fpr",
    "fpr": "fpr",
    "seed": "the seed",
    "versions": "the versions of the libraries",
}


def identity(task: Task, space: Space) -> dict[str, Any]:
    """Everything that the outcome of a search depends on, limits apart."""
    versions = versions_of(["optuna", *packages_of(space.families)])
    del versions["python"]
    return {
        "format": _FORMAT,
        "data": _digest(task.X, task.y, *([] if task.weights is None else [task.weights])),
        "columns": [[int(i) for i in task.categorical], [int(n) for n in task.n_categories]],
        "folds": _digest(*(rows for fold in task.folds for rows in (fold.train, fold.test))),
        "families": list(space.families),
        "losses": list(space.losses),
        "max_fpr": task.max_fpr,
        "fpr": task.fpr,
        "seed": task.seed,
        "versions": versions,
    }


def check_identity(folder: Path, ours: dict[str, Any]) -> None:
    """Write what the search is of, or compare with what is written there."""
    path = folder / "search.json"
    if not path.exists():
        if (folder / JOURNAL_FILE).exists():
            raise ValueError(f"{folder} holds a search without its search.json: take another folder")
        write_json(path, ours)
        return
    try:
        theirs = json.loads(path.read_text())
        different = [key for key in _WORDS if theirs[key] != ours[key]]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} cannot be read: take another folder, or remove this one") from None
    if different:
        told = " and ".join(_told(key, theirs[key], ours[key]) for key in different)
        raise ValueError(
            f"{folder} holds another search; different: {told}. Take another folder, or remove this one"
        )


def _told(key: str, theirs: Any, ours: Any) -> str:
    short = key not in ("data", "folds", "columns")
    return f"{_WORDS[key]} (there {theirs}, now {ours})" if short else _WORDS[key]


def _digest(*arrays: np.ndarray[Any, Any]) -> str:
    digest = hashlib.sha256()
    for values in arrays:
        whole = np.ascontiguousarray(values)
        digest.update(f"{whole.dtype.str}{whole.shape}".encode())
        digest.update(whole.view(np.uint8).data if whole.size else b"")
    return digest.hexdigest()
