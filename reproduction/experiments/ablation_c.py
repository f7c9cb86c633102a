"""The paper's Figure 4: the effect of C, deer among horses at rho 0.01, alpha 0.8.

The paper finds AUC and accuracy largest near C = 0.3 and much better than at C = 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from raresight.common.atomic_files import write_files
from raresight.report.drawing import COLOURS

from ..estimates import BOLD_NOTE, Estimate, estimate, mark, paired
from ..output import PICTURES, figure_files, figure_with_axes, rows_text
from ..training_records import Record, format_clip_limits, largest_norm, origin
from .net_trial import NetTrial, Setup, refuse_seed, size_of
from .report import DEFAULT_SIZE, incomplete_error, not_trained, train_and_read
from .report_text import (
    claim_verdict,
    device_lines,
    format_devices,
    format_evaluated_epochs,
    format_length,
    format_origin,
    format_other_nets,
    number,
)
from .results import WHEN, Result, find_results, missing_lines, sizes_in, value_at
from .trials import EXPERIMENTS, NetExperiment, ablation_trials

PEAK = 0.3
METRICS = {"roc_auc": "AUC", "accuracy_linked": "ACC, link and prior", "accuracy": "ACC, argmax"}
Series = tuple[str, float]
"""A method and a learning rate."""
Curves = dict[Series, dict[float, list[Record]]]
"""The trainings of each series by C."""


def run(
    out: Path,
    seed: int = 0,
    tell: Callable[[str], None] = lambda message: None,
    *,
    data: Path | None = None,
    dataset: str = "cifar10",
    size: str | None = None,
    depth: int | None = None,
    width: int = 16,
    results_only: bool = False,
    complete: bool = True,
    figures: bool = True,
    **options: Any,
) -> list[Path]:
    """Train missing trials if `data` is given; write the tables, their numbers and figures.

    Of a length that is incomplete, complete series of C are shown. If `figures` is false, only tables are
    written. Further options are those of `run_experiment`.
    """
    refuse_seed("ablation-c", seed)
    experiment = EXPERIMENTS["ablation-c"]
    setup = Setup(dataset, size_of(size or DEFAULT_SIZE), depth, width)
    experiment.check(setup)
    finished = train_and_read(
        *("ablation-c", experiment, setup, out, tell),
        data=data,
        results_only=results_only,
        complete=complete,
        **options,
    )
    whole = find_results(experiment, setup, finished, "ablation")
    begun = _complete_series(experiment, setup, finished, whole)
    is_trained = data is not None and not results_only
    is_asked = size is not None or is_trained
    missing = not_trained(experiment, setup, finished, is_asked=is_asked)
    if not whole and not begun:
        asked = missing_lines(experiment, setup, finished)
        rhos = options.get("rhos")
        raise incomplete_error("ablation-c", setup, asked, finished, rhos=rhos, trained=is_trained)
    others = format_other_nets("ablation-c", setup, finished)
    for line in missing:
        tell(f"missing: {line}")
    found = sorted([*whole, *begun], key=lambda result: -result.epochs)
    lengths = [(result, _curves(result)) for result in found]
    stem = f"ablation-c-{setup.stem}"
    page = out / f"{stem}.md"
    about = " ".join(filter(None, [format_origin(setup, found, finished), others]))
    # The figure shows the longest complete length; a longer incomplete one has a figure of its own.
    drawn = [(whole[0], out / stem)] if whole else []
    drawn += [(one, out / f"{stem}-{one.epochs}-epochs") for one in begun if one.epochs >= found[0].epochs]
    files: dict[Path, str | bytes] = {
        out / f"{stem}.csv": rows_text([row for length in lengths for row in number_rows(*length)]),
        page: "\n".join([about + "\n", *(markdown(*length, found) for length in lengths)]),
    }
    for result, place in drawn if figures else ():
        files |= draw(_curves(result), result.epochs, place)
    return write_files(files, obsolete=[path for path in _pictures(out, stem) if path not in files])


def _pictures(out: Path, stem: str) -> list[Path]:
    """Return the existing figures, which may be of an earlier state of the journal."""
    name = re.compile(rf"{re.escape(stem)}(-\d+-epochs)?")
    return [path for path in out.glob(f"{stem}*") if path.suffix in PICTURES and name.fullmatch(path.stem)]


def _complete_series(
    experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record], whole: Sequence[Result]
) -> list[Result]:
    """Return from incomplete lengths the series (method, rate and draw) that have every C and seed."""
    found: list[Result] = []
    for size in sizes_in(experiment, setup, finished):
        sized = setup.at(size)
        for cell in experiment.cells:
            trials = ablation_trials(experiment, cell, sized)
            if any(result.epochs == trials[0].epochs for result in (*whole, *found)):
                continue
            series: dict[tuple[str, float, int], list[NetTrial]] = {}
            for trial in trials:
                series.setdefault((trial.method, trial.lr, trial.draw), []).append(trial)
            records: dict[str, list[Record]] = {}
            for (method, _, _), own in series.items():
                if all(trial.key in finished for trial in own):
                    records.setdefault(method, []).extend(finished[trial.key] for trial in own)
            if records:
                found.append(Result(experiment, sized, cell, "ablation", records))
    return found


def _curves(result: Result) -> Curves:
    curves: Curves = {}
    for method, records in result.records.items():
        for record in records:
            trial = NetTrial.from_dict(record["trial"])
            series = curves.setdefault((method, trial.lr), {})
            series.setdefault(dict(trial.parameters)["C"], []).append(record)
    return {name: dict(sorted(series.items())) for name, series in sorted(curves.items(), key=str)}


def _values(records: list[Record], metric: str, when: str) -> dict[tuple[int, int], float]:
    found = {}
    for record in records:
        value = value_at(record, metric, when, "roc_auc")
        if value is not None:
            found[record["trial"]["draw"], record["trial"]["seed"]] = value
    return found


def _to_zero(series: Mapping[float, list[Record]], C: float, metric: str, when: str) -> Estimate:
    """Estimate the paired difference to C = 0."""
    return paired(_values(series[C], metric, when), _values(series[0.0], metric, when))


def number_rows(result: Result, curves: Curves) -> Iterator[dict[str, Any]]:
    """Yield the metrics of every series and C, with the difference to C = 0."""
    for (method, lr), series in curves.items():
        for C, records in series.items():
            for metric in METRICS:
                for when in ("last", "test"):
                    found = estimate(_values(records, metric, when))
                    gap = _to_zero(series, C, metric, when)
                    yield {
                        "task": result.cell.task,
                        "rho": result.cell.rho,
                        "method": method,
                        "alpha": records[0]["trial"]["parameters"]["alpha"],
                        "lr": lr,
                        "C": C,
                        "epochs": result.epochs,
                        "size": result.setup.size.name,
                        "metric": metric,
                        "when": when,
                        "mean": found.mean,
                        "deviation": found.deviation,
                        "standard_error": found.error,
                        "trainings": found.count,
                        **origin(records),
                        "clip": records[0]["clip"],
                        "trainings_clipped": _clipped(records),
                        "largest_gradient_norm": max(map(largest_norm, records)),
                        "not_finite": sum(record["frozen"] is not None for record in records),
                        "difference_to_C_0": gap.mean,
                        "low": gap.low,
                        "high": gap.high,
                    }


def markdown(result: Result, curves: Curves, on_page: Sequence[Result]) -> str:
    """Format the paper's claim with verdicts, and the tables; `on_page` are all results of the page."""
    records = [record for found in result.records.values() for record in found]
    about = origin(records)
    title = f"deer among horses, rho {result.cell.rho:g}, alpha 0.8 ({format_length(result)})"
    lines = [f"### The choice of C: {title}", ""]
    planned = len(ablation_trials(result.experiment, result.cell, result.setup))
    if len(records) < planned:
        lines += [f"{len(records)} of {planned} nets are trained: those whose series of C is complete.", ""]
    for (method, lr), series in curves.items():
        for when in ("last", "test"):
            for metric, title in METRICS.items():
                gap = _to_zero(series, PEAK, metric, when)
                means = {C: estimate(_values(records, metric, when)).mean for C, records in series.items()}
                peak = max(means, key=means.__getitem__)
                shown, low, high = (number(metric, x, sign=True) for x in (gap.mean, gap.low, gap.high))
                lines.append(
                    f"* {method}, lr {lr:g}, {WHEN[when]}: {title} is better at C = {PEAK:g} than at C = 0: "
                    f"{shown} [{low}, {high}]: {claim_verdict(gap, metric)}; the largest mean is at C = "
                    f"{peak:g}."
                )
    lines += [
        "",
        "Last epoch, but for the columns of the best epoch on the test set, which are too good. In "
        "parentheses the difference to C = 0, paired by draw and seed, with its 95% interval for these "
        f"draws; {BOLD_NOTE}. {format_evaluated_epochs([result])} Trained on "
        f"{format_devices(records)}, draws {about['draws']}, seeds {about['seeds']}. Gradient norms are "
        f"clipped at {format_clip_limits(records)}, which the paper does not say it did: that damps large "
        "gradients as C does; the last columns say which trainings it met in an evaluated epoch.",
    ]
    if places := device_lines(result, on_page, _net_name):
        lines += ["", places[0]]
    for (method, lr), series in curves.items():
        lines += ["", f"**{method}, lr {lr:g}**", ""]
        best = [f"{title}, {WHEN['test']}" for title in METRICS.values()]
        titles = ("C", *METRICS.values(), *best, "trainings clipped", "largest norm")
        lines += [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
        for C, records in series.items():
            cells = [_cell(series, C, metric, when) for when in ("last", "test") for metric in METRICS]
            norms = [f"{_clipped(records)} of {len(records)}", f"{max(map(largest_norm, records)):.3g}"]
            lines.append(f"| {C:g} | {' | '.join([*cells, *norms])} |")
    return "\n".join(lines) + "\n"


def _net_name(record: Record) -> str:
    trial = record["trial"]
    return f"{trial['method']} at lr {trial['lr']:g}, C {trial['parameters']['C']:g}"


def _clipped(records: list[Record]) -> int:
    """Count the trainings whose gradient was clipped in an evaluated epoch."""
    return sum(largest_norm(record) > record["clip"] for record in records)


def _cell(series: Mapping[float, list[Record]], C: float, metric: str, when: str) -> str:
    text = number(metric, estimate(_values(series[C], metric, when)).mean)
    if C == 0:
        return text
    gap = _to_zero(series, C, metric, when)
    stars = mark(metric, gap.mean, gap.low, gap.high)
    shown, low, high = (number(metric, x, sign=True) for x in (gap.mean, gap.low, gap.high))
    return f"{text} ({stars}{shown}{stars} [{low}, {high}])"


def draw(curves: Curves, epochs: int, path: Path) -> dict[Path, bytes]:
    """Draw mean and standard error over C, as in the paper's figure, in the last and in the best epoch.

    Return the contents of the files, which the caller writes.
    """
    figure, axes = figure_with_axes(2, height=8.6, rows=2)
    panels = [(metric, when) for when in ("last", "test") for metric in ("roc_auc", "accuracy_linked")]
    for ax, (metric, when) in zip(axes, panels, strict=True):
        for place, ((method, lr), series) in enumerate(curves.items()):
            found = [estimate(_values(records, metric, when)) for records in series.values()]
            means = [100 * one.mean for one in found]
            ax.plot(list(series), means, "o-", color=COLOURS[place + 1], label=f"{method}, lr {lr:g}")
            ax.fill_between(
                list(series),
                [mean - 100 * one.error for mean, one in zip(means, found)],
                [mean + 100 * one.error for mean, one in zip(means, found)],
                color=COLOURS[place + 1],
                alpha=0.15,
            )
        ax.set_title(WHEN[when], fontsize=10)
        ax.set_xlabel(f"C (alpha 0.8, {epochs} epochs; band: standard error)")
        ax.set_ylabel(METRICS[metric])
    axes[0].legend(fontsize=8)
    return figure_files(figure, path)
