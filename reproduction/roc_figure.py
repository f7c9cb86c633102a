"""Figures of ranking: the ROC curve where it matters, and intervals beside each other.

`python -m reproduction.roc_figure` draws those of docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from raresight.metrics import Interval, interval, roc_points
from raresight.report.drawing import COLOURS, figure_class, picture_path, save

__all__ = ["draw_intervals", "draw_roc"]

_IMAGES = Path(__file__).parents[1] / "docs" / "images"


def draw_roc(
    y_true: Any, scores: Mapping[str, Any], path: Path | str, *, fpr: float = 0.001, level: float = 0.95
) -> Path:
    """Draw the ROC curves of several scores twice: on the usual axis, and on a logarithmic one.

    On the usual axis a false-positive rate of 0.001 is a tenth of a millimetre wide. The logarithmic axis
    shows it, with the recall at `fpr` and its interval. Curves begin at the rate of one false positive.

    Args:
        y_true: Labels 0 and 1.
        scores: The scores by name.
        path: A PNG, SVG or PDF file.
        fpr: The rate to mark.
        level: Coverage of the intervals.
    """
    target = picture_path(path)
    figure = figure_class()(figsize=(11, 4.8), layout="constrained")
    whole, tail = figure.subplots(1, 2)
    smallest = 1.0
    # Intervals side by side around the rate, so that none hides another.
    shifts = 10 ** (0.06 * (np.arange(len(scores)) - (len(scores) - 1) / 2))
    for number, (name, score) in enumerate(scores.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = roc_points(y_true, score, drop_intermediate=True)
        area = interval("roc_auc", y_true, score, level=level)
        recall = interval("recall_at_fpr", y_true, score, fpr=fpr, level=level)
        whole.plot(points.fpr, points.tpr, color=colour, label=f"{name}: AUC {area.estimate:.3f}")
        first = points.fpr > 0
        smallest = min(smallest, float(points.fpr[first].min()))
        text = f"{name}: {recall.estimate:.2f} [{recall.low:.2f}, {recall.high:.2f}]"
        tail.step(points.fpr[first], points.tpr[first], where="post", color=colour, label=text)
        tail.errorbar(
            fpr * shifts[number],
            recall.estimate,
            [[recall.estimate - recall.low], [recall.high - recall.estimate]],
            color=colour,
            marker="o",
            capsize=4,
        )
    whole.plot([0, 1], [0, 1], color="#999999", linewidth=0.8, linestyle=":")
    whole.set_title("The usual axis")
    tail.set_title(f"A logarithmic axis: recall at FPR {fpr:g}, {level:.0%} interval")
    tail.set_xscale("log")
    tail.set_xlim(max(smallest, fpr / 100), 1)
    tail.axvline(fpr, color="#999999", linewidth=0.8)
    for axes in (whole, tail):
        axes.set(xlabel="false-positive rate", ylabel="recall", ylim=(0, 1.01))
        axes.grid(alpha=0.25)
    whole.legend(loc="lower right")
    tail.legend(loc="upper left")
    return save(figure, target)


def draw_intervals(
    intervals: Sequence[tuple[str, Interval]],
    path: Path | str,
    *,
    truth: float | None = None,
    title: str = "",
) -> Path:
    """Draw intervals one above the other; those that miss the `truth`, if it is known, in another colour."""
    target = picture_path(path)
    figure = figure_class()(figsize=(8, 1.2 + 0.22 * len(intervals)), layout="constrained")
    axes = figure.subplots()
    for place, (_, found) in enumerate(intervals):
        hit = truth is None or found.low <= truth <= found.high
        colour = COLOURS[1] if hit else COLOURS[2]
        axes.plot([found.low, found.high], [place, place], color=colour, linewidth=2)
        axes.plot(found.estimate, place, "o", color=colour, markersize=4)
    if truth is not None:
        axes.axvline(truth, color=COLOURS[0], linewidth=1)
    axes.set_yticks(range(len(intervals)), [name for name, _ in intervals])
    axes.invert_yaxis()
    axes.set_title(title)
    axes.grid(alpha=0.25, axis="x")
    return save(figure, target)


def _two_models() -> None:
    """Two scores of nearly the same AUC: one steady, one that knows a third of the cases for sure."""
    generator = np.random.default_rng(3)
    y = np.repeat([0, 1], [400_000, 800])
    steady = generator.normal(size=len(y)) + 2.0 * y
    sure = y * (generator.random(len(y)) < 0.35)
    keen = np.where(sure == 1, generator.normal(5.5, 1, len(y)), generator.normal(size=len(y)) + 1.64 * y)
    draw_roc(y, {"steady": steady, "keen": keen}, _IMAGES / "roc.png")


def _repeated_months() -> None:
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
        _IMAGES / "intervals.png",
        truth=truth,
        title=f"recall at FPR 0.001, 100 positives and 50,000 negatives a month; truth {truth:.3f}",
    )


if __name__ == "__main__":
    _two_models()
    _repeated_months()
