"""The influence theorem, corrected: predicted effect of deleting a row against refits without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from raresight.losses import TBL, Alpha, CrossEntropy, Loss
from raresight.theory.influence import deletion_effect

from .erm import empirical_minimiser
from .mixtures import single_clusters
from .output import COLOURS, figure_with_axes, save_figure, write_rows

LOSSES: tuple[Loss, ...] = (CrossEntropy(), Alpha(0.7), Alpha(0.5), TBL(0.7, 0.5))
POSITIVES, NEGATIVES, DELETED = 100, 1900, 40


def run(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    from matplotlib.ticker import NullFormatter

    minority, majority = single_clusters()
    X = np.concatenate([minority.sample(POSITIVES, seed), majority.sample(NEGATIVES, seed + 1)])
    y = np.repeat([1.0, 0.0], [POSITIVES, NEGATIVES])
    rows: list[dict[str, Any]] = []
    figure, (left, right) = figure_with_axes(2)
    for i, loss in enumerate(LOSSES):
        tell(str(loss))
        rule = empirical_minimiser(loss, X, y)
        plain = deletion_effect(loss, X, y, rule, leverage_corrected=False)
        corrected = deletion_effect(loss, X, y, rule)
        pull = np.linalg.norm(corrected, axis=1)
        hardest = np.argsort(-pull)[:DELETED]
        errors = []
        for row in hardest:
            kept = np.arange(len(y)) != row
            refit = empirical_minimiser(loss, X[kept], y[kept], start=rule)
            truth = np.append(refit.w, refit.b) - np.append(rule.w, rule.b)
            size = float(np.linalg.norm(truth))
            errors.append((size, *(float(np.linalg.norm(e[row] - truth)) / size for e in (plain, corrected))))
            rows.append(
                {
                    "loss": str(loss),
                    "row": int(row),
                    "label": int(y[row]),
                    "score": float(rule.score(X[row : row + 1])[0]),
                    "moved": size,
                    "relative_error_influence": errors[-1][1],
                    "relative_error_leverage_corrected": errors[-1][2],
                }
            )
        colour = COLOURS[i % len(COLOURS)]
        sizes, first, second = np.array(errors).T
        left.loglog(sizes, first, "o", color=colour, markersize=4, fillstyle="none")
        left.loglog(sizes, second, "o", color=colour, markersize=4, label=str(loss))
        own = y == 1
        right.semilogy(rule.score(X[own]), pull[own], ".", color=colour, markersize=4)
    left.set(
        title="error of the predicted effect (open: influence, filled: leverage-corrected)",
        xlabel="distance that the rule moves when the row is deleted",
        ylabel="relative error",
    )
    left.title.set_fontsize(9)
    for axis in (left.xaxis, left.yaxis, right.yaxis):
        axis.set_minor_formatter(NullFormatter())
    right.set(title="pull of each positive", xlabel="score of the positive", ylabel="distance")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return [write_rows(out / "influence.csv", rows), *save_figure(figure, out / "influence")]
