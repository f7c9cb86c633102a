"""The chosen model beside cross entropy, on the held-out rows.

Three models are fitted to all training rows: the winner of the search; cross entropy with the defaults of the
same family, which is what one would have had without a search; and the winner's twin, the same parameters
under cross entropy. The twin tells what the loss did, apart from the parameters.

The winner's probabilities are calibrated by the rows of cross-validation, each scored by a model that did not
see it. Its own training rows would not do: where it overfits, it is right about them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.calibration import Calibrator, held_out_calibrator, two_columns
from ..engines import LocalEngine
from ..metrics import Comparison, Evaluation, compare, evaluate, threshold_at_fpr
from ..metrics.threshold import NoThresholdError
from ..model.families import Candidate, Fitted, fit_candidates
from ..model.policies import DEFAULT_POLICY, Policy
from ..tables.schema import Schema
from .rows import Rows
from .search import Task

__all__ = [
    "HeldOutEvaluation",
    "Threshold",
    "calibration_by",
    "fit_all",
    "judge",
    "loss_verdict",
    "policies_of",
    "twin_of",
]

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
class HeldOutEvaluation:
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


def fit_all(
    candidates: Sequence[Candidate], rows: Rows, seed: int, engine: LocalEngine
) -> dict[Candidate, Fitted]:
    """Each of the candidates fitted to all training rows, one thread each, so that the result is the same."""
    distinct = list(dict.fromkeys(candidates))
    with engine.share({"X": rows.X, "y": rows.y}) as shared:
        fitted = [one for _, one in engine.run(partial(_fit_one, rows.schema, seed), distinct, shared)]
    # Scores do not depend on the number of threads, so from here on all cores may serve.
    return {one.candidate: replace(one, threads=None) for one in fitted}


def _fit_one(schema: Schema, seed: int, arrays: Mapping[str, NDArray[Any]], candidate: Candidate) -> Fitted:
    categorical, n_categories = schema.categorical, schema.n_categories
    return fit_candidates(
        [candidate], arrays["X"], arrays["y"], categorical, n_categories, seed=seed, threads=1
    )[0]


def calibration_by(out_of_fold: NDArray[Any], task: Task) -> Calibrator:
    """Slope and level of the log-odds of validation rows, NaN where a row was never validated on."""
    is_known = ~np.isnan(out_of_fold)
    weights = None if task.weights is None else task.weights[is_known]
    log_posterior = two_columns(out_of_fold[is_known])
    return held_out_calibrator(log_posterior, task.y[is_known].astype(np.int64), weights)


def judge(
    rows: Rows, winner: Fitted, baseline: Fitted, twin: Fitted, *, fpr: float, max_fpr: float, seed: int
) -> HeldOutEvaluation:
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

    return HeldOutEvaluation(
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


def policies_of(threshold: Threshold, fpr: float) -> dict[str, Policy]:
    """The policies of a new model: the false-positive rate asked for on the held-out rows and, where there
    are enough of them, on new rows.
    """
    policies = {DEFAULT_POLICY: Policy("fpr", threshold.log_odds, {"fpr": fpr})}
    if threshold.safe is not None:
        policies["safe"] = Policy("fpr_bound", threshold.safe, {"fpr": fpr, "confidence": CONFIDENCE})
    return policies


def loss_verdict(winner: Candidate, judged: HeldOutEvaluation) -> tuple[bool, str]:
    """Whether the loss mattered on the held-out rows, and plain words about it.

    It did if the winner beats cross entropy with defaults and cross entropy with its own parameters, each by
    the paired interval.
    """
    twin, baseline, name = judged.against_twin, judged.against_baseline, winner.loss
    if name == CROSS_ENTROPY:
        said = "The loss did not matter here: cross entropy came out best in cross-validation"
        if baseline is None:
            return False, f"{said}, with defaults."
        return False, f"{said}. {_what_tuning_did(baseline)}"
    assert twin is not None
    if not winner.parameters:  # then both comparisons are with the same model
        return _of_one(name, twin)
    assert baseline is not None
    same, plain = f"with the same parameters ({_span(twin)})", f"with defaults ({_span(baseline)})"
    won = f"{name} won in cross-validation, but on the held-out rows"
    if twin.low > 0 and baseline.low > 0:
        return True, (
            f"The loss mattered: {name} has {_points(twin)} of partial AUC more than cross entropy {same}, "
            f"and {_points(baseline)} more than cross entropy {plain}."
        )
    if baseline.high < 0:
        return False, (
            f"The search did not help here: {won} cross entropy {plain} has {_points(baseline)} of partial "
            "AUC more: the simpler model is the better bet."
        )
    if twin.high < 0:
        return False, (
            f"The loss did not help here: {won} cross entropy {same} has {_points(twin)} of partial AUC more."
        )
    told = (
        f"the difference in partial AUC on the held-out rows is {_signed(twin.difference)} points to cross "
        f"entropy {same} and {_signed(baseline.difference)} points to cross entropy {plain}"
    )
    if baseline.low > 0:
        return False, f"The loss did not matter here: what {name} gained, its parameters gained; {told}."
    if twin.low > 0:
        return False, (
            f"The loss did not matter here: it only made up for its parameters, and chance explains what is "
            f"left; {told}."
        )
    return False, (
        f"The loss did not matter here: {name} won in cross-validation, but chance explains what it gained; "
        f"{told}."
    )


def _of_one(name: str, found: Comparison) -> tuple[bool, str]:
    """The verdict where the winner has the defaults of its family."""
    if found.low > 0:
        return True, (
            f"The loss mattered: {name} has {_points(found)} of partial AUC more than cross entropy, both "
            f"with defaults ({_span(found)})."
        )
    if found.high < 0:
        return False, (
            f"The loss did not help here: {name} won in cross-validation, but on the held-out rows cross "
            f"entropy has {_points(found)} of partial AUC more ({_span(found)}): the better bet."
        )
    return False, (
        f"The loss did not matter here: {name} won in cross-validation, but chance explains what it gained; "
        f"the difference in partial AUC on the held-out rows is {_signed(found.difference)} points to cross "
        f"entropy, both with defaults ({_span(found)})."
    )


def _what_tuning_did(found: Comparison) -> str:
    told = f"{_points(found)} of partial AUC on the held-out rows ({_span(found)})"
    if found.low > 0:
        return f"Its parameters gained {told} over the defaults."
    if found.high < 0:
        return f"Its parameters lost {told} to the defaults: those are the better bet."
    return (
        "Its parameters made no difference to the defaults that chance would not explain: "
        f"{_signed(found.difference)} points of partial AUC on the held-out rows ({_span(found)})."
    )


def _points(found: Comparison) -> str:
    return f"{_signed(abs(found.difference))[1:]} points"


def _span(found: Comparison) -> str:
    return f"{found.level:.0%} interval {_signed(found.low)} to {_signed(found.high)}"


def _signed(share: float) -> str:
    """Hundredths, with as many digits as it takes to see on which side of zero they are."""
    points = share * 100
    digits = 2 if abs(points) >= 0.005 or points == 0 else 1 - math.floor(math.log10(abs(points)))
    return f"{points:+.{digits}f}"
