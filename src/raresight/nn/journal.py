"""The results of a training as lines of JSON, appended as they come."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .safe_files import naming

__all__ = ["Journal", "read_journal"]


class Journal:
    """A file of one result a line.

    What lies behind the first `kept_bytes` is thrown away: lines after the last checkpoint, the last of them
    perhaps torn, whose epochs are trained again.
    """

    def __init__(self, path: Path, kept_bytes: int) -> None:
        content = path.read_bytes() if path.exists() else b""
        if len(content) < kept_bytes:
            raise ValueError(
                f"{path} has {len(content)} bytes, but had {kept_bytes} at the last checkpoint: it was cut "
                "off since; take another folder"
            )
        self._path = path
        self.rows = _parsed(path, content[:kept_bytes])
        self._file = path.open("ab")
        self._file.truncate(kept_bytes)
        self._file.seek(kept_bytes)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write results; others can read them from now on."""
        text = "".join(json.dumps(_plain(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
        with naming(self._path):
            self._file.write(text.encode())
            self._file.flush()

    def sync(self) -> int:
        """Bring everything to the disk; returns the length of the file."""
        with naming(self._path):
            os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        # What could not be written before is tried once more here.
        with naming(self._path):
            self._file.close()


def read_journal(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The results in a journal, also while a training writes it: a last line that is torn is left out."""
    content = Path(path).read_bytes()
    return _parsed(Path(path), content[: content.rfind(b"\n") + 1])


def _parsed(path: Path, content: bytes) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"{path} is damaged at line {number}: take another folder, or remove this one")
        rows.append(row)
    return rows


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: they become null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }
