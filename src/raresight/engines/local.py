"""Run tasks in processes of this machine that map shared arrays into memory."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from itertools import islice
from multiprocessing import connection, context, parent_process, resource_tracker
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ..common.atomic_files import is_running, naming_file
from ..common.memory import need_memory

__all__ = ["Interrupts", "LocalEngine", "OneProcessWarning", "SharedArrays"]

Task = TypeVar("Task")
Result = TypeVar("Result")
Arrays = Mapping[str, NDArray[Any]]

_FOLDER = "arrays-"
# Each of two copies of OpenBLAS, NumPy's and SciPy's, takes 32 MB, by a heap of 128 MB of malloc's.
_MEGABYTES = 256
# Seconds between two looks whether the thread that hands out tasks is alive.
_PATIENCE = 5.0
# Read by BLAS and OpenMP when they are loaded, that is before a worker could set a limit itself.
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class OneProcessWarning(UserWarning):
    """Tasks run in one process although more were asked for."""


class SharedArrays:
    """Arrays by name that every task may read.

    With a folder they are files there. Pickling sends the folder alone, and a worker maps the files once, so
    that the arrays are in memory once for all processes.
    """

    def __init__(self, arrays: Arrays, folder: Path | None = None) -> None:
        self.arrays, self._folder = arrays, folder

    def __reduce__(self) -> Any:
        if self._folder is None:
            raise TypeError("these arrays are not in files: share them by an engine of several processes")
        return _mapped, (self._folder,)


@cache
def _mapped(folder: Path) -> SharedArrays:
    files = sorted(folder.glob("*.npy"))
    arrays = {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in files}
    return SharedArrays(arrays, folder)


class LocalEngine:
    """Runs tasks on `jobs` processes; with one job, in this process.

    Every task runs on one thread, so that sums are added in the same order however many cores there are.
    Workers start with the first tasks, stay for later ones and end with this process, even if it is killed.

    Args:
        jobs: Processes, at most two per core. No more are started than there are tasks.
        folder: Where shared arrays are written while they are in use. Needed for two jobs or more.
        modules: What workers import first, such as a module that registers a loss. What `__main__` defines
            no worker can import. Such tasks run in this process, with a warning.

    >>> with LocalEngine(1) as engine, engine.share({"x": np.arange(3)}) as shared:
    ...     sorted(engine.run(lambda arrays, factor: int(factor * arrays["x"].sum()), [1, 2], shared))
    [(0, 3), (1, 6)]
    """

    def __init__(self, jobs: int, folder: Path | None = None, modules: Sequence[str] = ()) -> None:
        if jobs < 1 or (jobs > 1 and folder is None):
            raise ValueError(f"an engine needs at least one job, and a folder for two or more, got {jobs}")
        if jobs > 1 and "__main__" in modules:
            warnings.warn(
                "the script or notebook defines what worker processes need, such as a loss, and they cannot "
                "import it: all work is done in this process. Put it into a module to use more",
                OneProcessWarning,
                stacklevel=2,
            )
            jobs = 1
        # More would only take memory from each other.
        self.jobs = min(jobs, max(2, 2 * joblib.cpu_count()))
        self._folder, self._modules = folder, tuple(modules)
        self._context = _Context()
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop(at_once=kind is not None)

    @contextmanager
    def share(self, arrays: Arrays) -> Iterator[SharedArrays]:
        """Share arrays with the tasks of `run`. Files that a killed process left behind are removed."""
        if self._folder is not None:
            _remove_leftovers(self._folder)
        if self.jobs == 1 or self._folder is None:
            yield SharedArrays(arrays)
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=self._folder))
        try:
            for name, values in arrays.items():
                path = folder / f"{name}.npy"
                with naming_file(path):
                    np.save(path, values, allow_pickle=False)
            yield SharedArrays(arrays, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def run(
        self,
        work: Callable[[Arrays, Task], Result],
        tasks: Iterable[Task],
        shared: SharedArrays,
        interrupts: Interrupts | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Yield the position and the result of each task, in the order in which they end.

        Args:
            work: A pure function of the shared arrays and one task; for two jobs or more one that a module
                defines, or a `functools.partial` of one.
            tasks: Second arguments of `work`, one per task. The next one is taken when a process is free.
            shared: Result of `share`.
            interrupts: A Ctrl-C that it has noted is raised here; running tasks are ended.

        Raises:
            KeyboardInterrupt: After a Ctrl-C.
            RuntimeError: If the system ended a worker.
            Exception: Whatever a task raises.
        """
        held = interrupts or Interrupts()
        if self.jobs == 1:
            for index, task in enumerate(tasks):
                with held.raised_here():
                    result = _on_one_thread(work, shared, task)
                yield index, result
            return
        is_done = False
        try:
            yield from self._run_elsewhere(work, tasks, shared, held)
            is_done = True
        except BrokenProcessPool:
            raise RuntimeError(
                "the system ended a worker process, most often because memory ran out. Finished work is "
                "kept: run it again with fewer jobs"
            ) from None
        finally:
            if not is_done:
                self._stop(at_once=True)

    def _run_elsewhere(
        self,
        work: Callable[[Arrays, Task], Result],
        tasks: Iterable[Task],
        shared: SharedArrays,
        interrupts: Interrupts,
    ) -> Iterator[tuple[int, Result]]:
        waiting = iter(enumerate(tasks))
        running: dict[Future[Result], int] = {}
        while True:
            for index, task in islice(waiting, self.jobs - len(running)):
                running[self._submit(work, shared, task)] = index
            if not running:
                return
            with interrupts.raised_here():
                done, _ = wait(running, _PATIENCE, FIRST_COMPLETED)
            if not done and not self._is_served():
                raise BrokenProcessPool
            for future in done:
                yield running.pop(future), future.result()

    def _submit(
        self, work: Callable[[Arrays, Task], Result], shared: SharedArrays, task: Task
    ) -> Future[Result]:
        if self._pool is None:
            resource_tracker.ensure_running()  # if it started below, it would let Ctrl-C through again
        # Processes and threads that start meanwhile never see a Ctrl-C: a terminal sends it to all of them.
        with _interrupt_blocked():
            if self._pool is None:
                self._pool = ProcessPoolExecutor(self.jobs, self._context, initializer=_end_with_parent)
            return self._pool.submit(_in_worker, self._modules, work, shared, task)

    def _is_served(self) -> bool:
        """Return whether the pool's own thread lives: it ends without a report where it can start none."""
        thread = getattr(self._pool, "_executor_manager_thread", None)
        return thread is None or thread.is_alive()

    def _stop(self, *, at_once: bool) -> None:
        if self._pool is not None:
            if at_once:
                # An executor waits for running tasks, and only Python 3.14 can end its workers.
                for process in self._context.started:
                    process.kill()
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._context = _Context()


