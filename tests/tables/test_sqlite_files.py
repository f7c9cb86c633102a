"""SQLite databases as tables: typed as SQLite holds the values, or refused in one clear sentence."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest

from raresight.tables import fingerprint, learn_schema, open_batches, read_data, read_table


def database(folder, *statements, name="table.db", rows=()):
    path = folder / name
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        for statement, values in rows:
            connection.executemany(statement, values)
        connection.commit()
    return path


@pytest.fixture
def payments(tmp_path):
    rows = [(i, i / 2, f"c{i % 3}" if i % 7 else None, int(i % 20 == 0)) for i in range(400)]
    return database(
        tmp_path,
        "CREATE TABLE payments (number INTEGER, amount REAL, country TEXT, fraud INTEGER)",
        rows=[("INSERT INTO payments VALUES (?, ?, ?, ?)", rows)],
    )


@pytest.mark.parametrize("name", ["t.sqlite", "t.db", "named_wrongly.csv", "50%?#.db"])
def test_a_database_is_recognized_by_content(tmp_path, name):
    path = database(
        tmp_path, "CREATE TABLE t (a, b)", name=name, rows=[("INSERT INTO t VALUES (?, ?)", [(1, "x")])]
    )
    assert read_table(path).to_pydict() == {"a": [1], "b": ["x"]}


def test_values_are_typed_as_sqlite_holds_them(tmp_path):
    columns = {
        "whole": [2**62, None, -1],
        "real": [0.5, None, float("inf")],
        "numbers": [1, 2.5, None],
        "text": ["01", "", None],
        "blob": [b"\x00\xff", None, b""],
        "nothing": [None, None, None],
        "words late": [1, 2.0, "x"],
        "blobs late": ["x", 2.5, b"y"],
        'quoted "name"': [1, 2, 3],
    }
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    path = database(
        tmp_path,
        f"CREATE TABLE t ({names})",
        rows=[
            (f"INSERT INTO t VALUES ({', '.join('?' * len(columns))})", zip(*columns.values(), strict=True))
        ],
    )
    table = read_table(path)
    types = [pa.int64(), pa.float64(), pa.float64(), pa.string(), pa.binary(), pa.null()]
    assert table.schema.types == [*types, pa.string(), pa.string(), pa.int64()]
    assert table.to_pydict() == {
        **columns,
        "words late": ["1", "2", "x"],
        "blobs late": ["x", "2.5", "y"],
    }


def test_batches_are_those_of_the_whole_table(payments):
    whole = read_table(payments)
    batches = open_batches(payments, columns=["country", "number"], rows=33)
    pieces = list(batches)
    assert [piece.num_rows for piece in pieces] == [33] * 12 + [4]
    assert pa.Table.from_batches(pieces) == whole.select(["country", "number"])
    assert batches.bytes_read == batches.total_bytes == payments.stat().st_size
    assert [piece.num_rows for piece in batches] == [33] * 12 + [4]
    assert fingerprint(whole) == fingerprint(pa.Table.from_batches(open_batches(payments, rows=7)))


def test_several_tables_need_a_name(tmp_path, payments):
    with closing(sqlite3.connect(payments)) as connection:
        connection.execute("CREATE VIEW frauds AS SELECT amount FROM payments WHERE fraud")
        connection.commit()
    assert read_table(f"{payments}::payments").num_rows == 400
    assert read_table(f"{payments}::frauds").num_rows == 20
    with pytest.raises(ValueError, match=r"has 2 tables \(frauds, payments\); name one .*::frauds"):
        read_table(payments)
    with pytest.raises(ValueError, match=r"no table 'cards'; its tables are frauds, payments"):
        read_table(f"{payments}::cards")


def test_a_view_alone_and_tables_of_sqlite_itself(tmp_path):
    path = database(tmp_path, "CREATE VIEW one AS SELECT 1 AS a", "PRAGMA journal_mode = wal")
    assert read_table(path).to_pydict() == {"a": [1]}
    counted = database(tmp_path, "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT)", name="c.db")
    with pytest.raises(ValueError, match="no rows"):
        read_table(counted)


def test_more_columns_than_a_query_takes_expressions(tmp_path):
    names = [f"c{i}" for i in range(1500)]
    path = database(
        tmp_path,
        f"CREATE TABLE t ({', '.join(names)})",
        f"INSERT INTO t VALUES ({', '.join(map(str, range(1500)))})",
    )
    assert read_table(path).to_pydict() == {name: [i] for i, name in enumerate(names)}


def test_a_name_only_for_databases(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="is no SQLite database"):
        read_table(f"{path}::t")
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        read_table(f"{tmp_path / 'other.db'}::t")
    odd = tmp_path / "a::b.csv"
    odd.write_text("a,b\n1,2\n")
    assert read_table(odd).num_rows == 1


def test_what_cannot_be_read_is_said(tmp_path, payments):
    content = payments.read_bytes()
    cases = {
        "cut": (content[: len(content) // 2], "damaged or cut short"),
        "damaged": (content[:4096] + b"\x07" * (len(content) - 4096), "damaged or cut short"),
        "header": (content[:16] + bytes(4080), "encrypted or damaged"),
        "encrypted": (np.random.default_rng(0).bytes(8192), "encrypted or damaged"),
    }
    for name, (written, said) in cases.items():
        path = tmp_path / f"{name}.sqlite"
        path.write_bytes(written)
        with pytest.raises(ValueError, match=said):
            read_table(path)
    with pytest.raises(ValueError, match="without a table"):
        read_table(database(tmp_path, "PRAGMA user_version = 1", name="empty.db"))
    with pytest.raises(ValueError, match="cannot be read as a SQLite database"):
        read_table(database(tmp_path, "CREATE VIEW v AS SELECT a FROM gone", name="view.db"))
    with pytest.raises(ValueError, match=r"lacks the column 'nothing'"):
        read_table(payments, columns=["nothing"])
    with pytest.raises(ValueError, match="SQLite database among its"):
        read_table(tmp_path)


def test_a_locked_database_is_said_and_a_read_one_is_unchanged(payments, monkeypatch):
    before = payments.read_bytes()
    read_table(payments)
    assert payments.read_bytes() == before
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **more: connect(*args, **more, timeout=0))
    with closing(sqlite3.connect(payments)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(ValueError, match="locked by another program"):
            read_table(payments)


def test_a_database_is_a_table_to_learn_from(payments):
    data = read_data(payments, target="fraud", fpr=0.01, max_fpr=0.1)
    table = read_table(payments)
    schema = learn_schema(table, "fraud")
    assert data.schema == schema
    assert {column.name: column.kind for column in schema.columns} == {
        "amount": "numeric",
        "country": "categorical",
    }
    np.testing.assert_array_equal(data.X, schema.matrix(table)[data.numbers - 1])
