"""Read a table, whole or in batches, from a file, a folder, a database or memory.

Files are recognized by content: CSV with any of four delimiters, compressed or not; Parquet; Arrow files and
streams; SQLite. A column of a CSV file is text, and an empty field is missing. What the text means is decided
once, by `learn_schema`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from raresight.common.checks import check_arrow
from raresight.tables._arrow import arrow
from raresight.tables.csv_files import CsvFile, TableWarning
from raresight.tables.fingerprints import fingerprint
from raresight.tables.sources import Part, find_parts, known_columns, refuse_repeated_names
from raresight.tables.text_values import text_of_mixed

__all__ = ["Batches", "TableWarning", "fingerprint", "open_batches", "read_table"]

_ROWS = 65_536


def read_table(source: Any, *, columns: Sequence[str] | None = None) -> Any:
    """Read a table into memory.

    Args:
        source: One of these:
            the path of a CSV, Parquet, Arrow or SQLite file;
            "payments.db::cards" for one of several tables of a SQLite database;
            a folder of CSV, Parquet or Arrow files with the same columns;
            "sample" for the bundled table;
            a pandas or polars frame, an Arrow table or record batch.
        columns: Which columns to read. Default: all.

    Returns:
        A `pyarrow.Table`. All columns of a CSV file are text; other columns have the types of their source.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read as a table, with the reason.
        TypeError: If `source` is no table and no path.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "payments.csv"
        >>> _ = path.write_text("amount;postcode\\n10.5;01234\\n;99817\\n")
        >>> read_table(path).to_pydict()
        {'amount': ['10.5', None], 'postcode': ['01234', '99817']}
    """
    if not isinstance(source, str | Path):
        table = table_of(source)
        return (
            table
            if columns is None
            else table.select(known_columns(columns, table.schema.names, "the table"))
        )
    table = _file_reader(find_parts(source), columns).read()
    if table.num_rows == 0:
        raise ValueError(f"{source} has column names but no rows")
    return table


def _file_reader(parts: list[Part], columns: Sequence[str] | None) -> Any:
    if parts[0].kind == "sqlite":
        # Python may have been built without SQLite, and only such a file needs it.
        from raresight.tables.sqlite_files import SqliteTable

        return SqliteTable(parts[0], columns)
    return _TextReader(parts, columns) if parts[0].kind == "csv" else _BinaryReader(parts, columns)


class Batches:
    """A table in batches, in the order of its rows, at constant memory.

    Iterating yields `pyarrow.RecordBatch`es of the same columns and types. Each iteration starts anew.

    Attributes:
        total_bytes: The size of the source.
        rows_read: Number of rows yielded so far.
        schema: The Arrow schema of the batches.
    """

    def __init__(self, reader: Any, rows: int) -> None:
        self._reader = reader
        self._rows = rows
        self.rows_read = 0
        self.total_bytes: int = reader.total_bytes
        self.schema = reader.schema

    @property
    def bytes_read(self) -> int:
        """Number of bytes of the source that have been read, at most `total_bytes`."""
        return min(int(self._reader.bytes_read), self.total_bytes)

    def __iter__(self) -> Iterator[Any]:
        self.rows_read = 0
        for batch in self._reader.batches(self._rows):
            for start in range(0, batch.num_rows, self._rows):
                piece = batch.slice(start, self._rows)
                self.rows_read += piece.num_rows
                yield piece


def open_batches(source: Any, *, columns: Sequence[str] | None = None, rows: int = _ROWS) -> Batches:
    """Open a table to be read batch by batch. The batches are those of `read_table`, types included.

    Args:
        source: As for `read_table`.
        columns: Which columns to read. Default: all.
        rows: Largest number of rows per batch.

    Example:
        >>> import pyarrow as pa
        >>> [batch.num_rows for batch in open_batches(pa.table({"a": range(5)}), rows=2)]
        [2, 2, 1]
    """
    if rows < 1:
        raise ValueError(f"a batch needs at least one row, but rows is {rows}")
    if not isinstance(source, str | Path):
        return Batches(_MemoryReader(read_table(source, columns=columns)), rows)
    return Batches(_file_reader(find_parts(source), columns), rows)


def _same_columns(first: Part, names: Sequence[str], part: Part, others: Sequence[str]) -> None:
    lacking = [name for name in names if name not in others]
    extra = [name for name in others if name not in names]
    if lacking or extra:
        what = f"lacks {lacking[0]!r}" if lacking else f"has {extra[0]!r} besides"
        raise ValueError(
            f"the files of {part.path.parent} differ in their columns: {part.path.name} {what}, "
            f"compared with {first.path.name}"
        )


class _MemoryReader:
    """A table in memory in pieces."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.schema = table.schema
        self.total_bytes = int(table.nbytes)
        self.bytes_read = 0

    def batches(self, rows: int) -> Iterator[Any]:
        self.bytes_read = 0
        done = 0
        for batch in self._table.to_batches(max_chunksize=rows):
            done += batch.num_rows
            self.bytes_read = self.total_bytes * done // self._table.num_rows
            yield batch


