"""The candidates that were tried: the leaderboard and the map of the loss's parameters."""

from __future__ import annotations

from ..fit_content import FitContent
from ..fit_parts import LeaderRow
from . import wording as w
from .search import summary
from .tables import empty, left_out, sortable_heads, table

__all__ = ["candidates"]

MOST_ROWS = 300  # beyond which only the rows with a part to play are shown, so that the page stays small

_ROLES = {"winner": "chosen", "baseline": "cross entropy, defaults", "twin": "cross entropy, same parameters"}


def candidates(content: FitContent) -> str:
    """The section of the leaderboard and the map."""
    return f"""
<section id="candidates" aria-labelledby="candidates-head">
<h2 id="candidates-head">Candidates</h2>
<p id="search-summary">{summary(content.search)}</p>
<p class="caption">Partial AUC up to a false-positive rate of {w.short_percent(content.answer.max_fpr)} is
the mean over the folds; the difference to cross entropy, in hundredths and with its paired interval, is taken
on the out-of-fold scores of all folds together, so the two columns do not subtract. With so many candidates
some intervals exclude zero by chance; the verdict above rests on the held-out rows.</p>
{_leaderboard(content)}
<h3>Map of the loss parameters</h3>
{_map(content)}
</section>"""


def _map(content: FitContent) -> str:
    if not content.loss_map:
        return empty(content.loss_map_note or "No candidate had a loss with the parameters alpha and C.")
    return (
        '<div class="maps" id="chart-map"></div>'
        '<p class="caption">Cross-validated partial AUC of the losses TBL(alpha, C), a panel for each '
        "family; the ring marks the chosen model where its loss is on the map.</p>"
    )


def _leaderboard(content: FitContent) -> str:
    rows = content.leaderboard
    if not rows:
        return empty("No candidate was compared.")
    shown = rows[:MOST_ROWS] + tuple(row for row in rows[MOST_ROWS:] if row.role)
    reach = max((max(abs(v) for v in row.difference) for row in shown if row.difference), default=0.0)
    head = sortable_heads(
        ("Rank", "n"),
        ("Model", ""),
        ("Loss and parameters", ""),
        ("Partial AUC", "n"),
        ("Recall", "n"),
        ("Difference to cross entropy (points)", ""),
        ("Seconds", "n"),
        ("State", ""),
    )
    body = "".join(_candidate(row, reach) for row in shown)
    return table("leaders", "Candidates", head, body, len(shown), "sortable") + left_out(
        len(rows) - len(shown), "candidate"
    )


def _candidate(row: LeaderRow, reach: float) -> str:
    badge = f' <span class="badge {row.role}">{_ROLES[row.role]}</span>' if row.role else ""
    difference = w.key(row.difference[0] if row.difference else None)
    # On a phone a row is a card, and each figure carries its label.
    return (
        f'<tr class="{"role" if row.role else ""}">'
        f'<td class="n" data-label="Rank" data-value="{row.rank}">{row.rank}</td>'
        f'<td data-label="Model" data-value="{w.name(row.family)}">{w.family_name(row.family)}</td>'
        f'<td data-value="{w.name(row.loss)}"><code>{w.loss(row.loss)}</code>{badge}'
        f'<span class="note parameters">{w.parameters(row.parameters)}</span></td>'
        f'<td class="n" data-label="Partial AUC" data-value="{w.key(row.partial_auc)}">'
        f"{w.decimal(row.partial_auc)}</td>"
        f'<td class="n" data-label="Recall" data-value="{w.key(row.recall)}">{w.percent(row.recall)}</td>'
        f'<td class="difference" data-label="Difference to cross entropy (points)" '
        f'data-value="{difference}">{_bar(row.difference, reach)}</td>'
        f'<td class="n" data-label="Seconds" data-value="{w.key(row.seconds)}">{w.seconds(row.seconds)}</td>'
        f'<td data-label="State" data-value="{w.name(row.state)}">{w.name(row.state)}</td></tr>'
    )


def _bar(difference: tuple[float, float, float] | None, reach: float) -> str:
    """The interval as a line, the estimate as a dot, zero as a rule in the middle."""
    if difference is None:
        return '<span class="note">not computed</span>'
    estimate, low, high = difference
    scale = 56 / reach if reach > 0 else 0.0
    left, right, dot = (f"{60 + value * scale:.1f}" for value in (low, high, estimate))
    tone = "better" if low > 0 else "worse" if high < 0 else "even"
    return (
        f'<svg class="bar {tone}" viewBox="0 0 120 14" width="120" height="14" aria-hidden="true">'
        '<line class="zero" x1="60" x2="60" y1="0" y2="14"/>'
        f'<line class="reach" x1="{left}" x2="{right}" y1="7" y2="7"/>'
        f'<circle cx="{dot}" cy="7" r="3.5"/></svg>'
        f"<span>{w.points(estimate)} ({w.points(low)} to {w.points(high)})</span>"
    )
