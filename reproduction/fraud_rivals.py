"""The claim of the paper's Table 3 beside ours: what TBL has more than each rival, with TabNet and TabM."""

from __future__ import annotations

from collections.abc import Sequence

from .fraud_measures import LEVEL, Record, mean_difference, quantile, span_words
from .fraud_printed import FRAUD_TABLES, printed_gain
from .fraud_report import TITLES, interval_text, luck_words, split_title

__all__ = ["rival_rows", "rivals_text"]

_EPOCHS = ("epochs", "TBL epochs")
_METRICS = ("roc_auc", "partial_auc", "recall_at_fpr")


def rival_rows(pairs: Sequence[Record]) -> list[Record]:
    """The mean difference of each method to TBL, turned round: TBL less the method.

    `pairs` has a row for each split, family, method and metric with the difference to TBL, its variance and
    how many epochs the method was trained for.
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
        row |= {"epochs": span_words(gap["epochs"] for gap in gaps)}
        ours = (p for p in pairs if (p["split"], p["family"], p["method"]) == (split, family, "TBL"))
        row |= {"TBL epochs": span_words(p["epochs"] for p in ours)}
        for table in FRAUD_TABLES:
            printed = printed_gain(table, metric, method)
            row[f"paper {table}"] = "" if printed is None else printed.gain
            row[f"paper {table} error"] = "" if printed is None else printed.error
        rows.append(row)
    return rows


def rivals_text(rows: Sequence[Record]) -> str:
    """The differences as Markdown, the paper's first."""
    lines = [
        "TBL less each rival, in points, with 95% intervals; **bold** where they leave out zero. The paper's "
        "are of its private tables, with TabNet, three trials of each loss taken as independent (Student's "
        "quantile with 2 to 4 degrees of freedom); ours are of the ULB table, paired. Ours have one learning "
        "rate for all losses of a net (TabNet's was chosen with cross entropy, TabM's is the default): a "
        f"loss that wants another step size is at a disadvantage. Of our {len(rows)} intervals about "
        f"{len(rows) * (1 - LEVEL):.0f} would be bold by chance alone; those of recall come from resampling, "
        f"which moves their ends by some tenths of a point. {luck_words(rows)} {_epochs_words(rows)}".rstrip()
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


def _epochs_words(rows: Sequence[Record]) -> str:
    """How long the nets were trained, where it is known."""
    families = dict.fromkeys(row["family"] for row in rows)
    spans = {
        family: span_words(row[name] for row in rows if row["family"] == family for name in _EPOCHS)
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
