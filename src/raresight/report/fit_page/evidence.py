"""The sections of the evidence: candidates, features, influential rows, data, and how to repeat the fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ...automl.records import Trial
from ...automl.wording import effect_of, repeat_note, search_summary, split_sentence
from ...metrics import Comparison
from ...model.families import Candidate
from ...tables.profile import ColumnProfile
from ..fit_content import FitContent
from ..fit_measures import InformationRow
from . import html as w
from .html import empty, heads, left_out, sortable_heads, table

__all__ = ["candidates", "data", "evidence", "features", "reproduction"]

MOST_ROWS = 300  # further rows are shown only if they have a role, so that the page stays small

_ROLES = {"winner": "chosen", "baseline": "cross entropy, defaults"}


def candidates(content: FitContent) -> str:
    """Write the section of the leaderboard and the map."""
    outcome = content.outcome
    return f"""
<section id="candidates" aria-labelledby="candidates-head"> <h2 id="candidates-head">Candidates</h2> <p
id="search-summary">{search_summary(outcome.search)}</p> <p class="caption">Partial AUC up to a false-positive
rate of {w.short_percent(outcome.evaluation.max_fpr)} is that of the out-of-fold scores of all folds
together. The difference to cross entropy with defaults is in hundredths, with its paired interval. With so
many candidates, some intervals exclude zero by chance. Colour marks a difference beyond chance of at least
{outcome.options.min_gain:g} points. The verdict above uses the held-out rows.</p> {_leaderboard(content)}
<h3>Map of the loss parameters</h3>
{_map(content)}
</section>"""


def _map(content: FitContent) -> str:
    if not content.loss_map:
        return empty("No candidate of a loss with a map of two parameters is complete.")
    losses = dict.fromkeys(f"{point.loss}({point.x_name}, {point.y_name})" for point in content.loss_map)
    return (
        '<div class="maps" id="chart-map"></div>'
        f'<p class="caption">Cross-validated partial AUC of {escape(" and ".join(losses))}, one panel per '
        "family and loss. A ring marks the chosen model if its loss is on the map.</p>"
    )


def _leaderboard(content: FitContent) -> str:
    outcome = content.outcome
    rows = [
        (rank, trial, _role(trial, outcome.chosen, outcome.baseline))
        for rank, trial in enumerate(outcome.leaderboard, 1)
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
    body = "".join(_candidate(*row, reach, outcome.options.min_gain) for row in shown)
    return table("leaders", "Candidates", head, body, len(shown), "sortable") + left_out(
        len(rows) - len(shown), "candidate"
    )


def _role(trial: Trial, chosen: Sequence[Candidate], baseline: int) -> str:
    if trial.candidate in chosen:
        return "winner"
    return "baseline" if trial.number == baseline else ""


def _candidate(rank: int, trial: Trial, role: str, reach: float, min_gain: float) -> str:
    badge = f' <span class="badge {role}">{_ROLES[role]}</span>' if role else ""
    candidate, comparison, seconds = trial.candidate, trial.comparison, trial.seconds
    family, title = w.name(candidate.family), w.family_name(candidate.family)
    difference = w.key(None if comparison is None else comparison.difference)
    # On a phone a row is shown as a card, in which each figure needs its label.
    return (
        f'<tr class="{"role" if role else ""}">'
        f'<td class="n" data-label="Rank" data-value="{rank}">{rank}</td>'
        f'<td data-label="Model" data-value="{family}">{title}</td>'
        f'<td data-value="{w.name(candidate.loss)}"><code>{w.loss(candidate.loss)}</code>{badge}'
        f'<span class="note parameters">{_parameters(trial)}</span></td>'
        f'<td class="n" data-label="Partial AUC" data-value="{w.key(trial.partial_auc)}">'
        f"{w.decimal(trial.partial_auc)}</td>"
        f'<td class="n" data-label="Recall" data-value="{w.key(trial.recall)}">{w.percent(trial.recall)}</td>'
        f'<td class="difference" data-label="Difference to cross entropy (points)" '
        f'data-value="{difference}">{_bar(comparison, reach, min_gain)}</td>'
        f'<td class="n" data-label="Seconds" data-value="{w.key(seconds)}">{w.seconds(seconds)}</td>'
        f'<td data-label="State" data-value="{w.name(trial.state)}">{w.name(trial.state)}</td></tr>'
    )


def _parameters(trial: Trial) -> str:
    parameters = w.parameters(dict(trial.candidate.parameters))
    return ", ".join(filter(None, [parameters, "counts of values" if trial.with_counts else ""]))


def _bar(found: Comparison | None, reach: float, min_gain: float) -> str:
    """Draw the interval as a line, the estimate as a dot, and zero as a rule in the middle."""
    if found is None:
        return '<span class="note">not computed</span>'
    estimate, low, high = found.difference, found.low, found.high
    scale = 56 / reach if reach > 0 else 0.0
    left, right, dot = (f"{60 + value * scale:.1f}" for value in (low, high, estimate))
    tone = {"gain": "better", "loss": "worse"}.get(effect_of(found, min_gain), "even")
    return (
        f'<svg class="bar {tone}" viewBox="0 0 120 14" width="120" height="14" aria-hidden="true">'
        '<line class="zero" x1="60" x2="60" y1="0" y2="14"/>'
        f'<line class="reach" x1="{left}" x2="{right}" y1="7" y2="7"/>'
        f'<circle cx="{dot}" cy="7" r="3.5"/></svg>'
        f"<span>{w.points(estimate)} ({w.points(low)} to {w.points(high)})</span>"
    )


MOST_FEATURES = 20


def features(content: FitContent) -> str:
    """Return the section of feature importance: text with bars, so that names can be read and copied."""
    return f"""
