"""The paper's Figure 4: what C does, deer among horses at rho 0.01, alpha 0.8.

The paper finds AUC and accuracy largest near C = 0.3 and much better than at C = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .deep.estimates import Estimate, estimate, paired
from .deep.experiments import EXPERIMENTS
from .deep.journal import Record, largest_norm, origin
from .deep.report import brought_up_to_date, nothing_complete, refuse_seed
from .deep.report_text import claim_verdict, epochs_words, length_words, number
from .deep.results import WHEN, Result, begun_lines, find_results, missing_lines, value_at
from .deep.settings import Setup, Trial, size_of
from .output import COLOURS, figure_with_axes, save_figure, write_rows

__all__ = ["run"]

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
    size: str = "short",
    depth: int | None = None,
    width: int = 16,
    results_only: bool = False,
    complete: bool = True,
    **options: Any,
) -> list[Path]:
    """Train what is missing if `data` is given; write the tables, their numbers and the longest's figure.

    Further options are those of `run_experiment`.
    """
    refuse_seed("ablation-c", seed)
    experiment, setup = EXPERIMENTS["ablation-c"], Setup(dataset, size_of(size), depth, width)
    experiment.check(setup)
    finished = brought_up_to_date(
        *(experiment, setup, out, tell), data=data, results_only=results_only, complete=complete, **options
    )
    missing = [*missing_lines(experiment, setup, finished), *begun_lines(experiment, setup, finished)]
    found = find_results(experiment, setup, finished, "ablation")
    if not found:
        raise ValueError(nothing_complete("ablation-c", experiment.name, dataset, missing))
    for line in missing:
        tell(f"missing: {line}")
    lengths = [(result, _curves(result)) for result in found]
    stem = f"ablation-c-{dataset}"
    page = out / f"{stem}.md"
    page.write_text("\n".join(markdown(result, curves) for result, curves in lengths), encoding="utf-8")
    longest, curves = lengths[0]
    return [
        write_rows(out / f"{stem}.csv", [row for length in lengths for row in number_rows(*length)]),
        page,
        *draw(curves, longest.epochs, out / stem),
    ]


def _curves(result: Result) -> Curves:
    curves: Curves = {}
    for method, records in result.records.items():
        for record in records:
            trial = Trial.from_dict(record["trial"])
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
    """The paired difference to C = 0."""
    return paired(_values(series[C], metric, when), _values(series[0.0], metric, when))


def number_rows(result: Result, curves: Curves) -> Iterator[dict[str, Any]]:
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


def markdown(result: Result, curves: Curves) -> str:
    """The table, and what became of the paper's claim."""
    records = [record for found in result.records.values() for record in found]
    first, about = records[0], origin(records)
    title = f"deer among horses, rho {result.cell.rho:g}, alpha 0.8 ({length_words(result)})"
    lines = [f"### The choice of C: {title}", ""]
    for (method, lr), series in curves.items():
        for metric, title in METRICS.items():
            gap = _to_zero(series, PEAK, metric, "last")
            means = {C: estimate(_values(records, metric, "last")).mean for C, records in series.items()}
            best = max(means, key=means.__getitem__)
            shown, low, high = (number(metric, x, sign=True) for x in (gap.mean, gap.low, gap.high))
            lines.append(
                f"* {method}, lr {lr:g}: {title} is better at C = {PEAK:g} than at C = 0: {shown} "
                f"[{low}, {high}]: {claim_verdict(gap, metric)}; the largest mean is at C = {best:g}."
            )
    lines += [
        "",
        "Last epoch, but for the column of the best epoch on the test set, which is too good. In "
        "parentheses the difference to C = 0, paired by draw and seed, with its 95% interval for these "
        f"draws; **bold** where that leaves out zero. {epochs_words([result])} Trained on {about['device']}, "
        f"{about['precision']}, draws {about['draws']}, seeds {about['seeds']}. Gradient norms are clipped "
        f"at {first['clip']:g}, which the paper does not say it did: that damps large gradients as C does; "
        "the last columns say which trainings it met in a judged epoch.",
    ]
    for (method, lr), series in curves.items():
        lines += ["", f"**{method}, lr {lr:g}**", ""]
        titles = ("C", *METRICS.values(), f"AUC, {WHEN['test']}", "trainings clipped", "largest norm")
        lines += [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
        for C, records in series.items():
            cells = [_cell(series, C, metric) for metric in METRICS]
            best_epoch = number("roc_auc", estimate(_values(records, "roc_auc", "test")).mean)
            norms = [f"{_clipped(records)} of {len(records)}", f"{max(map(largest_norm, records)):.3g}"]
            lines.append(f"| {C:g} | {' | '.join([*cells, best_epoch, *norms])} |")
    return "\n".join(lines) + "\n"


def _clipped(records: list[Record]) -> int:
    """How many trainings had a gradient in a judged epoch that was shortened."""
    return sum(largest_norm(record) > record["clip"] for record in records)


def _cell(series: Mapping[float, list[Record]], C: float, metric: str) -> str:
    text = number(metric, estimate(_values(series[C], metric, "last")).mean)
    if C == 0:
        return text
    gap = _to_zero(series, C, metric, "last")
    mark = "**" if gap.low > 0 or gap.high < 0 else ""
    shown, low, high = (number(metric, x, sign=True) for x in (gap.mean, gap.low, gap.high))
    return f"{text} ({mark}{shown}{mark} [{low}, {high}])"


def draw(curves: Curves, epochs: int, path: Path) -> list[Path]:
    """Mean and standard error over C, as in the paper's figure, a panel for AUC and one for ACC."""
    figure, axes = figure_with_axes(2)
    for ax, metric in zip(axes, ("roc_auc", "accuracy_linked"), strict=True):
        for place, ((method, lr), series) in enumerate(curves.items()):
            found = [estimate(_values(records, metric, "last")) for records in series.values()]
            means = [100 * one.mean for one in found]
            ax.plot(list(series), means, "o-", color=COLOURS[place + 1], label=f"{method}, lr {lr:g}")
            ax.fill_between(
                list(series),
                [mean - 100 * one.error for mean, one in zip(means, found)],
                [mean + 100 * one.error for mean, one in zip(means, found)],
                color=COLOURS[place + 1],
                alpha=0.15,
            )
        ax.set_xlabel(f"C (alpha 0.8, {epochs} epochs; band: standard error)")
        ax.set_ylabel(METRICS[metric])
        ax.legend(fontsize=8)
    return save_figure(figure, path)
