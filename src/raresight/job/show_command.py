"""What a saved model is, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ..model.folder import MODEL_FILE, Model, load

__all__ = ["find_model", "model_facts", "model_table"]


def find_model(folder: str | Path) -> Path:
    """The folder of a model: the one given, or the one inside the folder of a run."""
    place = Path(folder)
    inside = place / "model"
    return inside if not (place / MODEL_FILE).exists() and (inside / MODEL_FILE).exists() else place


def model_facts(folder: str | Path) -> dict[str, Any]:
    """`model.json` as it is, after every part has been checked."""
    place = find_model(folder)
    load(place)
    facts: dict[str, Any] = json.loads((place / MODEL_FILE).read_text(encoding="utf-8"))
    return facts


def model_table(folder: str | Path) -> Table:
    """The same for people."""
    place = find_model(folder)
    model = load(place)
    facts = model_facts(place)
    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    for name, value in _lines(model, facts):
        table.add_row(name, Text(value))
    return table


def _lines(model: Model, facts: dict[str, Any]) -> list[tuple[str, str]]:
    schema, known = model.schema, facts["facts"]
    lines = [
        ("model", model.fitted.candidate.describe()),
        ("predicts", f"{schema.target} = {schema.positive} (against {schema.negative})"),
        ("alert", f"log-odds >= {model.threshold:.6g}, for a false-positive rate of {model.fpr:g}"),
        ("start score", f"{model.fitted.start_score:.6g}"),
    ]
    for name, found in known.get("metrics", {}).get("intervals", {}).items():
        lines.append(
            (name.replace("_", " "), f"{found['estimate']:.4f} ({found['low']:.4f} to {found['high']:.4f})")
        )
    data = known.get("data", {})
    if data:
        lines.append(
            (
                "data",
                f"trained on {data['training_rows']:,} rows, {data['training_positives']:,} positive; judged "
                f"on {data['test_rows']:,}, {data['test_positives']:,} positive",
            )
        )
    kinds = [f"{column.name} ({column.kind})" for column in schema.columns]
    lines.append(("columns", _first(kinds, 40)))
    if schema.dropped:
        lines.append(("dropped", _first([f"{one.name} ({one.reason})" for one in schema.dropped], 10)))
    lines += [("warning", text) for text in model.fitted.warnings]
    lines.append(("versions", ", ".join(f"{name} {value}" for name, value in facts["versions"].items())))
    if "made" in known:
        lines += [("made", known["made"]), ("by", known["command"])]
    return lines


def _first(texts: list[str], most: int) -> str:
    more = f", and {len(texts) - most:,} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more
