"""Draw the pictures of metrics.md: python docs/draw_metrics.py"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.stats import norm

from raresight.metrics import interval
from reproduction.roc_figure import draw_intervals, draw_roc

IMAGES = Path(__file__).parent / "images"


def two_models() -> None:
    """Two scores of nearly the same AUC: one steady, one that knows a third of the cases for sure."""
    generator = np.random.default_rng(3)
    y = np.repeat([0, 1], [400_000, 800])
    steady = generator.normal(size=len(y)) + 2.0 * y
    sure = y * (generator.random(len(y)) < 0.35)
    keen = np.where(sure == 1, generator.normal(5.5, 1, len(y)), generator.normal(size=len(y)) + 1.64 * y)
    draw_roc(y, {"steady": steady, "keen": keen}, IMAGES / "roc.png")


def repeated_months() -> None:
    """Twenty-four months of the same model: the estimate moves, the interval says by how much."""
    generator = np.random.default_rng(1)
    truth = float(norm.cdf(3 + norm.ppf(0.001)))
    y = np.repeat([0, 1], [50_000, 100])
    months = []
    for month in range(1, 25):
        scores = generator.normal(size=len(y)) + 3 * y
        months.append((f"month {month}", interval("recall_at_fpr", y, scores)))
    draw_intervals(
        months,
        IMAGES / "intervals.png",
        truth=truth,
        title=f"recall at FPR 0.001, 100 positives and 50,000 negatives a month; truth {truth:.3f}",
    )


if __name__ == "__main__":
    two_models()
    repeated_months()
