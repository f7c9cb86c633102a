"""Write results: a table of numbers, and a figure in two formats."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raresight.common.atomic_files import write_file, write_files
from raresight.report.drawing import figure_class

PICTURES = (".svg", ".png")
"""Suffixes of the files of a figure."""


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Write records as a CSV file; see `rows_text`."""
    return write_file(path, rows_text(rows))


def rows_text(rows: Sequence[dict[str, Any]]) -> str:
    """Format records as CSV, with all digits of floats."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _number(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def figure_with_axes(
    columns: int, width: float = 11.0, height: float = 4.6, rows: int = 1
) -> tuple[Any, list[Any]]:
    """Create a figure and its panels, row by row."""
    figure = figure_class()(figsize=(width, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes:
        ax.grid(alpha=0.25)
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save_figure(figure: Any, path: Path) -> list[Path]:
    """Write a figure as SVG and PNG."""
    return write_files(figure_files(figure, path))


def figure_files(figure: Any, path: Path) -> dict[Path, bytes]:
    """Return the contents of the SVG and PNG files of a figure, with equal bytes on every run."""
    import matplotlib

    options: dict[str, dict[str, Any]] = {".svg": {"metadata": {"Date": None}}, ".png": {"dpi": 130}}
    found = {}
    with matplotlib.rc_context({"svg.hashsalt": path.stem}):
        for ending in PICTURES:
            content = io.BytesIO()
            figure.savefig(content, format=ending.removeprefix("."), **options[ending])
            found[path.with_suffix(ending)] = content.getvalue()
    return found


def _number(value: Any) -> Any:
    return (
        repr(float(value))
        if hasattr(value, "__float__") and not isinstance(value, (int, str, bool))
        else value
    )
