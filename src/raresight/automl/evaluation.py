"""Conclude a search: choice, calibration, threshold, and the comparison on held-out rows.

Fitted to all training rows are the members of the model, and what it is compared with:

* cross entropy with the defaults of a family, which is what one would have had without a search;
* for a blend, the single candidate that would have been chosen;
* for a single candidate of another loss its twin, the same parameters under cross entropy. The twin shows
  what the loss did, apart from the parameters.

Probabilities are calibrated by the rows of cross-validation, each scored by models that did not see it. The
training rows of a model would not do: where it overfits, it is right about them.
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

from ..common.json_values import plain
from ..common.versions import versions_of
from ..engines import LocalEngine
from ..linear import LinearClassifier
from ..metrics import Comparison, Evaluation, compare, evaluate, threshold_at_fpr
from ..metrics.threshold import NoThresholdError, design_effect
from ..model.families import Candidate, Fitted, fit_candidates, packages_of
from ..model.linear_family import LinearFeatures
from ..model.model import Model
from ..model.policies import DEFAULT_POLICY, Policy, held_out_sketch
from ..tables.profile import Profile
from ..tables.schema import Schema
from ..tables.splits import Data
from . import wording
from .choice import Choice, choose, out_of_fold_comparison, units_of
from .options import TABLE, Options
from .records import SearchResult, SearchTask, StoppedBy, Trial, best_of
from .space import CROSS_ENTROPY

__all__ = ["HeldOutEvaluation", "InfluentialRow", "Outcome", "SearchSummary", "Threshold", "conclude"]

CONFIDENCE = 0.95
# How many candidates are compared with cross entropy, beside the defaults of every loss.
COMPARED = 20
MOST_INFLUENCE_COLUMNS = 500
MOST_INFLUENTIAL = 25
_ORDER = {"complete": 0, "failed": 1}
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "pyarrow")
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
        log_odds: Calibrated log-odds by the model.
        naive: Sigmoid of the raw scores, without the links of the losses.
        evaluation: Metrics with intervals.
        threshold: Threshold of an alert.
        against_baseline: Model minus cross entropy with defaults; None if the model is that.
        against_twin: Model minus cross entropy with its parameters; None for a blend or cross entropy.
        against_single: Blend minus the single candidate; None without a blend.
        units: Numbers of the groups of rows that depend on each other. Default: rows are independent.
    """

    y: NDArray[np.int8]
    log_odds: NDArray[np.float64]
    naive: NDArray[np.float64]
    evaluation: Evaluation
    threshold: Threshold
    against_baseline: Comparison | None
    against_twin: Comparison | None
    against_single: Comparison | None = None
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
        failed: Candidates whose fit failed.
        planned: Candidates asked for; None if time alone limits the search.
        seconds: Duration of the search.
        stopped_by: Reason of the end.
        reproducible: Whether the command alone fixes the result. A search limited by time may leave gaps.

    >>> SearchSummary(11, 1, 100, 41.0, "interrupted").done
    12
    """

    complete: int
    failed: int
    planned: int | None
    seconds: float
    stopped_by: StoppedBy
    reproducible: bool = True

    @property
    def done(self) -> int:
        """Candidates of any state."""
        return self.complete + self.failed


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
        baseline: The trial number of cross entropy with defaults.
        search: Summary of the search.
        held_out: Scores and metrics of the held-out rows, threshold, comparisons with cross entropy.
        losses: The best setting tried of each loss, best first.
        best_loss: The best candidate of another loss than cross entropy, and its out-of-fold partial AUC less
            that of the best cross entropy; None without one.
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
    baseline: int
    search: SearchSummary
    held_out: HeldOutEvaluation
    losses: tuple[str, ...]
    best_loss: tuple[Candidate, Comparison] | None
    profile: Profile
    influential: tuple[InfluentialRow, ...]
    no_influence: str
    fingerprint: str
    versions: Mapping[str, str]
    made: str
    seconds: float

    @property
    def winner(self) -> Candidate:
        """The candidate of the model; of a blend the one with the largest weight."""
        return max(self.model.members, key=lambda member: member.weight).fitted.candidate

    @property
    def chosen(self) -> tuple[Candidate, ...]:
        """The candidates of the model."""
        return tuple(member.fitted.candidate for member in self.model.members)

    @property
    def evaluation(self) -> Evaluation:
        """The metrics of the held-out rows, with intervals."""
        return self.held_out.evaluation

    @property
    def verdict(self) -> wording.Verdict:
        """The verdict on the loss, by the paired intervals of the held-out rows and `min_gain`."""
        return wording.verdict(self.chosen, self.held_out, self.best_loss, self.options.min_gain)

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
                "model": {
                    "text": self.model.describe(),
                    "members": [
                        {"weight": one.weight} | one.fitted.candidate.to_dict() for one in self.model.members
                    ],
                },
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
                "against_the_single_candidate": self.held_out.against_single,
                "best_other_loss": None
                if self.best_loss is None
                else {"candidate": self.best_loss[0].to_dict(), "out_of_fold": self.best_loss[1]},
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
    choice = choose(found, task, single_only=options.single)
    baseline = baseline_of(found)
    chosen = [trial.candidate for trial in choice.members]
    single = choice.single if len(chosen) > 1 else None
    lone = choice.members[0]
    twin = None
    if len(chosen) == 1 and lone.candidate.loss != CROSS_ENTROPY:
        twin = replace(lone, candidate=twin_of(lone.candidate), number=-1)
    tell(f"Fitting {wording.model_words(chosen)} to all training rows")
    others = [one for one in (single, twin) if one is not None]
    fitted = fit_all([*choice.members, baseline, *others], rows, options.seed, engine)
    model = model_of(rows.schema, choice, fitted)
    calibration = model.calibrator
    tell("Evaluating on the held-out rows")
    is_baseline = len(chosen) == 1 and lone.number == baseline.number
    held_out = evaluate_held_out(
        rows,
        model,
        None if is_baseline else fitted[baseline.number],
        None if twin is None else fitted[twin.number],
        None if single is None else fitted[single.number],
        fpr=options.fpr,
        max_fpr=options.max_fpr,
        seed=options.seed,
    )
    with warnings.catch_warnings():
        # The linear stand-in need not converge fully to show which rows have a large influence.
        warnings.simplefilter("ignore")
        influential, no_influence = influential_rows(
            rows, task, choice.members[0].candidate.loss, choice.log_odds
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
        model=replace(
            model,
            policies=policies_of(threshold, options.fpr),
            held_out=held_out_sketch(held_out.y, held_out.log_odds),
            facts=facts,
        ),
        leaderboard=leaderboard(found, task, baseline.number),
        baseline=baseline.number,
        search=search,
        held_out=held_out,
        losses=tuple(_tried_losses(found)),
        best_loss=_best_loss(found, task),
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
        failed=states.count("failed"),
        planned=planned,
        seconds=found.seconds,
        stopped_by=found.stopped_by,
        reproducible=[trial.number for trial in found.trials] == list(range(len(found.trials)))
        and not any(trial.result.is_cut for trial in found.trials if trial.result is not None),
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


def baseline_of(found: SearchResult) -> Trial:
    """Return the first complete trial of cross entropy with defaults.

    It is what one would have had without a search: of the first booster, if any was asked for.
    """
    for trial in found.trials:
        if (trial.candidate.loss, trial.origin, trial.state) == (CROSS_ENTROPY, "default", "complete"):
            return trial
    # All failed, but something did not.
    return found.best


def leaderboard(found: SearchResult, task: SearchTask, baseline: int) -> tuple[Trial, ...]:
    """Sort the trials: complete ones with the best first, then failed ones.

    The best 20 and every loss with its defaults are compared with the baseline, a trial's number.
    """
    ordered = sorted(found.trials, key=_place)
    complete = [trial.number for trial in ordered if trial.state == "complete"]
    # Each comparison sorts all rows twice, so not every trial of a long search gets one.
    compared = {*complete[:COMPARED]} | {
        trial.number for trial in ordered if trial.origin == "default" and trial.state == "complete"
    }
    compared.discard(baseline)
    return tuple(
        replace(trial, comparison=out_of_fold_comparison(found, task, trial.number, baseline))
        if trial.number in compared
        else trial
        for trial in ordered
    )


def _place(trial: Trial) -> tuple[int, float, float, int]:
    return _ORDER[trial.state], -(trial.partial_auc or 0.0), -(trial.recall or 0.0), trial.number


def _best_loss(found: SearchResult, task: SearchTask) -> tuple[Candidate, Comparison] | None:
    """Compare the best candidate of another loss with the best of cross entropy, out of fold."""
    ours = best_of([trial for trial in found.trials if trial.candidate.loss != CROSS_ENTROPY])
    plain = best_of([trial for trial in found.trials if trial.candidate.loss == CROSS_ENTROPY])
    if ours is None or plain is None:
        return None
    return ours.candidate, out_of_fold_comparison(found, task, ours.number, plain.number)


# ---- the final models ---------------------------------------------------------------------


def twin_of(winner: Candidate) -> Candidate:
    """Return the winner's family and parameters under cross entropy."""
    return Candidate(winner.family, CROSS_ENTROPY, winner.parameters)


