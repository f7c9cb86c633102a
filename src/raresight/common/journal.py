"""Journal: lines of JSON, each with a checksum that is chained to the line before.

A line is a JSON object whose last entry is "check", the first 16 hexadecimal digits of

    SHA-256(check of the line before, then the line without its own check).

So a line that was changed, removed or put in from elsewhere is found, and named by its number. A process that
is killed while it writes leaves a torn last line; it is dropped, and its work is done again.

A journal whose name ends in `.xz` is packed: every addition is an xz stream of its own, as the format allows,
and `xzcat` shows all of them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .atomic_files import naming_file, regular_file, write_file

__all__ = ["DamagedFileWarning", "Journal", "JournalError", "read_journal", "write_journal"]

Entry = dict[str, Any]

_CHECK = "check"
_START = "0" * 16
# The curves of trainings are a tenth smaller than by gzip, as fast; a higher preset takes four times as long
# and 90 MB of memory for every addition.
_PRESET = 1
_MAGIC = b"\xfd7zXZ\x00"


class JournalError(ValueError):
    """A journal was changed, cut or mixed with another one since it was written."""


class DamagedFileWarning(UserWarning):
    """A file of a run was changed or cut since it was written; what it held is computed again."""


class Journal:
    """A journal that is open for writing; `entries` are those it has, in order.

    One process at a time may write: hold the folder, see `raresight.common.atomic_files.hold_folder`.

    Args:
        path: The file; it is made where it is missing.
        keep: Keep so many entries and drop the later ones, whose work is done again; these may be damaged.
            Default: all whole ones.
        mend: Keep the entries before a damaged line, and warn. A file beside the journal keeps the damaged
            line and all after it, such as `trials.damaged-1.jsonl`. Not for packed journals.

    Raises:
        JournalError: What is to be kept is damaged or not there.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    >>> with Journal(path) as journal:
    ...     journal.append([{"fold": 0, "auc": 0.9}])
    >>> read_journal(path)
    [{'fold': 0, 'auc': 0.9}]
    """

    def __init__(self, path: Path, keep: int | None = None, *, mend: bool = False) -> None:
        self._path = path
        content = regular_file(path).read_bytes() if path.exists() else b""
        found = _read(path, content, keep, mend=mend)
        if found.damaged_at is not None:
            _set_aside(path, content, found.damaged_at)
        if keep is not None and keep > len(found.entries):
            raise JournalError(
                f"{path} has {len(found.entries)} entries, but {keep} were there before: it was cut since. "
                "Take another folder"
            )
        self.entries = found.entries[:keep]
        self._check = found.checks[len(self.entries) - 1] if self.entries else _START
        if len(self.entries) < len(found.entries) or found.whole_bytes < len(content):
            # Into a new file: a kill while this one is mended would lose what it has.
            write_file(path, _packed(path, found.lines[: len(self.entries)]))
        with naming_file(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("ab")

    def append(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Write entries; readers see them at once. NaN and infinity are written as null."""
        lines, added = [], []
        check = self._check
        for entry in entries:
            line, check = _line(entry, check)
            lines.append(line)
            added.append(json.loads(line))
        for entry in added:
            del entry[_CHECK]
        if not lines:
            return
        with naming_file(self._path):
            self._file.write(_packed(self._path, lines))
            self._file.flush()
        self._check = check
        self.entries += added

    def sync(self) -> int:
        """Bring everything to the disk; returns the number of entries."""
        with naming_file(self._path):
            os.fsync(self._file.fileno())
        return len(self.entries)

    def close(self) -> None:
        """Write what is left, and close the file."""
        with naming_file(self._path):
            self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_journal(path: str | os.PathLike[str]) -> list[Entry]:
    """Return the entries of a journal, also while a process writes it: a torn last line is left out.

    Raises:
        JournalError: A line before the last one is damaged.
    """
    place = Path(path)
    with naming_file(place):
        content = regular_file(place).read_bytes()
    return _read(place, content).entries


def write_journal(path: Path, entries: Iterable[Mapping[str, Any]]) -> Path:
    """Write a whole journal in place of an earlier one."""
    lines, check = [], _START
    for entry in entries:
        line, check = _line(entry, check)
        lines.append(line)
    return write_file(path, _packed(path, lines))


