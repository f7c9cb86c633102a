"""Read CSV files as text in Arrow batches: decoded here, parsed by DuckDB.

No type is guessed here. Readers that guess types from a sample have cut values and kept quotes beyond that
sample. What a column means is decided later, once, from all of its text (see `schema`).
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import lzma
import re
import shutil
import tempfile
import warnings
import weakref
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from raresight.common.atomic_files import naming_file
from raresight.tables._arrow import arrow
from raresight.tables.sources import READABLE, Part, refuse_repeated_names, zip_member

__all__ = ["CsvFile", "TableWarning"]

DELIMITERS = (",", ";", "\t", "|")
_CHUNK = 1 << 20
_LONGEST_ROW = 4 << 20
# A first line longer than this is no header.
_LONGEST_HEADER = 1 << 26
_OPEN_QUOTE = (
    "ends inside a quoted field, or has text behind a closing quote; "
    'close the quote, and write a quote inside a quoted field as ""'
)
_JSON = re.compile(rb"\s*(\{\s*\"|\[\s*[\[{])")
# Some spreadsheets write the delimiter above the header.
_DELIMITER_LINE = re.compile(r"sep=([,;\t|])\r?\n")
# Nothing is downloaded, printed, or spilled into the working directory.
_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",
    "threads": "1",
}


class TableWarning(UserWarning):
    """A table was read in a way that may surprise the user."""


@dataclass(frozen=True)
class _FileScan:
    """Encoding, line ends and size, from a scan of the whole file.

    Attributes:
        encoding: "utf-8", "utf-16" or "latin-1".
        size: Number of bytes, unpacked.
        quoted: Whether the file has quotes.
        line_feeds, carriage_returns, pairs: Numbers of line ends; a pair counts in all three.
    """

    encoding: str
    size: int
    quoted: bool
    line_feeds: int
    carriage_returns: int
    pairs: int

    @property
    def lines(self) -> int:
        """Upper bound of the number of rows, because line ends inside quotes are counted."""
        return self.line_feeds + self.carriage_returns - self.pairs

    @property
    def mixed(self) -> bool:
        """Whether the file has several kinds of line ends, inside or outside of quotes."""
        return self.line_feeds > 0 and self.carriage_returns > 0 and self.lines > self.pairs


class CsvFile:
    """A CSV file whose rows can be read again and again.

    Delimiter, compression and encoding are detected from the content. A file that is not UTF-8 throughout is
    read as Latin-1, with a warning.

    Args:
        part: The file.

    Attributes:
        names: The header.
        rows: Number of rows, for progress displays; an upper bound if there are empty lines.

    Raises:
        ValueError: If the file is no table in text: binary, JSON, empty, no header, or repeated names.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        scan = _scan(part)
        self._path = part.path
        # DuckDB would expand * and [ in a path, and take "year=2024" in it for a column.
        if part.compression or scan.encoding != "utf-8" or set("*?[") & set(str(part.path)):
            self._path = self._temporary_copy(scan.encoding)
        self._new_line = "\\r" if scan.line_feeds == 0 and scan.carriage_returns else ""
        text = _beginning(self._path, part)
        said = _DELIMITER_LINE.match(text)
        body = text[said.end() :] if said else text
        leading = len(body) - len(body.lstrip("\r\n"))
        self._skip = (1 if said else 0) + len(body[:leading].splitlines())
        header = body[leading:]
        self._delimiter = said.group(1) if said else self._find_delimiter(header)
        self.names = _names(header, self._delimiter, part)
        self._memory = _memory_for(scan, len(self.names))
        if scan.mixed and not (scan.quoted and self._is_regular()):
            # DuckDB expects one kind of line end outside of quotes. In the copy all are line feeds, even
            # inside of quotes.
            self._path = self._temporary_copy(scan.encoding, newlines=True)
        # The strict scan silently drops a last row with an open quote, and all rows that the quote encloses.
        # The lenient scan keeps it. A difference in the numbers of rows reveals this.
        # This count takes half as long as a read. Counting quotes in the first scan would cost nothing, but a
        # stray quote inside a field would hide an open one.
        self._expected = self._count(", strict_mode = false") if scan.quoted else None
        self.rows = max(scan.lines if self._expected is None else self._expected, 1)
        if scan.encoding == "latin-1":
            warnings.warn(
                f"{part.path} is not UTF-8; it was read as Latin-1, so letters beyond English may be wrong",
                TableWarning,
                stacklevel=5,
            )

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield the rows as Arrow record batches in which every column is text; an empty field is missing.

        Args:
            columns: The columns wanted, in this order.
            rows: Approximate number of rows per batch.

        Raises:
            ValueError: If a row cannot be read, naming the row and what is wrong with it.
        """
        pa = arrow()
        duckdb = _duckdb()

        chosen = ", ".join(f"c{self.names.index(name)}" for name in columns)
        seen = 0
        with _connection(self._memory) as connection:
            try:
                query = f"SELECT {chosen} FROM {self._reader()}"
                for batch in connection.sql(query, params=[str(self._path)]).to_arrow_reader(rows):
                    seen += batch.num_rows
                    yield pa.RecordBatch.from_arrays(batch.columns, names=list(columns))
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                raise ValueError(self._refusal(error)) from error
        if self._expected is not None and seen != self._expected:
            raise ValueError(f"row {seen + 1} of {self.part.path} {_OPEN_QUOTE}")

    def _reader(self, more: str = "", *, parallel: bool = False) -> str:
        # Columns get names of our own, because DuckDB takes "a" and "A" for the same one. Its strict mode
        # refuses rows of another length. Its parallel scan guesses where rows begin and refused many sound
        # random files with line ends inside quotes. One thread is fast enough for what follows.
        columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(self.names)))
        new_line = f", new_line = '{self._new_line}'" if self._new_line else ""
        return (
            f"read_csv(?, columns = {{{columns}}}, auto_detect = false, delim = '{self._delimiter}', "
            f"quote = '\"', escape = '\"', header = true, skip = {self._skip}, compression = 'none', "
            f"max_line_size = {_LONGEST_ROW}, buffer_size = {4 * _LONGEST_ROW}, "
            f"parallel = {str(parallel).lower()}, hive_partitioning = false{new_line}{more})"
        )

    def _find_delimiter(self, header: str) -> str:
        """Find the delimiter by DuckDB's sniffer.

        The sniffer prefers a delimiter that no row has to one that a damaged row contradicts. Its answer is
        therefore used only where it splits the header. Else the delimiter is the one that splits it most.
        """
        widths = {delimiter: len(next(_records(header, delimiter), [])) for delimiter in DELIMITERS}
        most = max(widths, key=lambda delimiter: widths[delimiter])
        if widths[most] < 2:
            return ","
        duckdb = _duckdb()

        query = (
            "SELECT Delimiter FROM sniff_csv(?, all_varchar = true, quote = '\"', escape = '\"', "
            f"null_padding = true, compression = 'none', max_line_size = {_LONGEST_ROW})"
        )
        with _connection("1GB") as connection:
            try:
                found = connection.execute(query, [str(self._path)]).fetchone()
            except duckdb.Error:
                return most
        return found[0] if found and widths.get(found[0], 0) > 1 else most

    def _is_regular(self) -> bool:
        """Tell whether DuckDB's strict scan finds all rows."""
        try:
            return self._count() == self._count(", strict_mode = false")
        except ValueError:
            return False

    def _count(self, more: str = "") -> int:
        duckdb = _duckdb()

        with _connection(self._memory) as connection:
            query = f"SELECT count(*) FROM {self._reader(more)}"
            try:
                return int(connection.execute(query, [str(self._path)]).fetchall()[0][0])
            except duckdb.Error as error:
                raise ValueError(self._refusal(error)) from error

    def _first_reject(self, *, parallel: bool = False) -> tuple[int, str, str] | None:
        """Find the first row that cannot be read: its number, DuckDB's name of the fault, and its text."""
        duckdb = _duckdb()

        rejecting = self._reader(", store_rejects = true, rejects_limit = 1", parallel=parallel)
        with _connection(self._memory) as connection:
            try:
                connection.execute(f"SELECT count(*) FROM {rejecting}", [str(self._path)]).fetchall()
                query = "SELECT line, error_type, csv_line FROM reject_errors ORDER BY line LIMIT 1"
                found = connection.execute(query).fetchone()
            except duckdb.Error:
                return None
        return (found[0] - self._skip - 1, found[1], found[2]) if found else None

    def _refusal(self, error: Exception) -> str:
        """Say in one sentence what is wrong with the file."""
        # Only the parallel scan names a quote that is open at the end of the file.
        path, found = self.part.path, self._first_reject() or self._first_reject(parallel=True)
        if found is None:
            return f"{path} cannot be read as a table: {str(error).splitlines()[0]}"
        row, fault, text = found
        if fault == "LINE SIZE OVER MAXIMUM":
            return (
                f"{path} has a row of more than {_LONGEST_ROW >> 20} MB (row {row}); "
                "a quote or a line end may be missing"
            )
        if fault == "UNQUOTED VALUE":
            return f"row {row} of {path} {_OPEN_QUOTE}"
        if fault in ("TOO MANY COLUMNS", "MISSING COLUMNS"):
            fields = len(next(_records(text, self._delimiter), []))
            return (
                f"row {row} of {path} has {fields} field{'' if fields == 1 else 's'}, "
                f"but its header names {len(self.names)}; correct that row"
            )
        return f"row {row} of {path} cannot be read: {fault.lower()}"

    def _temporary_copy(self, encoding: str, *, newlines: bool = False) -> Path:
        """Copy the file, unpacked and in UTF-8, for DuckDB. The copy is deleted with this object."""
        folder = Path(tempfile.mkdtemp(prefix="raresight-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = folder / "table.csv"
        plain = not self.part.compression and encoding == "utf-8" and not newlines
        if plain:
            # Only the path is a problem for DuckDB.
            path.symlink_to(self.part.path.absolute())
            return path
        decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate=newlines)
        try:
            with naming_file(path), path.open("wb") as copy:
                for chunk in _chunks(self.part):
                    copy.write(decoder.decode(chunk).encode())
                copy.write(decoder.decode(b"", final=True).encode())
        except UnicodeError as error:
            raise ValueError(
                f"{self.part.path} is {encoding.upper()} text that is damaged or cut short; save it as UTF-8"
            ) from error
        return path


def _memory_for(scan: _FileScan, columns: int) -> str:
    """Compute the memory limit of DuckDB.

    Without a limit it keeps the whole file in memory. It needs several blocks of the file and some vectors of
    2048 rows. A row takes 16 bytes per field and its own content.
    """
    row = scan.size // max(scan.lines, 1)
    return f"{(1 << 28) + 4 * 2048 * (row + 16 * columns)}B"


def _duckdb() -> Any:
    """Import `duckdb`; the error names the extra to install."""
    try:
        import duckdb
    except ImportError as error:
        raise ImportError("reading CSV files needs duckdb: pip install 'raresight[tables]'") from error
    return duckdb


def _connection(memory: str) -> Any:
    """Open a database in memory, with a limit on that memory."""
    connection = _duckdb().connect(":memory:", config={**_SETTINGS, "memory_limit": memory})
    connection.execute("SET enable_progress_bar = false")
    return connection


def _chunks(part: Part) -> Iterator[bytes]:
    """Yield the content of a file, unpacked, in pieces."""
    with naming_file(part.path), part.path.open("rb") as raw:
        with _naming_archive(part):
            stream = _unpacked(part, raw)
        while True:
            with _naming_archive(part):
                chunk = stream.read(_CHUNK)
            if not chunk:
                return
            yield bytes(chunk)


@contextmanager
def _naming_archive(part: Part) -> Iterator[None]:
    """Name the archive in an error of its library."""
    try:
        yield
    except (ImportError, MemoryError):
        raise
    except Exception as error:  # damaged bytes make five libraries raise a dozen kinds of errors
        if not part.compression:
            raise
        raise ValueError(
            f"{part.path} is compressed ({part.compression}) and damaged or cut short"
        ) from error


def _unpacked(part: Part, raw: BinaryIO) -> Any:
    pa = arrow()
    if part.compression == "":
        return raw
    if part.compression == "xz":
        return lzma.LZMAFile(raw)
    if part.compression == "zip":
        return zipfile.ZipFile(cast(Any, raw)).open(zip_member(part.path))
    return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), part.compression)


