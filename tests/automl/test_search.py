"""Searches in this process: outcome, pruning, failures, limits, and folders that hold something else."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from table_search import AIM, TRIALS, facts, small_space, small_task

from raresight.automl.evaluation import baseline_of, leaderboard
from raresight.automl.records import Limits
from raresight.automl.search import ROUND, rounds, search
from raresight.automl.space import make_space, planned_trials
from raresight.common.json_values import digest_of
from raresight.engines import LocalEngine
from raresight.metrics import partial_auc, recall_at_fpr
from raresight.tables.splits import Split


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_the_values_are_those_of_the_scores(whole, tmp_path):
    task = small_task()
    found = search(task, small_space(), Limits(TRIALS), folder=whole[1])
    assert len(found.trials) == TRIALS
    for trial in found.trials:
        if trial.state != "complete":
            with pytest.raises(ValueError, match="is not complete"):
                found.out_of_fold(trial.number)
            continue
        scores = found.out_of_fold(trial.number)
        assert scores.dtype == np.float32
        areas = [partial_auc(task.y[f.test], scores[f.test], task.aim.max_fpr) for f in task.folds]
        recalls = [recall_at_fpr(task.y[f.test], scores[f.test], task.aim.fpr) for f in task.folds]
        assert trial.fold_values == tuple(areas)
        assert trial.fold_recalls == tuple(recalls)
        assert trial.partial_auc == pytest.approx(np.mean(areas), abs=1e-15)
        assert trial.recall == pytest.approx(np.mean(recalls), abs=1e-15)
        assert trial.seconds > 0
    complete = [trial for trial in found.trials if trial.state == "complete"]
    assert found.best == min(complete, key=lambda t: (-t.partial_auc, -t.recall, t.number))
    assert found.stopped_by == "trials"
    assert names(whole[1]) == {"trials.jsonl", "lock", "scores", "search.json"}
    scored = {f"{trial.number}.npy" for trial in complete}
    assert scored <= names(whole[1] / "scores")
    assert not [name for name in names(whole[1] / "scores") if "-" in name or "tmp" in name]


def test_a_finished_search_is_not_repeated(whole):
    journal = whole[1] / "trials.jsonl"
    before = len(journal.read_bytes().splitlines())
    found = search(small_task(), small_space(), Limits(TRIALS), folder=whole[1])
    assert facts(found) == whole[0]
    assert len(journal.read_bytes().splitlines()) <= before + 1  # the seconds spent


def test_the_seed_decides(whole, tmp_path):
    found = search(small_task(aim=replace(AIM, seed=1)), small_space(), Limits(10), folder=tmp_path)
    other = [trial["candidate"] for trial in facts(found)["trials"]]
    same = [trial["candidate"] for trial in whole[0]["trials"][:10]]
    assert other[:6] == same[:6]  # planned
    assert all(a != b for a, b in zip(other[6:], same[6:]))


def test_failed_candidates_say_why(whole):
    failed = [trial for trial in whole[0]["trials"] if trial["state"] == "failed"]
    assert {trial["candidate"]["family"] for trial in failed} == {"linear", "lightgbm"}
    for trial in failed:
        assert trial["candidate"]["loss"] == "poly(epsilon=1e308)"
        assert trial["message"]
        assert trial["partial_auc"] is None
        assert "\n" not in trial["message"]
    # The linear ones that were to be fitted with it were fitted.
    good = [trial for trial in whole[0]["trials"] if trial["candidate"]["loss"] != "poly(epsilon=1e308)"]
    assert all(trial["state"] != "failed" for trial in good)


def test_hopeless_candidates_are_given_up(whole):
    pruned = [trial for trial in whole[0]["trials"] if trial["state"] == "pruned"]
    assert pruned
    for trial in pruned:
        assert trial["origin"] == "search"
        assert 1 <= len(trial["fold_values"]) < 3
        assert trial["partial_auc"] is None


def test_all_failing_is_an_error(tmp_path):
    task = small_task()
    bad = np.flatnonzero(task.y == 0)[:500]
    folds = [Split(np.setdiff1d(np.arange(len(task.y)), bad), bad)]
    with pytest.raises(
        RuntimeError, match=r"no candidate could be evaluated; the first failed so: .*positive"
    ):
        search(small_task(folds=folds), make_space("linear", "focal"), Limits(50), folder=tmp_path)


def test_weights_count(tmp_path):
    task = small_task()
    weights = np.where(task.y == 1, 1.0, np.random.default_rng(0).integers(1, 4, len(task.y)))
    task = small_task(weights=weights)
    found = search(task, make_space("linear", "focal"), Limits(2), folder=tmp_path)
    scores = found.out_of_fold(0)
    test = task.folds[1].test
    area = partial_auc(task.y[test], scores[test], task.aim.max_fpr, sample_weight=weights[test])
    assert found.trials[0].fold_values[1] == area
    row = leaderboard(found, task, 0)[0]
    assert row.number == 0 or row.comparison.method == "bootstrap"


def test_more_trials_later_are_the_same_trials(whole, tmp_path):
    for trials in (1, 4, 9, TRIALS):
        found = search(small_task(), small_space(), Limits(trials), folder=tmp_path)
        assert len(found.trials) == trials
    assert facts(found) == whole[0]


def test_two_jobs_find_the_same(whole, tmp_path):
    with LocalEngine(2, tmp_path) as engine:
        found = search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path, engine=engine)
    assert facts(found) == whole[0]
    assert names(tmp_path) == {"trials.jsonl", "lock", "scores", "search.json"}


def test_without_time_only_cross_entropy_is_tried_and_more_time_goes_on(whole, tmp_path):
    space, task = small_space(), small_task()
    for _ in range(2):  # the time spent counts when it is called again
        found = search(task, space, Limits(seconds=0.001), folder=tmp_path)
        assert found.stopped_by == "budget"
        assert [trial.candidate.text for trial in found.trials] == [
            "linear, crossentropy",
            "lightgbm, crossentropy",
        ]
    spent = found.seconds
    found = search(task, space, Limits(TRIALS, seconds=spent + 1.0), folder=tmp_path)
    assert found.seconds > spent
    found = search(task, space, Limits(TRIALS, seconds=1000.0), folder=tmp_path)
    assert facts(found) == whole[0]


def test_a_budget_is_kept(tmp_path):
    found = search(small_task(), small_space(), Limits(seconds=2.5), folder=tmp_path)
    assert found.stopped_by == "budget"
    assert len(found.trials) >= 2
    assert found.seconds < 10  # one step more, on a busy machine


def test_what_the_listener_hears(tmp_path):
    heard = []
    found = search(small_task(), small_space(), Limits(7), folder=tmp_path, listener=heard.append)
    assert [progress.done for progress in heard] == sorted(progress.done for progress in heard)
    assert heard[0].done == 0
    assert heard[0].running
    assert heard[0].best is None
    assert heard[-1].trials == found.trials
    assert heard[-1].best == found.best
    assert heard[-1].running == ()
    assert heard[-1].seconds_left == 0
    assert {progress.total for progress in heard} == {7}
    assert len(heard) >= 2 * len(found.trials)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"aim": replace(AIM, seed=5)}, "the seed (there 0, now 5)"),
        ({"aim": replace(AIM, fpr=0.01)}, "fpr (there 0.05, now 0.01)"),
        ({"aim": replace(AIM, max_fpr=0.2)}, "max_fpr (there 0.1, now 0.2)"),
        ({"y": "one label"}, "the rows, labels or weights"),
        ({"X": "one value"}, "the rows, labels or weights"),
        ({"weights": np.ones(3000)}, "the rows, labels or weights"),
        ({"folds": "fewer"}, "the folds"),
        ({"n_categories": (4,)}, "which columns hold categories"),
    ],
)
def test_another_search_in_the_folder_is_refused(whole, changes, said):
    task = small_task()
    if "y" in changes:
        changes = {"y": np.where(np.arange(3000) == 7, 1 - task.y, task.y)}
    if "X" in changes:
        changed = task.X.copy()
        changed[5, 2] += 1e-3
        changes = {"X": changed}
    if "folds" in changes:
        changes = {"folds": task.folds[:2]}
    with pytest.raises(ValueError, match="holds another search; different: ") as error:
        search(small_task(**changes), small_space(), Limits(TRIALS), folder=whole[1])
    assert said in str(error.value)


def test_another_space_or_library_is_refused(whole, tmp_path):
    with pytest.raises(ValueError, match="different: the losses"):
        search(small_task(), make_space("linear,lightgbm", "focal"), Limits(TRIALS), folder=whole[1])
    shutil.copytree(whole[1], tmp_path / "old")
    path = tmp_path / "old" / "search.json"
    written = json.loads(path.read_text())
    written["versions"]["lightgbm"] = "1.0"
    path.write_text(json.dumps(written | {"description_sha256": digest_of(written)}))
    with pytest.raises(ValueError, match=r"versions of the libraries .*1\.0"):
        search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path / "old")
    path.write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path / "old")
    path.unlink()
    with pytest.raises(ValueError, match=r"without its search\.json"):
        search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path / "old")


def test_limits_are_needed():
    with pytest.raises(ValueError, match="needs a limit"):
        Limits()
    with pytest.raises(ValueError, match="trials must be at least 1"):
        Limits(0)
    with pytest.raises(ValueError, match="seconds must be above 0"):
        Limits(seconds=0.0)


def test_rounds_cover_every_number_once():
    planned = planned_trials(make_space("linear,lightgbm,xgboost"), (990, 10))
    turns = [turn for turn, _ in zip(rounds(planned, 3), range(12))]
    assert [turn.start for turn in turns[1:]] == [turn.stop for turn in turns[:-1]]
    assert [turn.stop for turn in turns[:6]] == [3, 11, 19, 21, 45, 45 + ROUND]
    assert turns[4].stages == ((0, 1, 2),)
    assert turns[5].stages == ((0,), (1,), (2,))


def test_the_leaderboard(whole):
    task = small_task()
    found = search(task, small_space(), Limits(TRIALS), folder=whole[1])
    base = baseline_of(found, "lightgbm")
    assert base.number == 1
    rows = leaderboard(found, task, base.number)
    assert len(rows) == TRIALS
    assert {row.number for row in rows} == set(range(TRIALS))
    states = [row.state for row in rows]
    assert states == sorted(states, key=["complete", "pruned", "failed"].index)
    areas = [row.partial_auc for row in rows if row.state == "complete"]
    assert areas == sorted(areas, reverse=True)
    assert replace(rows[0], comparison=None) == found.best
    assert base.comparison is None
    for row in rows:
        assert (row.comparison is not None) == (row.state == "complete" and row.number != base.number)
    best = rows[0].comparison
    pooled = partial_auc(task.y, found.out_of_fold(found.best.number), task.aim.max_fpr)
    assert best.a == pytest.approx(pooled)
    assert best.low < best.difference < best.high
    with pytest.raises(ValueError, match="no trial of crossentropy with defaults in xgboost"):
        baseline_of(found, "xgboost")
