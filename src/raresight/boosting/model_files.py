"""A model on disk: the library's own file, and a JSON file beside it with what the library does not know.

The side-file has the loss, the classes, the start score, the columns and the parameters, the library and its
version, and two digests: the SHA-256 of the model file and that of the side-file's other entries, so that a
changed or truncated file is noticed. They guard against accidents, not against attackers.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

from ..common.json_values import digest_of

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
    described["description_sha256"] = digest_of(described)
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
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise ValueError(
            f"{beside} has format version {version}, this raresight reads up to {FORMAT_VERSION}"
        )
    if description.get("library") != library:
        raise ValueError(f"{path} is a model of {description.get('library')}, not of {library}")
    if description.get("description_sha256") != digest_of(description):
        raise ValueError(f"{beside} is not the file that was saved: it was changed since")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != description.get("sha256"):
        raise ValueError(f"{path} is not the file that was saved: it was changed or truncated since")
    return content, description


def check_description(described: dict[str, Any], n_classes: int) -> None:
    """Refuse numbers that are not finite and lists whose lengths do not fit the classes."""
    if n_classes < 2:
        raise ValueError(f"classes holds {n_classes} of them, at least 2 are needed")
    numbers = {
        "start_score": (described["start_score"], 1 if n_classes == 2 else n_classes),
        "levels of the calibrator": (described["calibrator"]["levels"], n_classes - 1),
    }
    for name, (values, length) in numbers.items():
        if not isinstance(values, list) or len(values) != length:
            raise ValueError(f"{name} must be a list of {length} numbers for {n_classes} classes")
        if not all(_is_number(value) and math.isfinite(value) for value in values):
            raise ValueError(f"{name} must hold finite numbers, got {values}")
    features = described["n_features"]
    if isinstance(features, bool) or not isinstance(features, int) or features < 1:
        raise ValueError(f"n_features must be a whole number of at least 1, got {features!r}")
    names = described["feature_names"]
    if names is not None and len(names) != features:
        raise ValueError(f"{len(names)} feature_names for {features} features")
    for column in described["categories"]:
        if not 0 <= int(column) < features:
            raise ValueError(f"categories are given for column {column} of {features}")
    if not isinstance(described["trained_on_sparse"], bool):
        raise ValueError(f"trained_on_sparse must be true or false, got {described['trained_on_sparse']!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _replace(path: Path, content: bytes) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
