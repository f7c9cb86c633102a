"""Read a table, whole or in batches, from whatever holds it.

Files are told by content: text with any of four delimiters, compressed or not; Parquet; Arrow files and
streams; a folder of such files. The types of a text file's columns are decided on all its rows: numbers
where all values are numbers, truth values where all are true or false, else text. An empty field is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from raresight.tables._arrow import arrow
from raresight.tables.fingerprints import fingerprint
from raresight.tables.frames import table_of
from raresight.tables.sources import Part, find_parts
from raresight.tables.text_files import (
    Dialect,
    TableWarning,
    Utf8Stream,
    learn_dialect,
    ragged_row,
    refuse_repeated_names,
    warn_of_encoding,
)
from raresight.tables.text_values import TextKind, convert_text, join, kind_of_text

__all__ = ["Batches", "TableWarning", "fingerprint", "open_batches", "read_table"]

_BLOCK = 1 << 22


def read_table(source: Any, *, columns: Sequence[str] | None = None, strings: Collection[str] = ()) -> Any:
    """Read a table into memory.

    Args:
        source: The path of a CSV, Parquet or Arrow file or of a folder of such files with the same columns;
            "sample" for the bundled table; a pandas or polars frame; an Arrow table or record batch.
        columns: Which columns to read; None for all.
        strings: Columns that are read as text from text files, for the schema of a model to convert.

    Returns:
        A `pyarrow.Table`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read as a table, with the reason.
        TypeError: If `source` is no table and no path.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "payments.csv"
        >>> _ = path.write_text("amount;country\\n10.5;DE\\n;FR\\n")
        >>> read_table(path).to_pydict()
        {'amount': [10.5, None], 'country': ['DE', 'FR']}
    """
    if not isinstance(source, str | Path):
        table = table_of(source)
        return table if columns is None else table.select(_known(columns, table.schema.names, "the table"))
    parts = find_parts(source)
    text = parts[0].kind == "csv"
    reader = _TextReader(parts, columns, strings) if text else _BinaryReader(parts, columns)
    table = reader.read()
    if table.num_rows == 0:
        raise ValueError(f"{source} has column names but no rows")
    return table


class Batches:
    """A table in pieces, in the order of its rows, at constant memory.

    Iterate to get `pyarrow.RecordBatch`es, each with the same columns and types. Each iteration starts anew.

    Attributes:
        total_bytes: The size of the source; `bytes_read`: how much of it is done.
        rows_read: How many rows were given out.
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
        """How much of `total_bytes` is done."""
        return min(int(self._reader.bytes_read), self.total_bytes)

    def __iter__(self) -> Iterator[Any]:
        self.rows_read = 0
        for batch in self._reader.batches(self._rows):
            for start in range(0, batch.num_rows, self._rows):
                piece = batch.slice(start, self._rows)
                self.rows_read += piece.num_rows
                yield piece


def open_batches(
    source: Any,
    *,
    columns: Sequence[str] | None = None,
    strings: Collection[str] = (),
    rows: int = 65_536,
) -> Batches:
    """Open a table to be read batch by batch.

    The batches are those of `read_table`, types included. As the types of a text file are decided on all its
    rows, it is read twice, unless `strings` names all columns wanted.

    Args:
        source: As for `read_table`.
        columns: Which columns to read; None for all.
        strings: Columns that are read as text from text files, for the schema to convert.
        rows: The most rows of a batch.

    Example:
        >>> import pyarrow as pa
        >>> [batch.num_rows for batch in open_batches(pa.table({"a": range(5)}), rows=2)]
        [2, 2, 1]
    """
    if rows < 1:
        raise ValueError(f"a batch needs at least one row, but rows is {rows}")
    if not isinstance(source, str | Path):
        return Batches(_MemoryReader(read_table(source, columns=columns)), rows)
    parts = find_parts(source)
    if parts[0].kind == "csv":
        return Batches(_TextReader(parts, columns, strings), rows)
    return Batches(_BinaryReader(parts, columns), rows)


