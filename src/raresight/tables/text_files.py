"""Text files as streams of UTF-8 bytes, and what one has to know of them before reading rows.

Compression is told by content. A file that is not UTF-8 throughout is read as Latin-1, with a warning; for
this the file is scanned once before its rows are read.
"""

from __future__ import annotations

import codecs
import csv
import io
import lzma
import re
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from raresight.tables._arrow import arrow
from raresight.tables.sources import READABLE, Part, zip_member

DELIMITERS = (",", ";", "\t", "|")
_CHUNK = 1 << 20
_JSON = re.compile(rb"\s*(\{\s*\"|\[\s*[\[{])")
# Some spreadsheets write the delimiter above the header.
_DELIMITER_LINE = re.compile(r"sep=([,;\t|])\r?\n")
_SNIFFED_ROWS = 200
# A first line longer than this is no header.
_LONGEST_HEADER = 1 << 26


class TableWarning(UserWarning):
    """Something in a table was read in a way that the reader should know of."""


@dataclass(frozen=True)
class Dialect:
    """How a text file is to be read.

    Attributes:
        names: The header.
        delimiter: What separates fields.
        encoding: Of the file's bytes.
        header_bytes: How many bytes of UTF-8 stand before the first row.
        quoted: Whether there are quotes in the file at all; if not, lines are rows.
    """

    names: tuple[str, ...]
    delimiter: str
    encoding: str
    header_bytes: int
    quoted: bool


class Utf8Stream(io.RawIOBase):
    """A file's content, unpacked and as UTF-8 without byte order mark.

    Attributes:
        bytes_read: How far the file on disk was read (in a zip archive: its content).
    """

    def __init__(self, part: Part, encoding: str = "utf-8", skip: int = 0) -> None:
        super().__init__()
        self.part = part
        self._raw = _CountingFile(part.path.open("rb"))
        self._bytes = _unpacked(part, self._raw)
        self._decoder = None if encoding == "utf-8" else codecs.getincrementaldecoder(encoding)()
        self._left = b""
        self._ended = False
        head = self._next(4)
        self._left = head.removeprefix(codecs.BOM_UTF8)
        self._skip(skip)

    @property
    def bytes_read(self) -> int:
        """How many bytes were read so far."""
        return self._raw.bytes_read

    def readable(self) -> bool:
        """True: this is a stream to read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, whole unless the end comes first; 0 at the end."""
        filled = 0
        while filled < len(buffer):
            if not self._left:
                self._left = self._next(len(buffer) - filled)
            if not self._left:
                break
            count = min(len(buffer) - filled, len(self._left))
            buffer[filled : filled + count] = self._left[:count]
            self._left = self._left[count:]
            filled += count
        return filled

    def put_back(self, content: bytes) -> None:
        """Let bytes be read again."""
        self._left = content + self._left

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._bytes.close()
            self._raw.close()
        super().close()

    def _next(self, count: int) -> bytes:
        """The next bytes, about so many; empty only at the end."""
        while not self._ended:
            try:
                chunk = self._bytes.read(max(count, 4))
            except (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile) as error:
                raise ValueError(
                    f"{self.part.path} is compressed ({self.part.compression}) and damaged or cut short: "
                    f"{error}"
                ) from error
            self._ended = not chunk
            if self._decoder is not None:
                chunk = self._decoder.decode(chunk, final=self._ended).encode("utf-8")
            if chunk:
                return bytes(chunk)
        return b""

    def _skip(self, count: int) -> None:
        while count > 0:
            if not self._left:
                self._left = self._next(_CHUNK)
                if not self._left:
                    return
            taken = min(count, len(self._left))
            self._left = self._left[taken:]
            count -= taken


