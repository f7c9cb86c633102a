"""Tasks in local processes: results, shared arrays, failures, and what is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import joblib
import numpy as np
import pytest

from engines import engine_tasks as tasks
from raresight.engines import Interrupts, LocalEngine, local

TESTS = Path(__file__).parents[1]


@pytest.fixture
def engine(tmp_path):
    with LocalEngine(2, tmp_path) as two:
        yield two


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_task_has_its_result(jobs, tmp_path):
    with LocalEngine(jobs, tmp_path) as engine:
        for x in (np.arange(4), np.ones((3, 2))):
            with engine.share({"x": x}) as shared:
                found = dict(engine.run(tasks.scaled_sum, list(range(20)), shared))
            assert found == {i: float(i * x.sum()) for i in range(20)}
    assert list(tmp_path.iterdir()) == []


def test_arrays_are_mapped_once_and_cannot_be_changed(engine):
    with engine.share({"x": np.arange(4)}) as shared:
        assert dict(engine.run(tasks.memory_map, [0, 1, 2], shared)) == dict.fromkeys(
            range(3), ("memmap", False)
        )


def test_a_task_has_one_thread_wherever_it_runs(engine):
    seen = {}
    for one in (LocalEngine(1), engine):
        with one.share({}) as shared:
            seen[one] = dict(one.run(tasks.threads_and_process, [0, 1, 2], shared))
    assert {threads for found in seen.values() for _, threads in found.values()} == {1}
    assert {process for process, _ in seen[engine].values()} != {os.getpid()}


def test_the_error_of_a_task_is_raised_and_the_engine_works_on(engine):
    with engine.share({"x": np.arange(4)}) as shared:
        with pytest.raises(ValueError, match="two is too much"):
            list(engine.run(tasks.fail_at_two, [0, 1, 2, 3], shared))
        assert dict(engine.run(tasks.scaled_sum, [1], shared)) == {0: 6.0}


def test_a_worker_that_is_killed_is_an_error_and_the_engine_works_on(engine):
    with engine.share({"x": np.arange(4)}) as shared:
        with pytest.raises(RuntimeError, match="ended a worker process, most often because memory ran out"):
            list(engine.run(tasks.die_at_two, list(range(6)), shared))
        assert dict(engine.run(tasks.scaled_sum, [1], shared)) == {0: 6.0}


def test_results_that_nobody_wants_end_their_tasks(engine, tmp_path):
    with engine.share({"x": np.arange(4)}) as shared:
        results = engine.run(tasks.fail_at_two, [0, 1, 0, 1], shared)
        next(results)
        results.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_that_was_noted_is_raised_before_the_next_task(jobs, tmp_path):
    interrupts = Interrupts()
    interrupts.seen = True
    with LocalEngine(jobs, tmp_path) as engine, engine.share({"x": np.arange(4)}) as shared:
        with pytest.raises(KeyboardInterrupt):
            list(engine.run(tasks.scaled_sum, [1, 2], shared, interrupts))
        assert dict(engine.run(tasks.scaled_sum, [1], shared)) == {0: 6.0}


def test_workers_end_with_a_parent_that_is_killed_and_its_files_go_with_the_next_one(tmp_path):
    program = "from engines.engine_tasks import main; main()"
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], env=_environment())
    deadline = time.monotonic() + 60
    while len(workers := [int(path.name) for path in tmp_path.iterdir() if path.name.isdigit()]) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    while any(Path(f"/proc/{pid}").exists() for pid in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list(tmp_path.glob("arrays-*"))
    with LocalEngine(2, tmp_path) as engine, engine.share({}):
        assert len(list(tmp_path.glob("arrays-*"))) == 1
    assert not list(tmp_path.glob("arrays-*"))


def test_a_script_without_a_guard_runs_once(tmp_path):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "script.py").write_text(tasks.SCRIPT)
    run = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.stdout, run.stderr) == ("[(0, 6.0), (1, 12.0), (2, 18.0)]\n", "")


def test_there_are_no_more_processes_than_tasks_and_twice_the_cores(tmp_path):
    most = max(2, 2 * joblib.cpu_count())
    for n_tasks in (1, 40):
        with LocalEngine(1000, tmp_path) as engine, engine.share({"x": np.arange(4)}) as shared:
            assert engine.jobs == most
            assert len(dict(engine.run(tasks.scaled_sum, range(n_tasks), shared))) == n_tasks
            assert len(engine._context.started) <= min(n_tasks, most)


def test_a_task_without_memory_is_an_error_and_no_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "_MEGABYTES", 2**33)
    with (
        LocalEngine(1, tmp_path) as engine,
        engine.share({"x": np.arange(4)}) as shared,
        pytest.raises(MemoryError, match=r"the search needs .* MB more memory than this process may use"),
    ):
        list(engine.run(tasks.scaled_sum, [1], shared))


def test_a_pool_whose_thread_died_is_an_error_and_no_wait(engine, monkeypatch):
    monkeypatch.setattr(local, "_PATIENCE", 0.1)
    # What the thread does first where it cannot start another one.
    monkeypatch.setattr("concurrent.futures.process._ExecutorManagerThread.run", lambda self: None)
    with engine.share({"x": np.arange(4)}) as shared, pytest.raises(RuntimeError, match="ended a worker"):
        list(engine.run(tasks.scaled_sum, [0, 1, 2], shared))


def test_jobs_and_a_folder_are_needed():
    for jobs in (0, 2):
        with pytest.raises(ValueError, match="needs at least one job, and a folder for two or more"):
            LocalEngine(jobs)


def _environment():
    return {**os.environ, "PYTHONPATH": str(TESTS)}
