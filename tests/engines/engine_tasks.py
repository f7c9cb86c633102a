"""Tasks for the tests of engines, which workers import by name; `main` runs one that takes long."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from raresight.engines import LocalEngine


def scaled_sum(arrays, factor):
    return float(factor * arrays["x"].sum())


def threads_and_process(arrays, task):
    from threadpoolctl import threadpool_info

    return os.getpid(), max(library["num_threads"] for library in threadpool_info())


def memory_map(arrays, task):
    return type(arrays["x"]).__name__, arrays["x"].flags.writeable


def fail_at_two(arrays, task):
    if task == 2:
        raise ValueError("two is too much")
    return task


def die_at_two(arrays, task):
    if task == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.2)
    return task


def sleep_long(arrays, folder):
    (folder / str(os.getpid())).touch()
    time.sleep(600)


# A script without `if __name__ == "__main__"`, as people write them.
SCRIPT = """\
from pathlib import Path
import numpy as np
from engines.engine_tasks import scaled_sum
from raresight.engines import LocalEngine
with LocalEngine(2, Path("scratch")) as engine, engine.share({"x": np.arange(4)}) as shared:
    print(sorted(engine.run(scaled_sum, [1, 2, 3], shared)))
"""


def main() -> None:
    folder = Path(sys.argv[1])
    with LocalEngine(2, folder) as engine, engine.share({"x": np.arange(3)}) as shared:
        list(engine.run(sleep_long, [folder] * 2, shared))
