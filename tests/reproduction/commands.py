"""`python -m reproduction` within the process of a test."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from reproduction.__main__ import main


@dataclass(frozen=True)
class Run:
    exit_code: int
    stdout: str
    stderr: str


def run(*words: str) -> Run:
    out, told = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(told):
        code = main(words)
    return Run(code, out.getvalue(), told.getvalue())
