"""Files that appear whole or not at all, and folders that one process holds.

A file is written beside its place, brought to the disk and renamed. A reader finds the old file or the new
one, never a part; a full disk or a kill leaves the old one. What a killed writer left beside it is removed by
the next writer of the same file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NoReturn

__all__ = [
    "FolderInUseError",
    "hold_folder",
    "is_running",
    "naming_file",
    "regular_file",
    "remove_unfinished",
    "replacing",
    "replacing_folder",
    "write_file",
    "write_files",
    "write_json",
]

_LOCK = "lock"
_SUFFIX = ".unfinished"
_REPLACED = ".replaced"


class FolderInUseError(RuntimeError):
    """Another process holds a folder."""


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file in place of an earlier one; returns its path."""
    write_files({path: content})
    return path


def write_json(path: Path, value: Any) -> Path:
    """Write plain values as JSON in place of an earlier file. NaN is an error: JSON has none."""
    return write_file(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def write_files(contents: Mapping[Path, str | bytes], obsolete: Iterable[Path] = ()) -> list[Path]:
    """Write files that belong together: on a full disk all the old ones are kept.

    They are renamed in the order given, after all of them are on the disk. A kill between two renames leaves
    the last ones old, so the file that vouches for the others (by their digests) comes last.

    Args:
        contents: What each file holds; text is written as UTF-8.
        obsolete: Files that are no part of the new state. They are removed before the first rename.
    """
    with contextlib.ExitStack() as stack:
        # A stack leaves its contexts in reverse order.
        opened = [(path, stack.enter_context(_aside(path))) for path in contents]
        for path, aside in opened:
            content = contents[path]
            with naming_file(path):
                aside.write_bytes(content.encode() if isinstance(content, str) else content)
                _flush(aside)
        for path in obsolete:
            path.unlink(missing_ok=True)
        for path, aside in opened:
            _rename(aside, path)
    return list(contents)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside `path` to write to; it replaces `path` when the block ends without an error.

    For files that a library writes, or that are written piece by piece.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "scores.csv"
    >>> with replacing(target) as aside:
    ...     _ = aside.write_text("score")
    >>> target.read_text()
    'score'
    """
    with _aside(path) as aside, naming_file(path):
        yield aside
        _flush(aside)
        _rename(aside, path)


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Give a folder beside `target` to fill; it replaces `target` when the block ends without an error.

    An earlier folder steps aside first, and comes back if the new one cannot take its place. What processes
    that were killed left half done is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in _leftovers(target):
        shutil.rmtree(left, ignore_errors=True)
    unfinished = target.with_name(f".{target.name}{_suffix()}")
    try:
        unfinished.mkdir()
        yield unfinished
        for path in (unfinished, *unfinished.rglob("*")):
            _flush_folder(path) if path.is_dir() else _flush(path)
        _put_in_place(unfinished, target)
        _flush_folder(target.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Name the file in an `OSError` that does not: a write to an open file on a full disk names none.

    >>> with naming_file(Path("some.json")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    ...
    OSError: [Errno 28] No space left on device: 'some.json'
    """
    try:
        yield
    except OSError as error:
        named = error.filename is not None and not str(error.filename).endswith(_suffix())
        # NumPy gives a short write no number: "600 requested and 41 written".
        number = errno.ENOSPC if str(error).endswith(" written") else error.errno
        if named or number is None:
            raise
        # The system's own words: Arrow puts others beside the number.
        raise OSError(number, os.strerror(number), str(path)) from error


def regular_file(path: Path) -> Path:
    """Return the path; refuse a pipe, a device or a socket there, of which a read may never end.

    Raises:
        FileNotFoundError: If there is nothing.
        ValueError: If it is no regular file.
    """
    if not path.is_file():
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        _refuse_special(path)
    return path


def _refuse_special(path: Path) -> NoReturn:
    raise ValueError(f"{path} is not a regular file but a {_kind(path)}: give another path")


def _kind(path: Path) -> str:
    if path.is_dir():
        return "folder"
    return "pipe" if path.is_fifo() else "socket" if path.is_socket() else "device"


@contextmanager
def hold_folder(folder: Path, activity: str, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder for this process. The system releases it when the process ends, however it ends.

    The process that holds a folder may remove it. A process that waited for it then makes it anew.

    Args:
        folder: It is made where it is missing.
        activity: What the holder does, such as "searching"; a second process reads it in its error.
        wait: Wait until no other process holds the folder.

    Raises:
        FolderInUseError: Another process holds the folder, and `wait` is false.
        NotADirectoryError: There is a file of that name.
    """
    import fcntl  # not on every system, where files can still be read

    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"a folder is needed for {activity}, but {folder} is a file")
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _LOCK).exists():
            regular_file(folder / _LOCK)
        try:
            file = (folder / _LOCK).open("a")
        except FileNotFoundError:
            continue  # its holder has removed the folder in between
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderInUseError(
                    f"another process is {activity} in {folder}: wait for it to end, or take another folder"
                ) from None
            # The holder before may have removed the folder with this lock file, which then locks nothing.
            if _is_at(file, folder / _LOCK):
                yield
                return


def remove_unfinished(folder: Path) -> None:
    """Remove what killed writers have left in a folder to which this process writes nothing now.

    What other running processes are writing stays.
    """
    for left in folder.glob(f".*{_SUFFIX}"):
        if left.is_file() and _is_abandoned(left):
            left.unlink(missing_ok=True)


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _is_abandoned(left: Path) -> bool:
    """Return whether the process in a name `.name.<process>.<what>` writes there no more."""
    owner = left.name.split(".")[-2]
    return owner.isdigit() and (int(owner) == os.getpid() or not is_running(int(owner)))


def _leftovers(target: Path) -> list[Path]:
    """List what killed writers of this file or folder, and of no other one, have left beside it."""
    # The name in full: what a running process writes to "scores.csv" is no leftover of "scores".
    mark = re.compile(re.escape(f".{target.name}.") + rf"\d+({_SUFFIX}|{_REPLACED})")
    with contextlib.suppress(OSError), os.scandir(target.parent) as entries:
        names = [entry.name for entry in entries if mark.fullmatch(entry.name)]
        return [left for left in map(target.with_name, names) if _is_abandoned(left)]
    return []


def is_running(process: int) -> bool:
    """Return whether a process with this number runs, under any user."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs under another user
        return True
    return True


def _suffix() -> str:
    # Of this process: two that write the same file do not write into each other's.
    return f".{os.getpid()}{_SUFFIX}"


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """Give a hidden name in the same folder, so that the rename does not cross file systems."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file in it")
    if path.exists() and not path.is_file():
        _refuse_special(path)  # the rename would put a file in the place of /dev/null
    for left in _leftovers(path):
        with contextlib.suppress(OSError):
            left.unlink()
    aside = path.with_name(f".{path.name}{_suffix()}")
    try:
        yield aside
    finally:
        # What could not be written may not be removable either; the first error says more.
        with contextlib.suppress(OSError):
            aside.unlink()


def _flush(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    """Bring the names in a folder to the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _rename(aside: Path, path: Path) -> None:
    with naming_file(path):
        aside.replace(path)
        # The name, too, must be on the disk before a later file relies on it.
        _flush_folder(path.parent)


def _put_in_place(unfinished: Path, target: Path) -> None:
    if not target.exists():
        unfinished.rename(target)
        return
    # A folder with files in it cannot be renamed over.
    aside = target.with_name(f".{target.name}.{os.getpid()}{_REPLACED}")
    shutil.rmtree(aside, ignore_errors=True)
    target.rename(aside)
    try:
        unfinished.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)
