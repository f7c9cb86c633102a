"""`raresight losses`: which losses there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ..common.memory import need_memory

__all__ = ["EXAMPLE", "losses"]

EXAMPLE = "Example: raresight losses 'tbl(alpha=0.7,C=1)' focal --plot losses.png"


def losses(
    names: Annotated[
        list[str] | None, typer.Argument(help="Losses such as 'tbl(alpha=0.7,C=1)'; default: every loss.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the losses and their gradients to this PNG, SVG or PDF file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Show every loss with its parameters, properties and formula."""
    need_memory(512, "the list of losses")
    from ..losses import Loss, RankingLoss, all_losses
    from ..losses.registry import parse_any, ranking_kinds
    from ..report.loss_tables import loss_rows, loss_table

    chosen: list[Loss | RankingLoss] = [parse_any(name) for name in names or ()]
    drawn = chosen
    if not names:
        drawn = [*all_losses()]
        chosen = [*drawn, *(kind() for kind in ranking_kinds().values())]
    if json:
        import json as encoder

        typer.echo(encoder.dumps(loss_rows(chosen), indent=2))
    else:
        Console().print(loss_table(chosen))
    if plot is not None:
        from ..report.loss_tables import draw_losses

        draw_losses(drawn, plot)
        typer.echo(f"wrote {plot}", err=True)
