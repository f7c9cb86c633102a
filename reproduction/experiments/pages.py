"""The pages of Table 2, Table 4 and Appendix D: their columns, and the claims that they test."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..paper_numbers import BRIER, MINORITY, TABLE2, TABLE4
from .report import Report, write_report
from .report_text import ReportColumn
from .results import Result
from .verdicts import beats_every_rival, beats_the_papers_rivals, gain_grows, rivals_do_not_improve

# ---- Table 2: a random half of the categories rare ---------------------------------------------------------


def _table2_claims(final: Sequence[Result], paper: Sequence[Result]) -> list[str]:
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


TABLE2_REPORT = Report(
    name="table2",
    title="Table 2: half of the categories rare",
    experiment="table2",
    columns=(
        ReportColumn("AUC, epoch chosen on validation", "roc_auc", "validation", is_compared=True),
        ReportColumn("AUC, last epoch", "roc_auc", is_compared=True),
        ReportColumn("AUC, best epoch on the test set", "roc_auc", "test"),
        ReportColumn("ACC, argmax", "accuracy"),
        ReportColumn("ACC, link and prior", "accuracy_linked", is_compared=True),
        ReportColumn("minority accuracy, argmax", "minority_accuracy"),
        ReportColumn("minority accuracy, link and prior", "minority_accuracy_linked"),
        ReportColumn("opAUC, FPR <= 0.01", "partial_auc_0.01"),
        ReportColumn("recall at FPR 0.01", "recall_0.01"),
        ReportColumn("Brier score", "brier_linked", is_compared=True),
    ),
    paper_columns=(
        ReportColumn("AUC, best epoch on the test set", "roc_auc", "test"),
        ReportColumn("ACC, argmax, best epoch on the test set", "accuracy", "test"),
        ReportColumn("ACC, last epoch", "accuracy"),
        ReportColumn("ACC, link and prior, best epoch on the test set", "accuracy_linked", "test"),
        ReportColumn("ACC, link and prior, last epoch", "accuracy_linked"),
        ReportColumn("AUC, last epoch", "roc_auc"),
        ReportColumn("minority accuracy, argmax, last epoch", "minority_accuracy"),
        ReportColumn("minority accuracy, link and prior, last epoch", "minority_accuracy_linked"),
        ReportColumn("Brier score, link and prior, last epoch", "brier_linked"),
    ),
    printed=TABLE2,
    drawn="roc_auc",
    drawn_title="AUC",
    curves={"roc_auc": "AUC", "brier_linked": "Brier score after the link"},
    claims=_table2_claims,
    drawn_when=("validation", "test"),
)

table2 = partial(write_report, TABLE2_REPORT)


# ---- Table 4: ten classes, with sizes that fall exponentially or in a step ---------------------------------


def _table4_claims(final: Sequence[Result], paper: Sequence[Result]) -> list[str]:
    linked, by_argmax = "accuracy after the link", "accuracy by argmax, best epoch on the test set"
    return [
        *beats_every_rival(final, "accuracy_linked", linked),
        *beats_the_papers_rivals(paper, "accuracy", by_argmax, "test"),
        *beats_every_rival(paper, "accuracy", by_argmax, "test"),
        *beats_the_papers_rivals(paper, "accuracy_linked", linked),
        *beats_every_rival(paper, "accuracy_linked", linked),
    ]


TABLE4_REPORT = Report(
    name="table4",
    title="Table 4: several classes",
    experiment="table4",
    columns=(
        ReportColumn("accuracy, link and prior", "accuracy_linked", is_compared=True),
        ReportColumn("accuracy, argmax", "accuracy", is_compared=True),
        ReportColumn("epoch chosen on validation, link and prior", "accuracy_linked", "validation"),
        ReportColumn("best epoch on the test set, argmax", "accuracy", "test"),
        ReportColumn("common half, link and prior", "common_accuracy_linked"),
        ReportColumn("rare half, link and prior", "rare_accuracy_linked"),
        ReportColumn("smallest class, link and prior", "minority_accuracy_linked"),
        ReportColumn("Brier score", "brier_linked"),
    ),
    paper_columns=(
        ReportColumn("accuracy, best epoch on the test set", "accuracy", "test"),
        ReportColumn("accuracy, last epoch", "accuracy"),
        ReportColumn("link and prior, last epoch", "accuracy_linked"),
    ),
    printed=TABLE4,
    drawn="accuracy_linked",
    drawn_title="accuracy after the link",
    curves={"accuracy_linked": "accuracy after the link", "brier_linked": "Brier score after the link"},
    claims=_table4_claims,
)

table4 = partial(write_report, TABLE4_REPORT)


# ---- Appendix D: accuracy of the minority, deer among horses -----------------------------------------------


def _minority_claims(final: Sequence[Result], paper: Sequence[Result]) -> list[str]:
    return [
        *beats_every_rival(final, "minority_accuracy_linked", "minority accuracy after the link"),
        *beats_every_rival(paper, "minority_accuracy", "minority accuracy by argmax", "best accuracy"),
        # A gain for the minority may cost accuracy of the other class.
        *beats_every_rival(final, "accuracy_linked", "accuracy of both classes after the link"),
        *rivals_do_not_improve(final, "roc_auc", "AUC, epoch chosen on validation", "validation"),
        *rivals_do_not_improve(final, "roc_auc", "AUC, last epoch"),
        *rivals_do_not_improve(paper, "roc_auc", "AUC, best epoch on the test set", "test"),
        *rivals_do_not_improve(paper, "roc_auc", "AUC, last epoch"),
    ]


MINORITY_REPORT = Report(
    name="minority",
    title="Accuracy of the minority: deer among horses",
    experiment="deer-horse",
    columns=(
        ReportColumn("minority accuracy, link and prior", "minority_accuracy_linked", is_compared=True),
        ReportColumn("minority accuracy, argmax", "minority_accuracy", is_compared=True),
        ReportColumn("ACC, link and prior", "accuracy_linked", is_compared=True),
        ReportColumn("ACC, argmax", "accuracy"),
        ReportColumn("AUC", "roc_auc", is_compared=True),
        ReportColumn("AUC, epoch chosen on validation", "roc_auc", "validation"),
        ReportColumn("AUC, best epoch on the test set", "roc_auc", "test"),
    ),
    paper_columns=(
        ReportColumn("minority accuracy, epoch with the best test ACC", "minority_accuracy", "best accuracy"),
        ReportColumn("ACC, best epoch on the test set", "accuracy", "test"),
        ReportColumn("minority accuracy, last epoch", "minority_accuracy"),
        ReportColumn("minority accuracy, link and prior, last epoch", "minority_accuracy_linked"),
    ),
    printed=MINORITY,
    drawn="minority_accuracy_linked",
    drawn_title="minority accuracy after the link",
    curves={"roc_auc": "AUC", "minority_accuracy_linked": "minority accuracy after the link"},
    claims=_minority_claims,
)

minority = partial(write_report, MINORITY_REPORT)


# ---- Appendix D: Brier score, deer among horses ------------------------------------------------------------


def _brier_claims(final: Sequence[Result], paper: Sequence[Result]) -> list[str]:
    linked, raw = "Brier score after the link", "Brier score of sigmoid(z), best epoch on the test set"
    return [
        *beats_every_rival(final, "brier_linked", linked),
        *beats_the_papers_rivals(final, "brier_linked", linked),
        *beats_the_papers_rivals(paper, "brier", raw, "test"),
        *beats_every_rival(paper, "brier", raw, "test"),
        *beats_the_papers_rivals(paper, "brier_linked", f"{linked}, last epoch"),
    ]


BRIER_REPORT = Report(
    name="brier",
    title="Brier score: deer among horses",
    experiment="deer-horse",
    columns=(
        ReportColumn("link and prior", "brier_linked", is_compared=True),
        ReportColumn("sigmoid(z)", "brier", is_compared=True),
        ReportColumn("link and prior, epoch chosen on validation", "brier_linked", "validation"),
        ReportColumn("link and prior, best epoch on the test set", "brier_linked", "test"),
        ReportColumn("AUC", "roc_auc"),
    ),
    paper_columns=(
        ReportColumn("sigmoid(z), best epoch on the test set", "brier", "test"),
        ReportColumn("link and prior, best epoch on the test set", "brier_linked", "test"),
        ReportColumn("sigmoid(z), last epoch", "brier"),
        ReportColumn("link and prior, last epoch", "brier_linked"),
    ),
    printed=BRIER,
    drawn="brier_linked",
    drawn_title="Brier score after the link",
    curves={"brier": "Brier score of sigmoid(z)", "brier_linked": "Brier score after the link"},
    claims=_brier_claims,
)

brier = partial(write_report, BRIER_REPORT)

REPORTS = (TABLE2_REPORT, TABLE4_REPORT, MINORITY_REPORT, BRIER_REPORT)
