"""The paper's Table 2: losses against each other on images, a random half of the categories rare."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .deep.claims import beats_every_rival, gain_grows, rivals_do_not_improve
from .deep.printed import TABLE2
from .deep.report import Report, write_report
from .deep.report_text import Column
from .deep.results import Result

__all__ = ["REPORT", "run"]


def claims(final: Sequence[Result], paper: Sequence[Result]) -> list[str]:
    on_test, on_validation = "best epoch on the test set", "epoch chosen on validation"
    return [
        *beats_every_rival(final, "roc_auc", f"AUC, {on_validation}", "validation"),
        *beats_every_rival(final, "roc_auc", "AUC, last epoch"),
        *beats_every_rival(final, "accuracy_linked", f"ACC after the link, {on_validation}", "validation"),
        *beats_every_rival(final, "accuracy_linked", "ACC after the link, last epoch"),
        *beats_every_rival(paper, "roc_auc", f"AUC, {on_test}", "test"),
        *beats_every_rival(paper, "accuracy", f"ACC by argmax, {on_test}", "test"),
        *beats_every_rival(paper, "accuracy_linked", f"ACC after the link, {on_test}", "test"),
        *beats_every_rival(paper, "accuracy_linked", "ACC after the link, last epoch"),
        *gain_grows(final, "roc_auc", f"AUC, {on_validation},", "validation"),
        *(line for results in (final, paper) for line in gain_grows(results, "roc_auc", "AUC, last epoch,")),
        *rivals_do_not_improve(final, "roc_auc", f"AUC, {on_validation}", "validation"),
        *rivals_do_not_improve(final, "roc_auc", "AUC, last epoch"),
        *rivals_do_not_improve(paper, "roc_auc", f"AUC, {on_test}", "test"),
        *rivals_do_not_improve(paper, "roc_auc", "AUC, last epoch"),
    ]


REPORT = Report(
    name="table2",
    title="Table 2: half of the categories rare",
    experiment="table2",
    columns=(
        Column("AUC, epoch chosen on validation", "roc_auc", "validation", is_compared=True),
        Column("AUC, last epoch", "roc_auc", is_compared=True),
        Column("AUC, best epoch on the test set", "roc_auc", "test"),
        Column("ACC, argmax", "accuracy"),
        Column("ACC, link and prior", "accuracy_linked", is_compared=True),
        Column("minority accuracy, argmax", "minority_accuracy"),
        Column("minority accuracy, link and prior", "minority_accuracy_linked"),
        Column("opAUC, FPR <= 0.01", "partial_auc_0.01"),
        Column("recall at FPR 0.01", "recall_0.01"),
        Column("Brier score", "brier_linked", is_compared=True),
    ),
    paper_columns=(
        Column("AUC, best epoch on the test set", "roc_auc", "test"),
        Column("ACC, argmax, best epoch on the test set", "accuracy", "test"),
        Column("ACC, last epoch", "accuracy"),
        Column("ACC, link and prior, best epoch on the test set", "accuracy_linked", "test"),
        Column("ACC, link and prior, last epoch", "accuracy_linked"),
        Column("AUC, last epoch", "roc_auc"),
        Column("minority accuracy, argmax, last epoch", "minority_accuracy"),
        Column("minority accuracy, link and prior, last epoch", "minority_accuracy_linked"),
        Column("Brier score, link and prior, last epoch", "brier_linked"),
    ),
    printed=TABLE2,
    drawn="roc_auc",
    drawn_title="AUC",
    curves={"roc_auc": "AUC", "brier_linked": "Brier score after the link"},
    claims=claims,
    drawn_when=("validation", "test"),
)

# Trains what is missing if `data` is given; writes the table, its numbers and a figure.
run = partial(write_report, REPORT)
