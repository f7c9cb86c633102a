"""Figure 2: AUC of the linear classifier against alpha, in the population and in samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from raresight.losses import Alpha
from raresight.theory.gaussian import best_linear_auc, linear_auc, population_minimiser

from .erm import empirical_minimiser
from .mixtures import paper_mixture
from .output import COLOURS, figure_with_axes, save_figure, write_rows

MINORITY, MAJORITY, SAMPLES = 200, 100_000, 40
POPULATION_ALPHAS = np.round(np.arange(0.1, 1.001, 0.05), 2)
SAMPLE_ALPHAS = (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0)


def run(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    minority, majority = paper_mixture()
    prior = MINORITY / (MINORITY + MAJORITY)
    population = []
    for alpha in POPULATION_ALPHAS:
        tell(f"population, alpha = {alpha}")
        rule = population_minimiser(Alpha(float(alpha)), minority, majority, prior)
        auc = float(linear_auc(rule.w, minority, majority))
        population.append({"alpha": alpha, "auc": auc, "angle": rule.angle})
    samples: list[dict[str, Any]] = []
    for i in range(SAMPLES):
        tell(f"sample {i + 1} of {SAMPLES}")
        generator = np.random.default_rng([seed, i])
        first, second = generator.integers(2**31, size=2)
        X = np.concatenate([minority.sample(MINORITY, int(first)), majority.sample(MAJORITY, int(second))])
        y = np.repeat([1.0, 0.0], [MINORITY, MAJORITY])
        start = None
        for alpha in SAMPLE_ALPHAS[::-1]:
            start = empirical_minimiser(Alpha(alpha), X, y, start=start)
            auc = float(linear_auc(start.w, minority, majority))
            samples.append({"sample": i, "alpha": alpha, "auc": auc, "angle": start.angle})
    best = best_linear_auc(minority, majority)
    paths = [
        write_rows(out / "figure2_population.csv", population),
        write_rows(out / "figure2_samples.csv", samples),
    ]
    figure, (ax,) = figure_with_axes(1, width=7.2, height=4.8)
    ax.axhline(best.auc, color="0.6", linewidth=1, linestyle=":", label=f"best linear ({best.auc:.5f})")
    ax.plot(
        [r["alpha"] for r in population], [r["auc"] for r in population], color=COLOURS[1], label="population"
    )
    for alpha in SAMPLE_ALPHAS:
        values = np.array([r["auc"] for r in samples if r["alpha"] == alpha])
        label = (
            f"{SAMPLES} samples of 200 against 100,000: mean, deviation"
            if alpha == SAMPLE_ALPHAS[0]
            else None
        )
        ax.errorbar(
            alpha, values.mean(), values.std(ddof=1), fmt="o", color=COLOURS[2], capsize=3, label=label
        )
    ax.set(xlabel="alpha", ylabel="AUC", title="AUC of the linear rule that alpha loss learns, 1 to 500")
    ax.legend(frameon=False, fontsize=8, loc="lower center")
    return paths + save_figure(figure, out / "figure2")
