"""Read a table or view of a SQLite database in Arrow batches, by the standard library.

SQLite lets each row of a column have a type of its own. The types of all rows are therefore looked up before
the first batch, so that every batch has the same ones.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from raresight.common.atomic_files import regular_file
from raresight.tables._arrow import arrow
from raresight.tables.sources import Part, known_columns
from raresight.tables.text_values import text_of_mixed

# SQLite takes 2,000 expressions in a query unless it is built otherwise; two are needed for a column.
_COLUMNS_AT_ONCE = 500
_ROWS = 65_536


class SqliteTable:
    """A table or view of a SQLite database as Arrow batches.

    Integers, reals, texts and blobs keep their types. Integers and reals in one column become reals; any
    other mixture becomes text.

    Args:
        part: The database, and the name of the table. No name is needed if there is only one table.
        columns: Which columns to read. Default: all.

    Attributes:
        schema: The Arrow schema of the batches.
        total_bytes: The size of the database.
        bytes_read: The share of it that corresponds to the rows read so far.

    Raises:
        ValueError: If the file is damaged, encrypted or locked, or if the table is not there.
    """

    def __init__(self, part: Part, columns: Sequence[str] | None) -> None:
        self._part = part
        self.total_bytes = part.size
        self.bytes_read = 0
        with self._connection() as connection:
            table = _find_table(connection, part)
            self._from = f"FROM {_quoted(table)}"
            described = connection.execute(f"SELECT * {self._from} LIMIT 0").description
            names = [name for name, *_ in described]
            self._columns = (
                names if columns is None else known_columns(columns, names, f"{part.path}::{table}")
            )
            self._rows = int(connection.execute(f"SELECT count(*) {self._from}").fetchone()[0])
            self.schema = arrow().schema(list(zip(self._columns, self._types(connection), strict=True)))

    def read(self) -> Any:
        """Read the whole table."""
        return arrow().Table.from_batches(self.batches(_ROWS), schema=self.schema)

    def batches(self, rows: int) -> Iterator[Any]:
        """Yield the rows as record batches of at most `rows` rows, in the order in which SQLite has them."""
        pa = arrow()
        done = self.bytes_read = 0
        chosen = ", ".join(map(_quoted, self._columns)) or "NULL"
        with self._connection() as connection:
            cursor = connection.execute(f"SELECT {chosen} {self._from}")
            while records := cursor.fetchmany(rows):
                arrays = [
                    _array(values, field.type)
                    for field, values in zip(self.schema, zip(*records, strict=True), strict=False)
                ]
                done += len(records)
                self.bytes_read = self.total_bytes * done // max(self._rows, done)
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Connect without the right to write; errors become sentences about the file."""
        path = self._part.path
        try:
            with closing(_opened(self._part)) as connection:
                yield connection
        except sqlite3.Error as error:
            what = {
                "NOTADB": "is an encrypted or damaged SQLite database; decrypt it or export the table first",
                "CORRUPT": "is a SQLite database that is damaged or cut short",
                "BUSY": "is locked by another program; wait for it or read a copy",
            }.get(_kind_of(error), "cannot be read as a SQLite database")
            raise ValueError(f"{path} {what} ({error})") from error
        except (arrow().ArrowException, OverflowError) as error:
            raise ValueError(f"{path} was changed while it was read; try again or read a copy") from error

    def _types(self, connection: sqlite3.Connection) -> list[Any]:
        """Find the Arrow type of each column, from all of its values.

        The names of SQLite's types sort as blob, integer, real, text. Their minimum and maximum thus tell a
        column of one type, or of numbers alone, from any other mixture.
        """
        pa = arrow()
        by_kinds = {
            (None, None): pa.null(),
            ("integer", "integer"): pa.int64(),
            ("integer", "real"): pa.float64(),
            ("real", "real"): pa.float64(),
            ("blob", "blob"): pa.binary(),
        }
        types = []
        for start in range(0, len(self._columns), _COLUMNS_AT_ONCE):
            names = [_quoted(name) for name in self._columns[start : start + _COLUMNS_AT_ONCE]]
            kinds = [f"nullif(typeof({name}), 'null')" for name in names]
            asked = ", ".join(f"min({kind}), max({kind})" for kind in kinds)
            found = connection.execute(f"SELECT {asked} {self._from}").fetchone()
            types += [by_kinds.get(pair, pa.string()) for pair in zip(found[::2], found[1::2], strict=True)]
        return types


def _opened(part: Part) -> sqlite3.Connection:
    """Connect read-only.

    A database in write-ahead mode needs files beside it even to be read. In a folder that cannot be written,
    `immutable` does without them. It is safe there only if no write waits in such a file.
    """
    for ending in ("-wal", "-journal"):  # SQLite would open these, too, and wait for a pipe
        if (beside := part.path.with_name(part.path.name + ending)).exists():
            regular_file(beside)
    address = f"{part.path.absolute().as_uri()}?mode=ro"
    # Batches may be read in another thread than the one that opened them.
    connection = sqlite3.connect(address, uri=True, check_same_thread=False)
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        connection.close()
        waiting = part.path.with_name(part.path.name + "-wal")
        if _kind_of(error) not in ("CANTOPEN", "READONLY") or (waiting.exists() and waiting.stat().st_size):
            raise
        return sqlite3.connect(f"{address}&immutable=1", uri=True, check_same_thread=False)
    except BaseException:
        connection.close()
        raise
    return connection


def _kind_of(error: sqlite3.Error) -> str:
    """Name the kind of an error without details: SQLITE_CORRUPT_INDEX is "CORRUPT". Empty if it has none."""
    return getattr(error, "sqlite_errorname", "").removeprefix("SQLITE_").split("_")[0]


def _find_table(connection: sqlite3.Connection, part: Part) -> str:
    """Return the name of the table to read: the one asked for, or the only one."""
    found = connection.execute(
        "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
    )
    names = [str(name) for (name,) in found]
    if not names:
        raise ValueError(f"{part.path} is a SQLite database without a table")
    if part.table in names:
        return part.table
    if not part.table and len(names) == 1:
        return names[0]
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    if part.table:
        raise ValueError(f"{part.path} has no table {part.table!r}; its tables are {shown}")
    raise ValueError(
        f"{part.path} has {len(names)} tables ({shown}); name one of them, as in {part.path}::{names[0]}"
    )


def _array(values: Sequence[Any], type_: Any) -> Any:
    """Convert the values of a column to Arrow."""
    pa = arrow()
    if type_ == pa.string():
        values = [value if isinstance(value, str) else _text(value) for value in values]
    return pa.array(values, type_)


def _text(value: Any) -> str | None:
    """Write one value of a mixed column as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else text_of_mixed(value)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
