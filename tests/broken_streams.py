"""What cannot be written to any more, as standard error of a process whose terminal was closed."""

from __future__ import annotations

import errno
import io


class BrokenStream(io.StringIO):
    """Fails at every write, as a terminal or a pipe whose other end is gone."""

    def __init__(self, is_terminal):
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self):
        return self._is_terminal

    def write(self, text):
        number = errno.EIO if self._is_terminal else errno.EPIPE
        raise OSError(number, "nobody is there")
