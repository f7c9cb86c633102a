"""Conclude a search: choice, calibration, threshold, and the comparison on held-out rows.

Three models are fitted to all training rows: the winner of the search; cross entropy with the defaults of the
same family, which is what one would have had without a search; and the winner's twin, the same parameters
under cross entropy. The twin shows what the loss did, apart from the parameters.

The winner's probabilities are calibrated by the rows of cross-validation, each scored by a model that did not
see it. Its own training rows would not do: where it overfits, it is right about them.
"""

from __future__ import annotations

import csv
import io
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..common.calibration import Calibrator, held_out_calibrator, two_columns
from ..common.json_values import plain
from ..common.versions import versions_of
from ..engines import LocalEngine
from ..linear import LinearClassifier
from ..metrics import Comparison, Evaluation, compare, evaluate, threshold_at_fpr, time_blocks
from ..metrics.threshold import NoThresholdError, design_effect
from ..model.families import Candidate, Fitted, fit_candidates, packages_of
from ..model.linear_family import LinearFeatures
from ..model.model import Model
from ..model.policies import DEFAULT_POLICY, Policy, held_out_sketch
from ..tables.profile import Profile
from ..tables.schema import Schema
from ..tables.splits import Data
from . import wording
from .options import TABLE, Options
from .records import SearchResult, SearchTask, StoppedBy, Trial
from .space import CROSS_ENTROPY

__all__ = ["HeldOutEvaluation", "InfluentialRow", "Outcome", "SearchSummary", "Threshold", "conclude"]

CONFIDENCE = 0.95
# How many candidates are compared with cross entropy, beside the defaults of every loss.
COMPARED = 20
MOST_INFLUENCE_COLUMNS = 500
MOST_INFLUENTIAL = 25
_ORDER = {"complete": 0, "pruned": 1, "failed": 2}
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "pyarrow", "optuna")
_THRESHOLD_FACTS = ("log_odds", "fpr_seen", "fpr_bound", "safe", "safe_recall")


@dataclass(frozen=True)
class Threshold:
    """Threshold of an alert in log-odds, with its false-positive rate.

    Attributes:
        log_odds: Threshold that keeps the false-positive rate on the held-out rows: the recall is that of the
            lowest one, with no alert more than it takes.
        fpr_seen: False-positive rate of the held-out rows at this threshold.
        fpr_bound: Upper bound of the true rate at 95 % confidence (Clopper and Pearson).
        safe: Threshold that keeps the rate on new rows at 95 % confidence; None with too few negatives.
        safe_recall: Share of held-out positives at or above `safe`.

    `log_odds` and `safe` are raised as long as the recall of the held-out rows stays: further down are false
    alerts alone. A higher threshold has a lower rate, so that `safe` keeps its promise.
    """

    log_odds: float
    fpr_seen: float
    fpr_bound: float
    safe: float | None
    safe_recall: float | None

    @property
    def probability(self) -> float:
        """The threshold as a probability."""
        return float(expit(self.log_odds))


@dataclass(frozen=True, eq=False)
class HeldOutEvaluation:
    """Scores, metrics, threshold and comparisons on the held-out rows.

    Attributes:
        y: Labels of the held-out rows.
        log_odds: Calibrated log-odds by the winner.
        naive: Sigmoid of the winner's scores, without the link of its loss.
        evaluation: Metrics with intervals.
        threshold: Threshold of an alert.
        against_baseline: Winner minus cross entropy with defaults; None if the winner is that.
        against_twin: Winner minus cross entropy with the winner's parameters; None if the winner is that.
        units: Numbers of the groups of rows that depend on each other. Default: rows are independent.
    """

    y: NDArray[np.int8]
    log_odds: NDArray[np.float64]
    naive: NDArray[np.float64]
    evaluation: Evaluation
    threshold: Threshold
    against_baseline: Comparison | None
    against_twin: Comparison | None
    units: NDArray[np.intp] | None = None

    @property
    def probability(self) -> NDArray[np.float64]:
        """Calibrated probabilities of the rows."""
        return np.asarray(expit(self.log_odds))

    @property
    def alerts_per_100k(self) -> float:
        """Alerts that 100,000 rows like these raise."""
        return self.evaluation.alerts / self.evaluation.rows * 100_000


