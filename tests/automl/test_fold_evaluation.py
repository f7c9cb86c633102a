"""Fits on folds: boosters whose folds train side by side, and their number of rounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from table_search import AIM, small_task, table

from raresight.automl import fold_evaluation
from raresight.automl.fold_evaluation import FoldEvaluator, Job, arrays_of
from raresight.automl.oof_predictions import read_scores
from raresight.automl.records import Trial, TrialResult
from raresight.automl.search import _with_rounds
from raresight.metrics import partial_auc
from raresight.model.families import Candidate, fit_candidates
from raresight.tables.splits import make_folds

LOOKS = (10, 20, 30, 40, 50, 60)
BOOSTED = (
    Candidate("lightgbm", "crossentropy", (("num_leaves", 5), ("learning_rate", 0.15))),
    Candidate("xgboost", "tbl(alpha=0.8,C=0.5)", (("max_depth", 3), ("learning_rate", 0.05))),
)


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    monkeypatch.setattr(fold_evaluation, "LEAST_PATIENCE", 30)
    monkeypatch.setattr(fold_evaluation, "MOST_ROUNDS", LOOKS[-1])


def tasks():
    """Folds of the whole table, some rows held out twice, folds by time, and rows with weights."""
    plain = small_task()
    weights = np.where(plain.y == 1, 1.0, np.random.default_rng(0).integers(1, 4, len(plain.y)))
    # By time the earliest rows are in no fold. Positives that grow more common make the folds unlike.
    late = make_folds(plain.y, 3, seed=0, times=np.arange(len(plain.y)))
    return {
        "plain": plain,
        "repeated": small_task(folds=[*plain.folds, *make_folds(plain.y, 3, seed=1)]),
        "by time": small_task(folds=late),
        "weights": small_task(weights=weights),
    }


def evaluated(task, candidate, folder, seconds=None):
    """The result of a candidate and its out-of-fold log-odds."""
    (folder / "scores").mkdir(exist_ok=True)
    evaluator = FoldEvaluator(task.aim, tuple(task.categorical), tuple(task.n_categories), folder)
    (result,) = evaluator(arrays_of(task), Job((0,), (candidate,), seconds))
    assert result.message == ""
    return result, read_scores(folder, 0, result.scores_sha256)


def fitted_by_fold(task, candidate, rounds):
    """Out-of-fold log-odds of plain fits with a number of rounds."""
    total, count = np.zeros(len(task.y)), np.zeros(len(task.y))
    for fold in task.folds:
        (one,) = fit_candidates(
            [candidate.having(n_estimators=rounds)],
            task.X[fold.train],
            task.y[fold.train],
            task.categorical,
            task.n_categories,
            weights=None if task.weights is None else task.weights[fold.train],
            seed=task.aim.seed,
        )
        total[fold.test] += one.link(one.scores(task.X[fold.test]))
        count[fold.test] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def area(task, log_odds):
    known = ~np.isnan(log_odds)
    weights = None if task.weights is None else task.weights[known]
    return partial_auc(
        task.y[known], log_odds[known], task.aim.max_fpr, kind="mcclish", sample_weight=weights
    )


def more_rounds(task):
    """How many times as many rounds a fit to all rows gets."""
    if (~np.isnan(fitted_counts(task))).all():
        return len(task.folds) * len(task.y) / sum(len(fold.train) for fold in task.folds)
    return 1.15


def fitted_counts(task):
    counts = np.full(len(task.y), np.nan)
    for fold in task.folds:
        counts[fold.test] = 1
    return counts


@pytest.mark.parametrize("candidate", BOOSTED, ids=lambda one: one.family)
@pytest.mark.parametrize("kind", ["plain", "repeated", "by time", "weights"])
def test_the_rounds_are_those_of_the_best_look_and_the_scores_those_of_plain_fits(kind, candidate, tmp_path):
    task = tasks()[kind]
    result, log_odds = evaluated(task, candidate, tmp_path)
    looks = {rounds: fitted_by_fold(task, candidate, rounds) for rounds in LOOKS}
    areas = {rounds: area(task, scores) for rounds, scores in looks.items()}
    # A later look is better only by a least gain, and so many worse ones end the search.
    best = LOOKS[0]
    for rounds in LOOKS[1:]:
        if areas[rounds] > areas[best] + 0.02 / np.sqrt(task.y.sum()):
            best = rounds
        elif rounds - best >= max(30, best):
            break
    assert result.rounds == round(best * more_rounds(task))
    np.testing.assert_allclose(log_odds, looks[best], rtol=1e-5, atol=1e-5)
    assert result.partial_auc == pytest.approx(areas[best], abs=1e-6)
    assert result.partial_auc == area(task, log_odds)
    assert np.isnan(log_odds).any() == (kind == "by time")


def test_no_number_of_rounds_is_better_beyond_the_least_gain(tmp_path):
    task = small_task()
    for candidate in BOOSTED:
        result, _ = evaluated(task, candidate, tmp_path)
        areas = [area(task, fitted_by_fold(task, candidate, rounds)) for rounds in LOOKS]
        chosen = LOOKS.index(round(result.rounds / more_rounds(task)))
        # The first of those that are about as good.
        assert areas[chosen] > max(areas[:chosen], default=0.0)
        assert max(areas[chosen : chosen + 4]) <= areas[chosen] + 0.02 / np.sqrt(task.y.sum())


def test_a_curve_that_rises_is_followed(monkeypatch, tmp_path):
    """Patience grows with the rounds: as many more as the best look had."""
    monkeypatch.setattr(fold_evaluation, "LEAST_PATIENCE", 20)
    monkeypatch.setattr(fold_evaluation, "MOST_ROUNDS", 400)
    seen = []
    curve = {10: 0.5, 100: 0.7, 180: 0.8}  # nothing in between, and nothing after
    monkeypatch.setattr(FoldEvaluator, "_area", lambda self, arrays, log_odds: seen.append(0) or rate())

    def rate():
        rounds = 10 * len(seen) if len(seen) <= 10 else 100 + 20 * (len(seen) - 10)
        return curve.get(rounds, 0.1)

    flat = replace(BOOSTED[0], parameters=(("num_leaves", 2),))
    (tmp_path / "scores").mkdir()
    evaluator = FoldEvaluator(AIM, (4,), (3,), tmp_path)
    found = evaluator._grow(arrays_of(small_task()), flat, None)
    # 10 rounds had a patience of 20: those of 100 were never seen.
    assert (found.rounds, len(seen)) == (15, 3)
    curve[30] = 0.6
    curve[60] = 0.65
    seen.clear()
    found = evaluator._grow(arrays_of(small_task()), flat, None)
    assert found.rounds == 1.5 * 180
    # The looks to 180 rounds, and those to as many again.
    assert len(seen) == 10 + 4 + 9


def test_time_ends_the_growth_after_a_look(tmp_path):
    task = small_task()
    result, log_odds = evaluated(task, BOOSTED[0], tmp_path, seconds=0.0)
    assert result.rounds == round(10 * more_rounds(task))
    np.testing.assert_allclose(log_odds, fitted_by_fold(task, BOOSTED[0], 10), rtol=1e-5, atol=1e-5)


def test_the_candidate_of_a_trial_has_the_rounds_of_a_fit_to_all_rows():
    result = TrialResult(0.9, 0.5, 1.0, rounds=75)
    trial = _with_rounds(Trial(0, BOOSTED[0], "default", result))
    assert trial.candidate == BOOSTED[0].having(n_estimators=75)
    linear = Trial(0, Candidate("linear", "tbl"), "default", replace(result, rounds=0))
    assert _with_rounds(linear) == linear


def test_linear_candidates_are_fitted_together_as_alone(tmp_path):
    task = small_task()
    several = tuple(Candidate("linear", loss) for loss in ("crossentropy", "focal", "poly(epsilon=1e308)"))
    evaluator = FoldEvaluator(AIM, (4,), (3,), tmp_path)
    (tmp_path / "scores").mkdir()
    first, second, failed = evaluator(arrays_of(task), Job((3, 5, 7), several))
    assert failed.message
    assert not first.message + second.message
    for number, candidate, result in ((3, several[0], first), (5, several[1], second)):
        expected = np.empty(len(task.y))
        for fold in task.folds:
            (one,) = fit_candidates([candidate], task.X[fold.train], task.y[fold.train], (4,), (3,))
            expected[fold.test] = one.link(one.scores(task.X[fold.test]))
        scores = read_scores(tmp_path, number, result.scores_sha256)
        np.testing.assert_allclose(scores, expected, atol=1e-4)
        assert result.rounds == 0


def test_warnings_belong_to_the_candidate(tmp_path):
    X, y = table(300, 6)
    task = small_task(X=X, y=y, folds=make_folds(y, 3, seed=0))
    for family in ("linear", "lightgbm"):
        result, _ = evaluated(task, Candidate(family, "tbl(alpha=0.8,C=1.7)"), tmp_path)
        assert any("is not convex in the score" in text for text in result.warnings)
        assert len(set(result.warnings)) == len(result.warnings)
