"""Figure 3: the lines that losses draw on the mixture of section 2.3, at 1 to 500."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from raresight.losses import Alpha, CrossEntropy, Focal, Loss, Poly, VectorScaling
from raresight.theory.gaussian import linear_auc, population_minimiser

from .lines import draw_line
from .mixtures import paper_mixture
from .output import COLOURS, figure_with_axes, save_figure, short_label, write_rows

LEFT: tuple[Loss, ...] = (CrossEntropy(), Focal(2.0), Focal(5.0), Poly(-0.5), Poly(1.0), VectorScaling(0.5))
RIGHT: tuple[Loss, ...] = (CrossEntropy(), *(Alpha(alpha) for alpha in (0.9, 0.7, 0.5, 0.4, 0.3)))
PRIOR = 1 / 501


def run(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    minority, majority = paper_mixture()
    rows: list[dict[str, Any]] = []
    figure, axes = figure_with_axes(2, width=11, height=6.0)
    positives, negatives = minority.sample(200, seed), majority.sample(20_000, seed + 1)
    for ax, losses in zip(axes, (LEFT, RIGHT), strict=True):
        ax.plot(*negatives.T, ".", color="#56B4E9", markersize=1, alpha=0.3, rasterized=True)
        ax.plot(*positives.T, ".", color="#D55E00", markersize=3)
        for i, loss in enumerate(losses):
            tell(str(loss))
            rule = population_minimiser(loss, minority, majority, PRIOR)
            auc = float(linear_auc(rule.w, minority, majority))
            rows.append(
                {
                    "loss": str(loss),
                    "w1": rule.w[0],
                    "w2": rule.w[1],
                    "b": rule.b,
                    "angle": rule.angle,
                    "auc": auc,
                }
            )
            draw_line(
                ax, rule, label=f"{short_label(loss)}: {rule.angle:.1f} deg", color=COLOURS[i % len(COLOURS)]
            )
        ax.set(xlim=(-8, 6), ylim=(-7, 7))
        ax.legend(
            fontsize=8,
            ncols=2,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.06),
            frameon=False,
            title="angle of w (180: vertical line)",
            title_fontsize=8,
        )
    axes[0].set(title="cross entropy, focal, poly, vector scaling")
    axes[1].set(title="alpha loss")
    return [write_rows(out / "figure3.csv", rows), *save_figure(figure, out / "figure3")]
