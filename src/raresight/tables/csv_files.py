"""CSV files: decoded here, parsed by DuckDB, handed over as text in Arrow batches.

No type is guessed here. A reader that guesses types does so on a sample, and has cut values and kept quotes
beyond it. What a column means is decided later, once, on all its text (see `schema`).
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

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
    """A table was read in a way that the user should know of."""


@dataclass(frozen=True)
class _Content:
    """What a scan of the whole file found.

    Attributes:
        encoding: "utf-8", "utf-16" or "latin-1".
        size: How many bytes it has, unpacked.
        quoted: Whether there are quotes at all.
        line_feeds, carriage_returns, pairs: How many of each end lines; a pair counts in all three.
    """

    encoding: str
    size: int
    quoted: bool
    line_feeds: int
    carriage_returns: int
    pairs: int

    @property
    def lines(self) -> int:
        """At most so many lines, of which those inside quoted fields are no rows."""
        return self.line_feeds + self.carriage_returns - self.pairs

    @property
    def mixed(self) -> bool:
        """Whether lines end in several ways, be it inside quoted fields."""
        return self.line_feeds > 0 and self.carriage_returns > 0 and self.lines > self.pairs


class CsvFile:
    """A CSV file whose rows can be read again and again.

    Delimiter, compression and encoding are detected from the content. A file that is not UTF-8 throughout is
    read as Latin-1, with a warning.

    Args:
        part: The file.

    Attributes:
        names: The header.
        rows: How many rows it has; an upper bound if there are empty lines. For progress displays.

    Raises:
        ValueError: If the file is no table in text: binary, JSON, empty, no header, or repeated names.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        content = _scan(part)
        self._path = part.path
        # DuckDB would expand * and [ in a path, and take "year=2024" in it for a column.
        if part.compression or content.encoding != "utf-8" or set("*?[") & set(str(part.path)):
            self._path = self._temporary_copy(content.encoding)
        self._new_line = "\\r" if content.line_feeds == 0 and content.carriage_returns else ""
        text = _beginning(self._path, part)
        said = _DELIMITER_LINE.match(text)
        body = text[said.end() :] if said else text
        leading = len(body) - len(body.lstrip("\r\n"))
        self._skip = (1 if said else 0) + len(body[:leading].splitlines())
        header = body[leading:]
        self._delimiter = said.group(1) if said else self._find_delimiter(header)
        self.names = _names(header, self._delimiter, part)
        self._memory = _memory_for(content, len(self.names))
        if content.mixed and not (content.quoted and self._is_regular()):
            # DuckDB expects one kind of line end outside of quotes. In the copy all are line feeds, those
            # inside of quotes, too.
            self._path = self._temporary_copy(content.encoding, newlines=True)
        # The strict scan leaves out a last row whose quote is open, and all that it swallows, without an
        # error. The lenient one has it, so the difference tells.
        self._expected = self._count(", strict_mode = false") if content.quoted else None
        self.rows = max(content.lines if self._expected is None else self._expected, 1)
        if content.encoding == "latin-1":
            warnings.warn(
                f"{part.path} is not UTF-8; it was read as Latin-1, so letters beyond English may be wrong",
                TableWarning,
                stacklevel=5,
            )

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """The rows as Arrow record batches in which every column is text; an empty field is missing.

        Args:
            columns: The columns wanted, in this order.
            rows: About how many rows a batch should have.

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
        # Names of our own: DuckDB takes "a" and "A" for the same column. Its strict mode refuses rows of
        # another length. Its parallel scan guesses where rows begin: of random files with line ends inside
        # quotes it refused many that are sound. One thread reads as fast as what follows takes the rows.
        columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(self.names)))
        new_line = f", new_line = '{self._new_line}'" if self._new_line else ""
        return (
            f"read_csv(?, columns = {{{columns}}}, auto_detect = false, delim = '{self._delimiter}', "
            f"quote = '\"', escape = '\"', header = true, skip = {self._skip}, compression = 'none', "
            f"max_line_size = {_LONGEST_ROW}, buffer_size = {4 * _LONGEST_ROW}, "
            f"parallel = {str(parallel).lower()}, hive_partitioning = false{new_line}{more})"
        )

    def _find_delimiter(self, header: str) -> str:
        """What separates fields, by DuckDB's sniffer.

        The sniffer prefers a delimiter that no row has to one that a damaged row contradicts. Therefore its
        answer counts only where it splits the header; else the delimiter is the one that splits it most.
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
        """Whether DuckDB's strict scan finds all rows."""
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
        """The first row that cannot be read: its number, DuckDB's name of the fault, and its text."""
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
        """What is wrong with the file, in a sentence."""
        # Only the parallel scan has a name for a quote that is open at the end.
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
        """A copy of the file that DuckDB can read: unpacked and in UTF-8. It is deleted with this object."""
        folder = Path(tempfile.mkdtemp(prefix="raresight-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = folder / "table.csv"
        plain = not self.part.compression and encoding == "utf-8" and not newlines
        if plain:
            # Only its path is in the way.
            path.symlink_to(self.part.path.absolute())
            return path
        decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate=newlines)
        with path.open("wb") as copy:
            for chunk in _chunks(self.part):
                copy.write(decoder.decode(chunk).encode())
            copy.write(decoder.decode(b"", final=True).encode())
        return path


def _memory_for(content: _Content, columns: int) -> str:
    """How much memory DuckDB may take.

    Without a limit it keeps the file in memory as long as there is any. It needs several blocks of the file,
    and some vectors of 2048 rows: a pointer of 16 bytes for each field, and what the rows hold.
    """
    row = content.size // max(content.lines, 1)
    return f"{(1 << 28) + 4 * 2048 * (row + 16 * columns)}B"


def _duckdb() -> Any:
    """The module `duckdb`, or an error that names the extra."""
    try:
        import duckdb
    except ImportError as error:
        raise ImportError("reading CSV files needs duckdb: pip install 'raresight[tables]'") from error
    return duckdb


def _connection(memory: str) -> Any:
    """A database in memory, with a limit of the memory it takes."""
    connection = _duckdb().connect(":memory:", config={**_SETTINGS, "memory_limit": memory})
    connection.execute("SET enable_progress_bar = false")
    return connection


def _chunks(part: Part) -> Iterator[bytes]:
    """The content of a file, unpacked, in pieces."""
    with part.path.open("rb") as raw:
        stream = _unpacked(part, raw)
        while True:
            try:
                chunk = stream.read(_CHUNK)
            except (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile) as error:
                raise ValueError(
                    f"{part.path} is compressed ({part.compression}) and damaged or cut short: {error}"
                ) from error
            if not chunk:
                return
            yield bytes(chunk)


def _unpacked(part: Part, raw: BinaryIO) -> Any:
    pa = arrow()
    if part.compression == "":
        return raw
    if part.compression == "xz":
        return lzma.LZMAFile(raw)
    if part.compression == "zip":
        return zipfile.ZipFile(cast(Any, raw)).open(zip_member(part.path))
    try:
        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), part.compression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"{part.path} is compressed with {part.compression}, which this pyarrow cannot read; "
            "unpack it first"
        ) from error