@dataclass(frozen=True)
class SearchSummary:
    """Counts of a search's candidates by state, and the reason of its end.

    Attributes:
        complete: Candidates evaluated on every fold.
        pruned: Candidates stopped early.
        failed: Candidates whose fit failed.
        planned: Candidates asked for; None if time alone limits the search.
        seconds: Duration of the search.
        stopped_by: Reason of the end.
        reproducible: Whether the command alone fixes the result. A round that ended early may leave gaps.

    >>> SearchSummary(9, 2, 1, 100, 41.0, "interrupted").done
    12
    """

    complete: int
    pruned: int
    failed: int
    planned: int | None
    seconds: float
    stopped_by: StoppedBy
    reproducible: bool = True

    @property
    def done(self) -> int:
        """Candidates of any state."""
        return self.complete + self.pruned + self.failed


@dataclass(frozen=True)
class InfluentialRow:
    """A row with a large influence on the fit, and its probability from a fold that had not seen it."""

    row: int
    label: int
    probability: float
    influence: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """Outcome of a fit: model, leaderboard, evaluation on held-out rows, and how to repeat it.

    Attributes:
        options: Options of the fit.
        model: The final model: columns, fitted family, threshold. `model.probability(table)` scores.
        leaderboard: The candidates, best first, with the paired interval against cross entropy.
        search: Summary of the search.
        held_out: Scores and metrics of the held-out rows, threshold, comparisons with cross entropy.
        losses: The best setting tried of each loss, best first.
        profile: Profile of the data with its warnings.
        influential: Rows with the largest influence: possible label errors.
        no_influence: Reason why `influential` is empty, or nothing.
        fingerprint: SHA-256 of the data.
        versions: Versions of Python and the libraries.
        made: Date and time of the fit, in UTC.
        seconds: Duration of the fit.
    """

    options: Options
    model: Model
    leaderboard: tuple[Trial, ...]
    search: SearchSummary
    held_out: HeldOutEvaluation
    losses: tuple[str, ...]
    profile: Profile
    influential: tuple[InfluentialRow, ...]
    no_influence: str
    fingerprint: str
    versions: Mapping[str, str]
    made: str
    seconds: float

    @property
    def winner(self) -> Candidate:
        return self.model.members[0].fitted.candidate

    @property
    def evaluation(self) -> Evaluation:
        """The metrics of the held-out rows, with intervals."""
        return self.held_out.evaluation

    @property
    def verdict(self) -> wording.Verdict:
        """The verdict on the loss, by the paired intervals of the held-out rows and `min_gain`."""
        return wording.loss_verdict(self.winner, self.held_out, self.options.min_gain)

    @property
    def loss_mattered(self) -> bool:
        """Whether the loss beat cross entropy: beyond chance and by at least `min_gain` points."""
        return self.verdict.mattered

    @property
    def loss_sentence(self) -> str:
        """The verdict on the loss in sentences."""
        return self.verdict.sentence

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes beside the figures, such as that the search was interrupted."""
        notes = (wording.search_note(self.search), wording.no_alert_note(self.held_out))
        return tuple(note for note in notes if note)

    @property
    def command(self) -> str:
        """The command line that repeats the fit."""
        return _as_done(self.options, self.search).command()

    @property
    def source(self) -> str:
        """Name of the data."""
        return "table" if self.options.data == TABLE else Path(self.options.data).name

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain values for JSON. NaN and infinity become None."""
        result: dict[str, Any] = plain(
            {
                "model": self.winner.to_dict() | {"text": self.model.describe()},
                "headline": wording.headline(self),
                "cost": wording.cost(self),
                "threshold": self.held_out.threshold,
                "evaluation": self.evaluation.to_dict(),
                "loss_mattered": self.loss_mattered,
                "loss_sentence": self.loss_sentence,
                "loss_verdict": self.verdict.kind,
                "min_gain": self.options.min_gain,
                "against_cross_entropy_with_defaults": self.held_out.against_baseline,
                "against_cross_entropy_with_the_same_parameters": self.held_out.against_twin,
                "search": self.search,
                "notes": list(self.notes),
                "warnings": list(self.profile.warnings),
                "columns": self.profile.decisions(),
                "split": wording.split_sentence(self.options),
                "command": self.command,
                "seed": self.options.seed,
                "versions": self.versions,
                "fingerprint": self.fingerprint,
                "made": self.made,
                "seconds": self.seconds,
            }
        )
        return result

    def leaderboard_csv(self) -> str:
        """Return the leaderboard as text in CSV format."""
        text = io.StringIO()
        names = ["rank", "family", "loss", "parameters", "partial_auc", "recall", "state", "seconds"]
        names += ["difference", "low", "high"]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for rank, trial in enumerate(self.leaderboard, 1):
            candidate, difference = trial.candidate, trial.comparison
            writer.writerow(
                [
                    rank,
                    candidate.family,
                    candidate.loss,
                    json.dumps(dict(candidate.parameters)),
                    trial.partial_auc,
                    trial.recall,
                    trial.state,
                    round(trial.seconds, 3),
                    *(
                        ("", "", "")
                        if difference is None
                        else (difference.difference, difference.low, difference.high)
                    ),
                ]
            )
        return text.getvalue()

    def __str__(self) -> str:
        # Without an alert the note is the headline already.
        notes = [note for note in self.notes if note not in wording.headline(self)]
        answer = f"{wording.headline(self)} {wording.cost(self)}".rstrip()
        return "\n".join([answer, self.model.describe(), self.loss_sentence, *notes])


