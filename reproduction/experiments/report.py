"""Write an experiment as a CSV file of numbers, a page of Markdown and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from raresight.common.atomic_files import write_files

from .. import UnfinishedError
from ..estimates import BOLD_NOTE, LEVEL, paired
from ..output import PICTURES, rows_text
from ..training_records import Record, format_clip_limits, journal_path, largest_norm, origin, read_records
from .balanced_metrics import BINARY_METRICS, CLASS_METRICS
from .figures import draw_differences, draw_epochs
from .methods import REFERENCE, candidates
from .net_trial import (
    DATASETS,
    PAPER_WIDTH,
    ROLES,
    Setup,
    format_parameters,
    refuse_seed,
    size_of,
    validation_share,
)
from .report_text import (
    CHOSEN_BY,
    ReportColumn,
    cell_text,
    cell_title,
    claim_verdict,
    device_lines,
    difference_text,
    format_devices,
    format_evaluated_epochs,
    format_method,
    format_origin,
    format_other_nets,
    format_setting,
    number,
    printed_cells,
    records_of,
    settings_name,
)
from .results import (
    WHEN,
    Result,
    Table,
    chosen_settings,
    distance_to_printed,
    find_results,
    incomplete_lines,
    is_started,
    missing_lines,
    on_validation,
)
from .trials import EXPERIMENTS, NetExperiment, beyond_rate, check_rhos
from .verdicts import OURS, verdicts

# ---- In one table ------------------------------------------------------------------------------------------

SUMMARY_TITLE = "#### In one table"


def summary_lines(
    printed: Table,
    column: ReportColumn,
    paper_column: ReportColumn,
    final: Sequence[Result],
    paper: Sequence[Result],
) -> list[str]:
    """Format the summary table: a row for each cell, length and method.

    Args:
        printed: The paper's numbers.
        column: Column for the chosen settings, with the difference to CE+LA.
        paper_column: Column for the paper's setting; the paper's number beside it has the same metric.
        final: Results at the chosen settings.
        paper: Results at the paper's setting, on the first draw.
    """
    has_draws = any(len(result.experiment.draws) > 1 for result in final)
    titles = (
        *("task", "method", f"chosen on validation: {column.full_title}"),
        *(["the same, first draw alone"] if has_draws else []),
        *(f"the paper's setting: {paper_column.full_title}", "the paper", "apart"),
    )
    lines = [SUMMARY_TITLE, "", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for task, found in _by_task((*final, *paper)).items():
        chosen, fixed = found.get("final"), found.get("paper")
        for place, method in enumerate(next(iter(found.values())).records):
            first = "" if chosen is None else cell_text(chosen, method, column)
            rest = ["", "", ""] if fixed is None else _beside(printed, fixed, method, paper_column)
            words = format_method(chosen, method) if chosen else method
            # The paper's setting is trained on the first draw only, so show that draw of ours, too.
            alone = [_first_draw(chosen, method, column)] if has_draws else []
            # Name the task in the first of its rows only.
            lines.append(f"| {' | '.join(['' if place else task, words, first, *alone, *rest])} |")
    return lines


def _by_task(results: Iterable[Result]) -> dict[str, dict[str, Result]]:
    """Group results by cell and length, then role, in the order of the cells, the longest first."""
    found: dict[str, dict[str, Result]] = {}
    for result in sorted(results, key=lambda one: (one.experiment.cells.index(one.cell), -one.epochs)):
        found.setdefault(cell_title(result), {})[result.role] = result
    return found


def _first_draw(result: Result | None, method: str, column: ReportColumn) -> str:
    if result is None:
        return ""
    found = result.mean(method, column.metric, column.when).by_draw
    return number(column.metric, found[0]) if found else "-"


def _beside(printed: Table, result: Result, method: str, column: ReportColumn) -> list[str]:
    ours = result.mean(method, column.metric, column.when)
    shown = f"{number(column.metric, ours.mean)} ± {number(column.metric, ours.deviation)}"
    return [shown, *printed_cells(result.printed(printed, method, column.metric), ours, column.metric)]


# ---- One rate beyond those that were chosen from -----------------------------------------------------------

_RIVALS = ("CE", REFERENCE)
# Choose the epoch on validation rows, as the rate, and show the last epoch beside it.
_EPOCHS = {"validation": "epoch chosen on validation", "last": "last epoch"}


def beyond_lines(final: Sequence[Result], beyond: Sequence[Result]) -> list[str]:
    """Format a table and a verdict for each cell that was trained at both rates."""
    pairs = [(chosen, further) for further in beyond for chosen in final if _is_same(chosen, further)]
    if not pairs:
        return []
    metric = pairs[0][0].experiment.choose_by
    rate = beyond_rate(pairs[0][0].setup.dataset)
    lines = [
        "#### One rate beyond those that were chosen from",
        "",
        f"Cross entropy, alpha and TBL at a learning rate of {rate:g}, three times the largest that was "
        f"chosen from, with the parameters that the search chose: {CHOSEN_BY[metric]}, and the difference to "
        f"the same loss at its chosen rate, paired by draw and seed, with its {LEVEL:.0%} interval for these "
        f"draws; {BOLD_NOTE}. The rate that is better on validation rows is the one "
        "with the higher mean there of each training's best epoch.",
    ]
    for chosen, further in pairs:
        lines += [
            "",
            f"**{cell_title(chosen)}**",
            "",
            *_table(chosen, further, metric),
            "",
            _verdict(chosen, further),
        ]
    return lines


def _is_same(chosen: Result, further: Result) -> bool:
    return (chosen.cell, chosen.epochs) == (further.cell, further.epochs)


def _table(chosen: Result, further: Result, metric: str) -> list[str]:
    rate = beyond_rate(chosen.setup.dataset)
    titles = ["", "chosen"]
    for epoch in _EPOCHS.values():
        titles += [f"{epoch}: chosen rate", f"lr={rate:g}", "difference"]
    titles.append("better on validation rows")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in further.records:
        cells = [_format_failures(chosen, further, method), chosen.setting(method)]
        for when in _EPOCHS:
            means = [result.mean(method, metric, when).mean for result in (chosen, further)]
            gap = paired(further.values(method, metric, when), chosen.values(method, metric, when))
            cells += [*(number(metric, mean) for mean in means), difference_text(gap, metric)]
        cells.append(f"{_better(chosen, further, method).rate(method):g}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _better(chosen: Result, further: Result, method: str) -> Result:
    """Return the result at the one of two rates that is better on validation rows."""
    return max((chosen, further), key=lambda result: _level(result, method))


def _level(result: Result, method: str) -> float:
    values = [on_validation(record, result.experiment.choose_by) for record in result.records[method]]
    # A training that ended early counts as the worst, as in `choose`.
    lost = result.failed(method) or any(value is None for value in values)
    return float("-inf") if lost else fmean(value for value in values if value is not None)


def _format_failures(chosen: Result, further: Result, method: str) -> str:
    """Format the method and the number of its trainings that were not finite at either rate."""
    failed = [
        f"{count} not finite at {result.rate(method):g}"
        for result in (chosen, further)
        if (count := result.failed(method))
    ]
    return f"{method} ({', '.join(failed)})" if failed else method


def _verdict(chosen: Result, further: Result) -> str:
    """Format the difference of the best TBL to the best cross entropy, all chosen on validation rows."""
    metric = chosen.experiment.choose_by
    best = {}
    for names in (OURS, _RIVALS):
        rates = {method: _better(chosen, further, method) for method in names}
        method = max(rates, key=lambda name: _level(rates[name], name))
        best[names] = (method, rates[method])
    (own, at), (rival, there) = best[OURS], best[_RIVALS]
    gap = paired(at.values(own, metric, "validation"), there.values(rival, metric, "validation"))
    return (
        f"With loss, rate and epoch chosen on validation rows: {own} at {at.setting(own)} less {rival} at "
        f"{there.setting(rival)}, {difference_text(gap, metric)}: {claim_verdict(gap, metric)}."
    )


# ---- The page ----------------------------------------------------------------------------------------------

DEFAULT_SIZE = "short"
"""The default of `--size`."""


@dataclass(frozen=True)
class Report:
    """The content of the page of an experiment.

    Attributes:
        name: Stem of the files.
        title: Title of the page.
        experiment: One of `EXPERIMENTS`.
        columns: Columns for settings chosen on validation rows. The summary table has the first.
        paper_columns: Columns for the paper's setting, with the paper's number beside them if it prints one.
            The summary table has the first.
        printed: The paper's numbers.
        drawn: Metric of the figure.
        drawn_title: Name of this metric in the figure.
        curves: Metrics, by title, that are drawn over the epochs of full-length trainings.
        claims: Returns the paper's claims with verdicts, from results at the chosen and the paper's settings.
        drawn_when: Epochs of the figure, of `WHEN`, at the chosen settings and at the paper's.
    """

    name: str
    title: str
    experiment: str
    columns: tuple[ReportColumn, ...]
    paper_columns: tuple[ReportColumn, ...]
    printed: Table
    drawn: str
    drawn_title: str
    curves: Mapping[str, str]
    claims: Callable[[Sequence[Result], Sequence[Result]], list[str]]
    drawn_when: tuple[str, str] = ("last", "last")


def train_and_read(
    name: str,
    experiment: NetExperiment,
    setup: Setup,
    out: Path,
    tell: Callable[[str], None],
    *,
    data: Path | None,
    results_only: bool,
    complete: bool,
    **options: Any,
) -> dict[str, Record]:
    """Train missing trials if `data` is given, and read all finished ones."""
    check_rhos([experiment], options.get("rhos"), name)
    journals = out / "deep"
    if data is not None and not results_only:
        from .runs import run_experiment

        outcome = run_experiment(experiment, setup, data, journals, complete=complete, tell=tell, **options)
        tell(f"{experiment.name}: {outcome.trained} trained in {outcome.seconds:.0f} s, {outcome.left} left")
    return read_records(journal_path(journals, experiment.name, setup.dataset))


def train_only(
    experiment: str,
    out: Path,
    tell: Callable[[str], None],
    *,
    data: Path,
    dataset: str = "cifar10",
    size: str = DEFAULT_SIZE,
    depth: int | None = None,
    width: int = PAPER_WIDTH,
    roles: Sequence[str] = ROLES,
    rhos: Sequence[float] | None = None,
    **options: Any,
) -> int:
    """Train missing trials without writing a page; return how many trainings are left.

    `options` are those of `run_experiment`.

    Raises:
        ValueError: Trainings were asked for without the search that chooses their settings, and it is
            incomplete. The same command would never train them.
    """
    from .runs import run_experiment

    setup = Setup(dataset, size_of(size), depth, width)
    outcome = run_experiment(
        *(EXPERIMENTS[experiment], setup, data, out / "deep"), roles=roles, rhos=rhos, tell=tell, **options
    )
    tell(f"{experiment}: {outcome.trained} trained in {outcome.seconds:.0f} s, {outcome.left} left")
    if outcome.waits_for:
        later = " ".join(role for role in ("final", "beyond") if role in roles)
        words = (
            "the search, which chooses the settings of these trainings, is incomplete; missing are "
            f"{'; '.join(f'{experiment}, {line}' for line in outcome.waits_for)}: train them with --role "
            f"search, or all with --role search {later}"
        )
        if not outcome.left:
            raise ValueError(words)
        tell(words)
    return outcome.left


def write_report(
    report: Report,
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
    """Train missing trials if `data` is given, and write the results in the journal.

    A cell is shown at every length at which it is complete. Missing trainings at `size`, and at other sizes
    with some trainings, are reported by `tell` and on the page. If `figures` is false, no figures are
    drawn. `options` are those of `run_experiment`.

    Raises:
        ValueError: No cell is complete.
    """
    refuse_seed(report.name, seed)
    experiment = EXPERIMENTS[report.experiment]
    setup = Setup(dataset, size_of(size or DEFAULT_SIZE), depth, width)
    experiment.check(setup, report.name)
    finished = train_and_read(
        *(report.name, experiment, setup, out, tell),
        data=data,
        results_only=results_only,
        complete=complete,
        **options,
    )
    final = find_results(experiment, setup, finished, "final")
    paper = find_results(experiment, setup, finished, "paper")
    beyond = find_results(experiment, setup, finished, "beyond")
    is_trained = data is not None and not results_only
    is_asked = size is not None or is_trained
    missing = not_trained(experiment, setup, finished, is_asked=is_asked)
    if not final and not paper:
        rhos = options.get("rhos")
        asked = missing_lines(experiment, setup, finished, rhos)
        raise incomplete_error(report.name, setup, asked, finished, rhos=rhos, trained=is_trained)
    others = format_other_nets(report.name, setup, finished)
    for line in missing:
        tell(f"missing: {line}")
    stem = f"{report.name}-{setup.stem}"
    about = " ".join(filter(None, [format_origin(setup, [*final, *paper, *beyond], finished), others]))
    text = markdown(report, final, paper, beyond, finished, missing, about)
    page, verdicts_page = out / f"{stem}.md", out / f"{experiment.name}-{setup.stem}-verdicts.md"
    shown, curves = [*final, *paper], out / f"{stem}-epochs"
    files: dict[Path, str | bytes] = {
        out / f"{stem}.csv": rows_text(number_rows(report, [*shown, *beyond])),
        page: text,
        verdicts_page: verdicts(f"{experiment.name}, {dataset}", about, shown),
    }
    if figures:
        files |= draw_differences(shown, report.drawn, report.drawn_title, report.drawn_when, out / stem)
        files |= draw_epochs(shown, report.curves, curves)
    # Earlier figures that are not drawn now would show other results than the page.
    earlier = [path.with_suffix(ending) for path in (out / stem, curves) for ending in PICTURES]
    return write_files(files, obsolete=[path for path in earlier if path not in files])


def not_trained(
    experiment: NetExperiment, setup: Setup, finished: Mapping[str, Record], *, is_asked: bool
) -> list[str]:
    """List what is missing at the size of `setup`, if asked for or started, and at other started sizes."""
    own = is_asked or is_started(experiment, setup, finished)
    lines = missing_lines(experiment, setup, finished) if own else []
    return list(dict.fromkeys([*lines, *incomplete_lines(experiment, setup, finished)]))


def incomplete_error(
    name: str,
    setup: Setup,
    missing: Sequence[str],
    finished: Mapping[str, Record],
    *,
    rhos: Sequence[float] | None,
    trained: bool,
) -> ValueError:
    """Return the error for results without a complete cell; after training, it says how to continue."""
    more = f", and {len(missing) - 1} more, which --plan counts" if len(missing) > 1 else ""
    lacking = f"{name} has no complete cell yet: missing are {missing[0]}{more}."
    hints = ""
    if others := format_other_nets(name, setup, finished):
        hints += f". These are of {setup.net}. {others}".removesuffix(".")
    if trained:
        return UnfinishedError(
            f"{lacking} Finished trainings are kept: run the same command to resume{hints}."
        )
    return ValueError(f"{lacking} Train them with {_training_command(name, setup, rhos)}{hints}")


def _training_command(name: str, setup: Setup, rhos: Sequence[float] | None) -> str:
    """Format the command that trains what was asked for."""
    options = "" if setup.dataset == "cifar10" else f" --dataset {setup.dataset}"
    options += "" if setup.size.name == DEFAULT_SIZE else f" --size {setup.size.name}"
    options += "".join([" --rho", *(f" {rho:g}" for rho in rhos)]) if rhos else ""
    options += "" if setup.layers == DATASETS[setup.dataset].depth else f" --depth {setup.layers}"
    options += "" if setup.width == PAPER_WIDTH else f" --width {setup.width}"
    return f"python -m reproduction {name}{options} --data FOLDER"


def number_rows(report: Report, results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return every metric of every method and cell, at every epoch of `WHEN`."""
    rows = []
    for result in results:
        names = CLASS_METRICS if result.experiment.classes else BINARY_METRICS
        for method in result.records:
            for metric in names:
                for when in WHEN:
                    found = result.mean(method, metric, when)
                    if not found.count:
                        continue
                    gap = result.difference(method, REFERENCE, metric, when)
                    printed = result.printed(report.printed, method, metric)
                    rows.append(
                        {
                            "settings": settings_name(result.role),
                            "task": result.cell.task,
                            "rho": result.cell.rho,
                            "epochs": result.epochs,
                            "size": result.setup.size.name,
                            "method": method,
                            "setting": result.setting(method),
                            "metric": metric,
                            "when": when,
                            "mean": found.mean,
                            "deviation": found.deviation,
                            "standard_error": found.error,
                            "trainings": found.count,
                            **origin(result.records[method]),
                            "not_finite": result.failed(method),
                            "difference": gap.mean,
                            "low": gap.low,
                            "high": gap.high,
                            "paper": "" if printed is None else printed.mean,
                            "paper_deviation": "" if printed is None else _or_empty(printed.deviation),
                            "standard_errors_apart": ""
                            if printed is None
                            else _or_empty(distance_to_printed(found, printed)),
                        }
                    )
    return rows


