"""A run on the terminal: stages, a table of candidates with the best so far, the time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..automl.fitting import Listener, Step
from ..automl.search import Progress

__all__ = ["shown"]

_ROWS = 8


@contextmanager
def shown(console: Console, quiet: bool) -> Iterator[Listener]:
    """A listener that shows a run: live on a terminal, as lines in a log, not at all if quiet."""
    if quiet:
        yield _nothing
    elif console.is_terminal:
        with Live(console=console, refresh_per_second=4, transient=True) as live:
            yield _LiveView(console, live)
    else:
        yield _Lines(console)


def _nothing(step: Step) -> None:
    """Quiet."""


class _LiveView:
    """The stage and the table, redrawn in place; what lasts is printed above it."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console, self._live = console, live

    def __call__(self, step: Step) -> None:
        if step.columns:
            self._live.console.print(Text(step.columns), soft_wrap=True)
        for note in step.notes:
            self._live.console.print(Text("warning: ", style="bold yellow") + Text(note), soft_wrap=True)
        self._live.update(_view(step), refresh=True)


class _Lines:
    """A line a stage, and one whenever there is a new best."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stage = ""
        self._best: int | None = None

    def __call__(self, step: Step) -> None:
        if step.stage != self._stage:
            self._stage = step.stage
            self._console.print(Text(step.stage), soft_wrap=True)
        if step.columns:
            self._console.print(Text(step.columns), soft_wrap=True)
        for note in step.notes:
            self._console.print(Text(f"warning: {note}"), soft_wrap=True)
        best = None if step.progress is None else step.progress.best
        if step.progress is not None and best is not None and best.number != self._best:
            self._best = best.number
            done = f"{step.progress.done}" + (f" of {step.progress.total}" if step.progress.total else "")
            self._console.print(
                Text(f"  {done} candidates: partial AUC {best.partial_auc:.4f}, {best.candidate.describe()}"),
                soft_wrap=True,
            )


def _view(step: Step) -> RenderableType:
    if step.progress is None:
        return Text(step.stage)
    return Group(Text(step.stage), _summary(step.progress), _table(step.progress))


def _summary(progress: Progress) -> RenderableType:
    line = Table.grid(padding=(0, 2))
    total = progress.total
    counted = f"{progress.done} of {total} candidates" if total else f"{progress.done} candidates"
    left = "" if progress.seconds_left is None else f"about {_time(progress.seconds_left)} left"
    share = 0.0
    if progress.seconds_left is not None and progress.seconds + progress.seconds_left > 0:
        share = progress.seconds / (progress.seconds + progress.seconds_left)
    line.add_row(ProgressBar(100, 100 * share, width=30), counted, _time(progress.seconds), left)
    return line


def _table(progress: Progress) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for name, justify in (("", "right"), ("model", "left"), ("partial AUC", "right"), ("recall", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    complete = [trial for trial in progress.trials if trial.partial_auc is not None]
    leaders = sorted(complete, key=lambda trial: (-(trial.partial_auc or 0), -(trial.recall or 0)))
    for place, trial in enumerate(leaders[:_ROWS], 1):
        style = "bold green" if place == 1 else ""
        table.add_row(
            str(place),
            Text(trial.candidate.describe()),
            "" if trial.partial_auc is None else f"{trial.partial_auc:.4f}",
            "" if trial.recall is None else f"{trial.recall:.4f}",
            style=style,
        )
    return table


def _time(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
