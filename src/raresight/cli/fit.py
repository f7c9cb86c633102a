"""`raresight fit`: a table in, a model and a report out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import progress_console

__all__ = ["fit"]


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
    from ..automl import fit as run
    from ..automl.options import default_folder
    from .fit_progress import shown

    folder = out or default_folder(data)
    console = progress_console()
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