def markdown(
    report: Report,
    final: Sequence[Result],
    paper: Sequence[Result],
    beyond: Sequence[Result],
    finished: Mapping[str, Record],
    missing: Sequence[str],
    about: str,
) -> str:
    """Format the page of an experiment; `about` describes its nets."""
    lines, shown = [f"### {report.title}", "", about, ""], [*final, *paper]
    lines += summary_lines(report.printed, report.columns[0], report.paper_columns[0], final, paper)
    lines += ["", "#### What the paper claims", ""]
    lines += [f"* {line}" for line in report.claims(final, paper)]
    if final:
        lines += ["", "#### Settings chosen on validation rows", "", _format_protocol(report, final)]
        for result in final:
            lines += ["", f"**{cell_title(result)}**", "", *device_lines(result, shown)]
            lines += _final_table(report, result, finished)
    if found := beyond_lines(final, beyond):
        lines += ["", *found]
    if paper:
        lines += [
            "",
            "#### The paper's own setting",
            "",
            " ".join(
                [
                    _format_paper_protocol(paper[0].experiment),
                    format_evaluated_epochs(paper),
                    _format_clipping(paper),
                ]
            ),
        ]
        for result in paper:
            lines += ["", f"**{cell_title(result)}**", "", *device_lines(result, shown)]
            lines += _paper_table(report, result)
    if missing:
        lines += ["", "Not trained yet:", "", *(f"* {line}" for line in missing)]
    return "\n".join(lines) + "\n"


