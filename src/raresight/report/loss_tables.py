"""The losses as a table on the terminal, a table of the docs, and a picture."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from ..losses import Loss, RankingLoss
from .drawing import COLOURS, figure_class, picture_path, save

__all__ = ["draw_losses", "loss_rows", "loss_table", "markdown_table", "short_label"]


_MARKS = {True: "yes", False: "no", None: "-"}


def loss_rows(losses: Iterable[Loss | RankingLoss]) -> list[dict[str, Any]]:
    """Return one record per loss: text, name, parameters, properties, link, formula.

    A ranking loss has no link, and none of the properties of a function of one score.
    """
    return [
        {
            "loss": str(loss),
            "name": loss.name,
            "parameters": {key: _plain(value) for key, value in loss.parameters().items()},
            "monotone": loss.is_monotone if isinstance(loss, Loss) else None,
            "convex": loss.is_convex if isinstance(loss, Loss) else None,
            "unique_minimiser": loss.has_unique_minimiser if isinstance(loss, Loss) else None,
            "link": loss.link if isinstance(loss, Loss) else "no link",
            "formula": loss.formula,
        }
        for loss in losses
    ]


def loss_table(losses: Iterable[Loss | RankingLoss]) -> Table:
    """Return the table of the losses for a terminal."""
    title = "Losses (p: probability of the true class, m: margin)"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("name", no_wrap=True, style="bold")
    table.add_column("parameters", no_wrap=True)
    for heading in ("mono-\ntone", "con-\nvex", "one\nmin."):
        table.add_column(heading, justify="center")
    table.add_column("formula", overflow="fold")
    for row in loss_rows(losses):
        parameters = "\n".join(f"{key}={_shown(value)}" for key, value in row["parameters"].items())
        marks = (_MARKS[row[key]] for key in ("monotone", "convex", "unique_minimiser"))
        formula = row["formula"] + ("; no link" if row["link"] == "no link" else "")
        table.add_row(row["name"], escape(parameters) or "-", *marks, escape(formula))
    return table


def markdown_table(kinds: Iterable[type[Loss]]) -> str:
    """Return the table of the docs: constructor, formula, convexity and link of each loss."""
    lines = ["| loss | l | convex in z | link: log-odds at score z |", "|---|---|---|---|"]
    for kind in kinds:
        convexity = kind.convexity or ("yes" if kind.example().is_convex else "no")
        lines.append(f"| `{_call(kind)}` | {kind.formula} | {convexity} | {kind.link} |")
    return "\n".join(lines)


def _call(kind: type[Loss]) -> str:
    """Return the constructor call with its defaults."""
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


_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)))


def draw_losses(losses: Sequence[Loss | RankingLoss], path: Path | str) -> Path:
    """Draw l(1, z) and -dl(1, z)/dz of each loss to a PNG, SVG or PDF file.

    Losses that need class logits have no curve over a score and are refused.
    """
    make_figure = figure_class()
    drawn = [loss for loss in losses if isinstance(loss, Loss)]
    if len(drawn) < len(losses):
        raise ValueError("ranking losses compare rows; only losses of one score can be drawn")
    for loss in drawn:
        if not loss.takes_score:
            raise ValueError(f"{loss} is for class logits; only losses of a binary score can be drawn")
    target = picture_path(path)
    z = np.linspace(-6, 6, 601)
    positive = np.ones_like(z)
    figure = make_figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, loss in enumerate(drawn):
        value, gradient = loss.derivatives(z, positive, order=1)
        style = {
            "label": short_label(loss),
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": _DASHES[i // len(COLOURS) % len(_DASHES)],
            "linewidth": 1.6,
        }
        left.plot(z, value, **style)
        right.plot(z, -gradient, **style)
    left.set(title="loss of a positive, l(1, z)", xlabel="score z", ylim=(0, 12), xlim=(-6, 6))
    right.set(
        title="pull on a positive, -dl(1, z)/dz",
        xlabel="score z",
        xlim=(-6, 6),
        yscale="log",
        ylim=(1e-3, 50),
    )
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return save(figure, target)


def short_label(loss: Loss) -> str:
    """Return the loss's text, shortened to the first parameter if it is long."""
    text = str(loss)
    return text if len(text) <= 34 else f"{text.split(',')[0]},...)"
