"""`raresight show`: describe a saved model."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.memory import need_memory
from .sign import Verify, key_to_verify

if TYPE_CHECKING:
    from ..model.model import Model
    from ..model.signature import Key

__all__ = ["EXAMPLE", "show"]

EXAMPLE = "Example: raresight show payments-fit"


def show(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of the run that made it.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    verify: Verify = None,
) -> None:
    """Show what a model is: loss, columns, threshold, metrics, versions."""
    need_memory(1024, "a model")
    key = key_to_verify(verify)
    if json:
        typer.echo(encoder.dumps(model_facts(model, key), indent=2))
    else:
        typer.echo("\n".join(model_lines(model, key)))


def model_facts(folder: str | Path, key: Key | None = None) -> dict[str, Any]:
    """Read `model.json` and `policies.json` after a check of every part, and of the signature by a key."""
    from ..model.folder import find_model, read_folder
    from ..model.signature import check_signature

    fit, policies = read_folder(folder)
    if key is not None:
        check_signature(find_model(folder), fit, policies, key)
    return fit | {"policies": policies["policies"]}


def model_lines(folder: str | Path, key: Key | None = None) -> list[str]:
    """Describe the model in lines; none is wrapped, so that each can be copied."""
    from ..model.model import load

    pairs = _pairs(load(folder, verify=key), model_facts(folder))
    width = max(len(name) for name, _ in pairs)
    return [f"{name:<{width}}  {text}" for name, text in pairs]


def _pairs(model: Model, facts: dict[str, Any]) -> list[tuple[str, str]]:
    from ..automl.wording import interval_words, rows_with_positives

    schema, known = model.schema, facts["facts"]
    lines = [
        ("model", model.describe()),
        ("predicts", f"{schema.target} = {schema.positive} (against {schema.negative})"),
        *((f"policy {name}", policy.describe()) for name, policy in model.policies.items()),
        ("start score", ", ".join(f"{one.fitted.start_score:.6g}" for one in model.members)),
    ]
    if "calibration" in known:
        slope, level = (known["calibration"][name] for name in ("slope", "level"))
        lines.append(("calibration", f"slope {slope:.4g}, level {level:+.4g}, by out-of-fold rows"))
    for name, found in known.get("metrics", {}).get("intervals", {}).items():
        interval = interval_words(found["level"], f"{found['low']:.4f}", f"{found['high']:.4f}")
        lines.append((name.replace("_", " "), f"{found['estimate']:.4f} ({interval})"))
    data = known.get("data", {})
    if data:
        trained = rows_with_positives("training", data["training_rows"], data["training_positives"])
        tested = rows_with_positives("held-out", data["test_rows"], data["test_positives"])
        lines.append(("data", f"{trained}, {tested}"))
    lines.append(("columns", _first([f"{column.name} ({column.kind})" for column in schema.columns], 40)))
    if schema.dropped:
        lines.append(("dropped", _first([f"{one.name} ({one.reason})" for one in schema.dropped], 10)))
    lines += [("warning", text) for text in model.warnings]
    lines.append(("digest", model.digest))
    lines.append(("versions", ", ".join(f"{name} {value}" for name, value in facts["versions"].items())))
    if "made" in known:
        lines += [("made", known["made"]), ("by", known["command"])]
    return lines


def _first(texts: list[str], most: int) -> str:
    more = f", and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
