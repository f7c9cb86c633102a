"""The two-dimensional demonstration: clusters, and the lines that losses learn on them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from ..losses import Loss
from ..theory.erm import LinearRule
from ..theory.gaussian import GaussianMixture, best_linear_auc, linear_auc, population_minimiser
from .drawing import COLOURS, figure_class
from .lines import draw_line

__all__ = ["DEFAULT_LOSSES", "draw_simulation", "read_clusters", "simulation_table"]

DEFAULT_LOSSES = (
    "crossentropy",
    "focal(gamma=2)",
    "alpha(alpha=0.7)",
    "alpha(alpha=0.5)",
    "tbl(alpha=0.7,C=0.5)",
)

# Section 2.3 of the paper.
PAPER = {
    "minority": {
        "weights": [0.5, 0.5],
        "means": [[-2.0, 2.0], [-2.0, -2.0]],
        "covariances": [[[0.5, 0.0], [0.0, 5.0]], [[5.0, 0.0], [0.0, 0.5]]],
    },
    "majority": {
        "weights": [0.5, 0.5],
        "means": [[2.0, 2.0], [2.0, -2.0]],
        "covariances": [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]],
    },
}


def read_clusters(path: Path | None) -> tuple[GaussianMixture, GaussianMixture]:
    """[minority] and [majority] of a TOML file, each with weights, means and covariances."""
    config: dict[str, Any] = PAPER
    if path is not None:
        try:
            config = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path} is not valid TOML: {error}") from error
    mixtures = []
    for side in ("minority", "majority"):
        section = config.get(side)
        wanted = ("weights", "means", "covariances")
        if not isinstance(section, dict) or not all(key in section for key in wanted):
            raise ValueError(f"{path} needs a section [{side}] with {', '.join(wanted)}")
        mixture = GaussianMixture(*(section[key] for key in wanted))
        if mixture.dim != 2:
            raise ValueError(
                f"{path}: the clusters of [{side}] have {mixture.dim} dimensions; a picture needs 2"
            )
        mixtures.append(mixture)
    return mixtures[0], mixtures[1]


def draw_simulation(
    losses: Sequence[Loss],
    minority: GaussianMixture,
    majority: GaussianMixture,
    prior: float,
    path: Path,
    seed: int,
) -> list[LinearRule]:
    """Draw points of both classes and the line of each loss's population minimiser; returns those."""
    rules = [population_minimiser(loss, minority, majority, prior) for loss in losses]
    figure = figure_class()(figsize=(7, 6), layout="constrained")
    ax = figure.subplots()
    positives, negatives = minority.sample(300, seed), majority.sample(6000, seed + 1)
    ax.plot(*negatives.T, ".", color="#56B4E9", markersize=1.5, alpha=0.5, label="majority")
    ax.plot(*positives.T, ".", color="#D55E00", markersize=3, label="minority")
    limits = ax.get_xlim(), ax.get_ylim()
    for i, (loss, rule) in enumerate(zip(losses, rules, strict=True)):
        draw_line(ax, rule, label=str(loss), color=COLOURS[i % len(COLOURS)])
    ax.set(xlim=limits[0], ylim=limits[1], title=f"lines of equal odds at prior {prior:.3g}")
    ax.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=140)
    return rules


def simulation_table(
    losses: Sequence[Loss],
    rules: Sequence[LinearRule],
    minority: GaussianMixture,
    majority: GaussianMixture,
    prior: float,
) -> Table:
    """Direction, intercept and AUC of each rule, and the best AUC that any line has."""
    best = best_linear_auc(minority, majority)
    title = f"Linear rules at prior {prior:.4g}; no line has an AUC above {best.auc:.6f}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("loss")
    for heading in ("w1", "w2", "b", "angle", "AUC"):
        table.add_column(heading, justify="right")
    for loss, rule in zip(losses, rules, strict=True):
        auc = float(linear_auc(rule.w, minority, majority))
        table.add_row(
            escape(str(loss)), *(f"{v:.4f}" for v in (*rule.w, rule.b)), f"{rule.angle:.2f}", f"{auc:.6f}"
        )
    return table
