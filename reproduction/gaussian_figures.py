"""Figures 1 to 3: the lines that losses learn on Gaussian clusters; `simulate` draws the user's."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from raresight.losses import Alpha, CrossEntropy, Focal, Loss, Poly, VectorScaling
from raresight.report.analysis import find_loss
from raresight.report.drawing import COLOURS
from raresight.report.loss_tables import short_label
from raresight.theory.gaussian import GaussianMixture, best_linear_auc, linear_auc, population_minimiser
from raresight.theory.linear_rule import LinearRule

from .erm import empirical_minimiser
from .output import figure_with_axes, save_figure, write_rows

# ---- The user's clusters -----------------------------------------------------------------------------------

DEFAULT_LOSSES = (
    "crossentropy",
    "focal(gamma=2)",
    "alpha(alpha=0.7)",
    "alpha(alpha=0.5)",
    "tbl(alpha=0.7,C=0.5)",
)

# Section 2.3 of the paper.
PAPER_CLUSTERS = {
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
    config: dict[str, Any] = PAPER_CLUSTERS
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


def simulate(
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
    sys.stdout.write(_rules_table(chosen, rules, minority, majority, prior))
    return save_figure(figure, out / "simulation")


def _rules_table(
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


def draw_line(ax: Any, rule: LinearRule, level: float = 0.0, **style: Any) -> None:
    """The line w.x + b = level of a two-dimensional rule, right across the picture."""
    (w1, w2), b = rule.w, rule.b - level
    reach = np.array([-100.0, 100.0])
    if abs(w2) >= abs(w1):
        ax.plot(reach, -(w1 * reach + b) / w2, **style)
    else:
        ax.plot(-(w2 * reach + b) / w1, reach, **style)


# ---- The paper's clusters ----------------------------------------------------------------------------------


def paper_mixture() -> tuple[GaussianMixture, GaussianMixture]:
    """Minority and majority of section 2.3: two clusters each."""
    return read_clusters(None)


def single_clusters() -> tuple[GaussianMixture, GaussianMixture]:
    """One cluster each, of different shapes. The paper does not give those of its first figure."""
    minority = GaussianMixture([1.0], [[1.0, 1.0]], [[[1.0, 0.3], [0.3, 0.5]]])
    majority = GaussianMixture([1.0], [[0.0, 0.0]], [[[1.0, -0.2], [-0.2, 2.0]]])
    return minority, majority


# ---- Figure 1: two Gaussian clusters at 1 to 1000 ----------------------------------------------------------

FIGURE1_MINORITY, FIGURE1_RATIO = 200, 1000


def figure1(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    """The paper gives no parameters for this figure; ours are `single_clusters`."""
    minority, majority = single_clusters()
    positives, negatives = (
        minority.sample(FIGURE1_MINORITY, seed),
        majority.sample(FIGURE1_MINORITY * FIGURE1_RATIO, seed + 1),
    )
    X = np.concatenate([positives, negatives])
    y = np.repeat([1.0, 0.0], [len(positives), len(negatives)])
    rows: list[dict[str, Any]] = []
    rules = {}
    for loss, name in ((CrossEntropy(), "cross entropy"), (Alpha(0.5), "exponential (alpha = 1/2)")):
        tell(name)
        sample = empirical_minimiser(loss, X, y)
        population = population_minimiser(loss, minority, majority, 1 / (1 + FIGURE1_RATIO))
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


# ---- Figure 2: AUC against alpha ---------------------------------------------------------------------------

MINORITY, MAJORITY, SAMPLES = 200, 100_000, 40
POPULATION_ALPHAS = np.round(np.arange(0.1, 1.001, 0.05), 2)
SAMPLE_ALPHAS = (0.2, 0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0)


def figure2(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
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


# ---- Figure 3: the mixture of section 2.3 at 1 to 500 ------------------------------------------------------

LEFT: tuple[Loss, ...] = (CrossEntropy(), Focal(2.0), Focal(5.0), Poly(-0.5), Poly(1.0), VectorScaling(0.5))
RIGHT: tuple[Loss, ...] = (CrossEntropy(), *(Alpha(alpha) for alpha in (0.9, 0.7, 0.5, 0.4, 0.3)))
PRIOR = 1 / 501


def figure3(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
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