Result = TypeVar("Result", bound=Outcome)


def conclude(
    kind: type[Result],
    rows: Data,
    task: SearchTask,
    found: SearchResult,
    options: Options,
    engine: LocalEngine,
    seconds: Callable[[], float],
    tell: Callable[[str], None],
) -> Result:
    """Fit the final models, calibrate, set the threshold, and evaluate on the held-out rows.

    Args:
        kind: Class of the outcome.
        rows: Training rows and held-out rows.
        task: Rows, folds and aim of the search.
        found: Result of the search.
        options: Options of the fit.
        engine: Engine that fits the final models.
        seconds: Function that returns the seconds since the fit began.
        tell: Function called with the name of each stage.
    """
    winner = found.best.candidate
    baseline = baseline_of(found, winner.family)
    tell(f"Fitting the winner to all training rows: {winner.describe()}")
    wanted = [winner, baseline.candidate, twin_of(winner)]
    fitted = fit_all(wanted, rows, options.seed, engine)
    out_of_fold = found.out_of_fold(found.best.number)
    # From the rows of cross-validation, not from the held-out rows: those evaluate the calibration, too.
    calibration = calibration_by(out_of_fold, task)
    fitted[winner] = fitted[winner].calibrated(calibration)
    tell("Evaluating on the held-out rows")
    held_out = evaluate_held_out(
        rows,
        *(fitted[candidate] for candidate in wanted),
        fpr=options.fpr,
        max_fpr=options.max_fpr,
        seed=options.seed,
    )
    with warnings.catch_warnings():
        # The linear stand-in need not converge fully to show which rows have a large influence.
        warnings.simplefilter("ignore")
        influential, no_influence = influential_rows(
            rows, task, winner.loss, calibration.log_odds(out_of_fold)
        )
    search = summary_of(found, options.trials)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    threshold = held_out.threshold
    facts = {
        "metrics": held_out.evaluation.to_dict(),
        "threshold": {name: getattr(threshold, name) for name in _THRESHOLD_FACTS},
        "calibration": {"slope": calibration.slope, "level": calibration.levels[0]},
        "data": {
            "fingerprint": rows.fingerprint,
            "training_rows": len(rows.y),
            "training_positives": int(rows.y.sum()),
            "test_rows": len(rows.test.y),
            "test_positives": int(rows.test.y.sum()),
        },
        "seed": options.seed,
        "made": made,
        "command": _as_done(options, search).command(),
    }
    return kind(
        options=options,
        model=Model.of(
            rows.schema,
            [fitted[winner]],
            policies=policies_of(threshold, options.fpr),
            held_out=held_out_sketch(held_out.y, held_out.log_odds),
            facts=facts,
        ),
        leaderboard=leaderboard(found, task, baseline.number, rows),
        search=search,
        held_out=held_out,
        losses=tuple(_tried_losses(found)),
        profile=rows.profile,
        influential=influential,
        no_influence=no_influence,
        fingerprint=rows.fingerprint,
        versions=versions_of([*_LIBRARIES, *packages_of(options.families)]),
        made=made,
        seconds=seconds(),
    )


