"""Journals: what was written is read, what was changed is found, what was torn is dropped."""

from __future__ import annotations

import json
import lzma
import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raresight.common.journal import DamagedFileWarning, Journal, JournalError, read_journal, write_journal

NAMES = ("journal.jsonl", "journal.jsonl.xz")
ENTRIES = [{"number": i, "text": f'"check": ü{i}', "deep": {"values": [i, None]}} for i in range(5)]

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def written(path, parts=(2, 3)):
    start = 0
    with Journal(path) as journal:
        for part in parts:
            journal.append(ENTRIES[start : start + part])
            start += part
        assert journal.sync() == start
        assert journal.entries == ENTRIES[:start]
    return path


def text_of(path):
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def put(path, text):
    path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_is_read(name, tmp_path):
    path = written(tmp_path / "new folder" / name)
    assert read_journal(path) == ENTRIES
    with Journal(path) as journal:
        assert journal.entries == ENTRIES
        journal.append([{"number": 5}])
    assert read_journal(path) == [*ENTRIES, {"number": 5}]
    assert write_journal(tmp_path / name, ENTRIES) == tmp_path / name
    assert text_of(path).startswith(text_of(tmp_path / name))


@settings(deadline=None, max_examples=50)
@given(entries=st.lists(st.dictionaries(st.text().filter(lambda k: k != "check"), plain), max_size=4))
def test_any_plain_values_come_back(entries, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / NAMES[0]
    write_journal(path, entries)
    assert read_journal(path) == json.loads(json.dumps(entries))


def test_no_number_becomes_null(tmp_path):
    path = write_journal(tmp_path / NAMES[0], [{"a": math.nan, "b": [math.inf, {"c": -math.inf}]}])
    assert read_journal(path) == [{"a": None, "b": [None, {"c": None}]}]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lost", [1, 5, 30])
def test_a_torn_end_is_dropped_and_written_again(name, lost, tmp_path):
    path = written(tmp_path / name, parts=(1, 1, 1, 1, 1))
    whole = path.read_bytes()
    path.write_bytes(whole[:-lost])
    kept = read_journal(path)
    assert kept == ENTRIES[: len(kept)]
    assert len(kept) >= 3
    with Journal(path) as journal:
        assert journal.entries == kept
        journal.append(ENTRIES[len(kept) :])
    assert read_journal(path) == ENTRIES


@pytest.mark.parametrize("name", NAMES)
def test_a_member_that_was_torn_keeps_its_whole_lines(name, tmp_path):
    path = written(tmp_path / name, parts=(5,))
    path.write_bytes(path.read_bytes()[:-12])
    assert read_journal(path) == ENTRIES[:4] if name == NAMES[0] else len(read_journal(path)) <= 5


@pytest.mark.parametrize("name", NAMES)
def test_a_change_is_found_at_its_line(name, tmp_path):
    path = written(tmp_path / name)
    lines = text_of(path).splitlines(keepends=True)
    for number, changed in (
        (3, [*lines[:2], lines[2].replace(b'"number": 2', b'"number": 7'), *lines[3:]]),
        (3, [*lines[:2], *lines[3:]]),
        (2, [lines[0], b'{"number": 9}\n', *lines[1:]]),
        (2, [lines[0], lines[2], lines[1], *lines[3:]]),
        (1, lines[1:]),
        (2, [lines[0], b"not json\n", *lines[1:]]),
    ):
        put(path, b"".join(changed))
        with pytest.raises(JournalError, match=f"damaged at line {number}"):
            read_journal(path)
        with pytest.raises(JournalError, match=f"damaged at line {number}"):
            Journal(path)


def test_a_damaged_journal_can_be_mended(tmp_path):
    path = written(tmp_path / NAMES[0], parts=(1,) * 5)
    lines = path.read_bytes().splitlines(keepends=True)
    for count, (number, changed) in enumerate(
        (
            (3, [*lines[:2], lines[2].replace(b'"number": 2', b'"number": 7'), *lines[3:]]),
            (3, [*lines[:2], *lines[3:]]),
            (2, [lines[0], b"[" * 100_000 + b"\n", *lines[1:]]),
            (2, [lines[0], b"\xff\n\r\n", *lines[1:]]),
            (1, lines[1:]),
        ),
        start=1,
    ):
        path.write_bytes(b"".join(changed))
        with pytest.warns(DamagedFileWarning, match=f"damaged at line {number}"):
            journal = Journal(path, mend=True)
        with journal:
            assert journal.entries == ENTRIES[: number - 1]
            journal.append(ENTRIES[number - 1 :])
        aside = tmp_path / f"journal.damaged-{count}.jsonl"
        assert aside.read_bytes() == b"".join(changed[number - 1 :])
        assert path.read_bytes() == b"".join(lines)


def test_what_is_no_xz_file_is_refused(tmp_path):
    path = written(tmp_path / NAMES[1])
    path.write_bytes(path.read_bytes() + b"garbage")
    with pytest.raises(JournalError, match="it is no xz file, or has other bytes in it"):
        read_journal(path)


def test_zeros_at_the_end_are_nothing(tmp_path):
    """A crash of the system leaves them where a stream never reached the disk."""
    path = written(tmp_path / NAMES[1])
    path.write_bytes(path.read_bytes() + bytes(510))
    assert read_journal(path) == ENTRIES
    with Journal(path) as journal:
        journal.append([{"number": 5}])
    assert read_journal(path) == [*ENTRIES, {"number": 5}]


@pytest.mark.parametrize("name", NAMES)
def test_entries_after_a_checkpoint_are_dropped(name, tmp_path):
    path = written(tmp_path / name)
    with Journal(path, keep=3) as journal:
        assert journal.entries == ENTRIES[:3]
        journal.append([{"number": "anew"}])
    assert read_journal(path) == [*ENTRIES[:3], {"number": "anew"}]
    with pytest.raises(JournalError, match="has 4 entries, but 5 were there before: it was cut"):
        Journal(path, keep=5)


def test_an_entry_has_no_check_of_its_own(tmp_path):
    with Journal(tmp_path / NAMES[0]) as journal, pytest.raises(ValueError, match="no 'check' of its own"):
        journal.append([{"check": 1}])


def test_an_error_names_the_file(tmp_path):
    """The system's own limit of a file's size stands in for a full disk: neither error names the file."""
    path = tmp_path / NAMES[0]
    script = (
        "import pathlib, resource, signal\n"
        "from raresight.common.journal import Journal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        f"Journal(pathlib.Path({str(path)!r})).append([{{'text': 'long ' * 100}}])\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f"File too large: {str(path)!r}" in run.stderr
