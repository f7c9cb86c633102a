"""Labels, categories and parameters as JSON values, and the digest of a description."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

__all__ = ["digest_of", "pack_parameters", "pack_values", "unpack_values"]


def digest_of(description: dict[str, Any]) -> str:
    """The SHA-256 of a description's canonical JSON, the digest itself left out."""
    rest = {name: value for name, value in description.items() if name != "description_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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
