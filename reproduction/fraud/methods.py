"""The methods that are compared on the fraud table, and the metrics of the comparison.

Every loss runs in every family, and so do the usual alternatives to a loss: undersampling, balanced bagging
and class weights.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.metrics import brier_score, compare, partial_auc, recall_at_fpr, roc_auc, scorer

# ---- Methods -----------------------------------------------------------------------------------------------

Floats = NDArray[np.float64]

FAMILIES = ("linear", "xgboost", "lightgbm")
DEEP_FAMILIES = ("tabnet", "tabm")
ALL_FAMILIES = (*FAMILIES, *DEEP_FAMILIES)
ROUNDS = 100
INNER_FOLDS = 3
MAX_FPR = 0.01
L2S = (1e-6, 1e-4, 1e-2)

# The settings of each loss from which inner cross-validation chooses. They are part of the grids in the
# paper's Appendix D, which have 9 (focal, poly) to 25 (vector scaling) settings. Alpha and LDAM have no grid
# there. LDAM's margins come from the class counts (COUNTS). Its scale of 30 is meant for cosines, so 1 is
# tried, too.
SETTINGS: dict[str, tuple[str, ...]] = {
    "cross entropy": ("crossentropy",),
    "focal": ("focal(gamma=1)", "focal(gamma=2)", "focal(gamma=4)"),
    "poly": ("poly(epsilon=-0.5)", "poly(epsilon=0.5)", "poly(epsilon=1.5)"),
    "vector scaling": (
        "vectorscaling(0.25)",
        "vectorscaling(0.5)",
        "vectorscaling(0.75)",
    ),
    "LDAM": (
        "ldam(class_counts=COUNTS,max_margin=0.5,scale=1)",
        "ldam(class_counts=COUNTS,max_margin=2,scale=1)",
        "ldam(class_counts=COUNTS,max_margin=0.5,scale=30)",
    ),
    "alpha": ("alpha(alpha=0.7)", "alpha(alpha=0.8)", "alpha(alpha=0.9)"),
    "TBL": (
        "tbl(alpha=0.7,C=0.5)",
        "tbl(alpha=0.7,C=1)",
        "tbl(alpha=0.8,C=0.5)",
        "tbl(alpha=0.8,C=1)",
        "tbl(alpha=0.9,C=0.5)",
    ),
}
BASELINES = ("class weights", "undersampling", "balanced bagging")
METHODS = (*SETTINGS, *BASELINES)
# The deep families have the losses only. Undersampling and balanced bagging train on other rows: these eleven
# fits cannot be part of the one stack of all losses, and would take longer than it.
LOSS_METHODS = (*SETTINGS, "class weights")


def families_of(given: Sequence[str]) -> list[str]:
    """Return the families of these names without repetition; `deep` is all nets.

    >>> families_of(["linear", "deep", "tabm"])
    ['linear', 'tabnet', 'tabm']
    """
    families = [family for name in given for family in (DEEP_FAMILIES if name == "deep" else (name,))]
    unknown = [family for family in families if family not in ALL_FAMILIES]
    if unknown:
        raise ValueError(f"unknown family {unknown[0]!r}; known are {', '.join((*ALL_FAMILIES, 'deep'))}")
    return list(dict.fromkeys(families))


@dataclass(frozen=True)
class Scores:
    """Predictions of a method for the test rows: scores, probabilities, the chosen setting and the time."""

    score: Floats
    probability: Floats
    chosen: str
    seconds: float


def run_method(
    family: str, method: str, X: NDArray[Any], y: NDArray[Any], test: NDArray[Any], seed: int
) -> Scores:
    """Fit a method on training rows and score test rows."""
    start = time.perf_counter()
    generator = np.random.default_rng(seed)
    if method in LOSS_METHODS:
        model = tuned(family, losses_of(method, y), seed).fit(X, y)
        chosen = chosen_by(model) if method in SETTINGS else f"weight {np.sum(y == 0) / np.sum(y == 1):.0f}"
        scores = model.decision_function(test), model.predict_proba(test)[:, 1], chosen
    elif method == "undersampling":
        kept = undersampled(y, 10, generator)
        odds = _fitted_odds(family, X[kept], y[kept], test, seed) + prior_shift(y, y[kept])
        scores = odds, _probability(odds), "10 negatives a positive"
    elif method == "balanced bagging":
        scores = (*_bagged(family, X, y, test, generator), "10 bags, 1 to 1")
    else:
        raise ValueError(f"unknown method {method!r}; known are {', '.join(METHODS)}")
    return Scores(np.asarray(scores[0]), np.asarray(scores[1]), scores[2], time.perf_counter() - start)


@dataclass(frozen=True)
class SharedFit:
    """One fit on arrays that several processes share.

    Attributes:
        family: Of models.
        method: The loss or its alternative.
        split: Name of the rows: arrays `train-` and `test-` before it have their numbers.
        seed: Of the fit.
    """

    family: str
    method: str
    split: str
    seed: int


# Here and not beside the loop over all fits: a worker that imports this module needs no PyTorch.
def run_shared(arrays: Mapping[str, NDArray[Any]], fit: SharedFit) -> Scores:
    """Fit a method on the training rows of a split of the arrays `X` and `y`, and score its test rows."""
    # Rows are copied out of X, so that no estimator sees an array that is mapped from a file.
    X, y = arrays["X"], arrays["y"]
    train, test = arrays[f"train-{fit.split}"], arrays[f"test-{fit.split}"]
    return run_method(fit.family, fit.method, X[train], y[train], X[test], fit.seed)


def losses_of(method: str, y: NDArray[Any]) -> tuple[str, ...]:
    """Return the settings of a method that is a loss, with the class counts of the training labels.

    >>> losses_of("class weights", np.array([0, 0, 0, 1]))
    ('classweighted(crossentropy,(1,3))',)
    """
    negatives, positives = int(np.sum(y == 0)), int(np.sum(y == 1))
    if method == "class weights":
        return (f"classweighted(crossentropy,(1,{negatives / positives:.6g}))",)
    return tuple(setting.replace("COUNTS", f"({negatives},{positives})") for setting in SETTINGS[method])


def tuned(family: str, losses: tuple[str, ...], seed: int) -> Any:
    """Return an estimator that chooses its loss (and, if linear, its penalty) by inner cross-validation."""
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    folds = StratifiedKFold(INNER_FOLDS, shuffle=True, random_state=seed)
    if family == "linear":
        from raresight.linear import LinearClassifierCV

        return LinearClassifierCV(losses=losses, l2s=L2S, cv=folds, metric_params={"max_fpr": MAX_FPR})
    if len(losses) == 1:
        return booster(family, losses[0], seed)
    measure = scorer("partial_auc", max_fpr=MAX_FPR)
    return GridSearchCV(booster(family, losses[0], seed), {"loss": list(losses)}, scoring=measure, cv=folds)


def booster(family: str, loss: str, seed: int) -> Any:
    """Return a booster of a family with a loss."""
    from raresight import boosting

    kinds: dict[str, Callable[..., Any]] = {
        "xgboost": boosting.XGBoostClassifier,
        "lightgbm": boosting.LightGBMClassifier,
    }
    if family not in kinds:
        raise ValueError(f"unknown family {family!r}; known are {', '.join(FAMILIES)}")
    # One thread, because several fits run at a time.
    return kinds[family](loss=loss, n_estimators=ROUNDS, random_state=seed, n_jobs=1)


def chosen_by(model: Any) -> str:
    """Return the setting that a tuned model has chosen, as text."""
    if hasattr(model, "best_params_"):
        return str(model.best_params_["loss"])
    if hasattr(model, "l2_"):
        return f"{model.loss_}, l2={model.l2_:g}"
    return str(model.loss)


def undersampled(y: NDArray[Any], ratio: int, generator: np.random.Generator) -> NDArray[np.intp]:
    """Draw the rows of an undersampled set: all positives and `ratio` times as many negatives."""
    positive, negative = np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    count = min(len(negative), ratio * len(positive))
    return np.sort(np.concatenate([positive, generator.choice(negative, count, replace=False)]))


def prior_shift(y: NDArray[Any], kept: NDArray[Any]) -> float:
    """Return the number to add to log-odds learned on the kept rows, to get those of all rows."""
    return float(_log_odds(y) - _log_odds(kept))


def _log_odds(y: NDArray[Any]) -> float:
    return float(np.log(np.sum(y == 1)) - np.log(np.sum(y == 0)))


def _probability(odds: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(odds))


def _fitted_odds(family: str, X: NDArray[Any], y: NDArray[Any], test: NDArray[Any], seed: int) -> Floats:
    # Log-odds, not probabilities: in float32 many probabilities near 1 are equal, which ties the top ranks.
    model = tuned(family, ("crossentropy",), seed).fit(X, y)
    return np.asarray(model.predict_log_odds(test), dtype=np.float64)


def _bagged(
    family: str, X: NDArray[Any], y: NDArray[Any], test: NDArray[Any], generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Average the probabilities of ten models on balanced samples, as imbalanced-learn does."""
    from scipy.special import log_expit, logsumexp

    odds = []
    for bag in range(10):
        kept = undersampled(y, 1, generator)
        odds.append(_fitted_odds(family, X[kept], y[kept], test, bag))
    # Compute the log-odds of the mean probability from logarithms: 1 - mean would lose digits near 1.
    mean = logsumexp(log_expit(odds), axis=0) - logsumexp(log_expit(-np.array(odds)), axis=0)
    shifted = mean + prior_shift(y, y[kept])
    return shifted, _probability(shifted)