def summary_of(found: SearchResult, planned: int | None) -> SearchSummary:
    """Count the trials of a search by state."""
    states = [trial.state for trial in found.trials]
    return SearchSummary(
        complete=states.count("complete"),
        pruned=states.count("pruned"),
        failed=states.count("failed"),
        planned=planned,
        seconds=found.seconds,
        stopped_by=found.stopped_by,
        reproducible=[trial.number for trial in found.trials] == list(range(len(found.trials))),
    )


def _as_done(options: Options, search: SearchSummary) -> Options:
    """Return options that repeat what ran: as many trials, without a time limit."""
    trials = options.trials if search.stopped_by == "trials" else search.done
    return replace(options, trials=trials, budget=None)


def _tried_losses(found: SearchResult) -> list[str]:
    """Return the best setting tried of each loss, best first."""
    best: dict[str, tuple[float, str]] = {}
    for trial in found.trials:
        if trial.partial_auc is not None:
            kind = trial.candidate.loss.split("(")[0]
            if kind not in best or trial.partial_auc > best[kind][0]:
                best[kind] = (trial.partial_auc, trial.candidate.loss)
    return [loss for _, loss in sorted(best.values(), reverse=True)]


# ---- the leaderboard ---------------------------------------------------------------------


def baseline_of(found: SearchResult, family: str) -> Trial:
    """Return the trial of cross entropy with the defaults of a family.

    It is always there: planned trials are never pruned, and the first round ignores the time limit. Without
    it there would be nothing to compare the winner with.
    """
    for trial in found.trials:
        candidate = trial.candidate
        if (candidate.family, candidate.loss, trial.origin) == (family, CROSS_ENTROPY, "default"):
            return trial
    raise ValueError(f"the search holds no trial of {CROSS_ENTROPY} with defaults in {family}")


def leaderboard(
    found: SearchResult, task: SearchTask, baseline: int, data: Data | None = None
) -> tuple[Trial, ...]:
    """Sort the trials: complete ones with the best first, then pruned, then failed ones.

    The best 20 and every loss with its defaults are compared with the baseline, a trial's number. The times
    or groups of `data` tell which rows depend on each other. Default: none do.
    """
    chosen = slice(None) if task.rows is None else task.rows
    order = (None, None) if data is None else (data.times, data.groups)
    times, groups = (None if one is None else one[chosen] for one in order)
    ordered = sorted(found.trials, key=_place)
    complete = [trial.number for trial in ordered if trial.state == "complete"]
    # Each comparison sorts all rows twice, so not every trial of a long search gets one.
    compared = {*complete[:COMPARED]} | {
        trial.number for trial in ordered if trial.origin == "default" and trial.state == "complete"
    }
    if baseline not in complete:
        compared = set()
    compared.discard(baseline)
    return tuple(
        replace(trial, comparison=_against(found, task, trial.number, baseline, times, groups))
        if trial.number in compared
        else trial
        for trial in ordered
    )


def _place(trial: Trial) -> tuple[int, float, float, int]:
    if trial.partial_auc is not None and trial.recall is not None:
        return _ORDER[trial.state], -trial.partial_auc, -trial.recall, trial.number
    # Of the pruned ones, those that got further come first; their means are of different folds.
    seen = len(trial.fold_values)
    return _ORDER[trial.state], -seen, -sum(trial.fold_values) / max(seen, 1), trial.number


def _against(
    found: SearchResult,
    task: SearchTask,
    number: int,
    baseline: int,
    times: NDArray[Any] | None,
    groups: NDArray[Any] | None,
) -> Comparison:
    ours, theirs = found.out_of_fold(number), found.out_of_fold(baseline)
    rows = ~np.isnan(theirs)
    weights = None if task.weights is None else task.weights[rows]
    # One weight per class leaves both rates unchanged, and so the partial AUC. Without weights the interval
    # has a closed form (DeLong); with them it needs a bootstrap.
    if weights is not None and all(np.ptp(weights[task.y[rows] == label]) == 0 for label in (0, 1)):
        weights = None
    return compare(
        "partial_auc",
        task.y[rows],
        ours[rows],
        theirs[rows],
        sample_weight=weights,
        groups=units_of(task.y[rows], *(None if one is None else one[rows] for one in (times, groups))),
        max_fpr=task.aim.max_fpr,
        kind="mcclish",
        seed=task.aim.seed,
    )


