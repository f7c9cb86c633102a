"""The candidates that were tried: the leaderboard and the map of the loss's parameters."""

from __future__ import annotations

from ...automl.evaluation import twin_of
from ...automl.records import Trial
from ...automl.space import CROSS_ENTROPY
from ...automl.wording import search_summary
from ...model.families import Candidate
from ..fit_content import FitContent
from . import wording as w
from .tables import empty, left_out, sortable_heads, table

__all__ = ["candidates"]

MOST_ROWS = 300  # beyond which only the rows with a part to play are shown, so that the page stays small

_ROLES = {"winner": "chosen", "baseline": "cross entropy, defaults", "twin": "cross entropy, same parameters"}


def candidates(content: FitContent) -> str:
    """The section of the leaderboard and the map."""
    return f"""
<section id="candidates" aria-labelledby="candidates-head">
<h2 id="candidates-head">Candidates</h2>
<p id="search-summary">{search_summary(content.search)}</p>
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
    rows = [
        (rank, trial, _role(rank, trial, content.winner)) for rank, trial in enumerate(content.leaderboard, 1)
    ]
    if not rows:
        return empty("No candidate was compared.")
    shown = rows[:MOST_ROWS] + [row for row in rows[MOST_ROWS:] if row[2]]
    ends = [(one.comparison.low, one.comparison.high) for _, one, _ in shown if one.comparison is not None]
    reach = max((abs(end) for pair in ends for end in pair), default=0.0)
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
    body = "".join(_candidate(*row, reach) for row in shown)
    return table("leaders", "Candidates", head, body, len(shown), "sortable") + left_out(
        len(rows) - len(shown), "candidate"
    )


def _role(rank: int, trial: Trial, winner: Candidate) -> str:
    candidate = trial.candidate
    if rank == 1 and candidate == winner:
        return "winner"
    if candidate.family != winner.family or candidate.loss != CROSS_ENTROPY:
        return ""
    return "baseline" if not candidate.parameters else "twin" if candidate == twin_of(winner) else ""


def _candidate(rank: int, trial: Trial, role: str, reach: float) -> str:
    badge = f' <span class="badge {role}">{_ROLES[role]}</span>' if role else ""
    candidate, comparison, seconds = trial.candidate, trial.comparison, trial.seconds
    family, title = w.name(candidate.family), w.family_name(candidate.family)
    interval = None if comparison is None else (comparison.difference, comparison.low, comparison.high)
    difference = w.key(interval[0] if interval else None)
    # On a phone a row is a card, and each figure carries its label.
    return (
        f'<tr class="{"role" if role else ""}">'
        f'<td class="n" data-label="Rank" data-value="{rank}">{rank}</td>'
        f'<td data-label="Model" data-value="{family}">{title}</td>'
        f'<td data-value="{w.name(candidate.loss)}"><code>{w.loss(candidate.loss)}</code>{badge}'
        f'<span class="note parameters">{w.parameters(dict(candidate.parameters))}</span></td>'
        f'<td class="n" data-label="Partial AUC" data-value="{w.key(trial.partial_auc)}">'
        f"{w.decimal(trial.partial_auc)}</td>"
        f'<td class="n" data-label="Recall" data-value="{w.key(trial.recall)}">{w.percent(trial.recall)}</td>'
        f'<td class="difference" data-label="Difference to cross entropy (points)" '
        f'data-value="{difference}">{_bar(interval, reach)}</td>'
        f'<td class="n" data-label="Seconds" data-value="{w.key(seconds)}">{w.seconds(seconds)}</td>'
        f'<td data-label="State" data-value="{w.name(trial.state)}">{w.name(trial.state)}</td></tr>'
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