# ---- Metrics and paired differences ------------------------------------------------------------------------

Record = dict[str, Any]

FPR = 0.001
LEVEL = 0.95
EPOCHS = ("epochs", "best_epochs")
"""Columns: the epochs that nets were trained, and the epochs of their final weights. Empty without nets."""
REFERENCE = "cross entropy"
METRICS: dict[str, dict[str, Any]] = {
    "roc_auc": {},
    "partial_auc": {"max_fpr": MAX_FPR},
    "recall_at_fpr": {"fpr": FPR},
    "brier_score": {},
}


def evaluate_scores(y: NDArray[Any], found: Scores) -> Record:
    """Compute the metrics of a method on the test rows of a split; add its setting and its time."""
    return {
        "roc_auc": roc_auc(y, found.score),
        "partial_auc": partial_auc(y, found.score, MAX_FPR),
        "recall_at_fpr": recall_at_fpr(y, found.score, FPR),
        "brier_score": brier_score(y, found.probability),
        "chosen": found.chosen,
        "seconds": round(found.seconds, 2),
        "positives": int(np.sum(y == 1)),
    }


def paired_differences(y: NDArray[Any], found: Scores, reference: Scores) -> Iterator[Record]:
    """Yield the paired difference to the reference and its variance, for each metric."""
    for metric, params in METRICS.items():
        kind = "probability" if metric == "brier_score" else "score"
        pair = compare(metric, y, getattr(found, kind), getattr(reference, kind), level=LEVEL, **params)
        yield {"metric": metric, "difference": pair.difference, "variance": pair.standard_error**2}


