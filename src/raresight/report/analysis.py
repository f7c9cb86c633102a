"""Input and output of `raresight analyze`: losses, scores, a table, and an interactive page in one file."""

from __future__ import annotations

import csv
import html
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..common.atomic_files import regular_file, write_file
from ..losses import Loss, from_callable, parse
from ..theory import EmpiricalExperiment, Experiment, bayes_risk, centred_f_function, statistical_information
from ..theory.analysis import LossAnalysis
from .drawing import COLOURS

__all__ = ["analysis_table", "find_loss", "read_scores", "write_analysis_page"]

ROWS = (
    ("monotone", "monotone"),
    ("convex", "convex"),
    ("one minimiser", "unique_minimiser"),
    ("bounded influence", "bounded_influence"),
    ("slope of the link", "link_slope"),
    ("index beta here", "beta"),
    ("index in the limit", "beta_limit"),
    ("constant c", "c"),
    ("information", "information"),
    ("its decay exponent", "decay"),
    ("explained fraction", "explained"),
    ("its 95 % interval", "explained_interval"),
)


def analysis_table(analyses: Sequence[LossAnalysis], experiment: str) -> RenderableType:
    """Return a table with one column per loss, and a verdict per loss below it."""
    title = f"Prior {analyses[0].prior:g}; information on {experiment}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for analysis in analyses:
        table.add_column(escape(analysis.loss), justify="right", overflow="fold")
    for heading, *cells in _rows(analyses):
        table.add_row(heading, *cells)
    verdicts = [Text.assemble((analysis.loss, "bold"), ": ", analysis.verdict) for analysis in analyses]
    return Group(table, *verdicts)


def _rows(analyses: Sequence[LossAnalysis]) -> list[list[str]]:
    """The heading and the cells of each row; that of the interval only where there is one."""
    return [
        [heading, *(shown(getattr(analysis, key)) for analysis in analyses)]
        for heading, key in ROWS
        if key != "explained_interval" or any(analysis.explained_interval for analysis in analyses)
    ]


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return " to ".join(f"{end:.3g}" for end in value)
    return "-" if value is None else f"{value:.4g}"


def write_analysis_page(
    losses: Sequence[Loss], analyses: Sequence[LossAnalysis], experiment: Experiment, what: str, path: Path
) -> Path:
    """Write a page of interactive curves: loss, gradient, link, centred f, and information by prior."""
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
    return write_file(path, _page(analyses, what, chart))


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
    heads = "".join(f"<th>{html.escape(analysis.loss)}</th>" for analysis in analyses)
    rows = "".join(
        f"<tr><td>{html.escape(heading)}</td>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        for heading, *cells in _rows(analyses)
    )
    verdicts = "".join(f"<p><b>{html.escape(a.loss)}</b>: {html.escape(a.verdict)}.</p>" for a in analyses)
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
<p>Statistical information on {html.escape(what)}.</p>
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


def find_loss(text: str) -> Loss:
    """Return the loss of a text, or of `module:name` for a Loss or a function fn(z, y) of torch tensors."""
    if ":" not in text:
        return parse(text)
    module_name, _, name = text.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        raise ValueError(f"cannot import {module_name!r} for {text!r}: {error}") from error
    if not hasattr(module, name):
        raise ValueError(f"module {module_name!r} has no {name!r}")
    found = getattr(module, name)
    if isinstance(found, Loss):
        return found
    if callable(found):
        try:
            return from_callable(found, name=name)
        except ImportError:
            raise
        except Exception as error:  # a user's function may raise anything
            raise ValueError(
                f"{text!r} failed on a tensor of scores: {type(error).__name__}: {error}"
            ) from error
    raise ValueError(f"{text!r} is neither a loss nor a function fn(z, y), but {type(found).__name__}")


def read_scores(path: Path, target: str, score: str) -> EmpiricalExperiment:
    """Read labels and held-out scores from a CSV file with a header."""
    try:
        return _read_scores(path, target, score)
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(
            f"{path} is not text in UTF-8. Scores are read from a CSV file with a header, such as `raresight "
            "score ... --out scores.csv` writes."
        ) from None


def _read_scores(path: Path, target: str, score: str) -> EmpiricalExperiment:
    labels: list[float] = []
    scores: list[float] = []
    with regular_file(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or []
        for column in (target, score):
            if column not in columns:
                raise ValueError(f"{path} has no column {column!r}; it has {', '.join(columns) or 'none'}")
        for row in reader:
            try:
                labels.append(float(row[target]))
                scores.append(float(row[score]))
            except (TypeError, ValueError):
                raise ValueError(
                    f"{path}, line {reader.line_num}: {target}={row[target]!r} and {score}={row[score]!r} "
                    "must be numbers"
                ) from None
    return EmpiricalExperiment(labels, scores)
