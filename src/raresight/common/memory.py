"""Notice that memory is short before a library does: some of them then wait for ever."""

from __future__ import annotations

import mmap

__all__ = ["need_memory"]


def need_memory(megabytes: int, what: str) -> None:
    """Raise an error if a process cannot have so much memory, as under `ulimit -v`.

    OpenBLAS asks for its buffers again and again where it gets none, and libraries in C++ end the process.
    The question takes a few microseconds: the memory is reserved, not used.

    >>> need_memory(1, "a fit")
    >>> need_memory(2**33, "a fit")
    Traceback (most recent call last):
    MemoryError: a fit needs 8589934592 MB more memory than this process may use: allow more, see ulimit -v
    """
    # Private, as malloc's: shared memory has limits of its own. Windows has no flags and shares nothing.
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    try:
        mmap.mmap(-1, megabytes << 20, **private).close()
    except (OSError, OverflowError):
        raise MemoryError(
            f"{what} needs {megabytes} MB more memory than this process may use: allow more, see ulimit -v"
        ) from None
