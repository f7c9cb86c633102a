"""The paper's Table 3 on public data: losses against each other on the ULB card-fraud table.

The paper's two fraud tables are private and its model is TabNet. Here every loss runs in three families on
one public table: tested on four disjoint folds (each row once), drawn several times anew, and, apart from
that, on the last quarter in time. Parameters are chosen by cross-validation inside the training rows, never
on test rows. Differences to cross entropy are paired: both methods score the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data import CardFraud, read_card_fraud
from ..metrics import brier_score, compare, partial_auc, recall_at_fpr, roc_auc
from .fraud_methods import FAMILIES, MAX_FPR, METHODS, Scores, run_method
from .output import COLOURS, figure_with_axes, save_figure, write_rows

FPR = 0.001
FOLDS = 4
REPEATS = 3
TIME_SHARE = 0.25
LEVEL = 0.95
REFERENCE = "cross entropy"
METRICS: dict[str, dict[str, Any]] = {
    "roc_auc": {},
    "partial_auc": {"max_fpr": MAX_FPR},
    "recall_at_fpr": {"fpr": FPR},
    "brier_score": {},
}
TITLES = {
    "roc_auc": "AUC",
    "partial_auc": f"opAUC, FPR <= {MAX_FPR:g}",
    "recall_at_fpr": f"recall at FPR {FPR:g}",
    "brier_score": "Brier score x 1e6",
}

Rows = tuple[NDArray[np.intp], NDArray[np.intp]]
Key = tuple[str, int, int]
"""Which rows are trained on and tested: the kind of split, the repetition, the fold."""


def run(
    out: Path,
    seed: int = 0,
    tell: Callable[[str], None] = lambda message: None,
    data: Path | None = None,
    families: Sequence[str] = FAMILIES,
    methods: Sequence[str] = METHODS,
    jobs: int | None = None,
    repeats: int = REPEATS,
) -> list[Path]:
    """Fit every method on every split, write `fraud_splits.csv`, `fraud.csv`, `fraud.md` and a figure.

    The stratified folds are drawn `repeats` times. `jobs` methods run at once, each in one thread; None for
    as many as there are cores.
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    if data is None:
        raise ValueError(
            "fraud needs the card-fraud table: raresight paper fraud --data creditcard.csv (published by the "
            "Machine Learning Group of ULB as 'Credit Card Fraud Detection')"
        )
    for given, known in ((families, FAMILIES), (methods, METHODS)):
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"unknown {unknown[0]!r}; known are {', '.join(known)}")
    table = read_card_fraud(data)
    ordered = [REFERENCE, *(method for method in methods if method != REFERENCE)]
    rows_of = splits(table, seed, repeats)
    named: list[dict[str, Any]] = [
        {"split": kind, "repeat": repeat, "fold": fold, "family": family, "method": method}
        for kind, repeat, fold in rows_of
        for family in families
        for method in ordered
    ]
    each: list[dict[str, Any]] = []
    pairs: list[dict[str, Any]] = []
    reference: Scores | None = None
    for done, (name, found) in enumerate(zip(named, _fits(table, named, rows_of, seed, jobs), strict=True)):
        tell(
            f"{done + 1} of {len(named)}: {name['family']}, {name['method']}, {name['split']} "
            f"{name['repeat']}.{name['fold']}"
        )
        y = table.y[rows_of[_key(name)][1]]
        if name["method"] == REFERENCE:
            reference = found
        each.append({**name, **judged(y, found)})
        pairs += [{**name, **row} for row in against(y, found, reference or found)]
    summary = summarised(each, pairs)
    return [
        write_rows(out / "fraud_splits.csv", each),
        write_rows(out / "fraud.csv", summary),
        write_table(out / "fraud.md", summary, table, repeats),
        *draw(out / "fraud", summary, repeats),
    ]