def _scan(part: Part) -> _FileScan:
    """Find encoding and line ends from the whole file: one late byte may decide."""
    chunks = _chunks(part)
    first = next(chunks, b"")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Spreadsheets write UTF-16, with one kind of line end. The count for a display need not be exact.
        size = feeds = 0
        for chunk in itertools.chain([first], chunks):
            size, feeds = size + len(chunk), feeds + chunk.count(b"\n")
        return _FileScan("utf-16", size, True, feeds, 0, 0)
    if first.startswith((b"PAR1", b"ARROW1")):
        raise ValueError(f"{part.path} is a compressed Parquet or Arrow file; unpack it first")
    if b"\x00" in first:
        if part.path.suffix.lower() in (".db", ".sqlite", ".sqlite3"):
            raise ValueError(
                f"{part.path} is an encrypted or damaged SQLite database; "
                "decrypt it or export the table first"
            )
        raise ValueError(f"{part.path} is a binary file of an unknown format; {READABLE}")
    if _JSON.match(first):
        raise ValueError(f"{part.path} is JSON; {READABLE}")
    if not first.removeprefix(codecs.BOM_UTF8).strip():
        raise ValueError(f"{part.path} has no content but white space")
    decoder: Any = codecs.getincrementaldecoder("utf-8")()
    size = feeds = returns = pairs = 0
    quoted = open_return = False
    chunk = first
    while chunk:
        size += len(chunk)
        quoted = quoted or b'"' in chunk
        feeds += chunk.count(b"\n")
        if open_return or b"\r" in chunk:
            returns += chunk.count(b"\r")
            # The end of a chunk may cut a pair in two.
            pairs += chunk.count(b"\r\n") + (open_return and chunk.startswith(b"\n"))
            open_return = chunk.endswith(b"\r")
        following = next(chunks, b"")
        if decoder is not None:
            try:
                decoder.decode(chunk, final=not following)
            except UnicodeDecodeError:
                decoder = None
        chunk = following
    return _FileScan("latin-1" if decoder is None else "utf-8", size, quoted, feeds, returns, pairs)


