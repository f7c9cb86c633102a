"""Losses at a rate beyond those that were chosen from: is a lead that of the loss, or of a larger step?

Where every loss takes the largest of the rates, a loss with steeper slopes may lead because its steps are
larger still. So cross entropy, alpha and TBL are trained at three times that rate as well, and each has its
choice of the two by validation rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from .claims import OURS
from .estimates import LEVEL, paired
from .experiments import beyond_rate
from .methods import REFERENCE
from .report_text import CHOSEN_BY, cell_title, claim_verdict, difference_text, number
from .results import Result, on_validation

__all__ = ["beyond_lines"]

_RIVALS = ("CE", REFERENCE)
# The epoch is chosen on validation rows, as the rate is; the last one stands beside it.
_EPOCHS = {"validation": "epoch chosen on validation", "last": "last epoch"}


def beyond_lines(final: Sequence[Result], beyond: Sequence[Result]) -> list[str]:
    """Lines of Markdown: a table for each cell that was trained at both rates, and what it says."""
    pairs = [(chosen, further) for further in beyond for chosen in final if _is_same(chosen, further)]
    if not pairs:
        return []
    metric = pairs[0][0].experiment.choose_by
    rate = beyond_rate(pairs[0][0].setup.dataset)
    lines = [
        "#### One rate beyond those that were chosen from",
        "",
        f"Cross entropy, alpha and TBL at a learning rate of {rate:g}, three times the largest that was "
        f"chosen from, with the parameters that the search chose: {CHOSEN_BY[metric]}, and the difference to "
        f"the same loss at its chosen rate, paired by draw and seed, with its {LEVEL:.0%} interval for these "
        "draws; **bold** where that leaves out zero. The rate that is better on validation rows is the one "
        "with the higher mean there of each training's best epoch.",
    ]
    for chosen, further in pairs:
        lines += [
            "",
            f"**{cell_title(chosen)}**",
            "",
            *_table(chosen, further, metric),
            "",
            _verdict(chosen, further),
        ]
    return lines


def _is_same(chosen: Result, further: Result) -> bool:
    return (chosen.cell, chosen.epochs) == (further.cell, further.epochs)


def _table(chosen: Result, further: Result, metric: str) -> list[str]:
    rate = beyond_rate(chosen.setup.dataset)
    titles = ["", "chosen"]
    for epoch in _EPOCHS.values():
        titles += [f"{epoch}: chosen rate", f"lr={rate:g}", "difference"]
    titles.append("better on validation rows")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for method in further.records:
        cells = [_with_failures(chosen, further, method), chosen.setting(method)]
        for when in _EPOCHS:
            means = [result.mean(method, metric, when).mean for result in (chosen, further)]
            gap = paired(further.values(method, metric, when), chosen.values(method, metric, when))
            cells += [*(number(metric, mean) for mean in means), difference_text(gap, metric)]
        cells.append(f"{_better(chosen, further, method).rate(method):g}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _better(chosen: Result, further: Result, method: str) -> Result:
    """The one of two rates at which validation rows are ranked better."""
    return max((chosen, further), key=lambda result: _level(result, method))


def _level(result: Result, method: str) -> float:
    values = [on_validation(record, result.experiment.choose_by) for record in result.records[method]]
    # A training that ended early is worse than any, as in every choice of a rate.
    lost = result.failed(method) or any(value is None for value in values)
    return float("-inf") if lost else fmean(value for value in values if value is not None)


def _with_failures(chosen: Result, further: Result, method: str) -> str:
    """The method, with how many of its trainings were not finite at either rate."""
    failed = [
        f"{count} not finite at {result.rate(method):g}"
        for result in (chosen, further)
        if (count := result.failed(method))
    ]
    return f"{method} ({', '.join(failed)})" if failed else method


def _verdict(chosen: Result, further: Result) -> str:
    """The better TBL less the better cross entropy, loss, rate and epoch all chosen on validation rows."""
    metric = chosen.experiment.choose_by
    best = {}
    for names in (OURS, _RIVALS):
        rates = {method: _better(chosen, further, method) for method in names}
        method = max(rates, key=lambda name: _level(rates[name], name))
        best[names] = (method, rates[method])
    (own, at), (rival, there) = best[OURS], best[_RIVALS]
    gap = paired(at.values(own, metric, "validation"), there.values(rival, metric, "validation"))
    return (
        f"With loss, rate and epoch chosen on validation rows: {own} at {at.setting(own)} less {rival} at "
        f"{there.setting(rival)}, {difference_text(gap, metric)}: {claim_verdict(gap, metric)}."
    )