def _format_candidates(final: Sequence[Result]) -> str:
    """Format the parameters that the search tried: others were not varied."""
    tried: dict[str, dict[str, None]] = {}
    for result in final:
        setup, cell = result.setup, result.cell
        for method in result.records:
            count = setup.size.candidates
            for parameters in candidates(method, setup.dataset, cell.task, cell.rho, count):
                tried.setdefault(method, {})[format_parameters(parameters)] = None
    listed = "; ".join(f"{method} {', '.join(words)}" for method, words in tried.items() if any(words))
    counts = " or ".join(map(str, sorted({result.setup.size.candidates for result in final})))
    rates = ", ".join(f"{lr:g}" for lr in DATASETS[final[0].setup.dataset].lrs)
    return (
        f"Every loss with parameters had {counts} settings a cell, each with the rates {rates}; over all "
        f"cells {listed}."
    )


def _format_protocol(report: Report, final: Sequence[Result]) -> str:
    first = final[0]
    draws, by = len(first.experiment.draws), first.experiment.choose_by
    intervals = sum(len(result.records) - 1 for result in final) * sum(c.is_compared for c in report.columns)
    # If the largest rate is chosen often, an even larger one might be better.
    largest = max(DATASETS[first.setup.dataset].lrs)
    rates = [records[0]["trial"]["lr"] for result in final for records in result.records.values()]
    return (
        f"Learning rate and parameters of each loss were chosen by {CHOSEN_BY[by]} on validation rows "
        f"of the training images ({draws} {'draw' if draws == 1 else 'draws'} of the task, a seed of their "
        f"own). {_format_candidates(final)} A share of every category validates "
        f"({validation_share(first.cell.task):.0%}); of the rare ones these are rows that the task leaves "
        "unused, so that only the common ones train on fewer. Then three new seeds a draw, on the same rows. "
        "In parentheses the "
        f"difference to {REFERENCE}, paired by draw and seed, with its {LEVEL:.0%} interval for these draws; "
        f"{BOLD_NOTE}. Of the {intervals} intervals about "
        f"{intervals * (1 - LEVEL):.0f} would be beyond chance by luck alone. Trained on "
        f"{format_devices(records_of(final))}. The largest rate tried, {largest:g}, was chosen "
        f"{rates.count(largest)} times of {len(rates)}. {format_evaluated_epochs(final)} "
        f"{_format_clipping(final)}"
    )


