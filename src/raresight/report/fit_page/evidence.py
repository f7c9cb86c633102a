"""What stands behind the choice: features, statistical information, influential rows."""

from __future__ import annotations

from ..fit_content import FitContent
from . import wording as w
from .tables import empty, heads, left_out, table

__all__ = ["evidence", "features"]

MOST_FEATURES = 20


def features(content: FitContent) -> str:
    """The section of feature importance: real text with bars, so that any name can be read and copied."""
    return f"""
<section id="features" aria-labelledby="features-head">
<h2 id="features-head">Feature importance</h2>
<p class="caption">Share of the chosen model's work that each feature does; it shows what the model uses, not
what causes the event.</p>
{_importance(content)}
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
    """The section of statistical information and influential rows."""
    rho = content.profile.get("rho") or content.curve.positives / content.curve.negatives
    negatives = round(1 / rho) if rho < 0.1 else 1 / rho
    return f"""
<section id="evidence" aria-labelledby="evidence-head">
<h2 id="evidence-head">Evidence behind the choice</h2>
<h3>Statistical information</h3>
<p class="caption">What each loss still sees in the held-out scores at odds of one positive to
{w.count(negatives)} negatives. The index is the power of the odds with which a loss loses sight of the
positives as they get rarer: the smaller, the longer it sees them. The explained fraction is the share of the
risk that looking at the scores removes, compared with knowing only how rare the positives are.</p>
{_information(content)}
<h3>Rows with the largest influence</h3>
<p class="caption">Training rows that pull hardest on the fit; a label that contradicts the probability may be
wrong, so look at these rows first.</p>
{_influential(content)}
</section>"""


def _information(content: FitContent) -> str:
    rows = content.information
    if not rows:
        return empty("Statistical information was not computed.")
    head = heads(("Loss", ""), ("Index", "n"), ("Explained fraction", "n"), ("Information", "n"))
    body = "".join(
        f'<tr><td><code>{w.loss(row.loss)}</code></td><td class="n">{w.decimal(row.index, 3)}</td>'
        f'<td class="n">{w.percent(row.explained_fraction)}</td>'
        f'<td class="n">{"none" if row.information is None else f"{row.information:.3g}"}</td></tr>'
        for row in rows
    )
    return table("information-table", "Statistical information", head, body, len(rows))


def _influential(content: FitContent) -> str:
    rows = content.influential
    if not rows:
        return empty(content.influential_note or "No row pulls hard enough to be listed.")
    head = heads(("Row, from 1", "n"), ("Label", "n"), ("Probability, unseen", "n"), ("Influence", "n"))
    body = "".join(
        f'<tr><td class="n">{w.count(row.row)}</td><td class="n">{row.label}</td>'
        f'<td class="n">{w.percent(row.probability)}</td>'
        f'<td class="n">{w.significant(row.influence, 3)}</td></tr>'
        for row in rows
    )
    return table("influential-table", "Rows with the largest influence", head, body, len(rows))
