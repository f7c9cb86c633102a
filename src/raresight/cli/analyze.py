"""`raresight analyze`: what a loss does at an imbalance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..common.memory import need_memory

__all__ = ["EXAMPLE", "analyze"]

EXAMPLE = "Example: raresight analyze tbl crossentropy --prior 1e-4 --html page.html"


def analyze(
    losses: Annotated[
        list[str], typer.Argument(help="Losses such as 'tbl(alpha=0.8,C=0.5)', or module:name for your own.")
    ],
    prior: Annotated[float, typer.Option(help="Share of positives, P(y=1).")] = 1e-3,
    json: Annotated[bool, typer.Option("--json", help="Print the analysis as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write interactive curves to this page.")] = None,
    scores: Annotated[
        Path | None, typer.Option(help="CSV of held-out scores of your own model: the experiment to use.")
    ] = None,
    target: Annotated[str, typer.Option(help="Column of --scores with the 0/1 labels.")] = "y",
    score: Annotated[str, typer.Option(help="Column of --scores with the scores.")] = "score",
) -> None:
    """Say what losses do at your imbalance: shape, decay of information, influence."""
    need_memory(512, "the analysis")
    from ..report.analysis import find_loss, read_scores
    from ..theory.analysis import REFERENCE, analyse

    if html is not None and scores is not None and html.resolve() == scores.resolve():
        raise ValueError(f"{html} would overwrite the scores: give another page by --html")
    chosen = [find_loss(text) for text in losses]
    experiment = REFERENCE if scores is None else read_scores(scores, target, score)
    what = "N(1, 1) against N(0, 1)" if scores is None else f"the held-out scores of {scores.name}"
    analyses = [analyse(loss, prior, experiment) for loss in chosen]
    if json:
        import json as encoder

        typer.echo(encoder.dumps([analysis.to_dict() for analysis in analyses], indent=2))
    else:
        from ..report.analysis import analysis_table

        Console().print(analysis_table(analyses, what))
    if html is not None:
        from ..report.analysis import write_analysis_page

        write_analysis_page(chosen, analyses, experiment, what, html)
        typer.echo(f"wrote {html}", err=True)
