"""The command line: a thin shell over the library."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from . import __version__

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


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    Console(stderr=True).print(f"[bold yellow]warning:[/] {_plain(message)}", highlight=False, soft_wrap=True)


def _plain(error: Exception | str) -> str:
    from rich.markup import escape

    return escape(str(error) or type(error).__name__)
