"""What the commands `python -m raresight.paper...` share: progress and errors as single lines."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..common.lasting_stream import LastingStream

__all__ = [
    "INTERRUPTED",
    "UNFINISHED",
    "UnfinishedError",
    "check_minutes",
    "exit_code",
    "interrupted_words",
    "tell",
]

UNFINISHED = 3
"""The exit code where time ran out before the end."""
INTERRUPTED = 130
"""The exit code after a Ctrl-C, as shells have it."""


class UnfinishedError(ValueError):
    """Time ran out before there was a result to show; what was trained is kept."""


def tell(message: str) -> None:
    """Write a line of progress at once, if anybody hears it."""
    stream = LastingStream(sys.stderr)
    stream.write(f"{message}\n")
    stream.flush()


def interrupted_words(name: str = "nets", *, keeps: bool = True) -> str:
    """What a Ctrl-C leaves of a part of the paper, if anything."""
    if not keeps:
        return f"interrupted: {name} begins anew when it is called again"
    if name == "fraud":
        return "interrupted: families and splits that were finished are kept, and the same command goes on"
    return (
        "interrupted: what was finished is kept, of nets under way what they were about a minute ago or an "
        "epoch before, and the same command goes on"
    )


def check_minutes(minutes: float | None, name: str = "minutes") -> None:
    """An error for a time that cannot be, known to the user by `name`."""
    if minutes is not None and not minutes >= 0:
        raise ValueError(f"{name} must be at least 0, but is {minutes:g}")


def exit_code(work: Callable[[], int]) -> int:
    """The exit code of some work; 2 where it was asked for wrongly, which is told in one line.

    >>> exit_code(lambda: 3)
    3
    """
    try:
        return work()
    except KeyboardInterrupt:
        tell(interrupted_words())
        return INTERRUPTED
    except (ValueError, ImportError, OSError) as error:
        tell(f"error: {' '.join(str(error).split()) or type(error).__name__}")
        return 2
