"""Steps run through joblib, in this process or in others that share the data by memory mapping."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, TypeVar

import joblib
import numpy as np
from numpy.typing import NDArray

from .evaluation import FoldResult, FoldRows, Step, evaluate
from .interrupts import Interrupts, held_back
from .records import Task
from .scores import write_array

__all__ = ["Workers", "in_processes"]

Result = TypeVar("Result")
Numbered = tuple[int, list[FoldResult]]

_ARRAYS = "arrays-"
_prepared = False


class Workers:
    """Runs steps of a task, `jobs` at a time; as a context it shares the data and cleans up after itself.

    With one job the steps run here. With more, the arrays are written to the search's folder and mapped by
    the workers, so that they are in memory once.
    """

    def __init__(self, task: Task, folder: Path, jobs: int, interrupts: Interrupts) -> None:
        self.jobs = int(joblib.effective_n_jobs(jobs))
        self._task, self._folder, self._interrupts = task, folder, interrupts
        self._arrays = folder / f"{_ARRAYS}{os.getpid()}"
        self._folds: list[FoldRows] = []
        self._started = False

    def __enter__(self) -> Workers:
        for left in self._folder.glob(f"{_ARRAYS}*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        task = self._task
        keep = self._mapped if self.jobs > 1 else _as_it_is
        if self.jobs > 1:
            self._arrays.mkdir()
        X, y = keep("X", np.ascontiguousarray(task.X)), keep("y", np.asarray(task.y))
        weights = None if task.weights is None else keep("weights", np.asarray(task.weights))
        self._folds = [
            FoldRows(
                X=X,
                y=y,
                weights=weights,
                train=keep(f"train-{number}", np.asarray(fold.train)),
                test=keep(f"test-{number}", np.asarray(fold.test)),
                categorical=tuple(int(column) for column in task.categorical),
                n_categories=tuple(int(count) for count in task.n_categories),
                max_fpr=task.max_fpr,
                fpr=task.fpr,
                seed=task.seed,
            )
            for number, fold in enumerate(task.folds)
        ]
        return self

    def __exit__(self, *_: object) -> None:
        self._folds = []
        shutil.rmtree(self._arrays, ignore_errors=True)

    def run(self, steps: Sequence[Step]) -> Iterator[tuple[Step, list[FoldResult]]]:
        """The results of the steps as they come; KeyboardInterrupt after a Ctrl-C."""
        results = self._here(steps) if self.jobs == 1 else self._elsewhere(steps)
        for index, result in results:
            yield steps[index], result

    def _here(self, steps: Sequence[Step]) -> Iterator[Numbered]:
        for index, step in enumerate(steps):
            with self._interrupts.raised_here():
                result = evaluate(step, self._folds[step.fold], self._folder)
            yield index, result

    def _elsewhere(self, steps: Sequence[Step]) -> Iterator[Numbered]:
        from joblib.externals.loky.process_executor import TerminatedWorkerError

        parent = os.getpid()
        _clean_in_turns()
        with joblib.parallel_config(
            backend="loky", inner_max_num_threads=1, initializer=_prepare, initargs=(parent,)
        ):
            if not self._started:
                resource_tracker.ensure_running()  # else started below, and lets Ctrl-C through again
                with held_back():  # the workers are started here
                    joblib.Parallel(self.jobs, batch_size=1)(
                        joblib.delayed(_prepare)(parent) for _ in range(2)
                    )
                self._started = True
            with self._interrupts.raised_here():
                pass  # one that came meanwhile
            # Ending workers disturbs a thread of joblib while it still has steps to hand out: it gets only
            # as many as there are workers, and below a moment for them.
            parallel = joblib.Parallel(
                self.jobs, batch_size=1, pre_dispatch=self.jobs, return_as="generator_unordered"
            )
            results = parallel(
                joblib.delayed(_in_worker)(index, step, self._folds[step.fold], self._folder, parent)
                for index, step in enumerate(steps)
            )
        is_done = False
        try:
            while True:
                with _unwarned(), self._interrupts.raised_here(pause=0.2):
                    result = next(results, None)
                if result is None:
                    is_done = True
                    return
                yield result
        except TerminatedWorkerError as error:
            raise RuntimeError(
                "a worker process was ended by the system, most often for want of memory; what is finished "
                "is kept: run it again with fewer jobs"
            ) from error
        finally:
            if not is_done:
                _let_manager_end()
            with _unwarned():
                results.close()

    def _mapped(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        path = self._arrays / f"{name}.npy"
        write_array(path, values, at_once=False)
        mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped


def in_processes(
    work: Callable[..., Result], arguments: Sequence[tuple[Any, ...]], jobs: int
) -> list[Result]:
    """`work` with each of the argument lists, in processes like those of a search: they end with this one."""
    if jobs == 1 or len(arguments) == 1:
        return [work(*given) for given in arguments]
    with joblib.parallel_config(
        backend="loky", inner_max_num_threads=1, initializer=_prepare, initargs=(os.getpid(),)
    ):
        # Without joblib's own mapping, which writes arrays as pickles.
        results: list[Result] = joblib.Parallel(jobs, batch_size=1, max_nbytes=None)(
            joblib.delayed(work)(*given) for given in arguments
        )
    return results


def _let_manager_end() -> None:
    """Without the traceback of joblib's thread that was about to hand out a step when all were cancelled.

    It ends a moment after the workers do, whence for the rest of this process; of other threads, and other
    errors of this one, everything is told as before.
    """
    before = threading.excepthook
    if getattr(before, "is_for_the_manager", False):
        return

    def told(failure: threading.ExceptHookArgs) -> None:
        name = "" if failure.thread is None else failure.thread.name
        if not (name == "ExecutorManagerThread" and failure.exc_type is KeyError):
            before(failure)

    told.is_for_the_manager = True  # type: ignore[attr-defined]
    threading.excepthook = told


@cache
def _clean_in_turns() -> None:
    """Have joblib's threads remove its temporary folders one after the other.

    After a Ctrl-C two of them do it at once, and each takes the folder off the list of a process that watches
    them, which shows a traceback where it is not on it any more.
    """
    try:
        from joblib._memmapping_reducer import TemporaryResourcesManager

        clean = TemporaryResourcesManager._clean_temporary_resources
    except (ImportError, AttributeError):  # another joblib: nothing is lost but the order
        return
    turn = threading.RLock()

    @wraps(clean)
    def in_turn(*given: Any, **named: Any) -> Any:
        with turn:
            return clean(*given, **named)

    TemporaryResourcesManager._clean_temporary_resources = in_turn


@contextmanager
def _unwarned() -> Iterator[None]:
    """Without joblib's word, after a Ctrl-C, that steps were cancelled."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*tasks which were still being processed.*")
        yield


def _as_it_is(_: str, values: NDArray[Any]) -> NDArray[Any]:
    return values


def _in_worker(index: int, step: Step, rows: FoldRows, folder: Path, parent: int) -> Numbered:
    _prepare(parent)
    return index, evaluate(step, rows, folder)


def _prepare(parent: int) -> None:
    """Once in a worker: leave Ctrl-C to the parent, and end soon after it, even if it was killed."""
    global _prepared
    if not _prepared:
        _prepared = True
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
