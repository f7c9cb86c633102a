"""The folder of a run: what it was asked, so that it can be continued and nothing is overwritten.

run.json       options, fingerprint of the data, versions
search/        the journal of the search
model/         the chosen model (see `raresight.model`)
report.html, leaderboard.csv, evaluation.json
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ..common.atomic_files import write_file
from .options import Options

__all__ = ["check_place", "open_run"]

FORMAT = "raresight.run"
FORMAT_VERSION = 1


def check_place(folder: Path) -> None:
    """Refuse a folder that could not be written to, before any work is done."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise ValueError(f"{place} is a file: give a folder by --out")
    if not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"{place} may not be written to: give another folder by --out")


def open_run(folder: Path, options: Options, fingerprint: str, *, resume: bool) -> None:
    """Begin a run in the folder, or continue the one that is there.

    Args:
        folder: Of the run.
        options: What is asked.
        fingerprint: Of the data.
        resume: Whether a run may be there.

    Raises:
        ValueError: If the folder holds a run and `resume` is false, or a run of something else.
    """
    asked = options.identity() | {"data": fingerprint}
    place = folder / "run.json"
    if place.exists():
        if not resume:
            raise ValueError(
                f"{folder} already holds a run: go on with it by --resume, or give another folder by --out"
            )
        _refuse_difference(place, asked)
        return
    # A kill between writing and naming the first file leaves nothing but that.
    if folder.exists() and any(not path.name.startswith(".run.json.") for path in folder.iterdir()):
        raise ValueError(f"{folder} is not empty and holds no run: give another folder by --out")
    folder.mkdir(parents=True, exist_ok=True)
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, "asked": asked}
    write_file(place, json.dumps(content, indent=1))


def _refuse_difference(place: Path, asked: dict[str, Any]) -> None:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise KeyError("format")
        version, before = found["format_version"], found["asked"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{place} cannot be read, it is damaged: give another folder by --out") from None
    if version != FORMAT_VERSION:
        raise ValueError(f"{place} has format version {version}, this raresight reads {FORMAT_VERSION}")
    now = json.loads(json.dumps(asked))
    for name in [*now, *(name for name in before if name not in now)]:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{place.parent} holds a run with {name} = {_short(before.get(name))}, not "
                f"{_short(now.get(name))}: resume with the same, or give another folder by --out"
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
