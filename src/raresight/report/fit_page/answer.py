"""The first thing on the page: what was chosen and what it will catch."""

from __future__ import annotations

import math
from html import escape

from ...model.families import FAMILIES
from ..fit_content import FitContent
from ..fit_parts import Answer
from . import wording as w

__all__ = ["answer", "plain_answer"]


def answer(content: FitContent) -> str:
    """The section that answers; plain HTML, so that it reads without scripts."""
    a = content.answer
    figures = "\n".join(
        (
            _figure("Recall", w.percent(a.recall.estimate), w.span(a.recall)),
            _figure("Precision", w.percent(a.precision), _one_in(a.precision)),
            _figure(
                "Alerts per 100,000 cases", w.count(a.alerts_per_100k), "at the held-out share of positives"
            ),
            _figure(
                "Threshold (log-odds)",
                w.threshold(a.threshold),
                f"probability {w.percent(a.threshold_probability, 4)}",
            ),
            _figure(
                f"Partial AUC to {w.short_percent(a.max_fpr)}",
                w.decimal(a.partial_auc.estimate),
                w.span(a.partial_auc, w.decimal),
            ),
            _figure("AUC", w.decimal(a.auc.estimate), w.span(a.auc, w.decimal)),
        )
    )
    return f"""
<section id="answer" aria-labelledby="answer-head">
<h2 id="answer-head" class="lead">{escape(a.headline)}</h2>
<p class="under">Measured on {w.counted(content.used.test_rows, "held-out row")} with
{w.counted(content.used.test_positives, "positive")}.{_pointer(content)}</p>
{_notes(content)}
<dl class="figures">
{figures}
</dl>
<p class="verdict {"good" if a.loss_mattered else "plain"}">{escape(a.loss_sentence)}</p>
<dl class="pairs">
<dt>Model</dt><dd>{w.family_name(a.family)}</dd>
<dt>Loss</dt><dd><code>{w.loss(a.loss)}</code></dd>
<dt>Parameters</dt><dd>{_parameter_words(a)}</dd>
<dt>Threshold</dt><dd>{_threshold_words(content)}</dd>
</dl>
</section>"""


def _parameter_words(answer: Answer) -> str:
    """Every parameter of the family: those that the search chose, then its defaults."""
    defaults = FAMILIES[answer.family].defaults if answer.family in FAMILIES else {}
    usual = {key: value for key, value in defaults.items() if key not in answer.parameters}
    chosen, rest = w.parameters(answer.parameters), w.parameters(usual)
    return "; ".join(part for part in (chosen, f"by default {rest}" if rest else "") if part)


def plain_answer(content: FitContent) -> str:
    """The operating point in words, for a browser without scripts."""
    a = content.answer
    return (
        f"{escape(a.headline)} The threshold is {w.threshold(a.threshold)} in log-odds (probability "
        f"{w.percent(a.threshold_probability, 4)})."
    )


def _pointer(content: FitContent) -> str:
    warnings = len(content.profile.get("warnings", ()))
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


def _one_in(precision: float | None) -> str:
    if precision is None or math.isnan(precision):
        return "no alert is raised"
    return f"one alert in {w.count(1 / precision)} is true" if precision > 0 else "no true alert"


def _notes(content: FitContent) -> str:
    """What must be said beside the figures; a budget without an alert is the headline already."""
    notes = (note for note in content.notes if note != content.answer.headline)
    return "".join(f'<p class="warned">{escape(note)}</p>' for note in notes)


def _threshold_words(content: FitContent) -> str:
    a = content.answer
    sure = f"95{w.SPACE}% confidence"
    words = (
        f"On the held-out rows {w.percent(a.fpr_seen)} of the negatives lie at or above it; with {sure} the "
        f"true rate is at most {w.percent(a.fpr_bound)}. "
    )
    if a.safe is None:
        return (
            words + f"The held-out negatives are too few for a threshold that keeps the budget with {sure}."
        )
    threshold, recall = a.safe
    return words + (
        f"To keep the budget on new data with {sure}, use {w.threshold(threshold)}, which catches "
        f"{w.percent(recall)}."
    )