def _beginning(path: Path, part: Part) -> str:
    """Read the beginning of a file in UTF-8, with at least one whole line."""
    with path.open("rb") as file:
        content = b""
        while len(content) < _LONGEST_HEADER:
            chunk = file.read(_CHUNK)
            content += chunk
            if not chunk or len(content.lstrip().splitlines()) > 1:
                return content.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors="ignore")
    raise ValueError(
        f"{part.path} has no line end in its first {_LONGEST_HEADER} bytes; it is no table in text"
    )


def _records(text: str, delimiter: str) -> Iterator[list[str]]:
    """Yield the records of CSV text that are not empty."""
    try:
        for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if record:
                yield record
    except csv.Error:
        return


def _names(header: str, delimiter: str, part: Part) -> tuple[str, ...]:
    """Return the column names."""
    record = next(_records(header, delimiter), None)
    if record is None:
        raise ValueError(f"{part.path} has no header line that can be read")
    fields = [field.strip() for field in record]
    if all(_is_number(field) for field in fields):
        shown = delimiter.join(fields[:4]) + ("…" if len(fields) > 4 else "")
        raise ValueError(
            f"{part.path} has no header: its first line is {shown!r}; put the column names there"
        )
    # A table that was saved with its row numbers has no name for them.
    names = [field or f"Unnamed: {position}" for position, field in enumerate(fields)]
    refuse_repeated_names(names, str(part.path))
    return tuple(names)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
