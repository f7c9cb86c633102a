"""Find the files of a table and their formats, by content and not by name."""

from __future__ import annotations

import difflib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from raresight.common.atomic_files import regular_file

FileKind = Literal["csv", "parquet", "arrow file", "arrow stream", "sqlite"]
Compression = Literal["", "gzip", "bz2", "zstd", "lz4", "xz", "zip"]

_COMPRESSIONS: tuple[tuple[bytes, Compression], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bz2"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PK\x03\x04", "zip"),
)
# Common formats that cannot be read, so that the message can name them.
_OTHERS = (
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"Obj\x01", "an Avro file"),
    (b"ORC", "an ORC file"),
    (b"FEA1", "a file of the first Feather format"),
    (b"PARE", "an encrypted Parquet file"),
    (b"%PDF", "a PDF document"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"\x80\x04\x95", "a Python pickle"),
    (b"\x80\x05\x95", "a Python pickle"),
    (b"$FL2", "an SPSS file"),
    (b"<?xml", "an XML document"),
    (b"<!DOCTYPE", "an HTML page"),
    (b"<html", "an HTML page"),
)
READABLE = "CSV, Parquet, Arrow and SQLite files can be read"
_ENCRYPTED = 1  # bit of the flags of a member of a zip archive
# Behind the path of a database comes the name of a table, as in "payments.db::cards".
_TABLE_MARK = "::"


@dataclass(frozen=True)
class Part:
    """A file of a table; `table` is the name of the table in a database that has several."""

    path: Path
    kind: FileKind
    compression: Compression = ""
    table: str = ""

    @property
    def size(self) -> int:
        """Number of bytes on disk."""
        return self.path.stat().st_size


def find_parts(source: str | Path) -> list[Part]:
    """List the files of a table, in the order of their rows.

    Args:
        source: One of these:
            a file;
            a SQLite database and the name of its table, as in "payments.db::cards";
            a folder, whose files are sorted by name, without hidden ones and those that begin with "_";
            the word "sample" for the bundled table, if there is no file of that name.

    Raises:
        FileNotFoundError: If there is no such path.
        ValueError: If it holds no table that can be read.
    """
    if not str(source):
        raise ValueError("the path of the table is empty; give a file or a folder")
    path, table = split_source(source)
    if str(source) == "sample" and not path.exists():
        from raresight.tables.sample import sample_path

        path = sample_path()
    if path.is_dir():
        return _parts_of_folder(path)
    if not path.exists():
        raise FileNotFoundError(_missing(path, str(source)))
    part = _part(path)
    if table and part.kind != "sqlite":
        raise ValueError(f"{path} is no SQLite database, so that no table {table!r} can be chosen in it")
    return [replace(part, table=table)]


def split_source(source: str | Path) -> tuple[Path, str]:
    """Split "payments.db::cards" into path and table; the table is empty if the source names none.

    Example:
        >>> path, table = split_source("payments.db::cards")
        >>> path.name, table
        ('payments.db', 'cards')
    """
    path = Path(source).expanduser()
    before, mark, table = str(source).rpartition(_TABLE_MARK)
    # A file may have the mark in its name.
    return (path, "") if not mark or path.exists() else (Path(before).expanduser(), table)


def _missing(path: Path, source: str) -> str:
    if "://" in source:
        return f"{source} is an address, not a path; download the file first"
    folder = path.parent
    if not folder.is_dir():
        return f"there is no file {path}: its folder {folder} does not exist"
    names = [other.name for other in folder.iterdir() if other.exists() and other.name[0] != "."]
    close = difflib.get_close_matches(path.name, names, n=2, cutoff=0.6)
    # The name without its ending, as in "data" for "data.csv".
    close += [
        name for name in sorted(names) if name not in close and path.name and Path(name).stem == path.name
    ]
    advice = "; did you mean " + " or ".join(str(folder / name) for name in close[:2]) + "?" if close else ""
    return f"there is no file or folder {path}{advice}"


