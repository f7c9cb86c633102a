"""The parts that the scripts fill: the explorer's controls and figures, and the places of the charts."""

from __future__ import annotations

from ..fit_content import FitContent
from . import wording as w
from .answer import plain_answer

__all__ = ["curves", "explorer"]


def explorer(content: FitContent) -> str:
    """The section of the operating-point explorer."""
    return f"""
<section id="explorer" aria-labelledby="explorer-head">
<h2 id="explorer-head">Operating-point explorer</h2>
<p>Choose how many false alarms you can afford, or how many alerts a day you can look at, or what errors cost.
The figures are those of the held-out rows at the threshold that results.</p>
<noscript><p class="empty">The explorer and the charts need JavaScript. {plain_answer(content)}</p></noscript>
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
{_field("miss-cost", "Cost of a miss", "such as 500")}
{_field("alarm-cost", "Cost of a false alarm", "such as 5")}
<div><label for="prior">Share of positives</label><input type="text" id="prior" aria-describedby="prior-help">
<p class="note" id="prior-help">In use; precision, alerts and cost follow it.
<button type="button" class="link" id="reset-prior" hidden>Held-out share</button></p></div>
<div class="buttons"><button type="button" id="cheapest" disabled>Cheapest threshold</button>
<button type="button" id="restart">Back to {w.short_percent(content.answer.fpr)}</button></div>
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
    """The section of the charts that read the held-out rows."""
    level = w.percent(content.answer.recall.level, 2)
    charts = "\n".join(
        (
            _chart(
                "roc",
                "ROC, logarithmic",
                f"Share of positives caught against the share of negatives alarmed, with the {level} "
                "interval of recall; thresholds without a false alarm stand at the left edge.",
            ),
            _chart(
                "pr",
                "Precision and recall",
                "How many of the alerts are true when more of the positives are caught, at the share of "
                "positives set in the explorer.",
            ),
            _chart(
                "reliability",
                "Reliability",
                "Observed share of positives among rows of similar predicted probability; points on the "
                "dotted line are calibrated, and a triangle is the upper limit of a group without positives.",
            ),
            _chart(
                "distribution",
                "Scores by class",
                "Calibrated log-odds of each class, scaled to the same area, with the explorer's threshold: "
                "what lies to its right raises an alert.",
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
    return (
        f'<figure><h3 id="title-{key}">{title}</h3><div class="chart" id="chart-{key}" role="img" '
        f'aria-labelledby="title-{key}" aria-describedby="caption-{key}"></div>'
        f'<figcaption id="caption-{key}">{caption}</figcaption></figure>'
    )
