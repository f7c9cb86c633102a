"""Theorem 2, corrected: limits of the population classifier against exact minimisers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from raresight.losses import TBL, Alpha, CrossEntropy, Erf, Focal, Loss, Poly, VectorScaling
from raresight.theory.gaussian import linear_auc, population_minimiser
from raresight.theory.limits import limiting_rule

from .mixtures import paper_mixture, single_clusters
from .output import COLOURS, figure_with_axes, save_figure, short_label, write_rows

LOSSES: tuple[Loss, ...] = (
    CrossEntropy(),
    Erf(),
    Focal(2.0),
    Poly(1.0),
    VectorScaling(0.5),
    Alpha(0.3),
    Alpha(0.7),
    TBL(0.7, 0.5),
)
PRIORS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)


def run(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    rows: list[dict[str, Any]] = []
    mixtures = {"one cluster each": single_clusters(), "section 2.3": paper_mixture()}
    figure, axes = figure_with_axes(2)
    for ax, (name, (minority, majority)) in zip(axes, mixtures.items(), strict=True):
        for i, loss in enumerate(LOSSES):
            tell(f"{name}: {loss}")
            limit = limiting_rule(loss, minority, majority)
            gaps = []
            for prior in PRIORS:
                exact, predicted = population_minimiser(loss, minority, majority, prior), limit.at(prior)
                gap = float(np.linalg.norm(exact.w - predicted.w) / np.linalg.norm(exact.w))
                gaps.append(gap)
                rows.append(
                    {
                        "mixture": name,
                        "loss": str(loss),
                        "prior": prior,
                        **{f"w{k + 1}": value for k, value in enumerate(exact.w)},
                        "b": exact.b,
                        **{f"limit_w{k + 1}": value for k, value in enumerate(predicted.w)},
                        "limit_b": predicted.b,
                        "relative_gap_w": gap,
                        "gap_b": exact.b - predicted.b,
                        "auc": float(linear_auc(exact.w, minority, majority)),
                    }
                )
            style = {"color": COLOURS[i % len(COLOURS)], "linestyle": "-" if i < len(COLOURS) else "--"}
            ax.loglog(PRIORS, gaps, marker=".", label=short_label(loss), **style)
        ax.set(title=name, xlabel="prior", ylabel="|w - limit| / |w|")
        ax.invert_xaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return [write_rows(out / "theorem2.csv", rows), *save_figure(figure, out / "theorem2")]
