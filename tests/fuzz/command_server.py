"""Runs the command in child processes of one that has its libraries loaded, with limits of time and memory.

Each child is a fork: a command costs what it does, not the second that its imports take. Requests and answers
are lines of JSON:

    {"arguments": ["fit", ...], "folder": "/tmp/x", "seconds": 20, "memory": 2147483648}
    {"status": 1, "signal": null, "hung": false, "out": "...", "err": "...", "seconds": 0.4}
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

_POLL = 0.005


def main() -> None:
    """Answer requests until standard input ends."""
    _load()
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), flush=True)


def _load() -> None:
    """Import what commands use; no thread may start before the last fork."""
    import duckdb  # noqa: F401
    import lightgbm  # noqa: F401
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401
    import sklearn.linear_model  # noqa: F401

    import raresight.cli
    import raresight.fitting
    import raresight.linear
    import raresight.model.model
    import raresight.model.scoring
    import raresight.report.analysis
    import raresight.report.fit_page
    import raresight.report.loss_tables  # noqa: F401


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(request["folder"])
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        _run(request, folder)
    status, hung = _waited(child, begun + request["seconds"])
    seconds = time.monotonic() - begun
    with contextlib.suppress(ProcessLookupError):  # what the command left behind
        os.killpg(child, signal.SIGKILL)
    return {
        "status": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "hung": hung,
        "out": (folder / "stdout").read_text(errors="replace"),
        "err": (folder / "stderr").read_text(errors="replace"),
        "seconds": round(seconds, 3),
    }


def _waited(child: int, deadline: float) -> tuple[int, bool]:
    """The exit status of a child, and whether it had to be killed."""
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status, False
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1], True
        time.sleep(_POLL)


def _run(request: dict[str, Any], folder: Path) -> None:
    """The command itself, in the child; never returns."""
    code = 70
    try:
        os.setsid()
        for number, name in ((0, os.devnull), (1, folder / "stdout"), (2, folder / "stderr")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(name, flags, 0o600), number)
        resource.setrlimit(resource.RLIMIT_AS, (request["memory"], request["memory"]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.chdir(folder)
        sys.argv = ["raresight", *request["arguments"]]
        from raresight.cli import main as command

        command()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
