"""Write the fraud comparison as tables and a figure, with families that were fitted at different times."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from raresight.report.drawing import COLOURS

from ..estimates import BOLD_NOTE, mark
from ..output import figure_files, figure_with_axes, rows_text
from ..paper_numbers import FRAUD_TABLES, printed_gain
from .methods import (
    ALL_FAMILIES,
    DEEP_FAMILIES,
    EPOCHS,
    FPR,
    LEVEL,
    MAX_FPR,
    METHODS,
    METRICS,
    REFERENCE,
    Record,
    format_span,
    mean_difference,
    quantile,
)
from .net_training import RIVAL, FamilySplit
from .table import FOLDS, ResultsOrigin

# ---- Table and figure --------------------------------------------------------------------------------------

TITLES = {
    "roc_auc": "AUC",
    "partial_auc": f"opAUC, FPR <= {MAX_FPR:g}",
    "recall_at_fpr": f"recall at FPR {FPR:g}",
    "brier_score": "Brier score x 1e6",
}
_EPOCHS_TITLES = {"epochs": "epochs", "best_epochs": "best epochs"}
_EPOCHS_NOTE = (
    "Epochs of nets are those that a method was trained for, over the splits, until its patience or the "
    "epochs ended; best epochs, chosen by held-out rows, those of the weights that its nets have."
)
_SPLITS = {"random": "folds", "time": "the last quarter in time"}
_INTEGER_COLUMNS = ("repeat", "fold", "repeats", "tests", "positives", "seeds")
_TEXT_COLUMNS = ("split", "family", "method", "metric", "chosen", "device", "versions", "date", *EPOCHS)


def read_results(path: Path) -> list[Record]:
    """Read the rows of a result file; none if there is no file."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    found = list(csv.DictReader(io.StringIO(text)))
    if not text.endswith("\n") or any(None in row or None in row.values() for row in found):
        raise ValueError(
            f"{path} is incomplete, its last rows are missing: put back an earlier copy, or move it away and "
            "run all families again"
        )
    return [{name: _value(name, value) for name, value in row.items()} for row in found]


def made_with(versions: Mapping[str, str], date: str | None = None) -> Record:
    """Return versions and date of a row. Default: today.

    >>> made_with({"raresight": "0.1.0", "numpy": "2.4.6"}, "2026-11-17")
    {'versions': 'raresight 0.1.0, numpy 2.4.6', 'date': '2026-11-17'}
    """
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    return {"versions": listed, "date": date or datetime.now(UTC).date().isoformat()}


def _value(name: str, text: str) -> Any:
    if name in _TEXT_COLUMNS:
        return text
    return int(text) if name in _INTEGER_COLUMNS else float(text)


def in_order(rows: Sequence[Record]) -> list[Record]:
    """Sort rows by split, family and method, and give all of them the same columns."""

    def place(row: Record) -> tuple[int, ...]:
        return (
            list(_SPLITS).index(row["split"]),
            row.get("repeat", 0),
            row.get("fold", 0),
            ALL_FAMILIES.index(row["family"]),
            METHODS.index(row["method"]),
        )

    names = list(rows[0])
    return [{name: row[name] for name in names} for row in sorted(rows, key=place)]


