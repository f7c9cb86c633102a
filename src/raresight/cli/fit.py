"""`raresight fit`: a table in, a model and a report out."""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..automl.options import Options, default_folder
from ..common.memory import need_memory
from ..common.progress import FaultTolerantStream, Status, duration

if TYPE_CHECKING:
    from ..automl.records import Progress
    from ..common.progress import Display
    from ..fitting import FitProgress

__all__ = ["EXAMPLE", "fit"]

_ROWS = 8
EXAMPLE = "Example: raresight fit payments.csv --target fraud --time when --fpr 0.001 --budget 5m"


def fit(data: str, *, out: Path | None, resume: bool, quiet: bool, json: bool, **options: Any) -> None:
    """Choose, calibrate and evaluate a model for a rare event: a table in, a model and a report out."""
    folder = out or default_folder(data)
    need_memory(1024, "a fit")
    from ..common.progress import show_progress
    from ..fitting import fit as run

    try:
        with show_progress(not quiet) as display:
            result = run(data, out=folder, resume=resume, listener=_Narrator(display, quiet), **options)
    except KeyboardInterrupt:
        kept = (folder / "run.json").exists()
        hint = "continue with the same command and --resume" if kept else "nothing was written"
        # Standard error may be closed by now, as after its terminal was closed.
        FaultTolerantStream(sys.stderr).write(f"stopped; {hint}\n")
        raise typer.Exit(130) from None
    if json:
        import json as encoder

        typer.echo(encoder.dumps(result.to_dict(), indent=2))
        return
    typer.echo(result)
    typer.echo(f"model: {folder / 'model'}")
    typer.echo(f"report: {folder / 'report.html'}")


class _Narrator:
    """Show the progress of a run: stage, best candidates so far, time left."""

    def __init__(self, display: Display, quiet: bool) -> None:
        self._display, self._quiet = display, quiet
        self._stage = ""
        self._best: int | None = None

    def __call__(self, step: FitProgress) -> None:
        is_new, self._stage = step.stage != self._stage, step.stage
        if is_new:
            self._display.show(Status(step.stage, urgent=True))
        if step.columns:
            self._display.note(step.columns)
        for note in step.notes:
            if self._quiet:
                # Quiet hides progress, never what makes the answer doubtful.
                FaultTolerantStream(sys.stderr).write(f"warning: {note}\n")
            self._display.note(note, warning=True)
        if step.progress is not None:
            best = step.progress.best
            is_better = best is not None and best.number != self._best
            self._best = None if best is None else best.number
            self._display.show(_status(step.progress, urgent=is_better))


def _status(progress: Progress, *, urgent: bool) -> Status:
    total, left = progress.total, progress.seconds_left
    parts = [f"{progress.done} of {total} candidates" if total else f"{progress.done} candidates"]
    parts.append(duration(progress.seconds))
    if left is not None:
        parts.append(f"about {duration(left)} left")
    if progress.best is not None:
        parts.append(
            f"best partial AUC {progress.best.partial_auc:.4f}, {progress.best.candidate.describe()}"
        )
    complete = [trial for trial in progress.trials if trial.state == "complete"]
    leaders = sorted(complete, key=lambda trial: (-(trial.partial_auc or 0), -(trial.recall or 0)))
    return Status(
        ", ".join(parts),
        share=None
        if left is None or progress.seconds + left == 0
        else progress.seconds / (progress.seconds + left),
        header=("model", "partial AUC", "recall") if leaders else (),
        rows=[
            (trial.candidate.describe(), f"{trial.partial_auc:.4f}", f"{trial.recall:.4f}")
            for trial in leaders[:_ROWS]
        ],
        urgent=urgent,
    )


def _signature() -> inspect.Signature:
    """Make the signature of the command: the data, each field of `Options`, and those of the shell."""
    data = typer.Argument(
        help="CSV, Parquet, Arrow or SQLite file (x.db::table), a folder of parts, or the word sample."
    )
    parameters = [inspect.Parameter("data", inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[str, data])]
    for one in Options.typed():
        typed = list[str] if one.metadata["typed"] is list else one.metadata["typed"]
        default = {MISSING: inspect.Parameter.empty, (): None}.get(one.default, one.default)
        wanted = typed if default is not None else typed | None
        # Without its name a switch would have a second one, to turn it off.
        names = [f"--{one.name}"] if typed is bool else []
        parameters.append(
            _parameter(one.name, wanted, default, typer.Option(*names, help=one.metadata["help"]))
        )
    parameters += [
        _parameter(
            "out", Path | None, None, typer.Option(help="Folder for the results. Default: named after data.")
        ),
        _parameter(
            "resume", bool, False, typer.Option("--resume", help="Continue the run that is in the folder.")
        ),
        _parameter("quiet", bool, False, typer.Option("--quiet", help="Show no progress, but warnings.")),
        _parameter("json", bool, False, typer.Option("--json", help="Print the outcome as JSON.")),
    ]
    return inspect.Signature(parameters)


def _parameter(name: str, typed: Any, default: Any, shown: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[typed, shown]
    )


# Typer reads the command's options from here.
fit.__signature__ = _signature()  # type: ignore[attr-defined]