class _TextReader:
    """CSV files with the same columns as one table of text."""

    def __init__(self, parts: list[Part], columns: Sequence[str] | None) -> None:
        self._parts = parts
        self._files = [CsvFile(part) for part in parts]
        for file in self._files:
            _same_columns(parts[0], self._files[0].names, file.part, file.names)
        names = self._files[0].names
        self._columns = list(names) if columns is None else known_columns(columns, names, str(parts[0].path))
        pa = arrow()
        self.schema = pa.schema([(name, pa.string()) for name in self._columns])
        self.total_bytes = sum(part.size for part in parts)
        self.bytes_read = 0

    def read(self) -> Any:
        return arrow().Table.from_batches(self.batches(_ROWS), schema=self.schema)

    def batches(self, rows: int) -> Iterator[Any]:
        self.bytes_read = 0
        done = 0
        for file in self._files:
            seen = 0
            for batch in file.batches(self._columns, rows):
                seen += batch.num_rows
                # DuckDB does not report how far it has read. The share of rows is a good estimate.
                self.bytes_read = done + min(file.part.size * seen // file.rows, file.part.size)
                yield batch
            done += file.part.size
            self.bytes_read = done


class _BinaryReader:
    """Parquet or Arrow files with the same columns as one table."""

    def __init__(self, parts: list[Part], columns: Sequence[str] | None) -> None:
        self._parts = parts
        schemas = [_schema_of(part) for part in parts]
        for part, schema in zip(parts, schemas, strict=True):
            refuse_repeated_names(list(schema.names), str(part.path))
            _same_columns(parts[0], schemas[0].names, part, schema.names)
        names = list(schemas[0].names)
        self._columns = names if columns is None else known_columns(columns, names, str(parts[0].path))
        self.schema = self._unified(schemas)
        self.total_bytes = sum(part.size for part in parts)
        self.bytes_read = 0

    def read(self) -> Any:
        pa = arrow()
        tables = [_read_whole(part, self._columns) for part in self._parts]
        return pa.concat_tables([_as_schema(table, self.schema) for table in tables])

    def batches(self, rows: int) -> Iterator[Any]:
        self.bytes_read = 0
        done = 0
        for part in self._parts:
            for batch, share in _pieces(part, self._columns, rows):
                self.bytes_read = done + int(share * part.size)
                yield _as_schema(batch, self.schema)
            done += part.size
            self.bytes_read = done

    def _unified(self, schemas: list[Any]) -> Any:
        pa = arrow()
        chosen = [
            pa.schema([schema.field(name) for name in self._columns]).remove_metadata() for schema in schemas
        ]
        try:
            return pa.unify_schemas(chosen, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            for part, schema in zip(self._parts, chosen, strict=True):
                for name in self._columns:
                    first, other = chosen[0].field(name).type, schema.field(name).type
                    try:
                        pa.unify_schemas(
                            [pa.schema([(name, first)]), pa.schema([(name, other)])],
                            promote_options="permissive",
                        )
                    except (pa.ArrowInvalid, pa.ArrowTypeError):
                        raise ValueError(
                            f"column {name!r} is {first} in {self._parts[0].path.name}, but {other} in "
                            f"{part.path.name}; write all files of {part.path.parent} with one type"
                        ) from error
            raise ValueError(f"the files of {self._parts[0].path.parent} differ in types: {error}") from error


def _as_schema(table: Any, schema: Any) -> Any:
    """Bring the columns of a table or batch into the order and types of a schema."""
    pa = arrow()
    arrays = []
    for field in schema:
        values = table.column(field.name)
        arrays.append(values if values.type == field.type else values.cast(field.type))
    return type(table).from_arrays(arrays, schema=pa.schema(schema))


def _damaged(part: Part, error: Exception) -> str:
    if isinstance(error, MemoryError):
        return f"{part.path} needs more memory than there is; it is damaged, or too large to be read here"
    kind = "a Parquet" if part.kind == "parquet" else "an Arrow"
    if isinstance(error, NotImplementedError):
        return f"{part.path} is {kind} file with a type or compression that this pyarrow cannot read"
    return f"{part.path} is {kind} file that is damaged or cut short"


def _schema_of(part: Part) -> Any:
    pa = arrow()
    import pyarrow.ipc
    import pyarrow.parquet

    try:
        if part.kind == "parquet":
            with pyarrow.parquet.ParquetFile(part.path, page_checksum_verification=True) as file:
                schema = file.schema_arrow
        else:
            with pa.memory_map(str(part.path)) as mapped:
                opened = pyarrow.ipc.open_file if part.kind == "arrow file" else pyarrow.ipc.open_stream
                schema = opened(mapped).schema
        _ = schema.names  # decoded here, where damage is expected
        return schema
    except (pa.ArrowException, OSError, EOFError, UnicodeError) as error:
        raise ValueError(_damaged(part, error)) from error


def _read_whole(part: Part, columns: list[str]) -> Any:
    pa = arrow()
    import pyarrow.ipc
    import pyarrow.parquet

    try:
        if part.kind == "parquet":
            with pyarrow.parquet.ParquetFile(part.path, page_checksum_verification=True) as file:
                table = file.read(columns=columns).select(columns)
                return check_arrow(table, str(part.path))
        with pa.memory_map(str(part.path)) as mapped:
            opened = pyarrow.ipc.open_file if part.kind == "arrow file" else pyarrow.ipc.open_stream
            return check_arrow(opened(mapped).read_all().select(columns), str(part.path))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(_damaged(part, error)) from error


def _pieces(part: Part, columns: list[str], rows: int) -> Iterator[tuple[Any, float]]:
    """Yield the batches of a file, each with the share of the file read so far."""
    pa = arrow()
    import pyarrow.ipc
    import pyarrow.parquet

    try:
        if part.kind == "parquet":
            # Buffered and not read ahead, so that a row group larger than memory is no obstacle.
            with pyarrow.parquet.ParquetFile(
                part.path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True
            ) as file:
                done = 0
                for batch in file.iter_batches(batch_size=rows, columns=columns):
                    done += batch.num_rows
                    yield check_arrow(batch, str(part.path)), done / file.metadata.num_rows
            return
        with pa.memory_map(str(part.path)) as mapped:
            if part.kind == "arrow file":
                opened = pyarrow.ipc.open_file(mapped)
                for number in range(opened.num_record_batches):
                    batch = opened.get_batch(number).select(columns)
                    yield check_arrow(batch, str(part.path)), (number + 1) / opened.num_record_batches
            else:
                for batch in pyarrow.ipc.open_stream(mapped):
                    yield check_arrow(batch.select(columns), str(part.path)), mapped.tell() / part.size
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(_damaged(part, error)) from error


def table_of(frame: Any) -> Any:
    """Convert a pandas or polars frame, or an Arrow record batch or stream, to an Arrow table.

    The index of a pandas frame is left out. A column of mixed values becomes text.

    Raises:
        TypeError: If it is no table.
        ValueError: If two columns have one name.

    Example:
        >>> import pandas as pd
        >>> table_of(pd.DataFrame({"a": [1, 2], "b": ["x", 3]})).to_pydict()
        {'a': [1, 2], 'b': ['x', '3']}
    """
    pa = arrow()
    if isinstance(frame, pa.Table):
        table = frame
    elif isinstance(frame, pa.RecordBatch):
        table = pa.Table.from_batches([frame])
    elif isinstance(frame, pa.RecordBatchReader):
        table = frame.read_all()
    else:
        library = type(frame).__module__.split(".")[0]
        if library == "pandas" and type(frame).__name__ == "DataFrame":
            table = _from_pandas(frame)
        elif library == "polars" and type(frame).__name__ in ("DataFrame", "LazyFrame"):
            table = _from_polars(frame)
        elif hasattr(frame, "__arrow_c_stream__") and not isinstance(frame, type):
            table = pa.table(frame)
        else:
            raise TypeError(
                "a table is a path, a pandas or polars DataFrame or an Arrow table, "
                f"not {type(frame).__name__}"
            )
    refuse_repeated_names(list(table.schema.names), "the table")
    return check_arrow(table, "the table")


def _from_pandas(frame: Any) -> Any:
    pa = arrow()
    if frame.columns.nlevels > 1:
        raise ValueError("the frame has column names of several levels; join them to one name each")
    names = [str(name) for name in frame.columns]
    refuse_repeated_names(names, "the frame")
    columns = []
    for position in range(len(names)):
        values = frame.iloc[:, position]
        try:
            column = pa.Array.from_pandas(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            column = pa.array([text_of_mixed(value) for value in values], pa.string())
        columns.append(column)
    return pa.table(dict(zip(names, columns, strict=True)))


def _from_polars(frame: Any) -> Any:
    frame = frame.collect() if type(frame).__name__ == "LazyFrame" else frame
    pa = arrow()
    columns = {}
    for name in frame.columns:
        series = frame.get_column(name)
        if str(series.dtype) == "Object":
            columns[name] = pa.array([text_of_mixed(value) for value in series.to_list()], pa.string())
        else:
            columns[name] = series.to_arrow()
    return pa.table(columns)
