"""What the journal of the deep families says, as rows of the fraud comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .fraud_measures import METRICS, REFERENCE, Record
from .fraud_nets import RIVAL, Cell
from .fraud_rivals import rival_rows, write_rivals
from .output import write_rows

__all__ = ["net_rows", "write_net_rivals"]


def net_rows(found: Mapping[Cell, Record], methods: Sequence[str]) -> tuple[list[Record], list[Record]]:
    """The metrics of these methods on every split, and their differences to cross entropy."""
    each = [row for cell, record in found.items() for row in _each(cell, record, methods)]
    pairs = [row for cell, record in found.items() for row in _pairs(cell, record, REFERENCE, methods)]
    return each, pairs


def write_net_rivals(out: Path, found: Mapping[Cell, Record]) -> list[Path]:
    """TBL less every other method, beside the paper's numbers, as CSV and Markdown."""
    rows = rival_rows(
        [
            row
            for cell, record in found.items()
            for row in _pairs(cell, record, RIVAL, list(record["methods"]))
        ]
    )
    return [write_rows(out / "fraud_rivals.csv", rows), write_rivals(out / "fraud_rivals.md", rows)]


def _each(cell: Cell, record: Record, methods: Sequence[str]) -> Iterator[Record]:
    for method, found in record["methods"].items():
        if method in methods:
            values = {name: found[name] for name in (*METRICS, "chosen", "seconds", "positives")}
            yield {**_name(cell, method), **values, "device": record["device"], "seeds": cell.setup.seeds}


def _pairs(cell: Cell, record: Record, reference: str, methods: Sequence[str]) -> Iterator[Record]:
    for method, found in record["methods"].items():
        if method in methods:
            for gap in found["differences"][reference]:
                yield {**_name(cell, method), **gap}


def _name(cell: Cell, method: str) -> Record:
    split, repeat, fold = cell.key
    return {"split": split, "repeat": repeat, "fold": fold, "family": cell.setup.net, "method": method}