def summarise(each: Sequence[Record], pairs: Sequence[Record]) -> list[Record]:
    """Average over all splits of a kind, with the interval of the difference to cross entropy.

    The interval is that of `mean_difference`. The split by time is drawn once, so its interval covers the
    draw of the test rows, but not the randomness of training.

    Args:
        each: A row for each split, family and method: `split`, `repeat`, `fold`, `family`, `method`, the
            values of `evaluate_scores`, `device` and `seeds` (nets per loss setting); for nets also `epochs`
            and `best_epochs`, as text.
        pairs: A row for each of these and each metric, as from `paired_differences`.
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
                    **{name: format_span(row.get(name, "") for row in mine) for name in EPOCHS},
                }
            )
    return rows


def format_span(texts: Iterable[str]) -> str:
    """Format the smallest and the largest number in some texts; empty if there is none.

    >>> format_span(["25 29 18", "30"]), format_span(["30", "30"]), format_span([""])
    ('18 to 30', '30', '')
    """
    numbers = [int(number) for text in texts for number in text.split() if number != "to"]
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def mean_difference(gaps: Sequence[Record]) -> dict[str, float]:
    """Average the differences over all splits of a kind; return `difference` and its interval `low`, `high`.

    With d_r the mean difference over the F folds of repetition r, and v_rf the variance of fold f's
    difference over the draw of its test rows,

        var(mean of d_r) = mean over r of sum_f v_rf / F^2  +  var_r(d_r) / R.

    The folds of one repetition test disjoint rows, so their variances add. All R repetitions test the *same*
    rows, so the first term does not shrink with R. The second term, the randomness of splits and training,
    does shrink; one repetition alone cannot measure it.

    The second term L = var_r(d_r) / R has R - 1 degrees of freedom. The first term V has about as many as
    there are rows, taken as infinite. The quantile is Student's, by Satterthwaite with

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
    """Return Student's quantile: the half-width of an interval in standard errors.

    >>> round(quantile(), 3), round(quantile(4), 3)
    (1.96, 2.776)
    """
    from scipy.special import ndtri, stdtrit

    chance = (1 + LEVEL) / 2
    return float(ndtri(chance) if math.isinf(freedom) else stdtrit(freedom, chance))
