"""Write one page on all experiments with nets: lengths of trainings, and the paper's numbers beside ours.

The other pages have every length of a cell and every measure. This page has the longest length of each cell,
the measures that the paper prints, and the comparison at settings that were chosen for each loss.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from raresight.common.atomic_files import write_file

from .. import DEEP_NAMES
from ..training_records import Record, journal_path, read_records
from .net_trial import Setup, refuse_seed
from .pages import REPORTS
from .report import Report
from .report_text import (
    ReportColumn,
    cell_text,
    device_lines,
    format_devices,
    format_length,
    format_origin,
    format_other_nets,
    format_standard_errors,
    number,
    records_of,
)
from .results import Result, find_results, incomplete_lines
from .trials import EXPERIMENTS, PAPER_EPOCHS, Cell, NetExperiment

# The first part of the paper that uses an experiment.
_PARTS = {experiment: part for part, experiment in reversed(DEEP_NAMES.items())}
# The paper's names of the experiments, in its order.
_TITLES = {"table2": "Table 2", "table4": "Table 4", "ablation-c": "Figure 4", "deer-horse": "Appendix D"}


@dataclass(frozen=True)
class LongestResults:
    """The longest complete trainings of each cell of an experiment, by role and cell."""

    experiment: NetExperiment
    setup: Setup
    finished: dict[str, Record]
    longest: dict[tuple[str, Cell], Result]

    def of_role(self, role: str) -> list[Result]:
        """Return the results of a role in the order of the cells."""
        cells = self.experiment.cells
        return [self.longest[role, cell] for cell in cells if (role, cell) in self.longest]

    def begun(self) -> list[str]:
        """List what is missing in incomplete cells, at every length."""
        return incomplete_lines(self.experiment, self.setup, self.finished)


def run(
    out: Path,
    seed: int = 0,
    tell: Callable[[str], None] = lambda message: None,
    *,
    dataset: str = "cifar10",
) -> list[Path]:
    """Write the page from the journals under `out`, without training.

    Raises:
        ValueError: No cell of any experiment is complete.
    """
    refuse_seed("overview", seed)
    setup, found = Setup(dataset), {}
    for name, experiment in EXPERIMENTS.items():
        journal = journal_path(out / "deep", name, dataset)
        tell(f"reading {journal}")
        found[name] = _found(experiment, setup, read_records(journal))
    finished = {key: record for one in found.values() for key, record in one.finished.items()}
    nets = [format_other_nets(_PARTS[name], setup, one.finished) for name, one in found.items()]
    others = " ".join(filter(None, nets))
    if not any(one.longest for one in found.values()):
        begun = [f"{_TITLES[name]}, {line}" for name, one in found.items() for line in one.begun()]
        lacking = f" (incomplete, missing are: {'; '.join(begun)})" if begun else ""
        raise ValueError(
            f"there are no results of nets on {dataset} in {out / 'deep'}{lacking}: train them with "
            f"python -m reproduction table2 --dataset {dataset} --data FOLDER, and the like."
            f"{' ' if others else ''}{others}"
        )
    shown = [result for one in found.values() for result in one.longest.values()]
    about = " ".join(filter(None, [format_origin(setup, shown, finished), others]))
    page = out / f"overview-{dataset}.md"
    return [write_file(page, f"{about}\n\n{markdown(found)}")]


def _found(experiment: NetExperiment, setup: Setup, finished: dict[str, Record]) -> LongestResults:
    longest: dict[tuple[str, Cell], Result] = {}
    for role in ("paper", "final", "ablation"):
        # `find_results` returns the longest first.
        for result in find_results(experiment, setup, finished, role):
            longest.setdefault((role, result.cell), result)
    return LongestResults(experiment, setup, finished, longest)


def markdown(found: dict[str, LongestResults]) -> str:
    """Format the page, without parts that have no results."""
    lines = ["### How long each cell was trained", "", *_lengths(found)]
    for report in REPORTS:
        fixed = found[report.experiment].of_role("paper")
        for column in _printed_columns(report) if fixed else ():
            lines += ["", f"### {report.title}, the paper's setting: {column.title}", ""]
            lines += _table(fixed, partial(_beside, report, column))
    for report in REPORTS:
        chosen = found[report.experiment].of_role("final")
        for column in _short_columns(report) if chosen else ():
            lines += ["", f"### {report.title}, settings chosen on validation: {column.full_title}", ""]
            lines += _table(chosen, partial(cell_text, column=column))
    return "\n".join(lines) + "\n"


def _short_columns(report: Report) -> list[ReportColumn]:
    """Return the first column, and that of the same metric in the last epoch if it is another."""
    first = report.columns[0]
    return [
        column
        for column in report.columns
        if column == first or (column.metric == first.metric and column.when == "last")
    ]


def _printed_columns(report: Report) -> list[ReportColumn]:
    """Return for each metric that the paper prints the column that chooses the epoch as the paper does."""
    printed = {metric for _, _, _, metric, _ in report.printed}
    first: dict[str, ReportColumn] = {}
    for column in report.paper_columns:
        if column.metric in printed:
            first.setdefault(column.metric, column)
    return list(first.values())


def _lengths(found: dict[str, LongestResults]) -> list[str]:
    lines = [
        "| experiment | cell | the paper's setting | settings chosen on validation |",
        "|---|---|---|---|",
    ]
    begun = []
    shown = [result for one in found.values() for result in one.longest.values()]
    for name, title in _TITLES.items():
        one = found[name]
        if not any(map(one.setup.has, (record["trial"] for record in one.finished.values()))):
            continue
        for cell in one.experiment.cells:
            roles = ("ablation",) if name == "ablation-c" else ("paper", "final")
            texts = [_length(one.longest.get((role, cell)), shown) for role in roles]
            if roles == ("ablation",):
                texts = [f"{texts[0]} (C in steps, at its rate and the largest)", ""]
            lines.append(f"| {' | '.join([title, str(cell), *texts])} |")
        begun += [f"{title}, {line}" for line in one.begun()]
    return (
        [*lines, "", f"Begun at another length, with these missing: {'; '.join(begun)}."] if begun else lines
    )


def _length(result: Result | None, shown: Sequence[Result]) -> str:
    """Format the length of a cell's trainings, and their device unless all `shown` have the same one."""
    if result is None:
        return "not trained"
    records, words = records_of([result]), format_length(result)
    place = f" on {format_devices(records)}" if device_lines(result, shown) else ""
    return f"{f'**{words}**' if result.epochs == PAPER_EPOCHS else words}, {len(records)} nets{place}"


def _table(results: Sequence[Result], text: Callable[[Result, str], str]) -> list[str]:
    """Format a table with a row for each method and a column for each cell."""
    is_one_task = len({result.cell.task for result in results}) == 1
    cells = [f"rho {result.cell.rho:g}" if is_one_task else str(result.cell) for result in results]
    titles = ["", *(f"{cell}, {result.epochs} epochs" for cell, result in zip(cells, results, strict=True))]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for method in results[0].records:
        lines.append(f"| {' | '.join([method, *(text(result, method) for result in results)])} |")
    return lines


def _beside(report: Report, column: ReportColumn, result: Result, method: str) -> str:
    """Format ours, and the paper's in parentheses with the difference in standard errors if equally long."""
    ours = result.mean(method, column.metric, column.when)
    shown = f"{number(column.metric, ours.mean)} ± {number(column.metric, ours.deviation)}"
    printed = result.printed(report.printed, method, column.metric)
    if printed is None:
        return shown
    apart = (
        format_standard_errors(ours, printed)
        if result.epochs == PAPER_EPOCHS
        else f"of {PAPER_EPOCHS} epochs"
    )
    words = [number(column.metric, printed.mean), apart]
    return f"{shown} (paper {', '.join(filter(None, words))})"
