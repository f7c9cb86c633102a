"""The table that `raresight analyze` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..theory.analysis import LossAnalysis

__all__ = ["analysis_table"]

ROWS = (
    ("monotone", "monotone"),
    ("convex", "convex"),
    ("one minimiser", "unique_minimiser"),
    ("bounded influence", "bounded_influence"),
    ("slope of the link", "link_slope"),
    ("index beta here", "beta"),
    ("index in the limit", "beta_limit"),
    ("constant c", "c"),
    ("information", "information"),
    ("its decay exponent", "decay"),
    ("explained fraction", "explained"),
)


def analysis_table(analyses: Sequence[LossAnalysis], experiment: str) -> RenderableType:
    """A column a loss, and a sentence for each underneath."""
    title = f"Prior {analyses[0].prior:g}; information on {experiment}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for analysis in analyses:
        table.add_column(escape(analysis.loss), justify="right", overflow="fold")
    for heading, key in ROWS:
        table.add_row(heading, *(shown(getattr(analysis, key)) for analysis in analyses))
    verdicts = [Text.assemble((analysis.loss, "bold"), ": ", analysis.verdict) for analysis in analyses]
    return Group(table, *verdicts)


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:.4g}"
