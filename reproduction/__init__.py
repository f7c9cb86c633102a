"""The paper's tables and figures, each as one command: `python -m reproduction NAME`.

Each writes its numbers (CSV) and, where there is something to see, a figure (SVG and PNG). The tool,
`raresight`, never imports this package.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = [
    "ALL",
    "ANCHOR",
    "DEEP_NAMES",
    "DOCS",
    "NAMES",
    "OVERVIEW",
    "PARTS",
    "SIMULATE",
    "UnfinishedError",
    "options_of",
    "reproduce",
]

# Each part with the function that makes it.
_FUNCTIONS = {
    "table1": "theory_tables.table1",
    "figure1": "gaussian_figures.figure1",
    "figure2": "gaussian_figures.figure2",
    "figure3": "gaussian_figures.figure3",
    "theorem2": "theory_tables.theorem2",
    "influence": "theory_tables.influence",
    "fraud": "fraud.experiment.run",
    "table2": "experiments.pages.table2",
    "table4": "experiments.pages.table4",
    "ablation-c": "experiments.ablation_c.run",
    "minority": "experiments.pages.minority",
    "brier": "experiments.pages.brier",
    "overview": "experiments.overview.run",
    "anchor": "experiments.anchor.run",
    "docs": "docs.run",
    "simulate": "gaussian_figures.simulate",
}
NAMES = ("table1", "figure1", "figure2", "figure3", "theorem2", "influence")
# The parts with nets on images, each with the experiment of `reproduction.experiments` that trains for it.
DEEP_NAMES = {
    "table2": "table2",
    "table4": "table4",
    "ablation-c": "ablation-c",
    "minority": "deer-horse",
    "brier": "deer-horse",
}
NAMES_WITH_DATA = ("fraud", *DEEP_NAMES)  # these need files that the user brings
OVERVIEW = "overview"  # of what the journals of nets have
ANCHOR = "anchor"  # published accuracies of other authors, trained again
DOCS = "docs"  # numbers and tables in the pages of docs/
SIMULATE = "simulate"  # lines on the user's own clusters
ALL = "all"  # those without data, to the command
PARTS = (*NAMES, *NAMES_WITH_DATA, OVERVIEW, DOCS, ANCHOR, SIMULATE, ALL)
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
    "train_only",
    "plan",
    "figures",
)
_DEEP_OPTIONS = (
    *("dataset", "size", "minutes", "device", "stack", "rhos", "roles", "results_only", "train_only", "plan"),
    *("depth", "width", "complete", "checkpoints", "figures"),
)
_ANCHOR_OPTIONS = ("data", "size", "minutes", "device", "depth", "width", "complete", "checkpoints")


class UnfinishedError(ValueError):
    """Time ran out before there was a result to show; what was trained is kept."""


def options_of(name: str) -> tuple[str, ...]:
    """The options of a table or figure, besides folder and seed.

    >>> options_of("table1"), options_of("overview")
    ((), ('dataset',))
    """
    if name in (*NAMES, DOCS):
        return ()
    if name == OVERVIEW:
        return ("dataset",)
    if name == ANCHOR:
        return _ANCHOR_OPTIONS
    if name == SIMULATE:
        return ("losses", "clusters", "prior")
    if name in NAMES_WITH_DATA:
        return ("data", *(_DEEP_OPTIONS if name in DEEP_NAMES else _FRAUD_OPTIONS))
    raise ValueError(f"unknown part of the paper {name!r}; known are {', '.join(PARTS)}")


def reproduce(
    name: str,
    out: Path,
    seed: int = 0,
    tell: Callable[[str], None] = lambda message: None,
    **options: Any,
) -> list[Path]:
    """Write one table or figure of the paper under `out`; `tell` is called with each line of progress.

    `options_of(name)` has the options that a part takes; `python -m reproduction --help` says what they mean.
    """
    ours = options_of(name)
    if options and not ours:
        raise ValueError(f"{name} takes no {', '.join(options)}: it needs no data")
    strange = [option for option in options if option not in ours]
    if strange:
        raise ValueError(f"{name} takes no {', '.join(strange)}; its options are {', '.join(ours)}")
    # What needs data makes the folder once there are some, and what only shows results finds it.
    if name in (*NAMES, SIMULATE):
        out.mkdir(parents=True, exist_ok=True)
    module, _, function = _FUNCTIONS[name].rpartition(".")
    paths: list[Path] = getattr(import_module(f".{module}", __package__), function)(
        out, seed, tell, **options
    )
    return paths
