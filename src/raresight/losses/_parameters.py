"""Checking hyper-parameters: each error says what was seen and what is valid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any


def number(value: Any, name: str, owner: str) -> float:
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{owner}: {name} must be a number, got {value!r}") from None
    if math.isnan(result):
        raise ValueError(f"{owner}: {name} must be a number, got nan")
    return result


def positive(value: Any, name: str, owner: str) -> float:
    result = number(value, name, owner)
    if not 0 < result < math.inf:
        raise ValueError(f"{owner}: {name} must be positive and finite, got {result}")
    return result


def at_least(value: Any, lowest: float, name: str, owner: str) -> float:
    result = number(value, name, owner)
    if not lowest <= result < math.inf:
        raise ValueError(f"{owner}: {name} must be at least {lowest} and finite, got {result}")
    return result


def finite(value: Any, name: str, owner: str) -> float:
    result = number(value, name, owner)
    if math.isinf(result):
        raise ValueError(f"{owner}: {name} must be finite, got {result}")
    return result


def numbers(values: Any, name: str, owner: str) -> tuple[float, ...]:
    """A sequence, array or tensor of positive numbers as a tuple of floats."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise TypeError(f"{owner}: {name} must be a sequence of numbers, got {values!r}")
    return tuple(positive(value, f"{name}[{i}]", owner) for i, value in enumerate(values))


def counts(values: Any, owner: str) -> tuple[float, ...]:
    """Class counts: at least two positive numbers; whole ones stay whole for printing."""
    result = numbers(values, "class_counts", owner)
    if len(result) < 2:
        raise ValueError(f"{owner}: class_counts needs at least 2 classes, got {len(result)}")
    return tuple(int(n) if n == int(n) else n for n in result)
