"""Verdicts on the paper's claims about its method, from paired differences.

Pages show some of the verdicts in sentences; `verdicts` lists them all, for every metric and epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from ..estimates import LEVEL, Estimate, effect_on
from .balanced_metrics import BINARY_METRICS, CLASS_METRICS, is_better
from .methods import REFERENCE
from .report_text import (
    VERDICTS,
    cell_title,
    claim_verdict,
    difference_text,
    format_draws,
    number,
    settings_name,
)
from .results import Result
from .trials import Cell

# ---- Claims ------------------------------------------------------------------------------------------------

OURS = ("TBL", "TBL+LA")
WITHOUT_CE = ("Focal+LA", "LDAM-DRW", "Poly+LA", "VS")
"""The rivals of the paper's tables that have no row of cross entropy."""
_NAMES = {"final": "chosen settings", "paper": "paper's setting"}


def best_of(result: Result, metric: str, when: str, among: Sequence[str]) -> str:
    """Return the method with the best mean."""
    rivals = [method for method in result.records if method in among]
    # A method whose scores were never finite does not count, unless there is no other.
    rivals = [rival for rival in rivals if result.mean(rival, metric, when).count] or rivals
    best = rivals[0]
    for rival in rivals[1:]:
        if is_better(metric, result.mean(rival, metric, when).mean, result.mean(best, metric, when).mean):
            best = rival
    return best


def beats_every_rival(
    results: Sequence[Result],
    metric: str,
    title: str,
    when: str = "last",
    among: Sequence[str] = (REFERENCE, "CE", *WITHOUT_CE),
    among_title: str = "the best rival",
) -> list[str]:
    """Compare TBL and TBL+LA with the rival of the best mean; return a line for each cell.

    The rival is chosen by the same numbers as it is compared by, which favours it over TBL. The alpha loss is
    TBL with C = 0, so it is not a rival.
    """
    lines = []
    for result in results:
        best = best_of(result, metric, when, among)
        parts = []
        for own in OURS:
            gap = result.difference(own, best, metric, when)
            shown, low, high = (number(metric, x, sign=True) for x in (gap.mean, gap.low, gap.high))
            draws = format_draws(gap, metric)
            parts.append(f"{own} {shown} [{low}, {high}]{draws}: {claim_verdict(gap, metric)}")
        lines.append(
            f"TBL has the best {title} ({_NAMES[result.role]}, {result.cell}, {result.epochs} epochs); "
            f"against {among_title}, {best}: {'; '.join(parts)}."
        )
    return lines


beats_the_papers_rivals = partial(
    beats_every_rival, among=WITHOUT_CE, among_title="the best of the paper's rivals"
)
"""`beats_every_rival` among those of a table that has no cross entropy."""


def gain_grows(results: Sequence[Result], metric: str, title: str, when: str = "last") -> list[str]:
    """Test whether the gain over CE+LA is larger at the smallest rho than at the largest.

    Return a line for TBL and TBL+LA at each length and task.
    """
    lines = []
    for epochs, task in dict.fromkeys((result.epochs, result.cell.task) for result in results):
        alike = [result for result in results if (result.epochs, result.cell.task) == (epochs, task)]
        rare, common = min(alike, key=lambda r: r.cell.rho), max(alike, key=lambda r: r.cell.rho)
        if rare.cell != common.cell:
            lines += _gain_lines(rare, common, metric, title, when)
    return lines


def _gain_lines(rare: Result, common: Result, metric: str, title: str, when: str) -> list[str]:
    lines = []
    for own in OURS:
        ends = [result.difference(own, REFERENCE, metric, when) for result in (rare, common)]
        if not all(end.count for end in ends):
            lines.append(
                f"{own}'s gain in {title} over {REFERENCE} grows as rho falls ({_NAMES[rare.role]}, "
                f"{rare.cell.title}, {rare.epochs} epochs): not all have finite scores: inconclusive."
            )
            continue
        change, error = ends[0].mean - ends[1].mean, math.hypot(ends[0].error, ends[1].error)
        half = _quantile(ends) * error
        verdict = VERDICTS[effect_on(metric, change, change - half, change + half)]
        lines.append(
            f"{own}'s gain in {title} over {REFERENCE} grows as rho falls ({_NAMES[rare.role]}, "
            f"{rare.cell.title}, {rare.epochs} epochs): {number(metric, ends[0].mean, sign=True)} at rho "
            f"{rare.cell.rho:g}, {number(metric, ends[1].mean, sign=True)} at rho {common.cell.rho:g}, the "
            f"change {number(metric, change, sign=True)} [{number(metric, change - half, sign=True)}, "
            f"{number(metric, change + half, sign=True)}]: {verdict}."
        )
    return lines


