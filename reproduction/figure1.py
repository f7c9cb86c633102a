"""Figure 1: two Gaussian clusters at 1 to 1000, the line of cross entropy and of exponential loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from raresight.losses import Alpha, CrossEntropy
from raresight.theory.gaussian import best_linear_auc, linear_auc, population_minimiser

from .erm import empirical_minimiser
from .lines import draw_line
from .mixtures import single_clusters
from .output import COLOURS, figure_with_axes, save_figure, write_rows

MINORITY, RATIO = 200, 1000


def run(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    """The paper gives no parameters for this figure; ours are in `mixtures.py`."""
    minority, majority = single_clusters()
    positives, negatives = minority.sample(MINORITY, seed), majority.sample(MINORITY * RATIO, seed + 1)
    X = np.concatenate([positives, negatives])
    y = np.repeat([1.0, 0.0], [len(positives), len(negatives)])
    rows: list[dict[str, Any]] = []
    rules = {}
    for loss, name in ((CrossEntropy(), "cross entropy"), (Alpha(0.5), "exponential (alpha = 1/2)")):
        tell(name)
        sample = empirical_minimiser(loss, X, y)
        population = population_minimiser(loss, minority, majority, 1 / (1 + RATIO))
        rules[name] = sample
        for kind, rule in (("sample", sample), ("population", population)):
            auc = float(linear_auc(rule.w, minority, majority))
            rows.append(
                {
                    "loss": name,
                    "kind": kind,
                    "w1": rule.w[0],
                    "w2": rule.w[1],
                    "b": rule.b,
                    "angle": rule.angle,
                    "auc": auc,
                }
            )
    best = best_linear_auc(minority, majority)
    rows.append(
        {
            "loss": "best linear",
            "kind": "population",
            "w1": best.w[0],
            "w2": best.w[1],
            "b": np.nan,
            "angle": np.nan,
            "auc": best.auc,
        }
    )
    paths = [write_rows(out / "figure1.csv", rows)]
    figure, (ax,) = figure_with_axes(1, width=6.4, height=5.6)
    shown = np.random.default_rng(seed).choice(len(negatives), 20_000, replace=False)
    ax.plot(
        *negatives[shown].T,
        ".",
        color="#56B4E9",
        markersize=1,
        alpha=0.35,
        rasterized=True,
        label="majority (one in ten)",
    )
    ax.plot(*positives.T, ".", color="#D55E00", markersize=4, label="minority")
    for (name, rule), dashes in zip(rules.items(), ("--", "-"), strict=True):
        # Through the centre of the minority: at even odds both lines lie beyond nearly every point.
        level = float(rule.w @ minority.mean) + rule.b
        draw_line(ax, rule, level, label=name, color=COLOURS[0], linestyle=dashes)
    ax.set(
        xlim=(-4.5, 5.5), ylim=(-6, 6), title="200 against 200,000; lines through the centre of the minority"
    )
    ax.legend(frameon=True, fontsize=8, loc="lower left")
    return paths + save_figure(figure, out / "figure1")