# ---- the final models ---------------------------------------------------------------------


def twin_of(winner: Candidate) -> Candidate:
    """Return the winner's family and parameters under cross entropy."""
    return Candidate(winner.family, CROSS_ENTROPY, winner.parameters)


def fit_all(
    candidates: Sequence[Candidate], rows: Data, seed: int, engine: LocalEngine
) -> dict[Candidate, Fitted]:
    """Fit each candidate to all training rows."""
    # The winner, the baseline and the twin may be the same candidate.
    distinct = list(dict.fromkeys(candidates))
    with engine.share({"X": rows.X, "y": rows.y}) as shared:
        fitted = [one for _, one in engine.run(partial(_fit_one, rows.schema, seed), distinct, shared)]
    # Scores do not depend on the number of threads, so scoring may use all cores from here on.
    return {one.candidate: replace(one, threads=None) for one in fitted}


def _fit_one(schema: Schema, seed: int, arrays: Mapping[str, NDArray[Any]], candidate: Candidate) -> Fitted:
    categorical, n_categories = schema.categorical, schema.n_categories
    # One thread for each: with more, sums run in another order and the last digits change.
    return fit_candidates(
        [candidate], arrays["X"], arrays["y"], categorical, n_categories, seed=seed, threads=1
    )[0]


def calibration_by(out_of_fold: NDArray[Any], task: SearchTask) -> Calibrator:
    """Fit slope and level to out-of-fold log-odds, NaN for rows that no fold validated on."""
    is_known = ~np.isnan(out_of_fold)
    weights = None if task.weights is None else task.weights[is_known]
    log_posterior = two_columns(out_of_fold[is_known].astype(np.float64))
    return held_out_calibrator(log_posterior, task.y[is_known].astype(np.int64), weights)


def evaluate_held_out(
    rows: Data, winner: Fitted, baseline: Fitted, twin: Fitted, *, fpr: float, max_fpr: float, seed: int
) -> HeldOutEvaluation:
    """Score the held-out rows once with each model, and compare the models."""
    y = rows.test.y
    log_odds = winner.log_odds(rows.test.X)
    units = units_of(y, rows.test.times, rows.test.groups)
    threshold = find_threshold(y, log_odds, fpr, units)
    evaluation = evaluate(
        y,
        log_odds,
        probability=expit(log_odds),
        fpr=fpr,
        max_fpr=max_fpr,
        threshold=threshold.log_odds,
        groups=units,
        seed=seed,
    )

    def against(other: Fitted) -> Comparison | None:
        if other.candidate == winner.candidate:
            return None
        scores = other.log_odds(rows.test.X)
        return compare("partial_auc", y, log_odds, scores, max_fpr=max_fpr, groups=units, seed=seed)

    return HeldOutEvaluation(
        y=y,
        log_odds=log_odds,
        naive=winner.naive_probability(rows.test.X),
        evaluation=evaluation,
        threshold=threshold,
        against_baseline=against(baseline),
        against_twin=against(twin),
        units=units,
    )


def units_of(
    y: NDArray[Any], times: NDArray[Any] | None, groups: NDArray[Any] | None
) -> NDArray[np.intp] | None:
    """Return which rows depend on each other: those of a group or of a stretch of time.

    None without times or groups, and if one unit holds all rows of a class: that shows no variance.
    """
    if groups is None and times is None:
        return None
    units = time_blocks(times) if groups is None else groups
    if min(len(np.unique(units[y == label])) for label in (0, 1)) < 2:
        return None
    return units


