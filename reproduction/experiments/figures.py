"""Draw the figures of an experiment: differences to adjusted cross entropy, and metrics over epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raresight.report.drawing import COLOURS

from ..output import figure_files, figure_with_axes
from .methods import REFERENCE
from .report_text import settings_name
from .results import WHEN, Result
from .trials import DECAYS, PAPER_EPOCHS
from .verdicts import OURS

# Epochs in a moving mean: single epochs vary by more than losses differ.
_SMOOTHED = 9


def draw_differences(
    results: Sequence[Result], metric: str, title: str, whens: tuple[str, str], path: Path
) -> dict[Path, bytes]:
    """Draw differences to CE+LA with intervals: one panel per cell, one colour per length and role.

    `whens` are the epochs, of `WHEN`, at the chosen settings and at the paper's. Return the contents of the
    files, which the caller writes.
    """
    at = dict(zip(("final", "paper"), whens, strict=True))
    cells = list(dict.fromkeys(result.cell for result in results))
    ordered = sorted(results, key=lambda one: (one.role, -one.epochs))
    labels = list(dict.fromkeys(map(_series, ordered)))
    apart = min(0.24, 0.8 / len(labels))
    figure, axes = figure_with_axes(len(cells), width=4.2 * len(cells) + 1.5, height=4.8)
    scale = _scale(metric)
    for ax, cell in zip(axes, cells, strict=True):
        for result in [result for result in ordered if result.cell == cell]:
            series = labels.index(_series(result))
            shift = apart * (series - (len(labels) - 1) / 2)
            methods = [method for method in result.records if method != REFERENCE]
            gaps = [result.difference(method, REFERENCE, metric, at[result.role]) for method in methods]
            means = [gap.mean * scale for gap in gaps]
            reach = [[(g.mean - g.low) * scale for g in gaps], [(g.high - g.mean) * scale for g in gaps]]
            ax.errorbar(
                means,
                [place + shift for place in range(len(methods))],
                xerr=reach,
                fmt="o",
                color=COLOURS[1 + series % (len(COLOURS) - 1)],
                label=labels[series],
                capsize=2,
            )
            ax.set_yticks(range(len(methods)), methods)
        ax.axvline(0, color=COLOURS[0], linewidth=0.8)
        ax.invert_yaxis()
        ax.set_title(str(cell))
        unit = "" if scale == 1 else ", points"
        ax.set_xlabel(f"{title}, {_format_epoch_choice(*whens)},\nminus that of {REFERENCE}{unit}")
    _legend(figure, axes, "outside lower center")
    return figure_files(figure, path)


def draw_epochs(results: Sequence[Result], metrics: Mapping[str, str], path: Path) -> dict[Path, bytes]:
    """Draw metrics on the test set over the epochs of full-length results, as means over trainings.

    There is a row of panels for each result and a column for each metric (with its title). Shorter trainings
    are not drawn: they end before the order of losses settles.
    """
    long = [result for result in results if result.epochs == PAPER_EPOCHS and _curves(result)]
    panels = [(result, metric) for result in long for metric in metrics]
    if not panels:
        return {}
    width, height = 5.6 * len(metrics) + 1.5, 4.8 * len(long)
    figure, axes = figure_with_axes(len(metrics), width, height, rows=len(long))
    for ax, (result, metric) in zip(axes, panels, strict=True):
        scale = _scale(metric)
        drawn: list[float] = []
        later: list[float] = []
        curves = _curves(result)
        for place, method in enumerate(result.records):
            whole = curves.get(method)
            if whole is None:
                continue
            columns = zip(*(curve[f"test_{metric}"] for curve in whole), strict=True)
            means = _smoothed([scale * _mean_of_known(values) for values in columns])
            ax.plot(
                whole[0]["epoch"],
                means,
                color=COLOURS[place % len(COLOURS)],
                linestyle="-" if place < len(COLOURS) else "--",
                linewidth=1.8 if method in OURS else 1.0,
                label=method,
            )
            drawn += filter(math.isfinite, means)
            later += filter(math.isfinite, means[len(means) // 25 :])
        # Values of the first epochs that are far off would compress the later curves into one line.
        extent = max(later) - min(later)
        shown = drawn if max(drawn) - min(drawn) < 1.5 * extent else later
        room = 0.05 * extent
        ax.set_ylim(min(shown) - room, max(shown) + room)
        ax.set_title(f"{result.cell}, {_series(result)}")
        most = max(map(len, curves.values()))
        for decay in DECAYS:
            ax.axvline(decay, color=COLOURS[0], linewidth=0.6, linestyle=":")
        smoothed = f"means of {most} trainings, smoothed over {_SMOOTHED} epochs"
        ax.set_xlabel(f"epoch (dotted: learning rate lowered)\n{smoothed}")
        ax.set_ylabel(f"{metrics[metric]} on the test set{'' if scale == 1 else ', %'}")
    _legend(figure, axes, "outside right center")
    return figure_files(figure, path)


def _mean_of_known(values: Sequence[float | None]) -> float:
    """Return the mean over nets whose scores were finite in this epoch."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else math.nan


def _format_epoch_choice(chosen: str, paper: str) -> str:
    return WHEN[chosen] if chosen == paper else f"{WHEN[chosen]}\n(paper's setting: {WHEN[paper]})"


def _curves(result: Result) -> dict[str, list[Any]]:
    """Return the curves of complete trainings by method, of those that were evaluated after most epochs."""
    ended = {
        method: [record["curve"] for record in records if record["frozen"] is None]
        for method, records in result.records.items()
    }
    evaluated = [curve["epoch"] for curves in ended.values() for curve in curves]
    epochs: list[int] = max(evaluated, key=len, default=[])
    found = {
        method: [curve for curve in curves if curve["epoch"] == epochs] for method, curves in ended.items()
    }
    return {method: curves for method, curves in found.items() if curves}


def _smoothed(values: Sequence[float]) -> list[float]:
    """Return moving means, over fewer values at both ends."""
    reach = _SMOOTHED // 2
    parts = [values[max(0, place - reach) : place + reach + 1] for place in range(len(values))]
    return [sum(part) / len(part) for part in parts]


def _series(result: Result) -> str:
    return f"{settings_name(result.role)}, {result.epochs} epochs"


def _scale(metric: str) -> float:
    return 1.0 if "brier" in metric else 100.0


def _legend(figure: Any, axes: Sequence[Any], where: str) -> None:
    handles = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels())}
    columns = 1 if "right" in where else len(handles)
    figure.legend(handles.values(), handles, loc=where, ncols=columns, frameon=False, fontsize=9)