def _format_clipping(results: Sequence[Result]) -> str:
    """Format whose gradients were clipped. A limit that affects only some losses is part of a comparison."""
    counts: dict[str, list[bool]] = {}
    largest: dict[str, float] = {}
    for result in results:
        for method, records in result.records.items():
            for record in records:
                norm = largest_norm(record)
                counts.setdefault(method, []).append(norm > record["clip"])
                largest[method] = max(largest.get(method, 0.0), norm)
    met = [
        f"{method} {sum(above)} of {len(above)} (largest {largest[method]:.3g})"
        for method, above in counts.items()
        if any(above)
    ]
    return (
        f"Gradient norms are clipped at {format_clip_limits(records_of(results))}, which the paper does not "
        "say it did; trainings with a larger norm in an evaluated epoch: "
        f"{', '.join(met) if met else 'none'}."
    )


def _format_paper_protocol(experiment: NetExperiment) -> str:
    unsaid = (
        " The paper prints no parameters for several classes: those of its binary CIFAR-10 stand in."
        if experiment.classes
        else " The paper does not say which classes were positive."
    )
    return (
        "The paper's learning rate and parameters (Appendix D), all rows trained on, the first draw, three "
        "seeds. As in the paper the best epoch is chosen **on the test set**, which is too good; the last "
        "epoch stands beside it. Ours ± standard deviation over seeds, then the paper's, then the difference "
        "in standard errors (SE), of ours alone beside the difference itself where the paper prints no "
        f"deviation.{unsaid}"
    )


