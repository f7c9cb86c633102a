"""The paper's tables and figures, each as one command: `raresight paper NAME`.

Each writes its numbers (CSV) and, where there is something to see, a figure (SVG and PNG).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

__all__ = ["NAMES", "reproduce"]

NAMES = ("table1", "figure1", "figure2", "figure3", "theorem2", "influence")


def reproduce(
    name: str, out: Path, seed: int = 0, tell: Callable[[str], None] = lambda message: None
) -> list[Path]:
    """Write one table or figure of the paper under `out`; `tell` hears how far it is."""
    if name not in NAMES:
        raise ValueError(f"unknown part of the paper {name!r}; known are {', '.join(NAMES)}")
    out.mkdir(parents=True, exist_ok=True)
    run = import_module(f".{name}", __package__).run
    paths: list[Path] = run(out, seed, tell)
    return paths
