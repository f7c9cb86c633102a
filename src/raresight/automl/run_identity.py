"""Identify runs, so that a folder is continued only with the same data and options.

run.json       options, fingerprint of the data
search/        search.json (identity of the search), the journal, out-of-fold predictions
model/         the chosen model (see `raresight.model`)
report.html, leaderboard.csv, evaluation.json
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..common.atomic_files import regular_file, write_json
from ..common.json_values import digest_of
from ..common.versions import versions_of
from ..model.families import packages_of
from ..tables.sources import split_source
from .options import Options
from .records import SearchTask
from .space import Space
from .trial_journal import JOURNAL_FILE

__all__ = ["check_identity", "check_place", "identity", "open_run"]

_RUN_FORMAT = "raresight.run"
_RUN_VERSION = 1
_SEARCH_FORMAT = 2
# Facts whose name does not say what they are. An option is called by its own name.
_WORDS = {
    "format": "the format of the folder",
    "data": "the rows, labels or weights",
    "columns": "which columns hold categories",
    "folds": "the folds",
    "families": "the families",
    "losses": "the losses",
    "seed": "the seed",
    "versions": "the versions of the libraries",
}


def check_place(folder: Path, sources: Sequence[Any] = ()) -> None:
    """Refuse a folder that could not be written to, or is part of the data, before any work is done.

    Args:
        folder: Folder of the run.
        sources: Tables that are read; only those in files matter here.
    """
    for source in sources:
        data = split_source(source)[0].resolve() if isinstance(source, (str, Path)) and str(source) else None
        # A second run would take the results for parts of the table.
        if data is not None and data.is_dir() and data in (folder.resolve(), *folder.resolve().parents):
            raise ValueError(f"{folder} is in the folder of the data, {source}: give another folder by --out")
    for path in folder.rglob("*") if os.path.lexists(folder / "run.json") else ():
        if not path.is_dir() and path.exists():
            regular_file(path)  # to open a pipe would be to wait for ever
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise ValueError(f"{place} is a file: give a folder by --out")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"{place} may not be written to: give another folder by --out")


def open_run(folder: Path, options: Options, fingerprint: str, *, resume: bool) -> None:
    """Begin a run in the folder, or continue the run in it.

    Args:
        folder: Folder of the run.
        options: Options of the fit.
        fingerprint: SHA-256 of the data.
        resume: Whether the folder may hold a run.

    Raises:
        ValueError: If the folder holds a run and `resume` is false, or a run of something else.
    """
    asked = options.identity() | {"data": fingerprint}
    place = folder / "run.json"
    if place.exists():
        if not resume:
            raise ValueError(
                f"{folder} already holds a run: continue it with --resume, or give another folder by --out"
            )
        _refuse_difference(place, asked)
        return
    # A kill between writing and naming the first file leaves nothing but that.
    if folder.exists() and any(not path.name.startswith(".run.json.") for path in folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no run: give another folder by --out")
    folder.mkdir(parents=True, exist_ok=True)
    _write(place, {"format": _RUN_FORMAT, "format_version": _RUN_VERSION, "asked": asked})


def _refuse_difference(place: Path, asked: dict[str, Any]) -> None:
    found = _read(place)
    version = None if found is None else found.get("format_version")
    if isinstance(version, int) and version != _RUN_VERSION:
        raise ValueError(
            f"{place} has format version {version}, this raresight reads {_RUN_VERSION}: give another folder "
            "by --out"
        )
    if found is None or not _is_as_written(found) or found["format"] != _RUN_FORMAT:
        raise ValueError(
            f"{place} is damaged: it was changed or cut since it was written. Give another folder by --out"
        )
    before, now = found["asked"], json.loads(json.dumps(asked))
    for name in [*now, *(name for name in before if name not in now)]:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{place.parent} holds a run with {name} = {_short(before.get(name))}, not "
                f"{_short(now.get(name))}: resume with the same, or give another folder by --out"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def identity(task: SearchTask, space: Space) -> dict[str, Any]:
    """Return all that the result of a search depends on, except its limits, as JSON values.

    The aim gives each of its fields, so that a new option is compared without being listed here.
    """
    versions = versions_of(packages_of(space.families))
    # Fits come from these libraries; the version of Python does not change them.
    del versions["python"]
    return {
        "format": _SEARCH_FORMAT,
        "data": _digest(task.X, task.y, *([] if task.weights is None else [task.weights])),
        "columns": [[int(i) for i in task.categorical], [int(n) for n in task.n_categories]],
        "folds": _digest(*(rows for fold in task.folds for rows in (fold.train, fold.test))),
        "families": list(space.families),
        "losses": list(space.losses),
        **asdict(task.aim),
        "versions": versions,
    }


def check_identity(folder: Path, ours: dict[str, Any]) -> None:
    """Write the identity of the search, or compare it with the one in the folder."""
    path = folder / "search.json"
    if not path.exists():
        if (folder / JOURNAL_FILE).exists():
            raise ValueError(
                f"{folder} holds a search without its search.json: take another folder, or remove this one"
            )
        _write(path, ours)
        return
    theirs = _read(path)
    if theirs is None or (theirs.get("format") == _SEARCH_FORMAT and not _is_as_written(theirs)):
        raise ValueError(
            f"{path} is damaged: it was changed or cut since it was written. Take another folder, or remove "
            f"{folder}, and the search begins anew"
        )
    different = [key for key in ours if theirs.get(key) != ours[key]]
    if different:
        changes = " and ".join(_change(key, theirs.get(key), ours[key]) for key in different)
        raise ValueError(
            f"{folder} holds another search; different: {changes}. Use another folder, or remove this one"
        )


def _write(path: Path, content: dict[str, Any]) -> None:
    # Through JSON, so that the digest is of what will be read.
    plain: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
    write_json(path, plain | {"description_sha256": digest_of(plain)})


def _read(path: Path) -> dict[str, Any] | None:
    """Return the object in a file of JSON, or None where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _is_as_written(found: dict[str, Any]) -> bool:
    return found.get("description_sha256") == digest_of(found)


def _change(key: str, theirs: Any, ours: Any) -> str:
    name = _WORDS.get(key, key)
    return name if key in ("data", "folds", "columns") else f"{name} (there {theirs}, now {ours})"


def _digest(*arrays: np.ndarray[Any, Any]) -> str:
    digest = hashlib.sha256()
    for values in arrays:
        whole = np.ascontiguousarray(values)
        digest.update(f"{whole.dtype.str}{whole.shape}".encode())
        digest.update(whole.view(np.uint8).data if whole.size else b"")
    return digest.hexdigest()
