"""Work on blocks of rows, shared between the cores."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

__all__ = ["by_blocks", "cached_blocks", "in_threads", "one_blas_thread", "thread_count"]

Task = TypeVar("Task")
Result = TypeVar("Result")


def thread_count() -> int:
    """Return the cores of this process, or fewer as set by OMP_NUM_THREADS."""
    cores = int(joblib.cpu_count())
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(cores, int(asked))) if asked.isdigit() and int(asked) > 0 else cores


def in_threads(
    work: Callable[[Task], Result], tasks: Sequence[Task], threads: int | None = None
) -> list[Result]:
    """`work` of each task, in order. NumPy and BLAS let go of the interpreter while they compute."""
    count = min(threads or thread_count(), len(tasks))
    with one_blas_thread():
        if count <= 1:
            return [work(task) for task in tasks]
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(work, tasks))


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on the calling thread alone: on small blocks its own threads cost far more than they save."""
    with _controller().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _controller() -> Any:
    return ThreadpoolController()


# Temporaries of this size come from memory that is already mapped. The links of the losses then take a third
# of the time that they need for 300,000 rows at once.
_CACHED_ROWS = 1 << 14


def cached_blocks(n_rows: int) -> list[slice]:
    """Return slices that cover the rows, small enough for their temporaries to stay in a core's cache."""
    return [slice(begin, min(begin + _CACHED_ROWS, n_rows)) for begin in range(0, n_rows, _CACHED_ROWS)]


def by_blocks(
    work: Callable[[slice], NDArray[np.float64]], n_rows: int, threads: int | None
) -> NDArray[np.float64]:
    """Return what `work` gives for each block of rows, one number for each row, put together.

    >>> by_blocks(lambda rows: np.arange(rows.start, rows.stop, dtype=float), 20_000, 1)[-1].item()
    19999.0
    """
    result = np.empty(n_rows)

    def fill(rows: slice) -> None:
        result[rows] = work(rows)

    in_threads(fill, cached_blocks(n_rows), threads)
    return result