class _CountingFile(io.RawIOBase):
    """A file that knows how much of it was read."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file = file
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self.bytes_read += count
        return int(count)

    def close(self) -> None:
        self._file.close()
        super().close()


def _unpacked(part: Part, raw: _CountingFile) -> Any:
    pa = arrow()
    if part.compression == "":
        return raw
    if part.compression == "xz":
        return lzma.LZMAFile(cast(BinaryIO, raw))
    if part.compression == "zip":
        return zipfile.ZipFile(part.path).open(zip_member(part.path))
    try:
        return pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), part.compression)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"{part.path} is compressed with {part.compression}, which this pyarrow cannot read; "
            "unpack it first"
        ) from error


def learn_dialect(part: Part) -> Dialect:
    """Find out how a text file is to be read.

    Raises:
        ValueError: If it is no table in text: binary, no header, repeated names, an open quote.
    """
    encoding, quotes = _scan(part)
    text, complete = _beginning(part, encoding)
    said = _DELIMITER_LINE.match(text)
    above = said.group() if said else ""
    text = text.removeprefix(above)
    delimiter = said.group(1) if said else _delimiter(text, complete)
    names, header = _header(text, delimiter, part)
    if quotes % 2 and _ends_in_quotes(part, encoding, delimiter):
        raise ValueError(
            f"{part.path} ends inside a quoted field; a closing quote is missing, or the file is cut"
        )
    return Dialect(
        names=names,
        delimiter=delimiter,
        encoding=encoding,
        header_bytes=len((above + header).encode("utf-8")),
        quoted=quotes > 0,
    )


def _scan(part: Part) -> tuple[str, int]:
    """The encoding, and how many quotes there are, from the whole file."""
    with Utf8Stream(part) as stream:
        first = stream.read(_CHUNK) or b""
        if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            with Utf8Stream(part, "utf-16") as converted:
                return "utf-16", sum(chunk.count(b'"') for chunk in _chunks(converted))
        if first.startswith((b"PAR1", b"ARROW1")):
            raise ValueError(f"{part.path} is a compressed Parquet or Arrow file; unpack it first")
        if b"\x00" in first:
            raise ValueError(f"{part.path} is a binary file of a kind not known here; {READABLE}")
        if _JSON.match(first):
            raise ValueError(f"{part.path} is JSON; {READABLE}")
        if not first.strip():
            raise ValueError(f"{part.path} has no content but white space")
        decoder = codecs.getincrementaldecoder("utf-8")()
        is_utf8, quotes = True, 0
        for chunk in _chunks(stream, first):
            quotes += chunk.count(b'"')
            if is_utf8:
                try:
                    decoder.decode(chunk)
                except UnicodeDecodeError:
                    is_utf8 = False
        if is_utf8:
            try:
                decoder.decode(b"", final=True)
            except UnicodeDecodeError:
                is_utf8 = False
    return ("utf-8" if is_utf8 else "latin-1"), quotes


def _chunks(stream: Utf8Stream, first: bytes = b"") -> Iterator[bytes]:
    if first:
        yield first
    while chunk := stream.read(_CHUNK):
        yield chunk


def _beginning(part: Part, encoding: str) -> tuple[str, bool]:
    """The first part of a file, with at least one whole line, and whether it is all of it."""
    with Utf8Stream(part, encoding) as stream:
        pieces: list[bytes] = []
        size = 0
        while size < _LONGEST_HEADER:
            chunk = stream.read(_CHUNK)
            if not chunk:
                return b"".join(pieces).decode("utf-8"), True
            pieces.append(chunk)
            size += len(chunk)
            if len(b"".join(pieces).lstrip().splitlines()) > 1:
                break
        else:
            raise ValueError(f"{part.path} has no line end in its first {size} bytes; it is no table in text")
        return b"".join(pieces).decode("utf-8", errors="ignore"), False


def _rows(text: str, delimiter: str) -> Iterator[tuple[list[str], int]]:
    """Rows with something in them, and where in the text each ends."""
    consumed = 0

    def lines() -> Iterator[str]:
        nonlocal consumed
        for line in io.StringIO(text, newline=""):
            consumed += len(line)
            yield line

    for row in csv.reader(lines(), delimiter=delimiter):
        if row:
            yield row, consumed


def _delimiter(text: str, complete: bool) -> str:
    """The delimiter that gives the header several fields, and most rows as many.

    If several do, the one that most rows agree with; among those the one with most fields.
    """
    best, best_score = ",", (0.0, 0)
    for delimiter in DELIMITERS:
        counts: list[int] = []
        try:
            for row, end in _rows(text, delimiter):
                if end < len(text) or complete:
                    counts.append(len(row))
                if len(counts) > _SNIFFED_ROWS:
                    break
        except csv.Error:
            continue
        if not counts or counts[0] < 2:
            continue
        agree = sum(count == counts[0] for count in counts) / len(counts)
        if (agree, counts[0]) > best_score:
            best, best_score = delimiter, (agree, counts[0])
    return best


def _header(text: str, delimiter: str, part: Part) -> tuple[tuple[str, ...], str]:
    """The names, and the text up to the first row."""
    try:
        row, end = next(_rows(text, delimiter))
    except (StopIteration, csv.Error) as error:
        raise ValueError(f"{part.path} has no header line that can be read: {error}") from error
    fields = [field.strip() for field in row]
    if all(_is_number(field) for field in fields):
        shown = delimiter.join(fields[:4]) + ("…" if len(fields) > 4 else "")
        raise ValueError(
            f"{part.path} has no header: its first line is {shown!r}; put the column names there"
        )
    # A table saved with its row numbers has no name for them.
    names = [field or f"Unnamed: {position}" for position, field in enumerate(fields)]
    refuse_repeated_names(names, str(part.path))
    return tuple(names), text[:end]


def refuse_repeated_names(names: list[str], where: str) -> None:
    """Raise if two columns have one name."""
    if len(set(names)) == len(names):
        return
    repeated = sorted({name for name in names if names.count(name) > 1})
    shown = ", ".join(repr(name) for name in repeated[:5]) + (", …" if len(repeated) > 5 else "")
    word = "the column name" if len(repeated) == 1 else "the column names"
    raise ValueError(f"{where} has {word} {shown} more than once; rename or remove one of each")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def ragged_row(part: Part, dialect: Dialect) -> str:
    """The first row that has not as many fields as the header, in words; empty if there is none."""
    with Utf8Stream(part, dialect.encoding, dialect.header_bytes) as stream:
        number = 0
        try:
            for row in csv.reader(
                io.TextIOWrapper(io.BufferedReader(stream), "utf-8", newline=""), delimiter=dialect.delimiter
            ):
                if not row:
                    continue
                number += 1
                if len(row) != len(dialect.names):
                    fields = "field" if len(row) == 1 else "fields"
                    return (
                        f"row {number} of {part.path} has {len(row)} {fields}, "
                        f"but its header names {len(dialect.names)}; correct that row"
                    )
        except csv.Error as error:
            if "field limit" not in str(error):
                return f"row {number + 1} of {part.path} cannot be read: {error}"
    return ""


def _ends_in_quotes(part: Part, encoding: str, delimiter: str) -> bool:
    with Utf8Stream(part, encoding) as stream:
        try:
            for _ in csv.reader(
                io.TextIOWrapper(io.BufferedReader(stream), "utf-8", newline=""),
                delimiter=delimiter,
                strict=True,
            ):
                pass
        except csv.Error as error:
            # An open quote swallows the rest of the file, which is then too large for a field.
            return "end of data" in str(error) or "field limit" in str(error)
    return False


def warn_of_encoding(path: Path, dialect: Dialect) -> None:
    """Tell that a file is not UTF-8."""
    if dialect.encoding == "latin-1":
        warnings.warn(
            f"{path} is not UTF-8; it was read as Latin-1, so letters beyond English may be wrong",
            TableWarning,
            stacklevel=4,
        )