def _fits(
    table: CardFraud,
    named: Sequence[dict[str, Any]],
    rows_of: dict[Key, Rows],
    seed: int,
    jobs: int | None,
) -> Iterator[Scores]:
    """The scores of every method on every split, in order, as they come."""
    from joblib import Parallel, delayed

    def task(name: dict[str, Any]) -> Any:
        train, test = rows_of[_key(name)]
        X, y = table.X[train], table.y[train]
        luck = seed + FOLDS * name["repeat"] + name["fold"]
        return delayed(run_method)(name["family"], name["method"], X, y, table.X[test], luck)

    found: Iterator[Scores] = Parallel(jobs or -1, return_as="generator", pre_dispatch="2*n_jobs")(
        task(name) for name in named
    )
    return found


def splits(table: CardFraud, seed: int, repeats: int) -> dict[Key, Rows]:
    """Four stratified folds of all rows, `repeats` times; the last quarter in time after the first three."""
    from sklearn.model_selection import RepeatedStratifiedKFold

    folds = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=repeats, random_state=seed)
    found: dict[Key, Rows] = {
        ("random", *divmod(place, FOLDS)): rows for place, rows in enumerate(folds.split(table.X, table.y))
    }
    cut = int(len(table.y) * (1 - TIME_SHARE))
    return {**found, ("time", 0, 0): (np.arange(cut), np.arange(cut, len(table.y)))}


def _key(name: dict[str, Any]) -> Key:
    return name["split"], name["repeat"], name["fold"]


def judged(y: NDArray[Any], found: Scores) -> dict[str, Any]:
    return {
        "roc_auc": roc_auc(y, found.score),
        "partial_auc": partial_auc(y, found.score, MAX_FPR),
        "recall_at_fpr": recall_at_fpr(y, found.score, FPR),
        "brier_score": brier_score(y, found.probability),
        "chosen": found.chosen,
        "seconds": round(found.seconds, 2),
        "positives": int(np.sum(y == 1)),
    }


def against(y: NDArray[Any], found: Scores, reference: Scores) -> Iterator[dict[str, Any]]:
    """The paired difference to the reference and its variance, for each metric."""
    for metric, params in METRICS.items():
        kind = "probability" if metric == "brier_score" else "score"
        pair = compare(metric, y, getattr(found, kind), getattr(reference, kind), level=LEVEL, **params)
        deviation = (pair.high - pair.low) / (2 * _quantile())
        yield {"metric": metric, "difference": pair.difference, "variance": deviation**2}