def _remove_leftovers(folder: Path) -> None:
    """Remove the arrays of processes that were killed."""
    for left in folder.glob(f"{_FOLDER}*-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not is_running(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


class Interrupts:
    """Notes a Ctrl-C, and raises KeyboardInterrupt only where that can do no harm; a second one kills.

    Outside the main thread, and where the process ignores the signal, nothing is changed.
    """

    def __init__(self) -> None:
        self.seen = False
        self._may_raise = False
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
    def raised_here(self) -> Iterator[None]:
        """Let a Ctrl-C raise KeyboardInterrupt inside the block; elsewhere it waits for the next one."""
        self._may_raise = True
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
            raise KeyboardInterrupt


class _Worker(context.SpawnProcess):
    """A process that starts without the main module and with one thread for BLAS and OpenMP.

    Tasks are functions of modules. To import the user's script again would take its time, and would start
    the fit again wherever the script has no `if __name__ == "__main__"`.
    """

    def start(self) -> None:
        main = sys.modules["__main__"]
        before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
        sys.modules["__main__"] = ModuleType("__main__")
        os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
        try:
            super().start()
        finally:
            sys.modules["__main__"] = main
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


class _Context(context.SpawnContext):
    """The spawn method of multiprocessing, with a list of the processes that it has started."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[_Worker] = []

    def Process(self, *args: Any, **named: Any) -> _Worker:  # type: ignore[override]  # noqa: N802
        self.started.append(_Worker(*args, **named))
        return self.started[-1]


def _end_with_parent() -> None:
    """End soon after the parent: a killed parent cannot end its workers, which would wait for ever."""
    parent = parent_process()
    assert parent is not None

    def leave() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=leave, daemon=True).start()


def _in_worker(
    modules: tuple[str, ...], work: Callable[[Arrays, Task], Result], shared: SharedArrays, task: Task
) -> Result:
    # Not once when the worker starts: an error there could only say that the pool is broken.
    for name in modules:
        try:
            import_module(name)
        except ImportError as error:
            raise ImportError(
                f"a worker process cannot import {name!r} ({error}): install it, or run with one job"
            ) from None
    return _on_one_thread(work, shared, task)


def _on_one_thread(work: Callable[[Arrays, Task], Result], shared: SharedArrays, task: Task) -> Result:
    need_memory(_MEGABYTES, "the search")
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        with threadpool_limits(limits=1):
            return work(shared.arrays, task)
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


@contextmanager
def _interrupt_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