def _final_table(report: Report, result: Result, finished: Mapping[str, Record]) -> list[str]:
    on_test = chosen_settings(result, finished, "test")
    titles = ["", "chosen", *(column.title for column in report.columns)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in result.records:
        there = format_setting(on_test[method])
        other = "" if there == result.setting(method) else f" (the test set would choose {there})"
        cells = [cell_text(result, method, column) for column in report.columns]
        lines.append(
            f"| {format_method(result, method)} | {result.setting(method)}{other} | {' | '.join(cells)} |"
        )
    return lines


def _paper_table(report: Report, result: Result) -> list[str]:
    titles, places = ["", "setting"], []
    for column in report.paper_columns:
        has = any(result.printed(report.printed, method, column.metric) for method in result.records)
        shown = has and column.when != "last"
        titles += [column.title, "paper", "apart"] if shown else [column.title]
        places.append((column, shown))
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in result.records:
        cells = []
        for column, shown in places:
            ours = result.mean(method, column.metric, column.when)
            cells.append(f"{number(column.metric, ours.mean)} ± {number(column.metric, ours.deviation)}")
            if shown:
                cells += printed_cells(
                    result.printed(report.printed, method, column.metric), ours, column.metric
                )
        lines.append(f"| {format_method(result, method)} | {result.setting(method)} | {' | '.join(cells)} |")
    return lines


def _or_empty(value: float | None) -> Any:
    return "" if value is None or math.isnan(value) else value
