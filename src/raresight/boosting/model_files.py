"""A model on disk: the library's own file, and a JSON file beside it with what the library does not know.

The side-file has the loss, the classes, the start score, the columns and the parameters, the library and its
version, and the SHA-256 of the model file, so that a changed or truncated model is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "raresight.boosting"
FORMAT_VERSION = 1


def side_file(path: Path) -> Path:
    """Where the side-file of a model file lies: `model.json` has `model.json.raresight.json`."""
    return path.with_name(path.name + ".raresight.json")


def write_model(path: Path, content: bytes, description: dict[str, Any]) -> None:
    """Write both files; each appears whole or not at all."""
    described = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **description,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    text = json.dumps(described, indent=1, allow_nan=False)
    _replace(path, content)
    _replace(side_file(path), text.encode())


def read_model(path: Path, library: str) -> tuple[bytes, dict[str, Any]]:
    """The model file's content and its description, or an error that says what is wrong with them."""
    beside = side_file(path)
    for file in (path, beside):
        if not file.exists():
            raise FileNotFoundError(
                f"{file} does not exist: a model is saved as {path.name} and {beside.name}"
            )
    try:
        description = json.loads(beside.read_text())
    except ValueError as error:
        raise ValueError(f"{beside} cannot be read as JSON, it is damaged: {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{beside} is not a side-file of raresight.boosting")
    version = description.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise ValueError(
            f"{beside} has format version {version}, this raresight reads up to {FORMAT_VERSION}"
        )
    if description.get("library") != library:
        raise ValueError(f"{path} is a model of {description.get('library')}, not of {library}")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != description.get("sha256"):
        raise ValueError(f"{path} is not the file that was saved: it was changed or truncated since")
    return content, description


def pack_values(values: Any, what: str) -> dict[str, Any]:
    """Labels or categories with their type: whole numbers, floats, booleans or text."""
    array = np.asarray(values)
    kinds = {"i": "int", "u": "int", "f": "float", "b": "bool", "U": "str", "T": "str"}
    kind = kinds.get(array.dtype.kind)
    if kind is None and all(isinstance(value, str) for value in array.tolist()):
        kind = "object"
    if kind is None:
        raise ValueError(f"{what} of type {array.dtype} cannot be saved: use numbers, booleans or text")
    dtype = "object" if kind == "object" else "str" if kind == "str" else array.dtype.str
    return {"dtype": dtype, "values": array.tolist()}


def unpack_values(packed: dict[str, Any]) -> np.ndarray[Any, Any]:
    dtype: Any = {"object": object, "str": np.str_}.get(packed["dtype"], packed["dtype"])
    return np.array(packed["values"], dtype=dtype)


def pack_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Constructor parameters as JSON values; NumPy's numbers and arrays as Python's."""
    packed = {}
    for name, value in parameters.items():
        if isinstance(value, (np.generic, np.ndarray)):
            value = value.tolist()
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError(
                f"the parameter {name}={value!r} cannot be written as JSON: give a plain value"
            ) from None
        packed[name] = value
    return packed


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