<section id="features" aria-labelledby="features-head"> <h2 id="features-head">Feature importance</h2> <p
class="caption">Share of each feature in the chosen model. It shows what the model uses, not what causes the
event.</p> {_importance(content)}
</section>"""


def _importance(content: FitContent) -> str:
    shown = content.importance[:MOST_FEATURES]
    most = max((share for _, share in shown), default=0.0)
    if not most > 0:
        return empty("The chosen model uses no feature: every share is zero.")
    rows = "".join(
        f'<tr><th scope="row">{w.name(feature)}</th><td><span class="share" '
        f'style="width:{share / most * 100:.1f}%"></span></td><td class="n">{w.percent(share)}</td></tr>'
        for feature, share in shown
    )
    width = min(max(len(feature) for feature, _ in shown), 40) + 3
    return (
        f'<table class="importance" style="--names:{width}ch"><tbody>{rows}</tbody></table>'
        f"{left_out(len(content.importance) - len(shown), 'feature')}"
    )


def evidence(content: FitContent) -> str:
    """Return the section of statistical information and influential rows."""
    rho = content.outcome.profile.rho
    negatives = round(1 / rho) if rho < 0.1 else 1 / rho
    return f"""
<section id="evidence" aria-labelledby="evidence-head">
<h2 id="evidence-head">Evidence behind the choice</h2>
<h3>Statistical information</h3>
<p class="caption">Statistical information of each loss in the held-out scores, at odds of one positive to
{w.count(negatives)} negatives. It shrinks like a power of the odds as positives get rarer. The index is that
power: a small index means that the loss still learns from rare positives. The explained fraction is the share
of the risk that the scores remove, compared with knowing only the share of positives. It is corrected for the
optimism of few positives; the 95 % interval below it takes rows as independent.</p>
{_information(content)}
<h3>Rows with the largest influence</h3>
<p class="caption">Training rows with the largest influence on the fit. A label that contradicts the
probability may be wrong, so check these rows first.</p>
{_influential(content)}
</section>"""


def _information(content: FitContent) -> str:
    rows = content.information
    if not rows:
        return empty("Statistical information was not computed.")
    head = heads(("Loss", ""), ("Index", "n"), ("Explained fraction", "n"), ("Information", "n"))
    body = "".join(
        f'<tr><td><code>{w.loss(row.loss)}</code></td><td class="n">{w.decimal(row.index, 3)}</td>'
        f'<td class="n">{w.percent(row.explained_fraction)}{_ends(row)}</td>'
        f'<td class="n">{"none" if row.information is None else f"{row.information:.3g}"}</td></tr>'
        for row in rows
    )
    return table("information-table", "Statistical information", head, body, len(rows))


def _ends(row: InformationRow) -> str:
    if row.explained_low is None or row.explained_high is None:
        return ""
    return f'<span class="note">{w.percent(row.explained_low)} to {w.percent(row.explained_high)}</span>'


def _influential(content: FitContent) -> str:
    rows = content.outcome.influential
    if not rows:
        return empty(content.outcome.no_influence or "No row has enough influence to be listed.")
    head = heads(("Row, from 1", "n"), ("Label", "n"), ("Probability, unseen", "n"), ("Influence", "n"))
    body = "".join(
        f'<tr><td class="n">{w.count(row.row)}</td><td class="n">{row.label}</td>'
        f'<td class="n">{w.percent(row.probability)}</td>'
        f'<td class="n">{w.significant(row.influence, 3)}</td></tr>'
        for row in rows
    )
    return table("influential-table", "Rows with the largest influence", head, body, len(rows))


# A table of 5,000 columns must not make a page of megabytes.
MOST_COLUMNS = 300
MOST_LINES = 100


def data(content: FitContent) -> str:
    """Return the section of the data's profile."""
    profile = content.outcome.profile
    pairs = "".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in _facts(content))
    dropped = (
        f"{column.name}: {column.reason}" + (f", such as {column.example}" if column.example else "")
        for column in profile.dropped
    )
    return f"""
<section id="data" aria-labelledby="data-head">
<h2 id="data-head">Data</h2>
<dl class="pairs">{pairs}</dl>
<h3 id="warnings">Warnings</h3>
{_lines(profile.warnings, "No warning.")}
<h3 id="dropped">Columns not used</h3>
{_lines(dropped, "Every column was used.")}
<h3 id="columns">Columns used</h3>
{_columns(profile.columns)}
</section>"""


