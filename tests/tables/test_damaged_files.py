"""Damaged and hostile files: a sentence that names file and column, never a crash, a wrap or a wait."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from raresight.tables import fingerprint, open_batches, read_table
from raresight.tables.column_codec import typed_numbers
from raresight.tables.schema import learn_schema

ROWS = 600
SHOPS = pa.array([f"v{i % 5}xyz" for i in range(ROWS)])
Y = pa.array([int(i % 12 == 0) for i in range(ROWS)])


def _arrow_file(path, shops, find, number):
    """Write an Arrow file in which one number of a buffer, found by its first numbers, is another one."""
    table = pa.table({"s": shops, "label": Y})
    write = pa.ipc.new_stream if path.suffix == ".stream" else pa.ipc.new_file
    with write(path, table.schema) as writer:
        writer.write_table(table)
    content = bytearray(path.read_bytes())
    place = bytes(content).find(struct.pack(f"<{len(find)}i", *find)) + 4 * 300
    content[place : place + 4] = struct.pack("<i", number)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["x.arrow", "x.stream"])
@pytest.mark.parametrize(
    ("shops", "find", "number"),
    [
        (SHOPS, (0, 5, 10, 15), 2**30),
        (SHOPS, (0, 5, 10, 15), -5),
        (SHOPS.dictionary_encode(), (0, 1, 2, 3, 4), 9_999_999),
    ],
)
def test_a_wrong_offset_or_index_is_found_before_it_is_followed(tmp_path, name, shops, find, number):
    path = _arrow_file(tmp_path / name, shops, find, number)
    for read in (read_table, lambda path: list(open_batches(path))):
        with pytest.raises(
            ValueError, match=rf"{name} is damaged: column 's' holds offsets or indices out of"
        ):
            read(path)
    # A column that nobody asks for does no harm.
    assert read_table(path, columns=["label"]).num_rows == ROWS
    mapped = pa.memory_map(str(path))
    opened = pa.ipc.open_stream if name.endswith("stream") else pa.ipc.open_file
    table = opened(mapped).read_all()
    for frame in (table, table.to_batches()[0]):
        with pytest.raises(ValueError, match="the table is damaged: column 's'"):
            read_table(frame)


def test_text_that_is_no_text(tmp_path):
    broken = pa.array([b"caf\xe9"] * 3).view(pa.string())
    pa.parquet.write_table(pa.table({"a": [1, 2, 3], "name": broken}), tmp_path / "t.parquet")
    for read in (read_table, lambda path: list(open_batches(path))):
        with pytest.raises(
            ValueError, match=r"t\.parquet is damaged: column 'name' holds text that is not UTF"
        ):
            read(tmp_path / "t.parquet")


def test_utf16_that_is_cut_short(tmp_path):
    content = "amount,label\n1,0\n2,1\n".encode("utf-16")
    (tmp_path / "t.csv").write_bytes(content[:-1])
    with pytest.raises(ValueError, match=r"t\.csv is UTF-16 text that is damaged or cut short"):
        read_table(tmp_path / "t.csv")


def _zip(method=zipfile.ZIP_DEFLATED):
    import io

    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("t.csv", "amount,label\n" + "1.25,0\n2.5,1\n" * 500)
    return bytearray(made.getvalue())


def _changed(content, changes):
    for place, byte in changes.items():
        content[place] = byte
    return bytes(content)


def test_damaged_zip_archives(tmp_path):
    sound = bytes(_zip())
    directory = sound.rfind(b"PK\x01\x02")
    cases = {
        b"PK\x03\x04" + bytes(200): "damaged zip archive",
        _changed(_zip(), {60: 0xFF, 61: 0xFF, 62: 0xFF}): "compressed (zip) and damaged or cut short",
        _changed(_zip(), {directory + 8: 1, 6: 1}): "an encrypted zip archive",
        _changed(_zip(), {directory + 10: 99, 8: 99}): "compressed (zip) and damaged or cut short",
        _changed(_zip(), {directory + 6: 255}): "damaged zip archive",
    }
    for content, said in cases.items():
        (tmp_path / "t.zip").write_bytes(content)
        with pytest.raises(ValueError, match=r"t\.zip is .*" + said.replace("(", r"\(").replace(")", r"\)")):
            read_table(tmp_path / "t.zip")
    for seed in range(300):  # whatever byte is wrong
        draw = np.random.default_rng(seed)
        content = bytearray(sound)
        content[draw.integers(len(content))] ^= 1 << int(draw.integers(8))
        (tmp_path / "t.zip").write_bytes(content)
        with contextlib.suppress(ValueError):
            read_table(tmp_path / "t.zip")


def test_pipes_and_devices_are_never_opened(tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    (parts / "a.csv").write_text("x,label\n1,0\n")
    os.mkfifo(parts / "b.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "pipe.csv")
    script = (
        "import sys\nfrom raresight.tables import read_table\n"
        "for path in sys.argv[1:]:\n    try: read_table(path)\n    except ValueError as error: print(error)\n"
    )
    places = [parts, tmp_path / "pipe.csv", tmp_path / "link.csv", "/dev/zero"]
    told = subprocess.run(
        [sys.executable, "-c", script, *map(str, places)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()
    assert [line.split(":")[0].rsplit(" but ")[1] for line in told] == ["a pipe"] * 3 + ["a device"]
    assert "b.csv" in told[0]


def test_a_link_to_nothing_among_the_parts(tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "gone")
    with pytest.raises(ValueError, match=r"a\.csv is a link to a file that does not exist"):
        read_table(tmp_path)


def test_a_pipe_beside_a_database(tmp_path):
    with sqlite3.connect(tmp_path / "t.db") as base:
        base.execute("CREATE TABLE t (a, b)")
    base.close()
    os.mkfifo(tmp_path / "t.db-wal")
    with pytest.raises(ValueError, match=r"t\.db-wal is not a regular file but a pipe"):
        read_table(tmp_path / "t.db")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_do_not_wrap(unit):
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    most = (2**63 - 1) // per_second
    counts = pa.array([None, 5 * per_second, most * per_second, -most * per_second], pa.duration(unit))
    numbers = typed_numbers(counts)
    assert numbers.tolist() == pytest.approx([np.nan, 5.0, most, -most], rel=1e-15, nan_ok=True)


def test_long_durations_are_told_apart():
    table = pa.table({"d": pa.array(10**13 + 2000 * np.arange(ROWS), pa.duration("s")), "label": Y})
    assert (np.diff(learn_schema(table, "label").matrix(table)[:, 0]) == 2000).all()
    assert len(fingerprint(pa.table({"d": pa.array([2**62], pa.duration("s"))}))) == 64
