"""The command line: a thin shell over the library, one file per command."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated

import typer
from rich.console import Console

from .. import __version__
from . import analyze, fit, losses, score, show

__all__ = ["app", "main"]

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


app.command(epilog=fit.EXAMPLE)(fit.fit)
app.command(epilog=score.EXAMPLE)(score.score)
app.command(epilog=show.EXAMPLE)(show.show)
app.command(epilog=losses.EXAMPLE)(losses.losses)
app.command(epilog=analyze.EXAMPLE)(analyze.analyze)


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
        _show_error(error)
        sys.exit(1)


def _show_error(error: Exception) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {_plain(error)}", highlight=False, soft_wrap=True)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    Console(stderr=True).print(f"[bold yellow]warning:[/] {_plain(message)}", highlight=False, soft_wrap=True)


def _plain(error: Exception | str) -> str:
    from rich.markup import escape

    return escape(str(error) or type(error).__name__)