def _known(columns: Sequence[str], names: Sequence[str], where: str) -> list[str]:
    missing = [name for name in columns if name not in names]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:5]) + (", …" if len(missing) > 5 else "")
        raise ValueError(f"{where} lacks the column{'s' if len(missing) > 1 else ''} {shown}")
    return list(columns)


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
    """Text files with the same columns as one table."""

    def __init__(
        self, parts: list[Part], columns: Sequence[str] | None, strings: Collection[str] = ()
    ) -> None:
        self._parts = parts
        self._dialects = [learn_dialect(part) for part in parts]
        for part, dialect in zip(parts, self._dialects, strict=True):
            _same_columns(parts[0], self._dialects[0].names, part, dialect.names)
            warn_of_encoding(part.path, dialect)
        names = self._dialects[0].names
        self._columns = list(names) if columns is None else _known(columns, names, str(parts[0].path))
        self._strings = strings
        self._kinds: dict[str, TextKind] | None = None
        self.total_bytes = sum(part.size for part in parts)
        self.bytes_read = 0

    @property
    def schema(self) -> Any:
        pa = arrow()
        kinds = self._known_kinds()
        types = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
        return pa.schema([(name, types.get(kinds[name], pa.string())) for name in self._columns])

    def read(self) -> Any:
        pa = arrow()
        tables = [
            pa.Table.from_batches(list(self._text(part, dialect)), schema=self._text_schema())
            for part, dialect in zip(self._parts, self._dialects, strict=True)
        ]
        # Taken from the end of a list, the text of a column is given free once it is converted.
        waiting = pa.concat_tables(tables).columns[::-1]
        del tables
        converted = []
        for name in self._columns:
            column = waiting.pop()
            kind: TextKind = "text" if name in self._strings else "empty"
            for chunk in column.chunks:
                kind = join(kind, kind_of_text(chunk))
                if kind == "text":
                    break
            chunks = [convert_text(chunk, kind) for chunk in column.chunks]
            converted.append(pa.chunked_array(chunks, chunks[0].type if chunks else pa.string()))
        return pa.table(converted, names=self._columns)

    def batches(self, rows: int) -> Iterator[Any]:
        pa = arrow()
        kinds, schema = self._known_kinds(), self.schema
        for batch in self._all_text():
            arrays = [convert_text(batch.column(name), kinds[name]) for name in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _known_kinds(self) -> dict[str, TextKind]:
        if self._kinds is None:
            kinds: dict[str, TextKind] = {
                name: "text" if name in self._strings else "empty" for name in self._columns
            }
            if any(kind != "text" for kind in kinds.values()):
                for batch in self._all_text():
                    for name, kind in kinds.items():
                        if kind != "text":
                            kinds[name] = join(kind, kind_of_text(batch.column(name)))
            self._kinds = kinds
        return self._kinds

    def _all_text(self) -> Iterator[Any]:
        self.bytes_read = 0
        done = 0
        for part, dialect in zip(self._parts, self._dialects, strict=True):
            for batch, position in self._text_with_position(part, dialect):
                self.bytes_read = done + position
                yield batch
            done += part.size
            self.bytes_read = done

    def _text_schema(self) -> Any:
        pa = arrow()
        return pa.schema([(name, pa.string()) for name in self._columns])

    def _text(self, part: Part, dialect: Dialect) -> Iterator[Any]:
        return (batch for batch, _ in self._text_with_position(part, dialect))

    def _text_with_position(self, part: Part, dialect: Dialect) -> Iterator[tuple[Any, int]]:
        """Batches of a file, every column as text, and how far the file was read."""
        pa = arrow()
        import pyarrow.csv as arrow_csv

        with Utf8Stream(part, dialect.encoding, dialect.header_bytes) as stream:
            if not (first := stream.read(1)):
                return
            stream.put_back(first)
            try:
                reader = arrow_csv.open_csv(
                    pa.PythonFile(stream, mode="r"),
                    read_options=arrow_csv.ReadOptions(
                        column_names=list(dialect.names), block_size=max(_BLOCK, 4 * dialect.header_bytes)
                    ),
                    parse_options=arrow_csv.ParseOptions(
                        delimiter=dialect.delimiter,
                        newlines_in_values=dialect.quoted,
                        # In a table of one column an empty line is a missing value.
                        ignore_empty_lines=len(dialect.names) > 1,
                    ),
                    convert_options=arrow_csv.ConvertOptions(
                        column_types={name: pa.string() for name in dialect.names},
                        include_columns=self._columns,
                        null_values=[""],
                        strings_can_be_null=True,
                        quoted_strings_can_be_null=True,
                    ),
                )
                for batch in reader:
                    yield batch, stream.bytes_read
            except pa.ArrowInvalid as error:
                raise ValueError(_reason(part, dialect, error)) from error


def _reason(part: Part, dialect: Dialect, error: Exception) -> str:
    found = ragged_row(part, dialect)
    if found:
        return found
    if "straddling" in str(error):
        return f"{part.path} has a row of more than {_BLOCK >> 20} MB; a quote or a line end may be missing"
    return f"{part.path} cannot be read as a table: {error}"


class _BinaryReader:
    """Parquet or Arrow files with the same columns as one table."""

    def __init__(self, parts: list[Part], columns: Sequence[str] | None) -> None:
        self._parts = parts
        schemas = [_schema_of(part) for part in parts]
        for part, schema in zip(parts, schemas, strict=True):
            refuse_repeated_names(list(schema.names), str(part.path))
            _same_columns(parts[0], schemas[0].names, part, schema.names)
        names = list(schemas[0].names)
        self._columns = names if columns is None else _known(columns, names, str(parts[0].path))
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
    """A table or batch with its columns in the order and of the types of a schema."""
    pa = arrow()
    arrays = []
    for field in schema:
        values = table.column(field.name)
        arrays.append(values if values.type == field.type else values.cast(field.type))
    return type(table).from_arrays(arrays, schema=pa.schema(schema))


def _damaged(part: Part, error: Exception) -> str:
    kind = "a Parquet" if part.kind == "parquet" else "an Arrow"
    detail = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"{part.path} is {kind} file that is damaged or cut short: {detail}"


def _schema_of(part: Part) -> Any:
    pa = arrow()
    import pyarrow.ipc
    import pyarrow.parquet

    try:
        if part.kind == "parquet":
            with pyarrow.parquet.ParquetFile(part.path, page_checksum_verification=True) as file:
                return file.schema_arrow
        with pa.memory_map(str(part.path)) as mapped:
            opened = pyarrow.ipc.open_file if part.kind == "arrow file" else pyarrow.ipc.open_stream
            return opened(mapped).schema
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(_damaged(part, error)) from error


def _read_whole(part: Part, columns: list[str]) -> Any:
    pa = arrow()
    import pyarrow.ipc
    import pyarrow.parquet

    try:
        if part.kind == "parquet":
            with pyarrow.parquet.ParquetFile(part.path, page_checksum_verification=True) as file:
                return file.read(columns=columns).select(columns)
        with pa.memory_map(str(part.path)) as mapped:
            opened = pyarrow.ipc.open_file if part.kind == "arrow file" else pyarrow.ipc.open_stream
            return opened(mapped).read_all().select(columns)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(_damaged(part, error)) from error


def _pieces(part: Part, columns: list[str], rows: int) -> Iterator[tuple[Any, float]]:
    """Batches of a file, and the share of it that is done."""
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
                    yield batch, done / file.metadata.num_rows
            return
        with pa.memory_map(str(part.path)) as mapped:
            if part.kind == "arrow file":
                opened = pyarrow.ipc.open_file(mapped)
                for number in range(opened.num_record_batches):
                    yield opened.get_batch(number), (number + 1) / opened.num_record_batches
            else:
                for batch in pyarrow.ipc.open_stream(mapped):
                    yield batch, mapped.tell() / part.size
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(_damaged(part, error)) from error