def table_text(summary: Sequence[Record], origin: ResultsOrigin) -> str:
    """Format the summary as Markdown: means, and differences to cross entropy with their intervals."""
    intervals = sum(row["method"] != REFERENCE for row in summary)
    words = (
        f"ULB card fraud: {origin.rows:,} rows ({origin.duplicates:,} exact duplicates dropped), "
        f"{origin.frauds} frauds. In parentheses the difference to cross entropy in the same family, "
        f"with its paired {LEVEL:.0%} interval; {BOLD_NOTE}. Of the {intervals} "
        f"intervals about {intervals * (1 - LEVEL):.0f} would be beyond chance by luck alone. "
        f"{training_variance_note(summary)}"
    )
    has_epochs = any(row[name] for row in summary for name in EPOCHS)
    lines = [" ".join(filter(None, [words.rstrip(), _EPOCHS_NOTE if has_epochs else ""]))]
    for split in _SPLITS:
        for family in dict.fromkeys(row["family"] for row in summary):
            rows = [row for row in summary if (row["split"], row["family"]) == (split, family)]
            if not rows:
                continue
            lines += ["", f"#### {family}, {split_title(rows[0])}", ""]
            # Only journals of nets have these columns.
            epochs = {_EPOCHS_TITLES[name]: name for name in EPOCHS if any(row[name] for row in rows)}
            if family in DEEP_FAMILIES:
                lines += [_how(rows[0]), ""]
            titles = [*TITLES.values(), *epochs]
            lines += ["| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
            for method in dict.fromkeys(row["method"] for row in rows):
                own = [row for row in rows if row["method"] == method]
                cells = [*map(_cell, own), *(own[0][name] for name in epochs.values())]
                lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def split_title(row: Record) -> str:
    """Format which rows were tested, from a row of the summary.

    >>> split_title({"split": "random", "repeats": 3, "tests": 12})
    '3 times 4 folds'
    >>> split_title({"split": "random", "repeats": 2, "tests": 5})
    '5 folds of 2 times 4'
    """
    repeats, tests = row["repeats"], row["tests"]
    if row["split"] == "time":
        return _SPLITS["time"]
    if tests < repeats * FOLDS:
        return f"{tests} folds of {repeats} times {FOLDS}"
    return f"{FOLDS} folds" if repeats == 1 else f"{repeats} times {FOLDS} folds"


def _panel_title(split: str, summary: Sequence[Record]) -> str:
    """Format which rows were tested, and which families were tested on other numbers of folds.

    >>> rows = [{"split": "random", "family": name, "repeats": n, "tests": 4 * n} for name, n in
    ...     (("linear", 3), ("tabnet", 1), ("tabm", 1))]
    >>> _panel_title("random", rows)
    '3 times 4 folds (tabnet, tabm: 4 folds)'
    """
    families: dict[str, dict[str, None]] = {}
    for row in summary:
        if row["split"] == split:
            families.setdefault(split_title(row).removeprefix("the "), {})[row["family"]] = None
    first, *others = families or {_SPLITS[split]: {}}
    words = "; ".join(f"{', '.join(families[title])}: {title}" for title in others)
    return f"{first} ({words})" if words else first


def training_variance_note(rows: Sequence[Record]) -> str:
    """Name the intervals that do not cover the randomness of training: those of splits drawn once.

    >>> training_variance_note([{"split": "random", "repeats": 2, "tests": 8}])
    ''
    """
    once = dict.fromkeys(split_title(row) for row in rows if row["repeats"] == 1)
    if not once:
        return ""
    return f"Intervals of splits that were drawn once ({'; '.join(once)}) leave out the luck of training."


def _how(row: Record) -> str:
    seeds = row["seeds"]
    nets = "one net" if seeds == 1 else f"{seeds} nets with different seeds, their probabilities averaged,"
    return f"For each loss setting {nets} on {row['device']}."


def _cell(row: Record) -> str:
    scale, digits = _scale(row["metric"])
    text = f"{row['mean'] * scale:.{digits}f}"
    return text if row["method"] == REFERENCE else f"{text} ({interval_text(row)})"


def interval_text(row: Record) -> str:
    """Format a difference with its interval, bold if it counts as a gain or a loss.

    >>> interval_text({"metric": "roc_auc", "difference": 0.01, "low": 0.005, "high": 0.015})
    '**+1.00** [+0.50, +1.50]'
    """
    scale, digits = _scale(row["metric"])
    # Zero is added so that what rounds to zero has no minus sign.
    gap, low, high = (
        f"{round(row[name] * scale, digits) + 0.0:+.{digits}f}" for name in ("difference", "low", "high")
    )
    bold = mark(*(row[name] for name in ("metric", "difference", "low", "high")))
    return f"{bold}{gap}{bold} [{low}, {high}]"


def _scale(metric: str) -> tuple[float, int]:
    return (1e6, 0) if metric == "brier_score" else (100, 2)


def draw(path: Path, summary: Sequence[Record]) -> dict[Path, bytes]:
    """Draw differences to cross entropy with their intervals, a panel for each metric and split.

    Return the contents of the files, which the caller writes.
    """
    panels = [(split, metric) for split in _SPLITS for metric in ("partial_auc", "recall_at_fpr")]
    methods = [m for m in dict.fromkeys(row["method"] for row in summary) if m != REFERENCE]
    families = list(dict.fromkeys(row["family"] for row in summary))
    figure, axes = figure_with_axes(len(panels), width=15, height=5.2 if len(families) < 4 else 6.8)
    apart = min(0.24, 0.8 / len(families))
    for ax, (split, metric) in zip(axes, panels, strict=True):
        for shift, family in enumerate(families):
            rows = [
                row
                for row in summary
                if (row["split"], row["family"], row["metric"]) == (split, family, metric)
                and row["method"] != REFERENCE
            ]
            if not rows:
                continue
            places = np.array([methods.index(row["method"]) for row in rows])
            gaps, low, high = (
                np.array([row[name] for row in rows]) * 100 for name in ("difference", "low", "high")
            )
            ax.errorbar(
                gaps, places + apart * (shift - (len(families) - 1) / 2), xerr=[gaps - low, high - gaps],
                fmt="o", color=COLOURS[ALL_FAMILIES.index(family) + 1], label=family, markersize=4, capsize=2,
            )  # fmt: skip
        ax.axvline(0, color="#666666", linewidth=0.8)
        ax.set_yticks(range(len(methods)), methods if ax is axes[0] else [""] * len(methods))
        ax.invert_yaxis()
        ax.set_title(f"{TITLES[metric]}\n{_panel_title(split, summary)}", fontsize=10)
        ax.set_xlabel("points against cross entropy")
    # One entry per family: a family may be missing in some panels.
    drawn = {label: handle for ax in axes[::-1] for handle, label in zip(*ax.get_legend_handles_labels())}
    figure.legend(
        drawn.values(), drawn.keys(), loc="outside lower center", ncols=len(families), frameon=False
    )
    return figure_files(figure, path)


# ---- TBL less its rivals, beside the paper's Table 3 -------------------------------------------------------

_EPOCHS = ("epochs", "TBL epochs")
_METRICS = ("roc_auc", "partial_auc", "recall_at_fpr")


def rival_rows(pairs: Sequence[Record]) -> list[Record]:
    """Average TBL less each method over splits, beside the paper's numbers.

    `pairs` has a row for each split, family, method and metric. It holds the difference of the method to TBL,
    its variance and the epochs that the method was trained for.
    """
    rows = []
    for named in dict.fromkeys((p["split"], p["family"], p["method"], p["metric"]) for p in pairs):
        split, family, method, metric = named
        if method == "TBL" or metric not in _METRICS:
            continue
        gaps = [p for p in pairs if (p["split"], p["family"], p["method"], p["metric"]) == named]
        found = mean_difference([{**gap, "difference": -gap["difference"]} for gap in gaps])
        row = {"split": split, "family": family, "rival": method, "metric": metric, **found}
        row |= {"repeats": len({gap["repeat"] for gap in gaps}), "tests": len(gaps)}
        row |= {"epochs": format_span(gap["epochs"] for gap in gaps)}
        ours = (p for p in pairs if (p["split"], p["family"], p["method"]) == (split, family, "TBL"))
        row |= {"TBL epochs": format_span(p["epochs"] for p in ours)}
        for table in FRAUD_TABLES:
            printed = printed_gain(table, metric, method)
            row[f"paper {table}"] = "" if printed is None else printed.gain
            row[f"paper {table} error"] = "" if printed is None else printed.error
        rows.append(row)
    return rows


def rivals_text(rows: Sequence[Record]) -> str:
    """Format the differences as Markdown, the paper's first."""
    lines = [
        f"TBL less each rival, in points, with 95% intervals; {BOLD_NOTE}. The paper's "
        "are of its private tables, with TabNet, three trials of each loss taken as independent (Student's "
        "quantile with 2 to 4 degrees of freedom); ours are of the ULB table, paired. Ours have one learning "
        "rate for all losses of a net (TabNet's was chosen with cross entropy, TabM's is the default): a "
        f"loss that wants another step size is at a disadvantage. Of our {len(rows)} intervals about "
        f"{len(rows) * (1 - LEVEL):.0f} would be beyond chance by luck alone; those of recall come from "
        "resampling, which moves their ends by some tenths of a point. "
        f"{training_variance_note(rows)} {_format_epochs(rows)}".rstrip()
    ]
    for metric in _METRICS:
        mine = [row for row in rows if row["metric"] == metric]
        columns = list(dict.fromkeys((row["family"], row["split"]) for row in mine))
        first = {column: next(r for r in mine if (r["family"], r["split"]) == column) for column in columns}
        titles = [*(f"paper, {table}" for table in FRAUD_TABLES)]
        titles += [f"{family}, {split_title(first[family, split])}" for family, split in columns]
        lines += ["", f"#### TBL less its rivals: {TITLES[metric]}", ""]
        lines += ["| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
        for rival in dict.fromkeys(row["rival"] for row in mine):
            own = {(row["family"], row["split"]): row for row in mine if row["rival"] == rival}
            cells = [_printed(metric, table, rival) for table in FRAUD_TABLES]
            cells += [interval_text(own[column]) if column in own else "" for column in columns]
            lines.append(f"| {rival} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _format_epochs(rows: Sequence[Record]) -> str:
    """Format the numbers of epochs of the families for which they are known."""
    families = dict.fromkeys(row["family"] for row in rows)
    spans = {
        family: format_span(row[name] for row in rows if row["family"] == family for name in _EPOCHS)
        for family in families
    }
    known = [f"{family} {span}" for family, span in spans.items() if span]
    return f"Epochs that methods were trained for: {', '.join(known)}." if known else ""


def _printed(metric: str, table: str, rival: str) -> str:
    printed = printed_gain(table, metric, rival)
    if printed is None:
        return ""
    gain, half = printed.gain, quantile(printed.freedom) * printed.error
    return interval_text({"metric": metric, "difference": gain, "low": gain - half, "high": gain + half})


# ---- Rows from the journal of the nets ---------------------------------------------------------------------


def net_rows(
    found: Mapping[FamilySplit, Record], shown: Collection[tuple[str, str]]
) -> tuple[list[Record], list[Record]]:
    """Return metrics and differences to cross entropy of these families and methods on every split."""
    each = [row for cell, record in found.items() for row in _each(cell, record)]
    pairs = [row for cell, record in found.items() for row in _pairs(cell, record, REFERENCE)]
    return _those(each, shown), _those(pairs, shown)


def net_rivals(out: Path, found: Mapping[FamilySplit, Record]) -> dict[Path, str]:
    """Return the contents of the CSV and Markdown files with TBL less every other method."""
    in_order = sorted(found.items(), key=lambda item: DEEP_FAMILIES.index(item[0].setup.net))
    rows = rival_rows([row for cell, record in in_order for row in _pairs(cell, record, RIVAL)])
    return {out / "fraud_rivals.csv": rows_text(rows), out / "fraud_rivals.md": rivals_text(rows)}


def _those(rows: Sequence[Record], shown: Collection[tuple[str, str]]) -> list[Record]:
    return [row for row in rows if (row["family"], row["method"]) in shown]


def _each(cell: FamilySplit, record: Record) -> Iterator[Record]:
    for method, found in record["methods"].items():
        values = {name: found[name] for name in (*METRICS, "chosen", "seconds", "positives")}
        made = made_with(record["versions"], record["date"])
        yield {
            **_name(cell, method),
            **values,
            "device": record["device"],
            "seeds": cell.setup.seeds,
            "epochs": _epochs(record, method),
            "best_epochs": " ".join(map(str, found["best_epochs"])),
            **made,
        }


def _pairs(cell: FamilySplit, record: Record, reference: str) -> Iterator[Record]:
    for method, found in record["methods"].items():
        for gap in found["differences"][reference]:
            yield {**_name(cell, method), "epochs": _epochs(record, method), **gap}


def _epochs(record: Record, method: str) -> str:
    """Return the number of epochs of a method, which early stopping or the limit ended."""
    nets = [net for loss in record["methods"][method]["validation_scores"] for net in record["history"][loss]]
    return str(max(epoch for net in nets for epoch, metric in enumerate(net, start=1) if metric is not None))


def _name(cell: FamilySplit, method: str) -> Record:
    split, repeat, fold = cell.key
    return {"split": split, "repeat": repeat, "fold": fold, "family": cell.setup.net, "method": method}
