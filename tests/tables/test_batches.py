"""Batches hold the same rows as the whole table, in order and with the same types."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raresight.tables import fingerprint, open_batches, read_table

ROWS = 20_000


def big_table() -> pa.Table:
    rng = random.Random(0)
    return pa.table(
        {
            "number": [None if rng.random() < 0.1 else rng.gauss(0, 1) for _ in range(ROWS)],
            "whole": list(range(ROWS)),
            "text": [rng.choice(["a", 'quo"te', "new\nline", "com,ma", None]) for _ in range(ROWS)],
            "truth": [rng.random() < 0.5 for _ in range(ROWS)],
            "late word": ["1"] * (ROWS - 1) + ["word"],
        }
    )


TABLE = big_table()


def csv(table, path):
    pyarrow.csv.write_csv(table, path)


def packed_csv(table, path):
    pyarrow.csv.write_csv(table, path)
    path.write_bytes(gzip.compress(path.read_bytes()))


def parquet(table, path):
    pyarrow.parquet.write_table(table, path, row_group_size=3000)


def arrow_file(table, path):
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=1234)


def arrow_stream(table, path):
    with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=1234)


def one_row_group(table, path):
    pyarrow.parquet.write_table(table, path, row_group_size=table.num_rows)


def folder(writer):
    def write(table, path):
        path.mkdir()
        for part in range(4):
            writer(table.slice(part * 5000, 5000), path / f"part{part}")

    write.__name__ = f"folder of {writer.__name__}"
    return write


WRITERS = [csv, packed_csv, parquet, arrow_file, arrow_stream]
WRITERS += [folder(writer) for writer in WRITERS]


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_batches_are_the_table(tmp_path, writer):
    writer(TABLE, tmp_path / "t")
    whole = read_table(tmp_path / "t")
    assert whole.equals(TABLE.cast(whole.schema))
    batches = open_batches(tmp_path / "t", rows=777)
    pieces = []
    progress = []
    for batch in batches:
        pieces.append(batch)
        progress.append(batches.bytes_read)
    assert pa.Table.from_batches(pieces).equals(whole)
    assert {piece.schema for piece in pieces} == {batches.schema}
    assert max(piece.num_rows for piece in pieces) <= 777
    assert batches.rows_read == ROWS
    assert progress == sorted(progress)
    assert batches.bytes_read == batches.total_bytes > 0
    # A second iteration starts anew.
    assert sum(batch.num_rows for batch in batches) == ROWS


MEMORY = """
import sys, pyarrow
from raresight.tables import open_batches
batches = open_batches(sys.argv[1])
print(sum(batch.num_rows for batch in batches), pyarrow.default_memory_pool().max_memory())
"""


@pytest.mark.parametrize("writer", [csv, one_row_group, arrow_file], ids=lambda writer: writer.__name__)
def test_memory_is_constant(tmp_path, writer):
    rows = 1_500_000
    rng = np.random.default_rng(0)
    writer(pa.table({name: rng.random(rows) for name in "abc"}), tmp_path / "t")
    assert (tmp_path / "t").stat().st_size > 30_000_000
    run = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "t")], capture_output=True, text=True, check=True
    )
    seen, most = map(int, run.stdout.split())
    assert seen == rows
    # Of a text file some blocks of 4 MB are read ahead.
    assert most < (60_000_000 if writer is csv else 20_000_000)


def test_a_reader_left_early_does_no_harm(tmp_path):
    rows = 600_000
    csv(pa.table({"a": np.arange(rows), "b": np.arange(rows)}), tmp_path / "t")
    for _ in range(20):
        batches = open_batches(tmp_path / "t")
        assert next(iter(batches)).num_rows > 0
    assert sum(batch.num_rows for batch in batches) == rows


def test_columns_are_chosen_in_the_order_asked(tmp_path):
    csv(TABLE, tmp_path / "t")
    batches = open_batches(tmp_path / "t", columns=["whole", "late word"])
    assert batches.schema == pa.schema([("whole", pa.string()), ("late word", pa.string())])
    assert next(iter(batches)).column("whole").to_pylist()[:3] == ["0", "1", "2"]


def test_a_ragged_row_far_down_is_named(tmp_path):
    csv(TABLE.select(["number", "whole"]), tmp_path / "t")
    with (tmp_path / "t").open("a") as file:
        file.write("1,2,3\n")
    with pytest.raises(ValueError, match=r"row 20001 of .* has 3 fields, but its header names 2"):
        list(open_batches(tmp_path / "t"))


def test_frames_in_batches():
    frame = pl.DataFrame({"a": range(10)})
    assert [batch.num_rows for batch in open_batches(frame, rows=4)] == [4, 4, 2]


def test_the_size_of_a_batch_is_checked():
    with pytest.raises(ValueError, match="at least one row"):
        open_batches(TABLE, rows=0)


cells = st.one_of(
    st.sampled_from(["", "1", "-2.5", "NA", "nan", "true", "False", "x", "1e5", "0x1", " 3", "?", "9" * 25]),
    st.text("abc,;\"'\n \t|é", max_size=6),
)


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(cells, cells), min_size=1, max_size=30),
    cut=st.integers(0, 30),
    size=st.integers(1, 31),
)
def test_types_do_not_depend_on_where_a_file_is_cut(tmp_path_factory, rows, cut, size):
    path = tmp_path_factory.mktemp("parts")

    def write(name, part):
        quoted = ['"' + '","'.join(cell.replace('"', '""') for cell in row) + '"' for row in part]
        (path / name).write_text("\n".join(["first,second", *quoted]) + "\n", newline="")

    write("whole.csv", rows)
    whole = read_table(path / "whole.csv")
    assert whole.num_rows == len(rows)
    (path / "parts").mkdir()
    write("parts/1.csv", rows[:cut])
    write("parts/2.csv", rows[cut:])
    assert read_table(path / "parts").equals(whole)
    assert pa.Table.from_batches(open_batches(path / "parts", rows=size)).equals(whole)
    assert fingerprint(read_table(path / "parts")) == fingerprint(whole)
