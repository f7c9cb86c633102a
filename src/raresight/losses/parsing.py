"""Losses as text: `tbl(alpha=0.8,C=0.5)`, on the command line and in files."""

from __future__ import annotations

import ast
import difflib
import inspect
import math
from collections.abc import Callable
from typing import Any

from .alpha import Alpha
from .class_weighted import ClassWeighted
from .contract import Loss
from .cross_entropy import CrossEntropy
from .erf import Erf
from .focal import Focal
from .ldam import LDAM
from .logit_adjusted import LogitAdjusted
from .poly import Poly
from .squared import Squared
from .tbl import TBL
from .vector_scaling import VectorScaling

__all__ = ["all_losses", "parse"]

_LOSSES: dict[str, type[Loss]] = {
    kind.name: kind
    for kind in (
        CrossEntropy,
        Squared,
        Erf,
        Focal,
        Poly,
        Alpha,
        TBL,
        VectorScaling,
        LDAM,
        LogitAdjusted,
        ClassWeighted,
    )
}


# What papers call them.
_SHORT_NAMES = {
    "ce": "crossentropy",
    "bce": "crossentropy",
    "fl": "focal",
    "vs": "vectorscaling",
    "la": "logitadjusted",
}


def all_losses() -> tuple[Loss, ...]:
    """One of every loss: the defaults, and an imbalance of 1 in 100 where a loss asks for one."""
    return (
        CrossEntropy(),
        Squared(),
        Erf(),
        Focal(),
        Poly(),
        Alpha(),
        TBL(),
        VectorScaling(0.5),
        LDAM((9900, 100)),
        LogitAdjusted(CrossEntropy(), prior=0.01),
        ClassWeighted(CrossEntropy(), (1.0, 99.0)),
    )


def parse(text: str) -> Loss:
    """The loss that `text` names; `str(loss)` is read back as an equal loss.

    Names without parentheses take the defaults. Compositions nest:
    `logitadjusted(focal(gamma=1.0),prior=0.01)`.

    >>> parse("tbl(alpha=0.7)")
    TBL(alpha=0.7, C=0.5)
    """
    if not isinstance(text, str):
        raise TypeError(f"parse takes a text such as 'tbl(alpha=0.8,C=0.5)', got {text!r}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(
            f"cannot read {text!r} as a loss; write for example 'tbl(alpha=0.8,C=0.5)'"
        ) from None
    result = _read(tree, text)
    if not isinstance(result, Loss):
        raise ValueError(f"{text!r} is not a loss; known are {', '.join(_LOSSES)}")
    return result


def _read(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Name):
        return math.inf if node.id.lower() == "inf" else _build(node.id, [], {}, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        arguments = [_read(item, text) for item in node.args]
        keywords = {item.arg: _read(item.value, text) for item in node.keywords if item.arg}
        if len(keywords) != len(node.keywords):
            raise ValueError(f"cannot read {text!r}: ** is not understood")
        return _build(node.func.id, arguments, keywords, text)
    if isinstance(node, (ast.Tuple, ast.List)):
        return tuple(_read(item, text) for item in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        number = _read(node.operand, text)
        if isinstance(number, (int, float)):
            return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    raise ValueError(f"cannot read {ast.unparse(node)!r} in {text!r}: expected a number, a list or a loss")


def _build(name: str, arguments: list[Any], keywords: dict[str, Any], text: str) -> Loss:
    kind = _LOSSES.get(name.lower())
    if kind is None:
        short = _SHORT_NAMES.get(name.lower())
        near = [short] if short else difflib.get_close_matches(name.lower(), _LOSSES, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ValueError(f"unknown loss {name!r} in {text!r}{hint}; known are {', '.join(_LOSSES)}")
    make: Callable[..., Loss] = kind
    if kind is VectorScaling and "class_counts" in keywords:
        make = VectorScaling.from_counts
    signature = inspect.signature(make)
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as error:
        raise ValueError(f"{text!r}: {error}; {name.lower()} takes {_takes(signature)}") from None
    return make(*arguments, **keywords)


def _takes(signature: inspect.Signature) -> str:
    described = []
    for parameter in signature.parameters.values():
        needed = parameter.default is inspect.Parameter.empty
        described.append(parameter.name if needed else f"{parameter.name}={parameter.default}")
    return ", ".join(described) if described else "no parameters"
