"""The chosen model beside cross entropy, on the held-out rows.

Three models are fitted to all training rows: the winner of the search; cross entropy with the defaults of the
same family, which is what one would have had without a search; and the winner's twin, the same parameters
under cross entropy. The twin tells what the loss did, apart from the parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..metrics import Comparison, Evaluation, compare, evaluate, threshold_at_fpr
from ..metrics.threshold import NoThresholdError
from ..model.candidate import Candidate
from ..model.families import Fitted, fit_candidates
from ..select.workers import in_processes
from .rows import Rows

__all__ = ["Judged", "Threshold", "fit_all", "judge", "loss_verdict", "twin_of"]

CROSS_ENTROPY = "crossentropy"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Threshold:
    """Where alarms begin, in log-odds, and what is known of the false alarms it lets pass.

    Attributes:
        log_odds: The lowest threshold that keeps the rate on the held-out rows.
        fpr_seen: The rate there.
        fpr_bound: An upper bound of the true rate, right 95 times of 100 (Clopper and Pearson).
        safe: The threshold that keeps the rate on new rows 95 times of 100, or None: too few negatives.
        safe_recall: The share of held-out positives above it.
    """

    log_odds: float
    fpr_seen: float
    fpr_bound: float
    safe: float | None
    safe_recall: float | None


@dataclass(frozen=True, eq=False)
class Judged:
    """Everything learned from the held-out rows."""

    log_odds: NDArray[np.float64]
    naive: NDArray[np.float64]
    evaluation: Evaluation
    threshold: Threshold
    against_baseline: Comparison | None
    against_twin: Comparison | None


def twin_of(winner: Candidate) -> Candidate:
    """The winner's family and parameters under cross entropy."""
    return Candidate(winner.family, CROSS_ENTROPY, winner.parameters)


def fit_all(candidates: Sequence[Candidate], rows: Rows, seed: int, jobs: int) -> dict[Candidate, Fitted]:
    """Each of the candidates fitted to all training rows, one thread each, so that the result is the same."""
    distinct = list(dict.fromkeys(candidates))
    schema = rows.schema
    arguments = [(one, rows.X, rows.y, schema.categorical, schema.n_categories, seed) for one in distinct]
    fitted = in_processes(_fit_one, arguments, min(jobs, len(distinct)))
    # Scores do not depend on the number of threads, so from here on all cores may serve.
    return {one.candidate: replace(one, threads=None) for one in fitted}


def _fit_one(candidate: Candidate, X: Any, y: Any, categorical: Any, n_categories: Any, seed: int) -> Fitted:
    return fit_candidates([candidate], X, y, categorical, n_categories, seed=seed, threads=1)[0]


def judge(
    rows: Rows, winner: Fitted, baseline: Fitted, twin: Fitted, *, fpr: float, max_fpr: float, seed: int
) -> Judged:
    """Score the held-out rows once by each model and compare."""
    y = rows.test.y
    log_odds = winner.log_odds(rows.test.X)
    probability = np.exp(-np.logaddexp(0.0, -log_odds))
    evaluation = evaluate(y, log_odds, probability=probability, fpr=fpr, max_fpr=max_fpr, seed=seed)

    def against(other: Fitted) -> Comparison | None:
        if other.candidate == winner.candidate:
            return None
        scores = other.log_odds(rows.test.X)
        return compare("partial_auc", y, log_odds, scores, max_fpr=max_fpr, seed=seed)

    return Judged(
        log_odds=log_odds,
        naive=winner.naive_probability(rows.test.X),
        evaluation=evaluation,
        threshold=find_threshold(y, log_odds, fpr),
        against_baseline=against(baseline),
        against_twin=against(twin),
    )


def find_threshold(y: NDArray[Any], log_odds: NDArray[np.float64], fpr: float) -> Threshold:
    """The threshold for a false-positive rate and what the rows say about it."""
    from scipy.stats import beta

    threshold = threshold_at_fpr(y, log_odds, fpr)
    negatives = int(np.sum(y == 0))
    false_alarms = int(np.sum((log_odds >= threshold) & (y == 0)))
    bound = float(beta.ppf(CONFIDENCE, false_alarms + 1, negatives - false_alarms))
    try:
        safe = threshold_at_fpr(y, log_odds, fpr, confidence=CONFIDENCE)
    except NoThresholdError:
        safe, safe_recall = None, None
    else:
        safe_recall = float(np.mean(log_odds[y == 1] >= safe))
    return Threshold(threshold, false_alarms / negatives, bound, safe, safe_recall)


def loss_verdict(winner: Candidate, judged: Judged) -> tuple[bool, str]:
    """Whether the loss mattered on the held-out rows, and one plain sentence about it."""
    if winner.loss == CROSS_ENTROPY:
        return False, "The loss did not matter here: plain cross entropy came out best in cross-validation."
    twin, baseline = judged.against_twin, judged.against_baseline
    name = winner.loss
    beats_twin = twin is not None and twin.low > 0
    beats_baseline = baseline is not None and baseline.low > 0
    if beats_twin and beats_baseline:
        assert twin is not None
        assert baseline is not None
        return True, (
            f"The loss mattered: {name} has {_points(twin.difference)} of partial AUC more than cross "
            f"entropy with the same parameters ({_span(twin)}), and {_points(baseline.difference)} more than "
            f"cross entropy with defaults ({_span(baseline)})."
        )
    if twin is not None and twin.high < 0:
        return False, (
            f"The loss did not help here: {name} won in cross-validation, but on the held-out rows cross "
            f"entropy with the same parameters has {_points(-twin.difference)} of partial AUC more "
            f"({_span(twin)} for {name} less cross entropy)."
        )
    told = []
    for other, what in ((twin, "with the same parameters"), (baseline, "with defaults")):
        if other is not None:
            told.append(f"{other.difference * 100:+.2f} points to cross entropy {what} ({_span(other)})")
    return False, (
        f"The loss did not matter here: {name} won in cross-validation, but on the held-out rows its "
        f"difference in partial AUC is {' and '.join(told)}, which chance explains."
        if not beats_baseline
        else f"The loss did not matter here: what {name} gained, its parameters gained; the difference in "
        f"partial AUC on the held-out rows is {' and '.join(told)}."
    )


def _points(share: float) -> str:
    return f"{share * 100:.2f} points"


def _span(found: Comparison) -> str:
    return f"{found.level:.0%} interval {found.low * 100:+.2f} to {found.high * 100:+.2f}"
