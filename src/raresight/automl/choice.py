"""Choose what becomes the model: a single candidate, or a blend of several.

Of the single candidates the best is the one with the largest partial AUC of its out-of-fold log-odds. Where a
simpler one of its family is not worse beyond chance, that one is taken: the best of many is partly luck.

A blend is a weighted mean of calibrated log-odds. Its weights come from greedy selection with replacement
(Caruana et al. 2004): eight times, the candidate is added whose addition gives the mean the largest partial
AUC, and the best of these means is kept. The weights are averaged over draws of the rows, which keeps out
members that few rows favour. It is taken if its partial AUC exceeds that of the single candidate.

All of it uses rows of cross-validation. The held-out rows decide nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.calibration import Calibrator, held_out_calibrator, two_columns
from ..metrics import Comparison, compare, partial_auc, time_blocks
from ..model.families import FAMILIES
from .records import SearchResult, SearchTask, Trial
from .space import CROSS_ENTROPY

__all__ = ["Choice", "calibration_by", "choose", "out_of_fold_comparison", "units_of"]

Floats = NDArray[np.float64]

# From these a blend is made: the best candidates, and the best of each family.
POOL = 12
STEPS = 8
DRAWS = 10
MOST_MEMBERS = 5
LEAST_WEIGHT = 0.05
# Of simpler candidates, the best so many are compared with the best.
COMPARED = 8
# A negative below the highest such share of negatives for every candidate cannot be among the highest
# `max_fpr` of a mean of few of them.
_HIGHEST = 5.0


@dataclass(frozen=True, eq=False)
class Choice:
    """What becomes the model.

    Attributes:
        members: Trials of the model; more than one are a blend.
        weights: Their weights in the mean of calibrated log-odds.
        calibrators: The calibrator of each member.
        calibrator: Slope and level of the mean.
        single: The preferred single candidate.
        log_odds: Calibrated out-of-fold log-odds of the model, NaN for rows of no fold.
        partial_auc: Partial AUC of these.
    """

    members: tuple[Trial, ...]
    weights: tuple[float, ...]
    calibrators: tuple[Calibrator, ...]
    calibrator: Calibrator
    single: Trial
    log_odds: Floats
    partial_auc: float


def choose(found: SearchResult, task: SearchTask, *, single_only: bool = False) -> Choice:
    """Choose a single candidate, or a blend if that ranks better out of fold."""
    single = simplest(found, task)
    alone = _made(found, task, [single], [1.0], single)
    if single_only:
        return alone
    members, weights = blend(found, task)
    if len(members) < 2:
        return alone
    blended = _made(found, task, members, weights, single)
    return blended if blended.partial_auc > alone.partial_auc else alone


def simplest(found: SearchResult, task: SearchTask) -> Trial:
    """Return the simplest candidate of the best one's family that is not worse beyond chance."""
    best = found.best
    simpler = [
        trial
        for trial in found.trials
        if trial.state == "complete"
        and trial.candidate.family == best.candidate.family
        and complexity(trial) < complexity(best)
    ]
    likely = sorted(simpler, key=lambda trial: -(trial.partial_auc or 0.0))[:COMPARED]
    for trial in sorted(likely, key=complexity):
        if out_of_fold_comparison(found, task, best.number, trial.number).low <= 0:
            return trial
    return best


def complexity(trial: Trial) -> tuple[bool, bool, float, int]:
    """Return what orders candidates by simplicity: cross entropy, defaults, fewer rounds, earlier ones."""
    candidate = trial.candidate
    rounds = FAMILIES[candidate.family].rounds
    size = float(candidate.settings()[rounds]) if rounds else 0.0
    return candidate.loss != CROSS_ENTROPY, trial.origin != "default", size, trial.number


def blend(found: SearchResult, task: SearchTask) -> tuple[list[Trial], list[float]]:
    """Return the members of the blend and their weights."""
    pool = _pool(found)
    known = ~np.isnan(found.out_of_fold(pool[0].number))
    y = task.y[known]
    columns = []
    for trial in pool:
        log_odds = found.out_of_fold(trial.number)
        columns.append(calibration_by(log_odds, task).log_odds(log_odds[known].astype(np.float64)))
    scores = np.array(columns)
    positives, negatives = scores[:, y == 1], scores[:, y == 0]
    share = min(1.0, _HIGHEST * task.aim.max_fpr)
    last = int(share * negatives.shape[1])
    if last < negatives.shape[1] - 1:
        limits = np.partition(negatives, -last - 1, axis=1)[:, -last - 1]
        high = np.flatnonzero((negatives >= limits[:, None]).any(axis=0))
        max_fpr = min(1.0, task.aim.max_fpr * negatives.shape[1] / len(high))
        negatives = negatives[:, high]
    else:
        max_fpr = task.aim.max_fpr
    generator = np.random.default_rng([task.aim.seed, 7])
    weights = np.zeros(len(pool))
    for _ in range(DRAWS):
        weights += _greedy(_drawn(positives, generator), _drawn(negatives, generator), max_fpr) / DRAWS
    # The heaviest; of equal ones the better, which comes first.
    heaviest = np.argsort(-weights, kind="stable")[:MOST_MEMBERS]
    chosen = [int(place) for place in heaviest if weights[place] > LEAST_WEIGHT]
    total = float(weights[chosen].sum())
    return [pool[place] for place in chosen], [float(weights[place]) / total for place in chosen]


