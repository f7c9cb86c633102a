"""Lines in gzip files that grow: torn, mended, and written by several processes."""

from __future__ import annotations

import gzip
import multiprocessing
import subprocess

import pytest

from reproduction.journal import add_packed_lines, read_packed_lines


def numbered(first, count):
    return [f'{{"number": {n}, "text": "{n * 7919 % 104729}"}}'.encode() for n in range(first, first + count)]


def test_lines_come_back_and_other_programs_read_them(tmp_path):
    path = tmp_path / "deep" / "lines.gz"
    assert read_packed_lines(path) == ()
    for first in (0, 5, 10):
        add_packed_lines(path, numbered(first, 5))
    assert list(read_packed_lines(path)) == numbered(0, 15)
    shown = subprocess.run(["gzip", "-dc", path], capture_output=True, check=True).stdout
    assert shown.splitlines() == numbered(0, 15)
    again = tmp_path / "again.gz"
    for first in (0, 5, 10):
        add_packed_lines(again, numbered(first, 5))
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("members", [1, 2])
def test_of_a_torn_file_all_whole_lines_stay(tmp_path, members):
    """Also where it is one member, as programs pack it."""
    path = tmp_path / "lines.gz"
    for k in range(members):
        add_packed_lines(path, numbered(60 // members * k, 60 // members))
    whole = path.read_bytes()
    counts = set()
    for length in range(0, len(whole), 3):
        path.write_bytes(whole[:length])
        found = list(read_packed_lines(path))
        assert found == numbered(0, len(found))
        counts.add(len(found))
        add_packed_lines(path, numbered(100, 2))
        assert list(read_packed_lines(path)) == [*found, *numbered(100, 2)]
        assert gzip.decompress(path.read_bytes()).count(b"\n") == len(found) + 2
    # Without the last bytes, which are a sum, it has every line.
    path.write_bytes(whole[:-1])
    assert list(read_packed_lines(path)) == numbered(0, 60)
    assert len(counts) > 3
    assert sorted(tmp_path.iterdir()) == [path]


def test_a_text_without_a_last_newline_does_not_run_into_the_next(tmp_path):
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"\n".join(numbered(0, 3))))
    add_packed_lines(path, numbered(3, 2))
    assert list(read_packed_lines(path)) == numbered(0, 5)


def test_zeros_at_the_end_are_nothing_and_other_bytes_an_error(tmp_path):
    path = tmp_path / "lines.gz"
    add_packed_lines(path, numbered(0, 3))
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(512))
    add_packed_lines(path, numbered(3, 1))
    assert list(read_packed_lines(path)) == numbered(0, 4)
    path.write_bytes(whole + b"something else")
    for use in (read_packed_lines, lambda path: add_packed_lines(path, numbered(3, 1))):
        with pytest.raises(
            ValueError, match=f"damaged at byte {len(whole)} .* head -c {len(whole)} lines.gz"
        ):
            use(path)
    assert path.read_bytes() == whole + b"something else"


@pytest.mark.parametrize("has_packed", [False, True])
def test_a_plain_file_is_not_overlooked(tmp_path, has_packed):
    path = tmp_path / "lines.jsonl.gz"
    if has_packed:
        add_packed_lines(path, numbered(0, 1))
    (tmp_path / "lines.jsonl").write_bytes(b"\n".join(numbered(1, 2)) + b"\n")
    for use in (read_packed_lines, lambda path: add_packed_lines(path, numbered(3, 1))):
        with pytest.raises(ValueError, match=r"lines\.jsonl is not packed.*gzip -c lines\.jsonl >> lines"):
            use(path)
    subprocess.run(
        "gzip -c lines.jsonl >> lines.jsonl.gz && rm lines.jsonl", shell=True, cwd=tmp_path, check=True
    )
    assert list(read_packed_lines(path)) == numbered(0 if has_packed else 1, 3 if has_packed else 2)


def add_many(path, first):
    for n in range(first, first + 40):
        add_packed_lines(path, numbered(n, 1))


def test_processes_take_turns(tmp_path):
    """Two that add at the same time, to a file whose end is torn at first: nothing is lost."""
    path = tmp_path / "lines.gz"
    add_packed_lines(path, numbered(0, 30))
    path.write_bytes(path.read_bytes()[:-3])
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=add_many, args=(path, first)) for first in (1000, 2000, 3000)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    found = read_packed_lines(path)
    assert list(found[:30]) == numbered(0, 30)
    assert sorted(found[30:]) == sorted(numbered(1000, 40) + numbered(2000, 40) + numbered(3000, 40))
