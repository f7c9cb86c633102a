"""`raresight score`: rows in, log-odds, probabilities and alerts out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.memory import need_memory
from .sign import Verify, key_to_verify

if TYPE_CHECKING:
    from ..model.scoring import Scored, ScoringProgress

__all__ = ["EXAMPLE", "score"]

EXAMPLE = "Example: raresight score payments-fit today.csv --out scores.csv --keep id"


def score(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of the run that made it.")],
    data: Annotated[
        str, typer.Argument(help="CSV, Parquet, Arrow or SQLite file (x.db::table), or a folder of parts.")
    ],
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .arrow.")],
    keep: Annotated[str | None, typer.Option(help="Columns of the data to copy, such as id,when.")] = None,
    policy: Annotated[str, typer.Option(help="Policy of the model that decides about alerts.")] = "default",
    verify: Verify = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Score rows: log-odds, probability and alert, in the order of the rows, at constant memory."""
    need_memory(1024, "scoring")
    from ..common.progress import Status, show_progress
    from ..model.model import load
    from ..model.scoring import score_file

    loaded = load(model, verify=key_to_verify(verify))
    columns = [name.strip() for name in keep.split(",") if name.strip()] if keep else []
    with show_progress(not quiet) as display:

        def show(progress: ScoringProgress) -> None:
            share = progress.bytes_read / progress.total_bytes if progress.total_bytes else None
            display.show(Status(f"{progress.rows:,} rows", share))

        scored = score_file(loaded, data, out, keep=columns, policy=policy, listener=show)
    typer.echo(_said(scored))


def _said(scored: Scored) -> str:
    share = scored.alerts / scored.rows
    lines = [f"{scored.out}: {scored.rows:,} rows, {scored.alerts:,} alerts ({share:.3%})"]
    for name, count in scored.unknown.items():
        said = f"{_counted(scored.unknown_values[name], 'value')} in {_counted(count, 'row')}"
        lines.append(f"{name}: {said} that training did not have, scored as missing")
    for name, count in scored.infinite.items():
        lines.append(f"{name}: {count:,} infinite values, scored as missing")
    return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
