"""The paper's Table 4: all ten classes of CIFAR-10, with sizes that fall exponentially or in a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .deep.claims import beats_every_rival, beats_the_papers_rivals
from .deep.printed import TABLE4
from .deep.report import Report, write_report
from .deep.report_text import Column
from .deep.results import Result

__all__ = ["REPORT", "run"]


def claims(final: Sequence[Result], paper: Sequence[Result]) -> list[str]:
    linked, by_argmax = "accuracy after the link", "accuracy by argmax, best epoch on the test set"
    return [
        *beats_every_rival(final, "accuracy_linked", linked),
        *beats_the_papers_rivals(paper, "accuracy", by_argmax, "test"),
        *beats_every_rival(paper, "accuracy", by_argmax, "test"),
        *beats_the_papers_rivals(paper, "accuracy_linked", linked),
        *beats_every_rival(paper, "accuracy_linked", linked),
    ]


REPORT = Report(
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
    claims=claims,
)

# Trains what is missing if `data` is given; writes the table, its numbers and a figure.
run = partial(write_report, REPORT)
