"""The sections of the chosen operating point, its explorer, and the charts of the held-out rows."""

from __future__ import annotations

import math

from ...automl.evaluation import Outcome, Threshold
from ...automl.wording import cost, headline, headline_parts, rows_with_positives
from ...model.families import FAMILIES, Candidate
from ..fit_content import FitContent
from . import html as w

__all__ = ["answer", "curves", "explorer"]


def answer(content: FitContent) -> str:
    """Return the section of the answer: plain HTML, readable without scripts."""
    outcome = content.outcome
    found, held_out = outcome.evaluation, outcome.held_out
    recall, area, auc = found["recall_at_fpr"], found["partial_auc"], found["roc_auc"]
    figures = "\n".join(
        (
            _figure("Recall", w.percent(recall.estimate), w.span(recall)),
            _figure("Precision", w.percent(found.precision), _one_in(found.precision)),
            _figure(
                "Alerts per 100,000 cases",
                w.count(held_out.alerts_per_100k),
                "at the held-out share of positives",
            ),
            _figure(
                "Threshold (log-odds)",
                w.threshold(held_out.threshold.log_odds),
                f"probability {w.percent(held_out.threshold.probability, 4)}",
            ),
            _figure(
                f"Partial AUC to {w.short_percent(found.max_fpr)}",
                w.decimal(area.estimate),
                w.span(area, w.decimal),
            ),
            _figure("AUC", w.decimal(auc.estimate), w.span(auc, w.decimal)),
        )
    )
    return f"""
<section id="answer" aria-labelledby="answer-head">
<h2 id="answer-head" class="lead">{_headline(outcome)}</h2>
<p class="under">{w.sentence(cost(outcome))} Measured on
{rows_with_positives("held-out", found.rows, found.positives)}.{_pointer(outcome)}</p>
{_notes(outcome)}
<dl class="figures">
{figures}
</dl>
<p class="verdict {"good" if outcome.loss_mattered else "plain"}">{w.sentence(outcome.loss_sentence)}</p>
<dl class="pairs">
{_model(outcome)}
<dt>Threshold</dt><dd>{_threshold_words(held_out.threshold)}</dd>
</dl>
</section>"""


def _headline(outcome: Outcome) -> str:
    """Write the headline with its figure in bold."""
    before, figure, after = (w.sentence(part) for part in headline_parts(outcome))
    return before + (f"<strong>{figure}</strong>" if figure else "") + after


def _model(outcome: Outcome) -> str:
    """Return family, loss and parameters of the model, or the members of a blend."""
    members = sorted(outcome.model.members, key=lambda member: -member.weight)
    if len(members) == 1:
        candidate = members[0].fitted.candidate
        return (
            f"<dt>Model</dt><dd>{w.family_name(candidate.family)}</dd>"
            f"<dt>Loss</dt><dd><code>{w.loss(candidate.loss)}</code></dd>"
            f"<dt>Parameters</dt><dd>{_parameter_words(candidate)}</dd>"
        )
    lines = "".join(
        f"<li>{w.percent(member.weight, 2)} {w.family_name(candidate.family)}, "
        f"<code>{w.loss(candidate.loss)}</code> "
        f'<span class="note">{w.parameters(dict(candidate.parameters))}</span></li>'
        for member in members
        for candidate in [member.fitted.candidate]
    )
    return f"<dt>Model</dt><dd>Blend of the log-odds of <ul>{lines}</ul></dd>"


def _parameter_words(winner: Candidate) -> str:
    """Return the parameters that the search chose, then the family's other defaults."""
    given = dict(winner.parameters)
    usual = {key: value for key, value in FAMILIES[winner.family].defaults.items() if key not in given}
    chosen, rest = w.parameters(given), w.parameters(usual)
    return "; ".join(part for part in (chosen, f"by default {rest}" if rest else "") if part)


def plain_answer(outcome: Outcome) -> str:
    """Return the operating point as sentences, for a browser without scripts."""
    threshold = outcome.held_out.threshold
    return (
        f"{w.sentence(headline(outcome))} {w.sentence(cost(outcome))} "
        f"The threshold is {w.threshold(threshold.log_odds)} in log-odds "
        f"(probability {w.percent(threshold.probability, 4)})."
    )


def _pointer(outcome: Outcome) -> str:
    warnings = len(outcome.profile.warnings)
    if not warnings:
        return ""
    words = (
        "is <a href='#warnings'>one warning</a>"
        if warnings == 1
        else (f"are <a href='#warnings'>{warnings} warnings</a>")
    )
    return f" There {words} about the data."


def _figure(label: str, value: str, note: str) -> str:
    return (
        f'<div><dt>{label}</dt><dd><span class="value">{value}</span>'
        f'<span class="note">{note}</span></dd></div>'
    )


def _one_in(precision: float) -> str:
    if math.isnan(precision):
        return "no alert is raised"
    return f"one alert in {w.count(1 / precision)} is true" if precision > 0 else "no true alert"


def _notes(outcome: Outcome) -> str:
    """Return the notes, except the one that repeats the headline."""
    notes = (note for note in outcome.notes if note not in headline(outcome))
    return "".join(f'<p class="warned">{w.sentence(note)}</p>' for note in notes)


