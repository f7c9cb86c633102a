"""Rewrite journals with correct checksums.

python -m reproduction.seal_journals results/deep/table2-cifar10.jsonl.xz

Each line has a checksum that depends on the line before. Use this after editing a journal by hand, for
example to remove a result that is to be trained again, or for JSON lines from another source. A file
NAME.jsonl, NAME.jsonl.gz or NAME.jsonl.xz becomes NAME.jsonl.xz beside it.
"""

from __future__ import annotations

import gzip
import json
import lzma
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from raresight.common.journal import write_journal

__all__ = ["seal"]

_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".jsonl": bytes,
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
}


def seal(path: Path) -> Path:
    """Write the lines of a file as a journal; return the path of the journal.

    Raises:
        ValueError: The file is of another kind, or a line is no JSON object.
    """
    name = path.name.removesuffix(path.suffix if path.suffix != ".jsonl" else "")
    if path.suffix not in _UNPACK or not name.endswith(".jsonl"):
        raise ValueError(f"{path} is no NAME.jsonl, NAME.jsonl.gz or NAME.jsonl.xz")
    entries = [json.loads(line) for line in _UNPACK[path.suffix](path.read_bytes()).splitlines()]
    for entry in entries:
        entry.pop("check", None)
    return write_journal(path.with_name(f"{name}.xz"), entries)


def main(arguments: Sequence[str]) -> None:
    """Seal every file named."""
    for argument in arguments:
        sys.stdout.write(f"{seal(Path(argument))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