def summarised(each: list[dict[str, Any]], pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over all splits of a kind, with the interval of the difference to cross entropy.

    With d_r the mean difference over the F folds of repetition r, and v_rf the variance of fold f's
    difference over the draw of its test rows,

        var(mean of d_r) = mean over r of sum_f v_rf / F^2  +  var_r(d_r) / R.

    The folds of one repetition test disjoint rows, so their variances add. All R repetitions test the *same*
    rows, so that part does not shrink with R, only the luck of splitting and training does (the second
    term, which one repetition cannot see).
    """
    rows = []
    for named in dict.fromkeys(_name(row) for row in each):
        split, family, method = named
        mine = [row for row in each if _name(row) == named]
        for metric in METRICS:
            gaps = [row for row in pairs if _name(row) == named and row["metric"] == metric]
            gap, variance = _over_repeats(gaps)
            half = _quantile() * float(np.sqrt(variance))
            rows.append(
                {
                    "split": split,
                    "family": family,
                    "method": method,
                    "metric": metric,
                    "mean": float(np.mean([row[metric] for row in mine])),
                    "repeats": len({row["repeat"] for row in mine}),
                    "tests": len(mine),
                    "difference": gap,
                    "low": gap - half,
                    "high": gap + half,
                    "seconds": round(sum(row["seconds"] for row in mine), 1),
                }
            )
    return rows


def _over_repeats(gaps: list[dict[str, Any]]) -> tuple[float, float]:
    """The mean difference of all repetitions, and its variance."""
    means, variances = [], []
    for repeat in dict.fromkeys(row["repeat"] for row in gaps):
        mine = [row for row in gaps if row["repeat"] == repeat]
        means.append(np.mean([row["difference"] for row in mine]))
        variances.append(sum(row["variance"] for row in mine) / len(mine) ** 2)
    luck = float(np.var(means, ddof=1)) / len(means) if len(means) > 1 else 0.0
    return float(np.mean(means)), float(np.mean(variances)) + luck


def _name(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["split"], row["family"], row["method"]


def _random_title(repeats: int) -> str:
    return f"{FOLDS} folds" if repeats == 1 else f"{repeats} times {FOLDS} folds"


def write_table(path: Path, summary: list[dict[str, Any]], table: CardFraud, repeats: int) -> Path:
    """The summary as Markdown: estimate, and difference to cross entropy with its interval."""
    intervals = sum(row["method"] != REFERENCE for row in summary)
    lines = [
        f"ULB card fraud: {len(table.y):,} rows ({table.duplicates:,} exact duplicates dropped), "
        f"{int(table.y.sum())} frauds. In parentheses the difference to cross entropy in the same family, "
        f"with its paired {LEVEL:.0%} interval; **bold** where that leaves out zero. Of the {intervals} "
        f"intervals about {intervals * (1 - LEVEL):.0f} would be bold by chance alone."
    ]
    for split, title in (("random", _random_title(repeats)), ("time", "the last quarter in time")):
        for family in dict.fromkeys(row["family"] for row in summary):
            rows = [row for row in summary if (row["split"], row["family"]) == (split, family)]
            if not rows:
                continue
            lines += ["", f"#### {family}, {title}", "", "| | " + " | ".join(TITLES.values()) + " |"]
            lines.append("|---" * (len(METRICS) + 1) + "|")
            for method in dict.fromkeys(row["method"] for row in rows):
                cells = [_cell(row) for row in rows if row["method"] == method]
                lines.append(f"| {method} | " + " | ".join(cells) + " |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _cell(row: dict[str, Any]) -> str:
    scale = 1e6 if row["metric"] == "brier_score" else 100
    digits = 0 if row["metric"] == "brier_score" else 2
    text = f"{row['mean'] * scale:.{digits}f}"
    if row["method"] == REFERENCE:
        return text
    # Zero is added so that what rounds to zero has no minus sign.
    gap, low, high = (
        f"{round(row[name] * scale, digits) + 0.0:+.{digits}f}" for name in ("difference", "low", "high")
    )
    sure = row["low"] > 0 or row["high"] < 0
    return f"{text} ({'**' if sure else ''}{gap}{'**' if sure else ''} [{low}, {high}])"


def draw(path: Path, summary: list[dict[str, Any]], repeats: int) -> list[Path]:
    """Differences to cross entropy with their intervals, one panel for each of two metrics and splits."""
    panels = [(split, metric) for split in ("random", "time") for metric in ("partial_auc", "recall_at_fpr")]
    figure, axes = figure_with_axes(len(panels), width=15, height=5.2)
    methods = [m for m in dict.fromkeys(row["method"] for row in summary) if m != REFERENCE]
    families = list(dict.fromkeys(row["family"] for row in summary))
    for ax, (split, metric) in zip(axes, panels, strict=True):
        for shift, family in enumerate(families):
            rows = {
                row["method"]: row
                for row in summary
                if (row["split"], row["family"], row["metric"]) == (split, family, metric)
            }
            places = np.arange(len(methods)) + 0.24 * (shift - (len(families) - 1) / 2)
            gaps = np.array([rows[method]["difference"] for method in methods]) * 100
            low = np.array([rows[method]["low"] for method in methods]) * 100
            high = np.array([rows[method]["high"] for method in methods]) * 100
            ax.errorbar(
                gaps, places, xerr=[gaps - low, high - gaps], fmt="o", color=COLOURS[shift + 1], label=family,
                markersize=4, capsize=2,
            )  # fmt: skip
        ax.axvline(0, color="#666666", linewidth=0.8)
        ax.set_yticks(range(len(methods)), methods if ax is axes[0] else [""] * len(methods))
        ax.invert_yaxis()
        where = _random_title(repeats) if split == "random" else "last quarter in time"
        ax.set_title(f"{TITLES[metric]}\n{where}", fontsize=10)
        ax.set_xlabel("points against cross entropy")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=len(families), frameon=False)
    return save_figure(figure, path)


def _quantile() -> float:
    from scipy.special import ndtri

    return float(ndtri((1 + LEVEL) / 2))
