"""The command line: a thin shell over the library."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.console import Console

from . import __version__
from .common.progress import FaultTolerantStream

app = typer.Typer(
    name="raresight",
    help="Classification of rare events: losses, theory, metrics and models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"raresight {__version__}")
        raise typer.Exit


@app.callback()
def raresight(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Classification of rare events: losses, theory, metrics and models."""


@app.command()
def fit(
    data: Annotated[
        str,
        typer.Argument(
            help="CSV, Parquet or Arrow file, a folder of parts, or the word sample for the bundled table."
        ),
    ],
    target: Annotated[str, typer.Option(help="Column with the two classes.")],
    positive: Annotated[
        str | None, typer.Option(help="Value of the rare class; left out, 1, true or the rarer one.")
    ] = None,
    fpr: Annotated[float, typer.Option(help="False-positive rate that alarms may cause.")] = 0.001,
    max_fpr: Annotated[
        float | None,
        typer.Option(
            help="Largest false-positive rate of the partial AUC to choose by; 0.01, or --fpr if larger."
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column of time: train on the past, test on the latest rows.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Column of groups: none is on both sides of a split.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Column not to learn from, such as one that gives the target away; several times."),
    ] = None,
    families: Annotated[
        str | None,
        typer.Option(
            help="Of linear,lightgbm,xgboost and nets deep,tabm,tabnet; left out, those installed but nets."
        ),
    ] = None,
    losses: Annotated[
        str | None, typer.Option(help="Losses such as 'tbl,focal(gamma=2)'; left out, seven of them.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Time for the search, such as 90s or 5m.")] = None,
    trials: Annotated[
        int | None, typer.Option(help="Number of candidates. With neither: 100 of them or 3 minutes.")
    ] = None,
    test_size: Annotated[float, typer.Option(help="Share of rows held out.")] = 0.25,
    test: Annotated[str | None, typer.Option(help="File of test rows instead.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; left out, named after the data.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    seed: Annotated[int, typer.Option(help="Everything random comes from it.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes; left out, one a core.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Choose, calibrate and judge a model for a rare event: a table in, a model and a report out."""
    from .job import fit as run
    from .job.live import shown
    from .job.options import default_folder

    folder = out or default_folder(data)
    console = _progress_console()
    try:
        with shown(console, quiet) as listener:
            result = run(
                data,
                target=target,
                positive=positive,
                fpr=fpr,
                max_fpr=max_fpr,
                time=time,
                group=group,
                families=families,
                losses=losses,
                budget=budget,
                trials=trials,
                test_size=test_size,
                test=test,
                out=folder,
                resume=resume,
                seed=seed,
                jobs=jobs,
                drop=drop,
                listener=listener,
            )
    except KeyboardInterrupt:
        kept = (folder / "run.json").exists()
        hint = "go on by the same command with --resume" if kept else "nothing was written"
        console.print(f"stopped; {hint}", highlight=False)
        raise typer.Exit(130) from None
    if json:
        import json as encoder

        typer.echo(encoder.dumps(result.to_dict(), indent=2))
        return
    typer.echo(result)
    typer.echo(f"model: {folder / 'model'}")
    typer.echo(f"report: {folder / 'report.html'}")


@app.command()
def score(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of the run that made it.")],
    data: Annotated[str, typer.Argument(help="CSV, Parquet or Arrow file, or a folder of parts.")],
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .arrow.")],
    keep: Annotated[str | None, typer.Option(help="Columns of the data to copy, such as id,when.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Score rows: log-odds, probability and alert, in the order of the rows, at constant memory."""
    from .job.score_command import score_with_progress

    typer.echo(score_with_progress(model, data, out, keep, _progress_console(), quiet))


@app.command()
def show(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of the run that made it.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show what a model is: loss, columns, threshold, metrics, versions."""
    from .job.show_command import model_facts, model_lines

    if json:
        import json as encoder

        typer.echo(encoder.dumps(model_facts(model), indent=2))
    else:
        typer.echo("\n".join(model_lines(model)))


@app.command()
def losses(
    names: Annotated[
        list[str] | None, typer.Argument(help="Losses such as 'tbl(alpha=0.7,C=1)'; left out, every loss.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the losses and their gradients to this PNG, SVG or PDF file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Show every loss with its parameters, properties and formula."""
    from .losses import all_losses, parse
    from .report.loss_table import loss_rows, loss_table

    chosen = tuple(parse(name) for name in names) if names else all_losses()
    if json:
        import json as encoder

        typer.echo(encoder.dumps(loss_rows(chosen), indent=2))
    else:
        Console().print(loss_table(chosen))
    if plot is not None:
        from .report.loss_figure import draw_losses

        draw_losses(chosen, plot)
        typer.echo(f"wrote {plot}", err=True)


@app.command()
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
    from .report.analysis_input import find_loss, read_scores
    from .theory.analysis import REFERENCE, analyse

    chosen = [find_loss(text) for text in losses]
    experiment = REFERENCE if scores is None else read_scores(scores, target, score)
    what = "N(1, 1) against N(0, 1)" if scores is None else f"the ROC convex hull of {scores.name}"
    analyses = [analyse(loss, prior, experiment) for loss in chosen]
    if json:
        import json as encoder

        typer.echo(encoder.dumps([analysis.to_dict() for analysis in analyses], indent=2))
    else:
        from .report.analysis_table import analysis_table

        Console().print(analysis_table(analyses, what))
    if html is not None:
        from .report.analysis_page import write_analysis_page

        write_analysis_page(chosen, analyses, experiment, what, html)
        typer.echo(f"wrote {html}", err=True)


def main() -> None:
    """Run the command line: an error is one line, its traceback shown only with --debug."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    if debug:  # accepted before and after the command's name
        arguments = ["--debug", *(argument for argument in arguments if argument != "--debug")]
    warnings.showwarning = _show_warning
    try:
        app(args=arguments, prog_name="raresight")
    except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        if debug:
            raise
        Console(stderr=True).print(f"[bold red]error:[/] {_plain(error)}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _progress_console() -> Console:
    return Console(file=cast(IO[str], FaultTolerantStream(sys.stderr)))


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    Console(stderr=True).print(f"[bold yellow]warning:[/] {_plain(message)}", highlight=False, soft_wrap=True)


def _plain(error: Exception | str) -> str:
    from rich.markup import escape

    return escape(str(error) or type(error).__name__)
