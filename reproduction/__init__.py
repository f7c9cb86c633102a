"""The paper's tables and figures, one command each: `python -m reproduction NAME`.

Each command writes its numbers (CSV) and, for most, a figure (SVG and PNG). The tool, `raresight`, never
imports this package.
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

# The function of each part.
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
# The parts with nets on images, and the experiment of `reproduction.experiments` that they show.
DEEP_NAMES = {
    "table2": "table2",
    "table4": "table4",
    "ablation-c": "ablation-c",
    "minority": "deer-horse",
    "brier": "deer-horse",
}
NAMES_WITH_DATA = ("fraud", *DEEP_NAMES)  # these need files of the user
OVERVIEW = "overview"  # all results in the journals of nets
ANCHOR = "anchor"  # published accuracies of other authors, trained again
DOCS = "docs"  # numbers and tables in the pages of docs/
SIMULATE = "simulate"  # lines on the user's own clusters
ALL = "all"  # on the command line: all in NAMES
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
    """Time ran out before there was a result to show. Finished trainings are kept."""


def options_of(name: str) -> tuple[str, ...]:
    """Return the options of a table or figure, besides folder and seed.

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
    # Parts with data create the folder when they have results; parts that show results need an existing one.
    if name in (*NAMES, SIMULATE):
        out.mkdir(parents=True, exist_ok=True)
    module, _, function = _FUNCTIONS[name].rpartition(".")
    paths: list[Path] = getattr(import_module(f".{module}", __package__), function)(
        out, seed, tell, **options
    )
    return paths
