"""What progress is written to: it may go away in the midst, the work that tells of itself may not."""

from __future__ import annotations

from typing import Any

__all__ = ["LastingStream"]


class LastingStream:
    """A stream that is left alone once it fails, such as a terminal that was closed, or where there is none.

    Example:
        >>> import io
        >>> closed = io.StringIO()
        >>> closed.close()
        >>> LastingStream(closed).write("nobody hears it")
        15
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self._works = stream, stream is not None

    def write(self, text: str) -> int:
        """As of any stream; what nobody hears counts as written."""
        if self._works:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self._works = False
        return len(text)

    def flush(self) -> None:
        """As of any stream."""
        if self._works:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._works = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
