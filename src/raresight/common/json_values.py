"""Labels, categories and parameters as JSON values, and the digest of a description."""

from __future__ import annotations

import hashlib
import json
from collections.abc import KeysView, Mapping, ValuesView
from typing import Any

import numpy as np

__all__ = [
    "VALUE_KINDS",
    "digest_of",
    "kind_of_values",
    "pack_parameters",
    "pack_values",
    "plain",
    "unpack_values",
]

# What can be written, and the types of NumPy that hold it without a change.
VALUE_KINDS = {"text": "UTO", "booleans": "b", "whole numbers": "iu", "floats": "f"}


def digest_of(description: dict[str, Any]) -> str:
    """Return the SHA-256 of a description's canonical JSON, the digest itself left out."""
    rest = {name: value for name, value in description.items() if name != "description_sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def pack_values(values: Any, what: str) -> dict[str, Any]:
    """Describe labels or categories with their type: whole numbers, floats, booleans or text, not mixed.

    >>> pack_values(["a", "b"], "the labels")
    {'dtype': 'str', 'values': ['a', 'b']}
    """
    array = np.asarray(values)
    # NumPy makes one type of several without a warning: 1 and "a" would become two texts.
    kind = kind_of_values(values.tolist() if isinstance(values, np.ndarray) else list(values))
    if len(array) and array.dtype.kind not in VALUE_KINDS.get(kind, ""):
        raise ValueError(
            f"{what} are {kind} and cannot be saved: use whole numbers, floats, booleans or text, all alike"
        )
    dtype = {"O": "object", "U": "str", "T": "str"}.get(array.dtype.kind, array.dtype.str)
    return {"dtype": dtype, "values": array.tolist()}


def kind_of_values(values: list[Any]) -> str:
    """Return what a list holds, by the names of `VALUE_KINDS`; or the types in it, which are no such kind.

    >>> kind_of_values([1, 2]), kind_of_values([1, "a"])
    ('whole numbers', 'of type int and str')
    """
    if all(isinstance(value, str) for value in values):
        return "text"
    if all(isinstance(value, (bool, np.bool_)) for value in values):
        return "booleans"
    if all(_is_whole(value) for value in values):
        fits = np.asarray(values).dtype.kind in "iu"
        return "whole numbers" if fits else "whole numbers beyond 64 bits"
    if all(isinstance(value, (float, np.float32, np.float16)) for value in values):
        return "floats"
    return "of type " + " and ".join(sorted({type(value).__name__ for value in values}))


def _is_whole(value: Any) -> bool:
    # For NumPy a span of time is a whole number, and for Python a boolean is one.
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def unpack_values(packed: dict[str, Any]) -> np.ndarray[Any, Any]:
    dtype: Any = {"object": object, "str": np.str_}.get(packed["dtype"], packed["dtype"])
    return np.array(packed["values"], dtype=dtype)


def pack_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    """Constructor parameters as JSON values; NumPy's numbers and arrays as Python's.

    A generator in place of a seed is left out: it has moved on, so that it would not give the same fit again.
    """
    packed = {}
    for name, value in parameters.items():
        if isinstance(value, (np.random.RandomState, np.random.Generator)):
            value = None
        value = _plain(value)
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError(
                f"the parameter {name}={value!r} cannot be written as JSON: give a plain value"
            ) from None
        packed[name] = value
    return packed


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, columns of pandas, sets and views as Python's, however deep they lie."""
    if isinstance(value, dict):
        return {_plain(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple, set, frozenset, KeysView, ValuesView)):
        return [_plain(part) for part in (sorted(value) if isinstance(value, (set, frozenset)) else value)]
    return value.tolist() if hasattr(value, "tolist") else value


def plain(value: Any) -> Any:
    """Return a value as JSON knows it: arrays as lists, tuples as lists, NaN and infinity as None.

    >>> plain({"a": (1, float("nan")), "b": np.float32(0.5)})
    {'a': [1, None], 'b': 0.5}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    if value is None or isinstance(value, str | int | bool):
        return value
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    names = getattr(value, "__dataclass_fields__", ("estimate", "low", "high", "level"))
    return {name: plain(getattr(value, name)) for name in names}
