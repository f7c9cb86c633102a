"""The pages of Table 2, Table 4 and Appendix D: their columns, and the claims that they judge."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..printed import BRIER, MINORITY, TABLE2, TABLE4
from .report import Report, write_report
from .report_text import Column
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
        Column("accuracy, link and prior", "accuracy_linked", is_compared=True),
        Column("accuracy, argmax", "accuracy", is_compared=True),
        Column("epoch chosen on validation, link and prior", "accuracy_linked", "validation"),
        Column("best epoch on the test set, argmax", "accuracy", "test"),
        Column("common half, link and prior", "common_accuracy_linked"),
        Column("rare half, link and prior", "rare_accuracy_linked"),
        Column("smallest class, link and prior", "minority_accuracy_linked"),
        Column("Brier score", "brier_linked"),
    ),
    paper_columns=(
        Column("accuracy, best epoch on the test set", "accuracy", "test"),
        Column("accuracy, last epoch", "accuracy"),
        Column("link and prior, last epoch", "accuracy_linked"),
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
        # What is won for the minority may be lost for the others.
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
        Column("link and prior", "brier_linked", is_compared=True),
        Column("sigmoid(z)", "brier", is_compared=True),
        Column("link and prior, epoch chosen on validation", "brier_linked", "validation"),
        Column("link and prior, best epoch on the test set", "brier_linked", "test"),
        Column("AUC", "roc_auc"),
    ),
    paper_columns=(
        Column("sigmoid(z), best epoch on the test set", "brier", "test"),
        Column("link and prior, best epoch on the test set", "brier_linked", "test"),
        Column("sigmoid(z), last epoch", "brier"),
        Column("link and prior, last epoch", "brier_linked"),
    ),
    printed=BRIER,
    drawn="brier_linked",
    drawn_title="Brier score after the link",
    curves={"brier": "Brier score of sigmoid(z)", "brier_linked": "Brier score after the link"},
    claims=_brier_claims,
)

brier = partial(write_report, BRIER_REPORT)

REPORTS = (TABLE2_REPORT, TABLE4_REPORT, MINORITY_REPORT, BRIER_REPORT)
