"""Runs fuzz cases and says what is wrong with what the command did.

A command may refuse its input with one sentence, or do its work. It must not show a traceback, die of a
signal, hang, change its input, or leave a file that is torn or unfinished.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fuzz_cases import FAST, Case, Fixtures, make_case

SECONDS = 30
MEMORY = 6 * 2**30
_LONGEST = 900
# A name such as ArrowInvalid or KeyError in a sentence is the inside of a library.
_INSIDE = re.compile(
    r"\b(Arrow[A-Z]\w+|[A-Z][a-z]\w+(Error|Exception)|allow_pickle\S*)|<class|error: '[\w-]+' codec"
)


@dataclass(frozen=True)
class Finding:
    """What is wrong with one case."""

    case: Case
    arguments: list[str]
    complaint: str
    answer: dict[str, Any]

    def __str__(self) -> str:
        told = (self.answer["err"] or self.answer["out"])[-1500:]
        return f"{self.case}: {self.complaint}\n  raresight {' '.join(map(repr, self.arguments))}\n{told}"


class CommandServer:
    """The process in whose forks commands run."""

    def __init__(self) -> None:
        place = Path(__file__).with_name("command_server.py")
        self._process = subprocess.Popen(
            [sys.executable, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, arguments: list[str], folder: Path, seconds: float = SECONDS) -> dict[str, Any]:
        """Run one command in a folder; returns what `command_server` answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"arguments": arguments, "folder": str(folder), "seconds": seconds, "memory": MEMORY}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.communicate("", timeout=60)


@contextlib.contextmanager
def laboratory(folder: Path) -> Iterator[tuple[CommandServer, Fixtures]]:
    """A server, and what cases start from."""
    server = CommandServer()
    try:
        yield server, _fixtures(server, folder)
    finally:
        server.close()


def _fixtures(server: CommandServer, folder: Path) -> Fixtures:
    random = np.random.default_rng(0)
    y = (np.arange(600) % 10 == 0).astype(np.int64)
    columns = {
        "a": random.normal(size=600) + 2 * y,
        "b": random.normal(size=600) - y,
        "c": np.array(["shop0", "shop1", "shop2"])[random.integers(0, 3, 600)],
        "label": y,
    }
    table = folder / "table.parquet"
    pq.write_table(pa.table(columns), table)
    asked = ["--target", "label", "--fpr", "0.05", *FAST[FAST.index("--jobs") :]]
    searched = [*asked, "--trials", "4", "--families", "linear,lightgbm", "--losses", "tbl"]
    cut = folder / "cut"
    models = tuple(folder / family for family in ("linear", "lightgbm", "xgboost"))
    fits = [
        [*asked, "--trials", "1", "--families", place.name, "--losses", "crossentropy"] for place in models
    ]
    for place, options in zip((cut, *models), (searched, *fits), strict=True):
        found = server.run(["fit", str(table), *options, "--out", str(place)], folder, seconds=120)
        assert found["status"] == 0, found
    outcome = _outcome(cut)
    # A run that was killed after its second trial: no outcome, and the first lines of the journal.
    for path in cut.iterdir():
        if path.name not in ("run.json", "search"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    journal = cut / "search" / "trials.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) * 2 // 3]))
    (cut / "options.json").write_text(json.dumps(searched))
    return Fixtures(models, cut, table, outcome)


def run_case(server: CommandServer, fixtures: Fixtures, case: Case) -> Finding | None:
    """Run a case in a folder of its own; returns what is wrong, or None."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        arguments = make_case(case, folder, fixtures)
        inputs = {path: _content(path) for path in folder.rglob("*") if path.is_file()}
        answer = server.run(arguments, folder)
        complaint = complaint_of(answer, folder)
        if case.kind == "journals":
            other = answer["status"] == 0 and _outcome(folder / "out") != fixtures.outcome
            complaint = complaint or ("the outcome is another one, without a word" if other else "")
        else:
            changed = [path.name for path, content in inputs.items() if _content(path) != content]
            complaint = complaint or (f"{changed[0]} was changed" if changed else "")
        return Finding(case, arguments, complaint, answer) if complaint else None


def _outcome(run: Path) -> Any:
    """What a run found, without what differs between two runs of the same."""
    found = json.loads((run / "evaluation.json").read_text())
    return {name: found[name] for name in ("model", "evaluation", "threshold", "warnings", "fingerprint")}


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def complaint_of(answer: dict[str, Any], folder: Path) -> str:
    """What is wrong with an answer and with the files it left; empty if nothing is."""
    told = answer["out"] + answer["err"]
    if answer["hung"]:
        return f"hung for {SECONDS} seconds"
    if answer["signal"] is not None:
        return f"killed by signal {answer['signal']}"
    if "Traceback (most recent call last)" in told or "Fatal Python error" in told:
        return "a traceback"
    if "did not foresee" in told:
        return "an error that nobody foresaw"
    if answer["status"] not in (0, 1, 2):
        return f"exit status {answer['status']}"
    if answer["status"] == 1:
        errors = [line for line in answer["err"].splitlines() if line.startswith("error:")]
        if len(errors) != 1:
            return f"{len(errors)} lines begin with error:"
        if len(errors[0]) > _LONGEST:
            return f"an error of {len(errors[0])} characters"
        if found := _INSIDE.search(errors[0]):
            return f"{found[0]} in an error"
    return _torn(folder, whole=answer["status"] == 0)


def _torn(folder: Path, *, whole: bool) -> str:
    """The first file that is not whole."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in ("stdout", "stderr"):
            continue
        if "unfinished" in path.name:
            return f"{path.name} was left behind"
        try:
            if path.name == "report.html" and not path.read_text().rstrip().endswith("</html>"):
                return "report.html is torn"
            if path.name == "evaluation.json":
                json.loads(path.read_text())
            if path.name == "leaderboard.csv" and len(list(csv.reader(path.read_text().splitlines()))) < 2:
                return "leaderboard.csv is torn"
            if path.name == "s.parquet":
                pq.read_table(path)
        except (ValueError, pa.ArrowException) as error:
            return f"{path.name} is torn: {error}"
    if whole and (folder / "out" / "run.json").exists():
        missing = [name for name in ("model", "report.html") if not (folder / "out" / name).exists()]
        if missing:
            return f"no {missing[0]} after success"
    return ""
