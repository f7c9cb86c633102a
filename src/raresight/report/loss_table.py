"""The table of losses that `raresight losses` prints."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from ..losses import Loss

__all__ = ["loss_rows", "loss_table", "markdown_table"]


def loss_rows(losses: Iterable[Loss]) -> list[dict[str, Any]]:
    """One record a loss: text, name, parameters, properties, formula."""
    return [
        {
            "loss": str(loss),
            "name": loss.name,
            "parameters": {key: _plain(value) for key, value in loss.parameters().items()},
            "monotone": loss.is_monotone,
            "convex": loss.is_convex,
            "unique_minimiser": loss.has_unique_minimiser,
            "formula": loss.formula,
        }
        for loss in losses
    ]


def loss_table(losses: Iterable[Loss]) -> Table:
    """The same for a terminal."""
    title = "Losses (p: probability of the true class, m: margin)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("parameters", no_wrap=True)
    for heading in ("mono-\ntone", "con-\nvex", "one\nmin."):
        table.add_column(heading, justify="center")
    table.add_column("formula", overflow="fold")
    for row in loss_rows(losses):
        parameters = "\n".join(f"{key}={_shown(value)}" for key, value in row["parameters"].items())
        marks = ("yes" if row[key] else "no" for key in ("monotone", "convex", "unique_minimiser"))
        table.add_row(row["name"], escape(parameters) or "-", *marks, escape(row["formula"]))
    return table


def markdown_table(kinds: Iterable[type[Loss]]) -> str:
    """The table of the docs: how each loss is made, its formula, where it is convex, its link."""
    lines = ["| loss | l | convex in z | link: log-odds at score z |", "|---|---|---|---|"]
    for kind in kinds:
        convexity = kind.convexity or ("yes" if kind.example().is_convex else "no")
        lines.append(f"| `{_call(kind)}` | {kind.formula} | {convexity} | {kind.link} |")
    return "\n".join(lines)


def _call(kind: type[Loss]) -> str:
    """How it is made, with its defaults."""
    written = []
    for one in inspect.signature(kind).parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY:
            written.append("...")
            break
        is_needed = one.default in (inspect.Parameter.empty, None)
        written.append(one.name if is_needed else f"{one.name}={one.default}")
    return f"{kind.__name__}({', '.join(written)})"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    is_number = isinstance(value, (int, float)) and math.isfinite(value)  # JSON has no infinity
    return value if is_number else str(value)


def _shown(value: Any) -> str:
    return "(" + ", ".join(map(_shown, value)) + ")" if isinstance(value, list) else f"{value}"