def _threshold_words(threshold: Threshold) -> str:
    sure = f"95{w.SPACE}% confidence"
    words = (
        f"On the held-out rows {w.percent(threshold.fpr_seen)} of the negatives lie at or above it; "
        f"with {sure} the true rate is at most {w.percent(threshold.fpr_bound)}. "
    )
    if threshold.safe is None or threshold.safe_recall is None:
        return (
            words + f"The held-out negatives are too few for a threshold that keeps the budget with {sure}."
        )
    return words + (
        f"To keep the budget on new data with {sure}, use {w.threshold(threshold.safe)}, which catches "
        f"{w.percent(threshold.safe_recall)}."
    )


def explorer(content: FitContent) -> str:
    """Return the section of the operating-point explorer."""
    return f"""
<section id="explorer" aria-labelledby="explorer-head">
<h2 id="explorer-head">Operating-point explorer</h2>
<p>Choose a false-positive budget, or how many alerts a day you can check, or what errors cost.
The figures are those of the held-out rows at the resulting threshold.</p>
<noscript><p class="empty">The explorer and the charts need JavaScript.
{plain_answer(content.outcome)}</p></noscript>
<div class="explorer">
<form class="controls" onsubmit="return false" autocomplete="off">
<div class="wide">
<label for="slider">False-positive budget (log scale)</label>
<div class="slide"><input type="range" id="slider" min="0" max="1000" step="1" value="500">
<input type="text" id="budget" aria-label="False-positive budget, typed" aria-describedby="budget-help"></div>
<p class="note" id="budget-help">Drag, use the arrow keys, or type a share such as 0.05 % or 0.0005.</p>
</div>
{_field("volume", "Cases a day")}
{_field("capacity", "Alert capacity a day", "no limit")}
{_field("miss-cost", "Cost of a missed positive", "such as 500")}
{_field("alert-cost", "Cost of a false alert", "such as 5")}
<div><label for="prior">Share of positives</label><input type="text" id="prior" aria-describedby="prior-help">
<p class="note" id="prior-help">The share in use. Precision, alerts and cost depend on it.
<button type="button" class="link" id="reset-prior" hidden>Held-out share</button></p></div>
<div class="buttons"><button type="button" id="cheapest" disabled>Cheapest threshold</button>
<button type="button" id="restart">Back to {w.short_percent(content.outcome.evaluation.fpr)}</button></div>
</form>
<div class="outcome">
<p id="set-by" class="set-by" aria-live="polite"></p>
<p id="no-alert" class="warned" aria-live="polite"></p>
<dl class="figures">
{_output("Recall", "recall", "recall-note", "caught")}
{_output("Precision", "precision", "precision-note")}
{_output("False-positive rate", "fpr", "fpr-note")}
{_output("Alerts per 100,000 cases", "alerts")}
{_output("Alerts a day", "daily", "daily-note")}
{_output("Cost per 100,000 cases", "cost", "cost-note")}
{_output("Threshold (log-odds)", "threshold", "threshold-note")}
</dl>
<p id="thinned" class="note"></p>
</div>
</div>
</section>"""


def _field(key: str, label: str, hint: str = "") -> str:
    return (
        f'<div><label for="{key}">{label}</label>'
        f'<input type="text" inputmode="decimal" id="{key}" placeholder="{hint}"></div>'
    )


def _output(label: str, key: str, *notes: str) -> str:
    spans = "".join(f'<span class="note" id="out-{note}"></span>' for note in notes)
    return f'<div><dt>{label}</dt><dd><output class="value" id="out-{key}">none</output>{spans}</dd></div>'


def curves(content: FitContent) -> str:
    """Return the section of the charts of the held-out rows."""
    level = w.percent(content.outcome.evaluation["recall_at_fpr"].level, 2)
    charts = "\n".join(
        (
            _chart(
                "roc",
                "ROC, logarithmic",
                f"Recall against the false-positive rate, with the {level} interval of recall. Thresholds "
                "without a false alert are at the left edge.",
            ),
            _chart(
                "pr",
                "Precision and recall",
                "Share of true alerts at each recall, at the share of positives set in the explorer.",
            ),
            _chart(
                "reliability",
                "Reliability",
                "Observed share of positives among rows of similar predicted probability. Points on the "
                "dotted line are calibrated. A triangle is the upper limit of a group without positives.",
            ),
            _chart(
                "distribution",
                "Scores by class",
                "Calibrated log-odds of each class, scaled to the same area, with the explorer's threshold. "
                "Rows to its right raise an alert.",
            ),
        )
    )
    return f"""
<section id="curves" aria-labelledby="curves-head">
<h2 id="curves-head">Curves of the held-out rows</h2>
<p id="no-charts" class="empty" hidden></p>
<div class="charts">
{charts}
</div>
</section>"""


def _chart(key: str, title: str, caption: str) -> str:
    # The scripts draw into an empty box, so title and caption describe the picture to a screen reader.
    return (
        f'<figure><h3 id="title-{key}">{title}</h3><div class="chart" id="chart-{key}" role="img" '
        f'aria-labelledby="title-{key}" aria-describedby="caption-{key}"></div>'
        f'<figcaption id="caption-{key}">{caption}</figcaption></figure>'
    )