def model_of(schema: Schema, choice: Choice, fitted: Mapping[int, Fitted]) -> Model:
    """Return the model of a choice; `fitted` are trials by number, fitted to all training rows."""
    members = [
        replace(fitted[trial.number], calibrator=own)
        for trial, own in zip(choice.members, choice.calibrators, strict=True)
    ]
    columns = [columns_of(schema, trial) for trial in choice.members]
    model = Model.of(schema, members, weights=choice.weights, columns=columns)
    return replace(model, calibrator=model.calibrator.then(choice.calibrator))


def columns_of(schema: Schema, trial: Trial) -> tuple[str, ...] | None:
    """Return the features that a trial sees, or None for all."""
    if trial.with_counts or not schema.count_names:
        return None
    return schema.feature_names[: -len(schema.count_names)]


def fit_all(trials: Sequence[Trial], rows: Data, seed: int, engine: LocalEngine) -> dict[int, Fitted]:
    """Fit the candidate of each trial to all training rows; return them by number."""
    # The baseline and the single candidate may be members, too.
    distinct = list({trial.number: trial for trial in trials}.values())
    with engine.share({"X": rows.X, "y": rows.y}) as shared:
        made = engine.run(partial(_fit_one, rows.schema, seed), distinct, shared)
        # Scores do not depend on the number of threads, so scoring may use all cores from here on.
        return {distinct[index].number: replace(one, threads=None) for index, one in made}


