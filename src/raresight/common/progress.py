"""Progress display on standard error: one line, and a table if there is one.

A terminal gets a display that is redrawn in place and removed at the end. A log gets lines, not more than one
in two seconds. A process without standard error, such as a service, gets nothing.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Literal, Protocol, cast

__all__ = ["Display", "FaultTolerantStream", "Silent", "Status", "duration", "show_progress"]

# Work that takes longer than this shows its progress on a terminal unasked.
_UNASKED_AFTER = 3.0
_SECONDS_BETWEEN_LINES = 2.0
_REDRAWS_PER_SECOND = 4


@dataclass(frozen=True)
class Status:
    """State of the work.

    Attributes:
        line: In one line, such as "epoch 3/20, 40 s left".
        share: How much of it is done, from 0 to 1, for a bar; None where that is not known.
        header: Names of the table's columns; empty without a table.
        rows: Its rows, the best first, as texts.
        urgent: A log writes the line at once, however soon it comes after the last one.
    """

    line: str
    share: float | None = None
    header: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    urgent: bool = False


class Display(Protocol):
    """Shows progress; see `show_progress`."""

    def show(self, status: Status) -> None:
        """Replace what is shown."""

    def note(self, text: str, *, warning: bool = False) -> None:
        """Print a line that stays."""


@contextmanager
def show_progress(wanted: bool | Literal["auto"] = True, stream: Any = None) -> Iterator[Display]:
    """Give a display for the work inside the block.

    Args:
        wanted: True shows, False does not. "auto" shows on a terminal alone, once the work has taken three
            seconds, and not in a process that another one started: several would overwrite each other.
        stream: Where to write. Default: standard error.
    """
    stream = sys.stderr if stream is None else stream
    on_terminal = _is_terminal(stream)
    is_silent = not wanted or (
        wanted == "auto" and not (on_terminal and multiprocessing.parent_process() is None)
    )
    if is_silent or stream is None:
        yield Silent()
    elif not on_terminal:
        yield _Log(FaultTolerantStream(stream))
    else:
        terminal = _Terminal(FaultTolerantStream(stream), _UNASKED_AFTER if wanted == "auto" else 0.0)
        try:
            yield terminal
        finally:
            terminal.close()


def duration(seconds: float) -> str:
    """Write seconds in minutes and hours.

    >>> duration(42), duration(600), duration(7300)
    ('42 s', '10 min', '2 h 2 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


class Silent:
    """A display that shows nothing."""

    def show(self, status: Status) -> None:
        """Show nothing."""

    def note(self, text: str, *, warning: bool = False) -> None:
        """Show nothing."""


class FaultTolerantStream:
    """An output stream that ignores write errors, so that a closed terminal cannot stop a running fit.

    >>> import io
    >>> closed = io.StringIO()
    >>> closed.close()
    >>> FaultTolerantStream(closed).write("not written")
    11
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self._works = stream, stream is not None

    def write(self, text: str) -> int:
        """Write a text; one that cannot be written counts as written."""
        if self._works:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self._works = False
        return len(text)

    def flush(self) -> None:
        """Flush the stream; ignore errors."""
        if self._works:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._works = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal, also for a closed or replaced standard error."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


class _Log:
    """Lines for a file or a pipe."""

    def __init__(self, stream: FaultTolerantStream) -> None:
        self._stream, self._next, self._last = stream, 0.0, ""

    def show(self, status: Status) -> None:
        now = time.monotonic()
        if status.line != self._last and (status.urgent or now >= self._next):
            self._next, self._last = now + _SECONDS_BETWEEN_LINES, status.line
            self._write(status.line)

    def note(self, text: str, *, warning: bool = False) -> None:
        self._write(f"warning: {text}" if warning else text)

    def _write(self, text: str) -> None:
        self._stream.write(f"{text}\n")
        self._stream.flush()


class _Terminal:
    """A line with a bar and a table, redrawn in place by rich."""

    def __init__(self, stream: FaultTolerantStream, after: float) -> None:
        self._stream, self._start = stream, time.monotonic() + after
        self._next = self._start
        self._live: Any = None

    def show(self, status: Status) -> None:
        now = time.monotonic()
        if now < self._next and not (status.urgent and now >= self._start):
            return
        self._next = now + 1 / _REDRAWS_PER_SECOND
        self._opened().update(_rendered(status), refresh=True)

    def note(self, text: str, *, warning: bool = False) -> None:
        from rich.text import Text

        label = Text("warning: ", style="bold yellow") if warning else Text()
        self._console().print(label + Text(text), soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _console(self) -> Any:
        from rich.console import Console

        if self._live is not None:
            return self._live.console
        return Console(file=cast(IO[str], self._stream))

    def _opened(self) -> Any:
        """Rich is imported when something is shown: those who fit in a loop need not wait for it."""
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console(), auto_refresh=False, transient=True)
            self._live.start()
        return self._live


def _rendered(status: Status) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    line = Table.grid(padding=(0, 2))
    if status.share is None:
        line.add_row(Text(status.line, overflow="ellipsis", no_wrap=True))
    else:
        line.add_row(ProgressBar(100, 100 * status.share, width=30), Text(status.line))
    if not status.header:
        return line
    table = Table(box=None, pad_edge=False)
    for name in status.header:
        table.add_column(name)
    for place, row in enumerate(status.rows):
        table.add_row(*map(Text, row), style="bold green" if place == 0 else "")
    return Group(line, table)
