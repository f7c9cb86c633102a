"""Table 1: the limiting f-functions, checked to a prior of 1e-300, and the information they miss."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from raresight.losses import LDAM, TBL, Alpha, CrossEntropy, Erf, Focal, Loss, Poly, Squared, VectorScaling
from raresight.theory import (
    GaussianExperiment,
    divergence,
    f_function,
    limiting_f_function,
    statistical_information,
)

from .output import COLOURS, figure_with_axes, save_figure, short_label, write_rows

LOSSES: tuple[tuple[Loss, str, float, float], ...] = (
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
PRIORS = (1e-2, 1e-4, 1e-8, 1e-16, 1e-32, 1e-64, 1e-128, 1e-300)
T = 2.0


def run(out: Path, seed: int, tell: Callable[[str], None]) -> list[Path]:
    experiment = GaussianExperiment(1.0)
    rows: list[dict[str, Any]] = []
    for loss, entry, beta, c in LOSSES:
        tell(str(loss))
        for prior in PRIORS:
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
    for i, (loss, *_) in enumerate(LOSSES):
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
    if isinstance(loss, Erf):
        z = float(loss.score(math.log(prior) - math.log1p(-prior)))
        return math.exp(2 * math.log(prior) + 0.5 * z * z + 0.5 * math.log(2 * math.pi))
    return float(c * np.power(prior, beta))
