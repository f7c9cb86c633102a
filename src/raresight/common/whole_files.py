"""Files that appear whole or not at all, alone or several that belong together."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

__all__ = ["write_together", "write_whole"]


def write_whole(path: Path, content: str | bytes) -> Path:
    """A file that appears whole or not at all: where the disk is full, the one of before is kept."""
    write_together({path: content})
    return path


def write_together(contents: Mapping[Path, str | bytes], obsolete: Iterable[Path] = ()) -> list[Path]:
    """Files that appear whole, all of them or none: where the disk is full, those of before are kept.

    What is `obsolete`, of before and no part of them, is removed as they appear. They are put in place in the
    order given: a kill in that very moment may leave some of the last ones of before, but never a torn one.
    """
    aside = {path: path.with_name(f".{path.name}.{os.getpid()}") for path in contents}
    path = Path()
    try:
        for path, content in contents.items():
            aside[path].write_bytes(content.encode() if isinstance(content, str) else content)
        for path in obsolete:
            path.unlink(missing_ok=True)
        for path, unfinished in aside.items():
            unfinished.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        for unfinished in aside.values():
            # What could not be written may not be removed either, which says less than the error before.
            with contextlib.suppress(OSError):
                unfinished.unlink()
    return list(contents)
