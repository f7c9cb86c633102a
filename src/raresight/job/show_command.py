"""What a saved model is, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..model.folder import MODEL_FILE, Model, find_model, load

__all__ = ["model_facts", "model_lines"]


def model_facts(folder: str | Path) -> dict[str, Any]:
    """`model.json` as it is, after every part has been checked."""
    load(folder)
    facts: dict[str, Any] = json.loads((find_model(folder) / MODEL_FILE).read_text(encoding="utf-8"))
    return facts


def model_lines(folder: str | Path) -> list[str]:
    """The same for people; each line is whole, so that it can be copied."""
    pairs = _pairs(load(folder), model_facts(folder))
    width = max(len(name) for name, _ in pairs)
    return [f"{name:<{width}}  {text}" for name, text in pairs]


def _pairs(model: Model, facts: dict[str, Any]) -> list[tuple[str, str]]:
    schema, known = model.schema, facts["facts"]
    lines = [
        ("model", model.fitted.candidate.describe()),
        ("predicts", f"{schema.target} = {schema.positive} (against {schema.negative})"),
        ("alert", f"log-odds >= {model.threshold:.6g}, for a false-positive rate of {model.fpr:g}"),
        ("start score", f"{model.fitted.start_score:.6g}"),
    ]
    if "calibration" in known:
        slope, level = (known["calibration"][name] for name in ("slope", "level"))
        lines.append(("calibration", f"slope {slope:.4g}, level {level:+.4g}, by out-of-fold rows"))
    for name, found in known.get("metrics", {}).get("intervals", {}).items():
        lines.append(
            (name.replace("_", " "), f"{found['estimate']:.4f} ({found['low']:.4f} to {found['high']:.4f})")
        )
    data = known.get("data", {})
    if data:
        trained = f"trained on {data['training_rows']:,} rows, {data['training_positives']:,} positive"
        judged = f"judged on {data['test_rows']:,}, {data['test_positives']:,} positive"
        lines.append(("data", f"{trained}; {judged}"))
    lines.append(("columns", _first([f"{column.name} ({column.kind})" for column in schema.columns], 40)))
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
