"""What the page says of the search: how many candidates, how long, and what ended it."""

from __future__ import annotations

from ..fit_parts import SearchSummary
from . import wording as w

__all__ = ["cut_short", "summary"]


def summary(search: SearchSummary) -> str:
    """The search in two sentences at most.

    >>> from raresight.report.fit_parts import SearchSummary
    >>> summary(SearchSummary(40, 9, 1, 50, 38.2, "trials"))
    '50 candidates in 38.2 seconds: 40 evaluated to the end, 9 given up early, 1 failed.'
    """
    outcomes = [(search.complete, "evaluated to the end"), (search.pruned, "given up early")]
    if search.failed:
        outcomes.append((search.failed, "failed"))
    parts = ", ".join(f"{w.count(number)} {what}" for number, what in outcomes)
    words = f"{w.counted(search.done, 'candidate')} in {w.seconds(search.seconds)} seconds: {parts}."
    return f"{words} {cut_short(search)}".strip()


def cut_short(search: SearchSummary) -> str:
    """What ended the search before all candidates asked for, or nothing.

    >>> from raresight.report.fit_parts import SearchSummary
    >>> cut_short(SearchSummary(10, 2, 0, 100, 9.0, "interrupted"))
    'The search was interrupted after 12 of 100 candidates.'
    >>> cut_short(SearchSummary(50, 3, 0, None, 600.0, "budget"))
    'The search ended with its time, after 53 candidates.'
    """
    if search.stopped_by == "trials":
        return ""
    done = w.counted(search.done, "candidate")
    if search.planned is not None:
        done = f"{w.count(search.done)} of {w.counted(search.planned, 'candidate')}"
    if search.stopped_by == "interrupted":
        return f"The search was interrupted after {done}."
    return f"The search ended with its time, after {done}."
