"""The paper's tables and figures, each as one command: `raresight paper NAME`.

Each writes its numbers (CSV) and, where there is something to see, a figure (SVG and PNG).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["ALL", "DEEP_NAMES", "NAMES", "OVERVIEW", "options_of", "reproduce"]

NAMES = ("table1", "figure1", "figure2", "figure3", "theorem2", "influence")
# Those with nets, each with the experiment of `raresight.paper.deep` that trains for it.
DEEP_NAMES = {
    "table2": "table2",
    "table4": "table4",
    "ablation-c": "ablation-c",
    "minority": "deer-horse",
    "brier": "deer-horse",
}
NAMES_WITH_DATA = ("fraud", *DEEP_NAMES)  # these need files that the user brings
OVERVIEW = "overview"  # of what the journals of nets have
ALL = "all"  # those without data, to the command
_FRAUD_OPTIONS = (
    "families",
    "methods",
    "jobs",
    "repeats",
    "device",
    "net_seeds",
    "net_epochs",
    "minutes",
    "results_only",
)
_DEEP_OPTIONS = (
    *("dataset", "size", "minutes", "device", "stack", "rhos", "results_only"),
    *("depth", "width", "complete", "checkpoints"),
)


def options_of(name: str) -> tuple[str, ...]:
    """What a table or figure takes beside folder and seed.

    >>> options_of("table1"), options_of("overview")
    ((), ('dataset',))
    """
    if name in NAMES:
        return ()
    if name == OVERVIEW:
        return ("dataset",)
    if name in NAMES_WITH_DATA:
        return ("data", *(_DEEP_OPTIONS if name in DEEP_NAMES else _FRAUD_OPTIONS))
    known = ", ".join((*NAMES, *NAMES_WITH_DATA, OVERVIEW, ALL))
    raise ValueError(f"unknown part of the paper {name!r}; known are {known}")


def reproduce(
    name: str,
    out: Path,
    seed: int = 0,
    tell: Callable[[str], None] = lambda message: None,
    **options: Any,
) -> list[Path]:
    """Write one table or figure of the paper under `out`; `tell` hears how far it is.

    Options are those of the part: `data`, `families`, `methods`, `jobs`, `repeats`, `device`, `net_seeds`,
    `net_epochs`, `minutes` and `results_only` of `fraud`; `data`, `dataset`, `size`, `minutes`, `device`,
    `stack`, `rhos` and `results_only` of those with nets alone; `dataset` of `overview`.
    """
    ours = options_of(name)
    if options and not ours:
        raise ValueError(f"{name} takes no {', '.join(options)}: it needs no data")
    strange = [option for option in options if option not in ours]
    if strange:
        raise ValueError(f"{name} takes no {', '.join(strange)}; its options are {', '.join(ours)}")
    # What needs data makes the folder once there are some, and what only shows results finds it.
    if name in NAMES:
        out.mkdir(parents=True, exist_ok=True)
    run = import_module(f".{name.replace('-', '_')}", __package__).run
    paths: list[Path] = run(out, seed, tell, **options)
    return paths
