"""How far a training is, told in lines on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

__all__ = ["Tell", "quiet", "told"]

Tell = Callable[[str], None]

# Lines come at least this far apart.
_SECONDS = 2.0


def quiet(text: str) -> None:
    """Nothing is told."""


def told(verbose: bool, subject: str) -> Tell:
    """Lines about a subject, not more than one in two seconds, the first at once; quiet unless `verbose`."""
    if not verbose or sys.stderr is None:
        return quiet
    next_at = 0.0

    def tell(text: str) -> None:
        nonlocal next_at
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + _SECONDS
            sys.stderr.write(f"{subject}: {text}\n")
            sys.stderr.flush()

    return tell
