"""Ctrl-C during a search: the first one stops it cleanly, the second one kills."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Interrupts", "held_back"]


class Interrupts:
    """Notes a Ctrl-C, and raises KeyboardInterrupt only where that can do no harm.

    Outside the main thread, and where the process ignores the signal, nothing is changed.
    """

    def __init__(self) -> None:
        self.seen = False
        self._may_raise = False
        self._pause = 0.0
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            if before not in (signal.SIG_IGN, None):
                self._before = before
                signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def raised_here(self, pause: float = 0.0) -> Iterator[None]:
        """Where a Ctrl-C raises KeyboardInterrupt; elsewhere it waits for the next such place.

        `pause` seconds pass before it does, for other threads to end what they are at.
        """
        self._may_raise, self._pause = True, pause
        try:
            if self.seen:
                raise KeyboardInterrupt
            yield
        finally:
            self._may_raise = False

    def _note(self, *_: object) -> None:
        self.seen = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if self._may_raise:
            time.sleep(self._pause)
            raise KeyboardInterrupt


@contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C back. Processes and threads started meanwhile never see one; ours comes afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
