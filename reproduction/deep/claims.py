"""What the paper says about its method, judged by paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

from .estimates import LEVEL, Estimate
from .methods import REFERENCE
from .metrics import is_better
from .report_text import claim_verdict, draws_words, number
from .results import Result

__all__ = [
    "OURS",
    "WITHOUT_CE",
    "beats_every_rival",
    "beats_the_papers_rivals",
    "best_of",
    "gain_grows",
    "rivals_do_not_improve",
]

OURS = ("TBL", "TBL+LA")
WITHOUT_CE = ("Focal+LA", "LDAM-DRW", "Poly+LA", "VS")
"""The rivals of the paper's tables that have no row of cross entropy."""
_NAMES = {"final": "chosen settings", "paper": "paper's setting"}


def best_of(result: Result, metric: str, when: str, among: Sequence[str]) -> str:
    """The method with the best mean."""
    rivals = [method for method in result.records if method in among]
    # One whose scores were never finite is no rival, unless all are so.
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
    """Of TBL and TBL+LA: the difference to the rival with the best mean, a line for each cell.

    The rival is chosen by the very numbers it is compared by, which is hard on TBL; the alpha loss, which is
    TBL with C = 0, is no rival.
    """
    lines = []
    for result in results:
        best = best_of(result, metric, when, among)
        parts = []
        for own in OURS:
            gap = result.difference(own, best, metric, when)
            shown, low, high = (number(metric, x, sign=True) for x in (gap.mean, gap.low, gap.high))
            draws = draws_words(gap, metric)
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
    """Whether the gain over CE+LA is larger at the smallest rho than at the largest, by their length.

    Cells of one task are compared with each other.
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
                f"{rare.cell.title}, {rare.epochs} epochs): not all have finite scores: cannot be told."
            )
            continue
        change, error = ends[0].mean - ends[1].mean, math.hypot(ends[0].error, ends[1].error)
        half = _quantile(ends) * error
        verdict = "cannot be told"
        if abs(change) > half:
            verdict = "held" if is_better(metric, change, 0.0) else "the opposite"
        lines.append(
            f"{own}'s gain in {title} over {REFERENCE} grows as rho falls ({_NAMES[rare.role]}, "
            f"{rare.cell.title}, {rare.epochs} epochs): {number(metric, ends[0].mean, sign=True)} at rho "
            f"{rare.cell.rho:g}, {number(metric, ends[1].mean, sign=True)} at rho {common.cell.rho:g}, the "
            f"change {number(metric, change, sign=True)} [{number(metric, change - half, sign=True)}, "
            f"{number(metric, change + half, sign=True)}]: {verdict}."
        )
    return lines


def _quantile(ends: Sequence[Estimate]) -> float:
    """Of Student's t for the difference of two means, by Welch and Satterthwaite."""
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
    """Whether any rival is better than CE+LA, a line for each cell.

    It held where every rival is worse, and is the opposite where one is better. Else it cannot be told, and
    the line says how large a gain the intervals leave open.
    """
    lines = []
    for result in results:
        gaps = {method: result.difference(method, REFERENCE, metric, when) for method in WITHOUT_CE}
        found = [
            f"{method} {number(metric, gap.mean, sign=True)}{draws_words(gap, metric)}"
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
    depends = ", and it depends on the draw" if any(gap.draws_differ for gap in gaps.values()) else ""
    if any(verdict.startswith("held") for verdict in verdicts):
        return f"the opposite{depends}"
    if all(verdict.startswith("the opposite") for verdict in verdicts):
        return f"held{depends}"
    # The end of each interval that is kindest to the rival; NaN and no interval at all leave everything open.
    ends = {
        method: gap.high if is_better(metric, 1.0, 0.0) else gap.low
        for method, gap in gaps.items()
        if gap.count and math.isfinite(gap.high)
    }
    if len(ends) < len(gaps):
        return f"cannot be told{depends}"
    largest = max(ends, key=lambda method: ends[method] if is_better(metric, 1.0, 0.0) else -ends[method])
    return f"cannot be told, {largest} may have up to {number(metric, ends[largest], sign=True)}{depends}"