@dataclass(frozen=True)
class _ReadJournal:
    """The whole lines of a journal, their entries and checks, and the bytes that hold them.

    `damaged_at` is the number of the first damaged line, where the entries end.
    """

    lines: list[bytes]
    entries: list[Entry]
    checks: list[str]
    whole_bytes: int
    damaged_at: int | None = None


def _read(path: Path, content: bytes, keep: int | None = None, *, mend: bool = False) -> _ReadJournal:
    lines, whole_bytes = _streams(path, content) if _is_packed(path) else _plain_lines(content)
    entries: list[Entry] = []
    checks: list[str] = []
    before = _START
    for number, line in enumerate(lines, start=1):
        entry = _parsed(line)
        is_sound = entry is not None and entry.get(_CHECK) == _digest(before, _body(line))
        if not is_sound:
            # A crash of the system may leave a newline behind bytes that never reached the disk.
            is_torn = number == len(lines) and entry is None
            if is_torn or (keep is not None and number > keep):
                return _ReadJournal(lines[: number - 1], entries, checks, whole_bytes - 1)
            if mend and not _is_packed(path):
                return _ReadJournal(lines[: number - 1], entries, checks, whole_bytes - 1, number)
            raise JournalError(
                f"{path} is damaged at line {number}: it was changed, or lines before it are missing. Take "
                "another folder, or remove this one"
            )
        assert entry is not None
        before = entry.pop(_CHECK)
        entries.append(entry)
        checks.append(before)
    return _ReadJournal(lines, entries, checks, whole_bytes)


def _set_aside(path: Path, content: bytes, number: int) -> None:
    """Keep the lines of a damaged journal from a number on in a file of their own, and warn."""
    place = next(
        place
        for count in itertools.count(1)
        if not (place := path.with_suffix(f".damaged-{count}{path.suffix}")).exists()
    )
    write_file(place, b"".join(content.splitlines(keepends=True)[number - 1 :]))
    # A line stands for nothing unless all before it do: the checksums are chained.
    warnings.warn(
        f"{path} is damaged at line {number}: it was changed, or lines before it are missing. What stood "
        f"from there on is kept in {place.name}, and its work is done again",
        DamagedFileWarning,
        stacklevel=4,
    )


def _plain_lines(content: bytes) -> tuple[list[bytes], int]:
    whole = content.rfind(b"\n") + 1
    return content[:whole].splitlines(), whole


def _streams(path: Path, content: bytes) -> tuple[list[bytes], int]:
    """Return the lines of an xz file stream by stream; of a torn last stream those that are whole."""
    import lzma  # not in every Python, and few journals are packed

    lines: list[bytes] = []
    place = 0
    # A crash of the system may leave zeros that never became a stream.
    while (rest := content[place:]).strip(b"\0"):
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        try:
            # Of a few bytes the library says that more must follow, whatever they are.
            if not _MAGIC.startswith(rest[: len(_MAGIC)]):
                raise lzma.LZMAError("no stream begins here")
            text = stream.decompress(rest)
        except lzma.LZMAError as error:
            raise JournalError(
                f"{path} is damaged at byte {place} ({error}): it is no xz file, or has other bytes in it"
            ) from None
        if not stream.eof:
            return lines + text[: text.rfind(b"\n") + 1].splitlines(), place
        lines += text.splitlines()
        place = len(content) - len(stream.unused_data)
    return lines, place


def _is_packed(path: Path) -> bool:
    return path.suffix == ".xz"


def _packed(path: Path, lines: list[bytes]) -> bytes:
    text = b"".join(line + b"\n" for line in lines)
    if not _is_packed(path) or not lines:
        return text
    import lzma

    return lzma.compress(text, preset=_PRESET)


def _line(entry: Mapping[str, Any], before: str) -> tuple[bytes, str]:
    """Return the line of an entry and its check."""
    if _CHECK in entry:
        raise ValueError(f"an entry of a journal has no {_CHECK!r} of its own: {entry!r}")
    body = json.dumps(_finite(entry), ensure_ascii=False, allow_nan=False)[:-1].encode()
    check = _digest(before, body)
    separator = b", " if entry else b""
    return body + separator + f'"{_CHECK}": "{check}"}}'.encode(), check


def _body(line: bytes) -> bytes:
    """Return what `_line` took the check of: the line up to its last entry."""
    end = line.rfind(f'"{_CHECK}": '.encode())
    return line[:end].removesuffix(b", ")


def _digest(before: str, body: bytes) -> str:
    return hashlib.sha256(before.encode() + body).hexdigest()[:16]


def _parsed(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