def _parts_of_folder(folder: Path) -> list[Part]:
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))
    inner = [entry for entry in entries if entry.is_dir()]
    if any("=" in entry.name for entry in inner):
        raise ValueError(
            f"{folder} is partitioned by folders such as {inner[0].name!r}, which is not supported; "
            "write the table as one file or as files in one folder, with that column in them"
        )
    if inner:
        raise ValueError(
            f"{folder} has the folder {inner[0].name!r} in it; "
            "give a folder that holds only the files of one table"
        )
    if not entries:
        raise ValueError(f"the folder {folder} has no data files; {READABLE}")
    parts = [_part(entry) for entry in entries]
    if parts[0].kind == "sqlite" and len(parts) > 1:
        raise ValueError(
            f"the folder {folder} has a SQLite database among its {len(parts)} files; give that file"
        )
    for part in parts[1:]:
        if part.kind != parts[0].kind:
            raise ValueError(
                f"the folder {folder} mixes kinds of files: {parts[0].path.name} is {_name(parts[0].kind)}, "
                f"but {part.path.name} is {_name(part.kind)}; put one table into a folder"
            )
    return parts


def _name(kind: FileKind) -> str:
    return {"csv": "text", "parquet": "Parquet", "sqlite": "SQLite"}.get(kind, "Arrow")


def _part(path: Path) -> Part:
    if not path.exists():
        raise ValueError(f"{path} is a link to a file that does not exist; remove it or bring the file back")
    with regular_file(path).open("rb") as file:
        start = file.read(64)
    if not start:
        raise ValueError(f"{path} is empty (0 bytes)")
    if start.startswith(b"PAR1"):
        return Part(path, "parquet")
    if start.startswith(b"ARROW1"):
        return Part(path, "arrow file")
    if start.startswith(b"\xff\xff\xff\xff"):
        return Part(path, "arrow stream")
    if start.startswith(b"SQLite format 3\x00"):
        return Part(path, "sqlite")
    for magic, name in _OTHERS:
        if start.lower().startswith(magic.lower()):
            raise ValueError(f"{path} is {name}; {READABLE}")
    for magic, compression in _COMPRESSIONS:
        if start.startswith(magic):
            if compression == "zip":
                zip_member(path)
            return Part(path, "csv", compression)
    return Part(path, "csv")


def zip_member(path: Path) -> str:
    """Return the name of the one file in a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
    except MemoryError:
        raise
    except Exception as error:  # zipfile raises many kinds where the directory is damaged
        raise ValueError(f"{path} is a damaged zip archive") from error
    names = [member.filename for member in members]
    if "[Content_Types].xml" in names:
        raise ValueError(f"{path} is an Excel workbook or another office document; save the table as CSV")
    names = [name for name in names if not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise ValueError(f"{path} is an archive of {len(names)} files; unpack it and give one of them")
    if any(member.flag_bits & _ENCRYPTED for member in members if member.filename == names[0]):
        raise ValueError(f"{path} is an encrypted zip archive; unpack it first")
    return names[0]


def known_columns(columns: Sequence[str], names: Sequence[str], where: str) -> list[str]:
    """Return the columns asked for, or raise an error that names those that are missing."""
    missing = [name for name in columns if name not in names]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:5]) + (", …" if len(missing) > 5 else "")
        raise ValueError(f"{where} lacks the column{'s' if len(missing) > 1 else ''} {shown}")
    return list(columns)


def refuse_repeated_names(names: list[str], where: str) -> None:
    """Raise an error if two columns have one name."""
    if len(set(names)) == len(names):
        return
    repeated = sorted({name for name in names if names.count(name) > 1})
    shown = ", ".join(repr(name) for name in repeated[:5]) + (", …" if len(repeated) > 5 else "")
    word = "the column name" if len(repeated) == 1 else "the column names"
    raise ValueError(f"{where} has {word} {shown} more than once; rename or remove one of each")
