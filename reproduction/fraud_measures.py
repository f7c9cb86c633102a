"""How methods are judged on the fraud table: metrics, paired differences, and their summary over splits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.metrics import brier_score, compare, partial_auc, recall_at_fpr, roc_auc

from .fraud_methods import MAX_FPR, Scores

__all__ = [
    "EPOCHS",
    "FPR",
    "LEVEL",
    "METRICS",
    "REFERENCE",
    "Record",
    "against",
    "judged",
    "mean_difference",
    "quantile",
    "span_words",
    "summarised",
]

Record = dict[str, Any]

FPR = 0.001
LEVEL = 0.95
EPOCHS = ("epochs", "best_epochs")
"""How long a net was trained, and the epochs of the weights it has; empty for what is no net."""
REFERENCE = "cross entropy"
METRICS: dict[str, dict[str, Any]] = {
    "roc_auc": {},
    "partial_auc": {"max_fpr": MAX_FPR},
    "recall_at_fpr": {"fpr": FPR},
    "brier_score": {},
}


def judged(y: NDArray[Any], found: Scores) -> Record:
    """The metrics of a method on the test rows of a split, and how it came about."""
    return {
        "roc_auc": roc_auc(y, found.score),
        "partial_auc": partial_auc(y, found.score, MAX_FPR),
        "recall_at_fpr": recall_at_fpr(y, found.score, FPR),
        "brier_score": brier_score(y, found.probability),
        "chosen": found.chosen,
        "seconds": round(found.seconds, 2),
        "positives": int(np.sum(y == 1)),
    }


def against(y: NDArray[Any], found: Scores, reference: Scores) -> Iterator[Record]:
    """The paired difference to the reference and its variance, for each metric."""
    for metric, params in METRICS.items():
        kind = "probability" if metric == "brier_score" else "score"
        pair = compare(metric, y, getattr(found, kind), getattr(reference, kind), level=LEVEL, **params)
        deviation = (pair.high - pair.low) / (2 * quantile())
        yield {"metric": metric, "difference": pair.difference, "variance": deviation**2}


def summarised(each: Sequence[Record], pairs: Sequence[Record]) -> list[Record]:
    """Means over all splits of a kind, with the interval of the difference to cross entropy.

    The interval is that of `mean_difference`. The split by time is drawn once: its interval has the draw of
    the test rows alone, not the luck of training.

    Args:
        each: A row for each split, family and method: `split`, `repeat`, `fold`, `family`, `method`, what
            `judged` gives, `device` and `seeds` (nets of each loss setting); of nets also `epochs` and
            `best_epochs`, as text.
        pairs: A row for each of these and each metric, as `against` gives it.
    """
    rows = []
    for named in dict.fromkeys(_name(row) for row in each):
        split, family, method = named
        mine = [row for row in each if _name(row) == named]
        for metric in METRICS:
            gaps = [row for row in pairs if _name(row) == named and row["metric"] == metric]
            rows.append(
                {
                    "split": split,
                    "family": family,
                    "method": method,
                    "metric": metric,
                    "mean": float(np.mean([row[metric] for row in mine])),
                    "repeats": len({row["repeat"] for row in mine}),
                    "tests": len(mine),
                    **mean_difference(gaps),
                    "seconds": round(sum(row["seconds"] for row in mine), 1),
                    "device": " and ".join(dict.fromkeys(str(row["device"]) for row in mine)),
                    "seeds": mine[0]["seeds"],
                    **{name: span_words(row.get(name, "") for row in mine) for name in EPOCHS},
                }
            )
    return rows


def span_words(texts: Iterable[str]) -> str:
    """The smallest and the largest of the numbers in some texts; empty where there is none.

    >>> span_words(["25 29 18", "30"]), span_words(["30", "30"]), span_words([""])
    ('18 to 30', '30', '')
    """
    numbers = [int(number) for text in texts for number in text.split() if number != "to"]
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def mean_difference(gaps: Sequence[Record]) -> dict[str, float]:
    """The mean of the differences over all splits of a kind, with its interval: `difference`, `low`, `high`.

    With d_r the mean difference over the F folds of repetition r, and v_rf the variance of fold f's
    difference over the draw of its test rows,

        var(mean of d_r) = mean over r of sum_f v_rf / F^2  +  var_r(d_r) / R.

    The folds of one repetition test disjoint rows, so their variances add. All R repetitions test the *same*
    rows, so that part does not shrink with R, only the luck of splitting and training does (the second
    term, which one repetition cannot see).

    That term L = var_r(d_r) / R has R - 1 degrees of freedom, the first term V as many as there are rows,
    taken as infinitely many. The quantile is Student's, by Satterthwaite with

        (V + L)^2 / (L^2 / (R - 1))

    degrees of freedom: never fewer than R - 1, and the normal quantile where L is 0.

    >>> gaps = [{"repeat": r, "difference": gap, "variance": 0.0} for r, gap in enumerate((0, 1, 2))]
    >>> round(mean_difference(gaps)["high"] - 1.0, 3)  # t(2) = 4.303 times sqrt(1 / 3)
    2.484
    """
    means, variances = [], []
    for repeat in dict.fromkeys(row["repeat"] for row in gaps):
        mine = [row for row in gaps if row["repeat"] == repeat]
        means.append(np.mean([row["difference"] for row in mine]))
        variances.append(sum(row["variance"] for row in mine) / len(mine) ** 2)
    by_chance = float(np.var(means, ddof=1)) / len(means) if len(means) > 1 else 0.0
    gap, variance = float(np.mean(means)), float(np.mean(variances)) + by_chance
    freedom = variance**2 / (by_chance**2 / (len(means) - 1)) if by_chance > 0 else math.inf
    half = quantile(freedom) * float(np.sqrt(variance))
    return {"difference": gap, "low": gap - half, "high": gap + half}


def _name(row: Record) -> tuple[str, str, str]:
    return row["split"], row["family"], row["method"]


def quantile(freedom: float = math.inf) -> float:
    """How many standard errors an interval reaches to either side: Student's quantile.

    >>> round(quantile(), 3), round(quantile(4), 3)
    (1.96, 2.776)
    """
    from scipy.special import ndtri, stdtrit

    chance = (1 + LEVEL) / 2
    return float(ndtri(chance) if math.isinf(freedom) else stdtrit(freedom, chance))
