"""The parameters of a loss: how they are declared, checked and searched.

    gamma: float = param(2.0, at_least(0.0), search=(0.25, 4.0))

declares a parameter with its default, what it must be, and the range in which a search tries it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

__all__ = [
    "SearchRange",
    "at_least",
    "between",
    "check_parameters",
    "class_counts",
    "collect_checks",
    "finite",
    "graph_constant",
    "number",
    "numbers",
    "param",
    "positive",
    "search_ranges",
]

# (value, name, owner) -> the value as the loss keeps it; raises for one that is not allowed.
Function = TypeVar("Function", bound=Callable[..., Any])
Check = Callable[[Any, str, str], Any]


@dataclass(frozen=True)
class SearchRange:
    """Values of a parameter that a search tries, both ends included.

    Attributes:
        low: The lower end.
        high: The upper end.
        default: Where a search starts.
        log: Whether values are drawn evenly on a logarithmic scale.
    """

    low: float
    high: float
    default: float
    log: bool = False


def param(
    default: Any = MISSING,
    check: Check | None = None,
    *,
    search: tuple[float, float] | None = None,
    search_from: float | None = None,
    log: bool = False,
) -> Any:
    """Declare a parameter of a loss: a field of its dataclass.

    Args:
        default: Its default value. Without one it must be given.
        check: What it must be, such as `at_least(0.0)`; it may change the value, for example into a float.
        search: The range that a search tries. Default: it is not searched.
        search_from: Where a search starts. Default: `default`.
        log: Whether a search draws on a logarithmic scale.
    """
    metadata: dict[str, Any] = {"check": check}
    if search is not None:
        start = default if search_from is None else search_from
        metadata["search"] = SearchRange(*search, default=start, log=log)
    return field(default=default, metadata=metadata)


def search_ranges(kind: type) -> dict[str, SearchRange]:
    """The parameters of a kind of loss that a search tunes, by name."""
    declared = fields(kind)
    return {one.name: one.metadata["search"] for one in declared if "search" in one.metadata}


def check_parameters(loss: Any) -> None:
    """Check the parameters of a loss as they were declared, and keep what the checks return."""
    kind = type(loss)
    for name, check in vars(kind).get("_checks") or collect_checks(kind):
        object.__setattr__(loss, name, check(getattr(loss, name), name, kind.__name__))


def collect_checks(kind: Any) -> tuple[tuple[str, Check], ...]:
    """Keep the checks of a class on it: torch.compile, which may build a loss, cannot read its fields."""
    found = ((one.name, one.metadata.get("check")) for one in fields(kind))
    kind._checks = tuple((name, check) for name, check in found if check is not None)
    return kind._checks  # type: ignore[no-any-return]


def graph_constant(function: Function) -> Function:
    """Mark a function of numbers alone: a loss built inside a compiled function calls it while that compiles.

    This is the mark that torch.compiler.assume_constant_result sets, which would load the compiler: seconds,
    for all who never compile.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


# ---- checks: each error says what was seen and what is allowed ---------------------------


def number(value: Any, name: str, owner: str) -> float:
    """A float that is not NaN."""
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{owner}: {name} must be a number, got {value!r}") from None
    if math.isnan(result):
        raise ValueError(f"{owner}: {name} must be a number, got nan")
    return result


def finite(value: Any, name: str, owner: str) -> float:
    """A finite float."""
    result = number(value, name, owner)
    if math.isinf(result):
        raise ValueError(f"{owner}: {name} must be finite, got {result}")
    return result


def positive(value: Any, name: str, owner: str) -> float:
    """A finite float above 0."""
    result = number(value, name, owner)
    if not 0 < result < math.inf:
        raise ValueError(f"{owner}: {name} must be positive and finite, got {result}")
    return result


def at_least(lowest: float) -> Check:
    """The check for a finite float that is not below `lowest`."""

    def check(value: Any, name: str, owner: str) -> float:
        result = number(value, name, owner)
        if not lowest <= result < math.inf:
            raise ValueError(f"{owner}: {name} must be at least {lowest} and finite, got {result}")
        return result

    return check


def between(low: float, high: float, ends: str = "(]") -> Check:
    """The check for a float in an interval, whose `ends` say which of its ends belong to it."""

    def check(value: Any, name: str, owner: str) -> float:
        result = number(value, name, owner)
        above = result >= low if ends[0] == "[" else result > low
        below = result <= high if ends[1] == "]" else result < high
        if not (above and below):
            raise ValueError(f"{owner}: {name} must lie in {ends[0]}{low}, {high}{ends[1]}, got {result}")
        return result

    return check


def numbers(values: Any, name: str, owner: str) -> tuple[float, ...]:
    """A sequence, array or tensor of positive numbers as a tuple of floats."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise TypeError(f"{owner}: {name} must be a sequence of numbers, got {values!r}")
    return tuple(positive(value, f"{name}[{i}]", owner) for i, value in enumerate(values))


def class_counts(values: Any, name: str, owner: str) -> tuple[float, ...]:
    """Counts of at least two classes; whole ones stay whole for printing."""
    result = numbers(values, name, owner)
    if len(result) < 2:
        raise ValueError(f"{owner}: {name} needs at least 2 classes, got {len(result)}")
    return tuple(int(n) if n == int(n) else n for n in result)
