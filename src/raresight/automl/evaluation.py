"""From a search to the outcome: choice, calibration, threshold, and the comparison on held-out rows.

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
from ..metrics import Comparison, Evaluation, compare, evaluate, threshold_at_fpr
from ..metrics.threshold import NoThresholdError
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
    """Where alarms begin, in log-odds, and what is known of the false alarms it lets pass.

    Attributes:
        log_odds: The lowest threshold that keeps the rate on the held-out rows.
        fpr_seen: The rate there.
        fpr_bound: An upper bound of the true rate, right 95 times of 100 (Clopper and Pearson).
        safe: The threshold that keeps the rate on new rows with 95 % confidence; None with too few negatives.
        safe_recall: The share of held-out positives above it.
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
    """Everything learned from the held-out rows.

    Attributes:
        y: Their labels.
        log_odds: Their calibrated log-odds by the winner.
        naive: Their probabilities as one would read them off the winner's scores without its link.
        evaluation: Metrics with intervals.
        threshold: Where alerts begin.
        against_baseline: The winner less cross entropy with defaults; None where they are the same.
        against_twin: The winner less cross entropy with its parameters; None where they are the same.
    """

    y: NDArray[np.int8]
    log_odds: NDArray[np.float64]
    naive: NDArray[np.float64]
    evaluation: Evaluation
    threshold: Threshold
    against_baseline: Comparison | None
    against_twin: Comparison | None

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
    """How far a search got and what ended it.

    Attributes:
        complete: Candidates evaluated on every fold.
        pruned: Candidates stopped early.
        failed: Candidates whose fit failed.
        planned: Candidates asked for; None where only time was to end the search.
        seconds: How long it took.
        stopped_by: What ended it.
        reproducible: Whether the command alone fixes the result. A round cut short may have left gaps.

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
    """What a fit found: the choice, its calibration and threshold, and the comparison with cross entropy.

    Attributes:
        options: What was asked.
        model: The final model: columns, fitted family, threshold. `model.probability(table)` scores.
        leaderboard: The candidates, best first, with the paired interval against cross entropy.
        search: How the search ended.
        held_out: Scores and metrics of the held-out rows, threshold, comparisons with cross entropy.
        losses: The best setting tried of each loss, best first.
        profile: What was seen in the data, warnings included.
        influential: Rows with the largest influence: possible label errors.
        no_influence: Why there are none, where there are none.
        fingerprint: SHA-256 of the data.
        versions: Of Python and the libraries.
        made: When.
        seconds: How long it took.
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
    def loss_mattered(self) -> bool:
        """Whether the loss beat cross entropy by the paired intervals of the held-out rows."""
        return wording.loss_verdict(self.winner, self.held_out).mattered

    @property
    def loss_sentence(self) -> str:
        """The same in a sentence."""
        return wording.loss_verdict(self.winner, self.held_out).sentence

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know beside the figures, such as a search cut short."""
        notes = (wording.search_note(self.search), wording.no_alert_note(self.held_out))
        return tuple(note for note in notes if note)

    @property
    def command(self) -> str:
        """The command line that does the same."""
        return _as_done(self.options, self.search).command()

    @property
    def source(self) -> str:
        """Name of the data."""
        return "table" if self.options.data == TABLE else Path(self.options.data).name

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain values, ready for JSON; a number that is none becomes None."""
        result: dict[str, Any] = plain(
            {
                "model": self.winner.to_dict() | {"text": self.model.describe()},
                "headline": wording.headline(self),
                "cost": wording.cost(self),
                "threshold": self.held_out.threshold,
                "evaluation": self.evaluation.to_dict(),
                "loss_mattered": self.loss_mattered,
                "loss_sentence": self.loss_sentence,
                "against_cross_entropy_with_defaults": self.held_out.against_baseline,
                "against_cross_entropy_with_the_same_parameters": self.held_out.against_twin,
                "search": self.search,
                "notes": list(self.notes),
                "warnings": list(self.profile.warnings),
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
        """The candidates as a table."""
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
        notes = [note for note in self.notes if note != wording.headline(self)]
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
    """Go from the end of the search to the outcome.

    Args:
        kind: Class of the outcome.
        rows: Training rows and held-out rows.
        task: What the search was of.
        found: Its result.
        options: What was asked.
        engine: Where the final models are fitted.
        seconds: How long the run has taken.
        tell: Called with each stage, in words.
    """
    winner = found.best.candidate
    baseline = baseline_of(found, winner.family)
    tell(f"Fitting the winner to all training rows: {winner.describe()}")
    wanted = [winner, baseline.candidate, twin_of(winner)]
    fitted = fit_all(wanted, rows, options.seed, engine)
    out_of_fold = found.out_of_fold(found.best.number)
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
        leaderboard=leaderboard(found, task, baseline.number),
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
    """How the search ended."""
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
    """The options that ask for what was done: so many trials, whatever the time."""
    trials = options.trials if search.stopped_by == "trials" else search.done
    return replace(options, trials=trials, budget=None)


def _tried_losses(found: SearchResult) -> list[str]:
    """The best setting tried of each loss, best first."""
    best: dict[str, tuple[float, str]] = {}
    for trial in found.trials:
        if trial.partial_auc is not None:
            kind = trial.candidate.loss.split("(")[0]
            if kind not in best or trial.partial_auc > best[kind][0]:
                best[kind] = (trial.partial_auc, trial.candidate.loss)
    return [loss for _, loss in sorted(best.values(), reverse=True)]


# ---- the leaderboard ---------------------------------------------------------------------


def baseline_of(found: SearchResult, family: str) -> Trial:
    """The trial of cross entropy with defaults in a family."""
    for trial in found.trials:
        candidate = trial.candidate
        if (candidate.family, candidate.loss, trial.origin) == (family, CROSS_ENTROPY, "default"):
            return trial
    raise ValueError(f"the search holds no trial of {CROSS_ENTROPY} with defaults in {family}")


def leaderboard(found: SearchResult, task: SearchTask, baseline: int) -> tuple[Trial, ...]:
    """The trials with the best first: complete, then pruned, then failed ones.

    The best 20 and every loss with its defaults are compared with the baseline, a trial's number.
    """
    ordered = sorted(found.trials, key=_place)
    complete = [trial.number for trial in ordered if trial.state == "complete"]
    compared = {*complete[:COMPARED]} | {
        trial.number for trial in ordered if trial.origin == "default" and trial.state == "complete"
    }
    if baseline not in complete:
        compared = set()
    compared.discard(baseline)
    return tuple(
        replace(trial, comparison=_against(found, task, trial.number, baseline))
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


def _against(found: SearchResult, task: SearchTask, number: int, baseline: int) -> Comparison:
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
        max_fpr=task.aim.max_fpr,
        kind="mcclish",
        seed=task.aim.seed,
    )


# ---- the final models ---------------------------------------------------------------------


def twin_of(winner: Candidate) -> Candidate:
    """The winner's family and parameters under cross entropy."""
    return Candidate(winner.family, CROSS_ENTROPY, winner.parameters)


def fit_all(
    candidates: Sequence[Candidate], rows: Data, seed: int, engine: LocalEngine
) -> dict[Candidate, Fitted]:
    """Each of the candidates fitted to all training rows, one thread each, so that the result is the same."""
    distinct = list(dict.fromkeys(candidates))
    with engine.share({"X": rows.X, "y": rows.y}) as shared:
        fitted = [one for _, one in engine.run(partial(_fit_one, rows.schema, seed), distinct, shared)]
    # Scores do not depend on the number of threads, so scoring may use all cores from here on.
    return {one.candidate: replace(one, threads=None) for one in fitted}


def _fit_one(schema: Schema, seed: int, arrays: Mapping[str, NDArray[Any]], candidate: Candidate) -> Fitted:
    categorical, n_categories = schema.categorical, schema.n_categories
    return fit_candidates(
        [candidate], arrays["X"], arrays["y"], categorical, n_categories, seed=seed, threads=1
    )[0]


def calibration_by(out_of_fold: NDArray[Any], task: SearchTask) -> Calibrator:
    """Slope and level of the log-odds of validation rows, NaN where a row was never validated on."""
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
    evaluation = evaluate(y, log_odds, probability=expit(log_odds), fpr=fpr, max_fpr=max_fpr, seed=seed)

    def against(other: Fitted) -> Comparison | None:
        if other.candidate == winner.candidate:
            return None
        scores = other.log_odds(rows.test.X)
        return compare("partial_auc", y, log_odds, scores, max_fpr=max_fpr, seed=seed)

    return HeldOutEvaluation(
        y=y,
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


def influential_rows(
    rows: Data, task: SearchTask, loss: str, out_of_fold: NDArray[np.floating]
) -> tuple[tuple[InfluentialRow, ...], str]:
    """Training rows with the largest influence, the first to check for a wrong label; and why there are none.

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
