"""The paper's Appendix D: the Brier score, deer among horses.

The paper does not say which probability it scores. Here are two: sigmoid of the raw score, and the calibrated
probability by the link of the loss with the prior corrected to the balanced test set.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from .deep.claims import beats_every_rival, beats_the_papers_rivals
from .deep.printed import BRIER
from .deep.report import Report, write_report
from .deep.report_text import Column
from .deep.results import Result

__all__ = ["REPORT", "run"]


def claims(final: Sequence[Result], paper: Sequence[Result]) -> list[str]:
    linked, raw = "Brier score after the link", "Brier score of sigmoid(z), best epoch on the test set"
    return [
        *beats_every_rival(final, "brier_linked", linked),
        *beats_the_papers_rivals(final, "brier_linked", linked),
        *beats_the_papers_rivals(paper, "brier", raw, "test"),
        *beats_every_rival(paper, "brier", raw, "test"),
        *beats_the_papers_rivals(paper, "brier_linked", f"{linked}, last epoch"),
    ]


REPORT = Report(
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
    claims=claims,
)

# Trains what is missing if `data` is given; writes the table, its numbers and a figure.
run = partial(write_report, REPORT)
