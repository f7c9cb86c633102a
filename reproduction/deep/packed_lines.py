"""Lines of text in a gzip file that grows: every addition is a member of its own, as gzip allows.

`zcat` shows them all. A process that is killed as it writes leaves its member torn: its whole lines are read,
and the next addition mends the file before it follows.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["add_lines", "read_lines"]

# What zlib calls the format of gzip files.
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class _Content:
    """What a file holds: all whole lines, the bytes of its complete members, and whole lines after them."""

    lines: tuple[bytes, ...]
    whole_bytes: int
    torn_lines: tuple[bytes, ...]


def read_lines(path: Path) -> tuple[bytes, ...]:
    """The lines, none where there is no file; of a torn end those that are whole."""
    _refuse_unpacked(path)
    return _content(path, path.read_bytes()).lines if path.exists() else ()


def add_lines(path: Path, lines: list[bytes]) -> None:
    """Append lines, and bring them to the disk; one process after the other."""
    _refuse_unpacked(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _add_lines(path, lines)
    except OSError as error:
        # On a full disk it does not say which file it is about.
        raise OSError(error.errno, error.strerror, str(path)) from None


def _add_lines(path: Path, lines: list[bytes]) -> None:
    with _alone_with(path) as file:
        content = file.read()
        found = _content(path, content)
        if len(content) == found.whole_bytes:
            _write(file, _member(lines))
            return
        # Into a new file, since a kill in the midst of mending this one would lose what it has.
        mended = path.with_name(f"{path.name}.unfinished")
        with mended.open("wb") as new:
            _write(new, content[: found.whole_bytes] + _member([*found.torn_lines, *lines]))
        mended.replace(path)


def _member(lines: list[bytes]) -> bytes:
    # Without a time, so that the same lines are the same bytes.
    return gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0)


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _alone_with(path: Path) -> Iterator[IO[bytes]]:
    """The file, at its beginning, once no other process has it."""
    import fcntl  # not on every system, where journals can still be read

    while True:
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Who had it before may have put a mended one in its place.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.seek(0)
                yield file
                return


def _refuse_unpacked(path: Path) -> None:
    """An error for a plain file of that name, as there were before: its lines would be overlooked."""
    plain = path.with_suffix("")
    if plain.exists():
        raise ValueError(
            f"{plain} is not packed, and would be overlooked: add it by gzip -c {plain.name} >> {path.name}, "
            "and move it away"
        )


def _content(path: Path, content: bytes) -> _Content:
    lines: list[bytes] = []
    place = 0
    # gzip takes zeros behind a member for nothing, too.
    while rest := content[place:].lstrip(b"\0"):
        member = zlib.decompressobj(wbits=_GZIP)
        try:
            text = member.decompress(rest)
        except zlib.error as error:
            raise ValueError(
                f"{path} is damaged at byte {place} ({error}): it is no gzip file, or has other bytes in it; "
                f"head -c {place} {path.name} is what comes before"
            ) from None
        if not member.eof:
            torn = tuple(text[: text.rfind(b"\n") + 1].splitlines())
            return _Content((*lines, *torn), place, torn)
        # By members: a text without a newline at its end must not run into the next.
        lines += text.splitlines()
        place = len(content) - len(member.unused_data)
    return _Content(tuple(lines), len(content), ())
