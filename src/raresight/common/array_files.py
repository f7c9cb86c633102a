"""A file of arrays: a zip archive with a name and a version, nothing that runs when read."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

FORMAT_VERSION = 1
# The errors of NumPy and zipfile for damaged or truncated bytes.
UNREADABLE = (ValueError, OSError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error)


def pack(kind: str, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Pack arrays as a .npz file that names its kind and version."""
    stream = io.BytesIO()
    contents: dict[str, Any] = {"format": np.array(f"raresight.{kind}"), "version": np.array(FORMAT_VERSION)}
    np.savez_compressed(stream, **contents, **dict[str, Any](arrays))
    return stream.getvalue()


def unpack(kind: str, data: bytes, source: str, build: Callable[[Mapping[str, NDArray[Any]]], T]) -> T:
    """Unpack the arrays and pass them to `build`; a ValueError names the damage."""
    if not data.startswith(b"PK"):
        raise ValueError(f"{source} is not a {kind} file: it does not begin as one written by save.")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except UNREADABLE as why:
        raise ValueError(f"{source} is damaged or truncated ({why}); write it again.") from why
    found = str(arrays.get("format", "arrays of another origin"))
    if found != f"raresight.{kind}":
        raise ValueError(f"{source} is not a {kind} file: it holds {found}.")
    try:
        version = int(arrays["version"])
    except (KeyError, TypeError, ValueError) as why:
        raise ValueError(f"{source} has no format version ({why}); write it again.") from why
    if not 1 <= version <= FORMAT_VERSION:
        raise ValueError(
            f"{source} has format version {version}, but this raresight reads versions up to "
            f"{FORMAT_VERSION}. A newer raresight has written it: upgrade."
        )
    try:
        return build(arrays)
    except (KeyError, IndexError, TypeError, ValueError) as why:
        raise ValueError(f"{source} is not a complete {kind} file ({why}); write it again.") from why