def _quantile(ends: Sequence[Estimate]) -> float:
    """Return Student's quantile for the difference of two means, by Welch and Satterthwaite."""
    from scipy.special import stdtrit

    squares = [end.error**2 for end in ends]
    spread = sum(
        square**2 / (end.count - len(end.by_draw)) for square, end in zip(squares, ends, strict=True)
    )
    freedom = sum(squares) ** 2 / spread if spread > 0 else math.inf
    return float(stdtrit(min(freedom, 1e6), (1 + LEVEL) / 2))


def rivals_do_not_improve(
    results: Sequence[Result], metric: str, title: str, when: str = "last"
) -> list[str]:
    """Test whether no rival is better than CE+LA; return a line for each cell.

    The claim is confirmed if every rival is worse, and contradicted if one is better. Otherwise it is
    inconclusive, and the line names the largest gain that the intervals allow.
    """
    lines = []
    for result in results:
        gaps = {method: result.difference(method, REFERENCE, metric, when) for method in WITHOUT_CE}
        found = [
            f"{method} {number(metric, gap.mean, sign=True)}{format_draws(gap, metric)}"
            for method, gap in gaps.items()
            if gap.low > 0 or gap.high < 0 or gap.draws_differ
        ]
        text = " / ".join(found) if found else "none"
        verdict = _no_gain_verdict(gaps, metric)
        lines.append(
            f"Rivals do not improve on {REFERENCE} in {title} ({_NAMES[result.role]}, {result.cell}, "
            f"{result.epochs} epochs); those whose interval leaves out zero, or whose draws differ: "
            f"{text}: {verdict}."
        )
    return lines


def _no_gain_verdict(gaps: Mapping[str, Estimate], metric: str) -> str:
    verdicts = [claim_verdict(gap, metric) for gap in gaps.values()]
    depends = ", but the draws differ" if any(gap.draws_differ for gap in gaps.values()) else ""
    if any(verdict.startswith("confirmed") for verdict in verdicts):
        return f"contradicted{depends}"
    if all(verdict.startswith("contradicted") for verdict in verdicts):
        return f"confirmed{depends}"
    # The end of each interval that is best for the rival. NaN or an infinite interval allows any gain.
    ends = {
        method: gap.high if is_better(metric, 1.0, 0.0) else gap.low
        for method, gap in gaps.items()
        if gap.count and math.isfinite(gap.high)
    }
    if len(ends) < len(gaps):
        return f"inconclusive{depends}"
    largest = max(ends, key=lambda method: ends[method] if is_better(metric, 1.0, 0.0) else -ends[method])
    return f"inconclusive, {largest} may have up to {number(metric, ends[largest], sign=True)}{depends}"


# ---- All comparisons ---------------------------------------------------------------------------------------

_TITLES = {
    "roc_auc": "AUC",
    "partial_auc_0.01": "AUC up to a false-positive rate of 0.01",
    "recall_0.01": "Recall at a false-positive rate of 0.01",
    "recall_0.001": "Recall at a false-positive rate of 0.001",
    "accuracy": "Accuracy by argmax",
    "accuracy_linked": "Accuracy after the link",
    "balanced_accuracy": "Balanced accuracy by argmax",
    "balanced_accuracy_linked": "Balanced accuracy after the link",
    "common_accuracy": "Accuracy of the common classes by argmax",
    "common_accuracy_linked": "Accuracy of the common classes after the link",
    "rare_accuracy": "Accuracy of the rare classes by argmax",
    "rare_accuracy_linked": "Accuracy of the rare classes after the link",
    "minority_accuracy": "Accuracy of the minority by argmax",
    "minority_accuracy_linked": "Accuracy of the minority after the link",
    "brier": "Brier score of sigmoid(z)",
    "brier_linked": "Brier score after the link",
}
_EPOCHS = {
    "validation": "epoch chosen on validation",
    "last": "last epoch",
    "test": "epoch best on the test set",
}
# Titles of comparisons, and the rivals of each.
_RIVALS = {
    "the best rival": (REFERENCE, "CE", *WITHOUT_CE),
    "the best of the paper's four": WITHOUT_CE,
    REFERENCE: (REFERENCE,),
}
# Measures of the short tables.
_SHORT_BINARY = (
    "roc_auc",
    "accuracy",
    "accuracy_linked",
    "minority_accuracy_linked",
    "brier",
    "brier_linked",
)
_SHORT_CLASSES = ("accuracy", "accuracy_linked", "minority_accuracy_linked", "brier_linked")
_SIGNS = {"confirmed": "+", "contradicted": "-", "small": "~", "inconclusive": "?"}
_NOT_TRAINED = "."


