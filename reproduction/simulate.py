"""The two-dimensional demonstration: clusters, and the lines that losses learn on them."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from raresight.losses import Loss
from raresight.report.analysis_input import find_loss
from raresight.theory.gaussian import GaussianMixture, best_linear_auc, linear_auc, population_minimiser
from raresight.theory.linear_rule import LinearRule

from .lines import draw_line
from .output import COLOURS, figure_with_axes, save_figure

__all__ = ["read_clusters", "run"]

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


def run(
    out: Path,
    seed: int,
    tell: Callable[[str], None],
    *,
    losses: Sequence[str] = DEFAULT_LOSSES,
    clusters: Path | None = None,
    prior: float = 1 / 501,
) -> list[Path]:
    """Draw points of both classes and the line of each loss's population minimiser; print the rules."""
    chosen = [find_loss(text) for text in losses]
    minority, majority = read_clusters(clusters)
    rules = []
    for loss in chosen:
        tell(str(loss))
        rules.append(population_minimiser(loss, minority, majority, prior))
    figure, (ax,) = figure_with_axes(1, width=7, height=6)
    positives, negatives = minority.sample(300, seed), majority.sample(6000, seed + 1)
    ax.plot(*negatives.T, ".", color="#56B4E9", markersize=1.5, alpha=0.5, label="majority", rasterized=True)
    ax.plot(*positives.T, ".", color="#D55E00", markersize=3, label="minority")
    limits = ax.get_xlim(), ax.get_ylim()
    for i, (loss, rule) in enumerate(zip(chosen, rules, strict=True)):
        draw_line(ax, rule, label=str(loss), color=COLOURS[i % len(COLOURS)])
    ax.set(xlim=limits[0], ylim=limits[1], title=f"lines of equal odds at prior {prior:.3g}")
    ax.legend(fontsize=8)
    sys.stdout.write(_table(chosen, rules, minority, majority, prior))
    return save_figure(figure, out / "simulation")


def _table(
    losses: Sequence[Loss],
    rules: Sequence[LinearRule],
    minority: GaussianMixture,
    majority: GaussianMixture,
    prior: float,
) -> str:
    """Direction, intercept and AUC of each rule, and the best AUC that any line has."""
    best = best_linear_auc(minority, majority)
    width = max(len("loss"), *(len(str(loss)) for loss in losses))
    titles = "".join(title.rjust(10) for title in ("w1", "w2", "b", "angle", "AUC"))
    lines = [
        f"Linear rules at prior {prior:.4g}; no line has an AUC above {best.auc:.6f}",
        f"{'loss':{width}}{titles}",
    ]
    for loss, rule in zip(losses, rules, strict=True):
        auc = float(linear_auc(rule.w, minority, majority))
        numbers = (*(f"{value:.4f}" for value in (*rule.w, rule.b)), f"{rule.angle:.2f}", f"{auc:.6f}")
        lines.append(f"{loss!s:{width}}{''.join(number.rjust(10) for number in numbers)}")
    return "\n".join(lines) + "\n"
