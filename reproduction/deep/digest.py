"""An experiment in one table: each method at the chosen setting, at the paper's, and the paper's number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .report_text import Column, cell_text, cell_title, method_words, number, printed_cells
from .results import Result, Table

__all__ = ["DIGEST_TITLE", "digest"]

DIGEST_TITLE = "#### In one table"


def digest(
    printed: Table,
    column: Column,
    paper_column: Column,
    final: Sequence[Result],
    paper: Sequence[Result],
) -> list[str]:
    """Lines of Markdown: a row for each cell, length and method.

    Args:
        printed: The paper's numbers.
        column: What is shown of the chosen settings, with its difference to CE+LA.
        paper_column: What is shown of the paper's setting; the paper's number is of the same metric.
        final: Results at the chosen settings.
        paper: Results at the paper's setting, of the first draw.
    """
    has_draws = any(len(result.experiment.draws) > 1 for result in final)
    titles = (
        *("task", "method", f"chosen on validation: {column.full_title}"),
        *(["the same, first draw alone"] if has_draws else []),
        *(f"the paper's setting: {paper_column.full_title}", "the paper", "apart"),
    )
    lines = [DIGEST_TITLE, "", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for task, found in _by_task((*final, *paper)).items():
        chosen, fixed = found.get("final"), found.get("paper")
        for place, method in enumerate(next(iter(found.values())).records):
            first = "" if chosen is None else cell_text(chosen, method, column)
            rest = ["", "", ""] if fixed is None else _beside(printed, fixed, method, paper_column)
            words = method_words(chosen, method) if chosen else method
            # The paper's setting is trained on the first draw: this is what it can be compared with.
            alone = [_first_draw(chosen, method, column)] if has_draws else []
            # The task stands in the first of its rows alone.
            lines.append(f"| {' | '.join(['' if place else task, words, first, *alone, *rest])} |")
    return lines


def _by_task(results: Iterable[Result]) -> dict[str, dict[str, Result]]:
    """The results of each cell and length by role, in the order of the cells, the longest first."""
    found: dict[str, dict[str, Result]] = {}
    for result in sorted(results, key=lambda one: (one.experiment.cells.index(one.cell), -one.epochs)):
        found.setdefault(cell_title(result), {})[result.role] = result
    return found


def _first_draw(result: Result | None, method: str, column: Column) -> str:
    if result is None:
        return ""
    found = result.mean(method, column.metric, column.when).by_draw
    return number(column.metric, found[0]) if found else "-"


def _beside(printed: Table, result: Result, method: str, column: Column) -> list[str]:
    ours = result.mean(method, column.metric, column.when)
    shown = f"{number(column.metric, ours.mean)} ± {number(column.metric, ours.deviation)}"
    return [shown, *printed_cells(result.printed(printed, method, column.metric), ours, column.metric)]
