"""Journals of results: several processes add to one, and files from elsewhere are sealed."""

from __future__ import annotations

import gzip
import json
import lzma
import multiprocessing
import subprocess
import sys

import pytest

from raresight.common.journal import JournalError, read_journal
from reproduction.seal_journals import seal
from reproduction.training_records import add_records, read_keyed


def numbered(first, count):
    return [{"number": n, "text": str(n * 7919 % 104729)} for n in range(first, first + count)]


def add_many(path, first):
    for n in range(first, first + 40):
        add_records(path, numbered(n, 1))


def test_processes_take_turns(tmp_path):
    """Three that add at the same time, to a file whose end is torn at first: nothing is lost."""
    path = tmp_path / "lines.jsonl.xz"
    add_records(path, numbered(0, 30))
    add_records(path, numbered(30, 1))
    path.write_bytes(path.read_bytes()[:-3])
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=add_many, args=(path, first)) for first in (1000, 2000, 3000)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    found = read_journal(path)
    # Of the torn addition every line was whole.
    assert found[:31] == numbered(0, 31)
    added = sorted(entry["number"] for entry in found[31:])
    assert added == [first + n for first in (1000, 2000, 3000) for n in range(40)]


@pytest.mark.parametrize(("ending", "pack"), [("", bytes), (".gz", gzip.compress)])
def test_lines_from_elsewhere_are_sealed(ending, pack, tmp_path):
    lines = numbered(0, 5)
    path = tmp_path / f"lines.jsonl{ending}"
    path.write_bytes(pack("".join(f"{json.dumps(line)}\n" for line in lines).encode()))
    command = [sys.executable, "-m", "reproduction.seal_journals", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(tmp_path / "lines.jsonl.xz")
    assert read_journal(tmp_path / "lines.jsonl.xz") == lines


def test_a_journal_edited_by_hand_is_sealed_again(tmp_path):
    path = tmp_path / "lines.jsonl.xz"
    add_records(path, numbered(0, 5))
    text = lzma.decompress(path.read_bytes())
    (tmp_path / "lines.jsonl").write_bytes(b"".join(text.splitlines(keepends=True)[1:]))
    path.unlink()
    assert seal(tmp_path / "lines.jsonl") == path
    assert read_journal(path) == numbered(1, 4)
    path.write_bytes(path.read_bytes() + b"garbage")
    with pytest.raises(JournalError, match="damaged"):
        read_journal(path)
    with pytest.raises(ValueError, match=r"is no NAME\.jsonl"):
        seal(tmp_path / "lines.csv")


def test_an_entry_without_a_key_is_named(tmp_path):
    path = tmp_path / "lines.jsonl.xz"
    assert read_keyed(path, lambda entry: entry["text"]) == {}
    add_records(path, [*numbered(0, 1), {"other": 1}])
    with pytest.raises(ValueError, match=r"no result in line 2 \('number'\).*seal_journals"):
        read_keyed(path, lambda entry: str(entry["number"]))
