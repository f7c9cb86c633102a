"""The interactive page that `raresight analyze --html` writes: one file, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ..losses import Loss
from ..theory import Experiment, bayes_risk, centred_f_function, statistical_information
from ..theory.analysis import LossAnalysis
from .analysis_table import ROWS, shown
from .drawing import COLOURS

__all__ = ["write_analysis_page"]


def write_analysis_page(
    losses: Sequence[Loss], analyses: Sequence[LossAnalysis], experiment: Experiment, what: str, path: Path
) -> Path:
    """Loss, gradient, link, centred f and information against the prior, as curves to hover and zoom."""
    graphs, plots, offline = _plotly()
    figure = plots.make_subplots(
        rows=3,
        cols=2,
        vertical_spacing=0.1,
        subplot_titles=(
            "loss of a positive, l(1, z)",
            "pull on a positive, -dl(1, z)/dz",
            "link: log-odds at score z",
            "centred f-function at the prior, over its value at t = 2",
            f"explained information against the prior ({what})",
            "information over its value at the given prior",
        ),
    )
    for i, (loss, analysis) in enumerate(zip(losses, analyses, strict=True)):
        for row, column, x, y in _curves(loss, analysis, experiment):
            figure.add_trace(
                graphs.Scatter(
                    x=x,
                    y=y,
                    name=analysis.loss,
                    legendgroup=analysis.loss,
                    showlegend=(row, column) == (1, 1),
                    line={"color": COLOURS[i % len(COLOURS)]},
                ),
                row=row,
                col=column,
            )
    figure.update_yaxes(range=[0, 12], row=1, col=1)
    for row, column in ((1, 2), (2, 2), (3, 1), (3, 2)):
        figure.update_yaxes(type="log", exponentformat="power", row=row, col=column)
    for column in (1, 2):
        figure.update_xaxes(
            type="log", title="prior", exponentformat="power", autorange="reversed", row=3, col=column
        )
        figure.update_xaxes(title="score z", row=1, col=column)
    figure.update_xaxes(title="score z", row=2, col=1)
    figure.update_xaxes(title="likelihood ratio t", type="log", row=2, col=2)
    figure.update_layout(
        height=1150, template="simple_white", margin={"t": 60}, legend={"orientation": "h", "y": 1.06}
    )
    chart = offline.plot(figure, include_plotlyjs=True, output_type="div")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_page(analyses, what, chart), encoding="utf-8")
    return path


def _curves(loss: Loss, analysis: LossAnalysis, experiment: Experiment) -> list[tuple[int, int, Any, Any]]:
    z = np.linspace(-8, 8, 321)
    value, gradient = loss.derivatives(z, np.ones_like(z), order=1)
    curves: list[tuple[int, int, Any, Any]] = [(1, 1, z, value), (1, 2, z, np.maximum(-gradient, 1e-12))]
    if not analysis.unique_minimiser:
        return curves
    curves.append((2, 1, z, loss.log_odds(z)))
    t = np.logspace(-2, 2, 81)
    regret = centred_f_function(loss, t, analysis.prior)
    curves.append((2, 2, t[t != 1], regret[t != 1] / float(centred_f_function(loss, 2.0, analysis.prior))))
    priors = np.logspace(np.log10(0.3), -12, 80)
    information = statistical_information(loss, experiment, priors)
    curves.append((3, 1, priors, information / bayes_risk(loss, priors)))
    if analysis.information:
        curves.append((3, 2, priors, information / analysis.information))
    return curves


def _page(analyses: Sequence[LossAnalysis], what: str, chart: str) -> str:
    heads = "".join(f"<th>{escape(analysis.loss)}</th>" for analysis in analyses)
    rows = "".join(
        f"<tr><td>{escape(heading)}</td>"
        + "".join(f"<td>{shown(getattr(a, key))}</td>" for a in analyses)
        + "</tr>"
        for heading, key in ROWS
    )
    verdicts = "".join(f"<p><b>{escape(a.loss)}</b>: {escape(a.verdict)}.</p>" for a in analyses)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>raresight: losses at prior {analyses[0].prior:g}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #222;
  max-width: 1150px; margin: 2em auto; padding: 0 1em; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: .25em .9em; text-align: right; border-bottom: 1px solid #ddd; }}
td:first-child {{ text-align: left; }}
</style></head><body>
<h1>Losses at prior {analyses[0].prior:g}</h1>
<p>Statistical information on {escape(what)}.</p>
<table><tr><th></th>{heads}</tr>{rows}</table>
{verdicts}
{chart}
</body></html>
"""


def _plotly() -> tuple[Any, Any, Any]:
    try:
        import plotly.graph_objects
        import plotly.offline
        import plotly.subplots
    except ImportError as error:
        raise ImportError("an interactive page needs plotly: pip install 'raresight[report]'") from error
    return plotly.graph_objects, plotly.subplots, plotly.offline