def _pool(found: SearchResult) -> list[Trial]:
    complete = sorted(
        (trial for trial in found.trials if trial.state == "complete"),
        key=lambda trial: (-(trial.partial_auc or 0.0), trial.number),
    )
    best_of_family: dict[str, Trial] = {}
    for trial in complete:
        best_of_family.setdefault(trial.candidate.family, trial)
    return list(dict.fromkeys([*complete[:POOL], *best_of_family.values()]))


def _drawn(scores: Floats, generator: np.random.Generator) -> Floats:
    rows = scores.shape[1]
    return scores[:, generator.integers(0, rows, rows)]


def _greedy(positives: Floats, negatives: Floats, max_fpr: float) -> NDArray[np.float64]:
    """Return the share of each candidate in the additions up to the best mean."""
    y = np.repeat(np.array([1, 0], dtype=np.int8), [positives.shape[1], negatives.shape[1]])
    scores = np.concatenate([positives, negatives], axis=1)
    counts, total = np.zeros(len(scores)), np.zeros(scores.shape[1])
    kept, highest = counts, -1.0
    for step in range(STEPS):
        areas = [partial_auc(y, (total + one) / (step + 1), max_fpr, kind="area") for one in scores]
        best = int(np.argmax(areas))
        counts[best] += 1
        total += scores[best]
        # Once the mean is the best one, the least change would be to add a candidate that says nothing.
        if areas[best] > highest:
            kept, highest = counts / (step + 1), areas[best]
    return kept


def _made(
    found: SearchResult, task: SearchTask, members: Sequence[Trial], weights: Sequence[float], single: Trial
) -> Choice:
    mean: Floats = np.zeros(len(task.y))
    calibrators = []
    for trial, weight in zip(members, weights):
        log_odds = found.out_of_fold(trial.number)
        calibrators.append(calibration_by(log_odds, task))
        mean += weight * calibrators[-1].log_odds(log_odds.astype(np.float64))
    calibrator = calibration_by(mean, task)
    known = ~np.isnan(mean)
    area = partial_auc(
        task.y[known],
        mean[known],
        task.aim.max_fpr,
        kind="mcclish",
        sample_weight=None if task.weights is None else task.weights[known],
    )
    calibrated = calibrator.log_odds(mean)
    return Choice(
        tuple(members), tuple(weights), tuple(calibrators), calibrator, single, calibrated, float(area)
    )


def calibration_by(out_of_fold: NDArray[np.floating], task: SearchTask) -> Calibrator:
    """Fit slope and level to out-of-fold log-odds, NaN for rows that no fold validated on."""
    is_known = ~np.isnan(out_of_fold)
    weights = None if task.weights is None else task.weights[is_known]
    log_posterior = two_columns(out_of_fold[is_known].astype(np.float64))
    return held_out_calibrator(log_posterior, task.y[is_known].astype(np.int64), weights)


def out_of_fold_comparison(found: SearchResult, task: SearchTask, number: int, other: int) -> Comparison:
    """Compare the partial AUCs of the out-of-fold log-odds of two trials, the first minus the second."""
    ours, theirs = found.out_of_fold(number), found.out_of_fold(other)
    rows = ~np.isnan(theirs)
    weights = None if task.weights is None else task.weights[rows]
    # One weight per class leaves both rates unchanged, and so the partial AUC. Without weights the interval
    # has a closed form; with them it needs a bootstrap.
    if weights is not None and all(np.ptp(weights[task.y[rows] == label]) == 0 for label in (0, 1)):
        weights = None
    return compare(
        "partial_auc",
        task.y[rows],
        ours[rows],
        theirs[rows],
        sample_weight=weights,
        groups=units_of(
            task.y[rows], *(None if one is None else one[rows] for one in (task.times, task.groups))
        ),
        max_fpr=task.aim.max_fpr,
        kind="mcclish",
        seed=task.aim.seed,
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
