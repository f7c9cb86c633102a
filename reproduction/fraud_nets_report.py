"""What the journal of the deep families says, as rows of the fraud comparison."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from .fraud_measures import METRICS, REFERENCE, Record
from .fraud_methods import DEEP_FAMILIES
from .fraud_nets import RIVAL, Cell
from .fraud_report import made_with
from .fraud_rivals import rival_rows, rivals_text
from .output import rows_text

__all__ = ["net_rivals", "net_rows"]


def net_rows(
    found: Mapping[Cell, Record], shown: Collection[tuple[str, str]]
) -> tuple[list[Record], list[Record]]:
    """The metrics on every split, and the differences to cross entropy, of these families and methods."""
    each = [row for cell, record in found.items() for row in _each(cell, record)]
    pairs = [row for cell, record in found.items() for row in _pairs(cell, record, REFERENCE)]
    return _those(each, shown), _those(pairs, shown)


def net_rivals(out: Path, found: Mapping[Cell, Record]) -> dict[Path, str]:
    """TBL less every other method, beside the paper's numbers, as CSV and Markdown, yet to be written."""
    in_order = sorted(found.items(), key=lambda item: DEEP_FAMILIES.index(item[0].setup.net))
    rows = rival_rows([row for cell, record in in_order for row in _pairs(cell, record, RIVAL)])
    return {out / "fraud_rivals.csv": rows_text(rows), out / "fraud_rivals.md": rivals_text(rows)}


def _those(rows: Sequence[Record], shown: Collection[tuple[str, str]]) -> list[Record]:
    return [row for row in rows if (row["family"], row["method"]) in shown]


def _each(cell: Cell, record: Record) -> Iterator[Record]:
    for method, found in record["methods"].items():
        values = {name: found[name] for name in (*METRICS, "chosen", "seconds", "positives")}
        made = made_with(record["versions"], record["date"])
        yield {
            **_name(cell, method),
            **values,
            "device": record["device"],
            "seeds": cell.setup.seeds,
            "epochs": _epochs(record, method),
            "best_epochs": " ".join(map(str, found.get("best_epochs", ()))),
            **made,
        }


def _pairs(cell: Cell, record: Record, reference: str) -> Iterator[Record]:
    for method, found in record["methods"].items():
        for gap in found["differences"][reference]:
            yield {**_name(cell, method), "epochs": _epochs(record, method), **gap}


def _epochs(record: Record, method: str) -> str:
    """After how many epochs a method ended, by its patience or with the last; empty where it is not said."""
    history = record.get("history", {})
    nets = [
        net
        for loss in record["methods"][method].get("validation_scores", ())
        for net in history.get(loss, ())
    ]
    judged = [epoch for net in nets for epoch, merit in enumerate(net, start=1) if merit is not None]
    return str(max(judged)) if judged else ""


def _name(cell: Cell, method: str) -> Record:
    split, repeat, fold = cell.key
    return {"split": split, "repeat": repeat, "fold": fold, "family": cell.setup.net, "method": method}
