"""What the commands share: a console for progress, and how errors and warnings are shown."""

from __future__ import annotations

import sys
from typing import IO, cast

from rich.console import Console

from ..common.progress import FaultTolerantStream

__all__ = ["plain", "progress_console", "show_error", "show_warning"]


def progress_console() -> Console:
    return Console(file=cast(IO[str], FaultTolerantStream(sys.stderr)))


def show_error(error: Exception) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {plain(error)}", highlight=False, soft_wrap=True)


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    Console(stderr=True).print(f"[bold yellow]warning:[/] {plain(message)}", highlight=False, soft_wrap=True)


def plain(error: Exception | str) -> str:
    from rich.markup import escape

    return escape(str(error) or type(error).__name__)
