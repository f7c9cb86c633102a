"""A training on the screen: a table that is redrawn on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Protocol, cast

from ..common.progress import FaultTolerantStream
from .training_record import Row

__all__ = ["Listener", "Moment", "shown"]

_TABLE_ROWS = 8
# Lines of a log come at least this far apart, unless they have news.
_SECONDS_BETWEEN_LINES = 2.0


@dataclass(frozen=True)
class Moment:
    """Where a training stands.

    Attributes:
        epoch: Epochs that are finished.
        epochs: Epochs in all.
        seconds_left: An estimate; 0 at the end, which may come before the last epoch.
        rows: The newest row of each replica with metrics, empty where nothing is evaluated.
        best_by: The metric by which replicas are ordered.
        names: Loss and seed of each replica.
        frozen: How many replicas are frozen.
        news: What is to be said once, such as that a replica was frozen.
    """

    epoch: int
    epochs: int
    seconds_left: float
    rows: Sequence[Row]
    best_by: str | None
    names: Sequence[str]
    frozen: int
    news: Sequence[str]


class Listener(Protocol):
    def __call__(self, moment: Moment) -> None: ...


@contextmanager
def shown(progress: bool) -> Iterator[Listener]:
    """A listener that shows a training on stderr: live on a terminal if rich is installed, else as lines.

    A process without stderr, such as a service, is shown nothing.
    """
    if not progress or sys.stderr is None:
        yield _nothing
        return
    stream = FaultTolerantStream(sys.stderr)
    live = _live_view(stream) if stream.isatty() else None
    if live is None:
        yield _Lines(stream)
        return
    with live:
        yield live


def _nothing(moment: Moment) -> None:
    """Quiet."""


class _Lines:
    def __init__(self, stream: FaultTolerantStream) -> None:
        self._stream, self._next = stream, 0.0

    def __call__(self, moment: Moment) -> None:
        for text in moment.news:
            self._stream.write(f"{text}\n")
        if time.monotonic() >= self._next or moment.seconds_left == 0:
            self._next = time.monotonic() + _SECONDS_BETWEEN_LINES
            self._stream.write(f"{_summary(moment)}\n")
            self._stream.flush()


def _live_view(stream: FaultTolerantStream) -> Any:
    """The table of rich, or None where rich is not installed."""
    try:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None

    class LiveView:
        def __init__(self) -> None:
            console = Console(file=cast(IO[str], stream))
            self._live = Live(console=console, refresh_per_second=4, transient=True)

        def __enter__(self) -> None:
            self._live.__enter__()

        def __exit__(self, *error: Any) -> None:
            self._live.__exit__(*error)

        def __call__(self, moment: Moment) -> None:
            for text in moment.news:
                self._live.console.print(Text(text, style="yellow"), soft_wrap=True)
            table = Table()
            table.add_column("replica")
            best = _ordered(moment)[:_TABLE_ROWS]
            metrics = [name for name, value in best[0].items() if _is_metric(name, value)] if best else []
            for name in metrics:
                table.add_column(name, justify="right")
            for row in best:
                values = ["" if row[name] is None else f"{row[name]:.4f}" for name in metrics]
                table.add_row(moment.names[row["replica"]], *values)
            self._live.update(Group(Text(_summary(moment)), table), refresh=True)

    return LiveView()


def _is_metric(name: str, value: Any) -> bool:
    """The metrics that matter first, so that the table fits a screen; of classes not each one."""
    starts = ("roc_auc", "partial_auc", "recall", "balanced_accuracy", "minority_accuracy")
    return name == "accuracy" or (name.startswith(starts) and not isinstance(value, str))


def _ordered(moment: Moment) -> list[Row]:
    """The rows with metrics, the best first, without replicas that are frozen."""
    name = moment.best_by or ""
    sound = [row for row in moment.rows if row.get(name) is not None and not row.get("frozen")]
    return sorted(sound, key=lambda row: -row[name])


def _summary(moment: Moment) -> str:
    parts = [f"epoch {moment.epoch}/{moment.epochs}", f"{_duration(moment.seconds_left)} left"]
    best = _ordered(moment)
    if best:
        parts.append(
            f"best {moment.best_by} {best[0][str(moment.best_by)]:.4f} "
            f"(replica {best[0]['replica']}, {moment.names[best[0]['replica']]})"
        )
    if moment.frozen:
        parts.append(f"{moment.frozen} of {len(moment.names)} frozen")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    """
    >>> _duration(42), _duration(600), _duration(7300)
    ('42 s', '10 min', '2 h 2 min')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
