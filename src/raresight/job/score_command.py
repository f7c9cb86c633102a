"""Scoring on the terminal, with a bar."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from ..model.folder import load
from ..model.scoring import Scored, ScoringProgress, score_file

__all__ = ["score_with_progress"]


def score_with_progress(
    model: Path, data: Any, out: Path, keep: str | None, console: Console, quiet: bool
) -> str:
    """Score a file and say what was written."""
    loaded = load(model)
    columns = [name.strip() for name in keep.split(",") if name.strip()] if keep else []
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    with bar:
        task = bar.add_task("scoring", total=None)

        def listen(progress: ScoringProgress) -> None:
            text = f"{progress.rows:,} rows"
            bar.update(
                task, description=text, completed=progress.bytes_read, total=progress.total_bytes or None
            )

        scored = score_file(loaded, data, out, keep=columns, listener=listen)
    return _said(scored)


def _said(scored: Scored) -> str:
    share = scored.alerts / scored.rows
    lines = [f"{scored.out}: {scored.rows:,} rows, {scored.alerts:,} alerts ({share:.3%})"]
    for name, count in scored.unknown.items():
        lines.append(f"{name}: {count:,} values that training did not have, scored as missing")
    for name, count in scored.infinite.items():
        lines.append(f"{name}: {count:,} infinite values, scored as missing")
    return "\n".join(lines)