def find_threshold(
    y: NDArray[Any], log_odds: NDArray[np.float64], fpr: float, units: NDArray[np.intp] | None = None
) -> Threshold:
    """Find the threshold that keeps a false-positive rate on the rows, and bound its true rate.

    Args:
        y: Labels 0 and 1.
        log_odds: Scores of the rows.
        fpr: The rate to keep.
        units: Numbers of the groups of rows that depend on each other. Default: rows are independent.
    """
    from scipy.stats import beta

    threshold = without_idle_alerts(y, log_odds, threshold_at_fpr(y, log_odds, fpr))
    is_alert = log_odds[y == 0] >= threshold
    negatives, false_alerts = len(is_alert), int(np.count_nonzero(is_alert))
    effect = 1.0 if units is None else design_effect(is_alert, units[y == 0], CONFIDENCE)
    # The threshold is chosen on these very rows, so its rate there is too low on average. Hence the bound,
    # and `safe`, which keeps the rate on new rows.
    bound = float(beta.ppf(CONFIDENCE, false_alerts / effect + 1, (negatives - false_alerts) / effect))
    try:
        safe = threshold_at_fpr(y, log_odds, fpr, confidence=CONFIDENCE, groups=units)
        safe = without_idle_alerts(y, log_odds, safe)
    except NoThresholdError:
        safe, safe_recall = None, None
    else:
        safe_recall = float(np.mean(log_odds[y == 1] >= safe))
    return Threshold(threshold, false_alerts / negatives, bound, safe, safe_recall)


def without_idle_alerts(y: NDArray[Any], log_odds: NDArray[np.float64], threshold: float) -> float:
    """Raise a threshold as far as no positive is lost, to just above the next lower score.

    A threshold that catches no positive stays: it is all that the rate allows.

    >>> without_idle_alerts(np.array([0, 0, 0, 1, 1]), np.array([0.5, 1.0, 1.5, 2.0, 4.0]), 0.7)
    1.5000000000000002
    """
    caught = log_odds[(y == 1) & (log_odds >= threshold)]
    below = log_odds[log_odds < caught.min()] if len(caught) else caught
    return max(threshold, float(np.nextafter(below.max(), np.inf))) if len(below) else threshold


def policies_of(threshold: Threshold, fpr: float) -> dict[str, Policy]:
    """Make the policies of a new model.

    "default" keeps the false-positive rate on the held-out rows. "safe" keeps it on new rows; it needs
    enough negatives.
    """
    policies = {DEFAULT_POLICY: Policy("fpr", threshold.log_odds, {"fpr": fpr})}
    if threshold.safe is not None:
        policies["safe"] = Policy("fpr_bound", threshold.safe, {"fpr": fpr, "confidence": CONFIDENCE})
    return policies


def influential_rows(
    rows: Data, task: SearchTask, loss: str, out_of_fold: NDArray[np.floating]
) -> tuple[tuple[InfluentialRow, ...], str]:
    """Return the training rows with the largest influence, and the reason if there are none.

    They are the first to check for a wrong label.

    Trees have no influence function. So a linear model under the winner's loss stands in for every family: a
    row that contradicts its neighbours enough to move a linear fit is worth a look, whatever the final model
    is. The probability shown beside it comes from the fold that had not seen the row.
    """
    y = task.y
    numbers = rows.numbers if task.rows is None else rows.numbers[task.rows]
    features = LinearFeatures.learn(task.X, rows.schema.categorical, rows.schema.n_categories)
    table = features.apply(task.X)
    if table.shape[1] > MOST_INFLUENCE_COLUMNS:
        return (
            (),
            f"Influence was not computed: {table.shape[1]:,} columns are more than {MOST_INFLUENCE_COLUMNS}.",
        )
    model = LinearClassifier(loss, l2=1e-4).fit(table, y, sample_weight=task.weights)
    pull = model.influence(table, y, sample_weight=task.weights).pull
    seen = np.flatnonzero(np.isfinite(out_of_fold))
    order = seen[np.argsort(-pull[seen], kind="stable")[:MOST_INFLUENTIAL]]
    total = float(np.sqrt(np.sum(pull**2)))
    probability = expit(out_of_fold.astype(np.float64))
    return tuple(
        InfluentialRow(
            row=int(numbers[i]),
            label=int(y[i]),
            probability=float(probability[i]),
            influence=float(pull[i] / total) if total > 0 else 0.0,
        )
        for i in order
    ), ""
