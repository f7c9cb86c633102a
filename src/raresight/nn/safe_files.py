"""Files that appear whole or not at all: safetensors and JSON, written aside, flushed, and renamed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

__all__ = [
    "UNFINISHED",
    "naming",
    "need_safetensors",
    "read_tensors",
    "tensor_metadata",
    "write_json",
    "write_tensors",
]

# How the name of a file ends while it is being written.
UNFINISHED = ".unfinished"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors that do not: writing to an open file on a full disk tells no name.

    >>> with naming(Path("some.json")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    ...
    OSError: [Errno 28] No space left on device: 'some.json'
    """
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], *, metadata: Mapping[str, str]) -> None:
    """Write tensors as a safetensors file, in place of an earlier one."""
    save = _safetensors("torch").save
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a file in it")
    content = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    unfinished = path.with_name(path.name + UNFINISHED)
    with naming(path):
        # Not by its save_file: that writes under a name of its own first, which stays where it is killed.
        unfinished.write_bytes(save(content, dict(metadata)))
        _put_in_place(unfinished, path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on the CPU."""
    load_file = _safetensors("torch").load_file
    _need(path)
    try:
        tensors: dict[str, Tensor] = load_file(str(path))
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} cannot be read as safetensors, it is damaged: {error}") from None
    return tensors


def tensor_metadata(path: Path) -> dict[str, str]:
    """What a safetensors file says about itself."""
    safe_open = _safetensors().safe_open
    _need(path)
    try:
        with safe_open(str(path), framework="pt") as file:
            return dict(file.metadata() or {})
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} cannot be read as safetensors, it is damaged: {error}") from None


def write_json(path: Path, value: Any) -> None:
    """Write plain values as JSON, in place of an earlier file."""
    unfinished = path.with_name(path.name + UNFINISHED)
    text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    with naming(path):
        unfinished.write_text(text, encoding="utf-8")
        _put_in_place(unfinished, path)


def _put_in_place(unfinished: Path, path: Path) -> None:
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(path)
    # The name, too, must be on the disk before what relies on it is written.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def need_safetensors() -> None:
    """An error, which names the extra to install, where weights cannot be written."""
    _safetensors("torch")


def _need(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")


def _safetensors(part: str = "") -> Any:
    from importlib import import_module

    try:
        return import_module(f"safetensors.{part}" if part else "safetensors")
    except ImportError:
        raise ImportError("weights on disk need safetensors: pip install 'raresight[torch]'") from None
