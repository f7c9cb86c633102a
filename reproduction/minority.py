"""The paper's Appendix D: the accuracy of the minority, deer among horses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .deep.claims import beats_every_rival, rivals_do_not_improve
from .deep.printed import MINORITY
from .deep.report import Report, write_report
from .deep.report_text import Column
from .deep.results import Result

__all__ = ["REPORT", "run"]


def claims(final: Sequence[Result], paper: Sequence[Result]) -> list[str]:
    return [
        *beats_every_rival(final, "minority_accuracy_linked", "minority accuracy after the link"),
        *beats_every_rival(paper, "minority_accuracy", "minority accuracy by argmax", "best accuracy"),
        # What is won for the minority may be lost for the others.
        *beats_every_rival(final, "accuracy_linked", "accuracy of both classes after the link"),
        *rivals_do_not_improve(final, "roc_auc", "AUC, epoch chosen on validation", "validation"),
        *rivals_do_not_improve(final, "roc_auc", "AUC, last epoch"),
        *rivals_do_not_improve(paper, "roc_auc", "AUC, best epoch on the test set", "test"),
        *rivals_do_not_improve(paper, "roc_auc", "AUC, last epoch"),
    ]


REPORT = Report(
    name="minority",
    title="Accuracy of the minority: deer among horses",
    experiment="deer-horse",
    columns=(
        Column("minority accuracy, link and prior", "minority_accuracy_linked", is_compared=True),
        Column("minority accuracy, argmax", "minority_accuracy", is_compared=True),
        Column("ACC, link and prior", "accuracy_linked", is_compared=True),
        Column("ACC, argmax", "accuracy"),
        Column("AUC", "roc_auc", is_compared=True),
        Column("AUC, epoch chosen on validation", "roc_auc", "validation"),
        Column("AUC, best epoch on the test set", "roc_auc", "test"),
    ),
    paper_columns=(
        Column("minority accuracy, epoch with the best test ACC", "minority_accuracy", "best accuracy"),
        Column("ACC, best epoch on the test set", "accuracy", "test"),
        Column("minority accuracy, last epoch", "minority_accuracy"),
        Column("minority accuracy, link and prior, last epoch", "minority_accuracy_linked"),
    ),
    printed=MINORITY,
    drawn="minority_accuracy_linked",
    drawn_title="minority accuracy after the link",
    curves={"roc_auc": "AUC", "minority_accuracy_linked": "minority accuracy after the link"},
    claims=claims,
)

# Trains what is missing if `data` is given; writes the table, its numbers and a figure.
run = partial(write_report, REPORT)