def verdicts(title: str, about: str, results: Sequence[Result]) -> str:
    """Format all comparisons as Markdown: for each measure, a row for each cell, setting and epoch.

    `about` describes the nets.
    """
    lines = [
        f"### {title}: TBL and TBL+LA against their rivals",
        "",
        about,
        "",
        "The best rival is the one with the best mean of CE, CE+LA, Focal+LA, LDAM-DRW, Poly+LA and VS. It "
        "is picked by the same nets it is compared by, which leans against TBL. The paper's four are those "
        "without cross entropy. Differences are paired by draw and seed. They are beyond chance where their "
        "95% intervals leave out zero; one in twenty does so by chance. Those of less than 0.1 points are "
        "small, and called neither better nor worse; a Brier score has no points. The epoch best on the "
        "test set is each measure's own.",
    ]
    for rivals in _RIVALS:
        lines += ["", f"#### In short, against {rivals}", "", *in_short(results, rivals)]
    for metric in CLASS_METRICS if results[0].experiment.classes else BINARY_METRICS:
        lines += ["", f"#### {_TITLES[metric]}", "", *_table(results, metric)]
        lines += _growth(results, metric)
    return "\n".join(lines) + "\n"


def in_short(results: Sequence[Result], rivals: str) -> list[str]:
    """Format signs: a row for each measure and epoch, a column for each length and setting."""
    cells = sorted({result.cell for result in results}, key=lambda cell: (cell.task, cell.rho))
    columns = list(dict.fromkeys((result.epochs, result.role) for result in results))
    # Sort short trainings first, and the paper's setting before the chosen one.
    columns.sort(key=lambda column: (column[0], column[1] != "paper"))
    named = [f"{epochs} epochs, {settings_name(role)}" for epochs, role in columns]
    lines = [
        f"For {'; '.join(map(str, cells))}, in this order: `+` better than {rivals} and `-` worse, both "
        f"beyond chance, `~` beyond chance but small, `?` inconclusive, `{_NOT_TRAINED}` not trained.",
        "",
        f"| {' | '.join(['measure', 'epoch', *named])} |",
        "|" + "---|" * (2 + len(named)),
    ]
    for metric in _SHORT_CLASSES if results[0].experiment.classes else _SHORT_BINARY:
        for when, epoch in _EPOCHS.items():
            texts = [
                _signs([r for r in results if (r.epochs, r.role) == column], cells, metric, when, rivals)
                for column in columns
            ]
            lines.append(f"| {' | '.join([_TITLES[metric], epoch, *texts])} |")
    return lines


def _signs(results: Sequence[Result], cells: Sequence[Cell], metric: str, when: str, rivals: str) -> str:
    """Format one sign per cell for TBL, then for TBL+LA; empty if there is no such epoch."""
    of_cells = {result.cell: result for result in results}
    if not any(result.mean(OURS[0], metric, when).count for result in results):
        return ""
    texts = []
    for own in OURS:
        signs = []
        for cell in cells:
            sign = _NOT_TRAINED
            if cell in of_cells:
                best = best_of(of_cells[cell], metric, when, _RIVALS[rivals])
                gap = of_cells[cell].difference(own, best, metric, when)
                sign = _SIGNS[claim_verdict(gap, metric).split(",")[0]]
            signs.append(sign)
        texts.append(f"{own} `{' '.join(signs)}`")
    return ", ".join(texts)


def _table(results: Sequence[Result], metric: str) -> list[str]:
    """Format means and differences, marked if beyond chance, by draw if draws differ."""
    columns = ["task", "settings", "epoch", *OURS]
    for rivals in _RIVALS:
        columns += [rivals, *(f"{own} less {rivals}" for own in OURS)]
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for result in results:
        for when, epoch in _EPOCHS.items():
            if result.mean(OURS[0], metric, when).count:
                lines.append(f"| {' | '.join(_cells(result, metric, when, epoch))} |")
    return lines


def _cells(result: Result, metric: str, when: str, epoch: str) -> list[str]:
    cells = [cell_title(result), settings_name(result.role), epoch]
    cells += [number(metric, result.mean(own, metric, when).mean) for own in OURS]
    for among in _RIVALS.values():
        best = best_of(result, metric, when, among)
        mean = number(metric, result.mean(best, metric, when).mean)
        cells.append(mean if len(among) == 1 else f"{best} {mean}")
        cells += [_difference(result.difference(own, best, metric, when), metric) for own in OURS]
    return cells


def _difference(gap: Estimate, metric: str) -> str:
    words = {"confirmed": " **better**", "contradicted": " **worse**", "small": " (small)"}
    verdict = words.get(claim_verdict(gap, metric).split(",")[0], "")
    return f"{difference_text(gap, metric, bold=False)}{verdict}"


def _growth(results: Sequence[Result], metric: str) -> list[str]:
    """Test at each epoch whether the gain over CE+LA grows as rho falls."""
    lines = []
    for role in dict.fromkeys(result.role for result in results):
        alike = [result for result in results if result.role == role]
        for when, epoch in _EPOCHS.items():
            if alike[0].mean(OURS[0], metric, when).count:
                lines += gain_grows(alike, metric, f"{_TITLES[metric]}, {epoch},", when)
    return ["", *(f"* {line}" for line in lines)] if lines else []
