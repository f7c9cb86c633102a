"""`raresight sign`: vouch for a saved model with a key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..common.memory import need_memory

__all__ = ["EXAMPLE", "Verify", "key_to_verify", "sign"]

EXAMPLE = "Example: raresight sign payments-fit --key-file team.key"

Verify = Annotated[
    Path | None,
    typer.Option(help="File of the key that must have signed the model. Default: RARESIGHT_KEY, if set."),
]


def sign(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of the run that made it.")],
    key_file: Annotated[
        Path | None, typer.Option(help="File of the key. Default: the environment variable RARESIGHT_KEY.")
    ] = None,
) -> None:
    """Sign a model and its policies, so that `--verify` finds any change by someone without the key."""
    need_memory(1024, "a model")
    from ..model.signature import sign_model

    typer.echo(f"signed: {sign_model(model, key_file)}")


def key_to_verify(file: Path | None) -> Path | bytes | None:
    """Return the key that a command was given by file or environment, if any."""
    from ..model.signature import KEY_VARIABLE, read_key

    return read_key() if file is None and os.environ.get(KEY_VARIABLE) else file
