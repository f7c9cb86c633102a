"""The paper's tables and figures, each as one command: `raresight paper NAME`.

Each writes its numbers (CSV) and, where there is something to see, a figure (SVG and PNG).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["NAMES", "reproduce"]

NAMES = ("table1", "figure1", "figure2", "figure3", "theorem2", "influence")
NAMES_WITH_DATA = ("fraud",)  # these need a file that the user brings


def reproduce(
    name: str,
    out: Path,
    seed: int = 0,
    tell: Callable[[str], None] = lambda message: None,
    **options: Any,
) -> list[Path]:
    """Write one table or figure of the paper under `out`; `tell` hears how far it is.

    Options are those of the part: `data`, `families`, `methods`, `jobs` and `repeats` of `fraud`.
    """
    if name not in (*NAMES, *NAMES_WITH_DATA):
        known = ", ".join((*NAMES, *NAMES_WITH_DATA))
        raise ValueError(f"unknown part of the paper {name!r}; known are {known}")
    if options and name not in NAMES_WITH_DATA:
        raise ValueError(f"{name} takes no {', '.join(options)}: it needs no data")
    out.mkdir(parents=True, exist_ok=True)
    run = import_module(f".{name}", __package__).run
    paths: list[Path] = run(out, seed, tell, **options)
    return paths
