"""The trials of a search in order, and whether they differ from plain cross entropy by more than chance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..metrics import Comparison, compare
from .records import SearchResult, Task, Trial
from .space import CROSS_ENTROPY

__all__ = ["baseline_of", "leaderboard"]

COMPARED = 20
_ORDER = {"complete": 0, "pruned": 1, "failed": 2}


def baseline_of(found: SearchResult, family: str) -> Trial:
    """The trial of cross entropy with defaults in a family."""
    for trial in found.trials:
        candidate = trial.candidate
        if (candidate.family, candidate.loss, trial.origin) == (family, CROSS_ENTROPY, "default"):
            return trial
    raise ValueError(f"the search holds no trial of {CROSS_ENTROPY} with defaults in {family}")


def leaderboard(found: SearchResult, task: Task, baseline: int) -> tuple[Trial, ...]:
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


def _against(found: SearchResult, task: Task, number: int, baseline: int) -> Comparison:
    ours, theirs = found.out_of_fold(number), found.out_of_fold(baseline)
    rows = ~np.isnan(theirs)
    weights = None if task.weights is None else task.weights[rows]
    # Weights that only make up for drawn negatives leave both rates as they are, and so the partial AUC;
    # without weights its interval needs no bootstrap.
    if weights is not None and all(np.ptp(weights[task.y[rows] == label]) == 0 for label in (0, 1)):
        weights = None
    return compare(
        "partial_auc",
        task.y[rows],
        ours[rows],
        theirs[rows],
        sample_weight=weights,
        max_fpr=task.max_fpr,
        kind="mcclish",
        seed=task.seed,
    )