def _scan(part: Part) -> _Content:
    """The encoding and the line ends of a file, from all of it: one late byte may decide."""
    chunks = _chunks(part)
    first = next(chunks, b"")
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # Spreadsheets write it, with one kind of line end. The count need not be exact: it feeds a display.
        size = feeds = 0
        for chunk in itertools.chain([first], chunks):
            size, feeds = size + len(chunk), feeds + chunk.count(b"\n")
        return _Content("utf-16", size, True, feeds, 0, 0)
    if first.startswith((b"PAR1", b"ARROW1")):
        raise ValueError(f"{part.path} is a compressed Parquet or Arrow file; unpack it first")
    if b"\x00" in first:
        if part.path.suffix.lower() in (".db", ".sqlite", ".sqlite3"):
            raise ValueError(
                f"{part.path} is an encrypted or damaged SQLite database; "
                "decrypt it or export the table first"
            )
        raise ValueError(f"{part.path} is a binary file of a kind not known here; {READABLE}")
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
            # A pair may be cut in two by the end of a chunk.
            pairs += chunk.count(b"\r\n") + (open_return and chunk.startswith(b"\n"))
            open_return = chunk.endswith(b"\r")
        following = next(chunks, b"")
        if decoder is not None:
            try:
                decoder.decode(chunk, final=not following)
            except UnicodeDecodeError:
                decoder = None
        chunk = following
    return _Content("latin-1" if decoder is None else "utf-8", size, quoted, feeds, returns, pairs)


def _beginning(path: Path, part: Part) -> str:
    """The first part of a file in UTF-8, with at least one whole line."""
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
    """Records of CSV text with something in them."""
    try:
        for record in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if record:
                yield record
    except csv.Error:
        return


def _names(header: str, delimiter: str, part: Part) -> tuple[str, ...]:
    """The column names."""
    record = next(_records(header, delimiter), None)
    if record is None:
        raise ValueError(f"{part.path} has no header line that can be read")
    fields = [field.strip() for field in record]
    if all(_is_number(field) for field in fields):
        shown = delimiter.join(fields[:4]) + ("…" if len(fields) > 4 else "")
        raise ValueError(
            f"{part.path} has no header: its first line is {shown!r}; put the column names there"
        )
    # A table saved with its row numbers has no name for them.
    names = [field or f"Unnamed: {position}" for position, field in enumerate(fields)]
    refuse_repeated_names(names, str(part.path))
    return tuple(names)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
