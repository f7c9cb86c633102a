"""`raresight fit`: a table in, a model and a report out."""

from __future__ import annotations

import inspect
from dataclasses import MISSING
from pathlib import Path
from typing import Annotated, Any

import typer

from ..automl.options import Options, default_folder
from .console import progress_console

__all__ = ["EXAMPLE", "fit"]

EXAMPLE = "Example: raresight fit payments.csv --target fraud --time when --fpr 0.001 --budget 5m"


def fit(data: str, *, out: Path | None, resume: bool, quiet: bool, json: bool, **options: Any) -> None:
    """Choose, calibrate and judge a model for a rare event: a table in, a model and a report out."""
    from ..automl import fitting
    from .fit_progress import shown

    folder = out or default_folder(data)
    console = progress_console()
    try:
        with shown(console, quiet) as listener:
            result = fitting.fit(data, out=folder, resume=resume, listener=listener, **options)
    except KeyboardInterrupt:
        kept = (folder / "run.json").exists()
        hint = "continue with the same command and --resume" if kept else "nothing was written"
        console.print(f"stopped; {hint}", highlight=False)
        raise typer.Exit(130) from None
    if json:
        import json as encoder

        typer.echo(encoder.dumps(result.to_dict(), indent=2))
        return
    typer.echo(result)
    typer.echo(f"model: {folder / 'model'}")
    typer.echo(f"report: {folder / 'report.html'}")


def _signature() -> inspect.Signature:
    """The arguments of the command: the data, each field of `Options`, and those of the shell."""
    data = typer.Argument(help="CSV, Parquet or Arrow file, a folder of parts, or the word sample.")
    parameters = [inspect.Parameter("data", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, data])]
    for one in Options.typed():
        typed = list[str] if one.metadata["typed"] is list else one.metadata["typed"]
        default = {MISSING: inspect.Parameter.empty, (): None}.get(one.default, one.default)
        wanted = typed if default is not None else typed | None
        parameters.append(_parameter(one.name, wanted, default, typer.Option(help=one.metadata["help"])))
    parameters += [
        _parameter(
            "out", Path | None, None, typer.Option(help="Folder for the results. Default: named after data.")
        ),
        _parameter(
            "resume", bool, False, typer.Option("--resume", help="Continue the run that is in the folder.")
        ),
        _parameter("quiet", bool, False, typer.Option("--quiet", help="Show no progress.")),
        _parameter("json", bool, False, typer.Option("--json", help="Print the outcome as JSON.")),
    ]
    return inspect.Signature(parameters)


def _parameter(name: str, typed: Any, default: Any, shown: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, shown]
    )


# Typer reads the command's options from here.
fit.__signature__ = _signature()  # type: ignore[attr-defined]