def _fit_one(schema: Schema, seed: int, arrays: Mapping[str, NDArray[Any]], trial: Trial) -> Fitted:
    seen = columns_of(schema, trial)
    # One thread for each: with more, sums run in another order and the last digits change.
    return fit_candidates(
        [trial.candidate],
        arrays["X"] if seen is None else arrays["X"][:, : len(seen)],
        arrays["y"],
        schema.categorical,
        schema.n_categories,
        seed=seed,
        threads=1,
    )[0]


def evaluate_held_out(
    rows: Data,
    model: Model,
    baseline: Fitted | None,
    twin: Fitted | None,
    single: Fitted | None,
    *,
    fpr: float,
    max_fpr: float,
    seed: int,
) -> HeldOutEvaluation:
    """Score the held-out rows once with each model, and compare the models."""
    y = rows.test.y
    # A model whose members see no counts of values has none in its schema.
    X = rows.test.X[:, : len(model.schema.feature_names)]
    log_odds = model.log_odds_of_matrix(X)
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

    def against(other: Fitted | None) -> Comparison | None:
        if other is None:
            return None
        scores = other.log_odds(rows.test.X[:, : other.n_columns])
        return compare("partial_auc", y, log_odds, scores, max_fpr=max_fpr, groups=units, seed=seed)

    return HeldOutEvaluation(
        y=y,
        log_odds=log_odds,
        naive=model.naive_probability_of_matrix(X),
        evaluation=evaluation,
        threshold=threshold,
        against_baseline=against(baseline),
        against_twin=against(twin),
        against_single=against(single),
        units=units,
    )


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
    model = LinearClassifier(loss).fit(table, y, sample_weight=task.weights)
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