def _facts(content: FitContent) -> list[tuple[str, str]]:
    profile, found = content.outcome.profile, content.outcome.evaluation
    trained = f"{w.count(profile.rows)} with {w.counted(profile.positives, 'positive')}"
    return [
        ("Rows", w.count(profile.rows + found.rows)),
        (
            "Training rows",
            f"{trained} ({w.percent(profile.prior)}, one in {w.count(1 / profile.prior)})",
        ),
        ("Held-out rows", f"{w.count(found.rows)} with {w.counted(found.positives, 'positive')}"),
        ("Split", w.sentence(split_sentence(content.outcome.options))),
        ("Odds of a positive (rho)", w.significant(profile.rho, 3)),
        ("Training rows that repeat another", w.count(profile.duplicates)),
    ]


def _lines(lines: Iterable[str], none: str) -> str:
    found = list(lines)
    if not found:
        return f"<p>{none}</p>"
    items = "".join(f"<li>{w.name(line, 500)}</li>" for line in found[:MOST_LINES])
    return f'<ul class="words">{items}</ul>{left_out(len(found) - MOST_LINES, "line")}'


def _columns(columns: Sequence[ColumnProfile]) -> str:
    if not columns:
        return empty("No column was profiled.")
    head = sortable_heads(
        ("Column", ""),
        ("Kind, example", ""),
        ("Missing", "n"),
        ("Distinct", "n"),
        ("AUC alone", "n"),
        ("Note", ""),
    )
    shown = columns[:MOST_COLUMNS]
    body = "".join(_column(column) for column in shown)
    return table("column-table", "Columns used", head, body, len(shown), "sortable") + left_out(
        len(columns) - len(shown), "column"
    )


def _column(column: ColumnProfile) -> str:
    title, kind, note = w.name(column.name), w.name(column.kind), w.name(column.note, 200)
    example = w.name(column.example, 40)
    missing, distinct, auc = column.missing, column.distinct, column.auc
    return (
        f'<tr><th scope="row" data-value="{title}">{title}</th><td data-value="{kind}">{kind}'
        f'<span class="note">{example}</span></td>'
        f'<td class="n" data-value="{w.key(missing)}">{w.percent(missing)}</td>'
        f'<td class="n" data-value="{w.key(distinct)}">{w.count(distinct)}</td>'
        f'<td class="n" data-value="{w.key(auc)}">{w.decimal(auc, 3)}</td>'
        f'<td data-value="{note}">{note}</td></tr>'
    )


def reproduction(content: FitContent) -> str:
    """Return the section with the command, seed and versions that repeat the fit."""
    outcome = content.outcome
    versions = "".join(f"<li>{w.name(key)} {w.name(value)}</li>" for key, value in outcome.versions.items())
    return f"""
<section id="reproduce" aria-labelledby="reproduce-head">
<h2 id="reproduce-head">How to reproduce</h2>
<p>{repeat_note(outcome.search)}</p>
<pre><code>{escape(outcome.command)}</code></pre>
<dl class="pairs">
<dt>Seed</dt><dd>{outcome.options.seed}</dd>
<dt>Data fingerprint</dt><dd><code>{w.name(outcome.fingerprint)}</code></dd>
<dt>Versions</dt><dd><ul class="inline">{versions}</ul></dd>
</dl>
</section>"""
