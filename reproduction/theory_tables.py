"""The paper's statements on vanishing priors and on influence, checked against exact computation.

Table 1: limiting f-functions and information, down to a prior of 1e-300. Theorem 2, corrected: limits of the
population classifier. The influence theorem, corrected: the predicted effect of deleting a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from raresight.losses import LDAM, TBL, Alpha, CrossEntropy, Erf, Focal, Loss, Poly, Squared, VectorScaling
from raresight.report.drawing import COLOURS
from raresight.report.loss_tables import short_label
from raresight.theory import (
    GaussianExperiment,
    divergence,
    f_function,
    limiting_f_function,
    statistical_information,
)
from raresight.theory.gaussian import linear_auc, population_minimiser
from raresight.theory.influence import deletion_effect
from raresight.theory.limits import limiting_rule

from .erm import empirical_minimiser
from .gaussian_figures import paper_mixture, single_clusters
from .output import figure_with_axes, save_figure, write_rows

# ---- Table 1 -----------------------------------------------------------------------------------------------

TABLE1_LOSSES: tuple[tuple[Loss, str, float, float], ...] = (
    # loss, its entry of Table 1, and the index and constant of the information's leading order
    (CrossEntropy(), "-pi log(pi) (1-t)", 1.0, 1.0),
    (Squared(), "pi (1-t)", 2.0, 2.0),
    (Focal(2.0), "-pi log(pi) (1-t)/(1+gamma)", 1.0, 1 / 3),
    (Poly(1.0), "-pi log(pi) (1-t)", 1.0, 1.0),
    (VectorScaling(0.5), "-delta pi log(pi) (1-t)", 1.0, 0.5),
    (Alpha(0.7), "pi^alpha (1-t^alpha)/(1-alpha)", 0.7, 0.7),
    (TBL(0.7, 0.5), "e^(-alpha C) pi^alpha (1-t^alpha)/(1-alpha)", 0.7, 0.7 * math.exp(-0.35)),
    (LDAM((499, 1)), "-pi log(pi) (1-t)", 1.0, 1.0),
    (Erf(), "pi sqrt(-2 log pi) (1-t)", 1.0, math.nan),  # the constant falls like 1/sqrt(2 log(1/pi))
)
TABLE1_PRIORS = (1e-2, 1e-4, 1e-8, 1e-16, 1e-32, 1e-64, 1e-128, 1e-300)
T = 2.0


def table1(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    experiment = GaussianExperiment(1.0)
    rows: list[dict[str, Any]] = []
    for loss, entry, beta, c in TABLE1_LOSSES:
        tell(str(loss))
        for prior in TABLE1_PRIORS:
            f, limit = float(f_function(loss, T, prior)), float(limiting_f_function(loss, T, prior))
            information = float(statistical_information(loss, experiment, prior))
            leading = _leading(loss, prior, beta, c) * divergence(experiment, beta)
            rows.append(
                {
                    "loss": str(loss),
                    "table1": entry,
                    "prior": prior,
                    "f": f,
                    "f_limit": limit,
                    "f_ratio": f / limit,
                    "information": information,
                    "beta": beta,
                    "leading_order": leading,
                    "information_ratio": information / leading if leading > 0 else math.nan,
                }
            )
    paths = [write_rows(out / "table1.csv", rows)]
    figure, (left, right) = figure_with_axes(2)
    for i, (loss, *_) in enumerate(TABLE1_LOSSES):
        own = [row for row in rows if row["loss"] == str(loss)]
        style = {
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": "-" if i < len(COLOURS) else "--",
            "marker": ".",
        }
        x = [-math.log10(row["prior"]) for row in own]
        left.plot(x, [abs(row["f_ratio"] - 1) + 1e-17 for row in own], label=short_label(loss), **style)
        right.plot(x, [abs(row["information_ratio"] - 1) + 1e-17 for row in own], **style)
    left.set(title="Table 1: |f / limit - 1| at t = 2", xlabel="-log10 prior", yscale="log", ylim=(1e-17, 10))
    right.set(
        title="information: |Delta L / leading order - 1|",
        xlabel="-log10 prior",
        yscale="log",
        ylim=(1e-17, 10),
    )
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return paths + save_figure(figure, out / "table1")


def _leading(loss: Loss, prior: float, beta: float, c: float) -> float:
    """c pi^beta; for erf pi^2/psi(z_pi), the form whose error is 1/log."""
    if (tail := loss.tail()) is not None and tail.is_gaussian:
        z = float(loss.score(math.log(prior) - math.log1p(-prior)))
        return math.exp(2 * math.log(prior) + 0.5 * z * z + 0.5 * math.log(2 * math.pi))
    return float(c * np.power(prior, beta))


# ---- Theorem 2 ---------------------------------------------------------------------------------------------

THEOREM2_LOSSES: tuple[Loss, ...] = (
    CrossEntropy(),
    Erf(),
    Focal(2.0),
    Poly(1.0),
    VectorScaling(0.5),
    Alpha(0.3),
    Alpha(0.7),
    TBL(0.7, 0.5),
)
THEOREM2_PRIORS = (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)


def theorem2(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    rows: list[dict[str, Any]] = []
    mixtures = {"one cluster each": single_clusters(), "section 2.3": paper_mixture()}
    figure, axes = figure_with_axes(2)
    for ax, (name, (minority, majority)) in zip(axes, mixtures.items(), strict=True):
        for i, loss in enumerate(THEOREM2_LOSSES):
            tell(f"{name}: {loss}")
            limit = limiting_rule(loss, minority, majority)
            gaps = []
            for prior in THEOREM2_PRIORS:
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
            ax.loglog(THEOREM2_PRIORS, gaps, marker=".", label=short_label(loss), **style)
        ax.set(title=name, xlabel="prior", ylabel="|w - limit| / |w|")
        ax.invert_xaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return [write_rows(out / "theorem2.csv", rows), *save_figure(figure, out / "theorem2")]


# ---- The influence theorem ---------------------------------------------------------------------------------

INFLUENCE_LOSSES: tuple[Loss, ...] = (CrossEntropy(), Alpha(0.7), Alpha(0.5), TBL(0.7, 0.5))
POSITIVES, NEGATIVES, DELETED = 100, 1900, 40


def influence(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    from matplotlib.ticker import NullFormatter

    minority, majority = single_clusters()
    X = np.concatenate([minority.sample(POSITIVES, seed), majority.sample(NEGATIVES, seed + 1)])
    y = np.repeat([1.0, 0.0], [POSITIVES, NEGATIVES])
    rows: list[dict[str, Any]] = []
    figure, (left, right) = figure_with_axes(2)
    for i, loss in enumerate(INFLUENCE_LOSSES):
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
