"""TBL against its rivals in every measure and at every epoch: whether it is better, worse, or cannot be told.

What a page of results says in words is picked from these tables; here is all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from .claims import OURS, WITHOUT_CE, best_of, gain_grows
from .estimates import Estimate
from .experiments import Cell
from .methods import REFERENCE
from .metrics import BINARY_METRICS, CLASS_METRICS
from .report_text import cell_title, claim_verdict, difference_text, number, settings_name
from .results import Result

__all__ = ["in_short", "verdicts"]

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
# Against whom, and who they are.
_RIVALS = {
    "the best rival": (REFERENCE, "CE", *WITHOUT_CE),
    "the best of the paper's four": WITHOUT_CE,
    REFERENCE: (REFERENCE,),
}
# Of which the verdicts are also shown in short.
_SHORT_BINARY = (
    "roc_auc",
    "accuracy",
    "accuracy_linked",
    "minority_accuracy_linked",
    "brier",
    "brier_linked",
)
_SHORT_CLASSES = ("accuracy", "accuracy_linked", "minority_accuracy_linked", "brier_linked")
_SIGNS = {"held": "+", "the opposite": "-", "cannot be told": "?"}
_NOT_TRAINED = "."


def verdicts(title: str, about: str, results: Sequence[Result]) -> str:
    """A page of Markdown: for each measure a row for each cell, setting and epoch.

    `about` says what the nets are.
    """
    lines = [
        f"### {title}: TBL and TBL+LA against their rivals",
        "",
        about,
        "",
        "The best rival is the one with the best mean of CE, CE+LA, Focal+LA, LDAM-DRW, Poly+LA and VS, by "
        "the very nets it is compared by, which is hard on TBL; the paper's four are those without cross "
        "entropy. Differences are paired by draw and seed, and are beyond chance where their 95% intervals "
        "leave out zero: of so many, one in twenty does so by chance. The epoch best on the test set is each "
        "measure's own.",
    ]
    for rivals in _RIVALS:
        lines += ["", f"#### In short, against {rivals}", "", *in_short(results, rivals)]
    for metric in CLASS_METRICS if results[0].experiment.classes else BINARY_METRICS:
        lines += ["", f"#### {_TITLES[metric]}", "", *_table(results, metric)]
        lines += _growth(results, metric)
    return "\n".join(lines) + "\n"


def in_short(results: Sequence[Result], rivals: str) -> list[str]:
    """Signs instead of numbers: a row for each measure and epoch, a column for each length and setting."""
    cells = sorted({result.cell for result in results}, key=lambda cell: (cell.task, cell.rho))
    columns = list(dict.fromkeys((result.epochs, result.role) for result in results))
    # Short trainings first, and the paper's setting before the chosen one.
    columns.sort(key=lambda column: (column[0], column[1] != "paper"))
    named = [f"{epochs} epochs, {settings_name(role)}" for epochs, role in columns]
    lines = [
        f"For {'; '.join(map(str, cells))}, in this order: `+` better than {rivals} and `-` worse, both "
        f"beyond chance, `?` cannot be told, `{_NOT_TRAINED}` not trained.",
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
    """One sign a cell for TBL, then for TBL+LA; nothing where there is no such epoch."""
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
    """Means and differences, better or worse where they are beyond chance; by draw where draws differ."""
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
    words = {"held": " **better**", "the opposite": " **worse**"}
    verdict = words.get(claim_verdict(gap, metric).split(",")[0], "")
    return f"{difference_text(gap, metric, bold=False)}{verdict}"


def _growth(results: Sequence[Result], metric: str) -> list[str]:
    """Whether the gain over CE+LA grows as rho falls, at each epoch."""
    lines = []
    for role in dict.fromkeys(result.role for result in results):
        alike = [result for result in results if result.role == role]
        for when, epoch in _EPOCHS.items():
            if alike[0].mean(OURS[0], metric, when).count:
                lines += gain_grows(alike, metric, f"{_TITLES[metric]}, {epoch},", when)
    return ["", *(f"* {line}" for line in lines)] if lines else []
