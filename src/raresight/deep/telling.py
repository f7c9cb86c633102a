"""How far a fit is, told on standard error: one line that is redrawn on a terminal, lines elsewhere."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ..common.progress import FaultTolerantStream

__all__ = ["About", "Tell", "quiet", "telling"]

# A fit that takes longer than this tells of itself on a terminal unasked.
_UNASKED_AFTER = 3.0
# Lines of a log come at least this far apart, and those within an epoch this far from any other.
_SECONDS = 2.0
_SECONDS_WITHIN = 10.0
# A line on a terminal is not redrawn sooner.
_SECONDS_REDRAWN = 0.25


class Tell(Protocol):
    """Hears how far a training is; `within` an epoch it may be told after each step."""

    def __call__(self, text: str, *, within: bool = False) -> None: ...


About = Callable[[str], Tell]
"""From the subject of a training, such as "training on all rows", to what hears of it."""


def quiet(text: str, *, within: bool = False) -> None:
    """Nothing is told."""


@contextmanager
def telling(verbose: bool | str) -> Iterator[About]:
    """What is told of a fit inside.

    True tells in any case, False never. "auto" tells on a terminal alone, once the fit has taken some
    seconds, and not in a process that another one started: several that fit at once would overwrite each
    other's line. A process without standard error, such as a service, is told nothing.
    """
    stream = sys.stderr
    on_terminal = _is_terminal(stream)
    asked = verbose if isinstance(verbose, str) else bool(verbose)
    is_quiet = not asked or (asked == "auto" and not (on_terminal and _is_first_process()))
    if is_quiet or stream is None:
        yield lambda subject: quiet
    elif not on_terminal:
        yield _Lines(FaultTolerantStream(stream)).about
    else:
        line = _Line(FaultTolerantStream(stream), _UNASKED_AFTER if asked == "auto" else 0.0)
        try:
            yield line.about
        finally:
            line.clear()


def _is_terminal(stream: Any) -> bool:
    """Also of what a program puts in the place of standard error, or has closed."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


def _is_first_process() -> bool:
    return multiprocessing.parent_process() is None


class _Lines:
    """A line in a log, not more than one in two seconds, the first of each subject at once."""

    def __init__(self, stream: FaultTolerantStream) -> None:
        self._stream = stream

    def about(self, subject: str) -> Tell:
        last = time.monotonic() - _SECONDS

        def tell(text: str, *, within: bool = False) -> None:
            nonlocal last
            now = time.monotonic()
            if now - last >= (_SECONDS_WITHIN if within else _SECONDS):
                last = now
                self._stream.write(f"{subject}: {text}\n")
                self._stream.flush()

        return tell


class _Line:
    """One line on a terminal, drawn once some seconds have passed.

    It is left with the cursor at its beginning, so that a warning does not follow it on the same line.
    """

    def __init__(self, stream: FaultTolerantStream, after: float) -> None:
        self._stream, self._next, self._drawn = stream, time.monotonic() + after, 0

    def about(self, subject: str) -> Tell:
        def tell(text: str, *, within: bool = False) -> None:
            now = time.monotonic()
            if now >= self._next:
                self._next = now + _SECONDS_REDRAWN
                self._draw(f"{subject}: {text}")

        return tell

    def clear(self) -> None:
        if self._drawn:
            self._draw("")

    def _draw(self, text: str) -> None:
        # A line that is too long for the terminal would stay on it.
        text = text[: max(1, shutil.get_terminal_size().columns - 1)]
        self._stream.write(f"\r{text.ljust(self._drawn)}\r")
        self._stream.flush()
        self._drawn = len(text)
